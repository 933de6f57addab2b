# SPDX-License-Identifier: MIT
"""Ops on each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..backend.dtypes import i32
from ..backend.library import lib
from ..checks import is_real, number
from ..errors import DTypeError
from ..tensors.on_demand import on_demand
from ..tensors.operators import HIGHER
from ..tensors.record import record, without_gradient
from ..tensors.tensor import Tensor
from ..tensors.truth import note_mask
from .operands import (
    as_tensor,
    broadcast,
    contiguous,
    copied,
    has_truth,
    need_float,
    need_tensor,
)
from .shape import broadcast_to

__all__ = [
    "abs",
    "add",
    "ceil",
    "clamp",
    "cos",
    "div",
    "either",
    "exp",
    "expm1",
    "floor",
    "log",
    "mul",
    "neg",
    "pow",
    "round",
    "scale",
    "sgn",
    "sin",
    "sqr",
    "sqrt",
    "step",
    "sub",
    "trunc",
    "unary",
]

# Above this the products' rounding errors exceed those of a logarithm.
_MOST_PRODUCTS = 64
_FLT_MIN = 2.0**-126
_HALVES_END = 2.0**23  # f32 has no fractions from here on
_FLT_MAX = (2.0 - 2.0**-23) * 2.0**127


def _has_wholes(a: Any, b: Any) -> bool:
    """Return True if one of two operands is an i32 tensor."""
    return (isinstance(a, Tensor) and a.dtype is i32) or (isinstance(b, Tensor) and b.dtype is i32)


def _of_wholes(who: str, a: Any, b: Any) -> Tensor:
    result: Tensor = HIGHER["whole_arithmetic"](who, a, b)
    return result


def _binary(who: str, fn: Callable[..., Any], a: Any, b: Any, swaps: bool) -> Tensor:
    like = a if isinstance(a, Tensor) else need_tensor(who, "a or b", b)
    a, b = as_tensor(who, "a", a, like), as_tensor(who, "b", b, like)
    if a.dtype is not b.dtype or not a.dtype.is_float:
        raise DTypeError(
            f"{who}: a and b must both be f32 (or both f16 or bf16);"
            f" got {a.dtype.name} and {b.dtype.name}; convert with .astype"
        )
    shape = broadcast(who, a=a.shape, b=b.shape)
    if swaps and a.shape != shape and b.shape == shape:
        a, b = b, a
    # ggml stretches the second operand only
    a = contiguous(a if a.shape == shape else broadcast_to(a, shape))
    return record(fn, [a, contiguous(b)], shape)


@on_demand
def add(a: Any, b: Any) -> Tensor:
    """a + b with NumPy's broadcasting; of two masks 1 where one of them is 1, as in PyTorch.

    Args:
        a, b: tensors of one dtype, or numbers; one of them a tensor. Whole numbers (i32) with
            decimal ones become f32, as in PyTorch; see `floor_divide` for their arithmetic.

    Raises:
        ShapeError: the shapes do not broadcast.
        DTypeError: the dtypes differ or are not floats.

    Source: ggml_add, ggml_scale_bias.

    Example:
        >>> add(ones((2, 3)), ones((3,))).shape
        (2, 3)
    """
    if _has_wholes(a, b):
        return _of_wholes("add", a, b)
    if has_truth(a) and has_truth(b):
        return either("add", a, b)
    if isinstance(a, Tensor) and is_real(b):
        return _scaled("add", "a", a, 1.0, number("add", "b", b, finite=False))
    if isinstance(b, Tensor) and is_real(a):
        return _scaled("add", "b", b, 1.0, number("add", "a", a, finite=False))
    return _binary("add", lib.ggml_add, a, b, True)


def either(who: str, a: Any, b: Any) -> Tensor:
    """Return the mask that is 1 where one of two masks is."""
    found = step(_binary(who, lib.ggml_add, a, b, True))
    note_mask(found.node)
    return found


@on_demand
def sub(a: Any, b: Any) -> Tensor:
    """a - b with NumPy's broadcasting; see `add`. Source: ggml_sub."""
    if _has_wholes(a, b):
        return _of_wholes("sub", a, b)
    if isinstance(a, Tensor) and is_real(b):
        return _scaled("sub", "a", a, 1.0, -number("sub", "b", b, finite=False))
    if isinstance(b, Tensor) and is_real(a):
        return _scaled("sub", "b", b, -1.0, number("sub", "a", a, finite=False))
    return _binary("sub", lib.ggml_sub, a, b, False)


