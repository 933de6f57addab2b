# SPDX-License-Identifier: MIT
"""Texts whose words have a class each, such as names of persons and places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .... import checks
from ....errors import FormatError, ShapeError, reason, shown
from ...batch import Batch
from ...dataset import IGNORE_INDEX, item_numbers
from ...fingerprint import fingerprint
from ..documents import Documents
from ..records import no_rows, read_records
from ..tokenizer import Tokenizer
from .datasets import by_length
from .texts import side_by_side

__all__ = ["TokenClassificationDataset"]

_WHO = "TokenClassificationDataset"
_Row = tuple[str, list[str], list[Any]]  # place, words, labels


class TokenClassificationDataset:
    """Texts as words with a label each, tokenised, in batches of similar length.

    The first token of a word has the word's label as its target; the word's other tokens, special
    tokens and what fills rows up have `IGNORE_INDEX`. The input `attention_mask` tells what counts.

    Args:
        source: a JSONL or Parquet file, rows or a Hugging Face dataset, as `read_records` takes
            them, each with a list of words and a list of labels; or lists of words, with `labels`.
        tokenizer: text to ids; its special tokens are added. With a byte-level one, such as GPT-2's
            and RoBERTa's, each word but the first has a space before it.
        labels: of each text a label for each word; None where the source has them.
        seq_len: most tokens of a text; the words behind them are cut off.
        names: of the classes, in their order, for labels that are names or numbers; None takes the
            labels that occur: numbers in their order, names in that of the alphabet.
        columns: names of the two columns of rows.

    Attributes:
        classes: how many classes there are.
        names: their names, or None where they are numbers: the `labels` of a model's configuration.
        words: the words of each text that were not cut off.
        tags: their labels, names or numbers.

    Shape:
        batch of B items: x, attention_mask, y (B, T) int32

    Raises:
        FormatError: a row lacks words or labels, has not as many of both, a label is none of
            `names`, or all words have one label; names the row.
        ValueError: there are not as many lists of labels as texts.

    Source: the tokens that count are those of Hugging Face's guide "Token classification".

    Example:
        >>> tokenizer = Tokenizer.chars(["Ada met Bo"])
        >>> data = TokenClassificationDataset([["Ada", "met"]], tokenizer, [["name", "O"]])
        >>> data.names, data.batch(np.array([0])).y[0, :5].tolist()
        (('O', 'name'), [1, -100, -100, 0, -100])
    """

    task = "token_classification"

    def __init__(
        self,
        source: Any,
        tokenizer: Tokenizer,
        labels: Iterable[Any] | None = None,
        *,
        seq_len: int = 512,
        names: Sequence[str] | None = None,
        columns: tuple[str, str] = ("tokens", "tags"),
    ) -> None:
        checks.instance(_WHO, "tokenizer", tokenizer, Tokenizer)
        most = checks.whole(_WHO, "seq_len", seq_len, 1)
        known = None if names is None else checks.names(_WHO, "names", names)
        both = checks.names(_WHO, "columns", columns)
        if len(both) != 2:
            raise ValueError(f"{_WHO}: columns must be two names; got {columns!r:.60}")
        if labels is not None:
            texts = checks.items(_WHO, "source", source)
            given = checks.items(_WHO, "labels", labels)
            if len(texts) != len(given):
                raise ValueError(
                    f"{_WHO}: labels must be a list for each text; got {len(given)} for "
                    f"{len(texts)}"
                )
            source = [dict(zip(both, pair, strict=True)) for pair in zip(texts, given, strict=True)]
        rows = [_row(record, *both) for record in read_records(source)]
        if not rows:
            raise no_rows(_WHO, source, "one text with labels")
        numbers, self.names, self.classes = _number(rows, known)
        encoded = [
            _encode(row, row_numbers, tokenizer, most)
            for row, row_numbers in zip(rows, numbers, strict=True)
        ]
        self.documents = Documents.of([ids for ids, _ in encoded])
        self.targets = [targets for _, targets in encoded]
        # Computed once: each step of a run with checkpoints asks for it.
        self._fingerprint = fingerprint(self.documents.fingerprint(), np.concatenate(self.targets))
        counts = [np.count_nonzero(targets != IGNORE_INDEX) for targets in self.targets]
        self.words = [words[:n] for (_, words, _), n in zip(rows, counts, strict=True)]
        self.tags = [self._named(t[t != IGNORE_INDEX]) for t in self.targets]

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.documents)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Item numbers of an epoch, texts of similar length together."""
        return by_length(self.documents.lengths, rng)

    def fingerprint(self) -> int:
        """Return a checksum of the tokens and targets."""
        return self._fingerprint

    def batch(self, items: np.ndarray) -> Batch:
        """Read texts.

        Shape:
            items (B,) -> x, attention_mask, y (B, T) int32
        """
        items = item_numbers("TokenClassificationDataset.batch", items, len(self), 1)
        x, mask = side_by_side(self.documents, items, int(self.documents.lengths.max()))
        y = np.full_like(x, IGNORE_INDEX)
        for row, item in enumerate(items.tolist()):
            y[row, : self.targets[item].size] = self.targets[item]
        return Batch(x, y, attention_mask=mask)

    def of_words(self, predicted: ArrayLike) -> list[list[Any]]:
        """Return the label of each word in predictions for the tokens of all texts.

        Args:
            predicted: the class of each token, as `pyggml.train.predict` returns them.

        Shape:
            predicted (N, T), T at least the longest text

        Raises:
            ShapeError: the shape does not fit.

        Example:
            >>> tokenizer = Tokenizer.chars(["Ada met Bo"])
            >>> data = TokenClassificationDataset([["Ada", "met"]], tokenizer, [["name", "O"]])
            >>> data.of_words(data.batch(np.array([0])).y)
            [['name', 'O']]
        """
        found = checks.array(f"{_WHO}.of_words", "predicted", predicted, 2, "iu")
        longest = int(self.documents.lengths.max())
        if len(found) != len(self) or found.shape[1] < longest:
            raise ShapeError(
                f"{_WHO}.of_words: predicted must be ({len(self)}, {longest}) or wider, a class "
                f"for each token of this dataset; got {found.shape}"
            )
        return [
            self._named(row[: targets.size][targets != IGNORE_INDEX])
            for row, targets in zip(found, self.targets, strict=True)
        ]

    def _named(self, numbers: np.ndarray) -> list[Any]:
        """Return classes by their names where they have any."""
        names = self.names
        return [n if names is None else names[n] for n in numbers.tolist()]


