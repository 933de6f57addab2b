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
    *_unary("tanh", np.tanh, grad=()),
    *_unary("sigmoid", lambda x: 1 / (1 + np.exp(-x)), grad=()),
    *_binary("add", np.add),
    *_binary("sub", np.subtract),
    *_binary("mul", np.multiply),
    *_binary("div", np.divide, **positive),
    Case("scale", ops.scale, lambda x, s, b: x * s + b, ((4, 3),), extra=(-1.5, 0.5)),
    Case("clamp", ops.clamp, np.clip, ((4, 9),), extra=(-1.0, 0.5), grad=()),
    Case("pow", ops.pow, np.power, ((4, 3),), extra=(3,)),
    Case("pow", ops.pow, np.power, ((4, 3),), extra=(-2,), low=0.5),
    Case("pow", ops.pow, np.power, ((4, 3),), extra=(1.7,), low=0.5),
    Case("swiglu", ops.swiglu, lambda a, b: silu(a) * b, ((3, 5, 8), (3, 5, 8))),
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
    Case("out_prod", ops.out_prod, out_prod, ((5, 4), (5, 3)), grad=()),
    Case("out_prod", ops.out_prod, out_prod, ((2, 5, 4), (6, 5, 3)), grad=()),
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
        grad=(),
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
