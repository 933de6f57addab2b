# SPDX-License-Identifier: MIT
"""Texts with a label each: reading them, and batches of them side by side."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .... import checks
from ....errors import FormatError, shown
from ...batch import Batch
from ...dataset import item_numbers, order_of
from ...fingerprint import fingerprint
from ..documents import Documents, check_documents
from ..records import bad_row, no_rows, read_records

__all__ = ["LabelledDataset", "LabelledTexts", "read_labelled", "side_by_side"]

_log = logging.getLogger("pyggml.data")
_FIELDS = ("text", "label")
# Widths of rows are multiples of the first up to the limit, and of the second beyond.
_NARROW, _LIMIT, _WIDE = 8, 64, 32


@dataclass(frozen=True)
class LabelledTexts:
    """Texts, and the class of each.

    Args:
        texts: the texts.
        labels: the number of the class of each.
        classes: how many classes there are.
        names: of the classes; None where the labels are the numbers from 0 on.
        places: the file and line of each text.
        bad: rows that were left out.
        first_bad: the error of the first of them.

    Raises:
        TypeError: a field is of another kind.
        ValueError: labels, names or places do not fit the texts and classes.

    Example:
        >>> read_labelled([{"text": "fine", "label": "good"}, {"text": "no", "label": "bad"}]).names
        ('bad', 'good')
    """

    texts: Sequence[str]
    labels: Sequence[int]
    classes: int
    names: tuple[str, ...] | None = None
    places: Sequence[str] = ()
    bad: int = 0
    first_bad: str = ""

    def __post_init__(self) -> None:
        who, count = "LabelledTexts", len(checks.items("LabelledTexts", "texts", self.texts))
        classes = checks.whole(who, "classes", self.classes, 1)
        labels = checks.array(who, "labels", self.labels, 1, "iu" if count else None)
        if labels.size and not 0 <= labels.min() <= labels.max() < classes:
            raise ValueError(
                f"{who}: labels must be from 0 to {classes - 1}; got {labels.min()} to "
                f"{labels.max()}"
            )
        checks.items(who, "labels", self.labels, count)
        if checks.items(who, "places", self.places):
            checks.items(who, "places", self.places, count)
        if self.names is not None:
            checks.items(who, "names", checks.names(who, "names", self.names), classes)

    def __len__(self) -> int:
        return len(self.texts)

    def split(self, validation: float = 0.1, seed: int = 0) -> tuple[LabelledTexts, LabelledTexts]:
        """Return texts to train on and others to validate on, with the same shares of classes.

        Equal texts are all on one side.

        Args:
            validation: share of the second part, > 0 and < 1.
            seed: of the choice.

        Raises:
            ValueError: the share is out of range, or it leaves a class without a text to train on.
        """
        who = "LabelledTexts.split"
        share = checks.number(who, "validation", validation, above=0, below=1)
        seed = checks.whole(who, "seed", seed, 0)
        by_class: dict[int, list[str]] = {}
        for text, label in dict(reversed([*zip(self.texts, self.labels, strict=True)])).items():
            by_class.setdefault(label, []).append(text)
        rng, held = np.random.default_rng(seed), set[str]()
        for label in sorted(by_class):
            texts = sorted(by_class[label])
            mixed = rng.permutation(len(texts))[: round(share * len(texts))]
            held |= {texts[i] for i in mixed.tolist()}
        if not held:  # fewer texts than a share of each class
            largest = max(sorted(by_class), key=lambda label: len(by_class[label]))
            held = {sorted(by_class[largest])[0]}
        sides: tuple[list[int], list[int]] = ([], [])
        for i, text in enumerate(self.texts):
            sides[text in held].append(i)
        left = {self.labels[i] for i in sides[0]}
        if left != set(self.labels):
            raise ValueError(
                f"{who}: each class must keep a text to train on; got {len(self)} texts of "
                f"{len(by_class)} classes with validation={validation}"
            )
        first, second = (self._of(side) for side in sides)
        return first, replace(second, bad=0, first_bad="")

    def _of(self, numbers: Sequence[int]) -> LabelledTexts:
        texts, labels = [self.texts[i] for i in numbers], [self.labels[i] for i in numbers]
        places = [self.places[i] for i in numbers if self.places]
        return replace(self, texts=texts, labels=labels, places=places)

    def summary(self) -> str:
        """Return a line about the texts and their classes."""
        counts = np.bincount(np.asarray(self.labels), minlength=self.classes)
        names = self.names or tuple(map(str, range(self.classes)))
        told = ", ".join(f"{name} {n:,}" for name, n in zip(names[:8], counts[:8], strict=True))
        more = ", …" if self.classes > len(counts[:8]) else ""
        left = f"; {self.bad:,} bad rows left out" if self.bad else ""
        return f"{len(self):,} texts of {self.classes} classes ({told}{more}){left}"


def read_labelled(
    source: Any, names: Sequence[str] | None = None, *, skip_bad: bool = False
) -> LabelledTexts:
    """Read texts with their labels.

    A row has `text` and `label`, which is a name or a whole number. Without `names`, the classes
    are the labels that occur: numbers in their order, names in that of the alphabet.

    Args:
        source: what `read_records` takes.
        names: of the classes, in their order.
        skip_bad: leave out rows without a text or a label, and count them.

    Raises:
        FormatError: a row lacks a field, has an empty text or a label that is none of `names`, or
            all rows have one label; the message names the file and the line.

    Example:
        >>> found = read_labelled([{"text": "a", "label": 1}, {"text": "b", "label": 0}])
        >>> found.labels, found.classes, found.names
        ([1, 0], 2, None)
    """
    who = "read_labelled"
    checks.flag(who, "skip_bad", skip_bad)
    known = None if names is None else [str(n) for n in checks.items(who, "names", names)]
    bad: list[str] = []

    def skip(error: Exception) -> None:
        if not bad:
            _log.warning("%s", error)
        bad.append(str(error))

    rows: list[tuple[str, str, str]] = []
    for record in read_records(source, skip if skip_bad else None):
        where = str(getattr(record, "where", "a row"))
        try:
            rows.append((*_row(record, known), where))
        except FormatError as error:
            located = bad_row(who, where, error, skip_bad)
            if not skip_bad:
                raise located from error
            skip(located)
    if not rows:
        raise no_rows(who, source, "two texts with labels", bad)
    there = {label for _, label, _ in rows}
    if len(there) < 2:
        raise FormatError(
            f"{who}: labels must be of two classes or more; got {shown(*there)} in all "
            f"{len(rows):,} rows"
        )
    order = known if known is not None else _sorted(there)
    numbers = {label: number for number, label in enumerate(order)}
    numbered = order == [str(i) for i in range(len(order))]
    return LabelledTexts(
        [text for text, _, _ in rows],
        [numbers[label] for _, label, _ in rows],
        len(order),
        None if numbered else tuple(order),
        [where for _, _, where in rows],
        len(bad),
        bad[0] if bad else "",
    )


def _row(record: Mapping[str, Any], known: Sequence[str] | None) -> tuple[str, str]:
    """Return the text and the label of a row."""
    for field in _FIELDS:
        if record.get(field) is None:
            names = ", ".join(map(shown, record)) or "no field"
            raise FormatError(f"a row must have text and label; {field} is missing, got {names}")
    text, label = record["text"], record["label"]
    if not isinstance(text, str) or not text.strip():
        raise FormatError(f"text must be text that is not blank; got {shown(text)}")
    if isinstance(label, (bool, np.bool_)):
        label = str(bool(label)).lower()
    elif isinstance(label, (int, np.integer)) or (isinstance(label, float) and label == label // 1):
        label = str(int(label))
    if not isinstance(label, str) or not label.strip():
        raise FormatError(f"label must be a name or a whole number; got {shown(label)}")
    label = label.strip()
    if known is not None and label not in known:
        raise FormatError(f"label must be one of {', '.join(known)}; got {shown(label)}")
    return text, label


def _sorted(labels: set[str]) -> list[str]:
    """Return labels in the order of their numbers, or of the alphabet."""
    numbers = all(label.removeprefix("-").isdecimal() for label in labels)
    return sorted(labels, key=int) if numbers else sorted(labels)


def side_by_side(
    documents: Documents, numbers: Any, most: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return documents as rows, filled up behind to one of a few widths, and the mask of tokens.

    Args:
        documents: token ids.
        numbers: of the documents.
        most: most tokens of a row; None is the longest document.

    Shape:
        -> ids, mask (B, T) i32

    Example:
        >>> ids, mask = side_by_side(Documents.of([[1, 2, 3], [4]]), [0, 1])
        >>> ids[:, :3].tolist(), mask[:, :3].tolist()
        ([[1, 2, 3], [4, 0, 0]], [[1, 1, 1], [1, 0, 0]])
    """
    documents = check_documents("side_by_side", documents)
    longest = max(int(documents.lengths[i]) for i in numbers)
    step = _NARROW if longest <= _LIMIT else _WIDE
    width = -(-longest // step) * step
    width = width if most is None else max(longest, min(width, most))
    ids = np.zeros((len(numbers), width), np.int32)
    mask = np.zeros_like(ids)
    for row, number in enumerate(numbers):
        tokens = documents[int(number)]
        ids[row, : tokens.size], mask[row, : tokens.size] = tokens, 1
    return ids, mask


class LabelledDataset:
    """Documents with a class each; give them to a `Loader`.

    Rows are filled up to one of a few widths; the input `attention_mask` tells what counts.

    Args:
        documents: token ids.
        labels: the class of each.
        seq_len: most tokens of a row; None is the longest document's.

    Shape:
        labels (D,); batch of B items: x, attention_mask (B, T), y (B,) int32

    Raises:
        TypeError: labels are no whole numbers.
        ShapeError: labels have not one axis.
        ValueError: there are not as many labels as documents, one is below 0, or a document is too
            long.

    Example:
        >>> dataset = LabelledDataset(Documents.of([[1, 2], [3]]), [1, 0])
        >>> dataset.batch(np.array([0, 1])).y.tolist()
        [1, 0]
    """

    def __init__(self, documents: Documents, labels: ArrayLike, seq_len: int | None = None) -> None:
        who = "LabelledDataset"
        self.documents = check_documents(who, documents)
        given = checks.array(who, "labels", labels, 1, "iu")
        if given.size != len(documents):
            raise ValueError(
                f"{who}: labels must be one for each document; got {given.size} for "
                f"{len(documents)} documents"
            )
        if given.size and (given.min() < 0 or given.max() >= 2**31):
            raise ValueError(
                f"{who}: labels must be numbers of classes, from 0; got {given.min()} to "
                f"{given.max()}"
            )
        self.labels = given.astype(np.int32)
        longest = int(documents.lengths.max())
        self.seq_len = longest if seq_len is None else checks.whole(who, "seq_len", seq_len, 1)
        if longest > self.seq_len:
            raise ValueError(
                f"{who}: documents must have at most seq_len={self.seq_len} tokens; got {longest}: "
                "cut them, or give a larger seq_len"
            )

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.documents)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Item numbers of an epoch: a permutation, or natural order without a generator."""
        return order_of("LabelledDataset.order", len(self), rng)

    def fingerprint(self) -> int:
        """Return a checksum of the tokens and labels."""
        return fingerprint(self.documents.fingerprint(), self.labels, self.seq_len)

    def batch(self, items: np.ndarray) -> Batch:
        """Read documents.

        Shape:
            items (B,) -> x, attention_mask (B, T), y (B,) int32
        """
        items = item_numbers("LabelledDataset.batch", items, len(self), 1)
        x, mask = side_by_side(self.documents, items, self.seq_len)
        return Batch(x, self.labels[items], attention_mask=mask)
