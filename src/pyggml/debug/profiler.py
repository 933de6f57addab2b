# SPDX-License-Identifier: MIT
"""The time of each op of a step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

from ..backend.headers import MOVES, address, op_name, operands
from ..backend.library import ffi, lib
from ..backend.scopes import Scope, in_turn
from ..checks import instance
from ..graph.observers import MAKERS
from ..tensors.node import Node
from .tables import html_table

__all__ = ["OpRecord", "OpSummary", "Peaks", "Profile", "profile"]


@dataclass(frozen=True)
class OpRecord:
    """One computed op.

    Args:
        op: ggml's name of it, such as MUL_MAT.
        shape: of its result, in Python order.
        dtypes: of its sources.
        start_s: seconds since the profile began.
        seconds: how long it took.
        flops: floating-point operations of a matmul, an attention or a convolution; 0 of others.
        bytes: read from its sources and written to its result, each once.
        where: the line that recorded it, or what its gradient belongs to.
    """

    op: str
    shape: tuple[int, ...]
    dtypes: tuple[str, ...]
    start_s: float
    seconds: float
    flops: int
    bytes: int
    where: str


@dataclass(frozen=True)
class OpSummary:
    """All records of one op.

    Args:
        op: ggml's name of it.
        calls: how many.
        seconds: in all.
        flops: in all.
        bytes: in all.
        share: of the time in ops.
    """

    op: str
    calls: int
    seconds: float
    flops: int
    bytes: int
    share: float

    @property
    def gflop_s(self) -> float:
        """Billions of floating-point operations a second."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gb_s(self) -> float:
        """Billions of bytes a second."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


@dataclass(frozen=True)
class Peaks:
    """The peak rates of a machine; `measure_peaks` finds them.

    Args:
        flop_s: floating-point operations a second.
        byte_s: bytes a second from and to memory.
    """

    flop_s: float
    byte_s: float

    def share(self, op: OpSummary) -> float:
        """Return the share of the attainable speed that an op reaches, at best 1.

        Above 1 are matmuls of a narrower dtype than the one measured, and ops whose data are in
        the cache.
        """
        instance("Peaks.share", "op", op, OpSummary)
        attainable = max(op.flops / self.flop_s, op.bytes / self.byte_s)
        return attainable / op.seconds if op.seconds else 0.0


class Profile:
    """The records of `profile`.

    Attributes:
        records: the computed ops, in order.

    Example:
        >>> with profile() as p:
        ...     _ = (tensor([1.0, 2.0]) * 2.0).numpy()
        >>> p.by_op()[0].op
        'SCALE'
    """

    def __init__(self) -> None:
        self.records: list[OpRecord] = []
        self._began = time.perf_counter()
        self._ended: list[float] = []

    def clock(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._began

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the end of the block; 0 inside of it."""
        return self._ended[0] - self._began if self._ended else 0.0

    def begin(self) -> None:
        """Start the clock."""
        self._began = time.perf_counter()

    def end(self) -> Callable[[], None]:
        """Return a function of C that takes the time of the whole block."""
        now = map(methodcaller("__call__"), (time.perf_counter,))
        return partial(self._ended.extend, now)

    def __call__(self, recorded: Mapping[int, Node]) -> OpTimer:
        """Make the observer of one run of a graph."""
        return OpTimer(self, recorded)

    @property
    def outside_share(self) -> float:
        """Share of the time that no op took: Python, copies in and out, planning, other code."""
        inside = sum(r.seconds for r in self.records)
        return max(0.0, 1.0 - inside / self.seconds) if self.seconds else 0.0

    def by_op(self) -> list[OpSummary]:
        """Return a summary of each op, the one that took most time first."""
        groups: dict[str, list[OpRecord]] = {}
        for record in self.records:
            groups.setdefault(record.op, []).append(record)
        total = sum(r.seconds for r in self.records) or 1.0
        found = [
            OpSummary(
                op,
                len(group),
                sum(r.seconds for r in group),
                sum(r.flops for r in group),
                sum(r.bytes for r in group),
                sum(r.seconds for r in group) / total,
            )
            for op, group in groups.items()
        ]
        return sorted(found, key=lambda s: -s.seconds)

    def table(self, peaks: Peaks | None = None) -> str:
        """Return a table by op as text.

        Args:
            peaks: what the machine attains, from `measure_peaks`; adds each op's share of it.
        """
        head = f"{'op':<22}{'calls':>7}{'ms':>11}{'share':>8}{'GFLOP/s':>10}{'GB/s':>8}"
        lines = [head + (f"{'roof':>7}" if peaks else "")]
        for s in self.by_op():
            flops = f"{s.gflop_s:.1f}" if s.flops else ""
            line = f"{s.op:<22}{s.calls:>7}{s.seconds * 1e3:>11.2f}{s.share:>8.1%}"
            line += f"{flops:>10}{s.gb_s:>8.1f}"
            lines.append(line + (f"{peaks.share(s):>7.0%}" if peaks else ""))
        inside = sum(r.seconds for r in self.records)
        lines.append(
            f"{inside * 1e3:.1f} ms in {len(self.records)} ops, "
            f"{self.seconds * 1e3:.1f} ms in all: {self.outside_share:.1%} outside of ops"
        )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """Return the table by op for a notebook."""
        rows = [
            (
                s.op,
                s.calls,
                f"{s.seconds * 1e3:.2f}",
                f"{s.share:.1%}",
                f"{s.gflop_s:.1f}" if s.flops else "",
                f"{s.gb_s:.1f}",
            )
            for s in self.by_op()
        ]
        head, *_, total = self.table().splitlines()
        return html_table(rows, head.split(), total)

    def save_trace(self, path: str | Path) -> None:
        """Write the records for chrome://tracing or Perfetto (the Trace Event Format, JSON).

        Args:
            path: file to write.

        Raises:
            OSError: it cannot be written.
        """
        events = [
            {
                "name": r.op,
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": r.start_s * 1e6,
                "dur": r.seconds * 1e6,
                "args": {
                    "shape": list(r.shape),
                    "dtypes": list(r.dtypes),
                    "flops": r.flops,
                    "bytes": r.bytes,
                    "where": r.where,
                },
            }
            for r in self.records
        ]
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
        from ..io import atomic_write

        with atomic_write(path, "w") as file:
            file.write(text)


