# SPDX-License-Identifier: MIT
"""A row of the case table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One row: `fn` on tensors, `ref` on float64 arrays, both given `extra` behind the operands."""

    name: str
    fn: Callable[..., Any]
    ref: Callable[..., np.ndarray[Any, Any]]
    shapes: tuple[tuple[int, ...], ...]
    low: float = -2.0
    high: float = 2.0
    grad: tuple[int, ...] | None = None  # operands with a gradient; None: all
    view: tuple[int, ...] | None = None  # permute the first operand by this before the op
    extra: tuple[Any, ...] = field(default=())
    away_from: tuple[float, ...] = ()  # kinks: no operand closer than 0.05 to one
    half: tuple[int, ...] = (0,)  # operands that may be f16 or bf16 where the others must be f32
    variant: str = ""  # what sets it apart from the op's other rows, where gradients differ

    @property
    def id(self) -> str:
        """Name in pytest's listing."""
        text = "-".join("x".join(map(str, s)) or "scalar" for s in self.shapes)
        name = f"{self.name}-{self.variant}" if self.variant else self.name
        return f"{name}-{text}" + ("-permuted" if self.view else "")

    def operands(self, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        """Random operands, rounded to f32 so that both sides start from the same numbers."""
        rng = np.random.default_rng([seed, *map(ord, self.name)])
        result = []
        for shape in self.shapes:
            x = rng.uniform(self.low, self.high, shape)
            for kink in self.away_from:
                near = np.abs(x - kink) < 0.05
                x = np.where(near, kink + np.where(x < kink, -0.05, 0.05) * 2, x)
            result.append(x.astype(np.float32).astype(np.float64))
        return result

    def run(self, *operands: Any) -> Any:
        """The op on tensors."""
        first, *rest = operands
        if self.view:
            first = first.permute(*self.view)
        return self.fn(first, *rest, *self.extra)

    def reference(self, *operands: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The same on float64 arrays."""
        first, *rest = operands
        if self.view:
            first = first.transpose(self.view)
        return np.asarray(self.ref(first, *rest, *self.extra), np.float64)
