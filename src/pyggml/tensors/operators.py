# SPDX-License-Identifier: MIT
"""`Tensor`'s operators, and the table of functions from rows above."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from ..errors import GradientError, fitting
from .tracing import is_tracing

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["HIGHER", "Operators", "register"]

_T = TypeVar("_T")

# The one way from this row to those above: ops, and `evaluate` and `backward` of graphs.
HIGHER: dict[str, Callable[..., Any]] = {}


# Operators of arrays that compute with a tensor, and what serves where the tensor comes second.
_UFUNCS: dict[Any, tuple[str, str]] = {
    **{each: (name, name) for each, name in ((np.equal, "eq"), (np.not_equal, "ne"))},
    **{np.less: ("lt", "gt"), np.greater: ("gt", "lt")},
    **{np.less_equal: ("le", "ge"), np.greater_equal: ("ge", "le")},
    **{np.add: ("add", ""), np.subtract: ("sub", ""), np.multiply: ("mul", "")},
    **{np.true_divide: ("div", ""), np.matmul: ("matmul", "")},
    **{np.floor_divide: ("floor_divide", ""), np.remainder: ("remainder", "")},
    **{np.bitwise_and: ("logical_and", ""), np.bitwise_or: ("logical_or", "")},
}
# Functions of arrays that ask for no numbers.
_SIZES: dict[Any, Callable[..., Any]] = {
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.size: lambda x, axis=None: x.numel() if axis is None else x.shape[axis],
}


def register(name: str, fn: Callable[..., Any]) -> None:
    """Give `Tensor` a function of a higher row; called where that is defined."""
    HIGHER[name] = fn


def signatures_told(kind: type[_T]) -> type[_T]:
    """Let a call of a method that does not fit it tell what the method takes.

    Args:
        kind: a class of methods.
    """
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, fitting(method))
    return kind


def _changed(x: Any, name: str, other: Any) -> Any:
    """Return a stored tensor whose numbers have been changed; of a recorded one a new tensor."""
    leads = getattr(other, "requires_grad", False)
    if leads and x.is_stored and x.requires_grad:
        raise GradientError(
            f"{name}: a parameter must be changed by what leads to no parameter, as no gradient"
            " passes through the change; use other.detach(), or write p = p + x for a new tensor"
        )
    if leads or is_tracing() or not x.is_stored:
        return HIGHER[name](x, other)
    return x.copy_(HIGHER[name](x.detach(), other))


class Operators:
    """The operators that `Tensor` passes on to `pyggml.ops`."""

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

    def __iadd__(self, other: Any) -> Self:
        return _changed(self, "add", other)

    def __isub__(self, other: Any) -> Self:
        return _changed(self, "sub", other)

    def __imul__(self, other: Any) -> Self:
        return _changed(self, "mul", other)

    def __itruediv__(self, other: Any) -> Self:
        return _changed(self, "div", other)

    def __ipow__(self, exponent: float) -> Self:
        return _changed(self, "pow", exponent)

    def __floordiv__(self, other: Any) -> Self:
        return HIGHER["floor_divide"](self, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return HIGHER["floor_divide"](other, self)

    def __mod__(self, other: Any) -> Self:
        return HIGHER["remainder"](self, other)

    def __rmod__(self, other: Any) -> Self:
        return HIGHER["remainder"](other, self)

    def __pow__(self, exponent: float) -> Self:
        return HIGHER["pow"](self, exponent)

    def __rpow__(self, base: Any) -> Self:
        return HIGHER["power_of"](base, self)

    def __pos__(self) -> Self:
        return self

    def __neg__(self) -> Self:
        return HIGHER["neg"](self)

    def __matmul__(self, other: Any) -> Self:
        return HIGHER["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Self:
        return HIGHER["matmul"](other, self)

    def __eq__(self, other: object) -> Self:  # type: ignore[override]
        return HIGHER["eq"](self, other) if _is_compared(other) else NotImplemented

    def __ne__(self, other: object) -> Self:  # type: ignore[override]
        return HIGHER["ne"](self, other) if _is_compared(other) else NotImplemented

    def __lt__(self, other: Any) -> Self:
        return HIGHER["lt"](self, other)

    def __le__(self, other: Any) -> Self:
        return HIGHER["le"](self, other)

    def __gt__(self, other: Any) -> Self:
        return HIGHER["gt"](self, other)

    def __ge__(self, other: Any) -> Self:
        return HIGHER["ge"](self, other)

    __hash__ = object.__hash__  # by identity: tensors are keys of dictionaries

    def __abs__(self) -> Self:
        return HIGHER["abs"](self)

    def __and__(self, other: Any) -> Self:
        return HIGHER["logical_and"](self, other)

    def __or__(self, other: Any) -> Self:
        return HIGHER["logical_or"](self, other)

    def __invert__(self) -> Self:
        return HIGHER["logical_not"](self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Compute `array + x` as `x + array`; `np.exp(x)` is NumPy's, of the numbers of x."""
        name, swapped = _UFUNCS.get(ufunc, ("", ""))
        if not name or method != "__call__" or kwargs:
            return getattr(ufunc, method)(*_numbers(inputs), **_numbers(kwargs))
        if swapped and not isinstance(inputs[0], Operators):
            return HIGHER[swapped](*inputs[::-1])
        return HIGHER[name](*inputs)

    def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
        """Compute `np.mean(x)` as NumPy does, of the numbers of x."""
        if function in _SIZES and args and isinstance(args[0], Operators):
            return _SIZES[function](*args, **kwargs)
        return function(*_numbers(args), **_numbers(kwargs))

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        """Raise: ops make new tensors."""
        raise TypeError(
            "x[...] = value: a tensor's elements cannot be set one by one, as ops make new tensors;"
            " use pg.where(mask, value, x), or n = x.numpy(); n[...] = value; x.copy_(n)"
        )

    def __getitem__(self, index: Any) -> Self:
        return HIGHER["getitem"](self, index)


def _is_compared(other: object) -> bool:
    """Return False for a text, None and their like, which Python finds different from a tensor."""
    return isinstance(other, (Operators, int, float, np.generic, np.ndarray, list, tuple))


def _numbers(value: Any) -> Any:
    """Return arrays in place of the tensors among arguments."""
    if isinstance(value, Operators):
        return np.asarray(value)
    if type(value) in (list, tuple):
        return type(value)(map(_numbers, value))
    if type(value) is dict:
        return {name: _numbers(each) for name, each in value.items()}
    return value
