# SPDX-License-Identifier: MIT
"""`Tensor`: stored numbers, or a recorded ggml op that will produce them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from ..backend import dtypes
from ..backend.device import COMPUTE_LOCK, Buffer, Device
from ..backend.device import device as find_device
from ..backend.dtypes import DType, as_dtype, dtype_of_type
from ..backend.library import ffi, lib
from ..errors import BackendError, DTypeError, FormatError, ShapeError
from .node import Moves, Node, recorder
from .operators import Operators
from .storage import (
    MAX_DIMS,
    allocate,
    check_shape,
    check_size,
    copy_to,
    natural_dtype,
    ne_of,
    read,
    read_bytes,
    store,
    write,
)
from .tracing import check_read, check_write, is_input, outer

__all__ = [
    "MAX_DIMS",
    "Tensor",
    "check_shape",
    "empty",
    "full",
    "ne_of",
    "ones",
    "record",
    "register_hook",
    "tensor",
    "without_gradient",
    "zeros",
    "zeros_group",
]

_HOOKS: dict[str, Callable[[Tensor], Any]] = {}


def register_hook(name: str, fn: Callable[[Tensor], Any]) -> None:
    """Give `Tensor` its way to `evaluate` and `backward`; called by the layer above."""
    _HOOKS[name] = fn


class Tensor(Operators):
    """An n-dimensional array on a device, with up to four axes.

    A tensor is either stored (it has memory: made by `tensor`, `zeros`, …) or recorded (an op on
    other tensors, computed when its numbers are asked for). Shapes are in Python order.

    Attributes:
        shape: extents, outermost first; () is a scalar.
        dtype: element type.

    Example:
        >>> a = tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> (a @ a.T).numpy().tolist()
        [[5.0, 11.0], [11.0, 25.0]]
    """

    __slots__ = ("__weakref__", "_dtype", "_node", "_shape", "_value")
    __array_ufunc__ = None  # ndarray + Tensor asks Tensor

    def __init__(self, node: Node):
        self._node = node
        self._value: np.ndarray | None = None
        self._shape = node.shape
        self._dtype = dtype_of_type(node.ptr.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, outermost first."""
        return self._shape

    @shape.setter
    def shape(self, value: Any) -> NoReturn:
        raise AttributeError(
            f"shape: a tensor's own, {self._shape}, stays; use y = x.reshape({value!r})"
        )

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: Any) -> NoReturn:
        raise AttributeError(
            f"dtype: a tensor's own, {self._dtype.name}, stays; use y = x.astype({str(value)!r})"
        )

    @property
    def node(self) -> Node:
        """The recorded ggml tensor."""
        return self._node

    @property
    def ptr(self) -> Any:
        """The `ggml_tensor *`."""
        return self._node.ptr

    @property
    def device(self) -> Device:
        """Where it lives or will be computed."""
        return self._node.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.dtype.row_bytes(self.size)

    @property
    def is_stored(self) -> bool:
        """Whether the tensor has memory of its own."""
        return self._node.buffer is not None

    @property
    def buffer(self) -> Buffer:
        """The memory of a stored tensor, shared by the tensors of a group."""
        if self._node.buffer is None:
            raise BackendError("buffer: only stored tensors have one; this one is a recorded op")
        return self._node.buffer

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through it; settable on stored f32 tensors."""
        return self._node.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not self.is_stored:
            raise ValueError("requires_grad: only stored tensors can be set; use t.detach()")
        if value and self.dtype.name != "f32":
            raise DTypeError(
                f"requires_grad: parameters must be f32; got {self.dtype.name}, which has no"
                " gradient: convert it with .astype('f32'), or train adapters on a frozen weight,"
                " nn.apply_lora(model)"
            )
        self._node.requires_grad = bool(value)

    @property
    def grad(self) -> Tensor | None:
        """The stored tensor into which gradients of this one are added, if any."""
        return self._node.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"grad: must be a Tensor or None; got {type(value).__name__}")
        if value is not None and value.node is self.node:
            raise ValueError("grad: a tensor cannot be its own gradient; give it another one")
        if value is not None and (value.shape != self.shape or not value.is_stored):
            raise ShapeError(f"grad: must be stored and of shape {self.shape}; got {value.shape}")
        self._node.grad = value

    def register_hook(self, hook: Callable[[Tensor], Any]) -> Callable[[], None]:
        """Call `hook(grad)` whenever this parameter's gradient has been completed.

        That is at the end of `backward()`, and before an optimizer's step. The hook may read the
        gradient, for logging, or overwrite it with `copy_`.

        Args:
            hook: takes the gradient; what it returns is not used.

        Returns:
            A function that removes the hook.

        Raises:
            ValueError: the tensor is not stored or requires no gradient.
        """
        if not self.is_stored or not self.requires_grad:
            raise ValueError(
                "register_hook: only stored tensors that require a gradient have hooks"
            )
        if not callable(hook):
            raise TypeError(f"register_hook: hook must be callable; got {type(hook).__name__}")
        hooks = self._node.hooks
        hooks.append(hook)
        return lambda: hooks.remove(hook) if hook in hooks else None

    def run_hooks(self) -> None:
        """Give the gradient to the hooks, in the order of their registration."""
        if self.grad is not None:
            for hook in list(self._node.hooks):
                hook(self.grad)

    # Reading and writing

    def numpy(self) -> np.ndarray:
        """Copy the numbers out, computing what is needed first; bf16 comes as float32.

        Raises:
            RecordingError: a function is being recorded to run many times (`compile`,
                `value_and_grad`, …), and the numbers depend on its inputs.
        """
        check_read(self._node)
        if self._value is not None:
            return np.array(self._value)
        if self.is_stored:
            return read(self._node)
        value: np.ndarray = _HOOKS["evaluate"](self)
        if self.requires_grad:
            self._value = value  # the recorded op is still needed for backward()
            return np.array(value)
        stored = store(value, self.dtype, self.device, self.shape)
        stored.barrier = self._node.barrier
        self._node = stored
        return value

    def item(self) -> float | int:
        """The number of a one-element tensor.

        Raises:
            ShapeError: it has more than one.
        """
        if self.size != 1:
            raise ShapeError(f"item: the tensor must have one element; got shape {self.shape}")
        result: float | int = self.numpy().reshape(()).item()
        return result

    def tolist(self) -> Any:
        """The numbers as nested lists."""
        return self.numpy().tolist()

    def copy_(self, values: Any) -> Tensor:
        """Overwrite a stored tensor.

        Args:
            values: array or tensor of the same shape.

        Raises:
            ShapeError: the shapes differ.
            DTypeError: the values do not fit the dtype.
            BackendError: the tensor is a recorded op and has no memory.
        """
        if isinstance(values, Tensor):
            values = values.numpy()
        array = np.asarray(values)
        if not self.is_stored:
            raise BackendError("copy_: only stored tensors can be written; this is a recorded op")
        if array.shape != self.shape:
            raise ShapeError(f"copy_: shape must be {self.shape}; got {array.shape}")
        check_write("copy_", self._node)
        if self._node.limit is not None:
            self._node.check_rows("copy_", array, self._node.limit)
        write(self._node, dtypes.encode(array, self.dtype, "copy_"))
        return self

    def zero_(self) -> Tensor:
        """Set a stored tensor to zero."""
        if not self.is_stored:
            raise BackendError("zero_: only stored tensors can be written; this is a recorded op")
        check_write("zero_", self._node)
        self.device.check()
        with COMPUTE_LOCK:
            lib.ggml_backend_tensor_memset(self.ptr, 0, 0, self.nbytes)
        return self

    def to(self, device: Device | str) -> Tensor:
        """The same numbers on another device, without a way back for gradients.

        Args:
            device: "cpu", "cuda:0", "metal", …; where the tensor lives already, it is returned.

        Raises:
            BackendError: there is no such device, or it lacks the memory.
        """
        where = find_device(device)
        if where is self.device:
            return self
        if self.is_stored and self.dtype.quantized:  # its bytes: to quantise again may round
            return Tensor(copy_to(self._node, where))
        return tensor(self.numpy(), self.dtype, where)

    def move_(self, device: Device | str) -> Tensor:
        """Let a stored tensor, and its gradient, live on another device from now on.

        Graphs and optimizers that were made before refuse to run; `compile` records anew.

        Args:
            device: as in `to`.

        Raises:
            ValueError: the tensor is not stored.
            BackendError: there is no such device, or it lacks the memory.
        """
        where, before = find_device(device), self._node
        if not self.is_stored:
            raise ValueError("move_: only stored tensors move; this is a recorded op: use x.to()")
        if where is not before.device:
            self._move(where)
        return self

    def _move(self, where: Device) -> None:
        before = self._node
        after = copy_to(before, where)
        if before.grad is not None:
            after.grad = Tensor(copy_to(before.grad.node, where))
        self._node, before.moved = after, True
        Moves.count += 1

    def detach(self) -> Tensor:
        """The same numbers without a way back for gradients.

        A recorded tensor is computed now; in a function that is being recorded to run many times
        (`compile`, `value_and_grad`, …) at each of its runs.
        """
        constant = self.is_stored and not self.requires_grad and self._node.barrier is None
        if outer() is not None and not (constant and not is_input(self._node)):
            return without_gradient(self)
        if constant:
            return self
        return tensor(self.numpy(), self.dtype, self.device)

    def backward(self) -> None:
        """Add d(self)/d(leaf) into `.grad` of every stored tensor that requires it.

        Raises:
            ShapeError: self is not a scalar.
            GradientError: nothing requires a gradient, or an op has none.
        """
        _HOOKS["backward"](self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("array: a tensor's numbers are always copied out")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a scalar has no length")
        return self.shape[0]

    def __copy__(self) -> Tensor:
        return Tensor(self._node)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_stored:
            check_read(self._node)
            node, trained = self._node, self.requires_grad
        elif self.requires_grad:
            raise TypeError(
                "pickle: a recorded op that leads to parameters has no copy; use t.detach()"
            )
        else:
            node, trained = self.detach().node, False
        data = read_bytes(node)
        return _restore, (data, self.dtype.name, self.shape, self.device.name, trained)

    def __repr__(self) -> str:
        state = "stored" if self.is_stored else "recorded"
        grad = ", requires_grad" if self.requires_grad else ""
        return (
            f"Tensor(shape={self.shape}, dtype={self.dtype.name},"
            f" device={self.device.name!r}, {state}{grad})"
        )


def record(
    fn: Callable[..., Any],
    args: Sequence[Any],
    shape: tuple[int, ...],
    differentiable: bool = True,
    who: str | None = None,
) -> Tensor:
    """Record one ggml op.

    Args:
        fn: builder of ggml that takes a context and then `args`.
        args: tensors, passed as `ggml_tensor *`, and plain C values.
        shape: Python shape of the result.
        differentiable: False when no gradient can come back through it.
        who: the function that the user called, for messages; None is the builder's name.

    Raises:
        BackendError: the tensors are on different devices.
    """
    who = who or fn.__name__.removeprefix("ggml_")
    check_size(who, shape)
    sources = [a for a in args if isinstance(a, Tensor)]
    where = sources[0].device
    for source in sources:
        if source.device is not where:
            names = ", ".join(s.device.name for s in sources)
            raise BackendError(f"{who}: tensors must be on one device; got {names}")
    arena = recorder.room()
    try:
        ptr = fn(arena.ctx, *[a.ptr if isinstance(a, Tensor) else a for a in args])
    except OverflowError as error:
        raise ShapeError(f"{who}: a number is too large for ggml: {error}") from None
    node = Node(
        ptr,
        arena,
        where,
        shape,
        tuple(s.node for s in sources),
        requires_grad=differentiable and any(s.requires_grad for s in sources),
    )
    result = Tensor(node)
    if differentiable and result.dtype.is_float:
        node.barrier = next((s.node.barrier for s in sources if s.node.barrier), None)
    return result


def without_gradient(t: Tensor) -> Tensor:
    """The numbers of a tensor, computed with it and without a way back for gradients.

    Unlike `Tensor.detach` this computes nothing now.
    """
    # What shares memory may get its own when the graph is made: a copy stays the same.
    alone = t.is_stored or t.ptr.view_src == ffi.NULL
    source = t if alone else record(lib.ggml_cont, [t], t.shape)
    cut = record(lib.ggml_view_tensor, [source], t.shape, False)
    # A view that names no operand: ggml looks for no parameter behind it.
    cut.ptr.op = lib.GGML_OP_VIEW
    return cut


def tensor(
    values: Any,
    dtype: DType | str | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Store numbers on a device.

    Args:
        values: array, nested lists, number or tensor; they are copied.
        dtype: None takes f32 for floats and i32 for integers.
        device: None takes the default device.
        requires_grad: whether gradients are wanted for it.

    Raises:
        ShapeError: more than four axes, or an empty array.
        DTypeError: not numbers, or numbers that do not fit the dtype.

    Example:
        >>> tensor([[1, 2, 3]]).shape
        (1, 3)
    """
    if values is None:
        raise DTypeError("tensor: expected numbers, an array or a tensor; got None")
    if isinstance(values, Tensor):
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
    result = Tensor(store(array, kind, find_device(device), shape))
    if requires_grad:
        result.requires_grad = True
    return result


