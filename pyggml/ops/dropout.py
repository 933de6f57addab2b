# SPDX-License-Identifier: MIT
"""Dropout whose mask is computed from a seed and never stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._lib import lib
from ..errors import ShapeError
from ..tensor import Tensor, record, tensor
from ._check import is_scalar, need_dtype, need_float
from .products import rows_in_order

__all__ = ["dropout"]


def _as_seed(seed: Any, x: Tensor) -> Tensor:
    if isinstance(seed, Tensor):
        need_dtype("dropout", "seed", seed, "i32")
        if seed.shape != (2,) or not seed.is_stored:
            raise ShapeError(
                "dropout: a seed tensor must be stored and hold (seed, offset), shape (2,);"
                f" got {seed!r}"
            )
        return seed
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"dropout: seed must be a whole number or a tensor; got {seed!r}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"dropout: seed must be from 0 to 2^64 - 1; got {seed}")
    words = np.array([int(seed) & 0xFFFFFFFF, int(seed) >> 32], np.uint32)
    return tensor(words.view(np.int32), device=x.device)


def dropout(x: Tensor, p: float, seed: Tensor | int, index: int = 0) -> Tensor:
    """Zeros with probability p, everything else divided by 1 - p.

    The same seed, offset and index drop the same elements, on any number of threads; the backward
    computes the mask again.

    Args:
        x: f32 tensor.
        p: probability, from 0 up to but not 1.
        seed: whole number; or a stored i32 tensor (seed, offset) that may be overwritten between
            the runs of a graph, for another mask each time.
        index: i32 number that tells the dropouts of one model apart.

    Shape:
        x any, seed (2,) -> as x

    Raises:
        ValueError: p, seed or index is out of range.
        ShapeError: the seed tensor is not stored, or not (2,).

    Source: ggml_dropout (an op of this project's patches); Srivastava et al. 2014; Philox: Salmon
        et al. 2011.

    Example:
        >>> sorted(set(dropout(ones((64,)), 0.5, 1).tolist()))
        [0.0, 2.0]
    """
    need_float("dropout", "x", x)
    if not is_scalar(p):
        raise TypeError(f"dropout: p must be a number; got {type(p).__name__}")
    if not (p >= 0 and math.isfinite(p) and np.float32(p) < 1):
        raise ValueError(f"dropout: p must be from 0 to below 1; got {p}")
    whole = isinstance(index, int) and not isinstance(index, bool)
    if not whole or not -(2**31) <= index < 2**31:
        raise ValueError(f"dropout: index must fit i32; got {index!r}")
    args = [rows_in_order(x), float(p), _as_seed(seed, x), index]
    return record(lib.ggml_dropout, args, x.shape)
