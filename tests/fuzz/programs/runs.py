# SPDX-License-Identifier: MIT
"""Run a program in several ways and compare.

eager     each loss is computed and taken backward by itself; gradients add up in `.grad`
graph     one `Graph` of all losses, outputs and gradients, run twice
compiled  `compile` for the outputs, `value_and_grad` for the gradients
again     a `Graph` whose segments are computed a second time by the backward
step      a `Graph` with gradients that are not stored, which updates the leaves
torch     PyTorch in float64

`graph` and `again` must have the same bits, but for autocast on GPUs. All are compared with
PyTorch where it is installed, as closely as PyTorch in float32 comes to float64, times 20.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import pyggml as pg
from pyggml import Graph, ops
from pyggml.graph import attach_update, grad_of

from .draw import Program, Step, leaves_of, shapes_of
from .table import JUMPS, KINKS, PG, PRODUCTS, torch_table

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

__all__ = ["Wrong", "check", "counts"]

Array = Any
counts: Counter[str] = Counter()
NEAR = 1e-5  # of a kink
LR = 0.125


class Wrong(AssertionError):
    """Two ways of a program differ."""


@dataclass
class Found:
    """What one way gives: losses, outputs, gradients by leaf, buffers of `keep`."""

    losses: list[Array]
    outputs: list[Array]
    grads: dict[int, Array]
    kept: list[Array]

    def items(self) -> Iterator[tuple[str, Array]]:
        for name, values in (("loss", self.losses), ("output", self.outputs), ("kept", self.kept)):
            for k, value in enumerate(values):
                yield f"{name} {k}", np.asarray(value, np.float64)
        for at, grad in self.grads.items():
            yield f"gradient of leaf {at}", np.asarray(grad, np.float64)


def _weight(program: Program, at: int, shape: tuple[int, ...]) -> Array:
    """Return the weights of a value's mean in its loss."""
    rng = np.random.default_rng([program.seed, at, 1])
    return rng.uniform(0.5, 1.5, shape).astype(np.float32)


@dataclass
class Recorded:
    """A program recorded in pyggml."""

    leaves: dict[int, pg.Tensor]
    values: dict[int, pg.Tensor]
    losses: list[pg.Tensor]
    kept: list[pg.Tensor]


def _stored(program: Program) -> dict[int, pg.Tensor]:
    numbers = leaves_of(program)
    return {e.at: pg.tensor(numbers[e.at], requires_grad=e.grad) for e in program.leaves}


def _apply(step: Step, values: dict[int, pg.Tensor], kept: list[pg.Tensor]) -> pg.Tensor:
    if step.name == "keep":
        at, of = (values[i] for i in step.sources)
        buffer = pg.zeros(of.shape)
        kept.append(buffer)
        if at.is_stored:
            return at
        return attach_update(at, ops.cpy(of, buffer))
    with contextlib.ExitStack() as stack:
        if step.dtype != "f32":
            stack.enter_context(pg.autocast(step.dtype))
        return PG[step.name](*(values[i] for i in step.sources), *step.args)


def _record(program: Program, leaves: dict[int, pg.Tensor], again: bool = False) -> Recorded:
    values = dict(leaves)
    kept: list[pg.Tensor] = []
    at = 0
    ends = dict(program.segments) if again else {}
    while at < len(program.steps):
        end = ends.get(at)
        if end is None:
            step = program.steps[at]
            values[step.at] = _apply(step, values, kept)
            at += 1
            continue
        steps = program.steps[at:end]
        later = {i for s in program.steps[end:] for i in s.sources}
        later |= {i for loss in program.losses for i in loss} | set(program.outputs)
        visible = [step.at for step in steps if step.at in later]

        def segment(steps: Any = steps, visible: Any = visible) -> list[pg.Tensor]:
            inside = dict(values)
            for step in steps:
                inside[step.at] = _apply(step, inside, kept)
            return [inside[step.at] for step in steps if step.at in visible]

        values.update(zip(visible, pg.checkpoint(segment), strict=True))
        at = end
    losses = []
    for wanted in program.losses:
        total = None
        for i in wanted:
            part = (values[i] * pg.tensor(_weight(program, i, values[i].shape))).mean()
            total = part if total is None else total + part
        assert total is not None
        losses.append(total)
    return Recorded(leaves, values, losses, kept)


