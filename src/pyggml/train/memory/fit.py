# SPDX-License-Identifier: MIT
"""Planning the memory of a run, and choosing the blocks to compute twice so that it fits."""

from __future__ import annotations

from collections.abc import Callable

from ...backend.sizes import format_bytes, parse_bytes
from ...errors import BackendError
from ...models import LanguageModel
from ..run import Run
from .plan import MemoryPlan, OutOfMemoryError

__all__ = ["MemoryPlanner", "choices"]

# Of the free memory: the rest is for Python, batches and what other programs take meanwhile.
_SHARE = 0.9


def choices(n_blocks: int) -> list[int]:
    """Return the values of a model's `checkpointing`, from the least recomputing to the most.

    Args:
        n_blocks: number of the model's blocks.

    Example:
        >>> choices(6)
        [0, 6, 3, 2, 1]
    """
    found: dict[int, int] = {}
    for every in range(n_blocks, 0, -1):
        found[-(-n_blocks // every)] = every  # of as many, those that lie evenly
    return [0, *found.values()]


class MemoryPlanner:
    """Plans the memory of a run, and keeps its limit.

    Args:
        run: the run.
        check: records the graphs of the evaluations.
        free: bytes that the device had free before the run; None where it does not tell.

    Attributes:
        plan: the last plan, or None.
    """

    def __init__(self, run: Run, check: Callable[[], None], free: int | None):
        self.plan: MemoryPlan | None = None
        self._run, self._check, self._free = run, check, free

    @property
    def must_fit(self) -> bool:
        """True if the run has a limit to keep, or blocks to choose."""
        options = self._run.options
        return options.memory_limit is not None or options.checkpointing == "auto"

    def make(self) -> MemoryPlan:
        """Plan the run; where its checkpointing is to be chosen, take the cheapest that fits.

        Returns:
            The plan that fits.

        Raises:
            OutOfMemoryError: none fits; names the size of each.
        """
        if self.plan is None or not self.must_fit:
            self.plan = self._fit() if self.must_fit else self._count()
        return self.plan

    def _limit(self, given: int | str | None) -> int | None:
        """Return the bytes that the run may take; None where the device does not tell."""
        if given == "auto":
            return None if self._free is None else int(_SHARE * self._free)
        return self._free if given is None else parse_bytes(given)

    def _fit(self) -> MemoryPlan:
        model, options = self._run.model, self._run.options
        limit = self._limit(options.memory_limit)
        chooses = options.checkpointing in (None, "auto") and hasattr(model, "n_blocks")
        before = getattr(model, "checkpointing", False)
        tried: list[tuple[int, MemoryPlan | None]] = []
        for every in choices(model.n_blocks) if chooses else [int(before)]:
            if chooses:
                model.checkpointing = every
            self._run.train_step.forget()
            try:
                found = self._count()
            except BackendError:  # more than the device has
                tried.append((every, None))
                continue
            if limit is None or found.total <= limit:
                return found
            tried.append((every, found))
        self._run.train_step.forget()
        if chooses:
            model.checkpointing = before
        raise OutOfMemoryError(_message(tried, limit or 0, isinstance(model, LanguageModel)))

    def _count(self) -> MemoryPlan:
        """Record the graphs of the run as its model is now, and count their memory."""
        run = self._run
        step, loader = run.train_step, run.loader
        if hasattr(loader, "once"):
            graph = step.record(next(iter(loader.once())))
        elif hasattr(loader, "batch_size") and hasattr(loader, "dataset"):
            graph = step.record((loader.batch_size, run.seq_len))
        else:
            raise TypeError(
                "Trainer.plan: must know the batches before they are drawn; got a loader of kind"
                f" {type(loader).__name__} without once(): give a pyggml.data.Loader"
            )
        for shape in getattr(loader, "shapes", ()):
            step.record(shape)
        self._check()
        windows = None if step.exchange is None else step.exchange.delivery.windows
        spared = 0 if windows is None else windows.spared_bytes(graph)
        return MemoryPlan(
            sum(p.nbytes for p in run.model.parameters()) - spared,
            run.optimizer.grad_nbytes + (0 if step.exchange is None else step.exchange.nbytes),
            run.optimizer.nbytes + (0 if run.ema is None else run.ema.nbytes),
            step.activation_bytes,
            run.device.name,
            self._free,
            step.fallbacks,
        )


def _message(tried: list[tuple[int, MemoryPlan | None]], limit: int, reads_text: bool) -> str:
    """Write the size of each choice, and the ways out."""
    names = {0: "without checkpointing", 1: "with every block computed twice"}
    rows = []
    for every, plan in tried:
        name = names.get(every, f"with 1 block in {every}")
        size = "more than can be allocated" if plan is None else format_bytes(plan.total)
        rows.append(f"{size} {name}")
    last = next((plan for _, plan in reversed(tried) if plan is not None), None)
    cures = ["use a smaller `batch_size` with `accumulate`"]
    cures += ["a shorter `seq_len`"] if reads_text else []
    cures.append("a smaller model")
    kinds = ""
    if last is not None:
        if last.gradients:
            gradients = format_bytes(last.gradients)
            cures.append(
                f"an optimizer with `fused_update`, which keeps no gradients ({gradients})"
            )
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in last.rows()[:-1])
        kinds = f" ({parts})"
    return (
        f"train: the run must fit into {format_bytes(limit)}; it takes {', '.join(rows)}{kinds}: "
        f"{', '.join(cures[:-1])}, or {cures[-1]}"
    )
