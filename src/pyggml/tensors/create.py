# SPDX-License-Identifier: MIT
"""Making stored tensors: from numbers, or of zeros and ones."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import checks
from ..backend.device import Device
from ..backend.device import device as find_device
from ..backend.dtypes import DType, as_dtype
from ..errors import DTypeError, OutOfMemoryError, ShapeError, fitting, shown
from .storage import allocate, check_shape, natural_dtype, store
from .tensor import Tensor
from .truth import is_mask, note_mask

__all__ = [
    "check_room",
    "empty",
    "full",
    "ones",
    "shape_and_dtype",
    "tensor",
    "wanting",
    "zeros",
    "zeros_group",
]


@fitting
def tensor(
    values: Any,
    dtype: DType | str | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Store numbers on a device.

    Args:
        values: array, nested lists, number or tensor; they are copied.
        dtype: None takes i32 for integers, and f32 for floats and for booleans, which become the
            ones and zeros of a mask; "f32" of booleans makes numbers.
        device: None takes the default device.
        requires_grad: whether gradients are wanted for it.

    Raises:
        ShapeError: more than four axes, or an empty array.
        DTypeError: not numbers, or numbers that do not fit the dtype.

    Example:
        >>> tensor([[1, 2, 3]]).shape
        (1, 3)
    """
    of_truth, natural = False, dtype is None
    if values is None:
        raise DTypeError("tensor: expected numbers, an array or a tensor; got None")
    if isinstance(values, Tensor):
        of_truth = natural and is_mask(values.node)
        dtype = dtype if dtype is not None else values.dtype
        device = device if device is not None else values.device
        values = values.numpy()
    masked = sys.modules.get("numpy.ma")  # who has not imported it has no masked array
    if masked is not None and isinstance(values, masked.MaskedArray):
        raise DTypeError("tensor: a masked array has gaps; close them with values.filled(0)")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ShapeError(f"tensor: the lists are ragged ({error})") from None
    shape = check_shape("tensor", array.shape)
    kind = as_dtype(dtype) if dtype is not None else natural_dtype(array)
    if array.dtype.kind == "b":
        of_truth, array = natural, array.astype(np.uint8)
    node = store(array, kind, find_device(device), shape)
    if of_truth:
        note_mask(node)
    return wanting("tensor", Tensor(node), requires_grad)


def wanting(who: str, x: Tensor, requires_grad: bool) -> Tensor:
    """Return a stored tensor, for which gradients are wanted or not.

    Args:
        who: the function that makes it.
        x: the tensor.
        requires_grad: as given.

    Raises:
        TypeError: it is not True or False.
        DTypeError: gradients are wanted, and x is not f32.
    """
    if checks.flag(who, "requires_grad", requires_grad):
        x.requires_grad = True
    return x


@fitting
def zeros_group(
    specs: Sequence[tuple[Sequence[int], DType | str]], device: Device | str | None = None
) -> list[Tensor]:
    """Make zero tensors that share one buffer, so that one call clears them all.

    Args:
        specs: shape and dtype of each.
        device: None takes the default device.

    Example:
        >>> a, b = zeros_group([((2, 3), "f32"), ((4,), "f32")])
        >>> a.buffer is b.buffer
        True
    """
    given = checks.items("zeros_group", "specs", specs)
    for spec in given:
        if not isinstance(spec, (tuple, list)) or len(spec) != 2:
            raise TypeError(
                f"zeros_group: specs must be pairs of a shape and a dtype; got {shown(spec)}"
            )
    checked = [(check_shape("zeros_group", shape), as_dtype(dtype)) for shape, dtype in given]
    if not checked:
        return []
    nodes = allocate(checked, find_device(device))
    if nodes[0].buffer is not None and not nodes[0].buffer.is_zero:
        nodes[0].buffer.clear()
    return [Tensor(node) for node in nodes]


def shape_and_dtype(
    who: str, shape: tuple[Any, ...], dtype: DType | str
) -> tuple[tuple[int, ...], DType | str]:
    """Take (2, 3) and 2, 3 for one shape, and (2, 3), "f16" for a shape and a dtype."""
    if len(shape) == 2 and isinstance(shape[0], (tuple, list)):
        extents, dtype = shape
        shape = (extents,)
    if any(isinstance(n, (str, DType)) for n in shape):
        raise TypeError(
            f"{who}: shape must be whole numbers; got {shown(shape)}; give the dtype as dtype="
        )
    return check_shape(who, shape[0] if len(shape) == 1 else shape), dtype


@fitting
def zeros(
    *shape: Any,
    dtype: DType | str = "f32",
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a stored tensor of zeros.

    Args:
        shape: extents, one by one or as one tuple; none for a scalar. A dtype may follow the tuple.
        dtype: element type.
        device: None takes the default device.
        requires_grad: whether gradients are wanted for it.

    Raises:
        TypeError: an extent is no whole number.
        ShapeError: an extent is below 1, or there are more than four.
        BackendError: the device lacks the memory.

    Source: torch.zeros.

    Example:
        >>> pg.zeros(2, 3).shape == pg.zeros((2, 3)).shape
        True
    """
    made = zeros_group([shape_and_dtype("zeros", shape, dtype)], device)[0]
    return wanting("zeros", made, requires_grad)


@fitting
def full(
    shape: Any,
    value: float,
    dtype: DType | str = "f32",
    *,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a stored tensor with one value everywhere; see `zeros`.

    Example:
        >>> pg.full((2,), 7.0).tolist()
        [7.0, 7.0]
    """
    made = _full("full", check_shape("full", shape), value, dtype, device)
    return wanting("full", made, requires_grad)


def _full(
    who: str, extents: tuple[int, ...], value: float, dtype: DType | str, device: Any
) -> Tensor:
    where = find_device(device)
    check_room(who, math.prod(extents))
    made = tensor(np.full(extents, checks.array(who, "value", value, 0, "iufb")), dtype, where)
    if isinstance(value, (bool, np.bool_)):
        note_mask(made.node)
    return made


def check_room(who: str, count: int, itemsize: int = 8) -> None:
    """Raise before NumPy makes more numbers than memory holds, for which Linux ends the process.

    Args:
        who: the function.
        count: of the numbers.
        itemsize: bytes of one in NumPy; its f32 copy is added.

    Raises:
        OutOfMemoryError: they take more than is free.
    """
    size_bytes = (itemsize + 4) * count
    if not find_device("cpu").has_memory(size_bytes):
        raise OutOfMemoryError(
            f"{who}: {count:,} numbers take {size_bytes:,} bytes, more than is free; make fewer"
        )


@fitting
def ones(
    *shape: Any,
    dtype: DType | str = "f32",
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a stored tensor of ones; see `zeros`.

    Example:
        >>> pg.ones(2, 2).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    extents, dtype = shape_and_dtype("ones", shape, dtype)
    return wanting("ones", _full("ones", extents, 1, dtype, device), requires_grad)


@fitting
def empty(
    *shape: Any,
    dtype: DType | str = "f32",
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a stored tensor whose numbers are to be written; they start at zero. See `zeros`."""
    made = zeros_group([shape_and_dtype("empty", shape, dtype)], device)[0]
    return wanting("empty", made, requires_grad)
