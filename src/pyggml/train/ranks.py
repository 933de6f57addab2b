# SPDX-License-Identifier: MIT
"""Ranks that train together: what must be the same on all of them, and a common start."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import distributed
from ..backend.library import cpu_features
from ..data.fingerprint import fingerprint
from ..distributed import Group, check_same
from ..errors import ConfigError, DistributedError
from ..tensors.random import random_generator
from ..tensors.storage import read_bytes, write
from .checkpoints.checkpoint import Checkpoint
from .checkpoints.restore import other_state, rank_state, restore, restore_rank, state_of
from .exchange import Exchange
from .options import TrainerOptions
from .run import Run

__all__ = [
    "begin_as_first",
    "check_ranks",
    "join",
    "make_exchange",
    "need_same_round",
    "step_group",
]

_log = logging.getLogger("pyggml.train")
# Options that each rank may have otherwise.
_OWN = ("prefetch", "mfu", "memory_limit")


def join(who: str, options: TrainerOptions, loader: Any) -> Group:
    """Return the ranks of a training, and let its loader give out this rank's rows.

    Args:
        who: the function that takes them.
        options: the trainer's.
        loader: makes the training batches.

    Raises:
        TypeError: several ranks need a loader that shards.
        ValueError: a batch has fewer rows than there are ranks.
        DistributedError: MPI is missing or mixed.
    """
    if options.distributed == "none":
        return Group()
    group = distributed.init(options.distributed)
    group.set_timeout(options.rank_timeout)
    if group.size > 1:
        if not callable(getattr(loader, "shard", None)):
            raise TypeError(
                f"{who}: train must be a dataset or a loader of pyggml.data where {group.size} "
                f"ranks share its batches; got {type(loader).__name__}"
            )
        loader.shard(group.rank, group.size)
    return group


def step_group(options: TrainerOptions, group: Group) -> Group:
    """Return the ranks that share each step: this one alone where it takes steps by itself.

    Args:
        options: the trainer's.
        group: the ranks.
    """
    if not options.sync_every:
        return group
    alone = Group()
    alone.rank = group.rank  # its masks of dropout differ from those of the others
    return alone


def make_exchange(
    who: str, options: TrainerOptions, group: Group, optimizer: Any
) -> Exchange | None:
    """Return what ranks exchange in a step, as the options say; None for one process.

    Args:
        who: the function that takes them.
        options: the trainer's.
        group: the ranks that share each step.
        optimizer: keeps this rank's part of its state afterwards.

    Raises:
        ConfigError: the optimizer's state cannot be divided.
    """
    if group.size == 1 or getattr(optimizer, "fused_update", False):
        return None
    rounds = options.reduce_dtype == "bf16"
    try:
        return Exchange(group, optimizer, rounds, options.error_feedback, options.zero)
    except ValueError as error:
        raise ConfigError(
            f"{who}: `zero` must be less here than {options.zero}: {error}"
        ) from error


def check_ranks(run: Run, sets: Iterable[str]) -> None:
    """Raise where a rank has another model, optimizer, options or data; warn of other processors.

    Args:
        run: of this rank.
        sets: names of the validation sets.

    Raises:
        DistributedError: names the rank and what differs.
    """
    group = run.group
    if group.size == 1:
        return
    kept = {id(p) for p in run.optimizer.params}
    params = dict(run.model.named_parameters())
    options = {k: v for k, v in run.options.to_dict().items() if k not in _OWN}
    facts = {
        "model": {"class": type(run.model).__name__, "parameters": len(params)},
        **{f"parameter {n}": (p.shape, p.dtype.name, id(p) in kept) for n, p in params.items()},
        "optimizer": repr(run.optimizer),
        **{f"option {name}": value for name, value in options.items()},
        "steps": run.total_steps,
        "data": (run.data, run.loader.state_dict()),
        "validation sets": sorted(sets),
    }
    if run.weights is not run.model:  # checkpoints leave the frozen weights out, as the start does
        frozen = [p for p in params.values() if not p.requires_grad]
        facts["frozen weights"] = fingerprint(*(_sample(p) for p in frozen))
    check_same(group, facts)
    machines = group.gather(f"{run.device} {platform.machine()} {' '.join(cpu_features())}")
    if group.is_first and len(set(machines)) > 1:
        told = "; ".join(f"rank {machines.index(each)}: {each}" for each in sorted(set(machines)))
        _log.warning("train: ranks compute on other processors, so bits may differ: %s", told)


def _sample(param: Any) -> Any:
    """Return the numbers of a parameter's first row, or of all of a vector."""
    return (param if param.ndim < 2 else param.reshape(-1, param.shape[-1])[:1]).numpy()


def need_same_round(run: Run) -> None:
    """Raise where errors have ended the ranks on both sides of an average of their weights.

    Args:
        run: of this rank.

    Raises:
        DistributedError: they have; the ranks cannot go on from there together.
    """
    if run.local is None or run.group.size == 1:
        return
    left = run.total_steps - run.step
    apart, together, latest, most = run.group.maxima(
        int(run.is_apart), int(not run.is_apart), run.step, left
    )
    if apart and together:
        raise DistributedError(
            "Trainer.fit: the ranks must be between the same averages of their weights; errors have"
            f" ended them at steps from {run.total_steps - most} to {latest}, where an average is:"
            " call resume() on all ranks first"
        )


def begin_as_first(run: Run) -> None:
    """Give every rank the weights, the optimizer's state and the place of rank 0.

    Args:
        run: of this rank.
    """
    group = run.group
    local = run.local
    if local is not None and group.size > 1:
        latest, earliest = group.maxima(run.step, -run.step)
        if latest == -earliest > 0 and not group.any(bool(local.apart)):
            local.gather(rank_state(run))  # a run goes on that no checkpoint was read for
    if group.size > 1:
        _spread(run)
    if local is not None:
        local.begin()


def _spread(run: Run) -> None:
    """Give every rank the state of rank 0, and its own part of it."""
    group, local = run.group, run.local
    exchange = run.train_step.exchange
    divides = exchange is not None and exchange.delivery.windows is not None
    found: list[Any] = []
    if group.is_first:
        weights = {} if divides else run.weights.state_dict()
        generator = random_generator().bit_generator.state
        found = [state_of(run, run.loader.state_dict(), generator), weights, other_state(run)]
    state, weights, others = group.share(found)
    for _, tensor in run.weights.named_state() if divides else ():
        # One by one: a rank may lack the memory for copies of all.
        raw = group.share(read_bytes(tensor.node) if group.is_first else None)
        if raw is not None and not group.is_first:
            write(tensor.node, raw)
    optimizer = run.shards.spread()
    if not group.is_first:
        restore(run, Checkpoint(Path("rank 0"), state, weights, {**optimizer, **others}))
        if local is not None:
            restore_rank(run, local.state_of(group.rank))
