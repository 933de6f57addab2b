# SPDX-License-Identifier: MIT
"""Tables, padding, means of windows and attention with the arguments of PyTorch's functions."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ... import ops
from ...backend.device import Device
from ...checks import choice, flag, number, whole
from ...errors import ShapeError, composed, fitting
from ...ops.convolution import LARGEST
from ...ops.operands import need_float, need_ndim
from ...tensors import Tensor, arange, tensor, without_gradient
from ...tensors.create import check_room
from ...tensors.on_demand import on_demand
from ...tensors.truth import as_mask_of
from ..losses.targets import are_classes, classes_or_nan
from .masking import addend

__all__ = [
    "adaptive_avg_pool2d",
    "cosine_similarity",
    "embedding",
    "normalize",
    "one_hot",
    "pad",
    "scaled_dot_product_attention",
]


@on_demand
@composed
def normalize(x: Tensor, p: float = 2.0, dim: int = -1, eps: float = 1e-12) -> Tensor:
    """Divide by the norm along an axis, or by eps if that is larger.

    Args:
        x: f32.
        p: of the norm, see `ops.vector_norm`.
        dim: the axis.
        eps: the least that divides.

    Raises:
        ShapeError: x has no such axis.

    Source: torch.nn.functional.normalize.

    Example:
        >>> normalize(tensor([3.0, 4.0]), p=1, eps=1.0).sum().item()
        1.0
    """
    least = number("normalize", "eps", eps, 0)
    size = ops.vector_norm(x, p, dim, True)
    return ops.div(x, ops.clamp(size, least, math.inf))


@on_demand
@composed
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along an axis.

    Args:
        a, b: f32 of one shape.
        dim: the axis of the vectors.
        eps: the least product of their norms.

    Raises:
        ShapeError: the shapes differ, or there is no such axis.

    Source: torch.nn.functional.cosine_similarity.

    Example:
        >>> cosine_similarity(ones((1, 2)), ones((1, 2))).numpy().round(3).tolist()
        [1.0]
    """
    least = number("cosine_similarity", "eps", eps, 0)
    sizes = ops.mul(ops.vector_norm(a, 2, dim), ops.vector_norm(b, 2, dim))
    return ops.div(ops.sum(ops.mul(a, b), dim), ops.clamp(sizes, least, math.inf))


