# SPDX-License-Identifier: MIT
"""Blocks of a device's memory, and how they are freed."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import OutOfMemoryError
from .device import COMPUTE_LOCK, Device
from .library import ffi, keep_interrupt, lib
from .memory import UNTOUCHED
from .not_copied import NotCopied
from .untracked import untracked

__all__ = ["Buffer", "Freer", "freer", "last_write", "next_write", "writes"]

_writes = 0


def writes() -> int:
    """Return the number of writes into stored tensors in this process."""
    return _writes


def next_write() -> int:
    """Count a write."""
    global _writes
    _writes += 1
    return _writes


def last_write(buffers: Iterable[Buffer]) -> int:
    """Return the number of the last write into one of several buffers; each has another one."""
    return max((buffer.version for buffer in buffers), default=0)


# Blocks of at least so much come from the system, full of zeros that take no memory yet.
_MAPPED_BYTES = 2**22


def freer(where: Device, free: Any) -> Any:
    """Return the function that frees memory of a device, for `ffi.gc`.

    A signal must find no Python code in there: its exception would be lost. Only memory of a GPU
    needs some, lest a forked process touch the parent's.
    """
    return Freer(where, free) if where.kind == "gpu" else free


class Freer:
    """Free memory of a GPU, unless a forked process would touch the parent's."""

    __slots__ = ("_free", "_where")

    def __init__(self, where: Device, free: Any):
        self._where = where
        self._free = free

    def __call__(self, ptr: Any) -> None:
        """Free what `ptr` points to; a Ctrl-C meanwhile is raised after the next graph."""
        try:
            if not self._where.is_lost:
                self._free(ptr)
        except KeyboardInterrupt as error:
            keep_interrupt(error)


class Buffer(NotCopied):
    """A block of a device's memory that holds tensors; freed with its last user.

    Attributes:
        is_clear: whether nothing has been written since `clear`, so that all numbers are 0.
        is_recorded: whether an op that is not computed yet may read a tensor in it.
        is_zero: whether it was full of zeros when it was made.
        memory: the box that keeps it allocated; see `untracked`.
        pending: ends what goes on in the memory, or raises; called before the memory is read or
            written. None where nothing does.
        version: how often tensors in it were written to.

    Raises:
        OutOfMemoryError: the device has not that much memory.
    """

    __slots__ = (
        "__weakref__",
        "device",
        "is_clear",
        "is_recorded",
        "is_zero",
        "memory",
        "pending",
        "size_bytes",
        "version",
    )

    instead = "copy the tensors in it"

    def __init__(self, where: Device, size_bytes: int):
        ptr, mapped = ffi.NULL, None
        if where.has_memory(size_bytes):
            mapped = _map(size_bytes) if where.kind == "cpu" else None
            if mapped is None:
                ptr = lib.ggml_backend_buft_alloc_buffer(where.buffer_type, max(size_bytes, 1))
            else:
                ptr = lib.ggml_backend_cpu_buffer_from_ptr(mapped, size_bytes)
        self._take(where, ptr, mapped, size_bytes, mapped is not None)

    @classmethod
    def over(cls, where: Device, memory: Any) -> Buffer:
        """Make a buffer of the CPU's memory that is there already, such as a mapped file's.

        Args:
            where: a CPU.
            memory: bytes that may be written to, aligned as ggml's tensors are; they are kept.
        """
        held = ffi.from_buffer(memory)
        ptr = lib.ggml_backend_cpu_buffer_from_ptr(held, len(held))
        buffer = cls.__new__(cls)
        buffer._take(where, ptr, held, len(held), False)
        return buffer

    def _take(self, where: Device, ptr: Any, mapped: Any, size_bytes: int, is_zero: bool) -> None:
        """Own ggml's buffer, and the memory under it."""
        self.is_zero = is_zero
        self.is_clear = self.is_recorded = False
        self.pending: Callable[[], None] | None = None
        self.version = 0
        if ptr == ffi.NULL:
            raise OutOfMemoryError(
                f"buffer: {where.name} cannot allocate {size_bytes:,} bytes"
                f" ({where.memory_free:,} free); use a smaller model or batch"
            )
        self.device = where
        self.size_bytes = size_bytes
        freed = ffi.gc(ptr, freer(where, lib.ggml_backend_buffer_free), size_bytes)
        self.memory = untracked((freed, mapped))
        if self.is_zero:
            UNTOUCHED.add(self)

    def touch(self) -> None:
        """Count the memory as taken, because it has been used."""
        UNTOUCHED.discard(self)

    def write(self) -> None:
        """Count a write into a tensor in it."""
        self.settle()
        self.is_clear = False
        self.version = next_write()
        UNTOUCHED.discard(self)

    def settle(self) -> None:
        """End what goes on in the memory before it is used."""
        if self.pending is not None:
            self.pending()

    @property
    def ptr(self) -> Any:
        """The `ggml_backend_buffer_t`."""
        self.device.check()
        return self.memory.item()[0]

    def clear(self) -> None:
        """Set every byte, and so every number of every tensor in it, to zero."""
        self.settle()
        with COMPUTE_LOCK:
            lib.ggml_backend_buffer_clear(self.ptr, 0)
            self.is_clear = True
            self.version = next_write()


def _map(size_bytes: int) -> Any:
    """Map zeros that the system makes page by page when they are written; None if it cannot.

    An optimizer's state is there at once, and its pages by the threads of the first step.
    """
    if size_bytes < _MAPPED_BYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return None
    try:
        return ffi.from_buffer(
            mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        )
    except (OSError, OverflowError, ValueError):
        return None
