# SPDX-License-Identifier: MIT
"""Devices, their memory, and the number of threads."""

from __future__ import annotations

import os
import threading
import warnings
from contextlib import AbstractContextManager
from typing import Any

from ..checks import instance, number, whole
from ..errors import BackendError, shown
from .cores import available_cores, wanted_threads
from .library import ffi, lib
from .memory import LARGE_BYTES, available_bytes, promised_bytes
from .packages import load_backends
from .untracked import untracked

__all__ = [
    "COMPUTE_LOCK",
    "Device",
    "alone",
    "default_device",
    "device",
    "devices",
    "get_threads",
    "set_default_device",
    "set_threads",
]

# A ggml backend keeps scratch memory between calls and is not re-entrant; graphs of one process
# therefore run one after the other. Within a graph all threads of the backend work.
COMPUTE_LOCK = threading.RLock()

_NODE = ffi.typeof("struct ggml_tensor *")
_KINDS = {
    lib.GGML_BACKEND_DEVICE_TYPE_CPU: "cpu",
    lib.GGML_BACKEND_DEVICE_TYPE_GPU: "gpu",
    lib.GGML_BACKEND_DEVICE_TYPE_IGPU: "gpu",
    lib.GGML_BACKEND_DEVICE_TYPE_ACCEL: "accel",
}


def alone() -> AbstractContextManager[Any]:
    """Let no other thread compute, or write tensors, inside the block.

    Threads wait for each other's graphs in any case. Inside this block nothing of another thread
    runs between several computations, say of the steps of a training: `generate`, `save` or a copy
    of the model see the weights after a whole step. A thread that waits inside the block for one
    that computes waits for ever.

    Example:
        >>> with pg.alone():
        ...     weights = model.state_dict()
    """
    return COMPUTE_LOCK


