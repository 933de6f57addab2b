# SPDX-License-Identifier: MIT
"""A product in NumPy, by the BLAS that it came with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..contract import NotSupportedError
from ..products import Operands


def set_threads(n: int) -> None:
    """The environment has told the BLAS before it was loaded."""


def product(operands: Operands) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    if operands.dtype != "f32":
        raise NotSupportedError(f"NumPy has no {operands.dtype}")
    a, b = operands.a, operands.b
    left = b.T if operands.layout == "out_prod_w" else b
    right = a.T if operands.layout == "mul_mat" else a
    out = np.empty((left.shape[0], right.shape[1]), np.float32)

    def run() -> None:
        np.matmul(left, right, out=out)

    return run, lambda: out