def _sum(losses: list[pg.Tensor]) -> pg.Tensor:
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    return total


def _wanted(recorded: Recorded) -> dict[int, pg.Tensor]:
    """Return the leaves that a gradient is asked of: those that some loss depends on."""
    return {at: t for at, t in recorded.leaves.items() if t.requires_grad}


def eager(program: Program) -> Found:
    recorded = _record(program, _stored(program))
    outputs = [recorded.values[i].numpy() for i in program.outputs]
    losses = []
    for loss in recorded.losses:
        losses.append(loss.numpy())
        with contextlib.suppress(pg.GradientError):  # nothing leads to this loss smoothly
            loss.backward()
    grads = {}
    for at, t in _wanted(recorded).items():
        grads[at] = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
    return Found(losses, outputs, grads, [t.numpy() for t in recorded.kept])


def graph(program: Program, again: bool = False, step: bool = False) -> Found:
    recorded = _record(program, _stored(program), again)
    outputs = [recorded.values[i] for i in program.outputs]
    total = _sum(recorded.losses)
    params = _wanted(recorded) if total.requires_grad else {}
    if step:
        return _step(recorded, params, total, outputs)
    grads = {t: pg.zeros(t.shape) for t in params.values()}
    reached = _reached(total, grads)
    g = _graph([*recorded.losses, *outputs], total, reached, overwrite=True)
    counts["nodes"] += len(g.headers)
    counts["nodes on the CPU"] += sum(g.fallbacks.values())
    found = []
    for _ in range(2):
        g.run()
        found.append(
            Found(
                [g.read(t) for t in recorded.losses],
                [g.read(t) for t in outputs],
                {at: grads[t].numpy() for at, t in params.items()},
                [t.numpy() for t in recorded.kept],
            )
        )
    same(found[0], found[1], "a graph's second run")
    return found[0]


def _graph(outputs: list[pg.Tensor], total: pg.Tensor, grads: Any, **more: Any) -> Graph:
    """Return a graph with gradients, or without where nothing leads to the loss smoothly."""
    try:
        return Graph(outputs, loss=total, grads=grads, **more) if grads else Graph(outputs)
    except pg.GradientError:
        if "effects" in more:
            raise
        return Graph(outputs)


def _reached(total: pg.Tensor, grads: dict[pg.Tensor, pg.Tensor]) -> dict[pg.Tensor, pg.Tensor]:
    """Return the gradients of those tensors that lead to the loss."""
    seen: set[int] = set()
    stack = [total.node]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack += node.srcs
    return {t: grad for t, grad in grads.items() if id(t.node) in seen}


def _step(
    recorded: Recorded, params: dict[int, pg.Tensor], total: pg.Tensor, outputs: list[pg.Tensor]
) -> Found:
    """Update each leaf by a step of plain gradient descent, and tell the gradient from it."""
    made = {t: grad_of(t) for t in params.values()}
    reached = _reached(total, made)
    hyper = pg.tensor(np.array([LR, 0.0], np.float32))
    effects = [ops.opt_step_sgd(t, grad, hyper) for t, grad in reached.items()]
    before = {at: t.numpy().copy() for at, t in params.items()}
    try:
        g = _graph([*recorded.losses, *outputs], total, reached, effects=effects)
    except pg.GradientError:
        g = Graph(recorded.losses)
    g.run()
    losses = [g.read(t) for t in recorded.losses]
    grads = {at: (before[at] - t.numpy()) / LR for at, t in params.items()}
    return Found(losses, [], grads, [])


