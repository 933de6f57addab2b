# SPDX-License-Identifier: MIT
"""Rotary positions, and the ways to stretch them over longer contexts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from .. import checks, ops
from ..backend.device import Device
from ..errors import ShapeError
from ..ops.operands import need_tensor
from ..tensors import Tensor, tensor

__all__ = ["Rope", "RopeScaling"]

KINDS = ("linear", "dynamic", "llama3", "yarn", "longrope", "table")
# Fields with a divisor for each pair, and the kinds that have them.
_TABLES = {"table": "table", "short": "longrope", "long": "longrope"}
# More than any model has; beyond it, a wrong number would fill the memory.
_LARGEST_HEAD = 2**20


@dataclass(frozen=True)
class RopeScaling:
    """A way to stretch rotary positions over a context longer than that of the training.

    - "linear": all positions divided by the factor.
    - "dynamic": a larger base for sequences longer than the original context, the larger the
      longer; none for others. Each further token then turns all keys otherwise, so that a cache
      has to be filled again: see `KVCache.set_length`.
    - "llama3": slow pairs divided by the factor, quick ones left alone, those between in between.
    - "yarn": likewise by the number of turns, and scores a little sharper.
    - "longrope": divisors of the publisher, `short` ones within the original context and `long`
      ones beyond. All tokens turn by the same ones, so that a cache has to be filled again.
    - "table": divisors of the angles as a file has them.

    Args:
        kind: one of these.
        factor: by how much the context grows, >= 1.
        original: context of the training; "linear" does not need it.
        low_freq: llama3: pairs that turn fewer times than this in the original context are slow.
        high_freq: llama3: pairs that turn more often are quick.
        beta_fast: yarn: turns from which on a pair is quick.
        beta_slow: yarn: turns below which it is slow.
        attention: factor of cosines and sines; None is 0.1 ln(factor) + 1 for yarn, and
            sqrt(1 + ln(factor) / ln(original)) for longrope.
        table: the divisors, one for each pair.
        short: longrope: divisors within the original context.
        long: longrope: divisors beyond.
        truncate: yarn: the first and last pair in between are rounded to whole pairs; gpt-oss does
            not.

    Raises:
        TypeError: a field is of a wrong kind.
        ValueError: an unknown kind, or a number out of range.

    Source: linear: Chen et al. 2023, arXiv:2306.15595; yarn and dynamic: Peng et al. 2023,
        arXiv:2309.00071; llama3: Dubey et al. 2024, arXiv:2407.21783; longrope: Ding et al. 2024,
        arXiv:2402.13753.

    Example:
        >>> RopeScaling("linear", 4.0).divisors(8, 10000.0, 100).tolist()
        [4.0, 4.0, 4.0, 4.0]
    """

    kind: str
    factor: float
    original: int | None = None
    low_freq: float = 1.0
    high_freq: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention: float | None = None
    table: tuple[float, ...] | None = None
    short: tuple[float, ...] | None = None
    long: tuple[float, ...] | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        who = "RopeScaling"
        checks.choice(who, "kind", self.kind, KINDS)
        checks.flag(who, "truncate", self.truncate)
        rest = [f.name for f in fields(self) if f.name not in ("kind", "truncate", *_TABLES)]
        for name, kind in _TABLES.items():
            given = getattr(self, name)
            if (self.kind == kind) != (given is not None):
                raise ValueError(f'RopeScaling: {name} is for kind "{kind}", which needs it')
            if given is not None:
                numbers = tuple(
                    checks.number(who, f"{name}[{i}]", n, above=0.0)
                    for i, n in enumerate(checks.items(who, name, given))
                )
                object.__setattr__(self, name, numbers)
        for name in rest:
            value = getattr(self, name)
            if value is None and name in ("original", "attention"):
                continue
            if name == "original":
                checked: float = checks.whole(who, name, value, 1)
            elif name == "factor":
                checked = checks.number(who, name, value, 1.0)
            else:
                checked = checks.number(who, name, value, above=0.0)
            object.__setattr__(self, name, checked)
        if self.original is None and self.kind not in ("linear", "table"):
            raise ValueError(
                f'RopeScaling: "{self.kind}" needs original, the context of the training; got None'
            )
        if self.kind == "llama3" and self.low_freq >= self.high_freq:
            raise ValueError(
                "RopeScaling: low_freq must be below high_freq; "
                f"got {self.low_freq} and {self.high_freq}"
            )

    @classmethod
    def of(cls, given: RopeScaling | Mapping[str, Any] | None) -> RopeScaling | None:
        """Return a `RopeScaling` made from one, from a dict of its fields, or None.

        Raises:
            TypeError: it is none of them, or a value is of a wrong kind.
            ValueError: a key is unknown, or a value out of range.
        """
        if given is None or isinstance(given, cls):
            return given
        known = [field.name for field in fields(cls)]
        values = checks.mapping("RopeScaling", "given", given)
        if not {"kind", "factor"} <= set(values) <= set(known):
            raise ValueError(
                f"RopeScaling: a dict must have kind and factor, and keys among "
                f"{', '.join(known)}; got {given!r}"
            )
        return cls(**values)

    @property
    def score_factor(self) -> float:
        """Factor on the attention scores, as cosines and sines of queries and keys are scaled."""
        each = self.attention
        if self.kind == "yarn":
            each = 0.1 * math.log(self.factor) + 1.0 if each is None else each
        elif self.kind == "longrope":
            grown = 1.0 + math.log(self.factor) / math.log(max(self.original or 2, 2))
            each = math.sqrt(grown) if each is None else each
        else:
            return 1.0
        return each * each

    def divisors(self, dim: int, base: float, length: int) -> np.ndarray:
        """Return the divisor of each pair's angle.

        Args:
            dim: how many numbers of a head turn.
            base: base of the angles.
            length: tokens of the sequence.

        Shape:
            -> (dim / 2,)
        """
        who = "RopeScaling.divisors"
        dim = checks.whole(who, "dim", dim, 2, _LARGEST_HEAD)
        length = checks.whole(who, "length", length, 0)
        base = checks.number(who, "base", base, above=0.0)
        half = dim // 2
        beyond = length > (self.original or 0)
        table = self.table or (self.long if beyond else self.short)
        if table is not None:
            for name in _TABLES:
                given = getattr(self, name)
                if given is not None and len(given) != half:
                    raise ValueError(
                        f"RopeScaling: {name} must have a divisor for each of {half} pairs; "
                        f"got {len(given)}"
                    )
            return np.array(table)
        if self.kind == "linear":
            return np.full(half, self.factor)
        frequency = base ** (-np.arange(half) / half)
        original = float(self.original or 1)
        if self.kind == "dynamic":
            if length <= original:
                return np.ones(half)
            # All but the first pair turn slower; a head of one pair has no other.
            grown = self.factor * length / original - (self.factor - 1)
            new = base * grown ** (dim / (dim - 2)) if dim > 2 else base
            return np.asarray(frequency / new ** (-np.arange(half) / half))
        if self.kind == "llama3":
            turns = original * frequency / (2 * math.pi)
            smooth = (turns - self.low_freq) / (self.high_freq - self.low_freq)
            kept = np.clip(smooth, 0.0, 1.0)
        else:
            low, high = (
                dim * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(base))
                for beta in (self.beta_fast, self.beta_slow)
            )
            if self.truncate:
                low, high = math.floor(low), math.ceil(high)
            first, last = max(low, 0), min(high, dim - 1)
            ramp = (np.arange(half) - first) / max(last - first, 0.001)
            kept = 1.0 - np.clip(ramp, 0.0, 1.0)
        return np.asarray(1.0 / (kept + (1.0 - kept) / self.factor))


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding: how attention rotates queries and keys.

    Args:
        base: wavelength base theta.
        mode: "neox" pairs element i with i + D / 2 (Hugging Face's layout), "normal" pairs
            neighbours.
        scale: factor on the positions.
        scaling: how they are stretched over a longer context; None does not.
        dims: how many leading numbers of a head turn, even; None is all.

    Raises:
        TypeError: a field is of a wrong kind.
        ValueError: base or scale is not positive, dims is odd, or the mode is unknown.

    Source: ggml_rope_ext; Su et al. 2021, arXiv:2104.09864.
    """

    base: float = 10000.0
    mode: str = "neox"
    scale: float = 1.0
    scaling: RopeScaling | None = None
    dims: int | None = None

    def __post_init__(self) -> None:
        if self.dims is not None:
            dims = checks.whole("Rope", "dims", self.dims, 2, _LARGEST_HEAD)
            object.__setattr__(self, "dims", dims)
            if self.dims % 2:
                raise ValueError(f"Rope: dims must be even; got {self.dims}")
        for name in ("base", "scale"):
            value = checks.number("Rope", name, getattr(self, name), above=0.0)
            object.__setattr__(self, name, value)
        checks.choice("Rope", "mode", self.mode, ("neox", "normal"))
        if self.scaling is not None:
            checks.instance(
                "Rope", "scaling", self.scaling, RopeScaling, "give None for no scaling"
            )

    @property
    def score_factor(self) -> float:
        """Factor of the attention scores."""
        return 1.0 if self.scaling is None else self.scaling.score_factor

    @property
    def is_dynamic(self) -> bool:
        """True if the rotation of a position depends on the length of the sequence."""
        return self.scaling is not None and self.scaling.kind in ("dynamic", "longrope")

    def wavelengths(self, dim: int, length: int) -> np.ndarray:
        """Return how many positions each pair takes for one radian, in double.

        Args:
            dim: head size.
            length: tokens of the sequence.

        Shape:
            -> (dim / 2,), or (dims / 2,) where not all turns

        Example:
            >>> Rope(base=100.0).wavelengths(4, 9).tolist()
            [1.0, 10.0]
        """
        who = "Rope.wavelengths"
        dim = checks.whole(who, "dim", dim, 2, _LARGEST_HEAD)
        length = checks.whole(who, "length", length, 0)
        dim = dim if self.dims is None else self.dims
        half = dim // 2
        own = self.base ** (np.arange(half) / half) / self.scale
        if self.scaling is None:
            return np.asarray(own)
        return np.asarray(own * self.scaling.divisors(dim, self.base, length))

    def sharpen(self, q: Tensor, scale: float) -> tuple[Tensor, float]:
        """Return queries and the factor of their scores, with `score_factor` in one of the two.

        Args:
            q: queries.
            scale: factor of the scores.

        Shape:
            q (B, T, H, D) -> as q
        """
        width = need_tensor("Rope.sharpen", "q", q).shape[-1]
        scale = checks.number("Rope.sharpen", "scale", scale)
        if self.dims in (None, width) or self.score_factor == 1.0:
            return q, scale * self.score_factor
        return q * _sharpened(self, width, q.device), scale  # what turns, and that alone

    def rotate(
        self, x: Tensor, positions: Tensor, length: int, wavelengths: Tensor | None = None
    ) -> Tensor:
        """Turn queries or keys by their positions.

        Args:
            x: queries or keys.
            positions: one for all sequences or each its own.
            length: tokens of the sequence.
            wavelengths: what `wavelengths` gives, as a tensor; None makes it of the length.

        Shape:
            x (B, T, H, D), positions (T,) or (B, T) i32, wavelengths (dims / 2,) -> as x

        Raises:
            ShapeError: x or positions do not fit.
            TypeError: one is no tensor, or length no whole number.
        """
        if need_tensor("Rope.rotate", "x", x).ndim != 4:
            raise ShapeError(f"Rope.rotate: x must be (B, T, H, D); got {x.shape}")
        length = checks.whole("Rope.rotate", "length", length, 0)
        need_tensor("CausalSelfAttention", "positions", positions)
        batch, own, heads, width = x.shape
        if wavelengths is None:
            # Only a dynamic scaling depends on the length: the others share their constant.
            wavelengths = _constant(self, width, length if self.is_dynamic else 0, x.device)
        # ggml makes the powers of a base one from another in f32, and loses digits: its base is 1
        # and the divisors, which are powers made in double, say it all.
        options: dict[str, Any] = {"mode": self.mode, "base": 1.0, "freq_factors": wavelengths}
        options["n_dims"] = self.dims
        if positions.ndim < 2:
            return ops.rope(x, positions, **options)
        if positions.shape != (batch, own):
            raise ShapeError(
                f"CausalSelfAttention: positions must be (T,) or (B, T) = ({batch}, {own}); "
                f"got {positions.shape}"
            )
        # ggml has one row of positions: the sequences follow each other in it.
        rows = x.reshape(batch * own, heads, width)
        turned = ops.rope(rows, positions.reshape(batch * own), **options)
        return turned.reshape(batch, own, heads, width)


@lru_cache(maxsize=32)
def _constant(rope: Rope, width: int, length: int, device: Device) -> Tensor:
    """The wavelengths as a constant tensor, (D / 2,)."""
    return tensor(rope.wavelengths(width, length).astype(np.float32), device=device)


@lru_cache(maxsize=32)
def _sharpened(rope: Rope, width: int, device: Device) -> Tensor:
    """Factors of a query's numbers: `score_factor` of those that turn, (D,)."""
    factors = np.ones(width, np.float32)
    factors[: rope.dims] = rope.score_factor
    return tensor(factors, device=device)
