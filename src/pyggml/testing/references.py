# SPDX-License-Identifier: MIT
"""NumPy references of the ops, in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = [
    "EXPERTS",
    "IDS",
    "KINKS",
    "MASK",
    "TARGETS",
    "acc",
    "bilinear",
    "concat",
    "conv_1d",
    "conv_2d",
    "conv_2d_dw",
    "conv_transpose_1d",
    "conv_transpose_2d",
    "cross_entropy_rows",
    "diag_mask_zero",
    "elu",
    "erf",
    "gelu",
    "group_norm",
    "hardswish",
    "im2col",
    "l2_norm",
    "mul_mat",
    "mul_mat_id",
    "nearest",
    "norm",
    "out_prod",
    "pad",
    "padded",
    "pool_1d",
    "pool_2d",
    "put",
    "reflect",
    "repeat_back",
    "rms_norm",
    "roll",
    "rope",
    "set_rows",
    "sigmoid",
    "silu",
    "soft_max",
    "solve_tri",
    "swiglu_oai",
    "two",
    "windows",
    "xielu",
]

Array = Any  # float64 arrays; NumPy's functions are typed too widely for more
erf = np.vectorize(math.erf, otypes=[float])
KINKS = (-3, 3)
EXPERTS = np.array([[3, 0], [1, 1], [0, 2]], np.int32)
IDS = np.array([[4, 0, 4], [2, 1, 4]], np.int32)
MASK = np.triu(np.full((5, 5), -np.inf), 1)
TARGETS = np.array([3, 0, -100, 6, 2], np.int32)


def gelu(x: Array) -> Array:
    """GELU by its tanh formula."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x: Array) -> Array:
    """x · sigmoid(x)."""
    return x / (1 + np.exp(-x))


def norm(x: Array, eps: float) -> Array:
    """Mean 0 and variance 1 along the last axis."""
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def rms_norm(x: Array, eps: float) -> Array:
    """x over the root of its mean square along the last axis."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


def soft_max(x: Array, mask: Array | None = None, scale: float = 1.0) -> Array:
    """softmax of scale · x + mask along the last axis."""
    z = x * scale + (0 if mask is None else mask)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mul_mat(w: Array, x: Array) -> Array:
    """x @ wᵀ."""
    for axis in range(w.ndim - 2):
        offset = x.ndim - w.ndim + axis
        w = np.repeat(w, x.shape[offset] // w.shape[axis], axis)
    return x @ w.swapaxes(-1, -2)


def out_prod(a: Array, b: Array) -> Array:
    """bᵀ @ a."""
    for axis in range(a.ndim - 2):
        a = np.repeat(a, b.shape[b.ndim - a.ndim + axis] // a.shape[axis], axis)
    return b.swapaxes(-1, -2) @ a


def rope(x: Array, mode: str, base: float, dims: int) -> Array:
    """Pairs of numbers turned by an angle that grows with the position."""
    t = np.arange(x.shape[-3])[:, None, None]
    angle = t * base ** (-2 * np.arange(dims // 2) / dims)
    cos, sin = np.cos(angle), np.sin(angle)
    out = x.copy()
    half = dims // 2
    first, second = (
        (np.s_[..., :half], np.s_[..., half:dims])
        if mode == "neox"
        else (np.s_[..., 0:dims:2], np.s_[..., 1:dims:2])
    )
    out[first] = x[first] * cos - x[second] * sin
    out[second] = x[first] * sin + x[second] * cos
    return out


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def elu(x: Array) -> Array:
    """x above 0, exp(x) - 1 below."""
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def hardswish(x: Array) -> Array:
    """x · min(1, max(0, (x + 3) / 6))."""
    return x * np.clip((x + 3) / 6, 0, 1)


def l2_norm(x: Array, eps: float) -> Array:
    """x over its norm along the last axis."""
    return x / np.maximum(np.sqrt((x**2).sum(-1, keepdims=True)), eps)


def group_norm(x: Array, groups: int, eps: float) -> Array:
    """`norm` over groups of channels."""
    g = x.reshape(*x.shape[:-3], groups, -1)
    return norm(g, eps).reshape(x.shape)


def pad(x: Array, widths: list[tuple[int, int]], mode: str) -> Array:
    """Zeros or the other end's elements around x."""
    widths = [(0, 0)] * (x.ndim - len(widths)) + widths
    return np.pad(x, widths, "constant" if mode == "zeros" else "wrap")