class _Profiling(Scope):
    """The block that a profile is taken of."""

    def starts(self) -> Callable[[], Any]:
        if any(isinstance(maker, Profile) for maker in self.scopes):
            raise RuntimeError("profile: one is being taken on this thread already; leave it first")
        self.value.begin()
        return super().starts()

    def ends(self) -> Callable[[], None]:
        return in_turn([super().ends(), self.value.end()])


def profile() -> Scope:
    """Time every op that graphs compute on this thread while the block runs.

    Ops run one by one, which costs a few microseconds each; on a GPU each is waited for, too. What
    a step computes in one pass (a matmul with its bias and residual, a norm with its scale) comes
    apart into its ops, as in the list of the graph: such a step takes longer than one that is not
    profiled.

    Returns:
        What `with` enters. `as` names the profile: `print` it, or use `by_op` and `save_trace`.

    Raises:
        RuntimeError: another profile is being taken on this thread.

    Source: torch.profiler.

    Example:
        >>> with profile() as p:
        ...     _ = (tensor([1.0, 2.0]) * 2.0).numpy()
        >>> print(p)  # doctest: +SKIP
    """
    return _Profiling(MAKERS, Profile())


def _elements(ptr: Any) -> int:
    return int(lib.ggml_nelements(ptr))


def count_flops(ptr: Any) -> int:
    """Count multiplications and additions of a matmul, 2 for each pair; 0 of other ops.

    What a mask leaves out of an attention counts, and what an op computes twice counts once.
    """
    a, b = ptr.src[0], ptr.src[1]
    if ptr.op in (lib.GGML_OP_MUL_MAT, lib.GGML_OP_MUL_MAT_ID):
        return 2 * _elements(ptr) * int(a.ne[0])
    if ptr.op == lib.GGML_OP_MUL_MAT_ID_BACK:  # of the experts or of what they read
        return 2 * _elements(a) * int(b.ne[0])
    if ptr.op == lib.GGML_OP_OUT_PROD:
        return 2 * _elements(ptr) * int(b.ne[1])
    if ptr.op == lib.GGML_OP_FLASH_ATTN_EXT:
        keys = int(b.ne[1])
        return 2 * _elements(a) * keys + 2 * _elements(ptr) * keys
    if ptr.op == lib.GGML_OP_FLASH_ATTN_EXT_BACK:  # scores, weights' gradient, and those of q, k, v
        keys, values = int(ptr.src[2].ne[1]), int(ptr.src[3].ne[0])
        return 2 * int(lib.ggml_nrows(b)) * keys * (3 * int(b.ne[0]) + 2 * values)
    if ptr.op == lib.GGML_OP_CONV_2D:  # kernel (OC, IC, KH, KW)
        return 2 * _elements(ptr) * int(a.ne[0] * a.ne[1] * a.ne[2])
    if ptr.op == lib.GGML_OP_CONV_2D_DW:
        return 2 * _elements(ptr) * int(a.ne[0] * a.ne[1])
    return 0


class OpTimer:
    """The observer that takes the time before and after each op.

    Args:
        profile: where the records go.
        recorded: nodes by the address of their header in the graph.
    """

    def __init__(self, profile: Profile, recorded: Mapping[int, Node]):
        self.error: Exception | None = None
        self._profile = profile
        self._recorded = recorded
        self._start = 0.0

    def before(self, ptr: Any) -> bool:
        """Note when the op begins."""
        del ptr
        self._start = self._profile.clock()
        return True

    def after(self, ptr: Any) -> bool:
        """Record the op."""
        seconds = self._profile.clock() - self._start
        if ptr.op not in MOVES:
            sources = operands(ptr)
            moved = sum(int(lib.ggml_nbytes(t)) for t in [ptr, *sources])
            node = self._recorded.get(address(ptr))
            self._profile.records.append(
                OpRecord(
                    op_name(ptr),
                    tuple(int(n) for n in reversed(list(ptr.ne))),
                    tuple(ffi.string(lib.ggml_type_name(t.type)).decode() for t in sources),
                    self._start,
                    seconds,
                    count_flops(ptr),
                    moved,
                    node.where if node is not None else "backward",
                )
            )
        return True
