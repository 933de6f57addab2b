# SPDX-License-Identifier: MIT
"""`Tensor`'s methods that others are made of, under PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...checks import instance
from ..operators import HIGHER, Operators, signatures_told
from .layout import LayoutMethods

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["NamedMethods"]

Number = float  # `float` and `int` are methods here
Whole = int


def _tensor(who: str, other: Any) -> Any:
    return instance(who, "other", other, Operators, "use pg.tensor(other)")


@signatures_told
class NamedMethods(LayoutMethods):
    """The methods that `pyggml.ops.named` describes, and those that ask for another's shape."""

    __slots__ = ()

    def expand_as(self, other: Any) -> Self:
        """Stretch extents of one to the shape of another tensor."""
        return HIGHER["broadcast_to"](self, _tensor("expand_as", other).shape)

    def reshape_as(self, other: Any) -> Self:
        """Return the elements in the shape of another tensor."""
        return HIGHER["reshape"](self, _tensor("reshape_as", other).shape)

    def view_as(self, other: Any) -> Self:
        """Return the elements in the shape of another tensor."""
        return HIGHER["reshape"](self, _tensor("view_as", other).shape)

    def type_as(self, other: Any) -> Self:
        """Return the numbers in the dtype of another tensor."""
        return HIGHER["convert"](self, _tensor("type_as", other).dtype)

    def ravel(self) -> Self:
        """Return the elements as one axis."""
        return HIGHER["ravel"](self)

    def swapaxes(self, axis0: Whole, axis1: Whole) -> Self:
        """Swap two axes."""
        return HIGHER["swapaxes"](self, axis0, axis1)

    def swapdims(self, dim0: Whole, dim1: Whole) -> Self:
        """Swap two axes."""
        return HIGHER["swapdims"](self, dim0, dim1)

    def movedim(self, source: Any, destination: Any) -> Self:
        """Move axes to other places."""
        return HIGHER["movedim"](self, source, destination)

    def moveaxis(self, source: Any, destination: Any) -> Self:
        """Move axes to other places."""
        return HIGHER["moveaxis"](self, source, destination)

    def select(self, dim: Whole, index: Whole) -> Self:
        """The elements of an axis with one number, without that axis."""
        return HIGHER["select"](self, dim, index)

    def repeat_interleave(self, repeats: Any, dim: Whole | None = None) -> Self:
        """Repeat each element of an axis, one beside the other."""
        return HIGHER["repeat_interleave"](self, repeats, dim)

    def sort(self, dim: Whole = -1, descending: bool = False) -> tuple[Self, Self]:
        """The elements of an axis in order, and their places."""
        return HIGHER["sort"](self, dim, descending)

    def argsort(self, dim: Whole = -1, descending: bool = False) -> Self:
        """The places of the elements of an axis in order."""
        return HIGHER["argsort"](self, dim, descending)

    def diagonal(self, offset: Whole = 0, dim1: Whole = 0, dim2: Whole = 1) -> Self:
        """The diagonals of matrices, as the last axis."""
        return HIGHER["diagonal"](self, offset, dim1, dim2)

    def trace(self) -> Self:
        """The sum of the diagonal of a matrix."""
        return HIGHER["trace"](self)

    def inner(self, other: Any) -> Self:
        """Sums of products along the last axes."""
        return HIGHER["inner"](self, other)

    def addmm(self, a: Any, b: Any, *, beta: Number = 1.0, alpha: Number = 1.0) -> Self:
        """beta · x + alpha · a @ b, of matrices."""
        return HIGHER["addmm"](self, a, b, beta=beta, alpha=alpha)

    def baddbmm(self, a: Any, b: Any, *, beta: Number = 1.0, alpha: Number = 1.0) -> Self:
        """beta · x + alpha · a @ b, of batches of matrices."""
        return HIGHER["baddbmm"](self, a, b, beta=beta, alpha=alpha)

    def addcmul(self, a: Any, b: Any, *, value: Number = 1.0) -> Self:
        """x + value · a · b."""
        return HIGHER["addcmul"](self, a, b, value=value)

    def addcdiv(self, a: Any, b: Any, *, value: Number = 1.0) -> Self:
        """x + value · a / b."""
        return HIGHER["addcdiv"](self, a, b, value=value)

    def log1p(self) -> Self:
        """log(1 + x), exact near 0."""
        return HIGHER["log1p"](self)

    def sinh(self) -> Self:
        """Hyperbolic sines."""
        return HIGHER["sinh"](self)

    def cosh(self) -> Self:
        """Hyperbolic cosines."""
        return HIGHER["cosh"](self)

    def nan_to_num(
        self, nan: Number = 0.0, posinf: Number | None = None, neginf: Number | None = None
    ) -> Self:
        """Numbers in place of NaN and infinities."""
        return HIGHER["nan_to_num"](self, nan, posinf, neginf)

    def nansum(self, dim: Any = None, keepdim: bool = False) -> Self:
        """Sum of what is not NaN."""
        return HIGHER["nansum"](self, dim, keepdim)

    def nanmean(self, dim: Any = None, keepdim: bool = False) -> Self:
        """Mean of what is not NaN."""
        return HIGHER["nanmean"](self, dim, keepdim)

    def count_nonzero(self, dim: Any = None) -> Self:
        """Number of elements that are not 0."""
        return HIGHER["count_nonzero"](self, dim)

    def logical_and(self, other: Any) -> Self:
        """1 where both are not 0, else 0."""
        return HIGHER["logical_and"](self, other)

    def logical_or(self, other: Any) -> Self:
        """1 where one of the two is not 0, else 0."""
        return HIGHER["logical_or"](self, other)

    def logical_not(self) -> Self:
        """1 where x is 0, else 0."""
        return HIGHER["logical_not"](self)

    def logical_xor(self, other: Any) -> Self:
        """1 where one of the two is 0 and the other is not, else 0."""
        return HIGHER["logical_xor"](self, other)

    def isclose(
        self, other: Any, rtol: Number = 1e-5, atol: Number = 1e-8, equal_nan: bool = False
    ) -> Self:
        """1 where the two differ by at most atol + rtol · |other|, else 0."""
        return HIGHER["isclose"](self, other, rtol, atol, equal_nan)

    def allclose(
        self, other: Any, rtol: Number = 1e-5, atol: Number = 1e-8, equal_nan: bool = False
    ) -> bool:
        """True if all elements are close; the numbers are computed now."""
        return bool(HIGHER["allclose"](self, other, rtol, atol, equal_nan))

    def equal(self, other: Any) -> bool:
        """True if both have one shape and the same numbers, which are computed now."""
        return bool(HIGHER["equal"](self, other))
