# SPDX-License-Identifier: MIT
"""Making stored tensors of sequences, of random numbers, and like others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backend.device import Device
from ..backend.dtypes import DType
from ..checks import instance, number, whole
from ..errors import DTypeError, ShapeError, composed, fitting, shown
from .create import check_room, empty, full, ones, shape_and_dtype, tensor, wanting, zeros
from .random import generator_of
from .tensor import Tensor
from .tracing import draw_later, draws_later
from .truth import as_mask_of

__all__ = [
    "arange",
    "as_tensor",
    "empty_like",
    "eye",
    "from_numpy",
    "full_like",
    "linspace",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "zeros_like",
]


@fitting
def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    dtype: DType | str | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """Make a stored tensor of numbers with equal steps.

    Args:
        start: the first; alone it is the end, and the numbers start at 0.
        end: where they stop, which is left out.
        step: between two.
        dtype: None takes i32 for whole numbers, else f32.
        device: None takes the default device.

    Raises:
        ShapeError: there would be no number.
        ValueError: the step is 0.

    Source: torch.arange.

    Example:
        >>> pg.arange(3).tolist(), pg.arange(1, 2, 0.5).tolist()
        ([0, 1, 2], [1.0, 1.5])
    """
    first, last = (0, start) if end is None else (start, end)
    for name, n in (("start", first), ("end", last), ("step", step)):
        number("arange", name, n)
    if step == 0:
        raise ValueError("arange: step must not be 0")
    count = (last - first) / step
    if count <= 0:
        raise ShapeError(
            f"arange: there must be a number from {first} to {last} by {step}; ggml has no empty"
            " tensors"
        )
    check_room("arange", math.ceil(min(count, 2**63)))
    return tensor(np.arange(first, last, step), dtype, device)


@fitting
def linspace(
    start: float,
    end: float,
    steps: int,
    dtype: DType | str = "f32",
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a stored tensor of numbers from `start` to `end`, both included, at equal distances.

    Args:
        start: the first.
        end: the last.
        steps: how many.
        dtype: element type.
        device: None takes the default device.
        requires_grad: whether gradients are wanted for it.

    Raises:
        ValueError: `steps` is below 1.

    Source: torch.linspace.

    Example:
        >>> pg.linspace(0, 1, 3).tolist()
        [0.0, 0.5, 1.0]
    """
    count = whole("linspace", "steps", steps, 1)
    ends = number("linspace", "start", start), number("linspace", "end", end)
    check_room("linspace", count, 24)
    return tensor(np.linspace(*ends, count), dtype, device, requires_grad)


@fitting
def eye(n: int, m: int | None = None, device: Device | str | None = None) -> Tensor:
    """Make a stored matrix with ones on its diagonal.

    Args:
        n: rows.
        m: columns; None takes n.
        device: None takes the default device.

    Raises:
        ValueError: an extent is below 1.

    Source: torch.eye.

    Example:
        >>> pg.eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    rows = whole("eye", "n", n, 1)
    columns = rows if m is None else whole("eye", "m", m, 1)
    check_room("eye", rows * columns, 4)
    return tensor(np.eye(rows, columns, dtype=np.float32), "f32", device)


@fitting
def from_numpy(array: np.ndarray) -> Tensor:
    """Store an array's numbers; they are copied, as they are in `tensor`.

    Raises:
        TypeError: it is no array.

    Example:
        >>> pg.from_numpy(np.ones((2, 3), np.float32)).shape
        (2, 3)
    """
    return tensor(instance("from_numpy", "array", array, np.ndarray, "use pg.tensor(array)"))


@fitting
def as_tensor(
    values: Any, dtype: DType | str | None = None, device: Device | str | None = None
) -> Tensor:
    """Return a tensor as it is, and anything else as `tensor` makes one of it.

    Args:
        values: tensor, array, nested lists or number.
        dtype: None keeps that of a tensor.
        device: None keeps that of a tensor.

    Example:
        >>> x = pg.ones(2)
        >>> pg.as_tensor(x) is x
        True
    """
    if not isinstance(values, Tensor):
        return tensor(values, dtype, device)
    result = values if dtype is None else values.astype(dtype)
    return result if device is None else result.to(device)


def _drawn(
    draw: Callable[[], np.ndarray],
    extents: tuple[int, ...],
    kind: DType | str,
    device: Device | str | None,
) -> Tensor:
    """Return a stored tensor of random numbers; those of a traced function come before each run."""
    if not draws_later():
        return tensor(draw(), kind, device)
    made = zeros(extents, dtype=kind, device=device)
    draw_later(made.node, draw)
    return made


@fitting
def rand(
    *shape: Any,
    generator: np.random.Generator | None = None,
    dtype: DType | str = "f32",
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a stored tensor of random numbers, uniform from 0 to below 1.

    Args:
        shape: extents, one by one or as one tuple.
        generator: NumPy's; None takes the one that `pg.seed` restarts.
        dtype: element type.
        device: None takes the default device.
        requires_grad: whether gradients are wanted for it.

    Raises:
        ShapeError: as in `zeros`.

    Source: torch.rand.

    Example:
        >>> pg.seed(1)
        >>> pg.rand(2, 3).shape
        (2, 3)
    """
    extents, kind = shape_and_dtype("rand", shape, dtype)
    check_room("rand", math.prod(extents), 4)
    source = generator_of("rand", generator)
    made = _drawn(lambda: source().random(extents, np.float32), extents, kind, device)
    return wanting("rand", made, requires_grad)


