# SPDX-License-Identifier: MIT
"""Convolution and pooling of images (N, C, H, W) and sequences (N, C, T)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend.library import lib
from ..checks import choice, whole
from ..errors import ShapeError, fitting, shown
from ..tensors.create import zeros
from ..tensors.on_demand import on_demand
from ..tensors.record import record
from ..tensors.storage import check_size, whole_numbers
from ..tensors.tensor import Tensor
from .matrices import mul_mat
from .operands import contiguous, need_float, need_ndim
from .shape import reshape, transpose

__all__ = [
    "LARGEST",
    "conv_1d",
    "conv_2d",
    "conv_2d_direct",
    "conv_2d_dw",
    "conv_transpose_1d",
    "conv_transpose_2d",
    "each_axis",
    "im2col",
    "pool_1d",
    "pool_2d",
    "reach",
]

_POOLS = {"max": lib.GGML_OP_POOL_MAX, "avg": lib.GGML_OP_POOL_AVG}
LARGEST = 2**20  # keeps all of ggml's int arithmetic on strides and paddings in range


def each_axis(who: str, name: str, value: Any, least: int, count: int) -> list[int]:
    """Return a whole number for each axis, outermost first; one number stands for all axes."""
    one = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    numbers = [int(value)] * count if one else whole_numbers(value)
    if numbers is None or len(numbers) != count or not all(least <= n <= LARGEST for n in numbers):
        words = {2: "two", 3: "three"}
        kind = TypeError if numbers is None else ValueError
        raise kind(
            f"{who}: {name} must be one or {words[count]} integers >= {least}, at most {LARGEST};"
            f" got {shown(value)}"
        )
    return numbers


def check_pair(who: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """Return (rows, columns) of one number or two."""
    rows, columns = each_axis(who, name, value, least, 2)
    return rows, columns


def check_padding(who: str, padding: Any, kernel: Any, stride: Any, dilation: Any) -> Any:
    """Return a padding that may be "valid" or "same" as numbers, others as they are.

    Args:
        who: the function.
        padding: as given.
        kernel: extents along each axis.
        stride: one number, or one for each axis.
        dilation: likewise.

    Raises:
        ValueError: another word; or the result cannot be as large as x with equal zeros at both
            ends.
    """
    if not isinstance(padding, str):
        return padding
    if padding not in ("valid", "same"):
        raise ValueError(f'{who}: padding must be numbers, "valid" or "same"; got {padding!r:.40}')
    if padding == "valid":
        return 0
    steps = each_axis(who, "stride", stride, 1, len(kernel))
    apart = each_axis(who, "dilation", dilation, 1, len(kernel))
    added = [d * (k - 1) for d, k in zip(apart, kernel, strict=True)]
    if max(steps) > 1 or any(n % 2 for n in added):
        raise ValueError(
            f'{who}: padding="same" needs stride 1 and as many zeros at both ends; got stride'
            f" {stride} and a kernel of {tuple(kernel)}: pad x with F.pad, and give padding=0"
        )
    found = [n // 2 for n in added]
    return found if len(found) > 1 else found[0]


def _one(who: str, name: str, value: Any, least: int) -> int:
    """A number of the only axis that there is."""
    return whole(who, name, value, least, LARGEST)


def reach(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Extent of the result along one axis."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _output(
    who: str,
    x: Tensor,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, int]:
    rows, columns = (
        reach(*axis) for axis in zip(x.shape[-2:], kernel, stride, padding, dilation, strict=True)
    )
    if rows < 1 or columns < 1:
        raise ShapeError(
            f"{who}: x must be at least as large as the kernel, or weight; got x.shape={x.shape},"
            f" kernel {kernel}, padding {padding}, dilation {dilation}"
        )
    return rows, columns


@fitting
def im2col(x: Tensor, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Tensor:
    """Patches of images as rows, so that a convolution is one matmul.

    Args:
        x: f32 images.
        kernel, stride, padding, dilation: one number, or one for rows and one for columns.

    Shape:
        x (N, C, H, W) -> (N, OH, OW, C·KH·KW)

    Raises:
        ShapeError: the images are smaller than the kernel.

    Source: ggml_im2col.
    """
    return _im2col("im2col", x, kernel, stride, padding, dilation)


def _im2col(who: str, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Tensor:
    need_float(who, "x", x)
    need_ndim(who, "x", x, 4)
    (k1, k0) = check_pair(who, "kernel", kernel, 1)
    (s1, s0) = check_pair(who, "stride", stride, 1)
    (p1, p0) = check_pair(who, "padding", padding, 0)
    (d1, d0) = check_pair(who, "dilation", dilation, 1)
    rows, columns = _output(who, x, (k1, k0), (s1, s0), (p1, p0), (d1, d0))
    shape = (x.shape[0], rows, columns, x.shape[1] * k1 * k0)
    check_size(who, shape, "with this padding, the shape of the patches")
    # ggml reads the kernel's shape off a tensor, and nothing else of it.
    shaped = zeros((1, x.shape[1], k1, k0), device=x.device)
    args: list[Any] = [shaped, contiguous(x), s0, s1, p0, p1, d0, d1, True, lib.GGML_TYPE_F32]
    return record(lib.ggml_im2col, args, shape)


@on_demand
def conv_2d(
    x: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Tensor:
    """Convolve images with a kernel (without flipping it, as networks do).

    Args:
        x: f32 images.
        weight: f32 kernel.
        stride, padding, dilation: one number, or one for rows and one for columns.

    Shape:
        x (N, C, H, W), weight (O, C, KH, KW) -> (N, O, OH, OW)

    Raises:
        ShapeError: the channels differ, or the images are smaller than the kernel.

    Source: ggml_im2col, ggml_mul_mat.

    Example:
        >>> conv_2d(ones((2, 3, 8, 8)), ones((4, 3, 3, 3)), padding=1).shape
        (2, 4, 8, 8)
    """
    _check_kernel("conv_2d", x, weight, 1)
    return _conv_2d("conv_2d", x, weight, stride, padding, dilation)


def _conv_2d(
    who: str, x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any
) -> Tensor:
    patches = _im2col(who, x, weight.shape[2:], stride, padding, dilation)
    n, rows, columns, width = patches.shape
    flat = mul_mat(reshape(weight, (weight.shape[0], width)), reshape(patches, (-1, width)))
    result = transpose(reshape(flat, (n, rows * columns, weight.shape[0])), 1, 2)
    return reshape(result, (n, weight.shape[0], rows, columns))


def _check_kernel(who: str, x: Tensor, weight: Tensor, axis: int) -> None:
    need_float(who, "x", x)
    need_float(who, "weight", weight)
    need_ndim(who, "x", x, 4)
    need_ndim(who, "weight", weight, 4)
    if weight.shape[axis] != x.shape[1]:
        raise ShapeError(
            f"{who}: weight.shape[{axis}] must be the channels of x;"
            f" got weight.shape={weight.shape}, x.shape={x.shape}"
        )


@on_demand
def conv_2d_direct(
    x: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Tensor:
    """`conv_2d` without the matrix of patches, which takes far less memory.

    Source: ggml_conv_2d_direct.
    """
    _check_kernel("conv_2d_direct", x, weight, 1)
    (s1, s0) = check_pair("conv_2d_direct", "stride", stride, 1)
    (p1, p0) = check_pair("conv_2d_direct", "padding", padding, 0)
    (d1, d0) = check_pair("conv_2d_direct", "dilation", dilation, 1)
    kernel = (weight.shape[2], weight.shape[3])
    size = _output("conv_2d_direct", x, kernel, (s1, s0), (p1, p0), (d1, d0))
    args = [contiguous(weight), contiguous(x), s0, s1, p0, p1, d0, d1]
    return record(lib.ggml_conv_2d_direct, args, (x.shape[0], weight.shape[0], *size))


@on_demand
def conv_2d_dw(
    x: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Tensor:
    """Convolve each channel with a kernel of its own.

    Shape:
        x (N, C, H, W), weight (C, 1, KH, KW) -> (N, C, OH, OW)

    Raises:
        ShapeError: the extents do not fit.

    Source: ggml_conv_2d_dw_direct.
    """
    _check_kernel("conv_2d_dw", x, weight, 0)
    if weight.shape[1] != 1:
        raise ShapeError(f"conv_2d_dw: weight must be (C, 1, KH, KW); got {weight.shape}")
    (s1, s0) = check_pair("conv_2d_dw", "stride", stride, 1)
    (p1, p0) = check_pair("conv_2d_dw", "padding", padding, 0)
    (d1, d0) = check_pair("conv_2d_dw", "dilation", dilation, 1)
    kernel = (weight.shape[2], weight.shape[3])
    size = _output("conv_2d_dw", x, kernel, (s1, s0), (p1, p0), (d1, d0))
    args = [contiguous(weight), contiguous(x), s0, s1, p0, p1, d0, d1]
    return record(lib.ggml_conv_2d_dw_direct, args, (*x.shape[:2], *size))


@on_demand
def conv_transpose_2d(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Compute a transposed convolution, which enlarges images by a learned kernel.

    Shape:
        x (N, C, H, W), weight (C, O, KH, KW) -> (N, O, (H - 1)·stride + KH, …)

    Raises:
        ShapeError: the channels differ.

    Source: ggml_conv_transpose_2d_p0.
    """
    _check_kernel("conv_transpose_2d", x, weight, 0)
    step = _one("conv_transpose_2d", "stride", stride, 1)
    size = [(n - 1) * step + k for n, k in zip(x.shape[2:], weight.shape[2:], strict=True)]
    args = [contiguous(weight), contiguous(x), step]
    return record(lib.ggml_conv_transpose_2d_p0, args, (x.shape[0], weight.shape[1], *size))


