# SPDX-License-Identifier: MIT
"""Functions whose ops are recorded when a graph needs them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ..backend.device import alone
from ..backend.dtypes import DType, dtype_of_type
from ..backend.scopes import Scope
from ..errors import fitting
from .autocast import at_level, rounding
from .live import LIVE, is_operand, mark
from .node import Node, expanding, listen, listeners
from .storage import reads
from .tensor import Tensor
from .tracing import is_tracing
from .truth import SAME_NUMBERS

__all__ = ["Recalled", "on_demand"]

_F = TypeVar("_F", bound=Callable[..., Tensor])
_T = TypeVar("_T")

_MOST = 1024


class Recalled(Generic[_T]):
    """A table that forgets what was not asked for during its last thousand new entries."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: dict[Hashable, _T] = {}
        self._before: dict[Hashable, _T] = {}

    def get(self, key: Hashable) -> _T | None:
        """Return the entry of a key, or None."""
        found = self._now.get(key)
        if found is None:
            found = self._before.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: Hashable, value: _T) -> None:
        """Add an entry."""
        if len(self._now) >= _MOST:
            self._before, self._now = self._now, {}
        self._now[key] = value


class _Place:
    """The place of an operand among the arguments of a call."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number


class _Call:
    """A call of a function with tensors of certain layouts, and with certain other arguments.

    Args:
        fn: the function.
        args: its arguments.
        kwargs: those that have names.
        level: of `autocast`.
        operands: the nodes of the tensors among the arguments.
        result: the node that it returned.

    Attributes:
        reads: places of the operands that name the memory of stored tensors; None where the result
            names it as well.
    """

    __slots__ = (
        "_args",
        "_fn",
        "_kwargs",
        "_level",
        "dtype",
        "layout",
        "notes",
        "reads",
        "repeats",
        "requires_grad",
    )

    def __init__(
        self,
        fn: Callable[..., Tensor],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        level: int,
        operands: Sequence[Node],
        result: Node,
    ):
        places = {operand: _Place(i) for i, operand in enumerate(operands)}
        self._fn, self._level = fn, level
        self._args = [_kept(value, places) for value in args]
        self._kwargs = {name: _kept(value, places) for name, value in kwargs.items()}
        self.layout = result.layout
        self.dtype: DType = dtype_of_type(result.ptr.type)
        self.requires_grad = result.requires_grad
        notes = {table: value for table, value in (result.notes or {}).items() if not table.of_ops}
        self.notes = notes or None
        self.repeats = result.ptr.op in SAME_NUMBERS
        self.reads: list[int] | None = None
        if not result.layout.views_stored:
            self.reads = [i for i, operand in enumerate(operands) if is_operand(operand)]

    def expand(self, node: Node) -> None:
        """Record the ops of a node's call, after those of the calls that its operands wait for."""
        todo = [node]
        while todo:
            waiting = [each for each in todo[-1].operands if not each.is_recorded]
            if waiting:
                todo += waiting
                continue
            at = todo.pop()
            if not at.is_recorded:
                assert isinstance(at.call, _Call)
                at.call._record(at)

    def _record(self, node: Node) -> None:
        tensors = [Tensor(each) for each in node.operands]
        args = [_given(value, tensors) for value in self._args]
        kwargs = {name: _given(value, tensors) for name, value in self._kwargs.items()}
        with Scope(expanding, (node.origin, node.born)), at_level(self._level):
            made = self._fn(*args, **kwargs).node
        node.take(made)


def _kept(value: Any, places: Mapping[Node, _Place]) -> Any:
    """Return an argument with places instead of tensors."""
    # No closure: one that calls itself would keep the tensors until the garbage collector runs.
    if type(value) is Tensor:
        return places[value.node]
    if type(value) in _SEVERAL:
        return type(value)(_kept(each, places) for each in value)
    return value


def _given(value: Any, tensors: Sequence[Tensor]) -> Any:
    """Return an argument with tensors instead of places."""
    if type(value) is _Place:
        return tensors[value.number]
    if type(value) in _SEVERAL:
        return type(value)(_given(each, tensors) for each in value)
    return value