@on_demand
def mul(a: Any, b: Any) -> Tensor:
    """a * b, element by element, with NumPy's broadcasting; see `add`. Source: ggml_mul."""
    if _has_wholes(a, b):
        return _of_wholes("mul", a, b)
    if isinstance(a, Tensor) and is_real(b):
        return _scaled("mul", "a", a, number("mul", "b", b, finite=False))
    if isinstance(b, Tensor) and is_real(a):
        return _scaled("mul", "b", b, number("mul", "a", a, finite=False))
    return _binary("mul", lib.ggml_mul, a, b, True)


@on_demand
def div(a: Any, b: Any) -> Tensor:
    """a / b with NumPy's broadcasting; see `add`. Source: ggml_div."""
    if _has_wholes(a, b):
        return _of_wholes("div", a, b)
    if isinstance(a, Tensor) and is_real(b):
        divisor = number("div", "b", b, finite=False)
        if divisor != 0 and math.isfinite(1.0 / divisor):
            return _scaled("div", "a", a, 1.0 / divisor)
    return _binary("div", lib.ggml_div, a, b, False)


def _scaled(who: str, name: str, x: Tensor, s: float, b: float = 0.0) -> Tensor:
    """x * s + b, under the name of the function that the user called."""
    need_float(who, name, x)
    return record(lib.ggml_scale_bias, [contiguous(x), s, b], x.shape)


@on_demand
def scale(x: Tensor, s: float, b: float = 0.0) -> Tensor:
    """x * s + b.

    Args:
        x: f32 tensor.
        s: factor.
        b: bias.

    Raises:
        DTypeError: x is not f32.

    Source: ggml_scale_bias.
    """
    numbers = number("scale", "s", s, finite=False), number("scale", "b", b, finite=False)
    return _scaled("scale", "x", x, *numbers)


@on_demand
def pow(x: Tensor, exponent: float) -> Tensor:
    """x to a constant power; NaN where x < 0 and the exponent has a fraction, as in NumPy.

    The gradient at 0 is its limit from above: 0 for exponents above 1, and infinite below. At
    an infinite x it is NaN for a fraction above 0 and for whole exponents above 64.

    Raises:
        TypeError: the exponent is not a number.
        ValueError: the exponent is NaN or infinite.
    """
    need_float("pow", "x", x)
    given: Any = exponent
    if isinstance(given, Tensor):
        raise TypeError(
            "pow: exponent must be a number; got a Tensor: of x above 0 use"
            " pg.exp(exponent * pg.log(x))"
        )
    n = number("pow", "exponent", given)
    if n == 0:
        return scale(clamp(x, -1.0, 1.0), 0.0, 1.0)
    if n == 0.5:
        return sqrt(x)
    if n == 1:
        return copied(x)
    if n.is_integer():
        if math.fabs(n) <= _MOST_PRODUCTS:
            # 1 / x first: the square's gradient at 0 would be 0 times infinity behind it.
            return _product(x if n > 0 else div(1.0, x), int(math.fabs(n)))
        sign = scale(step(neg(x)), -2.0, 1.0)
        result = _by_logarithm(mul(x, sign), n)
        return mul(result, sign) if n % 2 else result
    return _by_logarithm(x, n)


def _product(x: Tensor, n: int) -> Tensor:
    """x to the n by repeated squaring, n > 0."""
    result, square = None, x
    while n:
        if n & 1:
            result = square if result is None else mul(result, square)
        n >>= 1
        square = sqr(square) if n else square
    return result  # type: ignore[return-value]


def _by_logarithm(x: Tensor, n: float) -> Tensor:
    """x to the n as exp(n log x); NaN below 0."""
    n = min(max(n, -_FLT_MAX), _FLT_MAX)
    if n < 0:
        return exp(scale(log(x), n))
    # At 0 the logarithm's gradient would be 0 / 0: it gets another number there, and its result
    # a factor of 0. No gradient flows through sgn.
    other = sqr(sgn(x))  # 0 at 0, else 1
    zero = scale(other, -1.0, 1.0)
    base = add(x, scale(zero, _FLT_MIN))
    whole = int(n) if n <= _MOST_PRODUCTS else 0
    result = exp(scale(log(base), n - whole))
    if whole:  # fewer digits are lost
        result = mul(result, _product(base, whole))
    result = mul(result, other)
    if n > 1:
        return result
    # 0 with an infinite gradient at 0, and with none elsewhere.
    return add(result, sub(sqrt(add(mul(clamp(x, -1.0, 1.0), zero), other)), other))


