# SPDX-License-Identifier: MIT
"""Shapes that ggml can hold, and stored nodes: allocating, reading and writing them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backend import dtypes
from ..backend.buffers import Buffer
from ..backend.device import COMPUTE_LOCK, Device
from ..backend.device import device as find_device
from ..backend.dtypes import DType, dtype_of_type
from ..backend.headers import address
from ..backend.library import ffi, lib
from ..errors import BackendError, DTypeError, OutOfMemoryError, ShapeError, shown
from .live import before_write
from .node import Arena, Node

__all__ = [
    "MAX_DIMS",
    "MAX_ELEMENTS",
    "allocate",
    "begin_write",
    "check_shape",
    "check_size",
    "clear",
    "copy_to",
    "count_read",
    "host_vector",
    "look",
    "memory_vector",
    "natural_dtype",
    "ne_of",
    "place",
    "place_in_buffer",
    "read",
    "read_bytes",
    "reads",
    "store",
    "whole",
    "whole_numbers",
    "write",
    "write_all",
]

MAX_DIMS = 4
MAX_ELEMENTS = 2**48


_MOST_NUMBERS = 64
# They iterate, but not over numbers in an order that somebody chose.
_NO_SEQUENCES = (str, bytes, bytearray, dict, set, frozenset)


def whole_numbers(x: Any) -> list[int] | None:
    """Return the whole numbers of a sequence; None for anything else.

    The numbers after the first few dozens, which no shape has, are not looked at.
    """
    if _is_plain(x):
        return list(x)
    if isinstance(x, _NO_SEQUENCES):
        return None
    found = []
    try:
        for n in itertools.islice(x, _MOST_NUMBERS):
            if isinstance(n, (bool, np.bool_)):
                return None
            found.append(operator.index(n))
    except TypeError:
        return None
    return found


def _is_plain(shape: Any) -> bool:
    """Return True for a short tuple or list of Python's integers, as nearly every shape is."""
    if type(shape) not in (tuple, list) or len(shape) > MAX_DIMS:
        return False
    for n in shape:  # noqa: SIM110 - a generator would take longer than the rest
        if type(n) is not int:
            return False
    return True


def check_shape(who: str, shape: Any, name: str = "shape") -> tuple[int, ...]:
    """Return a shape as a tuple that ggml can hold.

    Raises:
        TypeError: it is no whole number and no list of them.
        ShapeError: more than four axes, an extent below one, or too many elements.
    """
    if _is_plain(shape):
        result: tuple[int, ...] = tuple(shape)
    else:
        if isinstance(shape, (int, np.integer)):
            shape = (shape,)
        extents = whole_numbers(shape)
        if extents is None:
            raise TypeError(f"{who}: {name} must be whole numbers; got {shown(shape)}")
        result = tuple(extents)
    if len(result) > MAX_DIMS:
        raise ShapeError(f"{who}: ggml has at most {MAX_DIMS} axes; got {name} {shown(result)}")
    if any(n < 1 for n in result):
        raise ShapeError(f"{who}: every extent must be at least 1; got {name} {shown(result)}")
    check_size(who, result, name)
    return result


def check_size(who: str, shape: Sequence[int], name: str = "shape") -> None:
    """Raise for a shape whose bytes or strides would not fit ggml's 64-bit arithmetic.

    Raises:
        ShapeError: 2^48 elements or more, a few thousand times the memory of any machine.
    """
    if math.prod(shape) >= MAX_ELEMENTS:
        raise ShapeError(
            f"{who}: too many elements for a tensor, which holds fewer than 2^48: {name}"
            f" {shown(tuple(shape))}"
        )


def ne_of(shape: Sequence[int]) -> list[int]:
    """Return ggml's extents of a Python shape: reversed, filled up with ones."""
    return [*reversed(shape), *([1] * (MAX_DIMS - len(shape)))]


