# SPDX-License-Identifier: MIT
"""The state of a training: its parts and its progress."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat, starmap
from operator import methodcaller
from typing import Any, TypeVar

from ..backend.device import device as find_device
from ..backend.not_copied import NotCopied
from ..backend.undivided import Undivided, settle
from ..distributed import Group
from ..distributed.local import LocalSteps
from ..optim import EMA
from .callbacks import Callback, History
from .exchange import Shards
from .options import TrainerOptions
from .scaler import GradScaler
from .step import TrainStep
from .weights import TrainedWeights

__all__ = ["LowestLoss", "Run"]

T = TypeVar("T")

# The call of a callback's method, and the callbacks that it was not called of yet.
_Event = tuple[methodcaller, deque[Callback]]


class LowestLoss:
    """The lowest validation loss of a run, and the evaluations since.

    Args:
        patience: evaluations without a lower loss after which a run ends; 0 never ends it.
        min_delta: decrease that counts as progress.

    Attributes:
        record: step and loss of the best evaluation, and `stale`, the evaluations since; None
            before the first.

    Example:
        >>> lowest = LowestLoss(patience=1)
        >>> lowest.judge(2, 1.0)
        >>> lowest.judge(4, 1.5)
        >>> lowest.wait(4)
        >>> lowest.record, lowest.is_stale
        ({'step': 2, 'loss': 1.0, 'stale': 1}, True)
    """

    def __init__(self, patience: int = 0, min_delta: float = 0.0):
        self.record: dict[str, Any] | None = None
        self._patience, self._min_delta = patience, min_delta

    def judge(self, step: int, loss: float) -> None:
        """Keep the loss of an evaluation if it is the lowest.

        Args:
            step: step of the evaluation.
            loss: its loss; NaN is never the lowest.
        """
        bar = math.inf if self.record is None else self.record["loss"] - self._min_delta
        if loss < bar:
            self.record = {"step": step, "loss": loss, "stale": 0}

    def wait(self, step: int) -> None:
        """Count an evaluation towards the patience, unless it is the best one.

        Args:
            step: step of the evaluation.
        """
        if self.record is not None and not self.is_at(step):
            self.record = {**self.record, "stale": self.record["stale"] + 1}

    def is_at(self, step: int) -> bool:
        """Return True if the lowest loss is that of a step's evaluation."""
        return self.record is not None and bool(self.record["step"] == step)

    @property
    def is_stale(self) -> bool:
        """True if the loss has not fallen for as many evaluations as the patience."""
        stale = 0 if self.record is None else self.record["stale"]
        return 0 < self._patience <= stale


