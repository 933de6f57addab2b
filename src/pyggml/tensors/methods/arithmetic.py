# SPDX-License-Identifier: MIT
"""`Tensor`'s methods of arithmetic and reductions, under PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ...absent import absent
from ...errors import composed
from ..operators import HIGHER, signatures_told
from .named import NamedMethods

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Methods"]

Number = float  # `float` and `int` are methods here
Whole = int
Dims = int | Sequence[int] | None

_INF = math.inf


@signatures_told
class Methods(NamedMethods):
    """The methods that `Tensor` passes on to `pyggml.ops`, where each is described."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        absent("x", name, dir(type(self)))

    def abs(self) -> Self:
        """Absolute values."""
        return HIGHER["abs"](self)

    def exp(self) -> Self:
        """Exponentials."""
        return HIGHER["exp"](self)

    def exp2(self) -> Self:
        """Powers of 2."""
        return HIGHER["exp2"](self)

    def expm1(self) -> Self:
        """Exponentials less 1."""
        return HIGHER["expm1"](self)

    def log(self) -> Self:
        """Natural logarithms."""
        return HIGHER["log"](self)

    def log2(self) -> Self:
        """Logarithms to the base of 2."""
        return HIGHER["log2"](self)

    def log10(self) -> Self:
        """Logarithms to the base of 10."""
        return HIGHER["log10"](self)

    def sqrt(self) -> Self:
        """Square roots."""
        return HIGHER["sqrt"](self)

    def rsqrt(self) -> Self:
        """1 divided by square roots."""
        return HIGHER["rsqrt"](self)

    def reciprocal(self) -> Self:
        """1 divided by each element."""
        return HIGHER["reciprocal"](self)

    @composed
    def square(self) -> Self:
        """Squares."""
        return HIGHER["sqr"](self)

    def sin(self) -> Self:
        """Sines."""
        return HIGHER["sin"](self)

    def cos(self) -> Self:
        """Cosines."""
        return HIGHER["cos"](self)

    def tan(self) -> Self:
        """Tangents."""
        return HIGHER["tan"](self)

    def tanh(self) -> Self:
        """Hyperbolic tangents."""
        return HIGHER["tanh"](self)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x))."""
        return HIGHER["sigmoid"](self)

    def relu(self) -> Self:
        """0 for what is below it."""
        return HIGHER["relu"](self)

    def floor(self) -> Self:
        """The next whole numbers below."""
        return HIGHER["floor"](self)

    def ceil(self) -> Self:
        """The next whole numbers above."""
        return HIGHER["ceil"](self)

    def round(self) -> Self:
        """The nearest whole numbers; of two, the even one."""
        return HIGHER["round"](self)

    def trunc(self) -> Self:
        """The next whole numbers towards 0."""
        return HIGHER["trunc"](self)

    def frac(self) -> Self:
        """The part behind the point."""
        return HIGHER["frac"](self)

    @composed
    def sign(self) -> Self:
        """-1, 0 or 1."""
        return HIGHER["sgn"](self)

    def neg(self) -> Self:
        """-x."""
        return HIGHER["neg"](self)

    def add(self, other: Any) -> Self:
        """x + other."""
        return HIGHER["add"](self, other)

    def sub(self, other: Any) -> Self:
        """x - other."""
        return HIGHER["sub"](self, other)

    def mul(self, other: Any) -> Self:
        """x * other."""
        return HIGHER["mul"](self, other)

    def div(self, other: Any) -> Self:
        """x / other."""
        return HIGHER["div"](self, other)

    def floor_divide(self, other: Any) -> Self:
        """x // other, of whole numbers."""
        return HIGHER["floor_divide"](self, other)

    def remainder(self, other: Any) -> Self:
        """x % other, of whole numbers."""
        return HIGHER["remainder"](self, other)

    def pow(self, exponent: Number) -> Self:
        """x to a constant power."""
        return HIGHER["pow"](self, exponent)

    def clamp(self, min: Number | None = None, max: Number | None = None) -> Self:
        """x held between two numbers; None is no limit."""
        lo = -_INF if min is None else min
        return HIGHER["clamp"](self, lo, _INF if max is None else max)

    @composed
    def clip(self, min: Number | None = None, max: Number | None = None) -> Self:
        """x held between two numbers, as `clamp`."""
        return self.clamp(min, max)

    @composed
    def clamp_min(self, min: Number) -> Self:
        """x, but at least a number."""
        return self.clamp(min=min)

    @composed
    def clamp_max(self, max: Number) -> Self:
        """x, but at most a number."""
        return self.clamp(max=max)

    def lerp(self, end: Any, weight: Any) -> Self:
        """x + weight · (end - x)."""
        return HIGHER["lerp"](self, end, weight)

    def maximum(self, other: Any) -> Self:
        """The larger of two, element by element."""
        return HIGHER["maximum"](self, other)

    def minimum(self, other: Any) -> Self:
        """The smaller of two, element by element."""
        return HIGHER["minimum"](self, other)

    @composed
    def where(self, mask: Any, other: Any) -> Self:
        """x where a mask is 1, other where it is 0."""
        return HIGHER["where"](mask, self, other)

    def masked_fill(self, mask: Any, value: Number) -> Self:
        """A number where a mask is 1, x elsewhere."""
        return HIGHER["masked_fill"](self, mask, value)

    def tril(self, diagonal: Whole = 0) -> Self:
        """Lower triangles of matrices."""
        return HIGHER["tril"](self, diagonal)

    def triu(self, diagonal: Whole = 0) -> Self:
        """Upper triangles of matrices."""
        return HIGHER["triu"](self, diagonal)

    def eq(self, other: Any) -> Self:
        """1 where equal, else 0."""
        return HIGHER["eq"](self, other)

    def ne(self, other: Any) -> Self:
        """1 where not equal, else 0."""
        return HIGHER["ne"](self, other)

    def lt(self, other: Any) -> Self:
        """1 where below, else 0."""
        return HIGHER["lt"](self, other)

    def le(self, other: Any) -> Self:
        """1 where not above, else 0."""
        return HIGHER["le"](self, other)

    def gt(self, other: Any) -> Self:
        """1 where above, else 0."""
        return HIGHER["gt"](self, other)

    def ge(self, other: Any) -> Self:
        """1 where not below, else 0."""
        return HIGHER["ge"](self, other)

    def isnan(self) -> Self:
        """1 where NaN, else 0."""
        return HIGHER["isnan"](self)

    def isinf(self) -> Self:
        """1 where infinite, else 0."""
        return HIGHER["isinf"](self)

    def isfinite(self) -> Self:
        """1 where neither infinite nor NaN, else 0."""
        return HIGHER["isfinite"](self)

    def sum(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Sum over axes, or over all elements."""
        return HIGHER["sum"](self, dim, keepdim)

    def mean(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """Mean over axes, or over all elements."""
        return HIGHER["mean"](self, dim, keepdim)

    def var(
        self,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        correction: Number = 1.0,
        unbiased: bool | None = None,
    ) -> Self:
        """Variance over axes, or over all elements."""
        return HIGHER["var"](self, dim, keepdim, correction=correction, unbiased=unbiased)

    def std(
        self,
        dim: Dims = None,
        keepdim: bool = False,
        *,
        correction: Number = 1.0,
        unbiased: bool | None = None,
    ) -> Self:
        """Standard deviation over axes, or over all elements."""
        return HIGHER["std"](self, dim, keepdim, correction=correction, unbiased=unbiased)

    def norm(self, p: Number = 2.0, dim: Dims = None, keepdim: bool = False) -> Self:
        """Norm of the elements along axes, or of all."""
        return HIGHER["norm"](self, p, dim, keepdim)

    def prod(self, dim: Whole | None = None, keepdim: bool = False) -> Self:
        """Product along an axis, or of all elements."""
        return HIGHER["prod"](self, dim, keepdim)

    def amax(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """The largest elements over axes."""
        return HIGHER["amax"](self, dim, keepdim)

    def amin(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """The smallest elements over axes."""
        return HIGHER["amin"](self, dim, keepdim)

    def max(self, dim: Whole | None = None, keepdim: bool = False) -> Any:
        """The largest element; along an axis, the largest ones and their places."""
        return HIGHER["max"](self, dim, keepdim)

    def min(self, dim: Whole | None = None, keepdim: bool = False) -> Any:
        """The smallest element; along an axis, the smallest ones and their places."""
        return HIGHER["min"](self, dim, keepdim)

    def argmax(self, dim: Whole | None = None, keepdim: bool = False) -> Self:
        """The place of the largest element, along an axis or of all."""
        return HIGHER["argmax"](self, dim, keepdim)

    def argmin(self, dim: Whole | None = None, keepdim: bool = False) -> Self:
        """The place of the smallest element, along an axis or of all."""
        return HIGHER["argmin"](self, dim, keepdim)

    def all(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """1 where no element along axes is 0, else 0."""
        return HIGHER["all"](self, dim, keepdim)

    def any(self, dim: Dims = None, keepdim: bool = False) -> Self:
        """1 where an element along axes is not 0, else 0."""
        return HIGHER["any"](self, dim, keepdim)

    def softmax(self, dim: Whole = -1) -> Self:
        """exp(x) divided by its sum along an axis."""
        return HIGHER["softmax"](self, dim)

    def log_softmax(self, dim: Whole = -1) -> Self:
        """Logarithm of the softmax along an axis."""
        return HIGHER["log_softmax"](self, dim)

    def logsumexp(self, dim: Whole = -1, keepdim: bool = False) -> Self:
        """Logarithm of the sum of exp(x) along an axis."""
        return HIGHER["logsumexp"](self, dim, keepdim)

    def topk(self, k: Whole, dim: Whole = -1, largest: bool = True) -> tuple[Self, Self]:
        """The k largest elements of each row and their places."""
        return HIGHER["topk"](self, k, dim, largest)
