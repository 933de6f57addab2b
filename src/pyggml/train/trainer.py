# SPDX-License-Identifier: MIT
"""Trainer: steps, evaluations and checkpoints until the run is done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..absent import absent
from ..backend.scopes import IfFree, Scope, Scopes
from ..backend.threads import need_interpreter
from ..checks import flag, function
from ..checks import path as check_path
from ..data import Prefetch
from ..data.loader import Epochs
from ..errors import ConfigError, fitting
from ..models import LanguageModel
from ..optim import AdamW
from ..tensors.random import looking_ahead
from .arguments import (
    check_callbacks,
    check_fingerprint,
    check_loss,
    check_model,
    check_optimizer,
    check_read,
    check_token_bytes,
    choose_blocks,
    make_loader,
    read_options,
    warn_of_no_steps,
)
from .callbacks import Callback, Progress
from .checkpoints.keeper import Checkpoints
from .diagnose import TrainingError
from .evaluation.evaluator import Evaluator
from .evaluation.sets import ValidationSet, check_labels, read_sets
from .interrupt import InterruptGuard, TrainingInterrupted
from .loop import Loop, interval
from .losses import LossFunction, smoothed_loss
from .memory import MemoryPlan
from .memory.fit import MemoryPlanner
from .metrics import EvalMetrics
from .metrics.efficiency import Utilization, free_memory
from .options import TrainerOptions
from .ranks import (
    begin_as_first,
    check_ranks,
    join,
    make_exchange,
    need_same_round,
    step_group,
)
from .result import FitResult
from .run import Run
from .schedule import check_rates, make_schedule
from .step import TrainStep
from .tasks import Metric, find_task, split_metrics

__all__ = ["FitResult", "Trainer", "TrainingError"]

_log = logging.getLogger("pyggml.train")
_DEFAULT_STEPS = 1000


class Trainer(Run):
    """Trains a language model, or another model that has a loss or returns logits of classes.

    In a job of several ranks, which `mpiexec` started, each computes its rows of every batch, and
    gradients, losses and metrics are those of all ranks. Rank 0 writes checkpoints and tells the
    callbacks. Every rank calls the same methods.

    Args:
        model: the model.
        train: a dataset, of which a `Loader` with `batch_size` and `seed` is made; a pair of arrays
            (x, y), which become a `data.ArrayDataset`; or a loader, endless batches (x, y) with
            `state_dict` and `load_state_dict`. Batches of loaders of pyggml.data are made ahead in
            a thread, as `prefetch` says.
        val: tokens to evaluate on, a dataset, a pair of arrays, `Documents`, a loader with
            `once()`, several of these by name, or None. The first decides what is best and when to
            stop early.
        optimizer: over the model's parameters; None is `AdamW(model)`.
        options: `TrainerOptions`; None takes their defaults.
        checkpoint_dir: folder of the checkpoints; None keeps none.
        callbacks: objects that are told of events; their methods on_… are those of `Callback`.
        schedule: the name of a schedule; or a function step -> learning rate. One that has
            `update`, `state_dict` and `load_state_dict`, as `ReduceOnPlateau` has, is told the
            validation loss.
        loss: function (model, x, y, **inputs) -> mean, (sum, count), or (sum, count, metrics);
            None as `TrainStep`.
        task: a key of `TASKS`, which sets loss and metrics where none are given; None is the
            model's own, as an `MLP` made for a table has one.
        data: fingerprint of the training data, kept in the checkpoints.
        token_bytes: bytes of text of each token, as `token_bytes(tokenizer)` returns them, for bits
            per byte.
        save_frozen: checkpoints hold the frozen parameters as well. Without them a checkpoint of
            an adapter is small, and the run resumes only on the same base.
        given: options by name, such as `batch_size=16, steps=200`; they replace those of `options`.
            Among `metrics` may be functions of (predictions, targets), or (y_true, y_pred), of a
            whole set.

    Attributes:
        step: optimizer steps done.
        best: step and loss of the best evaluation, and evaluations since; None before the first.
        evaluations: the last one of each set.
        scaler: the loss scaling of precision f16, or None.
        ema: the running average of the weights, or None.
        device: device of the model.
        history: the steps and evaluations as a table.
        train_step: computes the steps.

    Raises:
        TypeError: a part is of another kind.
        ValueError: a part does not fit another.
        ConfigError: an option is unknown, or cannot be used.
        DistributedError: MPI is missing, or a rank has another model, options or data.

    Example:
        >>> from pyggml.data import TokenDataset
        >>> train, val = TokenDataset(np.arange(500) % 65, seq_len=8).split(0.2)
        >>> trainer = Trainer(model, train, val, AdamW(model, lr=2e-3), batch_size=4, steps=3)
        >>> trainer.fit().step
        3
    """

    def __init__(
        self,
        model: Any,
        train: Any,
        val: Any = None,
        optimizer: Any = None,
        *,
        options: TrainerOptions | None = None,
        checkpoint_dir: str | Path | None = None,
        callbacks: Iterable[Callback] = (),
        schedule: str | Callable[[int], float] | None = None,
        loss: LossFunction | None = None,
        task: str | None = None,
        data: dict[str, Any] | None = None,
        token_bytes: np.ndarray | None = None,
        save_frozen: bool = True,
        **given: Any,
    ):
        who = "Trainer"
        if isinstance(schedule, str):
            given["schedule"] = schedule
        elif schedule is not None:
            function(who, "schedule", schedule, "step -> learning rate")
        functions: dict[str, Metric] = {}
        if "metrics" in given:
            given["metrics"], functions = split_metrics(who, given["metrics"])
        options = read_options(who, options, given)
        model = check_model(who, model)
        loss = check_loss(who, loss)
        if options.mfu and not isinstance(model, LanguageModel):
            raise ValueError(f"{who}: `mfu` is for language models; leave it out")
        if options.checkpointing is not None:
            choose_blocks(who, model, options.checkpointing)
        if optimizer is None:
            optimizer = AdamW(model)
        check_optimizer(who, optimizer, model)
        if optimizer.rounded is not None and options.sync_every:
            raise ConfigError(
                f"{who}: `sync_every` must be 0 where the weights are rounded, as an average of "
                f"rounded weights is not rounded; got {options.sync_every}"
            )
        if optimizer.rounded is not None and options.ema:
            raise ConfigError(
                f"{who}: `ema` must be 0 where the weights are rounded, as an average of rounded "
                f"weights is not rounded; got {options.ema}"
            )
        loader = make_loader(who, train, options, checkpoint_dir is not None)
        group = join(who, options, loader)
        sharers = step_group(options, group)
        check_labels(model, loader)
        sets = read_sets(val, loader)
        check_read(who, options, schedule, loader, sets, checkpoint_dir)
        ahead = options.value("prefetch")
        if ahead and isinstance(loader, Epochs):
            loader = Prefetch(loader, ahead)
        batches = 0
        with suppress(TypeError):  # a loader need not tell
            batches = len(loader)
        total_steps = options.total_steps(batches, _DEFAULT_STEPS)
        if not callable(schedule):
            lr = optimizer.lr if options.lr is None else options.lr
            schedule = make_schedule(options, lr, total_steps)
        else:
            check_rates(f"{who}: ", schedule, total_steps)
        if loss is not None and options.label_smoothing:
            raise ConfigError(
                f"{who}: `label_smoothing` must be 0 beside a `loss`, which smooths by itself; got "
                f"{options.label_smoothing}: leave one out"
            )
        kind = find_task(who, task, model)
        if options.label_smoothing and not (kind is None or kind.of_classes):
            raise ConfigError(
                f"{who}: `label_smoothing` needs a task of classes; got {options.label_smoothing} "
                f"for {kind.name}: leave it out"
            )
        if options.label_smoothing:
            loss = smoothed_loss(model, options.label_smoothing)
        if loss is None and kind is not None:
            loss = kind.loss(model)
        free = free_memory(model)
        train_step = TrainStep(
            model,
            optimizer,
            clip=options.clip,
            loss=loss,
            seed=options.seed,
            precision=options.precision,
            clip_value=options.clip_value,
            group=sharers,
            exchange=make_exchange(who, options, sharers, optimizer),
        )
        train_step.accumulates = options.accumulate > 1
        super().__init__(
            model,
            optimizer,
            loader,
            options,
            schedule,
            total_steps,
            train_step,
            check_callbacks(who, callbacks),
            check_fingerprint(who, data),
            flag(who, "save_frozen", save_frozen),
            group,
        )
        self.token_bytes = check_token_bytes(who, token_bytes, model)
        folder = (
            None if checkpoint_dir is None else check_path(who, "checkpoint_dir", checkpoint_dir)
        )
        self._checkpoints = Checkpoints(self, folder)
        self._evaluator = Evaluator(self, sets, self.token_bytes, kind, functions)
        self._planner = MemoryPlanner(self, self._evaluator.check, free)
        train_step.spares_memory = self._planner.must_fit
        self._utilization = Utilization(model, lambda: self.seq_len)
        self._has_ended = False  # a fit() came to the last step
        self._inside = Scopes()  # the fit(), resume() or evaluate() that a thread is in
        check_ranks(self, self._evaluator.sets)

    @property
    def sets(self) -> dict[str, ValidationSet]:
        """The validation sets by name."""
        return self._evaluator.sets

    @property
    def evaluations(self) -> dict[str, EvalMetrics]:
        """The last evaluation of each set."""
        return self._evaluator.results

    @property
    def last_evaluation(self) -> EvalMetrics | None:
        """The last evaluation of the first set."""
        return self._evaluator.last

    @property
    def checkpoint_dir(self) -> Path | None:
        """Folder of the checkpoints, or None."""
        return self._checkpoints.directory

    @property
    def last_checkpoint(self) -> Path | None:
        """The last checkpoint written or resumed from, or None."""
        return self._checkpoints.last

    @property
    def best_checkpoint(self) -> Path | None:
        """The checkpoint of the lowest validation loss, or None."""
        return self._checkpoints.best

    @property
    def memory(self) -> MemoryPlan | None:
        """The last plan of the memory, or None."""
        return self._planner.plan

    @property
    def eval_every(self) -> int:
        """Steps between evaluations; 0 evaluates at the end only."""
        return interval(self.options.eval_every, self.total_steps, 10, self.options.sync_every)

    @property
    def save_every(self) -> int:
        """Steps between checkpoints; 0 saves at the end only."""
        return interval(self.options.save_every, self.total_steps, 5, self.options.sync_every)

    def plan(self) -> MemoryPlan:
        """Record and plan the graphs, and return the memory that the run takes.

        The activations are those of batches like the first; others have graphs of their own. With a
        `memory_limit`, or checkpointing `auto`, this chooses as few blocks to compute twice
        as the limit takes.

        Returns:
            Bytes by kind; its `check()` raises where the device has no room for them.

        Raises:
            OutOfMemoryError: nothing fits into the limit.
            RuntimeError: another thread is in `fit` or `resume`, whose loader gives the batch, or
                evaluates averaged weights.
        """
        with IfFree(self._trains) as held:
            self._need(held, "plan")
            with looking_ahead():
                return self._planner.make()

    def check(self) -> None:
        """Raise what the first evaluation would raise, and record the graphs for it.

        Raises:
            ValueError: a set has no batch, or one that does not suit the model or a metric.
        """
        with looking_ahead():
            self._evaluator.check()

    def fit(self, *, progress: bool = True) -> FitResult:
        """Train from the current step to the last.

        An error in an evaluation, a callback or a batch ends the run with a checkpoint of the
        steps that were done.

        Args:
            progress: show a bar in a terminal or a notebook, else plain lines on stderr, unless a
                callback is a `Progress` already.

        Returns:
            The result of the run.

        Raises:
            TypeError: progress is no bool.
            TrainingInterrupted: a signal asked for the end; the running step was finished and a
                checkpoint written.
            TrainingError: a loss or gradient is not finite; names the last checkpoint.
            CheckpointError: a checkpoint could not be written, or the run begins at step 0
                in a folder that holds another's.
            MetricsError: the file of a `MetricsWriter` could not be written.
            ValueError: a validation set cannot be evaluated; nothing was trained.
            RuntimeError: the interpreter exits; `fit`, `resume` or `evaluate` calls this, as in a
                callback; another thread is in `fit` or `resume`, or evaluates averaged weights; or
                an error has left a part of a step, from which `resume` goes back to a checkpoint.
            DistributedError: another rank is in a `fit` that this one has left, or at the other
                side of an average of the ranks' weights.

        Warns:
            UserWarning: an earlier `fit()` took the last step, so that none is left.
        """
        shows = flag("Trainer.fit", "progress", progress)
        need_interpreter("Trainer.fit")
        with IfFree(self._trains) as held:
            self._need(held, "fit")
            with self._outermost("fit"):
                if not shows or any(isinstance(each, Progress) for each in self.callbacks):
                    return self._fit()
                self.callbacks.append(shown := Progress())
                try:
                    return self._fit()
                finally:
                    self.callbacks.remove(shown)

    if not TYPE_CHECKING:  # type checkers know the signature
        fit = fitting(fit, "Trainer.fit")

    def _need(self, held: list[bool], method: str) -> None:
        """Raise where another thread has the lock of the one that trains."""
        if not all(held):
            raise RuntimeError(
                f"Trainer.{method}: another thread must not be in fit(), resume(), plan() or"
                " evaluate() of this trainer meanwhile: call it in a callback, or after them"
            )

    def _outermost(self, method: str) -> Scope:
        """Return the scope of fit() or resume(), or raise inside of one."""
        if self._inside.entries:
            raise RuntimeError(
                f"Trainer.{method}: a callback, loss or loader must not call it inside of"
                f" {self._inside.innermost()}() of the same trainer: raise an exception there, and"
                f" call it after {self._inside.innermost()}() has ended"
            )
        return Scope(self._inside, method)

    def _need_ranks(self, method: str) -> None:
        """Raise beside a training in another thread, whose messages between ranks would mix."""
        if self.group.size > 1:
            with IfFree(self._trains) as held:
                self._need(held, method)

    def _fit(self) -> FitResult:
        """Train, and tell the callbacks."""
        self.group.meet("Trainer.fit")
        need_same_round(self)
        self._checkpoints.whole.need("fit")
        if self._has_ended and self.is_done:
            warn_of_no_steps(self.step, self.total_steps)
        if self.memory is None and self._planner.must_fit:
            self.plan()
        else:
            self.check()
        self._checkpoints.begin()
        if not self.is_apart:
            begin_as_first(self)
        if self.options.mfu:
            self._utilization.measure(self.device)
        with InterruptGuard(self._interrupted) as guard:
            self.tell("on_start")
            try:
                loop = Loop(self, self._evaluator, self._checkpoints, self._utilization, guard)
                loop.train()
            finally:
                if isinstance(self.loader, Prefetch):
                    self.loader.close()
                self.tell("on_end")
            self.train_step.gather()
            (signum,) = self.group.maxima(guard.signum if guard.requested else 0)
            if signum:
                raise TrainingInterrupted(self.step, self.last_checkpoint, signum)
        self._has_ended = True
        return FitResult(
            self.step,
            loop.loss,
            self.last_evaluation,
            self.last_checkpoint,
            self.elapsed_s,
            self.step < self.total_steps,
            self.best_checkpoint,
        )

    def evaluate(self, stop: Callable[[], bool] | None = None) -> EvalMetrics | None:
        """Compute loss, perplexity and metrics on every validation set.

        If an average of the weights is kept, a training in another thread waits meanwhile, and none
        can begin.

        Args:
            stop: asked before each batch; True ends the evaluation without a result. None goes on.

        Returns:
            The metrics of the first set; `evaluations` has the others.

        Raises:
            ValueError: the trainer has no validation set.
            RuntimeError: a training in another thread took a step meanwhile, or evaluates with its
                averaged weights; or several ranks train in another thread.
        """
        self._need_ranks("evaluate")
        if not (stop is None or callable(stop)):
            raise TypeError(
                "Trainer.evaluate: stop must be a function () -> bool; got "
                f"{type(stop).__name__}: validation data is given to the trainer, "
                "Trainer(…, val=dataset).evaluate(); of other data, "
                "train.predict(model, x) gives the outputs"
            )
        with Scope(self._inside, "evaluate"):
            return self._evaluator.evaluate(stop or (lambda: False))

    if not TYPE_CHECKING:  # type checkers know the signature, and go on reporting absent names
        evaluate = fitting(evaluate, "Trainer.evaluate")

        def __getattr__(self, name: str) -> Any:
            """Raise for a name that is not there, and say what to use."""
            if hasattr(type(self), name):  # a property raised this: let its own error come out
                return object.__getattribute__(self, name)
            absent("trainer", name, dir(type(self)))

    def save(self) -> Path:
        """Write a checkpoint of the last whole step.

        Another thread may call it while `fit` runs. Where the thread of `fit` has saved a later
        step by then, nothing is written, and the path is that checkpoint's.

        Raises:
            ValueError: the trainer keeps no checkpoints.
            CheckpointError: it could not be written; the earlier ones are whole.
            RuntimeError: several ranks train in another thread, or an evaluation has lent the
                model its averaged weights there; a signal's handler, such as `on_interrupt`, calls
                it in the middle of a step or of a save; or an error has left a part of a step.
        """
        self._need_ranks("save")
        return self._checkpoints.save()

    def resume(self, path: str | Path | None = None) -> int:
        """Continue from a checkpoint.

        Args:
            path: its directory; None takes the newest of `checkpoint_dir`, which may be the best.

        Returns:
            The step it was written at; 0 when there is none yet.

        Raises:
            FormatError: the checkpoint is damaged or of another run; nothing has changed then.
            RuntimeError: `fit`, `resume` or `evaluate` calls this, as in a callback; or another
                thread is in `fit` or `resume`, or evaluates averaged weights.
            DistributedError: another rank is in a `fit` that this one has left.
        """
        found = None if path is None else check_path("Trainer.resume", "path", path)
        with IfFree(self._trains) as held:
            self._need(held, "resume")
            with self._outermost("resume"):
                self.group.meet("Trainer.resume")
                self.train_step.gather()
                self.group.first(lambda: self._checkpoints.resume(found))
                self._has_ended = False
                begin_as_first(self)
        return self.step

    def _interrupted(self, signum: int) -> None:
        try:
            self.tell("on_interrupt", signum)
        except Exception:  # noqa: BLE001 (it is logged)
            # It would be raised wherever the signal came, in the middle of a save for instance.
            _log.exception("train: a callback's on_interrupt failed")

    def summary(self) -> dict[str, Any]:
        """Return where the run stands, as JSON-ready values."""
        last = self.last_evaluation
        return {
            "step": self.step,
            "total_steps": self.total_steps,
            "tokens": self.tokens,
            "elapsed_s": self.elapsed_s,
            "best": self.best,
            "validation": None if last is None else asdict(last),
            "evaluations": {name: asdict(metrics) for name, metrics in self.evaluations.items()},
        }