@on_demand
def conv_1d(
    x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1
) -> Tensor:
    """Convolve sequences with a kernel.

    Shape:
        x (N, C, T), weight (O, C, K) -> (N, O, OT)

    Raises:
        ShapeError: the channels differ, or the sequence is shorter than the kernel.

    Source: ggml_im2col, ggml_mul_mat.
    """
    need_float("conv_1d", "x", x)
    need_float("conv_1d", "weight", weight)
    need_ndim("conv_1d", "x", x, 3)
    need_ndim("conv_1d", "weight", weight, 3)
    if weight.shape[1] != x.shape[1]:
        raise ShapeError(
            "conv_1d: weight.shape[1] must be the channels of x;"
            f" got weight.shape={weight.shape}, x.shape={x.shape}"
        )
    s, p = _one("conv_1d", "stride", stride, 1), _one("conv_1d", "padding", padding, 0)
    d = _one("conv_1d", "dilation", dilation, 1)
    image = reshape(x, (*x.shape[:2], 1, x.shape[2]))
    kernel = reshape(weight, (*weight.shape[:2], 1, weight.shape[2]))
    result = _conv_2d("conv_1d", image, kernel, (1, s), (0, p), (1, d))
    return reshape(result, (x.shape[0], weight.shape[0], result.shape[3]))


