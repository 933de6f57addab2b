# SPDX-License-Identifier: MIT
"""`Tensor`'s operators and methods that are ops; the ops themselves live layers up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ..backend.dtypes import DType
    from .tensor import Tensor

__all__ = ["Operators", "register"]

_OPS: dict[str, Callable[..., Tensor]] = {}


def register(name: str, fn: Callable[..., Tensor]) -> None:
    """Give `Tensor`'s operators and methods their op; called by `pyggml.ops`."""
    _OPS[name] = fn


def _no_comparison(sign: str, other: object) -> NoReturn:
    raise TypeError(
        f"tensor: {sign} must have numbers on both sides; got a Tensor and {type(other).__name__};"
        f" compare x.numpy() {sign} y, take ops.step(x - y) in a graph, or `x is y` for the object"
    )


class Operators:
    """What `Tensor` passes on to `pyggml.ops`."""

    __slots__ = ()

    def __add__(self, other: Any) -> Tensor:
        return _OPS["add"](self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _OPS["add"](other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _OPS["sub"](self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _OPS["sub"](other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _OPS["mul"](self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _OPS["mul"](other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _OPS["div"](self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _OPS["div"](other, self)

    def __pow__(self, exponent: float) -> Tensor:
        return _OPS["pow"](self, exponent)

    def __neg__(self) -> Tensor:
        return _OPS["neg"](self)

    def __matmul__(self, other: Any) -> Tensor:
        return _OPS["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _OPS["matmul"](other, self)

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

    def __getitem__(self, index: Any) -> Tensor:
        return _OPS["getitem"](self, index)

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape; one extent may be -1."""
        return _OPS["reshape"](self, shape[0] if len(shape) == 1 else shape)

    def permute(self, *axes: int) -> Tensor:
        """Reorder the axes, as NumPy's transpose."""
        return _OPS["permute"](self, axes)

    def transpose(self, a: int, b: int) -> Tensor:
        """Swap two axes."""
        return _OPS["transpose"](self, a, b)

    @property
    def T(self) -> Tensor:
        """The last two axes swapped."""
        return _OPS["transpose"](self, -1, -2)

    def contiguous(self) -> Tensor:
        """The same tensor with its elements in order in memory."""
        return _OPS["cont"](self)

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Sum over one axis, or over all."""
        return _OPS["sum"](self, axis, keepdims)

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Mean over one axis, or over all."""
        return _OPS["mean"](self, axis, keepdims)

    def astype(self, dtype: DType | str) -> Tensor:
        """The numbers in another dtype."""
        return _OPS["cast"](self, dtype)