def compiled(program: Program) -> Found:
    """Run functions of the leaves."""
    order = [leaf.at for leaf in program.leaves]
    wanted = [k for k, leaf in enumerate(program.leaves) if leaf.grad]
    numbers = leaves_of(program)
    kept: list[pg.Tensor] = []

    def values(*given: pg.Tensor) -> list[pg.Tensor]:
        recorded = _record(program, dict(zip(order, given, strict=True)))
        kept[:] = recorded.kept
        return [*recorded.losses, *(recorded.values[i] for i in program.outputs)]

    def total(*given: pg.Tensor) -> pg.Tensor:
        return _sum(_record(program, dict(zip(order, given, strict=True))).losses)

    arrays = [numbers[at] for at in order]
    found = [t.numpy() for t in pg.compile(values)(*arrays)]
    buffers = [t.numpy() for t in kept]
    grads: dict[int, Array] = {}
    if wanted:
        with contextlib.suppress(pg.GradientError):  # no argument leads to the loss
            _, each = pg.value_and_grad(total, wanted)(*arrays)
            grads = {order[k]: g.numpy() for k, g in zip(wanted, each, strict=True)}
    n = len(program.losses)
    return Found(found[:n], found[n:], grads, buffers)


class _Reference:
    """A program in PyTorch."""

    def __init__(self, program: Program, shapes: Any, dtype: Any, rounded: bool):
        self.table = torch_table()
        self.near: list[str] = []  # steps that came close to a kink
        self.rounded = rounded
        numbers = leaves_of(program)
        self.leaves = {
            e.at: torch.tensor(numbers[e.at], dtype=dtype, requires_grad=e.grad)
            for e in program.leaves
        }
        values: dict[int, Any] = dict(self.leaves)
        kept = []
        for step in program.steps:
            given = [values[i] for i in step.sources]
            if step.name == "keep":
                kept.append(given[1].detach().numpy())
                values[step.at] = given[0]
                continue
            self._look(step, given)
            value = values[step.at] = self._apply(step, given)
            if value.shape != shapes[step.at]:
                raise Wrong(f"{step}: shape {shapes[step.at]}, in PyTorch {tuple(value.shape)}")
        losses = []
        for wanted in program.losses:
            parts = [
                (values[i] * torch.tensor(_weight(program, i, tuple(values[i].shape)))).mean()
                for i in wanted
            ]
            losses.append(sum(parts[1:], parts[0]))
        total = sum(losses[1:], losses[0])
        if total.requires_grad:
            total.backward()
        grads = {
            e.at: np.zeros(e.shape) if t.grad is None else t.grad.numpy()
            for e, t in zip(program.leaves, self.leaves.values(), strict=True)
            if e.grad
        }
        outputs = [values[i].detach().numpy() for i in program.outputs]
        self.found = Found([x.detach().numpy() for x in losses], outputs, grads, kept)

    def _apply(self, step: Step, given: list[Any]) -> Any:
        if step.name == "rounded":
            half = getattr(torch, {"f16": "float16", "bf16": "bfloat16"}[step.args[0]])
            return _through(given[0], half) if self.rounded else given[0]
        if self.rounded and step.name in PRODUCTS and step.dtype != "f32":
            half = torch.float16 if step.dtype == "f16" else torch.bfloat16
            given = [*(_through(x, half) for x in given[:2]), *given[2:]]
        return self.table[step.name](*given, *step.args)

    def _look(self, step: Step, given: list[Any]) -> None:
        """Note a step whose operand is close to where its function is not smooth."""
        x = given[0].detach()
        if x.numel() == 0:
            return
        kinks = KINKS.get(step.name, ())
        if step.name == "clamp":
            kinks = step.args
        if step.name in ("swiglu_oai", "swiglu_oai_fused"):
            kinks = (7.0, -7.0)
        for kink in kinks:
            away = (x - kink).abs()
            # At the kink itself both take the same side; but what is 1 in one may be rounded in the
            # other, as x / |x| is, and a step from there is a large one.
            least = -1.0 if step.name in JUMPS else 0.0
            if bool(((away < NEAR) & (away > least)).any()):
                self.near.append(step.name)
        if step.name == "max_pool":
            cut = x.unfold(-2, 2, step.args[0]).unfold(-2, 2, step.args[0]).flatten(-2)
            top = cut.topk(2, -1).values
            if float((top[..., 0] - top[..., 1]).min()) < NEAR:
                self.near.append(step.name)
        if step.name == "l2_norm":
            norm = (x * x).sum(-1).sqrt()
            if float((norm - step.args[0]).abs().min()) < 1e-3:
                self.near.append(step.name)