def _restore(
    data: np.ndarray, dtype: str, shape: tuple[int, ...], device: str, trained: bool
) -> Tensor:
    """Unpickle a tensor; its gradient and its hooks stay behind."""
    result = zeros_group([(shape, dtype)], device)[0]
    if data.dtype != np.uint8 or data.nbytes != result.nbytes:
        raise FormatError(
            f"unpickle: {result!r} needs {result.nbytes} bytes; got {data.nbytes} of {data.dtype}"
        )
    write(result.node, data)
    result.requires_grad = trained
    return result


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
    checked = [(check_shape("zeros", shape), as_dtype(dtype)) for shape, dtype in specs]
    if not checked:
        return []
    nodes = allocate(checked, find_device(device))
    if nodes[0].buffer is not None and not nodes[0].buffer.is_zero:
        nodes[0].buffer.clear()
    return [Tensor(node) for node in nodes]


def _extents(who: str, shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Take (2, 3) and 2, 3 for one shape."""
    return check_shape(who, shape[0] if len(shape) == 1 else shape)


def zeros(*shape: Any, dtype: DType | str = "f32", device: Device | str | None = None) -> Tensor:
    """Make a stored tensor of zeros.

    Args:
        shape: extents, one by one or as one tuple; none for a scalar.
        dtype: element type.
        device: None takes the default device.

    Raises:
        ShapeError: the extents are not whole numbers from 1, or more than four.
        BackendError: the device lacks the memory.

    Source: torch.zeros.

    Example:
        >>> pg.zeros(2, 3).shape == pg.zeros((2, 3)).shape
        True
    """
    return zeros_group([(_extents("zeros", shape), dtype)], device)[0]


def full(
    shape: Any, value: float, *, dtype: DType | str = "f32", device: Device | str | None = None
) -> Tensor:
    """Make a stored tensor with one value everywhere; see `zeros`.

    Example:
        >>> pg.full((2,), 7.0).tolist()
        [7.0, 7.0]
    """
    return _full("full", check_shape("full", shape), value, dtype, device)


def _full(
    who: str, extents: tuple[int, ...], value: float, dtype: DType | str, device: Any
) -> Tensor:
    where = find_device(device)
    if not find_device("cpu").has_memory(4 * math.prod(extents)):
        raise BackendError(
            f"{who}: {4 * math.prod(extents):,} bytes are more than is free; use a smaller shape"
        )
    return tensor(np.full(extents, value), dtype, where)


def ones(*shape: Any, dtype: DType | str = "f32", device: Device | str | None = None) -> Tensor:
    """Make a stored tensor of ones; see `zeros`.

    Example:
        >>> pg.ones(2, 2).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    return _full("ones", _extents("ones", shape), 1, dtype, device)


def empty(*shape: Any, dtype: DType | str = "f32", device: Device | str | None = None) -> Tensor:
    """Make a stored tensor whose numbers are to be written; they start at zero. See `zeros`."""
    return zeros_group([(_extents("empty", shape), dtype)], device)[0]
