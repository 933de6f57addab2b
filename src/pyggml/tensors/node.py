# SPDX-License-Identifier: MIT
"""Recorded ggml tensors and the contexts that hold their headers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.device import Buffer, Device
from ..backend.library import ffi, lib
from ..backend.memory import has_room
from ..errors import BackendError, ShapeError

if TYPE_CHECKING:
    from ..graph.custom_function import Pullback
    from .tensor import Tensor

__all__ = ["Arena", "Moves", "Node", "caller", "recorder"]

_PACKAGE = __name__.partition(".")[0]
# The command line, behind which there is no program of the user's; and what lies between callers.
_COMMANDS = f"{_PACKAGE}.cli."
_BETWEEN = frozenset(
    ("click", "concurrent", "contextlib", "functools", "runpy", "threading", "typer")
)
_RECORDING = ("models", "nn", "train")
# What a module's name says of its frames, asked for at every op.
_KINDS: dict[str, int] = {}
_OUTSIDE, _INSIDE, _COMMAND = 0, 1, 2
_ARENA_TENSORS = 256
# No builder that `record` calls makes more headers than this.
_HEADERS_PER_OP = 8


class Arena:
    """A ggml context that holds tensor headers and no data; freed with its last node."""

    __slots__ = ("ctx", "left")

    def __init__(self, n_tensors: int, extra_bytes: int = 0):
        size = n_tensors * lib.ggml_tensor_overhead() + extra_bytes
        if not has_room(size):
            raise BackendError(
                f"arena: cannot allocate {size:,} bytes for {n_tensors:,} tensor headers;"
                " compute in parts, with .detach() between them"
            )
        params = ffi.new("struct ggml_init_params *")
        params.mem_size, params.mem_buffer, params.no_alloc = size, ffi.NULL, True
        ctx = lib.ggml_init(params[0])
        if ctx == ffi.NULL:
            raise BackendError(f"arena: ggml has no context for {size:,} bytes of tensor headers")
        self.ctx = ffi.gc(ctx, lib.ggml_free, size)
        self.left = n_tensors


def caller() -> tuple[str, int]:
    """File and line of the first caller outside of this package.

    Where the package's own command line is the caller, those of the model that recorded.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        kind = _KINDS.get(name)
        if kind is None:
            kind = _KINDS[name] = _kind_of(name)
        if kind == _OUTSIDE:
            return frame.f_code.co_filename, frame.f_lineno
        if kind == _COMMAND:
            break
        frame = frame.f_back
    return _recording_line()


def _kind_of(module: str) -> int:
    """Whose a module is: the user's, the package's, or the package's command line."""
    if module.startswith(_COMMANDS):
        return _COMMAND
    top = module.partition(".")[0]
    return _INSIDE if top == _PACKAGE or top in _BETWEEN else _OUTSIDE


def _recording_line() -> tuple[str, int]:
    """File and line of the innermost caller in the package's models, else layers, else trainer."""
    found: dict[str, tuple[str, int]] = {}
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        unit = frame.f_globals.get("__name__", "").split(".")[1:2]
        if unit and unit[0] in _RECORDING:
            found.setdefault(unit[0], (frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return next((found[unit] for unit in _RECORDING if unit in found), ("<unknown>", 0))


class Moves:
    """How many tensors were given memory elsewhere; before the next one, all are where they were.

    Attributes:
        count: of this process.
    """

    count = 0


class Node:
    """A `ggml_tensor` with what must stay alive for it: its arena, sources and memory."""

    __slots__ = (
        "arena",
        "barrier",
        "buffer",
        "device",
        "effects",
        "grad",
        "hooks",
        "keep",
        "late",
        "limit",
        "moved",
        "origin",
        "ptr",
        "pullback",
        "requires_grad",
        "shape",
        "srcs",
    )

    def __init__(
        self,
        ptr: Any,
        arena: Arena,
        where: Device,
        shape: tuple[int, ...],
        srcs: tuple[Node, ...] = (),
        buffer: Buffer | None = None,
        requires_grad: bool = False,
    ):
        self.ptr = ptr
        self.arena = arena
        self.device = where
        self.shape = shape
        self.srcs = srcs
        self.buffer = buffer
        self.requires_grad = requires_grad
        # The function that computed these numbers from parameters without a way back to them.
        self.barrier: str | None = None
        self.grad: Tensor | None = None
        self.hooks: list[Callable[[Tensor], Any]] = []
        self.origin = caller()
        # Row numbers kept here must be below this: ggml's row ops abort on others.
        self.limit: int | None = None
        # The recorded backward of a custom function that this is a result of.
        self.pullback: Pullback | None = None
        # In-place ops that a graph which computes this carries out as well.
        self.effects: list[Node] = []
        # Whether the backward reads the result of the forward, or computes it again.
        self.keep = recorder.keep
        # Whether it is computed only when the backward comes to it.
        self.late = False
        # Whether the tensor that had this memory lives elsewhere now; see `Tensor.move_`.
        self.moved = False

    @property
    def where(self) -> str:
        """Where the caller recorded it, for messages."""
        return f"{self.origin[0]}:{self.origin[1]}"

    def check_rows(self, who: str, rows: np.ndarray, limit: int, name: str = "row numbers") -> None:
        """Refuse row numbers that are not in a table of `limit` rows."""
        if rows.size and (rows.min() < 0 or rows.max() >= limit):
            raise ShapeError(
                f"{who}: {name} must be from 0 to {limit - 1}; got {rows.min()} to {rows.max()}"
            )


class Recorder(threading.local):
    """The arena that this thread records into, and whether results are kept for a backward."""

    arena: Arena | None = None
    keep: bool = True

    def room(self) -> Arena:
        """An arena with headers left for one op."""
        if self.arena is None or self.arena.left < _HEADERS_PER_OP:
            self.arena = Arena(_ARENA_TENSORS)
        self.arena.left -= _HEADERS_PER_OP
        return self.arena


recorder = Recorder()
