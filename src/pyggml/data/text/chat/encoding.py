# SPDX-License-Identifier: MIT
"""Conversations to token ids, and which of them are trained."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .... import checks
from ....errors import FormatError, reason
from ..documents import Documents, check_documents
from ..tokenizer import Tokenizer
from .chats import Chat
from .pieces import PieceEncoder
from .renderer import TemplateFault
from .spans import Rendered
from .template import ChatTemplate

__all__ = ["ChatCounts", "EncodedChats", "encode_chats", "encode_prompt", "show_sample"]

_TOO_LONG = ("cut", "split", "drop")


@dataclass
class ChatCounts:
    """Counts of conversations, by their fate.

    Attributes:
        chats: conversations that were read.
        documents: documents that were made of them.
        tokens: tokens of all documents.
        trained: tokens that the loss counts.
        longest: tokens of the longest conversation.
        own_texts: documents that an answer needed for itself; see `ChatTemplate.examples`.
        cut: conversations of which only the beginning is kept.
        split: conversations that became several documents.
        dropped: conversations that were too long, or whose longest texts were.
        cut_off: those of `cut` that are left out, as their first answer lies behind the cut.
        untrained: parts of conversations that were left out because nothing in them is trained.
        bad: conversations that the template or the vocabulary could not write.
    """

    chats: int = 0
    documents: int = 0
    tokens: int = 0
    trained: int = 0
    longest: int = 0
    own_texts: int = 0
    cut: int = 0
    cut_off: int = 0
    split: int = 0
    dropped: int = 0
    untrained: int = 0
    bad: int = 0

    def summary(self) -> str:
        """Return the counts as a line; what did not happen is not in it."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        words = (f"{count:,} {name.replace('_', ' ')}" for name, count in named.items() if count)
        return ", ".join(words)


@dataclass(frozen=True)
class EncodedChats:
    """Conversations as documents.

    Args:
        documents: the token ids; `counted` flags those that are trained.
        counts: what became of the conversations.
    """

    documents: Documents
    counts: ChatCounts


def encode_chats(
    chats: Iterable[Chat],
    tokenizer: Tokenizer,
    template: ChatTemplate | None = None,
    *,
    train_on: str = "answers",
    seq_len: int | None = None,
    too_long: str = "cut",
    skip_bad: bool = False,
    **extra: Any,
) -> EncodedChats:
    """Turn conversations into documents whose loss counts the answers.

    What is trained of an answer is its text and the mark that ends it. An answer and the prompt for
    it are tokenized apart, so that both have the tokens that they have when the model answers.
    Special tokens that the text spells are parsed, as llama.cpp parses a template's text. A text
    without a conversation is trained as a whole, and the end-of-text token follows it.

    Args:
        chats: what `read_chats` gives.
        tokenizer: text to ids.
        template: of the model. None takes pairs of a prompt and its completion as they are, with
            the end-of-text token after the completion.
        train_on: "answers", "last" (the last answer of each conversation) or "all".
        seq_len: most inputs of a document: it has one token more. None leaves all as they are.
        too_long: what becomes of longer conversations: "cut" keeps the beginning, "split" makes
            documents that do not see each other, "drop" leaves them out.
        skip_bad: leave out conversations that cannot be written or have nothing to train, and
            count them.
        extra: further variables of the template, such as `enable_thinking`.

    Raises:
        FormatError: the template cannot write a conversation, the vocabulary has no tokens for it,
            or nothing in it is trained; names its place. Or no document is left.
        ValueError: an option is out of range.

    Example:
        >>> tokenizer = Tokenizer.chars(["user: 2+2?", "assistant: 4"])
        >>> template = ChatTemplate(
        ...     "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}"
        ...     "{% if add_generation_prompt %}assistant: {% endif %}")
        >>> messages = [
        ...     {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
        >>> encoded = encode_chats([Chat(messages)], tokenizer, template)
        >>> show_sample(encoded.documents, 0, tokenizer)
        [('user: 2+2?assistant: ', False), ('4<|endoftext|>', True)]
    """
    who = "encode_chats"
    checks.instance(who, "tokenizer", tokenizer, Tokenizer)
    if template is not None:
        checks.instance(who, "template", template, ChatTemplate, "ChatTemplate.of(...) makes one")
    checks.choice(who, "train_on", train_on, ("all", "answers", "last"))
    checks.choice(who, "too_long", too_long, _TOO_LONG)
    checks.flag(who, "skip_bad", skip_bad)
    most = None if seq_len is None else checks.whole(who, "seq_len", seq_len, 1) + 1
    encoder = PieceEncoder(tokenizer)
    counts = ChatCounts()
    ids: list[np.ndarray] = []
    flags: list[np.ndarray] = []
    for number, chat in enumerate(checks.items(who, "chats", chats)):
        counts.chats += 1
        where = checks.instance(who, "a chat", chat, Chat).where or f"chat {number}"
        try:
            texts = _texts(chat, template, train_on, encoder.special, extra)
            pairs = [encoder.encode(text) for text in texts]
            if not any(trained[1:].any() for _, trained in pairs):
                raise FormatError(
                    "a conversation must have a token to train; it has none: leave it out with"
                    " `skip_bad`"
                )
        except ValueError as error:
            if not skip_bad or isinstance(error, TemplateFault):
                raise FormatError(f"{who}: {where}: {reason(error)}") from error
            counts.bad += 1
            continue
        counts.own_texts += len(pairs) - 1
        before, long = len(ids), any(tokens.size > (most or tokens.size) for tokens, _ in pairs)
        for tokens, trained in pairs:
            counts.longest = max(counts.longest, tokens.size)
            for part in _parts(tokens.size, most, too_long):
                if trained[part][1:].any():
                    ids.append(tokens[part])
                    flags.append(trained[part])
                elif too_long != "cut":
                    counts.untrained += 1
        if long and too_long == "cut":
            counts.cut += 1
            counts.cut_off += len(ids) == before
        elif long:
            counts.split += too_long == "split"
            counts.dropped += too_long == "drop"
    if not ids:
        cure = "" if most is None else ": give a larger `seq_len`"
        raise FormatError(f"{who}: no conversation is left to train: {counts.summary()}{cure}")
    documents = Documents.of(ids, flags)
    counts.documents, counts.tokens = len(documents), documents.ids.size
    counts.trained = sum(int(flag[1:].sum()) for flag in flags)
    return EncodedChats(documents, counts)