class Device:
    """A place where tensors live and graphs run.

    Attributes:
        name: "cpu", "cuda:0", "metal", …
        description: the hardware's own name.
        kind: "cpu", "gpu" or "accel".
    """

    def __init__(self, name: str, kind: str, handle: Any):
        instance("Device", "handle", handle, ffi.CData, 'use pg.device("cpu")')
        self.name = name
        self.kind = kind
        self._handle = handle
        self._backend: Any = None
        self._buffer_type: Any = None
        self._nothing: Any = None
        self._total: int | None = None
        self.description = ffi.string(lib.ggml_backend_dev_description(handle)).decode(
            errors="replace"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.name,)

    def __repr__(self) -> str:
        return f"Device({self.name!r}, {self.description!r})"

    def _memory(self) -> tuple[int, int]:
        free, total = ffi.new("size_t *"), ffi.new("size_t *")
        lib.ggml_backend_dev_memory(self._handle, free, total)
        return free[0], total[0]

    @property
    def memory_free(self) -> int:
        """Free memory in bytes, as the backend or, for the CPU, the system reports it."""
        if self.kind != "cpu":
            return self._memory()[0]
        known = available_bytes()
        # What was promised is not taken yet.
        return max(0, (self._memory()[0] if known is None else known) - promised_bytes())

    @property
    def memory_total(self) -> int:
        """Total memory in bytes."""
        if self._total is None:
            self._total = self._memory()[1]
        return self._total

    @property
    def is_lost(self) -> bool:
        """True in a forked process, which cannot use the parent's GPU."""
        return _forked and self.kind == "gpu"

    def check(self) -> None:
        """Raise for a device that a forked process cannot use.

        Raises:
            BackendError: it is a GPU, and this is a forked process.
        """
        if self.is_lost:
            raise BackendError(
                f"device: a forked process cannot use {self.name}; use the spawn start method"
                ' (multiprocessing.get_context("spawn")), or device="cpu"'
            )

    @property
    def backend(self) -> Any:
        """The device's `ggml_backend_t`, made on first use and kept for the process."""
        self.check()
        if self._backend is None:
            with COMPUTE_LOCK:
                if self._backend is None:
                    backend = lib.ggml_backend_dev_init(self._handle, ffi.NULL)
                    if backend == ffi.NULL:
                        raise BackendError(
                            f"device: {self.name} ({self.description}) could not be started;"
                            ' see the log of "pyggml.ggml", or use device="cpu"'
                        )
                    self._backend = backend
                    self.apply_threads()
        return self._backend

    def apply_threads(self) -> None:
        """Tell a backend that was started the number of CPU threads."""
        if self._backend is None or self.is_lost:
            return
        registry = lib.ggml_backend_dev_backend_reg(self._handle)
        setter = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_set_n_threads")
        if setter != ffi.NULL:
            with COMPUTE_LOCK:
                ffi.cast("void (*)(ggml_backend_t, int)", setter)(self._backend, get_threads())

    @property
    def buffer_type(self) -> Any:
        """The `ggml_backend_buffer_type_t` of tensors on this device."""
        self.check()
        return self._start()

    def _start(self) -> Any:
        """The buffer type, asked for by one thread: Vulkan's backend starts the device there.

        A second thread that asks meanwhile would be given a device that is not made yet.
        """
        if self._buffer_type is None:
            with COMPUTE_LOCK:
                if self._buffer_type is None:
                    self._buffer_type = lib.ggml_backend_dev_buffer_type(self._handle)
        return self._buffer_type

    def has_memory(self, size_bytes: int) -> bool:
        """Return True if so much is free; Linux may grant more and kill the process later.

        Args:
            size_bytes: of what is to be allocated, >= 0.

        Raises:
            TypeError: the size is no number.
            ValueError: the size is below 0.
        """
        size = number("Device.has_memory", "size_bytes", size_bytes, 0)
        if size < LARGE_BYTES:
            return True
        return self.kind != "cpu" or size <= self.memory_free

    def supports(self, node: Any) -> bool:
        """Return True if the device computes this `ggml_tensor *`."""
        _need_node("Device.supports", node)
        if not self.is_lost:
            self._start()
        return bool(lib.ggml_backend_dev_supports_op(self._handle, node))

    @property
    def rounds_operands(self) -> bool:
        """True if matmuls that may round their f32 operands copy each to bf16 before they start.

        The CPU rounds while it packs an operand, which costs nothing.
        """
        registry = lib.ggml_backend_dev_backend_reg(self._handle)
        asked = lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_rounds_operands")
        if asked == ffi.NULL or self.is_lost:
            return False
        return bool(ffi.cast("bool (*)(ggml_backend_dev_t)", asked)(self._handle))

    def computes_into(self, node: Any) -> bool:
        """Return True if the device computes this op without scratch memory after its result.

        Some ops work in memory behind their result, which a stored tensor has not.
        """
        _need_node("Device.computes_into", node)
        alone = lib.ggml_nbytes(node)
        fits = lib.ggml_backend_buft_get_alloc_size(self.buffer_type, node) <= alone
        return bool(fits) and self.supports(node)

    def has_failed(self) -> bool:
        """Return True if the device lost the results of a graph, as when the system stops it.

        A wait on Metal does not report it, but the next graph fails; so this runs one without ops.
        Where CUDA or Vulkan loses a graph, ggml's wait ends the process.
        """
        if self.name != "metal":
            return False
        if self._nothing is None:
            self._nothing = _empty_graph()
        status = lib.ggml_backend_graph_compute(self.backend, self._nothing[1])
        return bool(status != lib.GGML_STATUS_SUCCESS)


def _need_node(who: str, node: Any) -> None:
    """Raise for what ggml cannot take for a tensor."""
    if not isinstance(node, ffi.CData) or ffi.typeof(node) is not _NODE or node == ffi.NULL:
        raise TypeError(f"{who}: node must be a ggml_tensor *; got {shown(node)}")


def _empty_graph() -> tuple[Any, Any]:
    """The box of a context, and its graph without ops."""
    params = ffi.new("struct ggml_init_params *")
    params.mem_size = lib.ggml_graph_overhead_custom(1, False)
    params.mem_buffer, params.no_alloc = ffi.NULL, True
    ctx = lib.ggml_init(params[0])
    return untracked(ffi.gc(ctx, lib.ggml_free)), lib.ggml_new_graph_custom(ctx, 1, False)


def _scan() -> dict[str, Device]:
    # Not ggml_backend_load_all, which also runs libggml-*.so of the current directory.
    library = os.environ.get("GGML_BACKEND_PATH")
    if library:
        lib.ggml_backend_load(os.fsencode(library))
    load_backends()
    found: dict[str, Device] = {}
    for i in range(lib.ggml_backend_dev_count()):
        handle = lib.ggml_backend_dev_get(i)
        kind = _KINDS.get(lib.ggml_backend_dev_type(handle), "gpu")
        own = ffi.string(lib.ggml_backend_dev_name(handle)).decode(errors="replace").lower()
        family = own.rstrip("0123456789").rstrip(":") or own
        number = own[len(own.rstrip("0123456789")) :]
        if kind == "cpu" or family in ("metal", "mtl"):
            name = "cpu" if kind == "cpu" else "metal"
        else:
            name = f"{family}:{number}" if number else family
        found.setdefault(name, Device(name, kind, handle))
    return found


