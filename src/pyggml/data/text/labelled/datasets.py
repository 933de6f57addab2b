# SPDX-License-Identifier: MIT
"""Datasets of texts with a target each: a class, or another text; padded, of similar lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .... import checks
from ....errors import FormatError, reason
from ...batch import Batch
from ...dataset import IGNORE_INDEX, check_rng, item_numbers
from ...fingerprint import fingerprint
from ..documents import Documents
from ..records import read_pairs
from ..tokenizer import Tokenizer
from .texts import LabelledDataset, LabelledTexts, read_labelled, side_by_side

__all__ = ["Seq2SeqDataset", "TextClassificationDataset", "by_length"]

# Rows that are sorted by length together: many batches, and still far fewer than an epoch's rows.
_SORTED = 1024


def by_length(lengths: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
    """Return an epoch's order: at random, then sorted by length within groups.

    Args:
        lengths: of the items, (N,).
        rng: random numbers; None gives the natural order.
    """
    rng = check_rng("order", rng)
    if rng is None:
        return np.arange(lengths.size)
    items = rng.permutation(lengths.size)
    groups = [items[i : i + _SORTED] for i in range(0, items.size, _SORTED)]
    return np.concatenate([group[np.argsort(lengths[group], kind="stable")] for group in groups])


def _encoded(
    who: str, texts: Sequence[str], places: Sequence[str], tokenizer: Tokenizer, most: int
) -> Documents:
    """Return the tokens of texts, cut to a length; the token that ends a text is kept."""
    found = []
    for i, text in enumerate(texts):
        try:
            ids = np.asarray(tokenizer.encode(text, add_special=True), np.int32)
        except ValueError as error:
            where = places[i] if places else f"row {i}"
            raise FormatError(f"{who}: {where}: {reason(error)}") from error
        cut = ids[:most]
        if ids.size > most and tokenizer.add_eos:
            cut = np.append(cut[:-1], ids[-1])
        found.append(cut)
    return Documents.of(found)


class TextClassificationDataset(LabelledDataset):
    """Texts with a class each, tokenised, in batches of similar length; give it to a `Loader`.

    Rows are filled up to one of a few widths; the input `attention_mask` tells what counts.

    Args:
        source: a CSV, JSONL or Parquet file or rows with `text` and `label`, as `read_labelled`
            takes them; `LabelledTexts`, such as a part of a split; or texts, with `labels`.
        tokenizer: text to ids; its special tokens are added.
        labels: the class of each of the texts, a name or a number; None where the source has them.
        seq_len: most tokens of a text; longer ones are cut.
        names: of the classes, in their order; None takes those that occur.

    Attributes:
        classes: how many classes there are.
        names: their names, or None where they are numbers: the `labels` of a model's configuration.
        texts: what was read.

    Shape:
        batch of B items: x, attention_mask (B, T), y (B,) int32

    Raises:
        FormatError: a row lacks its text or label, or all have one label; names file and line.
        ValueError: there are not as many labels as texts.

    Example:
        >>> tokenizer = Tokenizer.chars(["good bad"])
        >>> data = TextClassificationDataset(["good", "bad"], tokenizer, ["up", "down"])
        >>> data.names, data.batch(np.array([0, 1])).y.tolist()
        (('down', 'up'), [1, 0])
    """

    task = "classification"

    def __init__(
        self,
        source: Any,
        tokenizer: Tokenizer,
        labels: Iterable[Any] | None = None,
        *,
        seq_len: int = 512,
        names: Sequence[str] | None = None,
    ) -> None:
        who = "TextClassificationDataset"
        checks.instance(who, "tokenizer", tokenizer, Tokenizer)
        most = checks.whole(who, "seq_len", seq_len, 1)
        if labels is not None:
            texts, given = checks.items(who, "source", source), checks.items(who, "labels", labels)
            if len(texts) != len(given):
                raise ValueError(
                    f"{who}: labels must be one for each text; got {len(given)} for {len(texts)}"
                )
            pairs = zip(texts, given, strict=True)
            source = [{"text": text, "label": label} for text, label in pairs]
        if not isinstance(source, LabelledTexts):
            source = read_labelled(source, names)
        self.texts: LabelledTexts = source
        self.classes, self.names = source.classes, source.names
        documents = _encoded(who, source.texts, source.places, tokenizer, most)
        super().__init__(documents, source.labels)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Item numbers of an epoch, texts of similar length together."""
        return by_length(self.documents.lengths, rng)


