# SPDX-License-Identifier: MIT
"""Windows of a token stream as (input, target) pairs for language modelling."""

from __future__ import annotations

import numpy as np

from ... import checks
from ..dataset import IGNORE_INDEX, check_rng, item_numbers, order_of
from ..fingerprint import fingerprint
from .ids import ids_in_range, token_stream

__all__ = ["RandomWindows", "TokenDataset", "split_tokens"]


def split_tokens(ids: np.ndarray, validation: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Cut a token stream into a training part and, after it, a validation part.

    Args:
        ids: tokens.
        validation: share of the second part, > 0 and < 1.

    Shape:
        ids (N,) -> (int(N * (1 - validation)),), (the rest,)

    Raises:
        ValueError: the share is out of range, or ids is not a vector of token ids.

    Source: the 90 / 10 split of nanoGPT's `prepare.py`.

    Example:
        >>> [part.size for part in split_tokens(np.arange(50), 0.1)]
        [45, 5]
    """
    ids = token_stream(ids, "split_tokens")
    validation = checks.number("split_tokens", "validation", validation, above=0, below=1)
    cut = int(ids.size * (1.0 - validation))
    return ids[:cut], ids[cut:]


class _Windows:
    """A token stream and the reading of windows from it."""

    def __init__(self, ids: np.ndarray, seq_len: int) -> None:
        who = type(self).__name__
        self.ids = token_stream(ids, who)
        self.seq_len = checks.whole(who, "seq_len", seq_len, 1)

    def _require(self, tokens: int) -> None:
        if self.ids.size < tokens:
            raise ValueError(
                f"{type(self).__name__}: the text must hold at least {tokens} tokens for"
                f" seq_len={self.seq_len}; got {self.ids.size}; use more text or a shorter seq_len"
            )

    def fingerprint(self) -> int:
        """A number that other tokens, or other windows of them, do not have."""
        kind = (type(self).__name__, self.seq_len, *self._shape())
        return fingerprint(repr(kind), self.ids)

    def _shape(self) -> tuple[int, ...]:
        """Return the settings of the windows besides their length."""
        return ()

    def _gather(self, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read whole windows at the given starts: (B,) -> x (B, T), y (B, T)."""
        rows = self.ids[starts[:, None] + np.arange(self.seq_len + 1)]
        rows = ids_in_range(rows, type(self).__name__).astype(np.int32)
        return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


class TokenDataset(_Windows):
    """Windows at regular starts: item i is `ids[i * stride:][:seq_len]` and its successor tokens.

    Args:
        ids: tokens; a `np.memmap` is read piece by piece.
        seq_len: tokens in a window, T >= 1.
        stride: distance between the starts of two windows, >= 1; None means `seq_len`, so that
            every token is predicted once.
        keep_tail: whether the rest at the end becomes one more item, filled up with id 0
            and with targets that the loss ignores. Evaluation wants it, training does not.

    Shape:
        ids (N,) -> item: x (T,), y (T,), both int32

    Raises:
        ValueError: the text is shorter than one window (two tokens with `keep_tail`), a size is
            not positive, or an id is negative or does not fit into int32; the ids of a memory map
            are looked at as they are read.

    Example:
        >>> x, y = TokenDataset(np.arange(10), seq_len=4)[1]
        >>> x.tolist(), y.tolist()
        ([4, 5, 6, 7], [5, 6, 7, 8])
    """

    def __init__(
        self, ids: np.ndarray, seq_len: int, stride: int | None = None, keep_tail: bool = False
    ) -> None:
        super().__init__(ids, seq_len)
        self.stride = (
            self.seq_len if stride is None else checks.whole("TokenDataset", "stride", stride, 1)
        )
        self.keep_tail = checks.flag("TokenDataset", "keep_tail", keep_tail)
        self._require(2 if keep_tail else self.seq_len + 1)
        self._whole = max(0, (self.ids.size - self.seq_len - 1) // self.stride + 1)
        self._tail_start = self._whole * self.stride
        covered = self._tail_start - self.stride + self.seq_len + 1 if self._whole else 1
        # A stride above seq_len can leave the tail without a single target.
        has_targets = covered < self.ids.size and self._tail_start + 2 <= self.ids.size
        self._tail = int(keep_tail and has_targets)

    def _shape(self) -> tuple[int, ...]:
        return self.stride, int(self.keep_tail)

    def __len__(self) -> int:
        return self._whole + self._tail

    def __getitem__(self, item: int) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(item, bool) or not isinstance(item, (int, np.integer)):
            raise TypeError(f"TokenDataset: an item is a number; got {type(item).__name__}")
        if not -len(self) <= item < len(self):
            raise IndexError(f"TokenDataset: item must be below {len(self)}; got {item}")
        x, y = self.batch(np.array([item % len(self)]))
        return x[0], y[0]

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Item numbers of an epoch: a permutation, or natural order without a generator."""
        return order_of("TokenDataset.order", len(self), rng)

    def batch(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read several items at once.

        Shape:
            items (B,) -> x (B, T), y (B, T), both int32
        """
        items = item_numbers("TokenDataset.batch", items, len(self))
        is_tail = items >= self._whole
        if not is_tail.any():
            return self._gather(items * self.stride)
        x = np.zeros((items.size, self.seq_len), np.int32)
        y = np.full((items.size, self.seq_len), IGNORE_INDEX, np.int32)
        x[~is_tail], y[~is_tail] = self._gather(items[~is_tail] * self.stride)
        tail = self.ids[self._tail_start :][: self.seq_len + 1]
        tail = ids_in_range(tail, "TokenDataset").astype(np.int32)
        x[is_tail, : tail.size - 1] = tail[:-1]
        y[is_tail, : tail.size - 1] = tail[1:]
        return x, y

    def split(self, validation: float = 0.1) -> tuple[TokenDataset, TokenDataset]:
        """Cut the tokens into a training part and, after it, a validation part.

        No window crosses the cut. Both parts keep the window length and the stride.

        Args:
            validation: share of the tokens in the second part, > 0 and < 1.

        Raises:
            ValueError: the share is out of range, or a part is shorter than one window.
        """
        made = []
        parts = split_tokens(self.ids, validation)
        for name, ids in zip(("training", "validation"), parts, strict=True):
            needed = 2 if self.keep_tail else self.seq_len + 1
            if ids.size < needed:
                raise ValueError(
                    f"TokenDataset.split: the {name} part must hold at least {needed} tokens for"
                    f" seq_len={self.seq_len}; got {ids.size} of {self.ids.size} with"
                    f" validation={validation}; use more text or a shorter seq_len"
                )
            made.append(TokenDataset(ids, self.seq_len, self.stride, self.keep_tail))
        return made[0], made[1]


class RandomWindows(_Windows):
    """Windows at uniformly random starts, as nanoGPT draws its batches.

    An epoch is as many windows as `TokenDataset` would have, drawn anew in each.

    Args:
        ids: tokens.
        seq_len: tokens in a window, T >= 1.

    Shape:
        ids (N,) -> x (B, T), y (B, T), both int32

    Raises:
        ValueError: the text is shorter than one window, or an id is negative or does not fit into
            int32; the ids of a memory map are looked at as they are read.

    Example:
        >>> len(RandomWindows(np.arange(101), seq_len=10))
        10
    """

    def __init__(self, ids: np.ndarray, seq_len: int) -> None:
        super().__init__(ids, seq_len)
        self._require(self.seq_len + 1)

    def __len__(self) -> int:
        return (self.ids.size - 1) // self.seq_len

    def order(self, rng: np.random.Generator | None) -> np.ndarray:
        """Starts of an epoch's windows: random, or evenly spread without a generator."""
        starts = self.ids.size - self.seq_len
        rng = check_rng("RandomWindows.order", rng)
        if rng is None:
            return np.linspace(0, starts - 1, len(self)).astype(np.int64)
        return rng.integers(0, starts, size=len(self))

    def batch(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read the windows that start at the given tokens: (B,) -> x (B, T), y (B, T)."""
        starts = self.ids.size - self.seq_len
        return self._gather(item_numbers("RandomWindows.batch", items, starts))
