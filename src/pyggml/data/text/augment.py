# SPDX-License-Identifier: MIT
"""Random crops of documents, transformed anew in every epoch."""

from __future__ import annotations

import numpy as np

from ... import checks
from ..batch import Batch
from ..dataset import IGNORE_INDEX, item_numbers, order_of
from ..fingerprint import fingerprint
from ..item_random import item_rng, number_of, virtual_items
from .documents import Documents, check_documents
from .transforms import TextTransform, Unchanged

__all__ = ["AugmentedDataset"]

# Lengths of crops are tried one by one.
_ROW_MAX = 1 << 20


class AugmentedDataset:
    """Random crops of documents, transformed again in every epoch; give them to a `Loader`.

    A document has as many items as it has lengths of a crop; each is a crop from a random offset.
    What is drawn follows from the loader's seed, the epoch and the item: a resumed run sees the
    same. Rows are filled up on the right, without targets.

    Args:
        documents: what to read.
        seq_len: tokens of a row, T >= 1.
        transform: `MaskTokens`, `CorruptSpans`, `FillInTheMiddle` or one's own; None crops only.
        target_len: tokens of a decoder's row, U; None is what a crop for T needs.
        pad_id: fills rows up; and begins the decoder's inputs, as T5 has it.

    Shape:
        causal: x (B, T), y (B, T)
        masked: x (B, T), y (B, T), attention_mask (B, T), which is 0 where a row is filled up
        seq2seq: x (B, T), y (B, U), attention_mask (B, T), decoder_ids (B, U); all int32

    Raises:
        ValueError: a row is too short for the transform, no document is long enough, the
            transform has too few sentinels for the longest crop, or prompts are not to count
            where a transform moves them.
        TypeError: documents or transform are none.

    Example:
        >>> data = AugmentedDataset(Documents.of([np.arange(100)]), 16, MaskTokens(99, 100))
        >>> len(data), data.batch(data.order(None)).x.shape
        (7, (7, 16))
    """

    def __init__(
        self,
        documents: Documents,
        seq_len: int,
        transform: TextTransform | None = None,
        *,
        target_len: int | None = None,
        pad_id: int = 0,
    ) -> None:
        who = "AugmentedDataset"
        self.documents = check_documents(who, documents)
        self.seq_len = checks.whole(who, "seq_len", seq_len, 1, most=_ROW_MAX)
        if transform is not None and not (callable(transform) and hasattr(transform, "sizes")):
            raise TypeError(
                f"{who}: transform must be one, such as MaskTokens(...), or None; got {transform!r}"
            )
        self.transform: TextTransform = Unchanged() if transform is None else transform
        self.pad_id = checks.whole(who, "pad_id", pad_id, 0)
        if documents.counted is not None:
            raise ValueError(
                f"{who}: documents must count all of their tokens; prompts and completions belong"
                " into a PackedDataset or a BucketLoader"
            )
        wanted = None if target_len is None else checks.whole(who, "target_len", target_len, 1)
        self.crop_len = self._crop(wanted)
        self.target_len = wanted or self.transform.sizes(self.crop_len)[1]
        lengths = documents.lengths
        counts = np.where(lengths < 2, 0, -(-lengths // self.crop_len))
        self._document = np.repeat(np.arange(lengths.size), counts)
        if hasattr(self.transform, "check"):
            self.transform.check(min(self.crop_len, int(lengths.max(initial=0))))
        if not self._document.size:
            raise ValueError(
                f"{who}: needs a document of at least two tokens; got {len(documents)} documents,"
                " none of which is"
            )

    def _crop(self, target_len: int | None) -> int:
        """The longest crop whose inputs and targets fit into their rows."""
        best, tokens = 0, 2
        while tokens <= 2 * self.seq_len + 2:
            inputs, targets = self.transform.sizes(tokens)
            fits = inputs <= self.seq_len
            if fits and (self.transform.kind != "seq2seq" or targets <= (target_len or targets)):
                best = tokens
            tokens += 1
        if not best:
            raise ValueError(
                f"AugmentedDataset: rows must have room for what"
                f" {type(self.transform).__name__} makes of two tokens; got"
                f" seq_len={self.seq_len}, target_len={target_len}"
            )
        return best

    def fingerprint(self) -> int:
        """Return a checksum of the documents and the length of the crops."""
        return fingerprint(self.documents.fingerprint(), self.seq_len, self.crop_len)

    def __len__(self) -> int:
        """Number of crops in an epoch."""
        return int(self._document.size)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Return an epoch's items with random numbers; without a generator, always the same."""
        items = order_of("AugmentedDataset.order", len(self), rng)
        return virtual_items(items, len(self), rng)

    def batch(self, items: np.ndarray) -> Batch:
        """Read, crop and transform items; see the class for the shapes."""
        pairs = [self._item(item) for item in item_numbers("AugmentedDataset.batch", items, None)]
        x = self._rows([x for x, _ in pairs], self.seq_len, self.pad_id)
        if self.transform.kind == "causal":
            return Batch(x, self._rows([y for _, y in pairs], self.seq_len, IGNORE_INDEX))
        mask = self._rows([np.ones_like(x) for x, _ in pairs], self.seq_len, 0)
        if self.transform.kind == "masked":
            y = self._rows([y for _, y in pairs], self.seq_len, IGNORE_INDEX)
            return Batch(x, y, attention_mask=mask)
        y = self._rows([y for _, y in pairs], self.target_len, IGNORE_INDEX)
        shifted = np.concatenate([np.full((len(y), 1), self.pad_id, np.int32), y[:, :-1]], axis=1)
        decoder_ids = np.where(shifted == IGNORE_INDEX, self.pad_id, shifted)
        return Batch(x, y, attention_mask=mask, decoder_ids=decoder_ids)

    def _item(self, item: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of a crop."""
        rng = item_rng(item, len(self))
        document = int(self._document[number_of(item, len(self))])
        offsets = self.documents.offsets
        length = int(offsets[document + 1] - offsets[document])
        start = int(rng.integers(0, max(length - self.crop_len, 0) + 1))
        made = self.transform(self.documents.part(document, start, start + self.crop_len), rng)
        x, y = (made[:-1], made[1:]) if self.transform.kind == "causal" else made
        return x, y

    @staticmethod
    def _rows(rows: list[np.ndarray], length: int, fill: int) -> np.ndarray:
        made = np.full((len(rows), length), fill, np.int32)
        for row, ids in zip(made, rows, strict=True):
            row[: len(ids)] = ids
        return made