class Seq2SeqDataset:
    """Texts with a text to write for each, tokenised, in batches of similar length.

    Rows are filled up to one of a few widths; `attention_mask` tells what counts of the inputs, and
    targets that fill up are `IGNORE_INDEX`.

    Args:
        source: what `read_pairs` takes: a file or rows with `prompt` and `completion`; or pairs.
        tokenizer: text to ids; its special tokens are added, and its end of text to the targets.
        seq_len: most tokens to read; longer texts are cut.
        target_len: most tokens to write; longer ones are cut.
        columns: names of the two columns.

    Shape:
        batch of B items: x, attention_mask (B, T), y (B, U) int32

    Raises:
        FormatError: a row lacks a field; names file and line.
        ValueError: there is no pair.

    Example:
        >>> data = Seq2SeqDataset([("ab", "b"), ("b", "ab")], Tokenizer.chars(["ab"]))
        >>> data.batch(np.array([0, 1])).inputs["attention_mask"][:, :3].tolist()
        [[1, 1, 0], [1, 0, 0]]
    """

    task = "seq2seq"

    def __init__(
        self,
        source: Any,
        tokenizer: Tokenizer,
        *,
        seq_len: int = 512,
        target_len: int = 512,
        columns: tuple[str, str] = ("prompt", "completion"),
    ) -> None:
        who = "Seq2SeqDataset"
        checks.instance(who, "tokenizer", tokenizer, Tokenizer)
        reads = checks.whole(who, "seq_len", seq_len, 1)
        writes = checks.whole(who, "target_len", target_len, 1)
        both = checks.names(who, "columns", columns)
        if len(both) != 2:
            raise ValueError(f"{who}: columns must be two names; got {columns!r:.60}")
        first, second = both
        pairs = _pairs(who, source, first, second)
        if not pairs:
            raise ValueError(f"{who}: source must have a pair; got none")
        places = [str(getattr(pair, "where", "") or f"row {i}") for i, pair in enumerate(pairs)]
        self.inputs = _encoded(who, [pair[0] for pair in pairs], places, tokenizer, reads)
        self.targets = _ended(
            _encoded(who, [pair[1] for pair in pairs], places, tokenizer, writes), tokenizer, writes
        )

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.inputs)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Item numbers of an epoch, texts of similar length together."""
        return by_length(self.inputs.lengths, rng)

    def fingerprint(self) -> int:
        """Return a checksum of the tokens."""
        return fingerprint(self.inputs.fingerprint(), self.targets.fingerprint())

    def batch(self, items: np.ndarray) -> Batch:
        """Read pairs.

        Shape:
            items (B,) -> x, attention_mask (B, T), y (B, U) int32
        """
        items = item_numbers("Seq2SeqDataset.batch", items, len(self), 1)
        x, mask = side_by_side(self.inputs, items)
        ids, counts = side_by_side(self.targets, items)
        return Batch(x, np.where(counts > 0, ids, IGNORE_INDEX), attention_mask=mask)


def _pairs(who: str, source: Any, first: str, second: str) -> list[Any]:
    """Return pairs that are given, or those of files and rows."""
    if isinstance(source, (list, tuple)) and source and isinstance(source[0], (list, tuple)):
        for i, pair in enumerate(source):
            good = isinstance(pair, (list, tuple)) and len(pair) == 2
            if not good or not all(isinstance(text, str) for text in pair):
                raise TypeError(f"{who}: pair {i} must be two texts; got {pair!r:.60}")
        return list(source)
    return list(read_pairs(source, first, second))


def _ended(documents: Documents, tokenizer: Tokenizer, most: int) -> Documents:
    """Return targets with the end of text behind each."""
    end = tokenizer.eos_id
    if end is None or tokenizer.add_eos:
        return documents
    rows = (np.asarray(documents[i])[: most - 1] for i in range(len(documents)))
    return Documents.of([np.append(row, np.int32(end)) for row in rows])
