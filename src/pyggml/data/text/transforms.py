# SPDX-License-Identifier: MIT
"""Training tasks on token sequences: masked tokens, corrupted spans, fill-in-the-middle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from ... import checks
from ..dataset import IGNORE_INDEX
from .ids import text_to_change, token_ids

__all__ = ["CorruptSpans", "FillInTheMiddle", "MaskTokens", "TextTransform", "Unchanged"]


class TextTransform(Protocol):
    """A training task: it turns each crop of an `AugmentedDataset` into inputs and targets.

    An optional method `check(tokens)` raises where crops of up to so many tokens cannot be used.

    Attributes:
        kind: "causal" gives tokens of which each is to be predicted from those before, "masked"
            inputs and targets of one length, "seq2seq" those of an encoder and of a decoder.
    """

    kind: ClassVar[str]

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> Any:
        """Tokens, or inputs and targets."""

    def sizes(self, tokens: int) -> tuple[int, int]:
        """Return the greatest lengths of inputs and targets for a number of tokens."""


@dataclass
class MaskTokens:
    """BERT's task: predict tokens that are masked.

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
        self.vocab_size = checks.whole(who, "vocab_size", self.vocab_size, 1)
        self.mask_id = checks.whole(who, "mask_id", self.mask_id, 0)
        self.rate = checks.number(who, "rate", self.rate, above=0, below=1)
        self.special = token_ids(who, "special", self.special)

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Hide some tokens."""
        x = text_to_change("MaskTokens", ids, rng)
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
        checks.whole("MaskTokens.sizes", "tokens", tokens)
        return tokens, tokens


@dataclass
class CorruptSpans:
    """T5's task: predict spans that are cut out, each marked by a sentinel.

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
        eos = None if self.eos_id is None else checks.whole(who, "eos_id", self.eos_id, 0)
        sentinels = token_ids(who, "sentinels", self.sentinels)
        if not sentinels:
            raise ValueError(f"{who}: sentinels must be tokens, at least one; got none")
        if len({eos, *sentinels}) <= len(sentinels):
            raise ValueError(
                f"{who}: sentinels must differ from one another and from eos_id; got"
                f" {sentinels}, eos_id={eos}"
            )
        self.sentinels, self.eos_id = sentinels, eos
        self.rate = checks.number(who, "rate", self.rate, above=0, below=1)
        self.mean_span = checks.number(who, "mean_span", self.mean_span, 1)

    def check(self, tokens: int) -> None:
        """Raise if crops of up to so many tokens need more sentinels.

        Args:
            tokens: of the longest crop.

        Raises:
            ValueError: tells how many sentinels are needed.
        """
        checks.whole("CorruptSpans.check", "tokens", tokens)
        # A longer text never needs fewer.
        needed = self._counts(tokens)[1] if tokens > 1 else 0
        if needed > len(self.sentinels):
            raise ValueError(
                f"CorruptSpans: crops of {tokens} tokens need {needed} sentinels; got"
                f" {len(self.sentinels)}; give more, a shorter seq_len, a lower rate or a longer"
                " mean_span"
            )

    def _counts(self, tokens: int) -> tuple[int, int]:
        """Return the number of tokens that are cut out, and the number of spans."""
        if tokens < 2:
            raise ValueError(f"CorruptSpans: a text must have at least 2 tokens; got {tokens}")
        noise = min(max(round(tokens * self.rate), 1), tokens - 1)
        spans = min(max(round(noise / self.mean_span), 1), noise, tokens - noise)
        return noise, spans

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Cut spans out."""
        ids = text_to_change("CorruptSpans", ids, rng)
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
        checks.whole("CorruptSpans.sizes", "tokens", tokens)
        noise, spans = self._counts(tokens)
        end = int(self.eos_id is not None)
        return tokens - noise + spans + end, noise + spans + end


def _segments(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random lengths >= 1 of so many segments, with this sum."""
    cuts = np.sort(rng.permutation(total - 1)[: count - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


@dataclass
class FillInTheMiddle:
    """Reorder some texts so that a causal model learns to fill a gap.

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
        for name in ("prefix_id", "middle_id", "suffix_id"):
            setattr(self, name, checks.whole(who, name, getattr(self, name), 0))
        self.rate = checks.number(who, "rate", self.rate, 0, 1)
        self.spm_rate = checks.number(who, "spm_rate", self.spm_rate, 0, 1)
        if self.eos_id is not None:
            self.eos_id = checks.whole(who, "eos_id", self.eos_id, 0)

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Turn the text, or leave it."""
        ids = text_to_change("FillInTheMiddle", ids, rng)
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
        checks.whole("FillInTheMiddle.sizes", "tokens", tokens)
        return tokens + 2, tokens + 2


@dataclass
class Unchanged:
    """The text as it is."""

    kind: ClassVar[str] = "causal"

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the text."""
        return ids

    def sizes(self, tokens: int) -> tuple[int, int]:
        """The targets are the inputs shifted by one."""
        return tokens - 1, tokens - 1
