# SPDX-License-Identifier: MIT
"""Recorded ggml tensors and the contexts that hold their headers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..backend.buffers import Buffer, writes
from ..backend.device import Device
from ..backend.headers import MOVES
from ..backend.library import ffi, lib
from ..backend.not_copied import NotCopied
from ..backend.scopes import Scope, Scopes
from ..backend.untracked import untracked
from ..errors import OutOfMemoryError
from .layouts import Layout, layout_of

__all__ = [
    "Arena",
    "Call",
    "Node",
    "NodeTable",
    "call_from_line",
    "caller",
    "expanding",
    "listen",
    "listeners",
    "recorder",
]

_T = TypeVar("_T")

_PACKAGE = __name__.partition(".")[0]
# The command line, behind which there is no program of the user's; and what lies between callers.
_COMMANDS = f"{_PACKAGE}.cli."
_BETWEEN = frozenset(
    ("click", "concurrent", "contextlib", "functools", "runpy", "threading", "typer")
)
_RECORDING = ("models", "nn", "train")
# What a module's name says of its frames, asked for at every op: by the id of its globals, which
# are kept so that no other module gets this id.
_KINDS: dict[int, tuple[int, dict[str, Any]]] = {}
# That of other modules by their name, as their globals are the program's to drop.
_BY_NAME: dict[str, int] = {}
_OUTSIDE, _INSIDE, _COMMAND = 0, 1, 2
_ARENA_TENSORS = 256
# No builder that `record` calls makes more headers than this.
_HEADERS_PER_OP = 8
_TAKE_LOCK = threading.Lock()


class Arena:
    """A ggml context that holds tensor headers and no data; freed with its last node.

    Attributes:
        ctx: the context.
        left: headers that it still has room for.
        memory: the box that keeps it allocated; see `untracked`.
    """

    __slots__ = ("ctx", "left", "memory")

    def __init__(self, n_tensors: int, extra_bytes: int = 0):
        size = n_tensors * lib.ggml_tensor_overhead() + extra_bytes
        params = ffi.new("struct ggml_init_params *")
        params.mem_size, params.mem_buffer, params.no_alloc = size, ffi.NULL, True
        try:
            ctx = lib.ggml_init(params[0])
        except MemoryError:
            raise OutOfMemoryError(
                f"arena: cannot allocate {size:,} bytes for {n_tensors:,} tensor headers;"
                " compute in parts, with .detach() between them, or free memory"
            ) from None
        self.ctx = ctx
        self.left = n_tensors
        self.memory = untracked(ffi.gc(ctx, lib.ggml_free, size))


def caller() -> tuple[str, int]:
    """File and line of the first caller outside of this package.

    Where the package's own command line is the caller, those of the model that recorded.
    """
    found = _line_behind(sys._getframe(1))
    return _recording_line() if found is None else found


def call_from_line(fn: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Call a function that records many ops: `caller` looks only once behind this call."""
    outer = recorder.line
    recorder.line = _line_behind(sys._getframe(2))
    try:
        return fn(*args, **kwargs)
    finally:
        recorder.line = outer


def _line_behind(frame: FrameType | None) -> tuple[str, int] | None:
    """Return file and line of the first caller outside of this package; None: its command line."""
    kinds, from_line = _KINDS, call_from_line.__code__
    while frame is not None:
        if frame.f_code is from_line and recorder.line is not None:
            return recorder.line
        known = kinds.get(id(frame.f_globals))
        kind = _remember(frame.f_globals) if known is None else known[0]
        if kind == _COMMAND:
            return None
        if kind == _OUTSIDE:
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _remember(module: dict[str, Any]) -> int:
    """Return the kind of a module by its globals; the package's own are asked for once."""
    name = module.get("__name__", "")
    kind = _BY_NAME.get(name)
    if kind is None:
        kind = _BY_NAME[name] = _kind_of(name)
    if kind != _OUTSIDE:
        _KINDS[id(module)] = kind, module
    return kind


def _kind_of(module: str) -> int:
    """Return whether a module is the user's, the package's, or the package's command line."""
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


class Call(Protocol):
    """The result of a function before its ops are recorded; see `on_demand`.

    Attributes:
        layout: of the result.
        notes: that the function makes of the result.
        repeats: the result may have the same numbers as an operand.
        requires_grad: whether gradients flow through the result.
    """

    layout: Layout
    notes: dict[NodeTable[Any], Any] | None
    repeats: bool
    requires_grad: bool

    def expand(self, node: Node) -> None:
        """Record the ops of a node that the function returned."""