def allocate(specs: Sequence[tuple[tuple[int, ...], DType]], where: Device) -> list[Node]:
    """Make stored nodes of these shapes and dtypes in one buffer; the memory is not cleared."""
    arena = Arena(len(specs))
    headers, offsets, total = [], [], 0
    kind = where.buffer_type
    align = lib.ggml_backend_buft_get_alignment(kind)
    for shape, dtype in specs:
        columns = shape[-1] if shape else 1
        if columns % dtype.block_size:
            raise ShapeError(
                f"tensor: rows of {dtype.name} must be multiples of {dtype.block_size};"
                f" got shape {shape}"
            )
        ne = ffi.new("int64_t[]", ne_of(shape))
        header = lib.ggml_new_tensor(arena.ctx, dtype.ggml_type, MAX_DIMS, ne)
        headers.append(header)
        offsets.append(total)
        size = lib.ggml_backend_buft_get_alloc_size(kind, header)
        total += -(-size // align) * align
    buffer = Buffer(where, total)
    place = buffer.ptr
    base = ffi.cast("char *", lib.ggml_backend_buffer_get_base(place))
    for header, offset in zip(headers, offsets, strict=True):
        status = lib.ggml_backend_tensor_alloc(place, header, base + offset)
        if status != lib.GGML_STATUS_SUCCESS:
            raise BackendError(f"tensor: {where.name} could not place a tensor (status {status})")
    return [
        Node(header, arena, where, shape, buffer=buffer)
        for header, (shape, _) in zip(headers, specs, strict=True)
    ]


def place(memory: np.ndarray, dtype: DType, shape: tuple[int, ...], where: Device) -> Node | None:
    """Make a stored node of bytes where they lie; None where the device or alignment forbids it."""
    aligned = memory.ctypes.data % lib.ggml_backend_buft_get_alignment(where.buffer_type) == 0
    if where.kind != "cpu" or not aligned or not memory.flags.c_contiguous:
        return None
    arena = Arena(1)
    header = lib.ggml_new_tensor(
        arena.ctx, dtype.ggml_type, MAX_DIMS, ffi.new("int64_t[]", ne_of(shape))
    )
    if lib.ggml_backend_buft_get_alloc_size(where.buffer_type, header) != memory.nbytes:
        return None
    buffer = Buffer.over(where, memory)
    base = lib.ggml_backend_buffer_get_base(buffer.ptr)
    if lib.ggml_backend_tensor_alloc(buffer.ptr, header, base) != lib.GGML_STATUS_SUCCESS:
        return None
    return Node(header, arena, where, shape, buffer=buffer)


def whole(node: Node, first: int = 0, size: int | None = None) -> Node:
    """Return one f32 vector over a stored node's buffer, gaps between tensors included.

    Args:
        node: in the buffer.
        first: number of the buffer's element that the vector begins with.
        size: elements; None goes to the buffer's end.
    """
    assert node.buffer is not None
    arena, buffer = Arena(1), node.buffer
    shape = (buffer.size_bytes // 4 - first if size is None else size,)
    header = lib.ggml_new_tensor_1d(arena.ctx, lib.GGML_TYPE_F32, shape[0])
    base = ffi.cast("char *", lib.ggml_backend_buffer_get_base(buffer.ptr)) + 4 * first
    status = lib.ggml_backend_tensor_alloc(buffer.ptr, header, base)
    if status != lib.GGML_STATUS_SUCCESS:
        raise BackendError(f"tensor: {node.device.name} could not place it (status {status})")
    return Node(header, arena, node.device, shape, buffer=buffer)


def place_in_buffer(node: Node) -> int:
    """Return the number of the buffer's f32 element that a stored node begins with."""
    assert node.buffer is not None
    base = ffi.cast("char *", lib.ggml_backend_buffer_get_base(node.buffer.ptr))
    return int(ffi.cast("char *", node.ptr.data) - base) // 4


@contextmanager
def host_vector(node: Node) -> Iterator[np.ndarray]:
    """Give the numbers of a stored f32 vector to change; those of a device are copied back."""
    assert node.buffer is not None
    if node.device.kind != "cpu":
        numbers = read(node)
        yield numbers
        write(node, dtypes.encode(numbers, dtypes.f32, "tensor"))
        return
    begin_write(node)
    yield memory_vector(node)


def memory_vector(node: Node) -> np.ndarray:
    """Return the numbers of a stored f32 tensor of the CPU where they lie; counts no write.

    The array keeps the memory: what is sent may outlive the tensor.
    """
    assert node.buffer is not None
    node.buffer.is_clear = False
    return np.asarray(_Memory(node))


class _Memory:
    """The memory of a stored f32 tensor, as NumPy asks for it; an array's base, which owns it."""

    __slots__ = ("__array_interface__", "_buffer")

    def __init__(self, node: Node):
        self._buffer = node.buffer
        self.__array_interface__ = {
            "version": 3,
            "typestr": np.dtype(np.float32).str,
            "shape": (int(lib.ggml_nelements(node.ptr)),),
            "data": (address(lib.ggml_get_data(node.ptr)), False),
        }


_reads = 0


def reads() -> int:
    """Return how often numbers have been read in this process."""
    return _reads


def count_read() -> None:
    """Count a read; a function that depends on more than layouts is not `on_demand` then."""
    global _reads
    _reads += 1


def read_bytes(node: Node, ptr: Any = None) -> np.ndarray:
    """Copy a node's bytes out: a stored one's, or those of its copy `ptr` in a graph."""
    count_read()
    node.device.check()
    ptr = node.ptr if ptr is None else ptr
    size = int(lib.ggml_nbytes(ptr))
    if not find_device("cpu").has_memory(size):
        raise OutOfMemoryError(f"numpy: {size:,} bytes are more than is free; read a part, t[a:b]")
    raw = np.empty(size, np.uint8)
    with COMPUTE_LOCK:
        if node.buffer is not None:
            node.buffer.settle()
        lib.ggml_backend_tensor_get(ptr, ffi.from_buffer(raw), 0, raw.nbytes)
    return raw


def read(node: Node, ptr: Any = None) -> np.ndarray:
    """Copy a node's numbers out; see `read_bytes`."""
    return dtypes.decode(read_bytes(node, ptr), dtype_of_type(node.ptr.type), node.shape)


def begin_write(node: Node) -> None:
    """Count a write into a stored node, after what was recorded of it and is not computed yet."""
    buffer = node.buffer
    assert buffer is not None
    if buffer.is_recorded:
        before_write((buffer,))
    buffer.write()


def clear(node: Node) -> None:
    """Set every number of every tensor in a stored node's buffer to zero."""
    assert node.buffer is not None
    before_write((node.buffer,))
    node.buffer.clear()


def look(node: Node) -> np.ndarray:
    """Return a stored node's numbers to look at, where they lie if that is the host's memory."""
    if node.device.kind != "cpu" or node.buffer is None:
        return read(node)
    count_read()
    node.buffer.settle()
    raw = np.frombuffer(ffi.buffer(node.ptr.data, lib.ggml_nbytes(node.ptr)), np.uint8)
    return dtypes.decode(raw, dtype_of_type(node.ptr.type), node.shape)


def write(node: Node, data: np.ndarray) -> None:
    """Overwrite a stored node with bytes that `dtypes.encode` made."""
    node.device.check()
    with COMPUTE_LOCK:
        if node.buffer is not None and node.buffer.is_recorded:
            before_write((node.buffer,))
        _put(node, ffi.from_buffer(data), data.nbytes)


def write_all(writes: Collection[tuple[Node, np.ndarray]]) -> None:
    """Overwrite stored nodes, each with bytes that `dtypes.encode` made; on an error none.

    What may fail comes before the first write. A handler of a signal may raise between two writes,
    where the caller is not inside of an `Undivided`.
    """
    with COMPUTE_LOCK:
        buffers = {node.buffer for node, _ in writes if node.buffer is not None}
        for node, _ in writes:
            node.device.check()
        for buffer in buffers:
            buffer.settle()
        ready = [(node, ffi.from_buffer(data), data.nbytes) for node, data in writes]
        before_write(buffers)
        for node, data, size in ready:
            _put(node, data, size)


def _put(node: Node, data: Any, size: int) -> None:
    """Overwrite a stored node that nothing is computed from any more."""
    if node.buffer is not None:
        node.buffer.write()
    lib.ggml_backend_tensor_set(node.ptr, data, 0, size)


def store(values: np.ndarray, dtype: DType, where: Device, shape: tuple[int, ...]) -> Node:
    """Make a stored node that holds `values`."""
    data = dtypes.encode(values, dtype, "tensor")
    (node,) = allocate([(shape, dtype)], where)
    write(node, data)
    return node


def copy_to(node: Node, where: Device) -> Node:
    """Return a copy of a stored node on a device, with its notes."""
    (copy,) = allocate([(node.shape, dtype_of_type(node.ptr.type))], where)
    write(copy, read_bytes(node))
    copy.requires_grad = node.requires_grad
    copy.notes = None if node.notes is None else dict(node.notes)
    return copy


_TEXTS = "classes become numbers by np.unique(values, return_inverse=True), texts by a Tokenizer"
# By NumPy's kind of what is no number.
_CURES = {
    **dict.fromkeys("US", _TEXTS),
    "O": "an array of one kind of numbers is needed, such as np.array(values, np.float32)",
    "c": "give .real and .imag",
    **dict.fromkeys("mM", "give differences as numbers, such as values / np.timedelta64(1, 's')"),
    "V": "give one field of the records",
}


def natural_dtype(array: np.ndarray) -> DType:
    """Return the default dtype of numbers."""
    if array.dtype.kind == "f":
        return dtypes.f16 if array.dtype == np.float16 else dtypes.f32
    if array.dtype.kind in "iu":
        return dtypes.i32
    if array.dtype.kind == "b":  # as comparisons give them
        return dtypes.f32
    cure = _CURES.get(array.dtype.kind, "convert with .astype(np.float32)")
    raise DTypeError(f"tensor: expected integers or floats; got {array.dtype}; {cure}")
