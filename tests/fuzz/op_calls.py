# SPDX-License-Identifier: MIT
"""Random calls of `pyggml.ops`: rows of the case table, and each op by its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from draw import Draw, Pair, close, numbers, rough

import pyggml as pg
from pyggml import ops
from pyggml.nn import functional
from pyggml.nn.functional import convolution, operations, pooling
from pyggml.testing import CASES
from pyggml.testing.cases_composed import CASES as COMPOSED

# ggml decides these by comparisons, which NaN fails: relu(NaN) is 0, as max(x, 0) is in C.
COMPARING = {
    *("argmax", "clamp", "elu", "hardsigmoid", "hardswish", "leaky_relu", "pool_1d", "pool_2d"),
    *("reglu", "relu", "sgn", "step", "swiglu_oai", "top_k", "xielu"),
    *(case.name for case in COMPOSED),  # masks multiply what is not taken
}
Made = tuple[list[Any], Callable[[], Any] | None]


def table_call(d: Draw) -> tuple[str, Callable[[], pg.Tensor], Callable[..., Any]]:
    """A row of the case table on operands of its shapes, or near them."""
    case = d.pick(*CASES)
    pairs: list[Pair] = []
    for s in case.shapes:
        alike = [pair for pair in pairs if pair[1].shape == s]
        if alike and d.chance(0.15):
            pairs.append(d.pick(*alike))  # one tensor for two operands
        else:
            pairs.append(d.tensor(d.near(s), low=case.low, high=case.high))
    tensors, values = [t for t, _ in pairs], [x for _, x in pairs]
    extra = case.extra
    if extra and d.chance(0.25):
        which = d.int(0, len(extra) - 1)
        extra = (*extra[:which], d.odd(), *extra[which + 1 :])

    def check(got: np.ndarray) -> bool | None:
        if extra is not case.extra or (rough(*values) and case.name in COMPARING):
            return None
        if any((np.abs(x) > 1e15).any() for x in values):
            return None  # f32 has no squares of these
        if tuple(x.shape for x in values) != case.shapes and case.name not in ANY_SHAPE:
            return None  # the reference is written for the table's shapes; ggml takes more
        with np.errstate(all="ignore"):
            want = np.asarray(case.ref(*values, *extra), np.float64)
        if want.shape != got.shape:
            return None if rough(*values) else False
        if case.name == "top_k":  # equal numbers have no order
            got, want = (np.take_along_axis(values[0], x.astype(int), -1) for x in (got, want))
        exact = all(t.dtype.name == "f32" for t in tensors)
        return close(got, want, exact)

    return f"{case.name} {tensors} {extra!r}", lambda: case.fn(*tensors, *extra), check


# References that hold for operands of every shape that the op takes.
ANY_SHAPE = {
    *("abs", "add", "ceil", "cos", "cumsum", "div", "elu", "exp", "expm1", "floor", "gelu"),
    *("gelu_erf", "gelu_quick", "hardsigmoid", "hardswish", "leaky_relu", "log", "matmul", "mean"),
    *("mul", "mul_mat", "neg", "norm", "relu", "rms_norm", "round", "scale", "sgn", "sigmoid"),
    *("silu", "sin", "softplus", "sqr", "sqrt", "step", "sub", "sum", "sum_rows", "tanh", "trunc"),
}


def _attention(d: Draw) -> list[Any]:
    b, t, s, g, w = (d.pick(1, 2, 3, 8) for _ in range(5))
    h = g * d.pick(1, 2)
    k = (b, g, s, w)
    mask = d.pick(None, d.tensor((t, s), "f32")[0], d.tensor((t, s), "f16")[0])
    tensors = [d.tensor(d.near(x, 0.1), "f32")[0] for x in ((b, h, t, w), k, k)]
    return [*tensors, mask, d.pick(None, 0.5), d.pick(0.0, 8.0), d.pick(0.0, 5.0)]


def _rope(d: Draw) -> list[Any]:
    shape = d.near((d.pick(1, 2), d.pick(1, 5), 3, d.pick(2, 8, 10)), 0.1)
    positions = d.ids((shape[-3] if len(shape) > 2 else 1,), 2**20)[0]
    args = [d.tensor(shape, "f32")[0], positions, d.pick(None, None, 2, 4)]
    return [*args, d.pick("neox", "normal"), d.pick(1e4, 1.0, 1e-3)]


def _cross_entropy(d: Draw) -> list[Any]:
    n, v = d.pick(1, 4, 33), d.pick(1, 2, 7, 64)
    return [d.tensor((n, v), "f32", -9, 9)[0], d.ids((n,), v)[0], d.pick(-100, -100, 0, 1)]


def _experts(d: Draw) -> list[Any]:
    e, m, c, t, k = (d.pick(1, 2, 3, 5, 32) for _ in range(5))
    x = (t, d.pick(1, k), c)
    return [d.tensor((e, m, c))[0], d.tensor(x, "f32")[0], d.ids((t, k), e)[0]]


def _add_id(d: Draw) -> list[Any]:
    t, k, c, e = (d.pick(1, 2, 3, 5) for _ in range(4))
    return [d.tensor((t, k, c), "f32")[0], d.tensor((e, c), "f32")[0], d.ids((t, k), e)[0]]


def _rows(d: Draw) -> list[Any]:
    v, c = d.pick(1, 3, 9), d.pick(1, 2, 32)
    return [d.tensor((v, c))[0], d.ids(d.near((d.pick(1, 2, 5),)), v)[0]]


def _set_own_rows(d: Draw) -> Made:
    """Rows of the tensor that they are written to."""
    n, c = d.pick(1, 3, 9, 64), d.pick(1, 2, 32)
    t = pg.tensor(d.array((n, c)))
    before = numbers(t)
    m = d.int(1, n)
    start = d.int(0, n - m)
    at = d.rng.permutation(n)[:m]
    after = before.copy()
    after[at] = before[start : start + m]
    return [t, t[start : start + m], pg.tensor(at.astype(np.int32))], lambda: after


def _set_rows(d: Draw) -> Made:
    if d.chance(0.3):
        return _set_own_rows(d)
    n, c, m = d.pick(1, 3, 9), d.pick(1, 2, 32), d.pick(1, 2, 3)
    dst = pg.tensor(d.array((n, c)), d.pick("f32", "f32", "f16", "bf16", "q8_0"))
    before = dst.numpy().astype(np.float64)
    src, values = d.tensor((m, c), "f32")
    rows, at = d.ids((m,), n)

    def want() -> Any:
        if len(set(at.tolist())) < m:
            return None  # which of two rows comes last is not said
        before[at] = values
        return before

    return [dst, src, rows], want


def _cpy_within(d: Draw) -> Made:
    """Source and destination are views of one tensor that may overlap."""
    shape = d.shape(1, 3)
    ends = [2 if d.chance(0.5) else 0 for _ in shape]
    whole = tuple(n + end for n, end in zip(shape, ends, strict=True))
    t = pg.tensor(d.array(whole), d.pick("f32", "f16", "bf16"))
    values = numbers(t)
    cuts = []
    for _ in range(2):
        starts = [d.int(0, end) for end in ends]
        cuts.append(tuple(slice(s, s + n) for s, n in zip(starts, shape, strict=True)))
    src, dst, wanted = t[cuts[0]], t[cuts[1]], values[cuts[0]]
    axes = d.random.sample(range(len(shape)), len(shape))
    if tuple(shape[a] for a in axes) == shape:
        src, wanted = src.permute(*axes), wanted.transpose(axes)
    return [src, dst], lambda: wanted


def _cpy(d: Draw) -> Made:
    if d.chance(0.4):
        return _cpy_within(d)
    shape = d.shape(1, 3)
    src, values = d.tensor(shape, d.pick("f32", "f16", "i32"))
    dst = pg.tensor(np.zeros(d.near(shape, 0.1)), d.pick("f32", "f32", "f16", "bf16"))
    if d.chance(0.3) and dst.ndim > 1:
        dst = dst.transpose(0, 1)
    return [src, dst], lambda: np.asarray(values)


def _gradient(d: Draw, param: pg.Tensor) -> Pair:
    """A gradient: now and then the parameter itself, or a view of it."""
    if d.chance(0.8):
        return d.tensor(d.near(param.shape, 0.1), "f32")
    axes = d.random.sample(range(param.ndim), param.ndim)
    if tuple(param.shape[a] for a in axes) != param.shape:
        return param, numbers(param)
    return param.permute(*axes), numbers(param).transpose(axes)


def _sgd(d: Draw) -> Made:
    shape = d.shape(0, 3)
    w = d.array(shape)
    param = pg.tensor(w, requires_grad=d.chance(0.8))
    grad, g = _gradient(d, param)
    hyper = pg.tensor(np.array([0.1, 0.01], np.float32)[: d.pick(2, 2, 2, 1)])
    start = w.astype(np.float64)
    return [param, grad, hyper], (lambda: start * (1 - 0.1 * 0.01) - 0.1 * g)


def _adamw(d: Draw) -> Made:
    shape = d.shape(0, 3)
    w = d.array(shape)
    param = pg.tensor(w, requires_grad=d.chance(0.8))
    grad, g = _gradient(d, param)
    m, v = pg.zeros(d.near(shape, 0.05)), pg.zeros(d.near(shape, 0.05))
    shared = d.chance(0.1)
    if shared:
        m, v = d.pick((m, m), (param, v), (m, param), (param, param))
    hyper = pg.tensor(np.array([0.1, 0.9, 0.99, 1e-8, 0.01, 10.0, 100.0], np.float32))
    start = w.astype(np.float64)

    def want() -> Any:
        assert not shared, "states that share memory were accepted"
        with np.errstate(all="ignore"):
            # The moments are f32: the square of 1e30 is Inf there, and the step 0.
            square = np.square(np.asarray(g, np.float32)).astype(np.float64)
            return start * (1 - 0.1 * 0.01) - 0.1 * g / (np.sqrt(square) + 1e-8)

    return [param, grad, m, v, hyper], want


def _images(d: Draw, weight: Callable[[int, int, int], tuple[int, ...]]) -> list[Any]:
    n, c, o, k = (d.pick(1, 2, 3) for _ in range(4))
    x = (n, c, d.pick(1, 3, 6, 9), d.pick(1, 4, 7))
    options = [d.pick(1, 1, 2, (2, 1), (1, 3), 5) for _ in range(d.int(0, 3))]
    return [d.tensor(d.near(x, 0.1), "f32")[0], d.tensor(weight(c, o, k), "f32")[0], *options]


# Arguments that a call by the bare signature would hardly ever find.
RECIPES: dict[str, Callable[[Draw], list[Any] | Made]] = {
    "flash_attn_ext": _attention,
    "rope": _rope,
    "cross_entropy": _cross_entropy,
    "cross_entropy_rows": _cross_entropy,
    "mul_mat_id": _experts,
    "add_id": _add_id,
    "get_rows": _rows,
    "set_rows": _set_rows,
    "cpy": _cpy,
    "opt_step_sgd": _sgd,
    "opt_step_adamw": _adamw,
    "conv_2d": lambda d: _images(d, lambda c, o, k: (o, c, k, k)),
    "conv_2d_direct": lambda d: _images(d, lambda c, o, k: (o, c, k, k)),
    "conv_2d_dw": lambda d: _images(d, lambda c, o, k: (c, 1, k, k)),
    "conv_transpose_2d": lambda d: _images(d, lambda c, o, k: (c, o, k, k)),
}
TEXTS = (
    *("zeros", "circular", "nearest", "bilinear", "bicubic", "lower", "strictly_upper", "max"),
    *("avg", "mean", "sum", "none", "neox", "normal", "f16", "f32", "bf16", "i32"),
)


def argument(d: Draw, parameter: inspect.Parameter, shape: tuple[int, ...]) -> Any:
    """Something of the annotated kind, most of the time."""
    if d.chance(0.04):
        return d.odd()
    kind = str(parameter.annotation)
    if parameter.default is not inspect.Parameter.empty and d.chance(0.5):
        return parameter.default
    if kind.startswith("Sequence[Tensor]"):
        return [d.tensor(d.near(shape, 0.1))[0] for _ in range(d.int(0, 3))]
    if kind.startswith("Tensor"):
        return d.tensor(d.near(shape, 0.15))[0]
    if kind.startswith("Sequence"):
        if d.chance(0.3):
            return [(d.int(0, 2), d.int(0, 2)) for _ in shape]
        return d.random.sample(range(len(shape)), len(shape))
    if kind.startswith("int"):
        return d.pick(0, 1, 2, 3, -1, d.int(-5, 40))
    if kind.startswith("float"):
        return d.pick(0.0, 0.5, 1.0, -1.5, 1e-5, d.random.uniform(-3, 3))
    if kind.startswith("bool"):
        return d.chance(0.5)
    if kind.startswith(("str", "DType")):
        return d.pick(*TEXTS)
    if kind.startswith("tuple"):
        return (d.int(1, 9), d.int(1, 9))
    return d.pick(d.near(shape, 0.3), d.int(-1, 8), (d.int(1, 3), d.int(1, 3)), d.odd())


OF_FUNCTIONAL = [
    name
    for module in (operations, convolution, pooling)
    for name in module.__all__
    if name in functional.__all__
]


def first(made: Any) -> Any:
    """The tensor, or the first of several."""
    return made[0] if isinstance(made, (list, tuple)) else made


def signature_call(d: Draw) -> tuple[str, Callable[[], Any], Callable[..., Any]]:
    """An op on what its signature, or its recipe, asks for; then something may be swapped."""
    name = d.pick(*ops.__all__, *OF_FUNCTIONAL)
    fn = getattr(functional if name in OF_FUNCTIONAL else ops, name)
    want: Callable[[], Any] | None = None
    if name in RECIPES and d.chance(0.9):
        made = RECIPES[name](d)
        args, want = made if isinstance(made, tuple) else (made, None)
        if args and d.chance(0.3):
            i = d.int(0, len(args) - 1)
            if isinstance(args[i], pg.Tensor) and d.chance(0.7):
                args[i] = d.tensor(d.near(args[i].shape, 0.6))[0]
            else:
                args[i] = d.odd()
            want = None
    else:
        shape = d.shape()
        parameters = inspect.signature(fn).parameters.values()
        args = [argument(d, p, shape) for p in parameters]

    def check(got: np.ndarray) -> bool | None:
        expected = None if want is None else want()
        if expected is None:
            return None
        exact = all(t.dtype.name == "f32" for t in args if isinstance(t, pg.Tensor))
        return close(got, np.asarray(expected, np.float64), exact)

    return f"{name} {args!r}", lambda: first(fn(*args)), check


def drawn() -> list[str]:
    return list(ops.__all__)