class Node(NotCopied):
    """A `ggml_tensor` with what must stay alive for it: its arena, sources and memory.

    What a module above remembers of a node is in a `NodeTable` of its own. The ops of a call are
    recorded when somebody asks for its `ptr` or `srcs`.

    Attributes:
        born: how many writes there had been into stored tensors when it was made.
        call: the call that returned it, if it is one that may be recorded later.
        holder: returns the tensor by which the program holds a recorded node, or None.
        layout: shape, type, strides, and whether the numbers are truth values.
        operands: the nodes that the call was given.
    """

    __slots__ = (
        "arena",
        "born",
        "buffer",
        "call",
        "device",
        "holder",
        "layout",
        "notes",
        "operands",
        "origin",
        "ptr",
        "requires_grad",
        "shape",
        "srcs",
    )
    instead = "copy its tensor"
    layout: Layout

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
        self.arena: Arena | None = arena
        self.device = where
        self.shape = shape
        self.srcs = srcs
        self.buffer = buffer
        self.requires_grad = requires_grad
        self.notes: dict[NodeTable[Any], Any] | None = None
        self.holder: Callable[[], Any] | None = None
        self.call: Call | None = None
        self.operands: tuple[Node, ...] = ()
        if expanding.entries:  # for a call that was made before
            self.origin, self.born = expanding.innermost()
            return
        self.born = writes()
        self.origin = caller()
        if listeners.entries:
            for listener in dict.fromkeys(listeners):
                listener(self)

    @classmethod
    def of_call(cls, call: Call, operands: tuple[Node, ...]) -> Node:
        """Make the node that a call returns; its ops are recorded later."""
        node, layout = cls.__new__(cls), call.layout
        node.call, node.operands, node.layout = call, operands, layout
        node.shape, node.device = layout.shape, layout.device
        node.requires_grad = call.requires_grad
        node.arena = node.buffer = node.holder = None
        node.notes = None if call.notes is None else dict(call.notes)
        node.born = writes()
        found = _line_behind(sys._getframe(2))
        node.origin = _recording_line() if found is None else found
        return node

    @classmethod
    def again(cls, node: Node, operands: tuple[Node, ...]) -> Node:
        """Make the node of the same call with other operands of the same layouts."""
        assert node.call is not None
        copy = cls.of_call(node.call, operands)
        copy.origin, copy.born = node.origin, node.born
        marks = {t: v for t, v in (node.notes or {}).items() if not t.of_ops}
        copy.notes = marks or None
        return copy

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Find out what is not known yet; called for slots that are empty."""
            if name == "layout":
                self.layout = layout_of(self.ptr, self.shape, self.device, self.buffer is not None)
            elif name not in ("ptr", "srcs"):
                raise AttributeError(name)
            elif self.arena is None:
                self.call.expand(self)
            # Another thread may have recorded it since the slot was found empty.
            return object.__getattribute__(self, name)

    @property
    def is_recorded(self) -> bool:
        """True if its op is recorded, or there is none; False for a call to be recorded later."""
        return self.arena is not None

    @property
    def is_view_of_stored(self) -> bool:
        """True if it names numbers of a stored tensor, whatever they are, and writes none."""
        return self.layout.views_stored and (self.call is not None or self.ptr.op in MOVES)

    def take(self, made: Node) -> None:
        """Become what a call has recorded; of two threads that record it the first one's."""
        with _TAKE_LOCK:
            if self.arena is None:
                for table, value in (made.notes or {}).items():
                    if table.of_ops:
                        table[self] = value
                self.srcs, self.ptr = made.srcs, made.ptr
                self.arena = made.arena

    def moved_to(self, ptr: Any, arena: Arena, srcs: tuple[Node, ...]) -> Node:
        """Return this recorded node with another header and other sources, and its notes."""
        copy = Node.__new__(Node)
        copy.ptr, copy.arena, copy.srcs = ptr, arena, srcs
        copy.device, copy.shape, copy.buffer = self.device, self.shape, self.buffer
        copy.requires_grad, copy.origin, copy.born = self.requires_grad, self.origin, self.born
        copy.notes = None if self.notes is None else dict(self.notes)
        copy.holder = copy.call = None
        copy.operands = ()
        if self.layout.of_truth:
            copy.layout = copy.layout.with_truth(True)
        return copy

    @property
    def where(self) -> str:
        """The caller's file and line, for messages."""
        return f"{self.origin[0]}:{self.origin[1]}"


class NodeTable(Generic[_T]):
    """A table keyed by node, owned by the module that needs it; an entry ends with its node.

    An entry may lead back to its node: the two are collected together.

    Args:
        of_ops: the entries come with the ops of a call, and are made again with them.

    Example:
        >>> marked = NodeTable()
        >>> t = pg.tensor([1.0])
        >>> marked[t.node] = "yes"
        >>> marked.get(t.node)
        'yes'
    """

    __slots__ = ("of_ops",)

    def __init__(self, of_ops: bool = False):
        self.of_ops = of_ops

    def __setitem__(self, node: Node, value: _T) -> None:
        if node.notes is None:
            node.notes = {}
        node.notes[self] = value

    def __contains__(self, node: Node) -> bool:
        return node.notes is not None and self in node.notes

    def get(self, node: Node) -> _T | None:
        """Return the entry of a node, or None."""
        return None if node.notes is None else node.notes.get(self)

    def discard(self, node: Node) -> None:
        """Remove the entry of a node, if there is one."""
        if node.notes is not None:
            node.notes.pop(self, None)


class Recorder(threading.local):
    """The arena that this thread records into, and the line that it records for.

    Attributes:
        arena: has the headers.
        line: what `caller` finds behind the innermost `call_from_line`; None: the command line.
    """

    arena: Arena | None = None
    line: tuple[str, int] | None = None

    def room(self) -> Arena:
        """Return an arena with headers left for one op."""
        if self.arena is None or self.arena.left < _HEADERS_PER_OP:
            self.arena = Arena(_ARENA_TENSORS)
        self.arena.left -= _HEADERS_PER_OP
        return self.arena


recorder = Recorder()
# Who is told of each new node.
listeners = Scopes()
# Line and writes of the calls whose ops are being recorded.
expanding = Scopes()


def listen(listener: Callable[[Node], None]) -> Scope:
    """Call `listener` with each node that this thread makes inside the block."""
    return Scope(listeners, listener)