def _row(record: Mapping[str, Any], first: str, second: str) -> _Row:
    """Return the place, the words and the labels of a row."""
    where = f"{_WHO}: {getattr(record, 'where', 'a row')}"
    for field in (first, second):
        value = record.get(field)
        if value is None:
            found = ", ".join(map(shown, record)) or "no field"
            raise FormatError(
                f"{where}: must have {first} and {second}; {field} is missing, got {found}: "
                "name the two as columns=(words, labels)"
            )
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise FormatError(f"{where}: {field} must be a list; got {shown(value)}")
    words, labels = list(record[first]), list(record[second])
    if not words or len(words) != len(labels):
        raise FormatError(
            f"{where}: must have a label for each word; got {len(labels)} labels for "
            f"{len(words)} words"
        )
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise FormatError(f"{where}: a word must be text that is not blank; got {shown(word)}")
    for label in labels:
        number = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
        if not number and not (isinstance(label, str) and label.strip()):
            raise FormatError(f"{where}: a label must be a name or a whole number; got {label!r}")
    return where, words, labels


def _number(
    rows: Sequence[_Row], known: Sequence[str] | None
) -> tuple[list[list[int]], tuple[str, ...] | None, int]:
    """Return the number of each label, the names of the classes, and how many there are."""
    there = {label for _, _, labels in rows for label in labels}
    texts = {label for label in there if isinstance(label, str)}
    if texts and len(texts) < len(there):
        raise FormatError(f"{_WHO}: labels must be all names or all numbers; got both")
    if len(there) < 2 and known is None:
        raise FormatError(
            f"{_WHO}: labels must be of two classes or more; got {there.pop()!r} for all words"
        )
    if known is None:
        if not texts and (min(there) < 0 or max(there) > len(there) * 100):
            raise FormatError(
                f"{_WHO}: numbers of classes must be from 0 on; got {min(there)} to {max(there)}: "
                "give names"
            )
        order = sorted(texts)
        classes = len(order) if texts else int(max(there)) + 1
    else:
        order, classes = list(known), len(known)
    numbers: dict[Any, int] = {label: number for number, label in enumerate(order)}
    if not texts:
        numbers = {number: number for number in range(classes)}
    for where, _, labels in rows:
        for label in labels:
            if label not in numbers:
                wanted = ", ".join(order[:12]) if texts else f"0 to {classes - 1}"
                raise FormatError(f"{where}: a label must be one of {wanted}; got {label!r}")
    return [[numbers[x] for x in labels] for _, _, labels in rows], tuple(order) or None, classes


def _encode(
    row: _Row, numbers: Sequence[int], tokenizer: Tokenizer, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of a text, and the target of each; whole words are cut off."""
    where, words, _ = row
    head = [tokenizer.bos_id] if tokenizer.add_bos else []
    tail = [tokenizer.eos_id] if tokenizer.add_eos else []
    room = most - len(head) - len(tail)
    ids, targets = list(head), [IGNORE_INDEX] * len(head)
    for number, (word, target) in enumerate(zip(words, numbers, strict=True)):
        # In a byte-level vocabulary the space is a part of the word; others mark words themselves.
        text = f" {word}" if number and tokenizer.byte_level else word
        try:
            found = tokenizer.encode(text).tolist()
        except ValueError as error:
            raise FormatError(f"{where}: word {number}: {reason(error)}") from error
        if not found:
            raise FormatError(
                f"{where}: word {number} must have a token; the tokenizer has none for {word!r}"
            )
        if len(found) > room:
            if not number:
                raise FormatError(
                    f"{where}: seq_len={most} must hold a word; the first has {len(found)} tokens"
                )
            break
        room -= len(found)
        ids += found
        targets += [target, *[IGNORE_INDEX] * (len(found) - 1)]
    ids, targets = ids + tail, targets + [IGNORE_INDEX] * len(tail)
    return np.asarray(ids, np.int32), np.asarray(targets, np.int32)