def _through(x: Any, half: Any) -> Any:
    """Return numbers rounded as f16 or bf16; the gradient passes as it is."""
    return x + (x.detach().to(half).to(x.dtype) - x.detach())


def same(a: Found, b: Found, what: str) -> None:
    """Compare bits."""
    for (name, x), (_, y) in zip(a.items(), b.items(), strict=True):
        if not np.array_equal(x, y, equal_nan=True):
            raise Wrong(f"{what}: {name} has other bits: {_most(x, y)}")


def _most(x: Array, y: Array) -> str:
    if x.shape != y.shape:
        return f"shapes {x.shape} and {y.shape}"
    at = np.unravel_index(np.argmax(np.nan_to_num(np.abs(x - y), nan=np.inf)), x.shape)
    return f"{x[at]!r}, not {y[at]!r}, at {tuple(map(int, at))} of {x.shape}"


def _close(way: str, got: Found, want: Found, noise: Found | None) -> None:
    names, worst = {}, 0.0
    for name, x in want.items():
        names[name] = x
    errors = {}
    if noise is not None:
        for name, y in noise.items():
            errors[name] = float(np.linalg.norm(y - names[name]))
            worst = max(worst, errors[name] / max(float(np.linalg.norm(names[name])), 1e-2))
    for name, x in got.items():
        y = names[name]
        if x.shape != y.shape:
            raise Wrong(f"{way}: {name}: {_most(x, y)}")
        size = max(float(np.linalg.norm(y)), 1e-2)
        limit = 20 * errors.get(name, 0.0) + (1e-4 + 2 * worst) * size
        if noise is None:
            limit = 1e-3 * size
        if way == "step":  # a leaf of about 1 rounds what is taken from it
            limit += 1e-6 * x.size**0.5
        error = float(np.linalg.norm(x - y))
        if not error <= limit:
            raise Wrong(f"{way}: {name} is off by {error:.2e} (limit {limit:.1e}): {_most(x, y)}")


WAYS: dict[str, Callable[[Program], Found]] = {
    "eager": eager,
    "compiled": compiled,
    "again": lambda program: graph(program, again=True),
    "step": lambda program: graph(program, step=True),
}


def _may_round(program: Program) -> bool:
    """Return whether an operand may be rounded in one way and not in another.

    What autocast lets a device round is rounded once where two products read it, and stays f32 in a
    product of one row. An operand that is computed again is another one.
    """
    autocast = any(step.dtype != "f32" for step in program.steps)
    return autocast and pg.default_device().rounds_operands


def check(program: Program) -> None:
    """Run a program in all ways; raise `Wrong` where two differ.

    Raises:
        Wrong: says which way, and what differs.
    """
    base = graph(program)
    want, noise = base, None
    counts["programs"] += 1
    counts["steps"] += len(program.steps)
    if torch is not None:
        shapes = shapes_of(program)
        exact = _Reference(program, shapes, torch.float64, rounded=False)
        want = exact.found
        rounded = _Reference(program, shapes, torch.float32, rounded=True)
        noise = rounded.found
        finite = all(np.isfinite(x).all() for _, x in want.items())
        if exact.near or rounded.near or not finite:
            counts["near a kink"] += 1
            want, noise = base, None
        else:
            counts["compared with torch"] += 1
            _close("graph", base, want, noise)
    for name, run in WAYS.items():
        found = run(program)
        if name == "again" and not _may_round(program):
            same(found, base, "computed again")
        elif noise is None and not all(np.isfinite(x).all() for _, x in base.items()):
            counts["not finite"] += 1
        else:
            _close(name, found, want, noise)
