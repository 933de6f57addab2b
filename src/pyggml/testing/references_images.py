# SPDX-License-Identifier: MIT
"""NumPy references of resizing, volumes and windows, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "bicubic",
    "conv_3d",
    "im2col_3d",
    "resize_antialias",
    "resize_bicubic",
    "resize_bilinear",
    "resize_nearest",
    "win_part",
    "win_unpart",
]

Array = Any  # float64 arrays; NumPy's functions are typed too widely for more


def _resize(x: Array, size: Any, matrix: Callable[[int, int], Array]) -> Array:
    rows, columns = matrix(x.shape[-2], size[0]), matrix(x.shape[-1], size[1])
    return rows @ x @ columns.T


def _centres(n: int, m: int, corners: bool) -> Array:
    if corners and n > 1 and m > 1:
        return np.arange(m) * (n - 1) / (m - 1)
    return (np.arange(m) + 0.5) * n / m - 0.5


def _weighted(n: int, m: int, at: Array, reach: int, weight: Callable[[Array], Array]) -> Array:
    """Each result's weights of the pixels around it; those beyond the edge count for the edge."""
    result = np.zeros((m, n))
    base = np.floor(at).astype(int)
    for step in range(1 - reach, reach + 1):
        pixel = base + step
        np.add.at(result, (np.arange(m), np.clip(pixel, 0, n - 1)), weight(np.abs(at - pixel)))
    return result


def resize_nearest(x: Array, size: Any, mode: str) -> Array:
    """The nearest element, to `size`."""

    def matrix(n: int, m: int) -> Array:
        return np.eye(n)[np.arange(m) * n // m]

    return _resize(x, size, matrix)


def resize_bilinear(x: Array, size: Any, mode: str, corners: bool = False) -> Array:
    """Linear interpolation to `size`."""

    def matrix(n: int, m: int) -> Array:
        return _weighted(n, m, _centres(n, m, corners), 1, lambda d: np.maximum(1 - d, 0))

    return _resize(x, size, matrix)


def resize_antialias(x: Array, size: Any, mode: str, corners: bool, antialias: bool) -> Array:
    """Interpolation to `size`, over wider triangles where it shrinks."""

    def matrix(n: int, m: int) -> Array:
        wide = max(1.0, n / m)
        d = np.abs(_centres(n, m, False)[:, None] - np.arange(n)) / wide
        weights = np.maximum(1 - d, 0)
        return weights / weights.sum(1, keepdims=True)

    return _resize(x, size, matrix)


def _cubic(d: Array) -> Array:
    a = -0.75  # PyTorch's
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    return np.where(d <= 1, near, np.where(d < 2, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a, 0))


def resize_bicubic(x: Array, size: Any, mode: str, corners: bool = False) -> Array:
    """Cubic interpolation to `size`."""

    def matrix(n: int, m: int) -> Array:
        return _weighted(n, m, _centres(n, m, corners), 2, _cubic)

    return _resize(x, size, matrix)


def bicubic(x: Array, factor: int, mode: str) -> Array:
    """Cubic interpolation to `factor` times the size."""
    return resize_bicubic(x, (x.shape[-2] * factor, x.shape[-1] * factor), mode)


def _three(value: Any) -> tuple[int, int, int]:
    return (value,) * 3 if isinstance(value, int) else value


def im2col_3d(
    x: Array, channels: int, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Array:
    """The blocks under a three-dimensional kernel as rows."""
    k, s, p, d = map(_three, (kernel, stride, padding, dilation))
    x = np.pad(x, [(0, 0), *((n, n) for n in p)])
    reach = tuple(dn * (kn - 1) + 1 for kn, dn in zip(k, d, strict=True))
    cut = np.lib.stride_tricks.sliding_window_view(x, reach, (1, 2, 3))
    cut = cut[:, :: s[0], :: s[1], :: s[2], :: d[0], :: d[1], :: d[2]]
    n, od, oh, ow = x.shape[0] // channels, *cut.shape[1:4]
    cut = cut.reshape(n, channels, od, oh, ow, *k).transpose(0, 2, 3, 4, 1, 5, 6, 7)
    return cut.reshape(n * od, oh, ow, -1)


def conv_3d(x: Array, w: Array, channels: int, stride: Any, padding: Any) -> Array:
    """Convolution over depth, height and width."""
    cols = im2col_3d(x, channels, w.shape[1:], stride, padding)
    n, out = x.shape[0] // channels, w.shape[0] // channels
    flat = cols.reshape(n, -1, *cols.shape[1:]) @ w.reshape(out, -1).T
    return flat.transpose(0, 4, 1, 2, 3).reshape(n * out, *flat.shape[1:4])


def win_part(x: Array, w: int) -> Array:
    """An image cut into windows w × w."""
    rows, columns, channels = x.shape
    x = np.pad(x, [(0, -rows % w), (0, -columns % w), (0, 0)])
    cut = x.reshape(x.shape[0] // w, w, x.shape[1] // w, w, channels)
    return cut.transpose(0, 2, 1, 3, 4).reshape(-1, w, w, channels)


def win_unpart(x: Array, height: int, width: int) -> Array:
    """Windows put together to an image again."""
    w = x.shape[1]
    rows, columns = -(-height // w), -(-width // w)
    whole = x.reshape(rows, columns, w, w, -1).transpose(0, 2, 1, 3, 4)
    return whole.reshape(rows * w, columns * w, -1)[:height, :width]