_found: dict[str, Device] | None = None
_default: Device | None = None
_threads: int | None = None
# Of the cores, the share of a rank that has others on its host, or of a busy machine.
_share: int | None = None
# The number of a rank among those of its host.
_place = 0
_forked = False


def _all() -> dict[str, Device]:
    global _found
    with COMPUTE_LOCK:
        if _found is None:
            _found = _scan()
    return _found


def devices() -> list[Device]:
    """List the devices of this machine, the best one first.

    Example:
        >>> "cpu" in [d.name for d in devices()]
        True
    """
    order = {"gpu": 0, "cpu": 1, "accel": 2}
    return sorted(_all().values(), key=lambda d: order[d.kind])


def device(name: Device | str | None = None) -> Device:
    """Find a device by name.

    Args:
        name: "auto" for the best one, "cpu", "cuda" or "cuda:1", "metal"; None for the default.
            A name without a number means the first GPU; among the ranks of a host, each its own.

    Raises:
        BackendError: there is no such device; the message lists those that there are.

    Example:
        >>> device("cpu").name
        'cpu'
    """
    if isinstance(name, Device):
        return name
    if name is None:
        return default_device()
    if not isinstance(name, str):
        raise BackendError(f"device: expected a name such as 'cpu'; got {name!r}")
    wanted = name.lower()
    found = _all()
    if wanted == "auto":
        wanted = devices()[0].name.partition(":")[0]
    family = [each for own, each in found.items() if own.partition(":")[0] == wanted]
    if family:
        return family[_place % len(family)]
    if wanted in found:
        return found[wanted]
    raise BackendError(f"device: no {name!r} here; there are {', '.join(['auto', *found])}")


def default_device() -> Device:
    """Return the device of tensors that name none; the CPU until `set_default_device` is called."""
    return _default if _default is not None else _all()["cpu"]


def set_default_device(name: Device | str) -> None:
    """Choose the device of tensors that name none.

    Raises:
        BackendError: there is no such device.
    """
    global _default
    _default = device(name)


def get_threads() -> int:
    """Return the number of CPU threads of a graph.

    By default OMP_NUM_THREADS tells it; without that it is the number of cores open to the
    process, which its affinity and the CPU quota of its container limit. In a forked process it is
    1; see `set_threads`.
    """
    if _forked:
        return 1
    return _threads or _share or wanted_threads() or available_cores()


def threads_are_chosen() -> bool:
    """Return whether the number of threads is not simply that of the cores."""
    return _forked or any((_threads, _share, wanted_threads()))


def own_gpu(place: int) -> None:
    """Let names without a number mean another GPU for each rank of a host.

    Args:
        place: number of the rank among those of its host.
    """
    global _place
    _place = place


def divide_cores(threads: int | None) -> None:
    """Set the number of CPU threads that `set_threads` has not set.

    Args:
        threads: the share of the cores; None takes all again.
    """
    global _share
    _share = threads
    if not _forked:
        for each in _all().values():
            each.apply_threads()


def set_threads(n: int) -> None:
    """Set the number of CPU threads.

    Where the system refuses a thread, a graph computes on fewer, and the logger "pyggml.ggml" gets
    a warning; call this function again to start them all.

    A forked process computes on one thread, so that many of them do not compete for the cores. Use
    the spawn start method where that is too slow.

    Args:
        n: from 1 to 512 (ggml's GGML_MAX_N_THREADS).

    Raises:
        TypeError: `n` is not a whole number.
        ValueError: `n` is out of range.

    Warns:
        RuntimeWarning: this is a forked process, and `n` is more than one.
    """
    global _threads
    n = whole("set_threads", "n", n, 1, 512)
    if _forked and n > 1:
        warnings.warn(
            "set_threads: a forked process computes on one thread; use the spawn start method",
            RuntimeWarning,
            stacklevel=2,
        )
    _threads = n
    for each in _all().values():
        each.apply_threads()


class _ForkGuard:
    """Forks between computations: a child would wait forever for the lock of a lost thread."""

    def __init__(self) -> None:
        self._held = 0

    def before(self) -> None:
        COMPUTE_LOCK.acquire()
        self._held += 1

    def after(self) -> None:
        if self._held:  # not where Ctrl-C ended the wait
            self._held -= 1
            COMPUTE_LOCK.release()

    def in_child(self) -> None:
        global _forked
        _forked = True
        self.after()
        for each in (_found or {}).values():
            each.apply_threads()


_guard = _ForkGuard()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_guard.before, after_in_parent=_guard.after, after_in_child=_guard.in_child
    )