class Run(NotCopied):
    """The state of a training, which is the base of `Trainer`.

    Args:
        model: the model.
        optimizer: over its parameters.
        loader: endless training batches.
        options: the trainer's options.
        schedule: step -> learning rate.
        total_steps: steps of the whole run.
        train_step: computes the steps.
        callbacks: objects that are told of events.
        data: fingerprint of the training data.
        save_frozen: checkpoints hold the frozen parameters as well.
        group: ranks that train together; None is this process by itself.

    Attributes:
        weights: the part of the model that checkpoints hold.
        step: optimizer steps done.
        tokens: targets trained on.
        elapsed_s: seconds of training.
        evaluated: last step whose evaluation was done, or None.
        lowest: lowest validation loss.
        ema: running average of the weights, or None.
        device: device of the model.
        history: steps and evaluations as a table.
        batches: gives the loader's batches without an end; None before the first training.
        drawn: batches of the loader that no step was made of yet.
        untold: events, their details, and the callbacks that were not told of them yet.
        group: the ranks.
        local: averages the ranks' weights where each takes steps by itself, or None.
        shards: the optimizer's state, of which each rank may have a part.
        recipe: options of the recipe that made the run, which its checkpoints hold; or None.
    """

    instead = "make another Trainer, or resume() from a checkpoint of this one"

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loader: Any,
        options: TrainerOptions,
        schedule: Callable[[int], float],
        total_steps: int,
        train_step: TrainStep,
        callbacks: list[Callback],
        data: dict[str, Any] | None,
        save_frozen: bool = True,
        group: Group | None = None,
    ):
        self._trains = (
            threading.RLock()
        )  # held in fit(), resume() and plan(), and while averages are lent
        self.group = group or Group()
        self.weights: Any = model if save_frozen else TrainedWeights(model)
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.options, self.schedule, self.total_steps = options, schedule, total_steps
        self.train_step, self.callbacks, self.data = train_step, callbacks, data
        self.shards = Shards(self.group, optimizer, train_step.exchange)
        self.history = History()
        self.recipe: dict[str, Any] | None = None
        self.batches: Iterator[Any] | None = None
        self.drawn: list[Any] = []
        self.untold: deque[_Event] = deque()
        self.step = self.tokens = 0
        self.elapsed_s = 0.0
        self.evaluated: int | None = None
        self.lowest = LowestLoss(options.patience, options.min_delta)
        self.ema = EMA(model, options.ema) if options.ema else None
        self.local: LocalSteps | None = None
        if options.sync_every:
            params = {name: p for name, p in model.named_parameters() if p.requires_grad}
            self.local = LocalSteps(self.group, params, options.outer_lr, options.outer_momentum)
        self.device = find_device(model.parameters()[0].device)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({type(self.model).__name__}, step {self.step:,} of"
            f" {self.total_steps:,}, {type(self.optimizer).__name__} with lr"
            f" {self.schedule(self.step):.3g}, batches of {self.loader.batch_size})"
        )

    @property
    def scaler(self) -> GradScaler | None:
        """The loss scaling of precision f16, or None."""
        return self.train_step.scaler

    @property
    def best(self) -> dict[str, Any] | None:
        """Step and loss of the best evaluation, and evaluations since; None before the first."""
        return self.lowest.record

    @property
    def is_apart(self) -> bool:
        """True between two averages of the ranks' weights, which differ meanwhile."""
        if self.local is None or not self.local.steps:
            return False
        return bool(self.step % self.options.sync_every) and self.step < self.total_steps

    @property
    def is_best(self) -> bool:
        """True if the evaluation of this very step is the best so far."""
        return self.lowest.is_at(self.step)

    @property
    def is_stale(self) -> bool:
        """True if the validation loss has not fallen for as long as the patience lasts."""
        return self.lowest.is_stale

    @property
    def is_done(self) -> bool:
        """True if there is nothing left to train."""
        return self.step >= self.total_steps or self.is_stale

    @property
    def seq_len(self) -> int:
        """Tokens per sequence."""
        return int(self.loader.dataset.seq_len)

    def averaged(self, value: T) -> AbstractContextManager[T]:
        """Let the model use its averaged weights inside the block, where an average is kept.

        A training in another thread waits until the block ends, and none can begin. Otherwise
        threads may compute: a validation set may wait for one.

        Args:
            value: what `as` names.
        """
        return nullcontext(value) if self.ema is None else self.ema.lent(self._trains, value)

    def tell(self, event: str, *details: Any) -> None:
        """Call one method of every callback, on rank 0; then raise the first error of one.

        Args:
            event: name of the method.
            details: its arguments after the trainer.
        """
        # A signal's handler may tell on_interrupt in a step, which can still be interrupted.
        self._tell(deque([self._event(event, details)]), event != "on_interrupt")

    def owe(self, event: str, *details: Any) -> None:
        """Note an event, of which `tell_owed` tells the callbacks.

        Args:
            event: name of the method.
            details: its arguments after the trainer.
        """
        self.untold.append(self._event(event, details))

    def tell_owed(self) -> None:
        """Tell each callback of the events that it does not know of; then raise the first error."""
        self._tell(self.untold)

    def _event(self, event: str, details: tuple[Any, ...]) -> _Event:
        """Return an event and those who are to know of it."""
        left: list[Callback] = [self.history, *(self.callbacks if self.group.is_first else ())]
        return methodcaller(event, self, *details), deque(left)

    def _tell(self, events: deque[_Event], blocks: bool = True) -> None:
        """Tell the callbacks of events, each once, whatever a handler of a signal raises."""
        errors: list[BaseException] = []
        while events:
            call, left = events[0]
            while left:
                # One call of C takes a callback out and calls it.
                told = map(call, starmap(left.popleft, repeat((), 1)))
                waits = blocks and type(left[0]).undivided is True
                try:
                    with Undivided() if waits else nullcontext():
                        settle()
                        deque(told, maxlen=0)
                except BaseException as error:  # noqa: BLE001 - the others are told first
                    errors.append(error)
            events.popleft()
        if errors:
            raise errors[0]
