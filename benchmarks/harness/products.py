# SPDX-License-Identifier: MIT
"""The products of a linear layer: what is multiplied, and how wrong a result is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# What a layer y = x wᵀ with x (N, K) and w (M, K) needs, under the names of ggml's ops.
LAYOUTS = {
    "mul_mat": "y (N, M) = x (N, K) wᵀ",
    "out_prod_x": "dx (N, K) = dy (N, M) w",
    "out_prod_w": "dw (M, K) = dyᵀ x",
}
_SAMPLES = 256


@dataclass
class Operands:
    """Random matrices of one product.

    Args:
        layout: one of `LAYOUTS`.
        dtype: of the weight; of what stands in its place, x, where a weight's gradient is made.
        n: rows of the activations.
        m: features out.
        k: features in.
        seed: of the numbers.

    Attributes:
        a: the weight w (M, K), or x (N, K) for `out_prod_w`: in `dtype` for the contender.
        b: x (N, K), or dy (N, M): the other operand.
    """

    layout: str
    dtype: str
    n: int
    m: int
    k: int
    seed: int = 0
    a: np.ndarray = field(init=False)
    b: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        rows = self.n if self.layout == "out_prod_w" else self.m
        columns = self.k if self.layout == "mul_mat" else self.m
        self.a = rng.standard_normal((rows, self.k), np.float32)
        self.b = rng.standard_normal((self.n, columns), np.float32)

    def exact(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Elements of the result in float64."""
        a, b = self.a, self.b
        if self.layout == "mul_mat":
            left, right = b[rows], a[columns]
        elif self.layout == "out_prod_x":
            left, right = b[rows], a[:, columns].T
        else:
            left, right = b[:, rows].T, a[:, columns].T
        found: np.ndarray = np.einsum("ij,ij->i", left.astype(np.float64), right.astype(np.float64))
        return found

    def error(self, result: np.ndarray) -> float:
        """Root of the mean squared error over that of the exact result, of some elements."""
        shape = {
            "mul_mat": (self.n, self.m),
            "out_prod_x": (self.n, self.k),
            "out_prod_w": (self.m, self.k),
        }[self.layout]
        if result.shape != shape:
            raise ValueError(f"the result must be {shape}; got {result.shape}")
        rng = np.random.default_rng(self.seed + 1)
        rows, columns = (rng.integers(0, extent, _SAMPLES) for extent in shape)
        exact = self.exact(rows, columns)
        apart = result[rows, columns].astype(np.float64) - exact
        return float(np.sqrt((apart**2).mean() / (exact**2).mean()))
