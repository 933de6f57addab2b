# SPDX-License-Identifier: MIT
"""Conversations, and what rows of data they are read from."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .... import checks
from ....errors import FormatError, amount
from ...fingerprint import fingerprint
from ..records import bad_row, no_rows, read_records
from .formats import FORMATS, Row, recognised

__all__ = ["Chat", "Chats", "read_chats"]

_log = logging.getLogger("pyggml.data")
_TOLD = 3


@dataclass(frozen=True)
class Chat:
    """A conversation, or a text without one.

    Args:
        messages: mappings with `role` and `content`, and perhaps `tool_calls`; none of a text.
        tools: descriptions of functions that the assistant may call.
        text: a text, of which all is trained; None of a conversation.
        where: the place that it comes from, for messages.

    Example:
        >>> Chat([{"role": "user", "content": "Hi"}]).messages[0]["role"]
        'user'
    """

    messages: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[Mapping[str, Any]] | None = None
    text: str | None = None
    where: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for message in checks.items("Chat", "messages", self.messages):
            checks.mapping("Chat", "each of messages", message)
        for tool in () if self.tools is None else checks.items("Chat", "tools", self.tools):
            checks.mapping("Chat", "each of tools", tool)
        if self.text is not None:
            checks.text("Chat", "text", self.text)
        checks.text("Chat", "where", self.where)

    def key(self) -> str:
        """Return a text that two chats of the same content have in common."""
        return json.dumps([self.messages, self.tools, self.text], sort_keys=True, default=str)


@dataclass(frozen=True)
class Chats(Sequence[Chat]):
    """Conversations, and what was left out while they were read.

    Args:
        items: the conversations.
        formats: for each source its name and the format of its rows.
        bad: how many rows were left out because they hold no conversation.
        duplicates: how many were left out because another has the same content.
        first_bad: the error of the first bad row.

    Example:
        >>> chats = read_chats([{"prompt": "2 + 2 =", "completion": "4"}])
        >>> len(chats), chats.formats, chats[0].messages[1]["content"]
        (1, {'rows': 'pairs'}, '4')
    """

    items: Sequence[Chat]
    formats: Mapping[str, str] = field(default_factory=dict)
    bad: int = 0
    duplicates: int = 0
    first_bad: str = ""

    def __post_init__(self) -> None:
        for item in checks.items("Chats", "items", self.items):
            checks.instance("Chats", "each of items", item, Chat)
        checks.mapping("Chats", "formats", self.formats)
        for name in ("bad", "duplicates"):
            checks.whole("Chats", name, getattr(self, name), 0)
        checks.text("Chats", "first_bad", self.first_bad)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, item: Any) -> Any:
        """Return a conversation, or those of a slice."""
        return self.items[item]

    def unique(self) -> Chats:
        """Return each content once, at its first place."""
        kept: dict[str, Chat] = {}
        for chat in self.items:
            kept.setdefault(chat.key(), chat)
        return self._with([*kept.values()], self.duplicates + len(self.items) - len(kept))

    def repeated(self, weight: float, seed: int = 0) -> Chats:
        """Return each conversation `weight` times; of a fraction, as many as it gives.

        Args:
            weight: > 0 and at most 1000: 2 takes each twice, 0.5 half of them, 1.5 each once and
                half of them once more.
            seed: of the choice of that part.

        Raises:
            ValueError: the weight is out of range.
        """
        weight = checks.number("Chats.repeated", "weight", weight, above=0, most=1000)
        seed = checks.whole("Chats.repeated", "seed", seed, 0)
        often, more = int(weight), round((weight % 1) * len(self.items))
        chosen = np.random.default_rng(seed).permutation(len(self.items))[:more]
        items = [*self.items] * often + [self.items[i] for i in sorted(chosen.tolist())]
        return self._with(items, self.duplicates)

    def split(self, validation: float = 0.1, seed: int = 0) -> tuple[Chats, Chats]:
        """Return conversations to train on and others to validate on, chosen at random.

        Conversations of the same content are all on one side.

        Args:
            validation: share of the second part, > 0 and < 1.
            seed: of the choice.

        Raises:
            ValueError: the share is out of range, or a part would be empty.
        """
        who = "Chats.split"
        validation = checks.number(who, "validation", validation, above=0, below=1)
        seed = checks.whole(who, "seed", seed, 0)
        keys = [chat.key() for chat in self.items]
        different = list(dict.fromkeys(keys))
        count = max(1, round(validation * len(different)))
        if count >= len(different):
            raise ValueError(
                f"{who}: both parts must hold a conversation; got {len(different)} different ones"
                f" with validation={validation}"
            )
        order = np.random.default_rng(seed).permutation(len(different))[:count].tolist()
        held = {different[i] for i in order}
        sides: tuple[list[Chat], list[Chat]] = ([], [])
        for key, chat in zip(keys, self.items, strict=True):
            sides[key in held].append(chat)
        return self._with(sides[0], self.duplicates), Chats(sides[1], self.formats)

    def fingerprint(self) -> int:
        """Return a checksum of the conversations."""
        return fingerprint(*[chat.key() for chat in self.items])

    def __add__(self, other: Chats) -> Chats:
        """Return the conversations of both."""
        checks.instance("Chats", "other", other, Chats)
        return Chats(
            [*self.items, *other.items], {**self.formats, **other.formats}, self.bad + other.bad,
            self.duplicates + other.duplicates, self.first_bad or other.first_bad,
        )  # fmt: skip

    def summary(self) -> str:
        """Return a line about what was read and what was left out."""
        kinds = ", ".join(f"{name}: {kind}" for name, kind in self.formats.items())
        words = [f"{amount(len(self), 'chat')} ({kinds})"]
        words += [f"{amount(self.bad, 'bad row')} left out"] * bool(self.bad)
        words += [f"{amount(self.duplicates, 'duplicate')} left out"] * bool(self.duplicates)
        return "; ".join(words)

    def _with(self, items: Sequence[Chat], duplicates: int) -> Chats:
        return Chats(items, self.formats, self.bad, duplicates, self.first_bad)


def read_chats(
    source: Any, format: str | None = None, *, system: str | None = None, skip_bad: bool = False
) -> Chats:
    """Read conversations from files, a dataset or rows.

    The formats of rows:

    - "messages": `messages`, a list of `role` and `content`, with `tools` if there are any;
    - "sharegpt": `conversations`, a list of `from` and `value`;
    - "alpaca": `instruction`, `output`, and perhaps `input`, `system` and `history`;
    - "pairs": `prompt` and `completion`, texts or lists of messages;
    - "text": `text`, all of which is trained, without a template.

    Lists that are texts, as CSV has them, are read as JSON.

    Args:
        source: what `read_records` takes: files of several formats may stand side by side.
        format: of all rows; None goes by the columns of the first row of each file.
        system: begins each conversation that has no system message.
        skip_bad: leave out rows that hold no conversation, and count them.

    Raises:
        FormatError: a row holds no conversation: it lacks a field, a role is unknown, an answer is
            empty, or there is none; the message names the file and the line.
        ValueError: there is no such format.

    Example:
        >>> rows = [{"instruction": "Add.", "input": "2, 2", "output": "4"}]
        >>> [message["content"] for message in read_chats(rows)[0].messages]
        ['Add.\\n\\n2, 2', '4']
    """
    who = "read_chats"
    if format is not None:
        checks.choice(who, "format", format, FORMATS)
    if system is not None:
        checks.text(who, "system", system)
    checks.flag(who, "skip_bad", skip_bad)
    bad: list[str] = []
    formats: dict[str, str] = {}

    def skip(error: Exception) -> None:
        bad.append(str(error))

    items = []
    for record in read_records(source, skip if skip_bad else None):
        where = str(getattr(record, "where", "a row"))
        name = where.rpartition(":")[0] or "rows"
        try:
            if name not in formats:
                formats[name] = format or recognised(record)
            row = FORMATS[formats[name]](record)
            items.append(_chat(row, where, system))
        except FormatError as error:
            located = bad_row(who, where, error, skip_bad)
            if not skip_bad:
                raise located from error
            skip(located)
    for message in bad[:_TOLD]:
        _log.warning("%s", message)
    if len(bad) > _TOLD:
        _log.warning("%s: %d more rows are left out", who, len(bad) - _TOLD)
    if not items:
        raise no_rows(who, source, "one conversation", bad)
    return Chats(items, formats, len(bad), first_bad=bad[0] if bad else "")


def _chat(row: Row, where: str, system: str | None) -> Chat:
    """Return a conversation whose messages were checked."""
    if row.text is not None:
        return Chat(text=row.text, where=where)
    messages = row.messages
    if system is not None and (not messages or messages[0]["role"] not in ("system", "developer")):
        messages = [{"role": "system", "content": system}, *messages]
    return Chat(messages, row.tools, where=where)
