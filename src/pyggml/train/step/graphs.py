# SPDX-License-Identifier: MIT
"""The graphs of training steps: recorded once for each shape of a batch, kept, and run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ... import ops
from ...backend.library import lib
from ...backend.lru import LRUCache
from ...checks import whole
from ...graph import Graph, most_fallbacks, spare_memory
from ...graph.backward_checks import check_reached
from ...graph.graph_cache import copy_in, graph_cache
from ...graph.memory_plan import Activations
from ...graph.walk import walk
from ...nn.mode import in_mode
from ...nn.swap import Swaps
from ...ops.dropout import DropoutStream
from ...tensors import Tensor, tensor, zeros
from ...tensors.autocast import autocast, rounding
from ...tensors.tracing import Trace
from ..batches import Batch, Spec, arrays_of, spec_of
from ..losses import Count, LossFunction, count_targets

__all__ = ["Recorded", "StepGraphs"]

# Graphs that are kept for batches of other shapes; each takes megabytes of headers.
_MOST_GRAPHS = 32
_MOST_BYTES = 2**30
# Those of training and evaluation, with a last batch that is smaller, are kept in any case.
_LEAST_GRAPHS = 8
_CROSS_ENTROPY = (lib.GGML_OP_CROSS_ENTROPY_ROWS, lib.GGML_OP_CROSS_ENTROPY_LOSS)


@dataclass
class Recorded:
    """A graph and the tensors that feed and leave it.

    Args:
        inputs: tensors that a batch is copied into.
        result: the loss, or the logits.
        graph: computes the result.
        squares: the sum of the squares of all gradients' elements, with `fused_update`.
        count: number of targets of a loss that is a sum; None where the loss is a mean.
        metrics: sums of the loss's own metrics over the same targets, by name.
        sent: for each parameter whose gradient is not stored, and sent to another rank, an op that
            reads it, so that it is in memory no longer than that.
    """

    inputs: tuple[Tensor, ...]
    result: Tensor
    graph: Graph
    squares: Tensor | None = None
    count: Count | None = None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    sent: Mapping[Tensor, Tensor] = field(default_factory=dict)

    @cached_property
    def is_cross_entropy(self) -> bool:
        """True where a cross-entropy is among the ops of a result without metrics of its own."""
        return not self.metrics and any(
            node.ptr.op in _CROSS_ENTROPY for node in walk([self.result.node], set())
        )

    def size_bytes(self) -> int:
        """Return the bytes that keeping it takes."""
        return self.graph.kept_bytes + sum(t.nbytes for t in self.inputs)

    def run(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Compute the result for arrays of the shapes that it was recorded for.

        Args:
            arrays: in the order of the inputs.
        """
        copy_in("TrainStep: batch", self.inputs, arrays)
        self.graph.run()
        return self.graph.read(self.result)


def _modules_of(model: Any) -> list[Any]:
    """A model and what is below it; none of one that is no `Module`."""
    named = getattr(model, "named_modules", None)
    return [] if named is None else [module for _, module in named()]


def read_loss(result: Any) -> tuple[Tensor, Count | None, Mapping[str, Tensor]]:
    """Return scalar, count and metrics that a loss function returned; None for a mean's count.

    Args:
        result: a scalar mean, (sum, count), or (sum, count, metrics).

    Raises:
        TypeError: it is neither, or the loss is not a tensor of f32.
        ValueError: the loss is not a scalar.
    """
    known = isinstance(result, tuple) and len(result) in (2, 3)
    loss, count, metrics = (*result, {})[:3] if known else (result, None, {})
    if not isinstance(loss, Tensor) or not loss.dtype.is_float:
        got = f"a Tensor of {loss.dtype.name}" if isinstance(loss, Tensor) else repr(loss)
        raise TypeError(
            f"TrainStep: loss must return a scalar Tensor of f32, or (sum, count); got {got:.60}"
        )
    if loss.numel() != 1:
        raise ValueError(
            "TrainStep: loss must return a scalar, the mean over the batch, or (sum, count); got "
            f"shape {loss.shape}: give loss.mean(), or (loss.sum(), count)"
        )
    if isinstance(count, Tensor):
        if count.numel() != 1:
            raise ValueError(f"TrainStep: the loss's count must be a scalar; got {count.shape}")
    elif count is not None and not callable(count):
        whole("TrainStep", "count", count, 0)
    elif count is None and isinstance(result, tuple):
        raise TypeError("TrainStep: the loss's count must be a number or a scalar; got None")
    if not isinstance(metrics, Mapping) or not all(
        isinstance(value, Tensor) and value.numel() == 1 for value in metrics.values()
    ):
        raise TypeError(
            f"TrainStep: the loss's metrics must be scalar tensors by name; got {metrics!r:.60}"
        )
    return loss.sum() if loss.ndim else loss, count, metrics


