# SPDX-License-Identifier: MIT
"""Random programs: leaves, 20 to 200 steps, and losses over all that is not used otherwise.

A program is plain data, so that it can be printed, shrunk and run in several ways. Bounds of the
numbers are kept while it is drawn, so that no chain of steps leaves what f32 holds well.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import pyggml as pg

from ..draw import Choices
from .table import KINKS, PG, PRODUCTS, RULES

__all__ = ["Leaf", "Maker", "Program", "Step", "draw", "leaves_of", "shapes_of", "shrunk"]

MOST = 400  # elements of a value
Shape = tuple[int, ...]
ROUNDED = frozenset(["rounded"])
ROUGH = frozenset(KINKS) | {"clamp", "max_pool", "l2_norm", "swiglu_oai", "swiglu_oai_fused"}


class Rejected(Exception):
    """A step makes more elements than a value may have, or its result cannot be compared."""


@dataclass(frozen=True)
class Leaf:
    """Stored numbers; value number `at` of the program."""

    at: int
    shape: Shape
    low: float = -1.0
    high: float = 1.0
    grad: bool = True


@dataclass(frozen=True)
class Step:
    """Value number `at` is what the step `name` makes of the values `sources`."""

    at: int
    name: str
    sources: tuple[int, ...]
    args: tuple[Any, ...] = ()
    dtype: str = "f32"  # to which autocast may round


@dataclass(frozen=True)
class Program:
    """A computation; see `runs.check`."""

    seed: int
    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    losses: tuple[tuple[int, ...], ...]  # values that each loss sums the weighted means of
    segments: tuple[tuple[int, int], ...] = ()  # steps [a, b) that a checkpoint computes again
    outputs: tuple[int, ...] = ()

    def script(self) -> str:
        """Return Python that runs this program again, from the project's folder."""
        lines = [f"    Program(seed={self.seed},", "        leaves=("]
        lines += [f"            {leaf!r}," for leaf in self.leaves]
        lines += ["        ),", "        steps=("]
        lines += [f"            {step!r}," for step in self.steps]
        lines += ["        ),", f"        losses={self.losses!r},"]
        lines += [f"        segments={self.segments!r},", f"        outputs={self.outputs!r})"]
        head = "from tests.fuzz.programs.draw import Leaf, Program, Step\n"
        head += "from tests.fuzz.programs.runs import check\n\n"
        return head + "check(\n" + "\n".join(lines) + "\n)\n"


@dataclass
class Maker(Choices):
    """The program while it is drawn."""

    random: random.Random
    values: list[pg.Tensor] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    dtype: str = "f32"
    rounding: bool = False  # f16 and bf16 occur; where a function is not smooth they matter

    @property
    def shapes(self) -> list[Shape]:
        return [v.shape for v in self.values]

    def number(self) -> float:
        return round(self.random.uniform(-1.5, 1.5), 2) or 0.5

    def leaf(self, shape: Shape, low: float = -1.0, high: float = 1.0) -> int:
        """Return a leaf of this shape: a new one, or one there is."""
        alike = [e.at for e in self.leaves if (e.shape, e.low, e.high) == (shape, low, high)]
        if alike and self.chance(0.3):
            return int(self.pick(*alike))
        at = len(self.values)
        self.leaves.append(Leaf(at, shape, low, high, self.chance(0.85)))
        self.values.append(pg.zeros(shape))
        self.bounds.append(max(abs(low), abs(high)))
        return at

    def matching(self, wanted: Callable[[Shape], bool]) -> int | None:
        """Return a value whose shape is wanted; late ones, and those not used yet, come first."""
        found = [i for i, v in enumerate(self.values) if wanted(v.shape)]
        if not found:
            return None
        fresh = [i for i in found if i not in self.used]
        if fresh and self.chance(0.6):
            found = fresh
        return int(self.pick(*found[-12:])) if self.chance(0.8) else int(self.pick(*found))

    def value(self, wanted: Callable[[Shape], bool] = lambda s: True) -> int:
        """Return a value whose shape is wanted, a leaf if there is none."""
        found = self.matching(wanted)
        if found is not None:
            return found
        for _ in range(200):
            shape = tuple(self.pick(1, 2, 3, 4, 5, 6) for _ in range(self.int(0, 4)))
            if wanted(shape):
                return self.leaf(shape)
        raise AssertionError("no shape is wanted")

    def alike(self, i: int) -> int:
        """Return a value of the same shape."""
        found = self.matching(lambda s: s == self.shapes[i])
        return i if found is None else found

    def other(self, i: int) -> int:
        """Return a value that broadcasts with this one."""
        shape = self.shapes[i]

        def fits(s: Shape) -> bool:
            try:
                return math.prod(np.broadcast_shapes(s, shape)) <= MOST
            except ValueError:
                return False

        if self.chance(0.2):
            return self.leaf(tuple(self.pick(1, n) for n in shape[self.int(0, len(shape)) :]))
        found = self.matching(fits)
        return i if found is None else found

    def tame(self, i: int, limit: float) -> int:
        """Return the value, or what is left of it when its numbers come below the limit."""
        if self.bounds[i] <= limit:
            return i
        if self.chance(0.2):
            return self.emit("tanh", (i,), (), 1.0)
        factor = limit / self.bounds[i]
        return self.emit("scale", (i,), (factor, 0.0), limit)

    def made(self) -> int | None:
        """Return the number of a value that a step made; some hand on the stored tensor itself."""
        found = [s.at for s in self.steps if s.name != "keep" and not self.values[s.at].is_stored]
        return int(self.pick(*found)) if found else None

    def sources_of(self, i: int) -> tuple[int, ...]:
        return next(s.sources for s in self.steps if s.at == i)

    def emit(self, name: str, sources: tuple[int, ...], args: tuple[Any, ...], bound: float) -> int:
        """Add a step; what it makes is recorded, for its shape."""
        if name in (ROUGH if self.rounding else ROUNDED):
            raise Rejected
        if name == "keep":
            self.kept.append(sources[1])
            result = self.values[sources[0]]
        else:
            result = PG[name](*(self.values[i] for i in sources), *args)
        if result.numel() > MOST:
            raise Rejected
        dtype = self.dtype if name in PRODUCTS else "f32"
        self.steps.append(Step(len(self.values), name, sources, args, dtype))
        self.values.append(result)
        self.bounds.append(float(bound))
        self.used.update(sources)
        return len(self.values) - 1


