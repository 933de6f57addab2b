# SPDX-License-Identifier: MIT
"""The table of op cases: one row per op and kind of operand.

A row gives the op, a NumPy reference in float64, the operands' shapes and where gradients go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ops
from ..tensor import Tensor, tensor
from . import references as r
from .case import Case

__all__ = ["CASES", "ELSEWHERE"]


def rope_op(x: Tensor, mode: str, base: float, dims: int) -> Tensor:
    positions = tensor(np.arange(x.shape[-3], dtype=np.int32))
    return ops.rope(x, positions, dims, mode, base)


def mul_mat_id_op(experts: Tensor, x: Tensor) -> Tensor:
    return ops.mul_mat_id(experts, x, tensor(r.EXPERTS))


def _unary(name: str, ref: Callable[..., r.Array], **more: Any) -> list[Case]:
    fn = getattr(ops, name)
    return [
        Case(name, fn, ref, ((5, 3, 7, 2),), **more),
        Case(name, fn, ref, ((1,),), **more),
        Case(name, fn, ref, ((3, 70, 4),), view=(2, 0, 1), **more),
        Case(name, fn, ref, ((1, 5, 3),), view=(1, 0, 2), **more),
    ]


def _binary(name: str, ref: Callable[..., r.Array], **more: Any) -> list[Case]:
    fn = getattr(ops, name)
    pairs = [((5, 3, 7, 2), (5, 3, 7, 2)), ((6, 4), (1, 4)), ((4,), (6, 1)), ((3, 2, 5), ())]
    return [
        *(Case(name, fn, ref, pair, **more) for pair in pairs),
        Case(name, fn, ref, ((4, 5, 3), (3, 4, 5)), view=(2, 0, 1), **more),
    ]


def _gated(name: str, act: Callable[..., r.Array]) -> list[Case]:
    fn = getattr(ops, name)

    def fused(x: r.Array) -> r.Array:
        a, b = np.split(x, 2, -1)
        return act(a) * b

    def swapped(x: r.Array, up: None, flag: bool) -> r.Array:
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
    *_unary("gelu", r.gelu, low=-6, high=6),
    *_unary("gelu_erf", lambda x: 0.5 * x * (1 + r.erf(x / np.sqrt(2))), low=-6, high=6),
    *_unary("silu", r.silu, low=-6, high=6),
    *_unary("gelu_quick", lambda x: x / (1 + np.exp(-1.702 * x)), low=-6, high=6),
    *_unary("tanh", np.tanh),
    *_unary("sigmoid", r.sigmoid),
    *_unary("softplus", lambda x: np.log1p(np.exp(x)), low=-6, high=6),
    *_unary("expm1", np.expm1),
    *_unary("elu", r.elu, away_from=(0,)),
    *_unary("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x), away_from=(0,)),
    *_unary("hardsigmoid", lambda x: np.clip((x + 3) / 6, 0, 1), low=-5, high=5, away_from=r.KINKS),
    *_unary("hardswish", r.hardswish, low=-5, high=5, away_from=r.KINKS),
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
            ("swiglu", r.silu),
            ("reglu", lambda x: np.maximum(x, 0)),
            ("geglu", r.gelu),
            ("geglu_erf", lambda x: 0.5 * x * (1 + r.erf(x / np.sqrt(2)))),
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
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((5, 4), (3, 4))),
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((70, 65), (33, 65))),
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((5, 4), (2, 3, 6, 4))),
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((2, 5, 4), (6, 3, 4))),
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((3, 2, 5, 4), (3, 6, 7, 4))),
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((1, 2, 5, 4), (3, 4, 7, 4))),
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((3, 5, 2, 4), (3, 6, 7, 4)), view=(0, 2, 1, 3)),
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((3, 4, 2, 5), (3, 6, 7, 4)), view=(0, 2, 3, 1)),
    Case("mul_mat", ops.mul_mat, r.mul_mat, ((1, 1), (1, 1))),
    Case("out_prod", ops.out_prod, r.out_prod, ((5, 4), (5, 3))),
    Case("out_prod", ops.out_prod, r.out_prod, ((2, 5, 4), (6, 5, 3))),
    Case("matmul", ops.matmul, np.matmul, ((3, 4), (4, 5))),
    Case("matmul", ops.matmul, np.matmul, ((2, 1, 3, 4), (6, 4, 5))),
    Case("matmul", ops.matmul, np.matmul, ((4,), (2, 4, 5))),
    Case("matmul", ops.matmul, np.matmul, ((3, 4), (4,))),
    Case("linear", ops.linear, lambda x, w, b: x @ w.T + b, ((2, 3, 4), (5, 4), (5,))),
    Case("norm", ops.norm, r.norm, ((5, 3, 7, 9),), extra=(1e-5,)),
    Case("norm", ops.norm, r.norm, ((3, 200),), extra=(1e-3,)),
    Case("norm", ops.norm, r.norm, ((4, 5, 3),), extra=(1e-2,), view=(2, 0, 1)),
    Case("rms_norm", ops.rms_norm, r.rms_norm, ((5, 3, 7, 9),), extra=(1e-6,)),
    Case("rms_norm", ops.rms_norm, r.rms_norm, ((3, 200),), extra=(1e-3,)),
    Case("l2_norm", ops.l2_norm, r.l2_norm, ((5, 3, 7, 9),), extra=(1e-6,)),
    Case("l2_norm", ops.l2_norm, r.l2_norm, ((4, 5, 3),), extra=(1e-6,), view=(2, 0, 1)),
    Case("group_norm", ops.group_norm, r.group_norm, ((2, 6, 5, 3),), extra=(3, 1e-5)),
    Case("group_norm", ops.group_norm, r.group_norm, ((4, 5, 3),), extra=(1, 1e-3)),
    Case("pad", ops.pad, r.pad, ((2, 3, 4),), extra=([(1, 0), (2, 3)], "zeros")),
    Case("pad", ops.pad, r.pad, ((2, 3, 4, 2),), extra=([(0, 1), (1, 0), (2, 3), (0, 2)], "zeros")),
    Case("pad", ops.pad, r.pad, ((2, 3, 4),), extra=([(1, 2), (3, 1)], "circular")),
    Case("pad_reflect", ops.pad_reflect, r.reflect, ((2, 3, 6),), extra=(3, 2), grad=()),
    Case("roll", ops.roll, r.roll, ((4, 3, 5),), extra=([1, -2],)),
    Case("roll", ops.roll, r.roll, ((2, 4, 3, 5),), extra=([1, 3, 0, 7],)),
    Case("upscale", ops.upscale, r.nearest, ((2, 3, 4, 5),), extra=(3,)),
    Case("upscale", ops.upscale, r.bilinear, ((2, 3, 4, 5),), extra=(2, "bilinear")),
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
    Case("mul_mat_id", mul_mat_id_op, r.mul_mat_id, ((4, 5, 6), (3, 1, 6))),
    Case("mul_mat_id", mul_mat_id_op, r.mul_mat_id, ((4, 5, 6), (3, 2, 6))),
    Case(
        "add_id",
        lambda x, b: ops.add_id(x, b, tensor(r.EXPERTS)),
        lambda x, b: x + b[r.EXPERTS],
        ((3, 2, 6), (4, 6)),
    ),
    *(
        Case(name, getattr(ops, name), ref, shapes, extra=extra)
        for name, ref in [("conv_2d", r.conv_2d), ("conv_2d_direct", r.conv_2d)]
        for shapes, extra in [
            (((2, 3, 6, 5), (4, 3, 3, 2)), ()),
            (((2, 3, 7, 8), (4, 3, 3, 3)), ((2, 1), (1, 2), (1, 2))),
            (((1, 1, 4, 4), (1, 1, 1, 1)), ()),
        ]
    ),
    Case("conv_2d_dw", ops.conv_2d_dw, r.conv_2d_dw, ((2, 3, 6, 5), (3, 1, 3, 2)), extra=(2, 1)),
    Case(
        "conv_transpose_2d",
        ops.conv_transpose_2d,
        r.conv_transpose_2d,
        ((2, 3, 4, 5), (3, 2, 3, 2)),
        extra=(2,),
    ),
    Case("conv_1d", ops.conv_1d, r.conv_1d, ((2, 3, 9), (4, 3, 3)), extra=(2, 1)),
    Case(
        "conv_transpose_1d",
        ops.conv_transpose_1d,
        r.conv_transpose_1d,
        ((3, 5), (3, 2, 4)),
        extra=(3,),
    ),
    Case("im2col", lambda x: ops.im2col(x, 2, 1, 1), r.im2col, ((2, 3, 4, 5),)),
    *(
        Case("pool_2d", ops.pool_2d, r.pool_2d, ((2, 3, 6, 7),), extra=extra)
        for extra in [(2, None, 0, "max"), ((3, 2), (1, 2), 1, "max"), ((3, 2), 2, 1, "avg")]
    ),
    *(
        Case("pool_1d", ops.pool_1d, r.pool_1d, ((2, 3, 9),), extra=extra)
        for extra in [(2, None, 0, "max"), (3, 2, 1, "max"), (3, 2, 1, "avg")]
    ),
    Case("soft_max", ops.soft_max, r.soft_max, ((4, 3, 5, 5),)),
    Case(
        "soft_max",
        lambda x: ops.soft_max(x, tensor(r.MASK), 0.3),
        lambda x: r.soft_max(x, r.MASK, 0.3),
        ((4, 3, 5, 5),),
    ),
    *(
        Case("rope", rope_op, r.rope, shape, extra=extra, view=view)
        for shape, extra, view in [
            (((2, 7, 3, 8),), ("neox", 10000.0, 8), None),
            (((2, 7, 3, 8),), ("normal", 500.0, 8), None),
            (((7, 3, 10),), ("neox", 10000.0, 6), None),
            (((3, 7, 2, 8),), ("neox", 10000.0, 8), (2, 1, 0, 3)),
        ]
    ),
    Case("get_rows", lambda t: ops.get_rows(t, tensor(r.IDS)), lambda t: t[r.IDS], ((5, 6),)),
    Case(
        "cross_entropy_rows",
        lambda x: ops.cross_entropy_rows(x, tensor(r.TARGETS)),
        r.cross_entropy_rows,
        ((5, 7),),
        low=-9,
        high=9,
    ),
    Case(
        "cross_entropy",
        lambda x: ops.cross_entropy(x, tensor(r.TARGETS)),
        lambda x: r.cross_entropy_rows(x).sum() / 4,
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
    Case("cast", lambda x: ops.cast(x, "f16"), lambda x: x, ((4, 5),)),
    Case("cast", lambda x: ops.cast(ops.cast(x, "bf16"), "f32"), lambda x: x, ((1,),), low=2),
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

# Ops whose check needs stored state; each has a test of its own.
ELSEWHERE = {"cpy", "set_rows", "opt_step_adamw", "opt_step_sgd"}