def reflect(x: Array, a: int, b: int) -> Array:
    """x with `a` and `b` mirrored elements at the last axis's ends."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(a, b)], "reflect")


def roll(x: Array, shifts: list[int]) -> Array:
    """Elements moved on along the last axes, those at the end to the start."""
    return np.roll(x, shifts, tuple(range(x.ndim - len(shifts), x.ndim)))


def nearest(x: Array, factor: int) -> Array:
    """Each element `factor` times along the last two axes."""
    return x.repeat(factor, -1).repeat(factor, -2)


def bilinear(x: Array, factor: int, mode: str) -> Array:
    """Pixel centres half a pixel in, clamped at the edges."""
    for axis in (-2, -1):
        n = x.shape[axis]
        at = (np.arange(n * factor) + 0.5) / factor - 0.5
        low = np.clip(np.floor(at).astype(int), 0, n - 1)
        high = np.minimum(low + 1, n - 1)
        t = np.clip(at - low, 0, 1)
        t = t[:, None] if axis == -2 else t
        x = x.take(low, axis) * (1 - t) + x.take(high, axis) * t
    return x


def mul_mat_id(experts: Array, x: Array) -> Array:
    """x times the matrix of each expert in EXPERTS."""
    return np.einsum("tkmc,tkc->tkm", experts[EXPERTS], np.broadcast_to(x, (3, 2, 6)))


def two(value: Any) -> tuple[int, int]:
    """A number twice, or the pair itself."""
    return (value, value) if isinstance(value, int) else value


def windows(x: Array, kernel: Any, stride: Any, dilation: Any = 1) -> Array:
    """(N, C, OH, OW, KH, KW) of an image that is padded already."""
    (kh, kw), (sh, sw), (dh, dw) = two(kernel), two(stride), two(dilation)
    view = np.lib.stride_tricks.sliding_window_view(
        x, (dh * (kh - 1) + 1, dw * (kw - 1) + 1), (2, 3)
    )
    return view[:, :, ::sh, ::sw, ::dh, ::dw]


def padded(x: Array, padding: Any, fill: float = 0.0) -> Array:
    """x with a border of `fill` around the last two axes."""
    ph, pw = two(padding)
    return np.pad(x, [(0, 0), (0, 0), (ph, ph), (pw, pw)], constant_values=fill)


def conv_2d(x: Array, w: Array, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Array:
    """Convolution over the last two axes."""
    cut = windows(padded(x, padding), w.shape[2:], stride, dilation)
    return np.einsum("ncijkl,ockl->noij", cut, w)


def conv_2d_dw(x: Array, w: Array, stride: Any, padding: Any) -> Array:
    """Convolution of each channel with a kernel of its own."""
    cut = windows(padded(x, padding), w.shape[2:], stride)
    return np.einsum("ncijkl,ckl->ncij", cut, w[:, 0])


def conv_1d(x: Array, w: Array, stride: int, padding: int) -> Array:
    """Convolution along the last axis."""
    return conv_2d(x[:, :, None], w[:, :, None], (1, stride), (0, padding))[:, :, 0]


def conv_transpose_2d(x: Array, w: Array, stride: int) -> Array:
    """Transposed convolution over the last two axes."""
    n, _, h, wd = x.shape
    _, o, kh, kw = w.shape
    out = np.zeros((n, o, (h - 1) * stride + kh, (wd - 1) * stride + kw))
    for i in range(h):
        for j in range(wd):
            out[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw] += np.einsum(
                "nc,cokl->nokl", x[:, :, i, j], w
            )
    return out


def conv_transpose_1d(x: Array, w: Array, stride: int) -> Array:
    """Transposed convolution along the last axis."""
    out = np.zeros((w.shape[1], (x.shape[1] - 1) * stride + w.shape[2]))
    for t in range(x.shape[1]):
        out[:, t * stride : t * stride + w.shape[2]] += np.einsum("c,cok->ok", x[:, t], w)
    return out


def im2col(x: Array) -> Array:
    """The patches under a kernel as rows."""
    cut = windows(padded(x, 1), 2, 1).transpose(0, 2, 3, 1, 4, 5)
    return cut.reshape(*cut.shape[:3], -1)


def pool_2d(x: Array, kernel: Any, stride: Any, padding: Any, kind: str) -> Array:
    """Largest or mean element of each window of the last two axes."""
    fill = -np.inf if kind == "max" else 0.0
    cut = windows(padded(x, padding, fill), kernel, kernel if stride is None else stride)
    return cut.max((-1, -2)) if kind == "max" else cut.mean((-1, -2))


def pool_1d(x: Array, kernel: int, stride: Any, padding: int, kind: str) -> Array:
    """Largest or mean element of each window of the last axis."""
    edge = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(padding, padding)], constant_values=np.nan)
    cut = np.lib.stride_tricks.sliding_window_view(edge, kernel, -1)
    cut = cut[..., :: kernel if stride is None else stride, :]
    return np.nanmax(cut, -1) if kind == "max" else np.nanmean(cut, -1)


def cross_entropy_rows(x: Array) -> Array:
    """Cross-entropy of each row with its class in TARGETS; 0 where it has none."""
    peak = x.max(-1, keepdims=True)
    lse = np.log(np.exp(x - peak).sum(-1)) + peak[..., 0]
    counted = TARGETS != -100
    return np.where(counted, lse - x[np.arange(len(TARGETS)), np.where(counted, TARGETS, 0)], 0.0)


def xielu(
    x: Array, alpha_n: float = 0.8, alpha_p: float = 0.8, beta: float = 0.5, eps: float = -1e-6
) -> Array:
    """xIELU; see `ops.xielu`."""
    n, p = beta + np.log1p(np.exp(alpha_n)), np.log1p(np.exp(alpha_p))
    below = n * (np.expm1(np.minimum(x, eps)) - x) + beta * x
    return np.where(x > 0, p * x**2 + beta * x, below)


def swiglu_oai(gate: Array, up: Array, alpha: float = 1.702, limit: float = 7.0) -> Array:
    """The gated unit of gpt-oss."""
    g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return g / (1 + np.exp(-alpha * g)) * (u + 1)


def solve_tri(a: Array, b: Array) -> Array:
    """The x of a x = b, a lower triangular."""
    rows: list[Array] = []
    for i in range(a.shape[-1]):
        known = sum((a[..., i, j, None] * x for j, x in enumerate(rows)), np.zeros(()))
        rows.append((b[..., i, :] - known) / a[..., i, i, None])
    return np.stack(rows, -2)


def diag_mask_zero(x: Array, n_past: int) -> Array:
    """0 above the diagonal `n_past`."""
    return np.tril(x, n_past)


def set_rows(dst: Array, src: Array, rows: Array) -> Array:
    """dst with `src` as its rows `rows`."""
    out = dst.copy()
    at = np.broadcast_to(rows, src.shape[:-1])[..., None]
    np.put_along_axis(out, np.broadcast_to(at, src.shape), src, -2)
    return out


def repeat_back(x: Array, shape: tuple[int, ...]) -> Array:
    """Sum of the copies that repeating `shape` made."""
    for axis, n in enumerate(shape):
        x = x.reshape(*x.shape[:axis], -1, n, *x.shape[axis + 1 :]).sum(axis)
    return x


def _at(part: Array, start: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(i, i + n) for i, n in zip(start, part.shape, strict=True))


def acc(x: Array, part: Array, start: tuple[int, ...]) -> Array:
    """x with `part` added from `start` on."""
    out = x.copy()
    out[_at(part, start)] += part
    return out


def put(x: Array, part: Array, start: tuple[int, ...]) -> Array:
    """x with `part` in place of what was from `start` on."""
    out = x.copy()
    out[_at(part, start)] = part
    return out


def concat(*arrays: Array) -> Array:
    """Arrays beside each other along the last axis."""
    return np.concatenate(arrays, -1)
