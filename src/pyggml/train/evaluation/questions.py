# SPDX-License-Identifier: MIT
"""Scores of a model on questions: choices by their probability, and answers word by word."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import checks
from ...data import (
    Chat,
    ChatTemplate,
    Documents,
    Question,
    Tokenizer,
    encode_choices,
    encode_prompt,
    end_ids,
)  # fmt: skip
from ...models import generate
from ...nn.weight_check import WeightCheck
from ..preferences.logps import document_logps

__all__ = ["AnswerScores", "ChoiceScores", "score_answers", "score_choices"]


@dataclass(frozen=True)
class ChoiceScores:
    """The share of questions of which the likeliest choice is the right one.

    Attributes:
        acc: by the probability of the whole choice.
        acc_norm: by its log-probability for each character.
        questions: how many there were.
    """

    acc: float
    acc_norm: float
    questions: int

    def error(self, share: float) -> float:
        """Return the standard error of one of the shares.

        Args:
            share: acc or acc_norm.
        """
        share = checks.number("ChoiceScores.error", "share", share, 0, 1)
        return math.sqrt(share * (1 - share) / max(1, self.questions - 1))


@dataclass(frozen=True)
class AnswerScores:
    """The share of answers that are those of the data, word by word.

    Attributes:
        exact: the share, space around the answers aside.
        questions: how many there were.
        answers: those of the model.
    """

    exact: float
    questions: int
    answers: tuple[str, ...] = ()


def score_choices(
    model: Any, questions: Sequence[Question], tokenizer: Tokenizer, batch_size: int = 8
) -> ChoiceScores:
    """Choose the likeliest answer to each question, and count the right ones.

    Args:
        model: a language model; nothing is dropped.
        questions: what `read_choices` gives.
        tokenizer: of the model.
        batch_size: choices that are read side by side. Of a longer prompt than the context the end
            counts.

    Raises:
        ValueError: there is no question.
        FormatError: the vocabulary has no tokens for a question.
        RuntimeError: another thread changed the model's weights meanwhile.

    Source: lm-evaluation-harness, `acc` and `acc_norm` of multiple-choice tasks.

    Example:
        >>> tokenizer = Tokenizer.chars(["Question: 2+?345\\nAnswer:"])
        >>> questions = [Question("2+2?", (" 4", " 5"), 0)]
        >>> score_choices(model, questions, tokenizer).questions
        1
    """
    questions = checks.items("score_choices", "questions", questions)
    if not questions:
        raise ValueError("score_choices: questions must hold at least one; got none")
    documents = _last(encode_choices(questions, tokenizer), model.config.context + 1)
    found = document_logps(model, documents, batch_size)
    right = right_norm = place = 0
    for question in questions:
        logps = found[place : place + len(question.choices)]
        place += len(question.choices)
        sizes = np.array([max(1, len(choice.strip())) for choice in question.choices])
        right += int(logps.argmax()) == question.answer
        right_norm += int((logps / sizes).argmax()) == question.answer
    return ChoiceScores(right / len(questions), right_norm / len(questions), len(questions))


def score_answers(
    model: Any,
    chats: Sequence[Chat],
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    max_tokens: int = 256,
    batch_size: int = 8,
    progress: Callable[[int], Any] | None = None,
) -> AnswerScores:
    """Let a model answer the last question of conversations, and compare the answers.

    The model takes the likeliest token each time.

    Args:
        model: a language model.
        chats: what `read_chats` gives; each must hold an answer.
        tokenizer: of the model.
        template: of the model; None asks for completions of pairs as they are.
        max_tokens: most tokens of an answer.
        batch_size: questions that are answered side by side.
        progress: called with the number of questions answered so far.

    Raises:
        ValueError: there is no conversation, or one without an answer.
        FormatError: the template fails.
        RuntimeError: another thread changed the model's weights meanwhile.
    """
    who = "score_answers"
    chats = checks.items(who, "chats", chats)
    size = checks.whole(who, "batch_size", batch_size, 1)
    if not chats:
        raise ValueError(f"{who}: chats must hold at least one; got none")
    prompts, wanted = [], []
    for number, chat in enumerate(chats):
        checks.instance(who, f"chats[{number}]", chat, Chat, "read_chats makes them")
        ends = [i for i, m in enumerate(chat.messages) if m.get("role") == "assistant"]
        if not ends:
            where = chat.where or f"chat {number}"
            raise ValueError(f"{who}: {where}: a conversation must hold an answer; got none")
        prompts.append(encode_prompt(chat.messages[: ends[-1]], tokenizer, template, chat.tools))
        wanted.append(str(chat.messages[ends[-1]].get("content") or ""))
    answers: list[str] = []
    weights = WeightCheck(who, model)
    weights.check()
    for start in range(0, len(prompts), size):
        part = prompts[start : start + size]
        added = generate(model, part, max_tokens, temperature=0, stop_ids=end_ids(tokenizer))
        weights.check()
        answers += [tokenizer.decode(ids, skip_special=True).strip() for ids in added]
        if progress is not None:
            progress(len(answers))
    right = sum(a == b.strip() for a, b in zip(answers, wanted, strict=True))
    return AnswerScores(right / len(chats), len(chats), tuple(answers))


def _last(documents: Documents, most: int) -> Documents:
    """Return the last tokens of longer documents."""
    if int(documents.lengths.max()) <= most:
        return documents
    ids = [documents[i][-most:] for i in range(len(documents))]
    return Documents.of(ids, [documents.targets(i)[-most:] for i in range(len(documents))])
