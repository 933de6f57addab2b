# SPDX-License-Identifier: MIT
"""`Tensor`: stored numbers, or a recorded ggml op that will produce them."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from ..backend import dtypes
from ..backend.buffers import Buffer
from ..backend.device import COMPUTE_LOCK, Device
from ..backend.device import device as find_device
from ..backend.dtypes import DType, as_dtype, dtype_of_type
from ..backend.library import lib
from ..backend.undivided import Undivided, settle
from ..checks import array as as_array
from ..checks import flag, having, whole
from ..errors import (
    BackendError,
    DTypeError,
    FormatError,
    RecordingError,
    ShapeError,
    composed,
    fitting,
    shown,
)
from .conversions import Conversions
from .gradient_stops import stop_gradients, stopped_by
from .gradients import gradient_of, has_gradient, has_hooks, hooks_of, set_gradient
from .live import Computed, Memory, hold, overwritten_below, release
from .methods import Methods
from .moves import note_move
from .node import Node
from .operators import HIGHER
from .row_limits import check_written
from .storage import allocate, begin_write, check_shape, copy_to, read, read_bytes, store, write
from .text import written
from .tracing import check_read, check_write, is_input, outer
from .truth import as_mask_of, change_truth, is_mask, note_mask, stays_mask

__all__ = ["Tensor"]


class Tensor(Methods, Conversions):
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

    __slots__ = ("__weakref__", "_dtype", "_end", "_node", "_shape", "_value")

    def __init__(self, node: Node, dtype: DType | None = None):
        try:
            if node.buffer is None and (node.holder is None or node.holder() is None):
                node.holder = weakref.ref(self)
        except AttributeError:
            raise TypeError("Tensor: tensors are made by pg.tensor(values)") from None
        self._node = node
        self._value: np.ndarray | Computed | None = None
        self._shape = node.shape
        self._dtype = dtype_of_type(node.ptr.type) if dtype is None else dtype

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

    def _set_data(self, values: Any) -> NoReturn:
        raise AttributeError("data: a tensor has no such part; use x.copy_(values), which writes")

    if not TYPE_CHECKING:  # reading it goes on to the error of an absent name
        data = property(None, _set_data)

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
        """The device that stores or computes it."""
        return self._node.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._shape)

    @overload
    def size(self, dim: None = None) -> tuple[int, ...]: ...

    @overload
    def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Return the shape, or the extent of one axis; the number of elements is `numel()`.

        Raises:
            TypeError: dim is no whole number.
            ShapeError: there is no such axis.

        Example:
            >>> x = pg.zeros(2, 3)
            >>> x.size(), x.size(-1), x.numel()
            ((2, 3), 3, 6)
        """
        if dim is None:
            return self._shape
        axis, n = whole("size", "dim", dim), len(self._shape)
        if not -n <= axis < n:
            raise ShapeError(
                f"size: dim must be an axis of the shape {self._shape}; got {axis}: "
                "x.size() is the whole shape"
            )
        return self._shape[axis]

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.dtype.row_bytes(self.numel())

    @property
    def is_stored(self) -> bool:
        """True for a tensor with memory of its own, False for a recorded op."""
        return self._node.buffer is not None

    @property
    def buffer(self) -> Buffer:
        """The memory of a stored tensor, shared by the tensors of a group."""
        if self._node.buffer is None:
            raise BackendError("buffer: only stored tensors have one; this one is a recorded op")
        return self._node.buffer

    @property
    def requires_grad(self) -> bool:
        """True if gradients flow to or through it; settable on stored f32 tensors."""
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

    @fitting
    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad`, and return the tensor."""
        self.requires_grad = flag("requires_grad_", "requires_grad", requires_grad)
        return self

    @property
    def grad(self) -> Tensor | None:
        """The stored tensor into which gradients of this one are added; None without a gradient."""
        found = gradient_of(self._node) if has_gradient(self._node) else None
        if found is None and self._node.requires_grad and not self.is_stored:
            warnings.warn(
                "grad: a computed tensor has none, as only stored ones do: write a parameter by"
                " w.copy_(w - lr * w.grad), which goes on being one, or by an optimizer",
                stacklevel=2,
            )
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"grad: must be a Tensor or None; got {type(value).__name__}")
        if value is not None and value.node is self.node:
            raise ValueError("grad: a tensor cannot be its own gradient; give it another one")
        if value is not None and (value.shape != self.shape or not value.is_stored):
            raise ShapeError(f"grad: must be stored and of shape {self.shape}; got {value.shape}")
        set_gradient(self._node, value)

    @fitting
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
        hooks = hooks_of(self._node)
        hooks.append(hook)
        return lambda: hooks.remove(hook) if hook in hooks else None

    @property
    def has_hooks(self) -> bool:
        """True if `register_hook` gave it a hook."""
        return has_hooks(self._node)

    def run_hooks(self) -> None:
        """Give the gradient to the hooks, in the order of their registration."""
        if self.grad is not None:
            for hook in list(hooks_of(self._node)):
                hook(self.grad)

    @fitting
    def numpy(self) -> np.ndarray:
        """Copy the numbers out, computing what is needed first; bf16 comes as float32.

        Raises:
            RecordingError: a function is being recorded to run many times (`compile`,
                `value_and_grad`, …), and the numbers depend on its inputs; or a parameter that
                they depend on was written since this was recorded, as by `optimizer.step()`.
        """
        known = self._value
        if known is not None:
            return np.array(known) if isinstance(known, np.ndarray) else known.read()
        check_read(self._node)
        if self.is_stored:
            return read(self._node)
        value: np.ndarray = HIGHER["evaluate"](self)
        if self._node.is_view_of_stored:
            return value  # another one when that tensor is written
        if self.requires_grad:
            self.keep(value)  # the recorded op is still needed for backward()
            return np.array(value)
        stored = store(value, self.dtype, self.device, self.shape)
        stop = stopped_by(self._node)
        if stop is not None:
            stop_gradients(stop, stored)
        self._node, self._value = as_mask_of(self._node, stored), None
        release(self)
        return value

    @fitting
    def item(self) -> float | int:
        """Return the number of a one-element tensor.

        Raises:
            ShapeError: it has more than one.
        """
        if self.numel() != 1:
            raise ShapeError(f"item: the tensor must have one element; got shape {self.shape}")
        result: float | int = self.numpy().reshape(()).item()
        return result

    def tolist(self) -> Any:
        """Return the numbers as nested lists."""
        return self.numpy().tolist()

    @fitting
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
        array = as_array("copy_", "values", values, kinds=None)
        if not self.is_stored:
            raise BackendError("copy_: only stored tensors can be written; this is a recorded op")
        if array.shape != self.shape:
            raise ShapeError(f"copy_: shape must be {self.shape}; got {array.shape}")
        check_write("copy_", self._node)
        check_written("copy_", self._node, array)
        data, of_truth = dtypes.encode(array, self.dtype, "copy_"), stays_mask(self._node, array)
        if of_truth is is_mask(self._node):
            write(self._node, data)
            return self
        with Undivided():  # numbers that a mask does not have, and its end
            settle()
            write(self._node, data)
            change_truth(self._node, of_truth)
        return self

    def zero_(self) -> Tensor:
        """Set a stored tensor to zero."""
        if not self.is_stored:
            raise BackendError("zero_: only stored tensors can be written; this is a recorded op")
        check_write("zero_", self._node)
        self.device.check()
        with COMPUTE_LOCK:
            begin_write(self._node)
            lib.ggml_backend_tensor_memset(self.ptr, 0, 0, self.nbytes)
        return self

    @composed
    def to(self, device: Any = None, dtype: Any = None, non_blocking: bool = False) -> Tensor:
        """Return the same numbers on another device, or in another dtype.

        No gradient flows through a tensor on another device.

        Args:
            device: "cpu", "cuda:0", "metal", …; where the tensor lives already, it is returned.
                A dtype, "f16" or NumPy's, is that of `astype`; of a tensor both are taken.
            dtype: of `astype`; None keeps it.
            non_blocking: taken as PyTorch takes it; the result is complete in both cases.

        Raises:
            BackendError: there is no such device, or it lacks the memory.
            DTypeError: ggml does not convert between the two dtypes.
        """
        flag("to", "non_blocking", non_blocking)
        if isinstance(device, Tensor):
            device, dtype = device.device, device.dtype if dtype is None else dtype
        elif dtypes.is_dtype(device):
            device, dtype = None, device
        x = self if dtype is None else self.astype(dtype)
        return x if device is None else x._on(find_device(device))

    def _on(self, where: Device) -> Tensor:
        if where is self.device:
            return self
        if self.is_stored and self.dtype.quantized:  # its bytes: to quantise again may round
            return Tensor(copy_to(self._node, where))
        return Tensor(as_mask_of(self._node, store(self.numpy(), self.dtype, where, self.shape)))

    def move_(self, device: Device | str) -> Tensor:
        """Move a stored tensor and its gradient to another device.

        Graphs and optimizers that were made before raise when they run; `compile` records anew.

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
        grad = gradient_of(before)
        if grad is not None:
            set_gradient(after, Tensor(copy_to(grad.node, where)))
        self._node = as_mask_of(before, after)
        note_move(before)

    @fitting
    def cpu(self) -> Tensor:
        """Return the same numbers on the CPU; see `to`."""
        return self.to("cpu")

    @fitting
    def clone(self) -> Tensor:
        """Return a copy, through which gradients flow."""
        if self.requires_grad:
            copy: Tensor = HIGHER["mul"](self, 1.0)
            return copy
        return Tensor(as_mask_of(self._node, copy_to(self.detach().node, self.device)))

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self._shape)

    def dim(self) -> int:
        """Return the number of axes."""
        return self.ndim

    @fitting
    def detach(self) -> Tensor:
        """Return the same numbers; no gradient flows through the result.

        A recorded tensor is computed now; in a function that is being recorded to run many times
        (`compile`, `value_and_grad`, …) at each of its runs.
        """
        constant = self.is_stored and not self.requires_grad and stopped_by(self._node) is None
        if outer() is not None and not (constant and not is_input(self._node)):
            cut: Tensor = HIGHER["without_gradient"](self)
            return cut
        if constant:
            return self
        node = store(self.numpy(), self.dtype, self.device, self.shape)
        return Tensor(as_mask_of(self._node, node))

    def keep(self, value: np.ndarray | Computed) -> None:
        """Take what a graph has computed of this recorded tensor; reading it computes nothing."""
        if not isinstance(value, np.ndarray):
            having("Tensor.keep", "value", value, "an array or what a graph has", "below", "read")
        self._value = value
        hold(self)

    def end(self) -> None:
        """Keep the numbers, which have been computed, without the ops that led to them.

        Raises:
            RecordingError: the tensor is stored, or was not computed.
        """
        if self._value is None:
            raise RecordingError(
                f"Tensor.end: the tensor must be the computed result of an op; got {shown(self)}: "
                "leave the call out"
            )
        node = self._node
        trained = node.requires_grad  # comparisons have no gradient
        self._end = node.device, node.origin if trained else None, not trained and is_mask(node)
        if not isinstance(self._value, np.ndarray):
            self._value.below = None  # no longer asked for
        release(self)
        del self._node

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Store the numbers of a tensor that has ended when its node is asked for."""
            if name != "_node":
                return super().__getattr__(name)
            with COMPUTE_LOCK:
                if self._value is not None:
                    where, origin, of_truth = self._end
                    node = self._copied(self._value, where).node
                    if origin is not None:
                        stop_gradients(overwritten_below(self.shape, origin), node)
                    if of_truth:
                        note_mask(node)
                    self._node, self._value = node, None
            return object.__getattribute__(self, name)

    @property
    def is_computed(self) -> bool:
        """True if the numbers are there: of a stored tensor, and of one that has been computed."""
        return self._value is not None or self.is_stored

    @property
    def computed(self) -> Tensor | None:
        """A stored copy of what has been computed of a recorded tensor; None if nothing has."""
        if self._value is None:
            return None
        copy = self._copied(self._value, self.device)
        as_mask_of(self._node, copy.node)
        return copy

    @property
    def computed_from(self) -> Memory | None:
        """The memory that its numbers were computed from; None where it is not known."""
        return getattr(self._value, "below", None)

    def _copied(self, value: np.ndarray | Computed, where: Device) -> Tensor:
        """Return numbers of this tensor as a stored one."""
        if isinstance(value, np.ndarray):
            return Tensor(store(value, self.dtype, where, self.shape))
        copied: Tensor = value.tensor()
        return copied

    @fitting
    def backward(self, gradient: Any = None, retain_graph: bool | None = None) -> None:
        """Add d(self)/d(leaf) into `.grad` of every stored tensor that requires it.

        Args:
            gradient: of this tensor, of its shape; None of one element is 1.
            retain_graph: taken as PyTorch takes it; what was recorded is always kept.

        Raises:
            ShapeError: self has several elements, and no gradient is given, or one of another
                shape.
            GradientError: nothing requires a gradient, or an op has none.
        """
        if gradient is None:
            self.keep(HIGHER["backward"](self))
            return
        shape = np.shape(gradient)
        if shape != self.shape:
            raise ShapeError(f"backward: gradient must have the shape {self.shape}; got {shape}")
        HIGHER["backward"](HIGHER["sum"](HIGHER["mul"](self, gradient)))

    def __copy__(self) -> Tensor:
        copy = Tensor(self._node, self._dtype)
        if self._value is not None:
            copy.keep(self._value)
        elif not self.is_stored and not self._node.is_view_of_stored:
            hold(copy)
        return copy

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
        made = data, self.dtype.name, self.shape, self.device.name, trained
        return _restore, ((*made, True) if is_mask(node) else made)

    def describe(self) -> str:
        """Return shape, dtype, device and state, without computing anything.

        Example:
            >>> tensor([1.0]).describe()
            "Tensor(shape=(1,), dtype=f32, device='cpu', stored)"
        """
        state = "stored" if self.is_stored else "recorded"
        grad = ", requires_grad" if self.requires_grad else ""
        return (
            f"Tensor(shape={self.shape}, dtype={self.dtype.name},"
            f" device={self.device.name!r}, {state}{grad})"
        )

    def __repr__(self) -> str:
        """Show the numbers; a recorded tensor that is small is computed."""
        return written(self, computed=self.is_computed)


def _restore(
    data: np.ndarray,
    dtype: str,
    shape: tuple[int, ...],
    device: str,
    trained: bool,
    of_truth: bool = False,
) -> Tensor:
    """Unpickle a tensor; its gradient and its hooks stay behind."""
    (node,) = allocate([(check_shape("unpickle", shape), as_dtype(dtype))], find_device(device))
    result = Tensor(node)
    if data.dtype != np.uint8 or data.nbytes != result.nbytes:
        raise FormatError(
            f"unpickle: {result.describe()} needs {result.nbytes} bytes; got {data.nbytes} of"
            f" {data.dtype}"
        )
    write(result.node, data)
    result.requires_grad = trained
    if of_truth:
        note_mask(node)
    return result
