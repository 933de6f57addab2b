# SPDX-License-Identifier: MIT
"""What the fuzz draws its arguments from, and how it compares results."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import pyggml as pg

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64)
FLOATS = ("f32",) * 12 + ("f16", "bf16")
DTYPES = (*FLOATS, "i32", "i64", "q8_0", "q4_K", "f64", "i8", "q4_0")
ODD = (
    *(-1, 0, 1, 2, 3, 7, -(2**31), 2**31, 2**63, 2**70, -0.5, 0.5, 1e-30, 1e39, 1e300),
    *(float("nan"), float("inf"), -float("inf"), None, True, False, "", "x", "f32", b"x"),
    *((), (1, 2), (0, 1), [0, 1], [], {}, {1: 2}, (1, "a"), ((1, 2), (3, 4)), (-1, -2)),
    *(slice(None), Ellipsis, 1j, np.float32(2), np.int64(3), np.array([1, 2]), object),
)

Pair = tuple[pg.Tensor, np.ndarray]


class Choices:
    """Draws from a source of random numbers."""

    random: random.Random

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def int(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


class Draw(Choices):
    """Draws of one call."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.rng = np.random.default_rng(source.getrandbits(64))

    def odd(self) -> Any:
        if self.chance(0.1):
            return self.tensor(self.shape())[0]
        return self.pick(*ODD)

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        return tuple(self.pick(*EXTENTS) for _ in range(self.int(low, high)))

    def near(self, like: tuple[int, ...], p: float = 0.25) -> tuple[int, ...]:
        """The shape itself, or one near it."""
        result = list(like)
        while self.chance(p):
            kind = self.pick("extent", "extent", "drop", "add", "swap", "zero")
            if kind == "add" and len(result) < 6:
                result.insert(self.int(0, len(result)), self.pick(*EXTENTS))
            elif result and kind == "drop":
                result.pop(self.int(0, len(result) - 1))
            elif result and kind == "extent":
                result[self.int(0, len(result) - 1)] = self.pick(*EXTENTS)
            elif result and kind == "zero" and self.chance(0.3):
                result[self.int(0, len(result) - 1)] = 0
            elif len(result) > 1 and kind == "swap":
                result[0], result[-1] = result[-1], result[0]
        return tuple(result)

    def array(self, shape: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> np.ndarray:
        x = self.rng.uniform(low, high, shape).astype(np.float32)
        if x.size and self.chance(0.08):
            bad = self.pick(np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30, 1e-40)
            x.flat[self.rng.integers(x.size)] = bad
        return x

    def stored(self, shape: tuple[int, ...], dtype: str, low: float, high: float) -> pg.Tensor:
        x = self.array(shape, low, high)
        if dtype[0] == "i":
            x = np.clip(np.nan_to_num(x), -100, 100).astype(np.int64)
        t = pg.tensor(x, dtype)
        if dtype == "f32" and self.chance(0.5):
            t.requires_grad = True
        return t

    def tensor(
        self,
        shape: tuple[int, ...],
        dtype: str | None = None,
        low: float = -2.0,
        high: float = 2.0,
    ) -> Pair:
        """A tensor of this shape, perhaps a view of some kind, and its numbers."""
        dtype = dtype or self.pick(*(DTYPES if self.chance(0.2) else FLOATS))
        kind = self.pick("stored", "stored", "permuted", "sliced", "stretched", "recorded")
        n = len(shape)
        if kind == "permuted" and 1 < n <= 4:
            axes = self.random.sample(range(n), n)
            base = self.stored(tuple(shape[i] for i in np.argsort(axes)), dtype, low, high)
            base = pg.tensor(np.zeros(1)) if base is None else base
            shuffled = tuple(base.shape[a] for a in axes)
            assert shuffled == tuple(shape)
            return base.permute(*axes), numbers(base).transpose(axes)
        if kind == "sliced" and 0 < n <= 4 and dtype[0] != "q":
            starts = [self.int(0, 2) for _ in shape]
            ends = [self.int(0, 2) for _ in shape]
            whole = tuple(s + a + b for s, a, b in zip(shape, starts, ends, strict=True))
            base = self.stored(whole, dtype, low, high)
            cut = tuple(slice(a, a + s) for a, s in zip(starts, shape, strict=True))
            return base[cut], numbers(base)[cut]
        if kind == "stretched" and 0 < n <= 4 and dtype in ("f32", "f16", "bf16", "i32"):
            flat = tuple(1 if self.chance(0.5) else s for s in shape)
            base = self.stored(flat, dtype, low, high)
            return pg.ops.broadcast_to(base, shape), np.broadcast_to(numbers(base), shape)
        base = self.stored(shape, dtype, low, high)
        if kind == "recorded" and dtype == "f32":
            return base * 1.0, numbers(base)
        return base, numbers(base)

    def ids(self, shape: tuple[int, ...], limit: int) -> Pair:
        """Whole numbers below `limit`, now and then not."""
        values = self.rng.integers(0, max(limit, 1), shape)
        if values.size and self.chance(0.15):
            values.flat[0] = self.pick(-1, limit, 2**31 - 1, -(2**31), -100)
        dtype = self.pick(*["i32"] * 9, "i64")
        t = pg.tensor(values.astype(np.int64), dtype)
        return t, values


def numbers(t: pg.Tensor) -> np.ndarray:
    return t.numpy().astype(np.float64)


def close(got: np.ndarray, want: np.ndarray, exact: bool) -> bool:
    known = np.isfinite(want)
    if not known.all() or np.abs(want).max(initial=0) >= 1e25:
        # Which elements become NaN or infinite depends on the order of operations, and 0 · Inf may
        # be its limit; elements that stay clear of it must be right.
        clear = known & np.isfinite(got) & (np.abs(want) < 1e25)
        got, want = got[clear], want[clear]
        if exact:
            return bool(np.allclose(got, want, rtol=1e-2, atol=1e-2))
    # Differences of equal numbers are rounding: 1e-5 an element counts as 0.
    least = 1e-2 * max(want.size, 1) ** 0.5
    limit = (1e-3 if exact else 5e-2) * max(float(np.linalg.norm(want)), least)
    return bool(np.linalg.norm(got - want) <= limit)


def rough(*arrays: Any) -> bool:
    """Whether an operand is so large, or not finite, that a comparison says little."""
    return any(
        not np.isfinite(x).all() or np.abs(x).max(initial=0) > 1e6
        for x in map(np.asarray, arrays)
        if x.dtype.kind == "f"
    )