class StepGraphs:
    """The graphs of a model's training steps and evaluations, recorded on first use.

    Args:
        model: the model.
        optimizer: has the gradients; None only evaluates.
        loss: from (model, x, y) and further inputs by name to the mean loss of a batch, or to its
            sum and count.
        seed: of the dropouts' masks.
        precision: type of the numbers that matmuls multiply; None is what `pyggml.autocast` says.

    Attributes:
        dropout: where the masks come from.
        trained: parameters that the kept graphs have gradients of; another list when they change.
        spares_memory: graphs take as little memory as they can.
    """

    def __init__(
        self, model: Any, optimizer: Any, loss: LossFunction, seed: int, precision: str | None
    ):
        self.loss = loss
        self.dropout = DropoutStream(seed)
        self.trained: list[Tensor] = []
        self.spares_memory = False
        self._model = model
        self._modules, self._swaps = _modules_of(model), Swaps.count
        self._optimizer = optimizer
        self._precision = precision
        self._recorded = self._kept()
        self._logits = self._kept()
        self._counts = self._kept()
        self._device = model.parameters()[0].device
        self._scale, self._scale_value = tensor(np.float32(1.0), device=self._device), 1.0
        # Batches of many shapes take no more memory than the largest.
        self._activations = Activations(self._device) if self._device.kind == "cpu" else None

    @staticmethod
    def _kept() -> LRUCache[Recorded]:
        """Make a place for graphs."""
        cure = "pad the batches to fewer shapes, for instance by buckets of lengths"
        limits = _MOST_GRAPHS, _MOST_BYTES
        return graph_cache("TrainStep", Recorded.size_bytes, *limits, cure, least=_LEAST_GRAPHS)

    @property
    def memory_bytes(self) -> int:
        """Memory for what the graphs recorded so far compute."""
        if self._activations is not None:
            return self._activations.memory_bytes
        recorded = (*self._recorded, *self._logits, *self._counts)
        return sum(each.graph.memory_bytes for each in recorded)

    @property
    def fallbacks(self) -> dict[str, int]:
        """Ops that the CPU computes for the device, and how many in the graph with the most."""
        recorded = (*self._recorded, *self._logits, *self._counts)
        return most_fallbacks(each.graph for each in recorded)

    def set_scale(self, scale: float) -> None:
        """Set the gradient of the loss, which the gradients of all graphs are multiplied by.

        Args:
            scale: the number.
        """
        if scale != self._scale_value:
            self._scale_value = math.nan  # while it is written
            self._scale.copy_(np.float32(scale))
            self._scale_value = scale

    def forget(self) -> None:
        """Drop the recorded graphs and their memory; they are recorded again when needed."""
        self._recorded.clear()
        self._logits.clear()
        self._counts.clear()
        if self._activations is not None:
            self._activations = Activations(self._device)

    def _follow(self) -> None:
        """Forget the graphs if the model has other modules now, such as without its adapters."""
        if self._swaps == Swaps.count:
            return
        modules, self._swaps = _modules_of(self._model), Swaps.count
        if [id(m) for m in modules] != [id(m) for m in self._modules]:
            self._modules = modules
            self.forget()

    def get(self, spec: Spec, gradients: bool, overwrite: bool = True) -> Recorded:
        """Return the graph of the loss of batches of one spec, recorded on first use.

        Args:
            spec: of the batches.
            gradients: whether it computes the optimizer's gradients, in training mode.
            overwrite: whether it writes them over what is there, and does not add to it.
        """
        self._follow()
        overwrite = overwrite or not gradients
        grads = self._optimizer.trained() if gradients else {}
        if gradients and [id(p) for p in grads] != [id(p) for p in self.trained]:
            # Parameters were frozen or are no more: the graphs would train others.
            self._recorded.drop(lambda key: key[1])  # type: ignore[index]
            self.trained = list(grads)
        key = (spec, gradients, overwrite, None if self._precision else rounding())
        recorded = self._recorded.get(key)
        if recorded is None:
            made = self._record_step(spec, grads, overwrite) if gradients else None
            recorded = self._recorded.put(key, made or self._record_evaluation(spec))
        return recorded

    def _record_step(self, spec: Spec, grads: dict[Tensor, Tensor], overwrite: bool) -> Recorded:
        """A graph of loss and gradients; with `fused_update`, of the update, too."""
        inputs = self._inputs(spec)
        loss, count, _ = read_loss(self._record(inputs, True, self.loss))
        check_reached("TrainStep", loss, grads)
        outputs, effects, squares = [loss], [], None
        sent: dict[Tensor, Tensor] = {}
        if getattr(self._optimizer, "fused_update", False):
            effects, squares = self._optimizer.recorded_update()
            outputs.append(squares)
        else:
            sent = {p: ops.sum_sqr(g) for p, g in grads.items() if not g.is_stored}
            effects = list(sent.values())
        graph = Graph(
            outputs,
            effects=effects,
            loss=loss,
            grads=grads,
            loss_grad=self._scale,
            overwrite=overwrite,
            activations=self._activations,
        )
        return Recorded(tuple(inputs.values()), loss, graph, squares, count, sent=sent)

    def _record_evaluation(self, spec: Spec) -> Recorded:
        """Record a graph of the loss without gradients."""
        inputs = self._inputs(spec)
        loss, count, metrics = read_loss(self._record(inputs, False, self.loss))
        graph = Graph([loss, *metrics.values()], activations=self._activations)
        return Recorded(tuple(inputs.values()), loss, graph, count=count, metrics=metrics)

    def metric_sums(self, batch: Batch) -> dict[str, float]:
        """Return the sums of the loss's own metrics, of the batch that was evaluated last.

        Args:
            batch: the batch.
        """
        recorded = self.get(spec_of(batch), gradients=False)
        return {n: float(recorded.graph.read(t).item()) for n, t in recorded.metrics.items()}

    def weigh(self, batch: Batch, gradients: bool, overwrite: bool) -> tuple[int, bool]:
        """Return the number of a batch's targets, and whether its loss is a mean of them.

        Args:
            batch: inputs and targets.
            gradients: whether the graph of its loss computes gradients.
            overwrite: as in `get`.

        Raises:
            TypeError: the loss's count is not a whole number.
            ValueError: it is negative.
        """
        spec = spec_of(batch)
        count: Any = self.get(spec, gradients, overwrite).count
        if count is None:
            return count_targets(batch), True
        if isinstance(count, Tensor):
            count = self._read_count(batch, spec)
        elif callable(count):
            count = count(batch)
        return whole("TrainStep", "the loss's count", count, 0), False

    def _read_count(self, batch: Batch, spec: Spec) -> int | float:
        """Compute a count that is a tensor."""
        recorded = self._counts.get(spec)
        if recorded is None:
            # A graph of its own: the gradients' scale needs the count before the loss is computed.
            inputs = self._inputs(spec)
            count = self._record(inputs, False, self.loss)[1]
            graph = Graph([count], activations=self._activations)
            recorded = Recorded(tuple(inputs.values()), count, graph)
            self._counts.put(spec, recorded)
        found: float = recorded.run(arrays_of(batch)).reshape(-1)[0].item()
        return int(found) if float(found).is_integer() else found

    def logits(self, batch: Batch) -> Recorded:
        """Return the graph of the logits of batches like one, without gradients.

        Args:
            batch: inputs and targets, of which the latter are not used.
        """
        self._follow()
        spec = tuple(row for row in spec_of(batch) if row[0] != "y")
        key = (spec, rounding())
        recorded = self._logits.get(key)
        if recorded is None:
            inputs = self._inputs(spec)
            result = self._record(inputs, False, lambda model, x, **more: model(x, **more))
            graph = Graph([result], activations=self._activations)
            recorded = Recorded(tuple(inputs.values()), result, graph)
            self._logits.put(key, recorded)
        return recorded

    def run(self, batch: Batch, number: int | None = None, overwrite: bool = True) -> float:
        """Compute a batch's loss; its gradients become the optimizer's, or are added to them.

        Args:
            batch: inputs and targets.
            number: of its dropout masks; None evaluates without gradients.
            overwrite: whether its gradients are written over the optimizer's, and not added.
        """
        recorded = self.get(spec_of(batch), number is not None, overwrite)
        if number is not None:
            self.dropout.seek(number)
        return float(recorded.run(arrays_of(batch)))

    def _inputs(self, spec: Spec) -> dict[str, Tensor]:
        """Stored tensors for the arrays of a batch."""
        return {name: zeros(shape, dtype=dtype, device=self._device) for name, shape, dtype in spec}

    def _record(self, inputs: dict[str, Tensor], training: bool, function: Any) -> Any:
        """Record a function of the model and a batch, in the mode that the graph is for."""
        x, *y = (inputs[name] for name in ("x", "y") if name in inputs)
        more = {name: value for name, value in inputs.items() if name not in ("x", "y")}
        nodes = [t.node for t in inputs.values()]
        precision = autocast(self._precision) if self._precision else nullcontext()
        mode = in_mode(self._model, training)
        memory = spare_memory() if self.spares_memory else nullcontext()
        with mode, self.dropout, precision, memory, Trace("TrainStep", nodes):
            return function(self._model, x, *y, **more)
