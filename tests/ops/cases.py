# SPDX-License-Identifier: MIT
"""The table of op cases: one row per op and kind of operand.

A row gives the op, a NumPy reference in float64, the operands' shapes and where gradients go.
Forward results are compared with the reference (NMSE at most 1e-7, as ggml's own tests), gradients
with central differences of the reference in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pyggml as pg
from pyggml import ops

erf = np.vectorize(__import__("math").erf, otypes=[float])


@dataclass(frozen=True)
class Case:
    """One row: `fn` on tensors, `ref` on float64 arrays, both given `extra` behind the operands."""

    name: str
    fn: Callable[..., Any]
    ref: Callable[..., np.ndarray]
    shapes: tuple[tuple[int, ...], ...]
    low: float = -2.0
    high: float = 2.0
    grad: tuple[int, ...] | None = None  # operands with a gradient; None: all
    view: tuple[int, ...] | None = None  # permute the first operand by this before the op
    extra: tuple[Any, ...] = field(default=())
    away_from: tuple[float, ...] = ()  # kinks: no operand closer than 0.05 to one

    @property
    def id(self) -> str:
        """Name in pytest's listing."""
        text = "-".join("x".join(map(str, s)) or "scalar" for s in self.shapes)
        return f"{self.name}-{text}" + ("-permuted" if self.view else "")

    def operands(self, seed: int = 0) -> list[np.ndarray]:
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

    def reference(self, *operands: np.ndarray) -> np.ndarray:
        """The same on float64 arrays."""
        first, *rest = operands
        if self.view:
            first = first.transpose(self.view)
        return np.asarray(self.ref(first, *rest, *self.extra), np.float64)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def norm(x: np.ndarray, eps: float) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def rms_norm(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


def soft_max(x: np.ndarray, mask: np.ndarray | None = None, scale: float = 1.0) -> np.ndarray:
    z = x * scale + (0 if mask is None else mask)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mul_mat(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    for axis in range(w.ndim - 2):
        offset = x.ndim - w.ndim + axis
        w = np.repeat(w, x.shape[offset] // w.shape[axis], axis)
    return x @ w.swapaxes(-1, -2)


def out_prod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    for axis in range(a.ndim - 2):
        a = np.repeat(a, b.shape[b.ndim - a.ndim + axis] // a.shape[axis], axis)
    return b.swapaxes(-1, -2) @ a


def rope(x: np.ndarray, mode: str, base: float, dims: int) -> np.ndarray:
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


def rope_op(x: pg.Tensor, mode: str, base: float, dims: int) -> pg.Tensor:
    positions = pg.tensor(np.arange(x.shape[-3], dtype=np.int32))
    return ops.rope(x, positions, dims, mode, base)


KINKS = (-3, 3)
EXPERTS = np.array([[3, 0], [1, 1], [0, 2]], np.int32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def hardswish(x: np.ndarray) -> np.ndarray:
    return x * np.clip((x + 3) / 6, 0, 1)


def l2_norm(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.maximum(np.sqrt((x**2).sum(-1, keepdims=True)), eps)


def group_norm(x: np.ndarray, groups: int, eps: float) -> np.ndarray:
    g = x.reshape(*x.shape[:-3], groups, -1)
    return norm(g, eps).reshape(x.shape)


def pad(x: np.ndarray, widths: list[tuple[int, int]], mode: str) -> np.ndarray:
    widths = [(0, 0)] * (x.ndim - len(widths)) + widths
    return np.pad(x, widths, "constant" if mode == "zeros" else "wrap")


def reflect(x: np.ndarray, a: int, b: int) -> np.ndarray:
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(a, b)], "reflect")


def roll(x: np.ndarray, shifts: list[int]) -> np.ndarray:
    return np.roll(x, shifts, tuple(range(x.ndim - len(shifts), x.ndim)))


def nearest(x: np.ndarray, factor: int) -> np.ndarray:
    return x.repeat(factor, -1).repeat(factor, -2)


def bilinear(x: np.ndarray, factor: int, mode: str) -> np.ndarray:
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


def mul_mat_id(experts: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.einsum("tkmc,tkc->tkm", experts[EXPERTS], np.broadcast_to(x, (3, 2, 6)))


def mul_mat_id_op(experts: pg.Tensor, x: pg.Tensor) -> pg.Tensor:
    return ops.mul_mat_id(experts, x, pg.tensor(EXPERTS))


def two(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def windows(x: np.ndarray, kernel: Any, stride: Any, dilation: Any = 1) -> np.ndarray:
    """(N, C, OH, OW, KH, KW) of an image that is padded already."""
    (kh, kw), (sh, sw), (dh, dw) = two(kernel), two(stride), two(dilation)
    view = np.lib.stride_tricks.sliding_window_view(
        x, (dh * (kh - 1) + 1, dw * (kw - 1) + 1), (2, 3)
    )
    return view[:, :, ::sh, ::sw, ::dh, ::dw]


def padded(x: np.ndarray, padding: Any, fill: float = 0.0) -> np.ndarray:
    ph, pw = two(padding)
    return np.pad(x, [(0, 0), (0, 0), (ph, ph), (pw, pw)], constant_values=fill)


def conv_2d(
    x: np.ndarray, w: np.ndarray, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> np.ndarray:
    cut = windows(padded(x, padding), w.shape[2:], stride, dilation)
    return np.einsum("ncijkl,ockl->noij", cut, w)


def conv_2d_dw(x: np.ndarray, w: np.ndarray, stride: Any, padding: Any) -> np.ndarray:
    cut = windows(padded(x, padding), w.shape[2:], stride)
    return np.einsum("ncijkl,ckl->ncij", cut, w[:, 0])


def conv_1d(x: np.ndarray, w: np.ndarray, stride: int, padding: int) -> np.ndarray:
    return conv_2d(x[:, :, None], w[:, :, None], (1, stride), (0, padding))[:, :, 0]


def conv_transpose_2d(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    n, _, h, wd = x.shape
    _, o, kh, kw = w.shape
    out = np.zeros((n, o, (h - 1) * stride + kh, (wd - 1) * stride + kw))
    for i in range(h):
        for j in range(wd):
            out[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw] += np.einsum(
                "nc,cokl->nokl", x[:, :, i, j], w
            )
    return out


def conv_transpose_1d(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    out = np.zeros((w.shape[1], (x.shape[1] - 1) * stride + w.shape[2]))
    for t in range(x.shape[1]):
        out[:, t * stride : t * stride + w.shape[2]] += np.einsum("c,cok->ok", x[:, t], w)
    return out


def im2col(x: np.ndarray) -> np.ndarray:
    cut = windows(padded(x, 1), 2, 1).transpose(0, 2, 3, 1, 4, 5)
    return cut.reshape(*cut.shape[:3], -1)


def pool_2d(x: np.ndarray, kernel: Any, stride: Any, padding: Any, kind: str) -> np.ndarray:
    fill = -np.inf if kind == "max" else 0.0
    cut = windows(padded(x, padding, fill), kernel, kernel if stride is None else stride)
    return cut.max((-1, -2)) if kind == "max" else cut.mean((-1, -2))


def pool_1d(x: np.ndarray, kernel: int, stride: Any, padding: int, kind: str) -> np.ndarray:
    edge = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(padding, padding)], constant_values=np.nan)
    cut = np.lib.stride_tricks.sliding_window_view(edge, kernel, -1)
    cut = cut[..., :: kernel if stride is None else stride, :]
    return np.nanmax(cut, -1) if kind == "max" else np.nanmean(cut, -1)


IDS = np.array([[4, 0, 4], [2, 1, 4]], np.int32)
MASK = np.triu(np.full((5, 5), -np.inf), 1)
TARGETS = np.array([3, 0, -100, 6, 2], np.int32)


def cross_entropy_rows(x: np.ndarray) -> np.ndarray:
    peak = x.max(-1, keepdims=True)
    lse = np.log(np.exp(x - peak).sum(-1)) + peak[..., 0]
    counted = TARGETS != -100
    return np.where(counted, lse - x[np.arange(len(TARGETS)), np.where(counted, TARGETS, 0)], 0.0)


def _unary(name: str, ref: Callable[..., np.ndarray], **more: Any) -> list[Case]:
    fn = getattr(ops, name)
    return [
        Case(name, fn, ref, ((5, 3, 7, 2),), **more),
        Case(name, fn, ref, ((1,),), **more),
        Case(name, fn, ref, ((3, 70, 4),), view=(2, 0, 1), **more),
    ]


def _binary(name: str, ref: Callable[..., np.ndarray], **more: Any) -> list[Case]:
    fn = getattr(ops, name)
    pairs = [((5, 3, 7, 2), (5, 3, 7, 2)), ((6, 4), (1, 4)), ((4,), (6, 1)), ((3, 2, 5), ())]
    return [
        *(Case(name, fn, ref, pair, **more) for pair in pairs),
        Case(name, fn, ref, ((4, 5, 3), (3, 4, 5)), view=(2, 0, 1), **more),
    ]


def _gated(name: str, act: Callable[..., np.ndarray]) -> list[Case]:
    fn = getattr(ops, name)

    def fused(x: np.ndarray) -> np.ndarray:
        a, b = np.split(x, 2, -1)
        return act(a) * b

    def swapped(x: np.ndarray, up: None, flag: bool) -> np.ndarray:
        a, b = np.split(x, 2, -1)
        return a * act(b)

    away = (0,) if name == "reglu" else ()
    return [
        Case(name, fn, lambda a, b: act(a) * b, ((3, 5, 8), (3, 5, 8)), away_from=away),
        Case(name, fn, lambda a, b, s: a * act(b), ((3, 5), (3, 5)), extra=(True,), away_from=away),
        Case(name, fn, fused, ((3, 5, 70),), away_from=away),
        Case(name, fn, swapped, ((2, 1, 6),), extra=(None, True), away_from=away),
    ]


positive = {"low": 0.3, "high": 3.0}
CASES: list[Case] = [
    *_unary("neg", np.negative),
    *_unary("abs", np.abs, away_from=(0,)),
    *_unary("sgn", np.sign, away_from=(0,), grad=()),
    *_unary("step", lambda x: (x > 0).astype(float), away_from=(0,), grad=()),
    *_unary("sqr", np.square),
    *_unary("sqrt", np.sqrt, **positive),
    *_unary("exp", np.exp),
    *_unary("log", np.log, **positive),
    *_unary("sin", np.sin),
    *_unary("cos", np.cos),
    *_unary("relu", lambda x: np.maximum(x, 0), away_from=(0,)),
    *_unary("gelu", gelu, low=-6, high=6),
    *_unary("gelu_erf", lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))), low=-6, high=6),
    *_unary("silu", silu, low=-6, high=6),
    *_unary("gelu_quick", lambda x: x / (1 + np.exp(-1.702 * x)), low=-6, high=6),
    *_unary("tanh", np.tanh),
    *_unary("sigmoid", sigmoid),
    *_unary("softplus", lambda x: np.log1p(np.exp(x)), low=-6, high=6),
    *_unary("expm1", np.expm1),
    *_unary("elu", elu, away_from=(0,)),
    *_unary("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x), away_from=(0,)),
    *_unary("hardsigmoid", lambda x: np.clip((x + 3) / 6, 0, 1), low=-5, high=5, away_from=KINKS),
    *_unary("hardswish", hardswish, low=-5, high=5, away_from=KINKS),
    *_unary("floor", np.floor, away_from=(-2, -1, 0, 1, 2)),
    *_unary("ceil", np.ceil, away_from=(-2, -1, 0, 1, 2)),
    *_unary("round", lambda x: np.trunc(x + np.copysign(0.5, x)), away_from=(-1.5, -0.5, 0.5, 1.5)),
    *_unary("trunc", np.trunc, away_from=(-2, -1, 0, 1, 2)),
    *_binary("add", np.add),
    *_binary("sub", np.subtract),
    *_binary("mul", np.multiply),
    *_binary("div", np.divide, **positive),
    Case("scale", ops.scale, lambda x, s, b: x * s + b, ((4, 3),), extra=(-1.5, 0.5)),
    Case("clamp", ops.clamp, np.clip, ((4, 9),), extra=(-1.0, 0.5), away_from=(-1.0, 0.5)),
    Case("pow", ops.pow, np.power, ((4, 3),), extra=(3,)),
    Case("pow", ops.pow, np.power, ((4, 3),), extra=(-2,), low=0.5),
    Case("pow", ops.pow, np.power, ((4, 3),), extra=(1.7,), low=0.5),
    *(
        case
        for name, act in [
            ("swiglu", silu),
            ("reglu", lambda x: np.maximum(x, 0)),
            ("geglu", gelu),
            ("geglu_erf", lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))),
            ("geglu_quick", lambda x: x / (1 + np.exp(-1.702 * x))),
        ]
        for case in _gated(name, act)
    ),
    Case("sum", ops.sum, np.sum, ((5, 3, 7, 2),)),
    Case("sum", ops.sum, lambda x, a: x.sum(a), ((5, 3, 7),), extra=(1,)),
    Case("sum", ops.sum, lambda x, a, k: x.sum(a, keepdims=k), ((5, 3, 7),), extra=(0, True)),
    Case("sum_rows", ops.sum_rows, lambda x: x.sum(-1, keepdims=True), ((5, 3, 7, 2),)),
    Case("mean", ops.mean, np.mean, ((5, 3, 7),)),
    Case("mean", ops.mean, lambda x, a: x.mean(a), ((5, 3, 7),), extra=(-1,)),
    Case("argmax", ops.argmax, lambda x: x.argmax(-1), ((5, 33),), grad=()),
    Case("mul_mat", ops.mul_mat, mul_mat, ((5, 4), (3, 4))),
    Case("mul_mat", ops.mul_mat, mul_mat, ((70, 65), (33, 65))),
    Case("mul_mat", ops.mul_mat, mul_mat, ((5, 4), (2, 3, 6, 4))),
    Case("mul_mat", ops.mul_mat, mul_mat, ((2, 5, 4), (6, 3, 4))),
    Case("mul_mat", ops.mul_mat, mul_mat, ((3, 2, 5, 4), (3, 6, 7, 4))),
    Case("mul_mat", ops.mul_mat, mul_mat, ((1, 2, 5, 4), (3, 4, 7, 4))),
    Case("mul_mat", ops.mul_mat, mul_mat, ((3, 5, 2, 4), (3, 6, 7, 4)), view=(0, 2, 1, 3)),
    Case("mul_mat", ops.mul_mat, mul_mat, ((3, 4, 2, 5), (3, 6, 7, 4)), view=(0, 2, 3, 1)),
    Case("mul_mat", ops.mul_mat, mul_mat, ((1, 1), (1, 1))),
    Case("out_prod", ops.out_prod, out_prod, ((5, 4), (5, 3))),
    Case("out_prod", ops.out_prod, out_prod, ((2, 5, 4), (6, 5, 3))),
    Case("matmul", ops.matmul, np.matmul, ((3, 4), (4, 5))),
    Case("matmul", ops.matmul, np.matmul, ((2, 1, 3, 4), (6, 4, 5))),
    Case("matmul", ops.matmul, np.matmul, ((4,), (2, 4, 5))),
    Case("matmul", ops.matmul, np.matmul, ((3, 4), (4,))),
    Case("linear", ops.linear, lambda x, w, b: x @ w.T + b, ((2, 3, 4), (5, 4), (5,))),
    Case("norm", ops.norm, norm, ((5, 3, 7, 9),), extra=(1e-5,)),
    Case("norm", ops.norm, norm, ((3, 200),), extra=(1e-3,)),
    Case("norm", ops.norm, norm, ((4, 5, 3),), extra=(1e-2,), view=(2, 0, 1)),
    Case("rms_norm", ops.rms_norm, rms_norm, ((5, 3, 7, 9),), extra=(1e-6,)),
    Case("rms_norm", ops.rms_norm, rms_norm, ((3, 200),), extra=(1e-3,)),
    Case("l2_norm", ops.l2_norm, l2_norm, ((5, 3, 7, 9),), extra=(1e-6,)),
    Case("l2_norm", ops.l2_norm, l2_norm, ((4, 5, 3),), extra=(1e-6,), view=(2, 0, 1)),
    Case("group_norm", ops.group_norm, group_norm, ((2, 6, 5, 3),), extra=(3, 1e-5)),
    Case("group_norm", ops.group_norm, group_norm, ((4, 5, 3),), extra=(1, 1e-3)),
    Case("pad", ops.pad, pad, ((2, 3, 4),), extra=([(1, 0), (2, 3)], "zeros")),
    Case("pad", ops.pad, pad, ((2, 3, 4, 2),), extra=([(0, 1), (1, 0), (2, 3), (0, 2)], "zeros")),
    Case("pad", ops.pad, pad, ((2, 3, 4),), extra=([(1, 2), (3, 1)], "circular")),
    Case("pad_reflect", ops.pad_reflect, reflect, ((2, 3, 6),), extra=(3, 2), grad=()),
    Case("roll", ops.roll, roll, ((4, 3, 5),), extra=([1, -2],)),
    Case("roll", ops.roll, roll, ((2, 4, 3, 5),), extra=([1, 3, 0, 7],)),
    Case("upscale", ops.upscale, nearest, ((2, 3, 4, 5),), extra=(3,)),
    Case("upscale", ops.upscale, bilinear, ((2, 3, 4, 5),), extra=(2, "bilinear")),
    Case("diag", ops.diag, np.diag, ((6,),)),
    Case("diag", ops.diag, lambda x: np.eye(5) * x, ((2, 3, 1, 5),)),
    *(
        Case("tri", ops.tri, lambda x, p, f=f, k=k: f(x, k), ((2, 5, 5),), extra=(part,))
        for part, f, k in [
            ("lower", np.tril, 0),
            ("strictly_lower", np.tril, -1),
            ("upper", np.triu, 0),
            ("strictly_upper", np.triu, 1),
        ]
    ),
    Case("cumsum", ops.cumsum, lambda x: x.cumsum(-1), ((2, 3, 5, 70),)),
    Case("cumsum", ops.cumsum, lambda x: x.cumsum(-1), ((4, 5, 3),), view=(2, 0, 1)),
    Case("mul_mat_id", mul_mat_id_op, mul_mat_id, ((4, 5, 6), (3, 1, 6))),
    Case("mul_mat_id", mul_mat_id_op, mul_mat_id, ((4, 5, 6), (3, 2, 6))),
    Case(
        "add_id",
        lambda x, b: ops.add_id(x, b, pg.tensor(EXPERTS)),
        lambda x, b: x + b[EXPERTS],
        ((3, 2, 6), (4, 6)),
    ),
    *(
        Case(name, getattr(ops, name), ref, shapes, extra=extra)
        for name, ref in [("conv_2d", conv_2d), ("conv_2d_direct", conv_2d)]
        for shapes, extra in [
            (((2, 3, 6, 5), (4, 3, 3, 2)), ()),
            (((2, 3, 7, 8), (4, 3, 3, 3)), ((2, 1), (1, 2), (1, 2))),
            (((1, 1, 4, 4), (1, 1, 1, 1)), ()),
        ]
    ),
    Case("conv_2d_dw", ops.conv_2d_dw, conv_2d_dw, ((2, 3, 6, 5), (3, 1, 3, 2)), extra=(2, 1)),
    Case(
        "conv_transpose_2d",
        ops.conv_transpose_2d,
        conv_transpose_2d,
        ((2, 3, 4, 5), (3, 2, 3, 2)),
        extra=(2,),
    ),
    Case("conv_1d", ops.conv_1d, conv_1d, ((2, 3, 9), (4, 3, 3)), extra=(2, 1)),
    Case(
        "conv_transpose_1d",
        ops.conv_transpose_1d,
        conv_transpose_1d,
        ((3, 5), (3, 2, 4)),
        extra=(3,),
    ),
    Case("im2col", lambda x: ops.im2col(x, 2, 1, 1), im2col, ((2, 3, 4, 5),)),
    *(
        Case("pool_2d", ops.pool_2d, pool_2d, ((2, 3, 6, 7),), extra=extra)
        for extra in [(2, None, 0, "max"), ((3, 2), (1, 2), 1, "max"), ((3, 2), 2, 1, "avg")]
    ),
    *(
        Case("pool_1d", ops.pool_1d, pool_1d, ((2, 3, 9),), extra=extra)
        for extra in [(2, None, 0, "max"), (3, 2, 1, "max"), (3, 2, 1, "avg")]
    ),
    Case("soft_max", ops.soft_max, soft_max, ((4, 3, 5, 5),)),
    Case(
        "soft_max",
        lambda x: ops.soft_max(x, pg.tensor(MASK), 0.3),
        lambda x: soft_max(x, MASK, 0.3),
        ((4, 3, 5, 5),),
    ),
    *(
        Case("rope", rope_op, rope, shape, extra=extra, view=view)
        for shape, extra, view in [
            (((2, 7, 3, 8),), ("neox", 10000.0, 8), None),
            (((2, 7, 3, 8),), ("normal", 500.0, 8), None),
            (((7, 3, 10),), ("neox", 10000.0, 6), None),
            (((3, 7, 2, 8),), ("neox", 10000.0, 8), (2, 1, 0, 3)),
        ]
    ),
    Case("get_rows", lambda t: ops.get_rows(t, pg.tensor(IDS)), lambda t: t[IDS], ((5, 6),)),
    Case(
        "cross_entropy_rows",
        lambda x: ops.cross_entropy_rows(x, pg.tensor(TARGETS)),
        cross_entropy_rows,
        ((5, 7),),
        low=-9,
        high=9,
    ),
    Case(
        "cross_entropy",
        lambda x: ops.cross_entropy(x, pg.tensor(TARGETS)),
        lambda x: cross_entropy_rows(x).sum() / 4,
        ((5, 7),),
    ),
    Case("broadcast_to", ops.broadcast_to, np.broadcast_to, ((3, 1),), extra=((2, 3, 4),)),
    Case("repeat", ops.repeat, lambda x, s: np.tile(x, (2, 3)), ((2, 5),), extra=((4, 15),)),
    Case(
        "concat",
        lambda a, b: ops.concat([a, b], 1),
        lambda a, b: np.concatenate([a, b], 1),
        ((2, 3, 4), (2, 5, 4)),
    ),
    Case("cont", ops.cont, lambda x: x, ((4, 5, 3),), view=(1, 0, 2)),
    Case("cast", lambda x: ops.cast(x, "f16"), lambda x: x.astype(np.float16), ((4, 5),), grad=()),
    Case("reshape", ops.reshape, np.reshape, ((4, 5, 3),), extra=((2, -1),)),
    Case("reshape", ops.reshape, np.reshape, ((4, 5, 3),), extra=((2, 30),), view=(2, 1, 0)),
    Case("permute", ops.permute, np.transpose, ((2, 3, 4, 5),), extra=((3, 1, 0, 2),)),
    Case("permute", ops.permute, np.transpose, ((2, 3, 4),), extra=((2, 0, 1),)),
    Case("transpose", ops.transpose, lambda x: x.swapaxes(-1, -2), ((2, 3, 4),)),
    *(
        Case("getitem", lambda x, i: x[i], lambda x, i: x[i], ((4, 5, 6),), extra=(index,), view=v)
        for index, v in [
            (np.s_[1:3], None),
            (np.s_[:, 2], None),
            (np.s_[..., 1:4], None),
            (np.s_[-1, :, 2], None),
            (np.s_[2, 3, 4], None),
            (np.s_[:, 1:, 2:3], (2, 0, 1)),
        ]
    ),
]

# Ops whose check needs stored state; each has a test of its own in this folder.
ELSEWHERE = {"cpy", "set_rows", "opt_step_adamw", "opt_step_sgd"}
