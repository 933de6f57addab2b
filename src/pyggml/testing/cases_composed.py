# SPDX-License-Identifier: MIT
"""Cases of the functions that are put together from ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from . import references as r
from .case import Case

__all__ = ["CASES"]

_X = (5, 3, 7)
_PICKED = np.array([[2, 0], [1, 1], [0, 2]], np.int32)
_MASK = np.array([[True, False, True, True], [False, False, True, False], [True] * 4])
_positive: dict[str, Any] = {"low": 0.3, "high": 3.0}


def _where(a: r.Array, b: r.Array = 2.5) -> r.Array:
    return np.where(_MASK, a, b)


def _lse(x: r.Array, axis: int) -> r.Array:
    return np.log(np.exp(x).sum(axis, keepdims=True))


def _softmax(x: r.Array, axis: int) -> r.Array:
    shares = np.exp(x - x.max(axis, keepdims=True))
    return shares / shares.sum(axis, keepdims=True)


def _case(name: str, ref: Any, *shapes: tuple[int, ...], **more: Any) -> Case:
    return Case(name, getattr(ops, name), ref, shapes, **more)


def _of_truth(name: str, *shapes: tuple[int, ...]) -> Case:
    """A function of whole numbers' truth, of which some are 0."""

    def fn(*operands: Any) -> Any:
        return getattr(ops, name)(*map(ops.trunc, operands))

    def ref(*operands: Any) -> Any:
        return 1.0 * getattr(np, name)(*map(np.trunc, operands))

    return Case(name, fn, ref, shapes, grad=())


def _first(name: str, *arguments: Any, at: int = 0) -> Any:
    """One of the results of a function that has several."""
    return lambda x: getattr(ops, name)(x, *arguments)[at]


def _whole(name: str, ref: Any) -> Case:
    """Arithmetic of whole numbers, which a graph computes from decimal ones without a fraction."""

    def fn(x: Any, divisor: int) -> Any:
        return getattr(ops, name)(ops.cast(x, "i32"), divisor)

    return Case(name, fn, lambda x, d: ref(np.trunc(x), d), (_X,), -90, 90, grad=(), extra=(7,))


_COMPARISONS: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_compared = [
    case
    for name, ref in _COMPARISONS.items()
    for case in (
        _case(name, ref, (4, 3), (3,), grad=()),
        _case(name, ref, (4, 3), extra=(0.5,), grad=()),
    )
]
_reduced = [
    _case(name, lambda x, a, k, ref=ref: ref(x, axis=a, keepdims=k), _X, extra=(dims, keep))
    for name, ref in (("amax", np.max), ("amin", np.min))
    for dims, keep in ((None, False), (1, True), ((0, 2), False), (-1, False))
]