@fitting
def randn(
    *shape: Any,
    generator: np.random.Generator | None = None,
    dtype: DType | str = "f32",
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a stored tensor of random numbers of mean 0 and variance 1, normal; see `rand`."""
    extents, kind = shape_and_dtype("randn", shape, dtype)
    check_room("randn", math.prod(extents), 4)
    source = generator_of("randn", generator)
    made = _drawn(lambda: source().standard_normal(extents, np.float32), extents, kind, device)
    return wanting("randn", made, requires_grad)


@fitting
def randint(
    low: int,
    high: Any = None,
    size: Any = (),
    generator: np.random.Generator | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """Make a stored i32 tensor of random whole numbers from `low` to below `high`.

    Args:
        low: the least; alone it is the end, and the numbers start at 0.
        high: the end; a shape in its place is that of the result, and `low` is alone.
        size: shape.
        generator: see `rand`.
        device: None takes the default device.

    Raises:
        ValueError: there is no whole number between the two.

    Source: torch.randint.

    Example:
        >>> pg.randint(0, 10, (2, 3)).dtype.name
        'i32'
    """
    if isinstance(high, (tuple, list)):
        high, size = None, high
    least, end = (0, low) if high is None else (low, high)
    least, end = whole("randint", "low", least), whole("randint", "high", end)
    if least >= end:
        raise ValueError(f"randint: low must be below high; got {least} and {end}")
    extents, _ = shape_and_dtype("randint", (size,), "i32")
    check_room("randint", math.prod(extents))
    source = generator_of("randint", generator)
    return _drawn(lambda: source().integers(least, end, extents), extents, "i32", device)


@fitting
def randperm(n: int, generator: np.random.Generator | None = None) -> Tensor:
    """Return the whole numbers from 0 to n - 1 in a random order, as i32.

    Args:
        n: how many.
        generator: NumPy's; None takes the one that `pg.seed` restarts.

    Raises:
        TypeError: generator is not one of NumPy's.
        ValueError: n is below 1.

    Source: torch.randperm.

    Example:
        >>> sorted(pg.randperm(3).tolist())
        [0, 1, 2]
    """
    count = whole("randperm", "n", n, 1, 2**31 - 1)
    source = generator_of("randperm", generator)
    check_room("randperm", count)
    return _drawn(lambda: source().permutation(count).astype(np.int32), (count,), "i32", None)


def _of(x: Tensor, made: Tensor) -> Tensor:
    """Return a tensor, a mask if it is made after one."""
    as_mask_of(x.node, made.node)
    return made


def _like(who: str, x: Any) -> Tensor:
    return instance(who, "x", x, Tensor, "use pg.tensor(x)")


@fitting
def zeros_like(x: Tensor, *, requires_grad: bool = False) -> Tensor:
    """Make a stored tensor of zeros with the shape, dtype and device of another."""
    _like("zeros_like", x)
    return _of(x, zeros(x.shape, dtype=x.dtype, device=x.device, requires_grad=requires_grad))


@fitting
def ones_like(x: Tensor, *, requires_grad: bool = False) -> Tensor:
    """Make a stored tensor of ones with the shape, dtype and device of another."""
    _like("ones_like", x)
    return _of(x, ones(x.shape, dtype=x.dtype, device=x.device, requires_grad=requires_grad))


@fitting
def empty_like(x: Tensor, *, requires_grad: bool = False) -> Tensor:
    """Make a stored tensor to be written, with the shape, dtype and device of another."""
    _like("empty_like", x)
    return _of(x, empty(x.shape, dtype=x.dtype, device=x.device, requires_grad=requires_grad))


@composed
def full_like(x: Tensor, value: float, *, requires_grad: bool = False) -> Tensor:
    """Make a stored tensor of one value, with the shape, dtype and device of another."""
    _like("full_like", x)
    made = full(x.shape, value, x.dtype, device=x.device, requires_grad=requires_grad)
    return _of(x, made) if value in (0, 1) else made


@fitting
def rand_like(
    x: Tensor, generator: np.random.Generator | None = None, *, requires_grad: bool = False
) -> Tensor:
    """Make a stored tensor as `rand` does, with the shape, dtype and device of another."""
    _like("rand_like", x)
    dtype = _float("rand_like", x)
    return rand(
        x.shape, generator=generator, dtype=dtype, device=x.device, requires_grad=requires_grad
    )


@fitting
def randn_like(
    x: Tensor, generator: np.random.Generator | None = None, *, requires_grad: bool = False
) -> Tensor:
    """Make a stored tensor as `randn` does, with the shape, dtype and device of another."""
    _like("randn_like", x)
    dtype = _float("randn_like", x)
    return randn(
        x.shape, generator=generator, dtype=dtype, device=x.device, requires_grad=requires_grad
    )


def _float(who: str, x: Tensor) -> DType:
    if not x.dtype.is_float:
        raise DTypeError(f"{who}: x must be f32, f16 or bf16; got {shown(x.dtype.name)}")
    return x.dtype