def encode_prompt(
    messages: Sequence[Any],
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    tools: Sequence[Any] | None = None,
    **extra: Any,
) -> np.ndarray:
    """Return the tokens of a conversation that the model is to answer.

    Args:
        messages: the conversation, which ends with the message to answer.
        tokenizer: text to ids.
        template: of the model. None takes the one message of a pair as it is.
        tools: descriptions of functions that the assistant may call.
        extra: further variables of the template.

    Returns:
        ids (N,), int32.

    Raises:
        FormatError: the template fails, or there is none for a conversation.
        ValueError: the vocabulary has no tokens for a character.
    """
    if template is None:
        if [each["role"] for each in messages] != ["user"]:
            raise FormatError("encode_prompt: a conversation needs a chat template; got none")
        text = checks.text("encode_prompt", "the content of the message", messages[0]["content"])
        return PieceEncoder(tokenizer).encode(Rendered(text, []), whole=True)[0]
    checks.instance("encode_prompt", "template", template, ChatTemplate)
    text = template.render(messages, tools, add_generation_prompt=True, **extra)
    return PieceEncoder(tokenizer).encode(Rendered(text, []), whole=True)[0]


def show_sample(documents: Documents, item: int, tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    """Return the text of a document in pieces, each with whether it is trained.

    Args:
        documents: of `encode_chats`.
        item: the number of the document.
        tokenizer: ids to text.

    Example:
        >>> tokenizer = Tokenizer.chars(["ab"])
        >>> documents = Documents.of([tokenizer.encode("aab")], [[False, False, True]])
        >>> show_sample(documents, 0, tokenizer)
        [('aa', False), ('b', True)]
    """
    ids = check_documents("show_sample", documents)[item]
    flags = documents.targets(item).tolist()
    pieces, end, before = [], 0, ""
    for trained, run in itertools.groupby(flags):
        end += len(list(run))
        # The text of a part depends on what stands before it: the first space of a text is hidden.
        text = tokenizer.decode(ids[:end])
        pieces.append((text[len(before) :], trained))
        before = text
    return pieces


def _texts(
    chat: Chat,
    template: ChatTemplate | None,
    train_on: str,
    special: Sequence[str],
    extra: dict[str, Any],
) -> list[Rendered]:
    """Return the texts to train on for a conversation."""
    if chat.text is not None:
        return [Rendered(chat.text, [(0, len(chat.text))], ended=False)]
    if template is not None:
        return template.examples(
            chat.messages, chat.tools, train_on=train_on, special=special, **extra
        )
    roles = [message["role"] for message in chat.messages]
    contents = [message["content"] for message in chat.messages]
    if roles != ["user", "assistant"] or not all(isinstance(text, str) for text in contents):
        raise FormatError(
            "a conversation needs a chat template; the model's file has none: give one with"
            " `chat_template`"
        )
    prompt, completion = contents
    text = prompt + completion
    return [Rendered(text, [(0 if train_on == "all" else len(prompt), len(text))], ended=False)]


def _parts(size: int, most: int | None, too_long: str) -> list[slice]:
    """Return the parts of a document that become documents."""
    if most is None or size <= most:
        return [slice(0, size)]
    if too_long == "drop":
        return []
    if too_long == "cut":
        return [slice(0, most)]
    # The last target of a part is the first input of the next.
    return [slice(start, start + most) for start in range(0, size - 1, most - 1)]