@on_demand
def conv_transpose_1d(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Compute a transposed 1-d convolution.

    Shape:
        x (C, T), weight (C, O, K) -> (O, (T - 1)·stride + K)

    Raises:
        ShapeError: the channels differ.

    Source: ggml_conv_transpose_1d.
    """
    need_float("conv_transpose_1d", "x", x)
    need_float("conv_transpose_1d", "weight", weight)
    need_ndim("conv_transpose_1d", "x", x, 2)
    need_ndim("conv_transpose_1d", "weight", weight, 3)
    if weight.shape[0] != x.shape[0]:
        raise ShapeError(
            "conv_transpose_1d: weight.shape[0] must be the channels of x;"
            f" got weight.shape={weight.shape}, x.shape={x.shape}"
        )
    step = _one("conv_transpose_1d", "stride", stride, 1)
    length = (x.shape[1] - 1) * step + weight.shape[2]
    args = [contiguous(weight), contiguous(x), step, 0, 1]
    return record(lib.ggml_conv_transpose_1d, args, (weight.shape[1], length))


@on_demand
def pool_2d(
    x: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, kind: str = "max"
) -> Tensor:
    """Take the largest or the mean of each window; max ignores padding, avg counts it as 0.

    Args:
        x: f32 images.
        kernel: window, one number or rows and columns.
        stride: None is the kernel.
        padding: below the kernel.
        kind: "max" or "avg".

    Shape:
        x (N, C, H, W) -> (N, C, OH, OW)

    Raises:
        ShapeError: the images are smaller than the window, or the padding reaches it.
        ValueError: an unknown kind.

    Source: ggml_pool_2d.
    """
    need_float("pool_2d", "x", x)
    need_ndim("pool_2d", "x", x, 4)
    choice("pool_2d", "kind", kind, _POOLS)
    (k1, k0) = check_pair("pool_2d", "kernel", kernel, 1)
    (s1, s0) = check_pair("pool_2d", "stride", kernel if stride is None else stride, 1)
    (p1, p0) = check_pair("pool_2d", "padding", padding, 0)
    if p1 >= k1 or p0 >= k0:
        raise ShapeError(
            f"pool_2d: padding must be below the kernel; got padding={padding}, kernel={kernel}"
        )
    size = _output("pool_2d", x, (k1, k0), (s1, s0), (p1, p0), (1, 1))
    args = [contiguous(x), _POOLS[kind], k0, k1, s0, s1, float(p0), float(p1)]
    return record(lib.ggml_pool_2d, args, (*x.shape[:2], *size))


@on_demand
def pool_1d(
    x: Tensor, kernel: int, stride: int | None = None, padding: int = 0, kind: str = "max"
) -> Tensor:
    """Take the largest or the mean of each window along the last axis; padding does not count.

    Shape:
        x (..., T) -> (..., OT)

    Raises:
        ShapeError: the sequence is shorter than the window, or the padding reaches it.

    Source: ggml_pool_1d.
    """
    need_float("pool_1d", "x", x)
    need_ndim("pool_1d", "x", x, 1, 2, 3, 4)
    choice("pool_1d", "kind", kind, _POOLS)
    k = _one("pool_1d", "kernel", kernel, 1)
    s = k if stride is None else _one("pool_1d", "stride", stride, 1)
    p = _one("pool_1d", "padding", padding, 0)
    length = reach(x.shape[-1], k, s, p, 1)
    if p >= k or length < 1:
        raise ShapeError(
            "pool_1d: needs padding < kernel <= the last axis of x with its padding;"
            f" got padding={p}, kernel={k}, x.shape={x.shape}"
        )
    return record(lib.ggml_pool_1d, [contiguous(x), _POOLS[kind], k, s, p], (*x.shape[:-1], length))
