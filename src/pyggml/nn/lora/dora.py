# SPDX-License-Identifier: MIT
"""DoRA: the norms of a weight's rows, trained beside their direction."""

from __future__ import annotations

import math

import numpy as np

from ... import ops
from ...tensors import Tensor, tensor, without_gradient
from .. import functional
from ..module import Module, Parameter

__all__ = ["Magnitude"]


class Magnitude(Module):
    """The trained norms of the rows of a weight with an adapter, or of a convolution's kernels.

    Called, it gives the factor of each row, m / |weight + scale * B @ A|, in which the divisor
    has no gradient. The divisor is computed without the sum: |w|² is known, and
    |w + s b A|² = |w|² + 2 s b (A w) + s² b (A Aᵀ) bᵀ for each row w and b.

    Args:
        weight: the frozen matrix; the norms begin as those of its rows.

    Shape:
        weight (M, C), A (R, C), B (M, R) -> (M,); the kernels of a convolution are rows

    Source: Liu et al. 2024, arXiv:2402.09353, section 4.3; PEFT's DoraLinearLayer and
        DoraConv2dLayer.
    """

    def __init__(self, weight: Tensor) -> None:
        squares = _squares(weight)
        self.weight = Parameter(np.sqrt(squares), device=weight.device)
        self._squares = tensor(squares, device=weight.device)

    def set_base(self, weight: Tensor) -> None:
        """Note another frozen matrix."""
        self._squares.copy_(_squares(weight))

    def forward(self, weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
        """Return the factor of each row."""
        a, b = without_gradient(a), without_gradient(b)
        weight, a, b = (each if each.ndim == 2 else _rows(each) for each in (weight, a, b))
        mixed = functional.linear(b, functional.linear(a, a))  # b (A Aᵀ), symmetric
        crossed = functional.linear(a, weight).T  # (M, R)
        inner = ops.scale(crossed, 2.0 * scale) + ops.scale(mixed, scale * scale)
        squares = self._squares + (b * inner).sum(dim=1)
        return self.weight / ops.sqrt(squares)

    def scaled(self, total: np.ndarray) -> np.ndarray:
        """Return a matrix with these norms of its rows."""
        rows = total.reshape(len(total), -1)
        norms = np.linalg.norm(rows.astype(np.float64), axis=1)
        factor = self.weight.numpy().astype(np.float64) / np.maximum(norms, np.finfo(float).tiny)
        return np.asarray(rows * factor[:, None], np.float32).reshape(total.shape)


def _rows(kernels: Tensor) -> Tensor:
    """Return kernels (O, C, KH, KW) as rows (O, C * KH * KW)."""
    return kernels.reshape(kernels.shape[0], math.prod(kernels.shape[1:]))


def _squares(weight: Tensor) -> np.ndarray:
    """Return the sums of the squares of a weight's rows."""
    values = weight.numpy().astype(np.float32).astype(np.float64)
    return np.asarray((values.reshape(len(values), -1) ** 2).sum(axis=1), np.float32)