CASES: list[Case] = [
    *_compared,
    *_reduced,
    *(
        _case(name, getattr(np, name), (3, 4), grad=()) for name in ("isnan", "isinf", "isfinite")
    ),
    _of_truth("logical_not", (3, 4)),
    _of_truth("logical_and", (3, 4), (3, 4)),
    _of_truth("logical_or", (3, 4), (3, 4)),
    Case("where", lambda a, b: ops.where(_MASK, a, b), _where,
         ((3, 4), (4,))),
    Case("where", lambda a: ops.where(_MASK, a, 2.5), _where,
         ((2, 3, 4),)),
    Case("masked_fill", lambda x: ops.masked_fill(x, _MASK, -1e3),
         lambda x: np.where(_MASK, -1e3, x), ((2, 3, 4),)),
    _case("maximum", np.maximum, (3, 4), (4,)),
    _case("minimum", np.minimum, (3, 4), (4,)),
    _case("tril", np.tril, (2, 3, 5), extra=(1,)),
    _case("triu", np.triu, (2, 5, 3), extra=(-1,)),
    _case("reciprocal", np.reciprocal, (3, 4), **_positive),
    _case("rsqrt", lambda x: 1 / np.sqrt(x), (3, 4), **_positive),
    _case("log2", np.log2, (3, 4), **_positive),
    _case("log10", np.log10, (3, 4), **_positive),
    _case("exp2", np.exp2, (3, 4)),
    _case("tan", np.tan, (3, 4), low=-1, high=1),
    _case("frac", lambda x: x - np.trunc(x), (3, 4), away_from=(-2, -1, 0, 1, 2)),
    _case("relu6", lambda x: np.clip(x, 0, 6), (3, 4), low=-3, high=9, away_from=(0, 6)),
    _case("logsigmoid", lambda x: -np.log1p(np.exp(-x)), (3, 4), low=-6, high=6),
    _case("lerp", lambda a, b, w: a + w * (b - a), (3, 4), (4,), extra=(0.3,)),
    Case("cat", lambda a, b: ops.cat([a, b], 1), lambda a, b: np.concatenate([a, b], 1),
         ((2, 3, 4), (2, 1, 4))),
    Case("stack", lambda a, b: ops.stack([a, b], 1), lambda a, b: np.stack([a, b], 1),
         ((2, 4), (2, 4))),
    Case("split", _first("split", [1, 4], 1, at=1), lambda x: x[:, 1:], ((3, 5, 2),)),
    Case("chunk", _first("chunk", 2, -1, at=1), lambda x: x[..., 4:], (_X,)),
    Case("unbind", _first("unbind", 1, at=2), lambda x: x[:, 2], (_X,)),
    _case("narrow", lambda x, d, s, n: x[:, s : s + n], _X, extra=(1, 1, 2)),
    _case("squeeze", np.squeeze, (1, 3, 1, 2), extra=(0,)),
    _case("unsqueeze", np.expand_dims, (3, 4), extra=(-1,)),
    _case("flatten", lambda x, d: x.reshape(5, 21), _X, extra=(1,)),
    _case("unflatten", lambda x, d, s: x.reshape(2, 3, 4), (2, 12), extra=(1, (3, -1))),
    _case("tile", np.tile, (2, 3), extra=((2, 1, 3),)),
    _case("flip", np.flip, _X, extra=((0, 2),)),
    Case("getitem", lambda x: x[::-2, None, [0, 2, 0]],
         lambda x: x[::-2, None, [0, 2, 0]], (_X,), variant="numbers"),
    Case("getitem", lambda x: x[[0, 4, 4], [1, 1, 2]], lambda x: x[[0, 4, 4], [1, 1, 2]], (_X,),
         variant="pairs"),
    _case("index_select", lambda x, d, i: np.take(x, i, d), _X, extra=(1, [2, 0, 2])),
    _case("gather", lambda x, d, i: np.take_along_axis(x, i, d), (3, 4), extra=(1, _PICKED)),
    _case("gather", lambda x, d, i: np.take_along_axis(x, i, d), (4, 2), extra=(0, _PICKED)),
    Case("topk", _first("topk", 2), lambda x: np.sort(x, -1)[..., :-3:-1], (_X,)),
    Case("topk", _first("topk", 2, -1, False), lambda x: np.sort(x, -1)[..., :2], (_X,),
         variant="smallest"),
    _case("mm", np.matmul, (3, 4), (4, 5)),
    _case("bmm", np.matmul, (2, 3, 4), (2, 4, 5)),
    _case("mv", np.matmul, (3, 4), (4,)),
    _case("dot", np.dot, (7,), (7,)),
    _case("outer", np.outer, (3,), (4,)),
    *(
        Case("einsum", lambda *x, e=equation: ops.einsum(e, *x),
             lambda *x, e=equation: np.einsum(e, *x), shapes, variant=equation)
        for equation, shapes in (
            ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
            ("ij,kj->ki", ((3, 4), (5, 4))),
            ("bhid,bhjd->bhij", ((2, 3, 4, 5), (2, 3, 2, 5))),
            ("ijk->ki", ((2, 3, 4),)),
            ("i,ij,j", ((3,), (3, 4), (4,))),
            ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 2))),
        )
    ),
    Case("max", _first("max", 1), lambda x: x.max(1), (_X,)),
    Case("min", _first("min", -1, True), lambda x: x.min(-1, keepdims=True), (_X,)),
    _whole("floor_divide", np.floor_divide),
    _whole("remainder", np.remainder),
    _case("argmin", np.argmin, _X, extra=(1,), grad=()),
    _case("any", lambda x, d: 1.0 * np.any(x, d), (3, 4), extra=(1,), grad=()),
    _case("all", lambda x, d: 1.0 * np.all(x, d), (3, 4), extra=(0,), grad=()),
    _case("prod", np.prod, (3, 7), extra=(1,), **_positive),
    _case("prod", np.prod, (5,), **_positive),
    _case("var", lambda x, d: x.var(d, ddof=1), _X, extra=((0, 2),)),
    _case("std", lambda x, d: x.std(d, ddof=1), _X, extra=(1,)),
    *(
        _case("vector_norm", np.linalg.norm, (3, 6), extra=(p, 1), away_from=(0,),
              variant="inf" if p == np.inf else "")
        for p in (1, 2, 3, np.inf)
    ),
    _case("softmax", _softmax, _X, extra=(1,)),
    _case("log_softmax", lambda x, d: x - _lse(x, d), _X, extra=(0,)),
    _case("logsumexp", lambda x, d: _lse(x, d).squeeze(d), _X, extra=(-1,)),
]  # fmt: skip
