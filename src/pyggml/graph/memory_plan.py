# SPDX-License-Identifier: MIT
"""Memory planning: ggml plans the results of one graph, or of several that take turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..backend.buffers import freer
from ..backend.device import Device
from ..backend.device import device as find_device
from ..backend.library import ffi, lib
from ..backend.memory import LARGE_BYTES
from ..backend.untracked import untracked
from ..errors import OutOfMemoryError

__all__ = ["Activations", "Computation"]


@dataclass(eq=False)
class Computation:
    """A ggml graph with the data that planning its memory needs.

    Args:
        cgraph: the graph.
        ctx: context of its headers, but for those of stored tensors.
        memory: the box that keeps the context allocated; see `untracked`.
        n_nodes: ops.
        n_tensors: headers in all.
        most_bytes: results without reuse, at most.
        operands: of each op, as they were recorded; filled where a plan may replace them.
    """

    cgraph: Any
    ctx: Any
    n_nodes: int
    n_tensors: int
    most_bytes: int
    memory: Any
    operands: list[tuple[Any, list[Any]]] = field(default_factory=list)

    def unplan(self, several: bool) -> None:
        """Undo what an earlier plan did to the headers.

        Args:
            several: whether it was for several devices. ggml's scheduler then puts copies of its
                own in the place of operands from another one, and frees them with itself.
        """
        for ptr, sources in self.operands:
            ptr.src = sources
        keeps = several and not self.operands
        ptr = lib.ggml_get_first_tensor(self.ctx)
        while ptr != ffi.NULL:
            ptr.data = ffi.NULL
            ptr.buffer = ffi.NULL
            if keeps and ptr.src[0] != ffi.NULL:
                self.operands.append((ptr, ffi.unpack(ptr.src, lib.GGML_MAX_SRC)))
            ptr = lib.ggml_get_next_tensor(self.ctx, ptr)


class Activations:
    """Memory of a device for the results of graphs.

    Graphs that share it are planned into the same memory, which is as large as the largest needs.
    Each finds its results there until another of them runs.

    Args:
        where: the device; only the CPU's can be shared, as ggml plans a graph of several devices
            once only.

    Example:
        >>> shared = Activations(pg.device("cpu"))
        >>> a, b = (Graph([pg.ones((n,)) * 2.0], activations=shared) for n in (3, 4))
        >>> b.run(), a.run()  # doctest: +SKIP
    """

    def __init__(self, where: Device):
        self.device = where
        self._sched: Any = None
        self._capacity = 0
        self._holder: Computation | None = None

    @property
    def _several(self) -> bool:
        """True if the CPU computes what the device does not."""
        return self.device.kind != "cpu"

    def _devices(self) -> list[Device]:
        """Return the graphs' device, and the CPU for the ops that it lacks."""
        return [self.device, *([find_device("cpu")] if self._several else [])]

    @property
    def memory_bytes(self) -> int:
        """Bytes that are allocated."""
        if self._sched is None:
            return 0
        return sum(
            int(lib.ggml_backend_sched_get_buffer_size(self._sched.item(), where.backend))
            for where in self._devices()
        )

    def is_held_by(self, graph: Computation) -> bool:
        """Return True if the memory has the results of this graph."""
        return self._holder is graph

    def take(self, graph: Computation) -> Any:
        """Plan a graph into this memory, unless it is the one planned last.

        Args:
            graph: what will be computed.

        Returns:
            The scheduler that computes it.

        Raises:
            OutOfMemoryError: the device has not that much memory.
        """
        if self._holder is graph:
            return self._sched.item()
        self._holder = None
        # ggml cannot allocate with a scheduler that has only measured: each gets its own.
        if graph.most_bytes >= LARGE_BYTES:
            self.measure(graph)
        graph.unplan(self._several)
        if self._sched is None or graph.n_tensors > self._capacity:
            self._sched = None  # before the next one is made
            self._sched = self._scheduler(graph)
            self._capacity = graph.n_tensors
        else:
            lib.ggml_backend_sched_reset(self._sched.item())
        if not lib.ggml_backend_sched_alloc_graph(self._sched.item(), graph.cgraph):
            self._sched = None  # its memory is wanted for measuring
            graph.unplan(self._several)
            self.measure(graph)
            raise OutOfMemoryError(f"graph: {self.device.name} could not allocate the activations")
        self._holder = graph
        return self._sched.item()

    def measure(self, graph: Computation) -> int:
        """Return the bytes that a graph needs.

        Raises:
            OutOfMemoryError: they are more than the device has free.
        """
        places = self._devices()
        sizes = ffi.new("size_t[]", len(places))
        graph.unplan(self._several)
        sched = self._scheduler(graph)
        lib.ggml_backend_sched_reserve_size(sched.item(), graph.cgraph, sizes)
        del sched  # its memory may be what is missing
        own = self.memory_bytes  # given back before more is taken
        for place, size in zip(places, sizes, strict=True):
            if size <= own:
                continue
            if not place.has_memory(size - own) or size - own > place.memory_free:
                raise OutOfMemoryError(
                    f"graph: {place.name} cannot allocate {size:,} bytes for activations"
                    f" ({place.memory_free + own:,} free); use a smaller batch or sequence"
                )
        return sum(sizes)

    def _scheduler(self, graph: Computation) -> Any:
        """Make a scheduler in a box that keeps it allocated."""
        backends = [where.backend for where in self._devices()]
        size = graph.n_tensors
        handles = ffi.new("ggml_backend_t[]", backends)
        try:
            sched = lib.ggml_backend_sched_new(handles, ffi.NULL, len(handles), size, False, True)
        except MemoryError:
            raise OutOfMemoryError(
                f"graph: the bookkeeping of {graph.n_nodes:,} ops takes more memory than is free;"
                " compute in parts, with .detach() between them, or free memory"
            ) from None
        return untracked(ffi.gc(sched, freer(self.device, lib.ggml_backend_sched_free)))
