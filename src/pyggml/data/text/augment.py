# SPDX-License-Identifier: MIT
"""What is done to token sequences before they are learned: masks, spans, middles, crops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from .._check import decimal, set_fields, token_ids, whole
from ..batch import Batch
from ..dataset import IGNORE_INDEX
from ..fingerprint import fingerprint
from ..item_random import item_rng, number_of, virtual_items
from .documents import Documents, check_documents

# Lengths of crops are tried one by one.
_ROW_MAX = 1 << 20

__all__ = ["AugmentedDataset", "CorruptSpans", "FillInTheMiddle", "MaskTokens", "TextTransform"]


class TextTransform(Protocol):
    """What `AugmentedDataset` applies to each crop.

    A `check(tokens)`, which it may have, refuses crops of up to so many tokens beforehand.

    Attributes:
        kind: "causal" gives tokens of which each is to be predicted from those before, "masked"
            inputs and targets of one length, "seq2seq" those of an encoder and of a decoder.
    """

    kind: ClassVar[str]

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> Any:
        """Tokens, or inputs and targets."""

    def sizes(self, tokens: int) -> tuple[int, int]:
        """How long inputs and targets become of so many tokens, at most."""


@dataclass(frozen=True)
class MaskTokens:
    """BERT's task: some tokens are hidden and must be found again.

    Of those chosen, 80% become the mask, 10% a random token, 10% stay; at least one is chosen.

    Args:
        mask_id: the mask's token.
        vocab_size: random tokens are below.
        rate: share of the tokens that is chosen, > 0 and < 1.
        special: tokens that are never chosen.

    Shape:
        ids (n,) -> x (n,), y (n,), the latter with `IGNORE_INDEX` where nothing was chosen

    Raises:
        ValueError: a number is out of range.

    Source: Devlin et al. 2018, arXiv:1810.04805, appendix A.

    Example:
        >>> x, y = MaskTokens(mask_id=99, vocab_size=100)(np.arange(8), np.random.default_rng(2))
        >>> x.tolist(), y[y != IGNORE_INDEX].tolist()
        ([0, 1, 2, 3, 4, 5, 99, 7], [6])
    """

    mask_id: int
    vocab_size: int
    rate: float = 0.15
    special: tuple[int, ...] = ()
    kind: ClassVar[str] = "masked"

    def __post_init__(self) -> None:
        who = "MaskTokens"
        set_fields(
            self,
            vocab_size=whole(who, "vocab_size", self.vocab_size, 1),
            mask_id=whole(who, "mask_id", self.mask_id, 0),
            rate=decimal(who, "rate", self.rate, 0, 1, open_ends=True),
            special=token_ids(who, "special", self.special),
        )

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Hide some tokens."""
        x = np.array(ids, np.int32)
        y = np.full(x.shape, IGNORE_INDEX, np.int32)
        free = np.flatnonzero(~np.isin(x, self.special))
        if free.size:
            count = max(1, round(self.rate * free.size))
            chosen = rng.permutation(free)[:count]
            y[chosen] = x[chosen]
            chance = rng.random(count)
            random = rng.integers(0, self.vocab_size, count)
            x[chosen] = np.where(
                chance < 0.8, self.mask_id, np.where(chance < 0.9, random, x[chosen])
            )
        return x, y

    def sizes(self, tokens: int) -> tuple[int, int]:
        """Inputs and targets are as long as the text."""
        return tokens, tokens


