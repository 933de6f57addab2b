# SPDX-License-Identifier: MIT
"""Choosing which blocks to compute twice, so that a run fits into its memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ..config import TrainConfig
from .plan import MemoryPlan, OutOfMemoryError, format_bytes, parse_bytes

if TYPE_CHECKING:
    from ..trainer import Trainer

__all__ = ["choices", "count_memory", "fit_memory", "must_fit"]


def must_fit(config: TrainConfig) -> bool:
    """Whether a run has a limit to keep, or blocks to choose.

    Args:
        config: what the run was told.
    """
    return config.memory_limit is not None or config.checkpointing == "auto"


def choices(n_blocks: int) -> list[int]:
    """Values of a model's `checkpointing`, from the least work done twice to the most.

    Args:
        n_blocks: of the model.

    Example:
        >>> choices(6)
        [0, 6, 3, 2, 1]
    """
    found: dict[int, int] = {}
    for every in range(n_blocks, 0, -1):
        found[-(-n_blocks // every)] = every  # of as many, those that lie evenly
    return [0, *found.values()]


def fit_memory(
    model: Any,
    config: TrainConfig,
    plan: Callable[[], MemoryPlan],
    forget: Callable[[], None],
    free: int | None,
) -> MemoryPlan:
    """Plan a run; where its checkpointing is to be chosen, take the cheapest that fits.

    Args:
        model: its `checkpointing` is set.
        config: `checkpointing` and `memory_limit`.
        plan: records the graphs and counts.
        forget: drops the recorded graphs.
        free: bytes that the device has; None when unknown.

    Returns:
        The plan that fits.

    Raises:
        OutOfMemoryError: none does; names what each takes.
    """
    if not must_fit(config):
        return plan()
    limit = free if config.memory_limit is None else parse_bytes(config.memory_limit)
    chooses = config.checkpointing in (None, "auto") and hasattr(model, "n_blocks")
    before = getattr(model, "checkpointing", False)
    tried: list[tuple[int, MemoryPlan | None]] = []
    for every in choices(model.n_blocks) if chooses else [int(before)]:
        if chooses:
            model.checkpointing = every
        forget()
        try:
            found = plan()
        except BackendError:  # more than the device has
            tried.append((every, None))
            continue
        if limit is None or found.total <= limit:
            return found
        tried.append((every, found))
    forget()
    if chooses:
        model.checkpointing = before
    raise OutOfMemoryError(_message(tried, limit or 0, config))


def _message(tried: list[tuple[int, MemoryPlan | None]], limit: int, config: TrainConfig) -> str:
    """What each choice takes, and the ways out."""
    names = {0: "without checkpointing", 1: "with every block computed twice"}
    rows = []
    for every, plan in tried:
        name = names.get(every, f"with 1 block in {every}")
        size = "more than can be allocated" if plan is None else format_bytes(plan.total)
        rows.append(f"{size} {name}")
    last = next((plan for _, plan in reversed(tried) if plan is not None), None)
    cures = ["use a smaller --batch-size with --accumulate", "a shorter --seq-len"]
    cures.append("a smaller model")
    if last is not None and last.gradients and not config.fused_update:
        cures.append(f"--fused-update, which keeps no gradients ({format_bytes(last.gradients)})")
    kinds = ""
    if last is not None:
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in last.rows()[:-1])
        kinds = f" ({parts})"
    return (
        f"train: the run must fit into {format_bytes(limit)}; it takes {', '.join(rows)}{kinds}: "
        f"{', '.join(cures[:-1])}, or {cures[-1]}"
    )


def count_memory(trainer: Trainer, free: int | None) -> MemoryPlan:
    """What memory a trainer's run takes as its model is now; records the graphs.

    Args:
        trainer: the trainer.
        free: bytes that the device had before; None when unknown.

    Raises:
        TypeError: the trainer's loader does not tell what its batches are like.
    """
    step, loader = trainer._train_step, trainer.loader
    if hasattr(loader, "once"):
        step.record(next(iter(loader.once())))
    elif hasattr(loader, "batch_size") and hasattr(loader, "dataset"):
        step.record((loader.batch_size, trainer.seq_len))
    else:
        raise TypeError(
            "Trainer.plan: must know the batches before they are drawn; got a loader of kind"
            f" {type(loader).__name__} without once(): give a pyggml.data.Loader"
        )
    for shape in getattr(loader, "shapes", ()):
        step.record(shape)
    trainer.check()
    return MemoryPlan(
        sum(p.nbytes for p in trainer.model.parameters()),
        trainer.optimizer.grad_nbytes,
        trainer.optimizer.nbytes + (0 if trainer.ema is None else trainer.ema.nbytes),
        step.activation_bytes,
        trainer.device.name,
        free,
        step.fallbacks,
    )
