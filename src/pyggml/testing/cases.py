# SPDX-License-Identifier: MIT
"""The table of op cases: one row per op and kind of operand.

A row gives the op, a NumPy reference in float64, the operands' shapes and where gradients go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ops
from . import cases_attention, cases_composed, cases_images, cases_rows
from . import references as r
from .case import Case

__all__ = ["CASES", "ELSEWHERE"]


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

    def row(ref: Callable[..., r.Array], *shapes: tuple[int, ...], **more: Any) -> Case:
        return Case(name, fn, ref, shapes, away_from=away, **more)

    return [
        row(lambda a, b: act(a) * b, (3, 5, 8), (3, 5, 8), variant="split"),
        row(lambda a, b: act(a) * b, (5, 17, 4), (4, 5, 17), view=(2, 0, 1), variant="split"),
        row(lambda a, b, s: a * act(b), (3, 5), (3, 5), extra=(True,), variant="split"),
        row(fused, (3, 5, 70), variant="fused"),
        row(fused, (6, 5, 4), view=(2, 1, 0), variant="fused"),
        row(swapped, (2, 1, 6), extra=(None, True), variant="fused-swapped"),
    ]


_swiglu_oai = [
    Case("swiglu_oai", ops.swiglu_oai, r.swiglu_oai, ((3, 5, 8), (3, 5, 8)), variant="split"),
    Case(
        "swiglu_oai",
        lambda g, u: ops.swiglu_oai(g, u, 1.2, 1.5),
        lambda g, u: r.swiglu_oai(g, u, 1.2, 1.5),
        ((5, 7, 4), (4, 5, 7)),
        view=(2, 0, 1),
        away_from=(-1.5, 1.5),
        variant="split",
    ),
    Case(
        "swiglu_oai",
        ops.swiglu_oai,
        lambda x: r.swiglu_oai(x[..., :35], x[..., 35:]),
        ((3, 5, 70),),
        variant="fused",
    ),
]
positive: dict[str, Any] = {"low": 0.3, "high": 3.0}
CASES: list[Case] = [
    *_unary("neg", np.negative),
    *_unary("abs", np.abs, away_from=(0,)),
    *_unary("sgn", np.sign, away_from=(0,)),
    *_unary("step", lambda x: (x > 0).astype(float), away_from=(0,)),
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
    *_unary("round", np.round, away_from=(-1.5, -0.5, 0.5, 1.5)),
    *_unary("trunc", np.trunc, away_from=(-2, -1, 0, 1, 2)),
    *_binary("add", np.add),
    *_binary("sub", np.subtract),
    *_binary("mul", np.multiply),
    *_binary("div", np.divide, **positive),
    Case("scale", ops.scale, lambda x, s, b: x * s + b, ((4, 3),), extra=(-1.5, 0.5)),
    Case("clamp", ops.clamp, np.clip, ((4, 9),), extra=(-1.0, 0.5), away_from=(-1.0, 0.5)),
    Case("pow", ops.pow, np.power, ((4, 3),), extra=(3,)),
    Case("pow", ops.pow, np.power, ((4, 3),), extra=(-2,), low=0.5),
    *(
        Case("pow", ops.pow, np.power, ((4, 3),), extra=(n,), low=0.5)
        for n in (0.7, 1.7, 6.5, -1.5, -66, -70.5)
    ),
    *(
        Case("pow", ops.pow, np.power, ((4, 3),), extra=(n,), low=-1.1, high=1.1, away_from=(0,))
        for n in (0, 65, 100, -3)
    ),
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
    Case("sum_sqr", ops.sum_sqr, lambda x: (x * x).sum(), ((5, 3, 7, 2),)),
    Case("sum_sqr", ops.sum_sqr, lambda x: (x * x).sum(), ((4, 5, 3),), view=(2, 0, 1)),
    Case("mean", ops.mean, np.mean, ((5, 3, 7),)),
    Case("mean", ops.mean, lambda x, a: x.mean(a), ((5, 3, 7),), extra=(-1,)),
    Case("argmax", ops.argmax, np.argmax, ((5, 33),), extra=(-1,), grad=()),
    Case(
        "top_k", ops.top_k, lambda x, k: (-x).argsort(-1)[..., :k], ((5, 33),), grad=(), extra=(3,)
    ),
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
    Case("mean_rows", ops.mean_rows, lambda x: x.mean(-1, keepdims=True), ((5, 3, 7, 2),)),
    Case(
        "mean_rows",
        ops.mean_rows,
        lambda x: x.mean(-1, keepdims=True),
        ((4, 5, 3),),
        view=(2, 0, 1),
    ),
    Case("solve_tri", ops.solve_tri, r.solve_tri, ((2, 3, 5, 5), (2, 3, 5, 4)), **positive),
    Case("solve_tri", ops.solve_tri, r.solve_tri, ((1, 1), (1, 1)), **positive),
    Case(
        "solve_tri", ops.solve_tri, r.solve_tri, ((4, 4, 3), (3, 4, 1)), view=(2, 0, 1), **positive
    ),
    Case("out_prod", ops.out_prod, r.out_prod, ((1, 2, 5, 4), (3, 4, 5, 7))),
    Case("out_prod", ops.out_prod, r.out_prod, ((4, 5), (5, 3)), view=(1, 0)),
    Case("linear", ops.linear, lambda x, w: x @ w.T, ((2, 3, 4), (5, 4)), variant="no-bias"),
    Case("l2_norm", ops.l2_norm, r.l2_norm, ((3, 1),), extra=(10.0,), variant="below-eps"),
    Case(
        "group_norm",
        ops.group_norm,
        r.group_norm,
        ((5, 3, 4, 2),),
        extra=(2, 1e-3),
        view=(3, 2, 1, 0),
    ),
    Case("rms_norm", ops.rms_norm, r.rms_norm, ((4, 5, 3),), extra=(1e-3,), view=(2, 0, 1)),
    Case(
        "clamp",
        ops.clamp,
        np.clip,
        ((9, 4),),
        extra=(-1.0, 0.5),
        away_from=(-1.0, 0.5),
        view=(1, 0),
    ),
    Case(
        "leaky_relu",
        ops.leaky_relu,
        lambda x, k: np.where(x > 0, x, k * x),
        ((4, 5),),
        extra=(0.3,),
        away_from=(0,),
        variant="slope",
    ),
    *_unary("xielu", r.xielu, low=-3, high=3, away_from=(0,)),
    Case(
        "xielu",
        ops.xielu,
        r.xielu,
        ((4, 9),),
        extra=(0.3, -0.4, 0.7, -0.5),
        away_from=(0, -0.5),
        variant="numbers",
    ),
    *_swiglu_oai,
    *cases_images.CASES,
    *cases_attention.CASES,
    *cases_rows.CASES,
    *cases_composed.CASES,
]
"""The cases of the table: an op, its operands, its NumPy reference."""

ELSEWHERE = {"cpy", "opt_step_adamw", "opt_step_sgd"}
"""The ops whose check needs stored state; each has a test of its own."""
