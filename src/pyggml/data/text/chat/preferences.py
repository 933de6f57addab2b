# SPDX-License-Identifier: MIT
"""Preferences: two answers of which one is better, or single answers that are good or bad."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .... import checks
from ....errors import FormatError, reason, shown
from ...fingerprint import fingerprint
from ..documents import Documents
from ..records import bad_row, no_rows, read_records
from ..tokenizer import Tokenizer
from .chats import Chat
from .encoding import encode_chats
from .formats import FORMATS, unfit
from .template import ChatTemplate

__all__ = ["EncodedPreferences", "Preferences", "encode_preferences", "read_preferences"]

_log = logging.getLogger("pyggml.data")
_PAIRS, _LABELS = ("chosen", "rejected"), ("completion", "label")
_WORDS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Preferences:
    """Conversations whose last answers are compared, or judged one by one.

    Args:
        chats: of pairs, the chosen and the rejected one side by side.
        labels: True for each chat with a good answer, False for one with a bad one.
        paired: the chats are pairs.
        bad: rows that were left out because they hold no preference.
        first_bad: the error of the first of them.
        is_plain: prompts and answers are texts, which need no template.

    Example:
        >>> rows = [{"prompt": "2 + 2 =", "chosen": "4", "rejected": "5"}]
        >>> preferences = read_preferences(rows)
        >>> len(preferences), preferences.labels
        (1, [True, False])
    """

    chats: Sequence[Chat]
    labels: Sequence[bool]
    paired: bool
    bad: int = 0
    first_bad: str = ""
    is_plain: bool = True

    def __len__(self) -> int:
        """Number of rows: pairs, or judged answers."""
        return len(self.chats) // (2 if self.paired else 1)

    def unpaired(self) -> Preferences:
        """Return each answer by itself, with its label."""
        return replace(self, paired=False)

    def split(self, validation: float = 0.1, seed: int = 0) -> tuple[Preferences, Preferences]:
        """Return preferences to train on and others to validate on, chosen at random.

        Those about the same prompt are all on one side.

        Args:
            validation: share of the prompts in the second part, > 0 and < 1.
            seed: of the choice.

        Raises:
            ValueError: the share is out of range, or a part would be empty.
        """
        who = "Preferences.split"
        validation = checks.number(who, "validation", validation, above=0, below=1)
        width = 2 if self.paired else 1
        keys = [Chat(self.chats[i].messages[:-1]).key() for i in range(0, len(self.chats), width)]
        different = list(dict.fromkeys(keys))
        count = max(1, round(validation * len(different)))
        if count >= len(different):
            raise ValueError(
                f"{who}: both parts must hold a prompt; got {len(different)} different ones with "
                f"validation={validation}"
            )
        order = np.random.default_rng(seed).permutation(len(different))[:count].tolist()
        held = {different[i] for i in order}
        sides: tuple[list[int], list[int]] = ([], [])
        for number, key in enumerate(keys):
            sides[key in held].extend(range(number * width, (number + 1) * width))
        first, second = (self._of(side) for side in sides)
        return first, replace(second, bad=0, first_bad="")

    def _of(self, numbers: Sequence[int]) -> Preferences:
        chats = [self.chats[i] for i in numbers]
        return replace(self, chats=chats, labels=[self.labels[i] for i in numbers])

    def fingerprint(self) -> int:
        """Return a checksum of the preferences."""
        return fingerprint(*[chat.key() for chat in self.chats], list(self.labels), self.paired)

    def summary(self) -> str:
        """Return a line about what was read and what was left out."""
        kind = "pairs" if self.paired else f"answers, {sum(self.labels):,} of them good"
        left = f"; {self.bad:,} bad rows left out" if self.bad else ""
        return f"{len(self):,} {kind}{left}"


def read_preferences(
    source: Any, *, system: str | None = None, skip_bad: bool = False
) -> Preferences:
    """Read preferences from files, a dataset or rows.

    A row has `prompt`, `chosen` and `rejected`; or, for KTO, `prompt`, `completion` and `label`.
    Prompt and answers are texts or lists of messages. Without `prompt`, `chosen` and `rejected` are
    whole conversations that differ in their last answer. A label is true or false, or 1 or 0.

    Args:
        source: what `read_records` takes; all rows are of the kind of the first.
        system: begins each conversation that has no system message.
        skip_bad: leave out rows that hold no preference, and count them.

    Raises:
        FormatError: a row holds no preference: it lacks a field, an answer is empty, both answers
            are the same, or they have different prompts; the message names the file and the line.

    Example:
        >>> rows = [{"prompt": "Hi", "completion": "Hello!", "label": True}]
        >>> read_preferences(rows).summary()
        '1 answers, 1 of them good'
    """
    who = "read_preferences"
    checks.flag(who, "skip_bad", skip_bad)
    bad: list[str] = []

    def skip(error: Exception) -> None:
        if not bad:
            _log.warning("%s", error)
        bad.append(str(error))

    chats: list[Chat] = []
    labels: list[bool] = []
    paired: bool | None = None
    is_plain = True
    for record in read_records(source, skip if skip_bad else None):
        where = str(getattr(record, "where", "a row"))
        try:
            paired = _is_paired(record) if paired is None else paired
            if paired:
                found = _pair(record, where, system)
                chats += found
                labels += [True, False]
            else:
                label = _label(record)
                chats.append(_chat(record, "completion", where, system))
                labels.append(label)
            is_plain = is_plain and _is_plain(record)
        except FormatError as error:
            located = bad_row(who, where, error, skip_bad)
            if not skip_bad:
                raise located from error
            skip(located)
    if not chats:
        raise no_rows(who, source, "one preference", bad)
    first_bad = bad[0] if bad else ""
    return Preferences(chats, labels, bool(paired), len(bad), first_bad, is_plain)


def _is_plain(record: Mapping[str, Any]) -> bool:
    """Return True for a row whose prompt and answers are texts."""
    given = (record.get(name) for name in ("prompt", *_PAIRS, "completion") if name in record)
    return "prompt" in record and all(isinstance(value, str) for value in given)


def _is_paired(record: Mapping[str, Any]) -> bool:
    """Return True for a row of two answers, False for one that is judged."""
    for fields, paired in ((_PAIRS, True), (_LABELS, False)):
        if set(fields) <= set(record):
            return paired
    chats = {"messages", "conversation", "conversations", "instruction", "completion", "text"}
    hint = ", of which `method`=sft learns the answers" if chats & set(record) else ""
    raise FormatError(
        "a row must have chosen and rejected, or completion and label; got "
        + (", ".join(map(shown, record)) or "no field")
        + hint
    )


def _pair(record: Mapping[str, Any], where: str, system: str | None) -> list[Chat]:
    """Return the chosen and the rejected conversation."""
    chosen, rejected = (_chat(record, name, where, system) for name in _PAIRS)
    if chosen.messages[:-1] != rejected.messages[:-1]:
        raise FormatError("chosen and rejected must be answers to one prompt; they differ before")
    if chosen.messages[-1] == rejected.messages[-1]:
        raise FormatError("chosen and rejected must differ; got the same answer twice")
    return [chosen, rejected]


def _chat(record: Mapping[str, Any], name: str, where: str, system: str | None) -> Chat:
    """Return a conversation of which the last message is the answer."""
    if name not in record:
        raise unfit(record, name, "an answer")
    given, prompt = record.get(name), record.get("prompt")
    first = given[0] if isinstance(given, (list, tuple)) and given else None
    whole = isinstance(first, Mapping) and first.get("role") not in ("assistant", "tool")
    tools = {"tools": record.get("tools")}
    try:
        if prompt is None or whole:
            row = FORMATS["messages"]({**tools, "messages": given})
        else:
            row = FORMATS["pairs"]({**tools, "prompt": prompt, "completion": given})
    except FormatError as error:
        said = reason(error)
        for old in ("completion", "messages"):
            said = f"{name}{said[len(old) :]}" if said.startswith(old) else said
        raise FormatError(said) from error
    messages = row.messages
    if messages[-1].get("role") != "assistant":
        raise FormatError(f"{name} must end with an answer of the assistant; it does not")
    before = [{k: v for k, v in message.items() if k != "train"} for message in messages[:-1]]
    if system is not None and (not before or before[0]["role"] not in ("system", "developer")):
        before = [{"role": "system", "content": system}, *before]
    return Chat([*before, messages[-1]], row.tools, where=where)


def _label(record: Mapping[str, Any]) -> bool:
    """Return the label of a row; CSV has words."""
    given = record.get("label")
    value = _WORDS.get(given.strip().lower()) if isinstance(given, str) else given
    if isinstance(value, (bool, np.bool_, int)) and value in (0, 1):
        return bool(value)
    raise FormatError(f"label must be true or false; got {shown(given)}")


@dataclass(frozen=True)
class EncodedPreferences:
    """Preferences as documents.

    Args:
        documents: token ids; `counted` flags those of the answers. Pairs lie side by side.
        labels: True for each document with a good answer.
        paired: the documents are pairs.
        cut: rows of which only the beginning is kept.
        dropped: rows that were left out.

    Shape:
        labels (D,) bool
    """

    documents: Documents
    labels: np.ndarray
    paired: bool
    cut: int = 0
    dropped: int = 0

    def __len__(self) -> int:
        """Number of rows: pairs, or judged answers."""
        return len(self.documents) // (2 if self.paired else 1)

    def fingerprint(self) -> int:
        """Return a checksum of the tokens and labels."""
        return fingerprint(self.documents.fingerprint(), np.asarray(self.labels, np.int32),
                           self.paired)  # fmt: skip

    def _is_same(self, pair: Sequence[int], most: int) -> bool:
        """Return True if two documents begin with the same tokens."""
        first, second = (self.documents.part(i, 0, most) for i in pair)
        return np.array_equal(first, second)

    def limited(self, seq_len: int, too_long: str = "cut") -> EncodedPreferences:
        """Return the rows whose documents have at most `seq_len` inputs.

        Args:
            seq_len: most inputs of a document; it has one token more.
            too_long: "cut" keeps the beginning of longer documents, "drop" leaves their rows out.
                Rows without a token of an answer, and pairs that are the same up to the cut, are
                left out in any case.

        Raises:
            FormatError: no row is left.
        """
        who = "EncodedPreferences.limited"
        most = checks.whole(who, "seq_len", seq_len, 1) + 1
        checks.choice(who, "too_long", too_long, ("cut", "drop"))
        width = 2 if self.paired else 1
        kept: list[int] = []
        cut = too_many = 0
        for row in range(len(self)):
            numbers = range(row * width, (row + 1) * width)
            long = any(self.documents.lengths[i] > most for i in numbers)
            trained = all(self.documents.targets(i, 1, most).any() for i in numbers)
            trained = trained and not (long and self.paired and self._is_same(numbers, most))
            if long and too_long == "drop":
                too_many += 1
            elif trained:
                kept += numbers
                cut += long
        if not kept:
            raise FormatError(
                f"{who}: no row is left of {len(self)}: {too_many} have more than {seq_len} inputs,"
                f" {len(self) - too_many} no answer, or twice the same, within them; give a longer"
                " `seq_len`" + (", or cut them" if too_many else "")
            )
        documents = Documents.of(
            [self.documents.part(i, 0, most) for i in kept],
            [self.documents.targets(i, 0, most) for i in kept],
        )
        dropped = len(self) - len(kept) // width
        return EncodedPreferences(documents, self.labels[kept], self.paired, cut, dropped)


def encode_preferences(
    preferences: Preferences,
    tokenizer: Tokenizer,
    template: ChatTemplate | None = None,
    **extra: Any,
) -> EncodedPreferences:
    """Turn preferences into documents, with the tokens of each last answer marked.

    Args:
        preferences: what `read_preferences` gives.
        tokenizer: text to ids.
        template: of the model; None takes a prompt and its answer as they are, with the end-of-text
            token after the answer.
        extra: further variables of the template.

    Raises:
        FormatError: the template cannot write a conversation, or the vocabulary has no tokens for
            it; names its place.

    Example:
        >>> rows = [{"prompt": "ab", "chosen": "c", "rejected": "d"}]
        >>> tokenizer = Tokenizer.chars(["abcd"])
        >>> encoded = encode_preferences(read_preferences(rows), tokenizer)
        >>> [tokenizer.decode(ids) for ids in encoded.documents]
        ['abc<|endoftext|>', 'abd<|endoftext|>']
    """
    who = "encode_preferences"
    checks.instance(who, "preferences", preferences, Preferences, "read_preferences makes them")
    found = encode_chats(preferences.chats, tokenizer, template, train_on="last", **extra)
    if len(found.documents) != len(preferences.chats):
        raise FormatError(
            f"{who}: the template must write each conversation as one text; got "
            f"{len(found.documents)} texts of {len(preferences.chats)}: use another template"
        )
    return EncodedPreferences(
        found.documents, np.asarray(preferences.labels, bool), preferences.paired
    )