@composed
def embedding(ids: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Look rows of a table up by number; see `ops.get_rows`.

    Args:
        ids: i32 numbers of rows.
        weight: the table.
        padding_idx: number of a row that gets no gradient; below 0 it counts from the end.

    Shape:
        ids (...), weight (V, C) -> (..., C)

    Raises:
        ValueError: there is no row padding_idx.

    Example:
        >>> embedding(tensor([0, 2]), ones((3, 4))).shape
        (2, 4)
    """
    found = ops.get_rows(weight, ids)
    if padding_idx is None:
        return found
    count = weight.shape[0]
    at = whole("embedding", "padding_idx", padding_idx, -count, count - 1) % count
    return ops.where(ops.unsqueeze(ops.eq(ids, at), -1), without_gradient(found), found)


@composed
def one_hot(ids: Tensor, num_classes: int = -1) -> Tensor:
    """Make rows of zeros with a one at each class number, as f32.

    Args:
        ids: i32 class numbers.
        num_classes: C; -1 is the largest number and 1, for which the numbers are computed now.

    Shape:
        ids (...) -> (..., C)

    Raises:
        ValueError: `num_classes` is 0, or below -1; or a stored class number is none of them. The
            row of one that a graph computes is NaN.
        RecordingError: it is -1 in a function that is recorded to run many times.

    Source: torch.nn.functional.one_hot.

    Example:
        >>> one_hot(tensor([1, 0])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    need_ndim("one_hot", "ids", ids, 0, 1, 2, 3)
    given = isinstance(num_classes, bool) or num_classes != -1
    if not given:
        num_classes = max(0, int(number("one_hot", "ids", float(ids.numpy().max())))) + 1
    count = whole("one_hot", "num_classes", num_classes, 1)
    known = ids.dtype.name == "i32" and are_classes("one_hot", "ids", ids, count)
    rows = ops.eq(ops.unsqueeze(ids, -1), arange(count, device=ids.device))
    return rows if known else ops.mul(rows, ops.unsqueeze(classes_or_nan(ids, count), -1))


@fitting
def pad(x: Tensor, pad: Any, mode: str = "constant", value: float = 0.0) -> Tensor:
    """Pad the last axes.

    Args:
        x: f32.
        pad: elements before and after the last axis, then of the one before it, and so on. Numbers
            below 0 cut elements off.
        mode: "constant", "reflect" (without the edge), "replicate" (the edge) or "circular".
        value: of "constant".

    Raises:
        ShapeError: more pairs than axes, or a width that does not fit.
        ValueError: an unknown mode.

    Source: torch.nn.functional.pad; ggml_pad_ext.

    Example:
        >>> pad(ones((2, 3)), (1, 2)).shape
        (2, 6)
    """
    choice("pad", "mode", mode, ("constant", "reflect", "replicate", "circular"))
    if not isinstance(pad, (list, tuple)) or len(pad) % 2:
        raise TypeError(f"pad: pad must be a list of pairs, the last axis first; got {pad!r}")
    pairs = [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    if any(isinstance(n, int) and n < 0 for n in pad):
        x, pairs = _cropped(x, pairs), [(max(a, 0), max(b, 0)) for a, b in pairs]
        if not any(map(any, pairs)):
            return x
    if mode == "circular":
        return ops.pad(x, pairs, "circular")
    if mode != "constant":
        return _repeated(x, pairs, "reflect" if mode == "reflect" else "edge")
    level = number("pad", "value", int(value) if isinstance(value, bool) else value)
    # What is added is zero: the rest is moved so that it is `value`.
    padded = ops.pad(x, pairs) if level == 0 else ops.pad(x - level, pairs) + level
    if level == 1:
        as_mask_of(x.node, padded.node)
    return padded


def _cropped(x: Tensor, pairs: list[tuple[Any, Any]]) -> Tensor:
    """Cut off the elements for which the widths are below 0."""
    if len(pairs) > need_float("pad", "x", x).ndim:
        raise ShapeError(f"pad: there must be at most a pair for each axis; got {len(pairs)}")
    window = [slice(None)] * x.ndim
    for axis, pair in enumerate(pairs, x.ndim - len(pairs)):
        before, after = (max(0, -whole("pad", "pad", n, -LARGEST, LARGEST)) for n in pair)
        if before + after >= x.shape[axis]:
            raise ShapeError(
                f"pad: an element of each axis must be left; got {pair} for an extent of "
                f"{x.shape[axis]}"
            )
        window[axis] = slice(before, x.shape[axis] - after)
    return x[tuple(window)]


def _repeated(x: Tensor, pairs: list[tuple[Any, Any]], mode: Any) -> Tensor:
    """Pad the last axes by elements of their own."""
    if len(pairs) > need_float("pad", "x", x).ndim:
        raise ShapeError(f"pad: there must be at most a pair for each axis; got {len(pairs)}")
    for axis, pair in enumerate(pairs, x.ndim - len(pairs)):
        widths = [whole("pad", "pad", n, 0, LARGEST) for n in pair]
        if mode == "reflect" and max(widths) >= x.shape[axis]:
            raise ShapeError(
                f"pad: mode='reflect' takes less than the extent, {x.shape[axis]}; got {pair}"
            )
        if any(widths):
            places = np.pad(np.arange(x.shape[axis], dtype=np.int32), widths, mode)
            x = ops.index_select(x, axis, places)
    return x


@composed
def adaptive_avg_pool2d(x: Tensor, output_size: Any) -> Tensor:
    """Take means of windows, so many that the result has a size.

    Args:
        x: f32 images.
        output_size: rows and columns, or one number for both; None keeps those of x. Windows
            overlap where a size does not divide that of x.

    Shape:
        x (N, C, H, W) -> (N, C, *output_size)

    Source: torch.nn.functional.adaptive_avg_pool2d; ggml_pool_2d.

    Example:
        >>> adaptive_avg_pool2d(ones((1, 2, 4, 6)), 1).shape
        (1, 2, 1, 1)
    """
    need_ndim("adaptive_avg_pool2d", "x", need_float("adaptive_avg_pool2d", "x", x), 4)
    pair = output_pair("adaptive_avg_pool2d", output_size)
    sizes = [extent if n is None else n for n, extent in zip(pair, x.shape[2:], strict=True)]
    if not any(n % size for n, size in zip(x.shape[2:], sizes, strict=True)):
        windows = [n // size for n, size in zip(x.shape[2:], sizes, strict=True)]
        return ops.pool_2d(x, windows, kind="avg")
    rows, columns = (
        tensor(_windows(n, size), "f32", x.device)
        for n, size in zip(x.shape[2:], sizes, strict=True)
    )
    by_columns = ops.linear(x, columns)
    return ops.transpose(ops.linear(ops.transpose(by_columns, -1, -2), rows), -1, -2)


def output_pair(who: str, size: Any) -> tuple[int | None, int | None]:
    """Return the rows and columns of a result; None are those of the images.

    Args:
        who: the function.
        size: as given, one number or two.

    Raises:
        TypeError: it is neither.
        ValueError: a number is below 1.
    """
    pair = size if isinstance(size, (list, tuple)) else (size, size)
    if len(pair) != 2:
        raise TypeError(f"{who}: output_size must be one number or two; got {size!r:.60}")
    rows, columns = (None if n is None else whole(who, "output_size", n, 1) for n in pair)
    return rows, columns


def _windows(n: int, size: int) -> np.ndarray:
    """Return the weights of n elements in the means of so many windows, (size, n)."""
    check_room("adaptive_avg_pool2d", size * n, 4)
    weights = np.zeros((size, n), np.float32)
    for i in range(size):
        window = slice(i * n // size, -(-(i + 1) * n // size))
        weights[i, window] = 1.0 / (window.stop - window.start)
    return weights


@lru_cache(maxsize=8)
def _hidden(rows: int, columns: int, device: Device) -> Tensor:
    """Return the constant that hides what comes later, shared by all calls."""
    return tensor(np.triu(np.full((rows, columns), -np.inf, np.float32), 1), "f32", device)


@composed
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ keyᵀ · scale + attn_mask) @ value, for each head.

    Args:
        query, key, value: f32; a key-value head may serve several query heads beside each other.
        attn_mask: a comparison or NumPy booleans, true where seen; or other f32 numbers, which are
            added to the scores: 0 where seen, -inf where hidden.
        dropout_p: probability with which weights are dropped; see `ops.dropout`.
        is_causal: hide what comes later.
        scale: None is 1 / sqrt(D).
        enable_gqa: taken as PyTorch takes it; a key-value head serves several query heads in both
            cases.

    Shape:
        query (B, H, T, D), key and value (B, G, S, D), attn_mask (T, S) -> (B, H, T, D)

    Raises:
        ShapeError: the shapes do not belong together.
        ValueError: a mask and `is_causal` are both given.

    Source: torch.nn.functional.scaled_dot_product_attention; `attention` and `flash_attention`
        take heads behind time, and are what models use.

    Example:
        >>> q = ones((1, 2, 3, 4))
        >>> scaled_dot_product_attention(q, q, q, is_causal=True).shape
        (1, 2, 3, 4)
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        need_ndim("scaled_dot_product_attention", name, x, 2, 3, 4)
    flag("scaled_dot_product_attention", "enable_gqa", enable_gqa)
    scores = (*query.shape[:-1], key.shape[-2])
    mask = None
    if attn_mask is not None:
        mask = addend("scaled_dot_product_attention", "attn_mask", attn_mask, query, scores)
    if flag("scaled_dot_product_attention", "is_causal", is_causal):
        if mask is not None:
            raise ValueError(
                "scaled_dot_product_attention: attn_mask must be None with is_causal; give one"
            )
        mask = _hidden(query.shape[-2], key.shape[-2], query.device)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    weights = ops.soft_max(ops.mul_mat(key, query), mask, factor)
    if dropout_p:
        weights = ops.dropout(weights, dropout_p)
    return ops.mul_mat(ops.cont(ops.transpose(value)), weights)