def draw(seed: int, most: int = 200) -> Program:
    """Draw the program of a seed, of about `most` steps at most."""
    r = random.Random(f"program-{seed}")
    m = Maker(r)
    for _ in range(r.randint(2, 5)):
        m.leaf(tuple(m.pick(1, 2, 3, 4, 5, 6, 7) for _ in range(m.pick(0, 1, 2, 2, 3, 3, 4))))
    target = min(most, r.choice((20, 20, 30, 50, 100, 200)))
    m.rounding = r.random() < 0.25
    weights = [weight for weight, _ in RULES]
    while len(m.steps) < target:
        if m.rounding and r.random() < 0.1:
            m.dtype = m.pick("f32", "f16", "bf16")
        with contextlib.suppress(Rejected):
            r.choices(RULES, weights)[0][1](m)
    loose = [i for i in range(len(m.values)) if i not in m.used]
    r.shuffle(loose)
    count = min(len(loose), r.randint(1, 3))
    segments = []
    at = 0
    while at < len(m.steps):
        end = min(len(m.steps), at + r.randint(2, 25))
        if r.random() < 0.6:
            segments.append((at, end))
        at = end
    outputs = tuple(sorted(r.sample(range(len(m.values)), min(5, len(m.values)))))
    losses = tuple(tuple(loose[k::count]) for k in range(count))
    return Program(seed, tuple(m.leaves), tuple(m.steps), losses, tuple(segments), outputs)


def leaves_of(program: Program) -> dict[int, np.ndarray]:
    """Return the numbers of each leaf, by its value's number."""
    result = {}
    for leaf in program.leaves:
        rng = np.random.default_rng([program.seed, leaf.at])
        result[leaf.at] = rng.uniform(leaf.low, leaf.high, leaf.shape).astype(np.float32)
    return result


def _pruned(program: Program, losses: tuple[tuple[int, ...], ...]) -> Program:
    """Return the program with only what these losses are made of."""
    needed = {i for loss in losses for i in loss}
    steps: list[Step] = []
    for step in reversed(program.steps):
        if step.at in needed:
            steps.insert(0, step)
            needed.update(step.sources)
    numbers = {s.at: k for k, s in enumerate(steps)}
    segments = []
    for a, b in program.segments:
        inside = [numbers[s.at] for s in program.steps[a:b] if s.at in numbers]
        if inside:
            segments.append((inside[0], inside[-1] + 1))
    return replace(
        program,
        leaves=tuple(e for e in program.leaves if e.at in needed),
        steps=tuple(steps),
        losses=losses,
        segments=tuple(segments),
        outputs=tuple(i for i in program.outputs if i in needed),
    )


def shrunk(
    program: Program, fails: Callable[[Program], bool], limit: int = 300
) -> tuple[Program, int]:
    """Return a smaller program that fails as well, and how many were tried.

    A loss is left out, a loss is taken of an earlier value, a step becomes a leaf of its shape, a
    segment is left out.
    """
    tried = 0
    again = True
    while again and tried < limit:
        again = False
        for smaller in _smaller(program):
            tried += 1
            if tried > limit:
                break
            if fails(smaller):
                program, again = smaller, True
                break
    return program, tried


def _smaller(program: Program) -> Any:
    values = [i for loss in program.losses for i in loss]
    if len(values) > 1:
        half = len(values) // 2
        for part in (values[:half], values[half:]):
            yield _pruned(program, (tuple(part),))
        if len(values) < 8:
            for i in values:
                yield _pruned(program, (tuple(v for v in values if v != i),))
    for k in range(len(program.steps) - 1):
        yield _pruned(program, ((program.steps[k].at,),))
    if program.segments:
        yield replace(program, segments=())
        for segment in program.segments:
            yield replace(program, segments=tuple(s for s in program.segments if s != segment))
    shapes = shapes_of(program)
    for step in program.steps:
        if step.name == "keep":
            continue
        leaf = Leaf(step.at, shapes[step.at])
        without = tuple(s for s in program.steps if s.at != step.at)
        kept = tuple(s for s in without if not (s.name == "keep" and s.sources[0] == step.at))
        if len(kept) == len(without):
            changed = replace(program, leaves=(*program.leaves, leaf), steps=kept, segments=())
            yield _pruned(changed, program.losses)


def shapes_of(program: Program) -> dict[int, Shape]:
    """Return the shape of each value."""
    values = {leaf.at: pg.zeros(leaf.shape) for leaf in program.leaves}
    for step in program.steps:
        if step.name == "keep":
            values[step.at] = values[step.sources[0]]
        else:
            values[step.at] = PG[step.name](*(values[i] for i in step.sources), *step.args)
    return {i: v.shape for i, v in values.items()}
