# SPDX-License-Identifier: MIT
"""`Tensor`'s operators and methods that are ops, and the table of functions from rows above."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..backend.dtypes import DType
from ..errors import shown

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["HIGHER", "Operators", "register"]

# The one way from this row to those above: ops, and `evaluate` and `backward` of graphs.
HIGHER: dict[str, Callable[..., Any]] = {}


def register(name: str, fn: Callable[..., Any]) -> None:
    """Give `Tensor` a function of a higher row; called where that is defined."""
    HIGHER[name] = fn


def _no_comparison(sign: str, other: object) -> NoReturn:
    value = "y.numpy()" if hasattr(other, "numpy") else "y"
    cure = (
        "compare the objects with `x is y`"
        if sign in ("==", "!=")
        else "use ops.step(x - y) in a graph, which is 1 where x > y"
    )
    raise TypeError(
        f"tensor: tensors have no {sign}; got a Tensor and {shown(other)}; read the values, "
        f"x.numpy() {sign} {value}, or {cure}"
    )


class Operators:
    """The operators and methods that `Tensor` passes on to `pyggml.ops`."""

    __slots__ = ()

    def __add__(self, other: Any) -> Self:
        return HIGHER["add"](self, other)

    def __radd__(self, other: Any) -> Self:
        return HIGHER["add"](other, self)

    def __sub__(self, other: Any) -> Self:
        return HIGHER["sub"](self, other)

    def __rsub__(self, other: Any) -> Self:
        return HIGHER["sub"](other, self)

    def __mul__(self, other: Any) -> Self:
        return HIGHER["mul"](self, other)

    def __rmul__(self, other: Any) -> Self:
        return HIGHER["mul"](other, self)

    def __truediv__(self, other: Any) -> Self:
        return HIGHER["div"](self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return HIGHER["div"](other, self)

    def __pow__(self, exponent: float) -> Self:
        return HIGHER["pow"](self, exponent)

    def __neg__(self) -> Self:
        return HIGHER["neg"](self)

    def __matmul__(self, other: Any) -> Self:
        return HIGHER["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Self:
        return HIGHER["matmul"](other, self)

    def __eq__(self, other: object) -> bool:
        return _no_comparison("==", other)

    def __ne__(self, other: object) -> bool:
        return _no_comparison("!=", other)

    def __lt__(self, other: Any) -> bool:
        return _no_comparison("<", other)

    def __le__(self, other: Any) -> bool:
        return _no_comparison("<=", other)

    def __gt__(self, other: Any) -> bool:
        return _no_comparison(">", other)

    def __ge__(self, other: Any) -> bool:
        return _no_comparison(">=", other)

    __hash__ = object.__hash__  # by identity: tensors are keys of dictionaries

    def __getitem__(self, index: Any) -> Self:
        return HIGHER["getitem"](self, index)

    def reshape(self, *shape: Any) -> Self:
        """Return the elements in another shape; one extent may be -1."""
        return HIGHER["reshape"](self, shape[0] if len(shape) == 1 else shape)

    def permute(self, *axes: int) -> Self:
        """Reorder the axes, as NumPy's transpose."""
        return HIGHER["permute"](self, axes)

    def transpose(self, a: int, b: int) -> Self:
        """Swap two axes."""
        return HIGHER["transpose"](self, a, b)

    @property
    def T(self) -> Self:
        """The last two axes swapped."""
        return HIGHER["transpose"](self, -1, -2)

    def contiguous(self) -> Self:
        """Return the tensor with its elements in order in memory."""
        return HIGHER["cont"](self)

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """Sum over one axis, or over all."""
        return HIGHER["sum"](self, axis, keepdims)

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Self:
        """Mean over one axis, or over all."""
        return HIGHER["mean"](self, axis, keepdims)

    def astype(self, dtype: DType | str) -> Self:
        """Return the numbers in another dtype."""
        return HIGHER["cast"](self, dtype)
