# SPDX-License-Identifier: MIT
"""The gradients of a step: of several batches, on one rank or several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ...backend.device import alone
from ...backend.not_copied import NotCopied
from ...checks import instance, number, whole
from ...distributed import Group
from ...graph import Graph
from ...models import Model
from ...optim import ClipValue
from ...tensors import Tensor
from ..arguments import check_model, check_optimizer, check_step
from ..batches import (
    Batch,
    arrays_of,
    check_batch,
    check_closure,
    check_fused,
    check_pair,
    check_targets,
    pair_spec,
    spec_of,
    without_padding,
)
from ..exchange import Exchange
from ..losses import LossFunction, default_loss, model_loss
from ..scaler import GradScaler
from .graphs import StepGraphs

__all__ = ["StepGradients", "Weights"]

# Between the seeds of two ranks: far apart in the 32 bits that count.
_SEEDS = 0x9E3779B9

Weights = Sequence[tuple[int, bool]]


class StepGradients(NotCopied):
    """Computes losses and gradients of batches by graphs that are recorded on first use."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        clip: float | None = None,
        loss: LossFunction | None = None,
        seed: int = 0,
        precision: str | None = None,
        clip_value: float | None = None,
        scaler: GradScaler | None = None,
        group: Group | None = None,
        exchange: Exchange | None = None,
    ):
        self.model = check_model("TrainStep", model)
        self.optimizer: Any = optimizer
        if optimizer is not None:  # an evaluation needs none
            check_optimizer("TrainStep", optimizer, self.model)
        self.clip = _limit("clip", clip)
        self.runs = 0
        self.group = Group() if group is None else instance("TrainStep", "group", group, Group)
        self.clip_value = _limit("clip_value", clip_value)
        check_step(loss, precision, scaler)
        self.scaler = scaler if scaler is not None or precision != "f16" else GradScaler()
        self._fused = bool(getattr(optimizer, "fused_update", False))
        if self._fused:
            check_fused(self.clip, self.clip_value, self.scaler, self.group.size)
        self._needs_closure = bool(getattr(optimizer, "needs_closure", False))
        if self._needs_closure:
            check_closure(optimizer, self.clip, self.clip_value, self.scaler)
        if exchange is None and self.group.size > 1 and optimizer is not None and not self._fused:
            exchange = Exchange(self.group, optimizer)
        self.exchange = exchange
        loss = loss or default_loss(model)
        self.accumulates = False
        self.empty = self._empty_in_a_row = 0
        # Each rank has dropout masks of its own.
        seed = whole("TrainStep", "seed", seed) + _SEEDS * self.group.rank
        self._graphs = StepGraphs(model, optimizer, loss, seed, precision)
        self._clip_values: tuple[list[Tensor], ClipValue] | None = None

    @property
    def spares_memory(self) -> bool:
        """True if graphs take as little memory as they can, as for a run with a limit."""
        return self._graphs.spares_memory

    @spares_memory.setter
    def spares_memory(self, value: bool) -> None:
        self._graphs.spares_memory = value

    def record(self, shape: tuple[int, ...] | Batch, gradients: bool = True) -> Graph:
        """Return the graph for batches of one shape, recorded and planned on first use.

        Args:
            shape: shape of the tokens and of their targets, (B, T); or a batch like the others.
            gradients: whether it computes gradients; without, it evaluates.
        """
        whole = isinstance(shape, tuple) and all(isinstance(extent, int) for extent in shape)
        spec = pair_spec(shape) if whole else spec_of(check_pair(shape))  # type: ignore[arg-type]
        return self._graphs.get(spec, gradients, not self.accumulates).graph

    def record_logits(self, batch: Batch) -> tuple[int, ...]:
        """Return the shape of the logits of batches like one; their graph is planned at once.

        Args:
            batch: inputs and targets, of which the latter are not used.
        """
        return self._graphs.logits(check_pair(batch)).result.shape

    @property
    def activation_bytes(self) -> int:
        """Memory for what the graphs recorded so far compute."""
        return self._graphs.memory_bytes

    @property
    def fallbacks(self) -> dict[str, int]:
        """Ops of a step that the CPU computes for the device, and how many of each.

        Counted are the graphs recorded so far and the optimizer's update.
        """
        found = Counter(self._graphs.fallbacks)
        found |= Counter(getattr(self.optimizer, "fallbacks", {}))
        return dict(found.most_common())

    @property
    def units(self) -> str:
        """The unit of the counts of a loss that has `units`; else an empty text."""
        return str(getattr(self._graphs.loss, "units", ""))

    def gather(self) -> None:
        """Let every rank hold all parameters, in place of graphs; every rank calls it."""
        if self.exchange is not None and self.exchange.delivery.windows is not None:
            self.forget()
            self.exchange.delivery.gather()

    def forget(self) -> None:
        """Drop the recorded graphs and their memory; they are recorded again when needed."""
        self._graphs.forget()

    def check(self, batch: Batch) -> Batch:
        """Check a batch before ggml reads it.

        Args:
            batch: inputs and targets.

        Returns:
            The batch, without the rows of a padded batch of decimal targets that do not count.

        Raises:
            TypeError: it is no pair of arrays.
            ValueError: shapes differ, or a token is not in the vocabulary.
        """
        check_batch(batch, self.model)
        if self._graphs.loss is model_loss:
            check_targets(batch, self.model)
        return without_padding(batch)

    def _weights(self, batches: Sequence[Batch], gradients: bool) -> list[tuple[int, bool]]:
        """Return the number of targets of each batch, and whether its loss is a mean of them."""
        overwrite = not self.accumulates
        return [self._graphs.weigh(batch, gradients, overwrite) for batch in batches]

    def _total(self, weights: Weights) -> int:
        """Return the number of targets of a step, over all ranks."""
        own = sum(weight for weight, _ in weights)
        return own if self.group.size == 1 else int(self.group.sums(own)[0])

    def _run(self, batches: Sequence[Batch], weights: Weights, total: int) -> float:
        """Compute the summed loss of a step's batches and the optimizer's gradients of its mean."""
        if self.accumulates or not any(weight or not is_mean for weight, is_mean in weights):
            self.optimizer.zero_grad()
        elif not self._fused:
            self.optimizer.take_grads()
        if isinstance(self.model, Model):
            self.model.trained = True
        scale = 1.0 if self.scaler is None else self.scaler.scale
        if self.exchange is not None:
            return self._run_together(self.exchange, batches, weights, scale, total)
        loss = 0.0
        for batch, (weight, is_mean) in zip(batches, weights, strict=True):
            if weight or not is_mean:
                loss += self._run_one(batch, weight if is_mean else 1, scale, total)
            self.runs += 1
        return loss

    def _run_one(self, batch: Batch, factor: int, scale: float, total: int) -> float:
        """Compute the summed loss of one batch, and its gradients of the mean times a scale."""
        self._graphs.set_scale(scale * factor / total)
        return factor * self._graphs.run(batch, self.runs, not self.accumulates)

    def _run_together(
        self,
        exchange: Exchange,
        batches: Sequence[Batch],
        weights: Weights,
        scale: float,
        total: int,
    ) -> float:
        """Compute as `_run` on several ranks; the gradients leave during the last backward."""
        recorded = [self._graphs.get(spec_of(b), True, not self.accumulates) for b in batches]
        exchange.settle(recorded[0].graph, recorded[0].sent)
        exchange.set_scale(1.0 if self.scaler is None else self.scaler.scale)
        counted = [bool(weight or not is_mean) for weight, is_mean in weights]
        loss, left = 0.0, sum(counted)
        for batch, (weight, is_mean), counts, own in zip(
            batches, weights, counted, recorded, strict=True
        ):
            if counts:
                left -= 1
                early = not left or exchange.zero > 1
                leaving = exchange.overlapping(own.graph, own.sent, early)
                with exchange.delivery.awaiting(own.graph), leaving:
                    loss += self._run_one(batch, weight if is_mean else 1, scale, total)
            elif exchange.delivery.windows is not None:  # the others need this rank's parameters
                with exchange.delivery.awaiting(None):
                    pass
            if exchange.zero > 1:  # what is not this rank's own is not kept
                exchange.finish()
            self.runs += 1
        if exchange.zero < 2:
            exchange.finish()
        return self.group.sums(loss)[0]

    def loss_sum(self, batch: Batch) -> tuple[float, int]:
        """Compute the summed loss of a batch and its number of targets, without gradients.

        Args:
            batch: inputs and targets.
        """
        return self.evaluated(batch)[:2]

    def evaluated(self, batch: Batch) -> tuple[float, int, dict[str, float]]:
        """Compute `loss_sum` of a batch, and the sums of the metrics that the loss returns.

        Args:
            batch: inputs and targets.
        """
        batch = self.check(batch)
        with alone():
            ((weight, is_mean),) = self._weights([batch], gradients=False)
            with self._awaiting(self._graphs.get(spec_of(batch), gradients=False).graph):
                loss = self._graphs.run(batch)
            metrics = self._graphs.metric_sums(batch)
        return (loss * weight if weight else 0.0) if is_mean else loss, weight, metrics

    def is_cross_entropy(self, batch: Batch) -> bool:
        """Return True where the loss of batches like one is made of a cross-entropy.

        Args:
            batch: inputs and targets.
        """
        return self._graphs.get(spec_of(self.check(batch)), gradients=False).is_cross_entropy

    def rerun(self, batches: Sequence[Batch]) -> None:
        """Compute a step's gradients again and drop them; nothing is updated.

        Args:
            batches: inputs and targets.
        """
        batches = [self.check(batch) for batch in batches]
        if self._fused:
            for batch in batches:
                self._graphs.run(batch)
        else:
            weights = self._weights(batches, gradients=True)
            self._run(batches, weights, self._total(weights))
            self.optimizer.zero_grad()

    def logits(self, batch: Batch) -> np.ndarray:
        """Compute the model's logits of a batch, without gradients.

        Args:
            batch: inputs and targets, of which the latter are not used.

        Shape:
            x (B, T) -> (B, T, V)
        """
        x, _, *more = arrays_of(check_pair(batch))
        with alone():
            recorded = self._graphs.logits(batch)
            with self._awaiting(recorded.graph):
                return recorded.run([x, *more])

    def _awaiting(self, graph: Graph) -> AbstractContextManager[Any]:
        """Let a graph without gradients have the parameters that it reads."""
        exchange = self.exchange
        return nullcontext() if exchange is None else exchange.delivery.awaiting(graph, False)


def _limit(name: str, value: float | None) -> float | None:
    """Return a limit; None where there is none, which 0 says, too."""
    return None if value is None else number("TrainStep", name, value, 0) or None
