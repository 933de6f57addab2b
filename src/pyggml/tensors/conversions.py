# SPDX-License-Identifier: MIT
"""A tensor as Python's and NumPy's own kinds: a number, a truth value, an array, a sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.dtypes import DType
from ..errors import ShapeError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Conversions"]


if TYPE_CHECKING:

    class _Tensor:
        """The attributes of a tensor that the conversions use."""

        shape: tuple[int, ...]
        dtype: DType

        def numel(self) -> int: ...
        def item(self) -> float | int: ...
        def numpy(self) -> np.ndarray: ...
        def describe(self) -> str: ...
        def __getitem__(self, index: Any) -> Self: ...

else:
    _Tensor = object


class Conversions(_Tensor):
    """The methods behind `float(x)`, `if x`, `len(x)`, `for row in x`, and `np.asarray(x)`."""

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("array: a tensor's numbers are always copied out")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if self.numel() != 1:
            raise TypeError(
                f"format: a tensor must have one element for {spec!r}; got {self.shape}: format "
                "its elements, x.tolist()"
            )
        return format(self.item(), spec)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.is_float or self.numel() != 1:
            raise TypeError(
                f"index: a tensor must be one whole number; got {self.describe()}: use x.item()"
            )
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ShapeError(
                f"bool: x must have one element; got shape {self.shape}: use x.any(), x.all(), or"
                " pg.where(mask, a, b)"
            )
        return bool(self.item())

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a scalar has no length")
        return self.shape[0]
