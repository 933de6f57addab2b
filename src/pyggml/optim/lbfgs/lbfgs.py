# SPDX-License-Identifier: MIT
"""L-BFGS: steps along an estimate of the inverse Hessian times the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...backend.device import alone
from ...backend.undivided import Undivided, settle
from ...errors import GradientError
from ...graph import most_fallbacks
from ...tensors import Tensor
from ...tensors.live import before_write
from ...tensors.storage import write_all
from ..groups import Group, ParamGroups
from ..optimizer import Optimizer, State
from ..state import check_entries, load_arrays, read_steps, save_arrays
from .flat import FlatVectors
from .wolfe import Point, strong_wolfe

__all__ = ["LBFGS"]

# A pair with less curvature than this would spoil the estimate; PyTorch's.
_LEAST_CURVATURE = 1e-10


class LBFGS(Optimizer):
    """Minimise a deterministic function with an estimate of its curvature.

    The direction is -H g, with H made of the last `history_size` steps and changes of the
    gradient; how far to go is found by a line search. A step does up to `max_iter` iterations, and
    needs a closure that computes loss and gradients, on all data or a large batch that stays.

    The parameters are one vector: groups with a weight decay or a rate of their own raise.
    The memory is that of 2 * history_size + 8 copies of the parameters.

    Args:
        params: tensors, groups or a module; see `Optimizer`.
        lr: first step of each line search, or the length of the step without one.
        max_iter: iterations in each step, >= 1.
        max_eval: calls of the closure in each step; None is 1.25 * max_iter.
        tolerance_grad: no element of the gradient above this is an end, >= 0.
        tolerance_change: no change above this, of loss or parameters, is an end, >= 0.
        history_size: pairs that are kept, >= 1.
        line_search_fn: "strong_wolfe", or None for a fixed length.
        fused_update: must be False; the line search needs gradients that stay.

    Attributes:
        evaluations: calls of the closure so far.
        iterations: iterations so far.

    Raises:
        ValueError: a hyper-parameter is out of range, or a group has one of its own.

    Source: Liu and Nocedal 1989; Nocedal and Wright 2006, algorithm 7.4; torch.optim.LBFGS.

    Example:
        >>> w = Parameter([5.0, -3.0])
        >>> opt = LBFGS([w])
        >>> def closure():
        ...     opt.zero_grad()
        ...     loss = ((w - 1.0) * (w - 1.0)).sum()
        ...     loss.backward()
        ...     return loss
        >>> opt.step(closure)
        32.0
        >>> [round(x, 3) for x in w.tolist()]
        [1.0, 1.0]
    """

    needs_closure = True

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 10,
        line_search_fn: str | None = "strong_wolfe",
        *,
        weight_decay: float = 0.0,
        fused_update: bool = False,
    ) -> None:
        if checks.flag("LBFGS", "fused_update", fused_update):
            raise ValueError(
                "LBFGS: fused_update must be False, as the line search needs gradients that stay"
            )
        named = isinstance(line_search_fn, str) and line_search_fn == "strong_wolfe"
        if line_search_fn is not None and not named:
            raise ValueError(
                f"LBFGS: line_search_fn must be 'strong_wolfe' or None; got {line_search_fn!r}"
            )
        self.max_iter = checks.whole("LBFGS", "max_iter", max_iter, 1)
        most = self.max_iter * 5 // 4 if max_eval is None else max_eval
        self.max_eval = checks.whole("LBFGS", "max_eval", most, 1)
        self.history_size = checks.whole("LBFGS", "history_size", history_size, 1)
        self.tolerance_grad = checks.f32("LBFGS", "tolerance_grad", tolerance_grad, 0.0)
        self.tolerance_change = checks.f32("LBFGS", "tolerance_change", tolerance_change, 0.0)
        self.line_search_fn = line_search_fn
        super().__init__(params, lr, weight_decay, False)
        if any(g.weight_decay or g.lr_scale != 1 for g in self.groups):
            raise ValueError(
                "LBFGS: weight_decay must be 0 and lr_scale 1, as all parameters are one vector; "
                "add a penalty to the loss instead"
            )
        self._vectors = FlatVectors(self.params, self.grads, self.history_size)
        self.evaluations = 0
        self.iterations = 0
        # Rows of the history, the oldest pair first, and 1 / (y·s) of each row.
        self._rows: list[int] = []
        self._rho = np.zeros(self.history_size)
        self._scale = 1.0
        self._t = 0.0

    @property
    def fallbacks(self) -> dict[str, int]:
        """Ops that the CPU computes for the device, of what the first steps have recorded."""
        return most_fallbacks(self._vectors.graphs())

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> NoReturn:
        raise GradientError("LBFGS: there is no update of one parameter alone; use step(closure)")

    def step(  # type: ignore[override]
        self,
        closure: Callable[[], Any] | None = None,
        lr: float | None = None,
        clip: float | None = None,
    ) -> float:
        """Do up to `max_iter` iterations.

        Args:
            closure: clears the gradients, computes the loss and its gradients, returns the loss.
            lr: first step of each line search from now on; None keeps it.
            clip: must be None: the line search needs the gradients as they are.

        Returns:
            The loss before the step.

        Raises:
            ValueError: there is no closure, or a clip, or lr is negative.
            TypeError: the closure returned no number.
            FloatingPointError: loss or gradient were not finite at the start; no parameter was
                changed.
            GradientError: a parameter was frozen since the optimizer was made.
        """
        if not callable(closure):
            raise ValueError(
                "LBFGS.step: needs a closure that computes loss and gradients, as the line search "
                f"calls it several times; got {type(closure).__name__}: give step(closure), or "
                "train with TrainStep or Trainer, which make one"
            )
        if clip is not None:
            raise ValueError("LBFGS.step: clip must be None; the line search needs the gradients")
        new_lr = self.lr if lr is None else checks.f32("LBFGS.step", "lr", lr, 0.0)
        with alone():  # other threads see a whole step, or none
            return self._iterate(closure, new_lr)

    def _iterate(self, closure: Callable[[], Any], lr: float) -> float:
        """Do a step with arguments that are checked."""
        if len(self.trained()) < len(self.params):
            raise GradientError("LBFGS.step: a parameter was frozen; make a new optimizer")
        # What reads the parameters is computed before anything of the step is done; it may fail.
        before_write({param.buffer for param in self.params})
        self.lr, vectors = lr, self._vectors
        vectors.hold([])
        first = here = self._evaluate(closure)
        if not math.isfinite(here.loss) or not math.isfinite(vectors.largest(here.grad)):
            raise FloatingPointError(
                f"LBFGS.step: loss and gradients must be finite; got loss {here.loss} at step "
                f"{self.steps + 1}, no parameter was changed"
            )
        self.steps += 1
        calls = 1
        for iteration in range(1, self.max_iter + 1):
            if vectors.largest(here.grad) <= self.tolerance_grad:
                break
            slope = self._direction(here.grad)
            t = self.lr
            if self.iterations == 1:
                t = min(1.0, 1.0 / vectors.length_1(here.grad)) * self.lr
            # The last pair counts for nothing until a step has been taken along this direction.
            self._t = 0.0
            if slope > -self.tolerance_change:
                break
            before = here = Point(0.0, here.loss, slope, here.grad)
            vectors.keep_start()
            here, more = self._search(closure, before, t, calls, iteration)
            calls += more
            self._t = here.t
            vectors.move(here.t)
            change = vectors.largest("d") * abs(here.t)
            flat = abs(here.loss - before.loss) < self.tolerance_change and more > 0
            if calls >= self.max_eval or change <= self.tolerance_change or flat:
                break
        return first.loss

    def _search(
        self, closure: Callable[[], Any], before: Point, t: float, calls: int, iteration: int
    ) -> tuple[Point, int]:
        """The next point along the direction, and how often the closure was called."""
        vectors = self._vectors

        def at(distance: float, *kept: Point) -> Point:
            vectors.hold(point.grad for point in (before, *kept))
            vectors.move(distance)
            point = self._evaluate(closure)
            slope = vectors.slope(point.grad)
            # A gradient that is not finite is as bad as such a loss.
            loss = point.loss if math.isfinite(slope) else math.inf
            return Point(distance, loss, slope, point.grad)

        if self.line_search_fn is None and iteration == self.max_iter:
            return Point(t, before.loss, before.slope, before.grad), 0  # nobody reads the gradient
        try:
            if self.line_search_fn is None:
                found, more = at(t), 1
            else:
                most = self.max_eval - calls
                longest = vectors.largest("d")
                tolerance = self.tolerance_change
                found, more = strong_wolfe(at, before, t, longest, tolerance, most)
            if not math.isfinite(found.loss):
                raise FloatingPointError(
                    f"LBFGS.step: loss and gradients must be finite; got loss {found.loss} after "
                    "an iteration; the parameters are those before it; lower lr"
                )
        except BaseException:
            vectors.move(0.0)
            raise
        return found, more

    def _evaluate(self, closure: Callable[[], Any]) -> Point:
        """Loss and gradient at the parameters as they are."""
        loss = _as_loss(closure())
        self._kept("step").adopt("step")
        self.evaluations += 1
        return Point(0.0, loss, 0.0, self._vectors.gather_grad())

    def _direction(self, grad: str) -> float:
        """Make the next direction; returns the loss's slope along it."""
        vectors = self._vectors
        self.iterations += 1
        if self.iterations > 1:
            curvature, square = vectors.difference(grad, self._t)
            if curvature > _LEAST_CURVATURE:
                full = len(self._rows) == self.history_size
                row = self._rows.pop(0) if full else len(self._rows)
                self._rows.append(row)
                vectors.remember(grad, self._t, row)
                self._rho[row] = 1.0 / curvature
                self._scale = curvature / square
        vectors.keep_grad(grad)
        if self.iterations > 1:
            vectors.two_loops(self._rows, self._rho, self._scale)
        else:
            vectors.steepest()
        return vectors.slope(grad)

    @property
    def nbytes(self) -> int:
        """Bytes of the state and of the vectors that the search works with."""
        return self._vectors.nbytes

    def _tensors(self) -> dict[str, Tensor]:
        return self._vectors.saved()

    def _numbers(self) -> dict[str, np.ndarray]:
        rows = np.full(self.history_size, -1, np.int64)
        rows[: len(self._rows)] = self._rows
        return {
            "history.rows": rows,
            "history.rho": self._rho.copy(),
            "history.scale": np.asarray(self._scale),
            "history.t": np.asarray(self._t),
            "iterations": np.asarray(self.iterations, np.int64),
            "evaluations": np.asarray(self.evaluations, np.int64),
        }

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the state: "steps", "lr", the counters, the last pairs and their products."""
        with alone():  # between two steps of a training
            return {
                "steps": np.asarray(self.steps, np.int64),
                "lr": np.asarray(self.lr, np.float64),
                **self._numbers(),
                **save_arrays(self._tensors()),
            }

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Restore the state that `state_dict` returned; on an error nothing changes.

        Raises:
            KeyError: entries are missing or unexpected.
            ShapeError: an entry is of another shape, as with another history_size.
            ValueError: a number is out of range.
        """
        own, numbers = self._tensors(), self._numbers()
        check_entries("LBFGS", state, {"steps", "lr", *own, *numbers})
        writes = load_arrays("LBFGS", own, state)
        steps, lr = read_steps("LBFGS", state)
        given = {name: np.asarray(state[name]) for name in numbers}
        for name, value in numbers.items():
            if given[name].shape != value.shape or not np.isfinite(given[name]).all():
                raise ValueError(
                    f"LBFGS.load_state_dict: {name} must be finite, of shape {value.shape}; "
                    f"got {given[name]!r}"
                )
        rows = [int(row) for row in given["history.rows"] if row >= 0]
        if len(set(rows)) != len(rows) or any(row >= self.history_size for row in rows):
            raise ValueError(
                f"LBFGS.load_state_dict: history.rows must be rows of {self.history_size}, each "
                f"once; got {rows}"
            )
        if min(int(given["iterations"]), int(given["evaluations"])) < 0:
            raise ValueError("LBFGS.load_state_dict: the counters must be >= 0")
        with alone(), Undivided():  # a training takes its next step with all of it
            settle()
            write_all(writes)
            self.steps, self.lr, self._rows = steps, lr, rows
            self._rho = np.array(given["history.rho"], np.float64)
            self._scale, self._t = float(given["history.scale"]), float(given["history.t"])
            self.iterations, self.evaluations = int(given["iterations"]), int(given["evaluations"])


def _as_loss(value: Any) -> float:
    """Return the loss that a closure computed as a number."""
    if isinstance(value, (Tensor, np.ndarray)) and math.prod(value.shape) == 1:
        value = value.item()
    return checks.number("LBFGS.step", "what the closure returns", value, finite=False)
