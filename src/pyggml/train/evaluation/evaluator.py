# SPDX-License-Identifier: MIT
"""The evaluations of a run on its validation sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from ...backend.device import alone
from ...backend.undivided import Undivided
from ..metrics import EvalMetrics
from ..run import Run
from ..tasks import TASKS, Metric, Task
from .evaluate import Spare, evaluate
from .sets import ValidationSet, check_metrics

__all__ = ["Evaluator"]


class Evaluator:
    """Evaluates a run's model on its validation sets, and keeps the results.

    Args:
        run: the run.
        sets: validation sets by name; the first decides what is best.
        token_bytes: bytes of text of each token, for bits per byte.
        task: what the outputs are; None is a classification.
        functions: metrics besides those of the options, by name.

    Attributes:
        sets: the sets.
        results: last evaluation of each set.

    Raises:
        ValueError: a metric does not suit the model.
    """

    def __init__(
        self,
        run: Run,
        sets: Mapping[str, ValidationSet],
        token_bytes: np.ndarray | None,
        task: Task | None = None,
        functions: Mapping[str, Metric] | None = None,
    ):
        self.sets = dict(sets)
        self.results: dict[str, EvalMetrics] = {}
        self._run, self._token_bytes = run, token_bytes
        self._task, own, kind = task, functions or {}, task or TASKS["classification"]
        default = task.default if task is not None and not own else ()
        self._rules = {name: kind.metric(name) for name in run.options.metrics or default}
        self._rules |= own
        check_metrics(run.model, self._rules, kind)

    @property
    def last(self) -> EvalMetrics | None:
        """The last evaluation of the first set."""
        return self.results.get(next(iter(self.sets), ""))

    def check(self) -> None:
        """Raise if a set cannot be evaluated, and record the graphs for it.

        Raises:
            ValueError: a set has no batch, or one that does not suit the model or a metric.
        """
        for each in self.sets.values():
            each.check(self._run.train_step, self._rules, self._task or TASKS["classification"])

    def evaluate(
        self, stop: Callable[[], bool], count: Callable[[list[EvalMetrics]], None] | None = None
    ) -> EvalMetrics | None:
        """Evaluate every set, with the averaged weights where an average is kept.

        Args:
            stop: asked before each batch; True ends the evaluation without a result.
            count: called with the metrics of every set, where no signal divides it, in place of
                telling the callbacks.

        Returns:
            The metrics of the first set.

        Raises:
            ValueError: the run has no validation set.
            RuntimeError: a training in another thread took a step meanwhile.
        """
        run = self._run
        if not self.sets:
            raise ValueError("Trainer.evaluate: a validation set is needed; got none")
        run.tell("on_evaluation_start")
        with run.averaged(None):
            step, found = run.step, self._measure(stop)
            if found is None:
                return None
            with alone(), Undivided():  # the losses are of this step
                if run.step != step:
                    raise RuntimeError(
                        f"Trainer.evaluate: the run must stay at step {step} meanwhile; another"
                        f" thread has trained on to step {run.step}: evaluate in a callback, or"
                        " inside `with pyggml.alone():`"
                    )
                self.results = {metrics.name: metrics for metrics in found}
                run.lowest.judge(step, found[0].loss)
                if count is not None:
                    count(found)
        for metrics in found if count is None else ():
            run.tell("on_evaluation", metrics)
        return found[0]

    def _measure(self, stop: Callable[[], bool]) -> list[EvalMetrics] | None:
        """Return the metrics of every set; None when it was stopped."""
        run, found = self._run, list[EvalMetrics]()
        for name, each in self.sets.items():
            metrics = evaluate(
                run.model,
                self._share(each.batches(run.options.eval_batches)),
                run.train_step,
                run.step,
                stop,
                self._rules,
                self._token_bytes,
                name,
                run.group,
                self._task,
            )
            if metrics is None:
                return None
            found.append(metrics)
        return found

    def _share(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Give out this rank's batches: whole ones, whose sizes need not be multiples of the ranks.

        Where graphs need parameters of all ranks, each rank computes as often as the others.
        """
        group, exchange, every = self._run.group, self._run.train_step.exchange, iter(batches)
        joins = exchange is not None and exchange.delivery.windows is not None
        while turn := list(islice(every, group.size)):
            if group.rank < len(turn):
                yield turn[group.rank]
            elif joins:
                yield Spare(turn[0])
