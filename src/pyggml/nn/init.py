# SPDX-License-Identifier: MIT
"""Initialisers: closures from a shape to f32 values, drawn from `pyggml.seed`'s generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .. import checks
from ..absent import absent_in
from ..backend.device import device as find_device
from ..backend.dtypes import DType, as_dtype
from ..backend.scopes import Scope, Scopes
from ..errors import DTypeError, OutOfMemoryError, ShapeError
from ..tensors.random import random_generator
from ..tensors.storage import check_shape
from .in_place import (
    calculate_gain,
    constant_,
    eye_,
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    ones_,
    orthogonal_,
    trunc_normal_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
    zeros_,
)

__all__ = [
    "Initializer",
    "calculate_gain",
    "constant",
    "constant_",
    "empty_dtype",
    "empty_weights",
    "eye_",
    "gpt2",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

Initializer = Callable[[tuple[int, ...]], np.ndarray]
"""A function of a shape that returns the initial numbers."""

# The dtype of frozen matrices, or f32.
_empty = Scopes()


def empty_weights(dtype: DType | str | None = None) -> Scope:
    """Make weights zero inside the block and draw no random numbers; they are loaded next.

    Args:
        dtype: of matrices that are to stay frozen, such as "q4_K": they take no more memory than
            that. Those whose rows are no whole blocks of it, and all else, are f32.

    Raises:
        DTypeError: no weights are of that type.

    Example:
        >>> with empty_weights():
        ...     normal(1.0)((2,)).tolist()
        [0.0, 0.0]
    """
    kept = None if dtype is None else as_dtype(dtype)
    if kept is not None and not (kept.is_float or (kept.quantized and kept.is_readable)):
        raise DTypeError(f"empty_weights: dtype must be f16, bf16 or quantised; got {kept.name}")
    return Scope(_empty, as_dtype("f32") if kept is None else kept)


def empty_dtype() -> DType | None:
    """The type that `empty_weights` gives matrices here, if any."""
    kept: DType | None = _empty.innermost()
    return None if kept is None or kept.name == "f32" else kept


def constant(value: float) -> Initializer:
    """Fill with one value.

    Raises:
        TypeError: the value is not a number.
        ValueError: it is not finite in f32.

    Example:
        >>> constant(1.0)((2,)).tolist()
        [1.0, 1.0]
    """
    value = checks.f32("constant", "value", value)
    return lambda shape: np.full(_checked(shape), value, np.float32)


def normal(std: float = 0.02, mean: float = 0.0) -> Initializer:
    """Draw from a normal distribution.

    Args:
        std: standard deviation, >= 0.
        mean: centre.

    Raises:
        ValueError: std is negative or not finite.

    Example:
        >>> normal(0.02)((4, 3)).shape
        (4, 3)
    """
    std, mean = checks.f32("normal", "std", std, 0.0), checks.f32("normal", "mean", mean)

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        if _empty.entries:
            return np.zeros(_checked(shape), np.float32)
        values = random_generator().standard_normal(_checked(shape), np.float32)
        return np.asarray(values * np.float32(std) + np.float32(mean), np.float32)

    return draw


def uniform(low: float, high: float) -> Initializer:
    """Draw evenly from [low, high).

    Raises:
        ValueError: low is above high.
    """
    low, high = checks.f32("uniform", "low", low), checks.f32("uniform", "high", high)
    if not low <= high:
        raise ValueError(f"uniform: low must be <= high; got low={low}, high={high}")

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        if _empty.entries:
            return np.zeros(_checked(shape), np.float32)
        values = random_generator().random(_checked(shape), np.float32)
        return np.asarray(values * np.float32(high - low) + np.float32(low), np.float32)

    return draw


def xavier_uniform(gain: float = 1.0) -> Initializer:
    """Draw evenly from +-gain * sqrt(6 / (fan_in + fan_out)).

    Source: Glorot and Bengio 2010.
    """
    gain = checks.f32("xavier_uniform", "gain", gain, 0.0)

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        fan_in, fan_out = _fans("xavier_uniform", shape)
        bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
        return uniform(-bound, bound)(shape)

    return draw


def xavier_normal(gain: float = 1.0) -> Initializer:
    """Draw normally with std gain * sqrt(2 / (fan_in + fan_out)).

    Source: Glorot and Bengio 2010.
    """
    gain = checks.f32("xavier_normal", "gain", gain, 0.0)

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        fan_in, fan_out = _fans("xavier_normal", shape)
        return normal(gain * math.sqrt(2.0 / (fan_in + fan_out)))(shape)

    return draw


def kaiming_uniform(gain: float = math.sqrt(2.0)) -> Initializer:
    """Draw evenly from +-gain * sqrt(3 / fan_in); the default gain suits ReLU.

    Source: He et al. 2015, arXiv:1502.01852.
    """
    gain = checks.f32("kaiming_uniform", "gain", gain, 0.0)

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        bound = gain * math.sqrt(3.0 / _fans("kaiming_uniform", shape)[0])
        return uniform(-bound, bound)(shape)

    return draw


def kaiming_normal(gain: float = math.sqrt(2.0)) -> Initializer:
    """Draw normally with std gain / sqrt(fan_in); the default gain suits ReLU.

    Source: He et al. 2015, arXiv:1502.01852.
    """
    gain = checks.f32("kaiming_normal", "gain", gain, 0.0)
    return lambda shape: normal(gain / math.sqrt(_fans("kaiming_normal", shape)[0]))(shape)


def gpt2(n_layer: int, residual: bool = False) -> Initializer:
    """Draw as GPT-2 does: std 0.02, and 0.02 / sqrt(2 * n_layer) where a block's output joins
    the residual stream, so that its variance does not grow with depth.

    Args:
        n_layer: blocks in the model, each adding to the residual stream twice.
        residual: the weight's output is added to the residual stream.

    Raises:
        ValueError: n_layer is not positive.

    Source: Radford et al. 2019, section 2.3.
    """
    n_layer = checks.whole("gpt2", "n_layer", n_layer, 1)
    residual = checks.flag("gpt2", "residual", residual)
    return normal(0.02 / math.sqrt(2 * n_layer) if residual else 0.02)


def _checked(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Raise for a shape whose weights exceed free memory, before Linux ends the process."""
    kept = empty_dtype()  # zeros that are not touched take no memory
    extents = check_shape("init", shape)
    size_bytes = math.prod(extents)
    size_bytes = 4 * size_bytes if kept is None else kept.row_bytes(size_bytes)
    if not find_device("cpu").has_memory(size_bytes):
        raise OutOfMemoryError(
            f"init: weights of shape {shape} take {size_bytes:,} bytes, more than is free; use a"
            " smaller layer"
        )
    return extents


def _fans(where: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return (fan_in, fan_out) of a (out, in) weight."""
    extents = check_shape(where, shape)
    if len(extents) != 2:
        raise ShapeError(f"{where}: shape must be (out, in); got {extents}")
    return extents[1], extents[0]


if not TYPE_CHECKING:  # type checkers go on reporting absent names
    __getattr__ = absent_in("init", __name__)