@dataclass(frozen=True)
class CorruptSpans:
    """T5's task: spans are cut out, each leaves a sentinel, and the decoder tells what they were.

    The tokens "a b c d e f" with "b c" and "f" cut out become the inputs "a X d e Y" and the
    targets "X b c Y f", both followed by the end of text.

    Args:
        sentinels: their tokens, in the order in which they are used.
        eos_id: ends inputs and targets; None ends neither.
        rate: share of the tokens that is cut out, > 0 and < 1.
        mean_span: mean length of a span, >= 1.

    Shape:
        ids (n,) -> inputs, targets, whose lengths `sizes(n)` tells

    Raises:
        ValueError: a number is out of range, or a text needs more sentinels than there are.

    Source: Raffel et al. 2019, arXiv:1910.10683; `random_spans_noise_mask` of its code.

    Example:
        >>> corrupt = CorruptSpans(sentinels=(99, 98), eos_id=1, rate=0.3)
        >>> x, y = corrupt(np.arange(10, 20), np.random.default_rng(0))
        >>> x.tolist(), y.tolist()
        ([10, 11, 12, 13, 14, 15, 16, 99, 1], [99, 17, 18, 19, 1])
    """

    sentinels: tuple[int, ...]
    eos_id: int | None = None
    rate: float = 0.15
    mean_span: float = 3.0
    kind: ClassVar[str] = "seq2seq"

    def __post_init__(self) -> None:
        who = "CorruptSpans"
        eos = None if self.eos_id is None else whole(who, "eos_id", self.eos_id, 0, " or None")
        sentinels = token_ids(who, "sentinels", self.sentinels)
        if not sentinels:
            raise ValueError(f"{who}: sentinels must be tokens, at least one; got none")
        if len({eos, *sentinels}) <= len(sentinels):
            raise ValueError(
                f"{who}: sentinels must differ from one another and from eos_id; got"
                f" {sentinels}, eos_id={eos}"
            )
        set_fields(
            self,
            sentinels=sentinels,
            eos_id=eos,
            rate=decimal(who, "rate", self.rate, 0, 1, open_ends=True),
            mean_span=decimal(who, "mean_span", self.mean_span, 1),
        )

    def check(self, tokens: int) -> None:
        """Refuse crops of up to so many tokens for which there are too few sentinels.

        Args:
            tokens: of the longest crop.

        Raises:
            ValueError: tells how many sentinels are needed.
        """
        needed = max((self._counts(n)[1] for n in range(2, tokens + 1)), default=0)
        if needed > len(self.sentinels):
            raise ValueError(
                f"CorruptSpans: crops of {tokens} tokens need {needed} sentinels; got"
                f" {len(self.sentinels)}; give more, a shorter seq_len, a lower rate or a longer"
                " mean_span"
            )

    def _counts(self, tokens: int) -> tuple[int, int]:
        """How many tokens are cut out, and in how many spans."""
        if tokens < 2:
            raise ValueError(f"CorruptSpans: a text must have at least 2 tokens; got {tokens}")
        noise = min(max(round(tokens * self.rate), 1), tokens - 1)
        spans = min(max(round(noise / self.mean_span), 1), noise, tokens - noise)
        return noise, spans

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Cut spans out."""
        noise, spans = self._counts(len(ids))
        if spans > len(self.sentinels):
            raise ValueError(
                f"CorruptSpans: {len(ids)} tokens need {spans} sentinels; got"
                f" {len(self.sentinels)}; give more, or shorter texts"
            )
        kept = _segments(len(ids) - noise, spans, rng)
        cut = _segments(noise, spans, rng)
        inputs: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        at = 0
        for sentinel, keep, drop in zip(self.sentinels, kept, cut, strict=False):
            mark = np.array([sentinel])
            inputs += [ids[at : at + keep], mark]
            targets += [mark, ids[at + keep : at + keep + drop]]
            at += int(keep + drop)
        end = [] if self.eos_id is None else [np.array([self.eos_id])]
        x, y = (np.concatenate([*parts, *end]).astype(np.int32) for parts in (inputs, targets))
        return x, y

    def sizes(self, tokens: int) -> tuple[int, int]:
        """Lengths of inputs and targets."""
        noise, spans = self._counts(tokens)
        end = int(self.eos_id is not None)
        return tokens - noise + spans + end, noise + spans + end


def _segments(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random lengths >= 1 of so many segments, with this sum."""
    cuts = np.sort(rng.permutation(total - 1)[: count - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


@dataclass(frozen=True)
class FillInTheMiddle:
    """Some texts are turned so that a causal model learns to fill a gap.

    Cut in three at random places, a text becomes PREFIX p SUFFIX s MIDDLE m ("PSM"), or
    PREFIX SUFFIX s MIDDLE p m ("SPM"). An end of text stays at the end.

    Args:
        prefix_id: the token PREFIX.
        middle_id: the token MIDDLE.
        suffix_id: the token SUFFIX.
        rate: share of the texts that is turned, from 0 to 1.
        spm_rate: share of these that becomes SPM, from 0 to 1.
        eos_id: the end of text; None if there is none.

    Shape:
        ids (n,) -> (n,) or (n + 3,)

    Raises:
        ValueError: a share is out of range.

    Source: Bavarian et al. 2022, arXiv:2207.14255.

    Example:
        >>> fill = FillInTheMiddle(97, 98, 99, rate=1, spm_rate=0)
        >>> fill(np.arange(6), np.random.default_rng(7)).tolist()
        [97, 0, 1, 2, 3, 99, 5, 98, 4]
    """

    prefix_id: int
    middle_id: int
    suffix_id: int
    rate: float = 0.5
    spm_rate: float = 0.5
    eos_id: int | None = None
    kind: ClassVar[str] = "causal"

    def __post_init__(self) -> None:
        who = "FillInTheMiddle"
        names = ("prefix_id", "middle_id", "suffix_id")
        set_fields(
            self,
            **{name: whole(who, name, getattr(self, name), 0) for name in names},
            rate=decimal(who, "rate", self.rate, 0, 1),
            spm_rate=decimal(who, "spm_rate", self.spm_rate, 0, 1),
        )
        if self.eos_id is not None:
            set_fields(self, eos_id=whole(who, "eos_id", self.eos_id, 0, " or None"))

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Turn the text, or leave it."""
        ids = np.asarray(ids, np.int32)
        turn, spm = rng.random(2) < (self.rate, self.spm_rate)
        if not turn:
            return ids
        ended = bool(len(ids)) and self.eos_id is not None and ids[-1] == self.eos_id
        text, end = (ids[:-1], ids[-1:]) if ended else (ids, ids[:0])
        first, second = np.sort(rng.integers(0, len(text) + 1, 2))
        pre, mid, suf = text[:first], text[first:second], text[second:]
        marks = (np.array([m], np.int32) for m in (self.prefix_id, self.suffix_id, self.middle_id))
        prefix, suffix, middle = marks
        order = (
            [prefix, suffix, suf, middle, pre, mid, end]
            if spm
            else [prefix, pre, suffix, suf, middle, mid, end]
        )
        return np.concatenate(order)

    def sizes(self, tokens: int) -> tuple[int, int]:
        """Three tokens are added; the targets are the inputs shifted by one."""
        return tokens + 2, tokens + 2


@dataclass(frozen=True)
class _Plain:
    """The text as it is."""

    kind: ClassVar[str] = "causal"

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return ids

    def sizes(self, tokens: int) -> tuple[int, int]:
        return tokens - 1, tokens - 1


class AugmentedDataset:
    """Random crops of documents, transformed anew in every epoch; give them to a `Loader`.

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
        self.seq_len = whole(who, "seq_len", seq_len, 1, most=_ROW_MAX)
        if transform is not None and not (callable(transform) and hasattr(transform, "sizes")):
            raise TypeError(
                f"{who}: transform must be one, such as MaskTokens(...), or None; got {transform!r}"
            )
        self.transform: TextTransform = _Plain() if transform is None else transform
        self.pad_id = whole(who, "pad_id", pad_id, 0)
        if documents.counted is not None:
            raise ValueError(
                f"{who}: documents must count all of their tokens; prompts and completions belong"
                " into a PackedDataset or a BucketLoader"
            )
        wanted = None if target_len is None else whole(who, "target_len", target_len, 1)
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
        """A number that other documents, or crops of another length, do not have."""
        return fingerprint(self.documents.fingerprint(), self.seq_len, self.crop_len)

    def __len__(self) -> int:
        """Number of crops in an epoch."""
        return int(self._document.size)

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Items of an epoch with their chance in them; without a generator always the same."""
        items = np.arange(len(self)) if rng is None else rng.permutation(len(self))
        return virtual_items(items, len(self), rng)

    def batch(self, items: np.ndarray) -> Batch:
        """Read, crop and transform items; see the class for the shapes."""
        pairs = [self._item(item) for item in np.asarray(items)]
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