# A call, or for a function that returns one of its arguments the number of that.
_calls: Recalled[_Call | _Place] = Recalled()
_SEVERAL = (list, tuple)
_EXACT = frozenset((int, str, bool, type(None), type(...), DType))


def on_demand(fn: _F) -> _F:
    """Record the ops of a function when a graph needs them, and not when it is called.

    Its first call with tensors of certain layouts (shape, dtype, strides, device, and whether they
    are masks) and certain other arguments records its ops, and raises what there is to raise. Later
    such calls return at once what has the same layout; `Node.ptr` and `Node.srcs` call the
    function, with the line of the call. A training loop finds its kept graph by the calls alone.

    The function must depend on nothing but the layouts of its tensors, its other arguments and
    `autocast`: on no numbers, no random numbers, no notes of nodes, and not on how a tensor was
    computed. Where it reads or stores numbers it is called at once, and so is one inside of a trace
    or a checkpoint, and one with other arguments than tensors, single numbers and texts, and lists
    of these.

    Args:
        fn: takes tensors and returns one.
    """
    fn = fitting(fn)  # type: ignore[assignment]

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        if listeners.entries or expanding.entries or is_tracing():
            return fn(*args, **kwargs)
        level = rounding()
        key: list[Any] = [fn, level, len(args)]
        operands: list[Node] = []
        for value in (*args, *kwargs, *kwargs.values()) if kwargs else args:
            if type(value) is Tensor:
                node = value.node
                operands.append(node)
                key += node.layout, node.requires_grad
            elif not _add(key, operands, value):
                return fn(*args, **kwargs)
        if len(operands) > 1 and len(set(operands)) < len(operands):
            key += map(operands.index, operands)
        whole = tuple(key)
        known = _calls.get(whole)
        if known is None:
            return _first(fn, whole, level, args, kwargs, operands)
        if isinstance(known, _Place):
            returned: Tensor = args[known.number]
            return returned
        result = Node.of_call(known, tuple(operands))
        made = Tensor(result, known.dtype)
        if known.reads is not None:  # as `hold` does, in a third of the time
            LIVE[id(made)] = result.holder  # type: ignore[assignment]
            for i in known.reads:
                buffer = operands[i].buffer
                if buffer is not None:
                    buffer.is_recorded = True
                else:
                    mark(operands[i])
        return made

    return call  # type: ignore[return-value]


def _add(key: list[Any], operands: list[Node], value: Any) -> bool:
    """Add an argument to a key; return False for one that cannot be there."""
    kind = type(value)
    if kind in _EXACT:
        key += kind, value  # with its type: 1 and True are equal
    elif kind is float:
        key += kind, value if value else str(value)  # 0.0 and -0.0 are equal
    elif kind is Tensor:
        node = value.node
        operands.append(node)
        key += node.layout, node.requires_grad
    elif kind is slice:
        key.append(kind)
        parts = value.start, value.stop, value.step
        return all(_add(key, operands, part) for part in parts)
    elif kind in _SEVERAL:
        key += kind, len(value)
        for each in value:
            if not _add(key, operands, each):
                return False
    else:
        return False
    return True


def _first(
    fn: Callable[..., Tensor],
    key: tuple[Any, ...],
    level: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    operands: list[Node],
) -> Tensor:
    """Call a function, and remember what it returns."""
    made: list[Node] = []
    before = reads()
    with listen(made.append):
        result: Tensor = fn(*args, **kwargs)
    same = [i for i, value in enumerate(args) if value is result]
    if same:
        _calls.put(key, _Place(same[0]))
        return result
    node = result.node
    if not any(each is node for each in made):
        return result
    if reads() != before or any(each.buffer is not None for each in made):
        return result
    notes = (node.notes or {}).items()
    if any(value is not True and not table.of_ops for table, value in notes):
        return result
    with alone():  # no other thread writes meanwhile
        now: list[Node] = []
        for value in (*args, *kwargs.values()):
            _add([], now, value)
        if now != operands:  # one has: what depends on what it wrote has its numbers by now
            return result
        known = _Call(fn, args, kwargs, level, operands, node)
    _calls.put(key, known)
    node.call, node.operands = known, tuple(operands)
    return result
