# SPDX-License-Identifier: MIT
"""The parameters as one vector, and what L-BFGS computes of such vectors on their device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ... import ops
from ...graph import Graph
from ...tensors import Tensor, tensor, zeros_group
from ..inplace import assign

__all__ = ["FlatVectors"]

# Outputs and effects.
_Record = Callable[[], tuple[list[Tensor], list[Tensor]]]

# A line search holds the gradients at both ends of its interval, at the start and at a new point.
_GRADIENTS = ("g0", "g1", "g2", "g3")


class FlatVectors:
    """Vectors as long as all parameters together, by name, and graphs of them, recorded once.

    "d" is the direction, "x" where a line search starts, "before" the gradient there; "g0" to
    "g3" hold gradients for as long as somebody needs them. What is computed of a gradient is
    computed of its copy "now": one graph serves them all.

    Args:
        params: f32 parameters on one device.
        grads: gradient of each.
        history_size: pairs of step and change of the gradient that are kept.
    """

    def __init__(
        self, params: Sequence[Tensor], grads: Mapping[Tensor, Tensor], history_size: int
    ) -> None:
        self._params, self._grads = list(params), grads
        self._device = params[0].device
        self._size = sum(p.numel() for p in params)
        names = ("d", "x", "before", "now", *_GRADIENTS)
        shapes = [(self._size,)] * len(names) + [(history_size, self._size)] * 2
        made = zeros_group([(shape, "f32") for shape in shapes], self._device)
        self._named = dict(zip((*names, "steps", "changes"), made, strict=True))
        self._t = tensor(np.zeros((1,), np.float32), device=self._device)
        self._row = tensor(np.zeros((1,), np.int32), device=self._device)
        self._order = tensor(np.zeros((history_size,), np.int32), device=self._device)
        # 1 / (y·s) of each pair in order, and after them the scale of the first estimate.
        self._numbers = tensor(np.zeros((history_size + 1,), np.float32), device=self._device)
        self._graphs: dict[str, tuple[Graph, list[Tensor]]] = {}
        self._held: list[str] = []
        self._loaded = ""

    def saved(self) -> dict[str, Tensor]:
        """Return the state that a resumed run needs."""
        kept = {"direction": "d", "gradient": "before", "steps": "steps", "changes": "changes"}
        return {f"history.{name}": self._named[own] for name, own in kept.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all vectors."""
        return sum(value.nbytes for value in self._named.values())

    def graphs(self) -> list[Graph]:
        """Return the graphs that were recorded so far."""
        return [graph for graph, _ in self._graphs.values()]

    def _run(self, key: str, record: _Record) -> list[float]:
        """Run what `record` gave, outputs and effects, at its first call."""
        if key not in self._graphs:
            outputs, effects = record()
            graph = Graph(outputs, effects=effects, device=self._device)
            self._graphs[key] = graph, outputs
        graph, outputs = self._graphs[key]
        graph.run()
        return [float(graph.read(out).reshape(())) for out in outputs]

    def _parts(self, name: str) -> list[Tensor]:
        """Return the part of a vector that each parameter has."""
        parts, start = [], 0
        for param in self._params:
            parts.append(self._named[name][start : start + param.numel()])
            start += param.numel()
        return parts

    def gather_grad(self) -> str:
        """Copy the gradients into an unused vector and return its name."""
        name = next(n for n in _GRADIENTS if n not in self._held)
        self._held.append(name)

        def record() -> tuple[list[Tensor], list[Tensor]]:
            grads = [ops.reshape(self._grads[p], (p.numel(),)) for p in self._params]
            return [], [assign(to, g) for to, g in zip(self._parts(name), grads, strict=True)]

        self._run(f"gather {name}", record)
        self._loaded = ""
        return name

    def hold(self, names: Iterable[str]) -> None:
        """Free all gradient vectors but these."""
        self._held = list(dict.fromkeys(names))

    def _load(self, name: str) -> None:
        """Copy a vector to where the graphs read it."""
        if name != self._loaded:
            now = self._named["now"]
            self._run(f"load {name}", lambda: ([], [assign(now, self._named[name])]))
            self._loaded = name

    def keep_start(self) -> None:
        """Copy the parameters: a line search starts here."""

        def record() -> tuple[list[Tensor], list[Tensor]]:
            values = [ops.reshape(p, (p.numel(),)) for p in self._params]
            return [], [assign(to, v) for to, v in zip(self._parts("x"), values, strict=True)]

        self._run("start", record)

    def keep_grad(self, name: str) -> None:
        """Remember a gradient for the next change, and for the direction."""
        before = self._named["before"]
        self._run(f"keep {name}", lambda: ([], [assign(before, self._named[name])]))

    def move(self, t: float) -> None:
        """Set the parameters to x + t * d."""
        self._t.copy_(np.asarray([t], np.float32))

        def record() -> tuple[list[Tensor], list[Tensor]]:
            effects = []
            for param, x, d in zip(self._params, self._parts("x"), self._parts("d"), strict=True):
                there = ops.add(x, ops.mul(d, self._t))
                effects.append(assign(param, ops.reshape(there, param.shape)))
            return [], effects

        self._run("move", record)

    def slope(self, name: str) -> float:
        """Return the scalar product of a gradient and the direction."""
        v = self._named
        self._load(name)
        return self._run("slope", lambda: ([_dot(v["now"], v["d"])], []))[0]

    def largest(self, name: str) -> float:
        """The largest absolute element; NaN where an element is NaN."""

        def record() -> tuple[list[Tensor], list[Tensor]]:
            size = ops.abs(self._named["now"])
            at = ops.argmax(ops.reshape(size, (1, self._size)), -1)
            largest = ops.get_rows(ops.reshape(size, (self._size, 1)), at)
            # argmax passes NaN over; a sum does not
            return [largest, ops.sum(ops.scale(size, 0.0))], []

        self._load(name)
        largest, nothing = self._run("largest", record)
        self._loaded = "" if name == "d" else name
        return largest + nothing

    def length_1(self, name: str) -> float:
        """The sum of the absolute elements."""
        self._load(name)
        return self._run("sum", lambda: ([ops.sum(ops.abs(self._named["now"]))], []))[0]

    def steepest(self) -> None:
        """Take the negative of the remembered gradient for the direction."""
        v = self._named
        self._run("steepest", lambda: ([], [assign(v["d"], ops.neg(v["before"]))]))

    def _pair(self) -> tuple[Tensor, Tensor]:
        """The last step, and what it changed the gradient by."""
        v = self._named
        return ops.mul(v["d"], self._t), ops.sub(v["now"], v["before"])

    def difference(self, name: str, t: float) -> tuple[float, float]:
        """y·s and y·y of the last pair."""
        self._t.copy_(np.asarray([t], np.float32))

        def record() -> tuple[list[Tensor], list[Tensor]]:
            s, y = self._pair()
            return [_dot(y, s), _dot(y, y)], []

        self._load(name)
        curvature, square = self._run("difference", record)
        return curvature, square

    def remember(self, name: str, t: float, row: int) -> None:
        """Write the last pair into a row of the history."""
        self._t.copy_(np.asarray([t], np.float32))
        self._row.copy_(np.asarray([row], np.int32))

        def record() -> tuple[list[Tensor], list[Tensor]]:
            kept = zip(("steps", "changes"), self._pair(), strict=True)
            rows = [(self._named[k], ops.reshape(x, (1, self._size))) for k, x in kept]
            return [], [ops.set_rows(table, x, self._row) for table, x in rows]

        self._load(name)
        self._run("remember", record)

    def two_loops(self, rows: Sequence[int], rho: np.ndarray, scale: float) -> None:
        """Compute the direction from the remembered gradient and the pairs in `rows`, oldest first.

        Source: Nocedal and Wright 2006, algorithm 7.4.
        """
        count = len(rows)
        order, numbers = np.zeros(self._order.shape, np.int32), np.zeros(self._numbers.shape)
        order[:count], numbers[:count] = rows, rho[list(rows)]
        numbers[-1] = scale
        self._order.copy_(order)
        self._numbers.copy_(numbers.astype(np.float32))

        def record() -> tuple[list[Tensor], list[Tensor]]:
            v = self._named

            def row(table: str, i: int) -> Tensor:
                found = ops.get_rows(v[table], self._order[i : i + 1])
                return ops.reshape(found, (self._size,))

            q, amounts = ops.neg(v["before"]), {}
            for i in reversed(range(count)):
                rho_i = self._numbers[i : i + 1]
                amounts[i] = ops.mul(_dot(row("steps", i), q), rho_i)
                q = ops.sub(q, ops.mul(row("changes", i), amounts[i]))
            r = ops.mul(q, self._numbers[-1:])
            for i in range(count):
                back = ops.mul(_dot(row("changes", i), r), self._numbers[i : i + 1])
                r = ops.add(r, ops.mul(row("steps", i), ops.sub(amounts[i], back)))
            return [], [assign(v["d"], r)]

        key = f"loops {count}"
        # Once the history is full, the count stays.
        self._graphs = {k: g for k, g in self._graphs.items() if k == key or "loops" not in k}
        self._run(key, record)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return ops.sum(ops.mul(a, b))