def unary(who: str, fn: Callable[..., Any], x: Tensor) -> Tensor:
    """Record an op of one f32 operand."""
    return record(fn, [contiguous(need_float(who, "x", x))], x.shape)


@on_demand
def neg(x: Tensor) -> Tensor:
    """-x. Source: ggml_neg."""
    if isinstance(x, Tensor) and x.dtype is i32:
        return _of_wholes("sub", 0, x)
    return unary("neg", lib.ggml_neg, x)


@on_demand
def abs(x: Tensor) -> Tensor:
    """Absolute value; its gradient at 0 is 0. Source: ggml_abs."""
    return unary("abs", lib.ggml_abs, x)


@on_demand
def sgn(x: Tensor) -> Tensor:
    """-1, 0 or 1; its gradient is 0. Source: ggml_sgn."""
    return unary("sgn", lib.ggml_sgn, x)


@on_demand
def step(x: Tensor) -> Tensor:
    """1 where x > 0, else 0, but NaN for NaN; its gradient is 0. Source: ggml_step."""
    return unary("step", lib.ggml_step, x)


@on_demand
def sqr(x: Tensor) -> Tensor:
    """x². Source: ggml_sqr."""
    return unary("sqr", lib.ggml_sqr, x)


@on_demand
def sqrt(x: Tensor) -> Tensor:
    """Square root; NaN below 0. Source: ggml_sqrt."""
    return unary("sqrt", lib.ggml_sqrt, x)


@on_demand
def exp(x: Tensor) -> Tensor:
    """e to the x. Source: ggml_exp."""
    return unary("exp", lib.ggml_exp, x)


@on_demand
def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, also right near 0. Source: ggml_expm1."""
    return unary("expm1", lib.ggml_expm1, x)


@on_demand
def floor(x: Tensor) -> Tensor:
    """Largest whole number not above x; its gradient is 0. Source: ggml_floor."""
    return unary("floor", lib.ggml_floor, x)


@on_demand
def ceil(x: Tensor) -> Tensor:
    """Smallest whole number not below x; its gradient is 0. Source: ggml_ceil."""
    return unary("ceil", lib.ggml_ceil, x)


@on_demand
def round(x: Tensor) -> Tensor:
    """Nearest whole number, the even one for halves; its gradient is 0. Source: ggml_round."""
    away = unary("round", lib.ggml_round, x)  # halves away from 0
    size = abs(clamp(x, -_HALVES_END, _HALVES_END))
    # In f32, 2^23 and a fraction are rounded to a whole number, halves to the even one.
    even = add(add(size, _HALVES_END), -_HALVES_END)
    excess = sub(even, unary("round", lib.ggml_round, size))  # -1 or 0
    return add(away, mul(without_gradient(excess), sgn(x)))


@on_demand
def trunc(x: Tensor) -> Tensor:
    """x without its fraction; its gradient is 0. Source: ggml_trunc."""
    return unary("trunc", lib.ggml_trunc, x)


@on_demand
def log(x: Tensor) -> Tensor:
    """Natural logarithm. Source: ggml_log."""
    return unary("log", lib.ggml_log, x)


@on_demand
def sin(x: Tensor) -> Tensor:
    """Sine of radians. Source: ggml_sin."""
    return unary("sin", lib.ggml_sin, x)


@on_demand
def cos(x: Tensor) -> Tensor:
    """Cosine of radians. Source: ggml_cos."""
    return unary("cos", lib.ggml_cos, x)


@on_demand
def clamp(x: Tensor, lo: float, hi: float) -> Tensor:
    """x held between `lo` and `hi`.

    Raises:
        TypeError: lo or hi is not a number.
        ValueError: lo > hi.

    Source: ggml_clamp.
    """
    need_float("clamp", "x", x)
    least, most = number("clamp", "lo", lo, finite=False), number("clamp", "hi", hi, finite=False)
    if not least <= most:
        raise ValueError(f"clamp: lo must not exceed hi; got lo={least}, hi={most}")
    return record(lib.ggml_clamp, [contiguous(x), least, most], x.shape)
