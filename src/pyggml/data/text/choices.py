# SPDX-License-Identifier: MIT
"""Questions with several answers to choose from."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import checks
from ...errors import FormatError, reason, shown
from .documents import Documents
from .records import no_rows, read_records
from .tokenizer import Tokenizer

__all__ = ["Question", "encode_choices", "read_choices"]

_log = logging.getLogger("pyggml.data")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Marks of WikiHow in HellaSwag's texts.
_BRACKETS = re.compile(r"\[.*?\]")


@dataclass(frozen=True)
class Question:
    """A text and the continuations of it to choose from.

    Args:
        prompt: the text.
        choices: the continuations, each with the space that it begins with.
        answer: the number of the right one.
        where: the place that it comes from, for messages.

    Example:
        >>> Question("The sky is", (" blue", " green"), 0).choices[0]
        ' blue'
    """

    prompt: str
    choices: tuple[str, ...]
    answer: int
    where: str = ""

    def __post_init__(self) -> None:
        checks.text("Question", "prompt", self.prompt)
        count = len(checks.names("Question", "choices", self.choices))
        checks.whole("Question", "answer", self.answer, 0, max(0, count - 1))
        checks.text("Question", "where", self.where)


def read_choices(source: Any, skip_bad: bool = False) -> list[Question]:
    """Read questions from files, a dataset or rows.

    The formats of rows:

    - ARC, OpenBookQA: `question` (or `question_stem`), `choices` with `text` and `label`,
      `answerKey`; the prompt is `Question: …` and `Answer:`;
    - HellaSwag: `ctx` (or `ctx_a` and `ctx_b`), `endings`, `label`, `activity_label`;
    - PIQA: `goal`, `sol1`, `sol2`, `label`;
    - any other: `question`, `choices` (a list of texts), `answer` (a number from 0, a letter, or
      the text of the choice).

    Args:
        source: what `read_records` takes.
        skip_bad: leave out rows that are no question, and log how many.

    Raises:
        FormatError: a row is no question; names its place. Or there is none.

    Source: lm-evaluation-harness, tasks arc, hellaswag and piqa.

    Example:
        >>> rows = [{"question": "2 + 2?", "choices": ["3", "4"], "answer": "B"}]
        >>> read_choices(rows)[0].answer
        1
    """
    checks.flag("read_choices", "skip_bad", skip_bad)
    found: list[Question] = []
    bad: list[str] = []
    skip: Callable[[FormatError], None] = lambda error: bad.append(str(error))  # noqa: E731
    for record in read_records(source, skip if skip_bad else None):
        where = str(getattr(record, "where", "a row"))
        try:
            found.append(_question(record, where))
        except FormatError as error:
            located = FormatError(f"read_choices: {where}: {reason(error)}")
            if not skip_bad:
                raise located from error
            skip(located)
    if bad:
        _log.warning("%d bad rows are left out; the first: %s", len(bad), bad[0])
    if not found:
        raise no_rows("read_choices", source, "one question", bad)
    return found


def encode_choices(questions: Sequence[Question], tokenizer: Tokenizer) -> Documents:
    """Return a document for each choice of each question; the choice counts.

    The prompt and the prompt with the choice are tokenized, as lm-evaluation-harness does it: what
    the second has more than the first is the choice.

    Args:
        questions: what `read_choices` gives.
        tokenizer: text to ids.

    Raises:
        FormatError: the vocabulary has no tokens for a character; names the question.

    Example:
        >>> tokenizer = Tokenizer.chars(["2+=45"])
        >>> documents = encode_choices([Question("2+2=", ("4", "5"), 0)], tokenizer)
        >>> documents.targets(0).tolist()
        [False, False, False, False, True]
    """
    who = "encode_choices"
    checks.instance(who, "tokenizer", tokenizer, Tokenizer)
    questions = [
        checks.instance(who, "each of questions", question, Question)
        for question in checks.items(who, "questions", questions)
    ]
    first = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    ids, flags = [], []
    for number, question in enumerate(questions):
        try:
            size = len(first) + tokenizer.encode(question.prompt).size
            for choice in question.choices:
                ids.append([*first, *tokenizer.encode(question.prompt + choice)])
                # A token of both belongs to the choice.
                flags.append(np.arange(len(ids[-1])) >= min(size, len(ids[-1]) - 1))
        except ValueError as error:
            where = question.where or f"question {number}"
            raise FormatError(f"{who}: {where}: {reason(error)}") from error
    return Documents.of(ids, flags)


def _question(record: Mapping[str, Any], where: str) -> Question:
    if "endings" in record:
        prompt, choices = _hellaswag(record), _texts(record, "endings")
        choices = [_clean(text) for text in choices]
        key, labels = record.get("label"), None
    elif "sol1" in record:
        prompt = f"Question: {_text(record, 'goal')}\nAnswer:"
        choices = [_text(record, "sol1"), _text(record, "sol2")]
        key, labels = record.get("label"), None
    else:
        names = ("question", "question_stem", "prompt", "context")
        name = next((name for name in names if name in record), "question")
        text = _text(record, name)
        given = record.get("choices")
        labels = list(given["label"]) if isinstance(given, Mapping) and "label" in given else None
        choices = _texts(given if isinstance(given, Mapping) else record, _where_texts(given))
        prompt = f"Question: {text}\nAnswer:" if name.startswith("question") else text
        key = record.get("answerKey", record.get("answer", record.get("label")))
    if not all(text.strip() for text in choices):
        raise FormatError(f"a choice must not be empty; got {shown(choices)}")
    if len(choices) < 2:
        raise FormatError(f"a question must have at least two choices; got {len(choices)}")
    return Question(
        prompt, tuple(f" {text.strip()}" for text in choices), _answer(key, choices, labels), where
    )


def _where_texts(given: Any) -> str:
    return "text" if isinstance(given, Mapping) else "choices"


def _hellaswag(record: Mapping[str, Any]) -> str:
    """The beginning of a text, as lm-evaluation-harness writes it."""
    if "ctx_a" in record and "ctx_b" in record:
        text = f"{_text(record, 'ctx_a')} {_text(record, 'ctx_b').capitalize()}"
    else:
        text = _text(record, "ctx")
    label = record.get("activity_label")
    return _clean(f"{label}: {text}" if label else text)


def _clean(text: str) -> str:
    text = text.strip().replace(" [title]", ". ")
    return _BRACKETS.sub("", text).replace("  ", " ")


def _answer(key: Any, choices: Sequence[str], labels: Sequence[Any] | None) -> int:
    """Return the number of the right choice: of a label, a number, a letter or its text."""
    if labels is not None and key in labels:
        return list(labels).index(key)
    found = key
    if isinstance(key, str):
        if key in choices:
            return list(choices).index(key)
        name = key.strip()
        if len(name) == 1 and name.upper() in _LETTERS:
            found = _LETTERS.index(name.upper())
        elif name.isascii() and name.isdigit() and len(name) < 9:
            found = int(name)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < len(choices):
        raise FormatError(
            f"the answer must name one of {len(choices)} choices: a number from 0, a letter, a"
            f" label or the text; got {shown(key)}"
        )
    return found


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value.strip():
        raise FormatError(
            f"{name} must be text; got {shown(value) if name in record else 'no such field'}"
        )
    return value


def _texts(record: Mapping[str, Any], name: str) -> list[str]:
    value: Any = record.get(name)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) for text in value):
        raise FormatError(
            f"{name} must be a list of texts;"
            f" got {shown(value) if name in record else 'no such field'}"
        )
    return list(value)
