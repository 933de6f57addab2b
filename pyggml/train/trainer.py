# SPDX-License-Identifier: MIT
"""Trainer: steps, evaluations and checkpoints until the run is done."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Prefetch
from ..device import device as find_device
from ..models import LanguageModel
from ..optim import EMA, ReduceOnPlateau
from ..random import random_generator
from ..roofline import measure_peaks
from .batches import Batch, prefetched, spec_of
from .best import BEST, best_step, keep_best
from .callbacks import Callback
from .checkpoint import (
    TrainState,
    clear_ahead,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from .config import TrainConfig
from .diagnose import TrainingError, diverged, find_cause
from .efficiency import flops_per_token, memory_in_use
from .evaluate import eval_batches, evaluate, read_sets
from .interrupt import InterruptGuard, TrainingInterrupted
from .lengths import DEFAULT_STEPS, default_schedule, interval
from .limit import fit_memory, must_fit
from .metrics import EvalMetrics, StepMetrics
from .named import make_loss
from .plan import MemoryPlan
from .restore import EMA_KEY, restore
from .result import FitResult
from .step import LossFunction, NonFiniteError, TrainStep

__all__ = ["FitResult", "Trainer", "TrainingError"]

_SPEED_STEPS = 20


class Trainer:
    """Trains a language model, or another model that has a loss or gives logits of classes.

    Args:
        model: the model.
        optimizer: over its parameters.
        loader: endless training batches (x, y), with `state_dict` and `load_state_dict`. One of
            pyggml.data is read ahead, in a thread, as `prefetch` of the configuration says.
        validation: tokens to evaluate on, a dataset with `ids`, a loader with `once()`, several of
            these by name, or None. The first decides what is best and when to stop early.
        config: lengths, rates and intervals; its text, tokenizer and sizes are not used here.
        checkpoint_dir: folder of the checkpoints; None keeps none.
        callbacks: what looks on.
        schedule: step -> learning rate; None takes the configuration's.
        data: fingerprint of the training tokens, kept in the checkpoints.
        token_bytes: bytes of text of each token, as `token_bytes(tokenizer)` tells them, for bits
            per byte.
        loss: the summed loss of a batch; None as `TrainStep` chooses.

    Attributes:
        step: optimizer steps done.
        best: step and loss of the best evaluation, and evaluations since; None before the first.
        evaluations: the last one of each set.
        scaler: the loss scaling of precision f16, or None.
        ema: the running average of the weights, or None.

    Raises:
        ValueError: a part does not fit another.

    Example:
        >>> trainer = Trainer(model, AdamW(model.parameters()), Loader(data, 8), held_back,
        ...                   TrainConfig(steps=100))
        >>> trainer.fit().step
        100
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loader: Any,
        validation: Any = None,
        config: TrainConfig | None = None,
        *,
        checkpoint_dir: str | Path | None = None,
        callbacks: Iterable[Callback] = (),
        schedule: Callable[[int], float] | None = None,
        data: dict[str, Any] | None = None,
        token_bytes: np.ndarray | None = None,
        loss: LossFunction | None = None,
    ):
        self.config = config or TrainConfig()
        if optimizer.fused_update != self.config.fused_update:
            raise ValueError(
                "Trainer: optimizer and config must agree on fused_update; "
                f"got {optimizer.fused_update} and {self.config.fused_update}"
            )
        self.model = model
        if self.config.checkpointing not in (None, "auto"):
            model.checkpointing = self.config.checkpointing
        self.optimizer = optimizer
        self.loader = prefetched(loader, self.config.prefetch)
        self.callbacks = list(callbacks)
        self.checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.total_steps = self.config.total_steps(len(loader), DEFAULT_STEPS)
        self.schedule = schedule or default_schedule(self.config, self.total_steps)
        self.data = data
        self.step = 0
        self.tokens = 0
        self.elapsed_s = 0.0
        self.best: dict[str, Any] | None = None
        self._evaluated: int | None = None
        self.last_checkpoint: Path | None = None
        self.best_checkpoint: Path | None = None
        self.evaluations: dict[str, EvalMetrics] = {}
        self.token_bytes = token_bytes
        self._free_bytes = _free_memory(model)
        self._sets = read_sets(validation)
        self._device = find_device(model.parameters()[0].device)
        self._peak_flop_s: float | None = None
        self.ema = EMA(model, self.config.ema) if self.config.ema else None
        self._batches: Iterator[Batch] | None = None
        self._train_step = TrainStep(
            model,
            optimizer,
            clip=self.config.clip,
            loss=loss or make_loss(self.config, model),
            seed=self.config.seed,
            precision=self.config.precision,
            clip_value=self.config.clip_value,
        )
        self.scaler = self._train_step.scaler
        self.memory: MemoryPlan | None = None

    @property
    def eval_every(self) -> int:
        """Steps between evaluations; 0 evaluates at the end only."""
        return interval(self.config.eval_every, self.total_steps, 10)

    @property
    def save_every(self) -> int:
        """Steps between checkpoints; 0 saves at the end only."""
        return interval(self.config.save_every, self.total_steps, 5)

    @property
    def last_evaluation(self) -> EvalMetrics | None:
        """The last evaluation of the first set."""
        return self.evaluations.get(next(iter(self._sets), ""))

    @property
    def is_stale(self) -> bool:
        """Whether the validation loss has not fallen for as many evaluations as the patience."""
        stale = 0 if self.best is None else self.best.get("stale", 0)
        return 0 < self.config.patience <= stale

    @property
    def seq_len(self) -> int:
        """Tokens per sequence."""
        return int(self.loader.dataset.seq_len)

    def plan(self) -> MemoryPlan:
        """Record and plan the graphs, and tell what memory the run takes.

        The activations are those of batches like the first; others have graphs of their own. With a
        `memory_limit`, or checkpointing `auto`, this chooses as few blocks to compute twice
        as the limit takes.

        Returns:
            Bytes by kind; `check()` on it refuses what the device has no room for.

        Raises:
            OutOfMemoryError: nothing fits into the limit.
        """
        if self.memory is None or not must_fit(self.config):
            self.memory = fit_memory(
                self.model, self.config, self._plan, self._train_step.forget, self._free_bytes
            )
        return self.memory

    def _plan(self) -> MemoryPlan:
        """What memory the run takes as the model is now."""
        if hasattr(self.loader, "once"):
            first = next(iter(self.loader.once()))
        else:
            first = (self.loader.batch_size, self.seq_len)
        self._train_step.record(first)
        for shape in getattr(self.loader, "shapes", ()):
            self._train_step.record(shape)
        firsts = [next(self._eval_batches(name)) for name in self._sets]
        for batch in {spec_of(batch): batch for batch in firsts}.values():
            self._train_step.record(batch, gradients=False)
        parameters = sum(p.nbytes for p in self.model.parameters())
        return MemoryPlan(
            parameters,
            self.optimizer.grad_nbytes,
            self.optimizer.nbytes + (0 if self.ema is None else self.ema.nbytes),
            self._train_step.activation_bytes,
            self._device.name,
            self._free_bytes,
        )

    def fit(self) -> FitResult:
        """Train from the current step to the last.

        Returns:
            How it ended.

        Raises:
            TrainingInterrupted: a signal asked for the end; the running step was finished and a
                checkpoint written.
            TrainingError: a loss or gradient is not finite; names the last checkpoint.
            CheckpointError: a checkpoint could not be written, or the run begins at step 0
                in a folder that holds another's.
            MetricsError: the file of a `MetricsWriter` could not be written.
        """
        if self.checkpoint_dir is not None:
            clear_ahead(self.checkpoint_dir, self.step)
        if self.memory is None and must_fit(self.config):
            self.plan()
        if self.config.mfu and self._peak_flop_s is None:
            if not isinstance(self.model, LanguageModel):
                raise ValueError("Trainer: mfu is for language models; leave it out")
            self._peak_flop_s = measure_peaks(self._device).flop_s
        loss: float | None = None
        recent: deque[tuple[float, int]] = deque(maxlen=_SPEED_STEPS)
        with InterruptGuard(self._interrupted) as guard:
            self.tell("on_start")
            self._batches = iter(self.loader)
            try:
                if self.step and self._evaluated != self.step:
                    self._after_step(guard, resumed=True)  # a signal came before its evaluation
                elif self.step == self.total_steps and self._sets:
                    self.evaluate(stop=lambda: guard.requested)
                while not self.is_done and not guard.requested:
                    loss = self._one_step(recent)
                    self._after_step(guard)
            finally:
                self._batches = None
                if isinstance(self.loader, Prefetch):
                    self.loader.close()
                self.tell("on_end")
            if guard.requested:
                raise TrainingInterrupted(self.step, self.last_checkpoint, guard.signum)
        return FitResult(
            self.step,
            loss,
            self.last_evaluation,
            self.last_checkpoint,
            self.elapsed_s,
            self.step < self.total_steps,
            self.best_checkpoint,
        )

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to train."""
        return self.step >= self.total_steps or self.is_stale

    def _one_step(self, recent: deque[tuple[float, int]]) -> float:
        """One optimizer step, measured."""
        began = time.perf_counter()
        lr = self.schedule(self.step)
        assert self._batches is not None
        try:
            batches = [next(self._batches) for _ in range(self.config.accumulate)]
        except StopIteration:
            raise TrainingError(
                f"train: the loader ended after step {self.step} of {self.total_steps}; it must go"
                " on without an end, as those of pyggml.data do"
            ) from None
        waited = time.perf_counter() - began
        self._train_step.runs = self.step * self.config.accumulate
        scale = None if self.scaler is None else self.scaler.scale
        try:
            result = self._train_step(batches, lr)
        except NonFiniteError as error:
            raise TrainingError(self._explain(error, batches)) from error
        if self.ema is not None and not result.skipped:
            self.ema.update()
        took = time.perf_counter() - began
        self.step += 1
        self.tokens += result.tokens
        self.elapsed_s += took
        recent.append((took, result.tokens))
        speed = sum(n for _, n in recent) / max(sum(t for t, _ in recent), 1e-9)
        metrics = StepMetrics(
            self.step,
            result.loss,
            lr,
            result.grad_norm,
            self.tokens,
            speed,
            self.elapsed_s,
            waited,
            memory_in_use(self._device),
            self._mfu(speed),
            scale,
            None if self.scaler is None else self.scaler.skipped,
        )
        self.tell("on_step", metrics)
        return result.loss

    def _after_step(self, guard: InterruptGuard, resumed: bool = False) -> None:
        """Evaluate and save when it is time; a resumed step that owes nothing is left alone."""
        due = self.eval_every and self.step % self.eval_every == 0
        owed = bool(self._sets and (self.is_done or due))
        if resumed and not owed:
            return
        if owed and not guard.requested:
            done = self.evaluate(stop=lambda: guard.requested)
            if done is not None:
                self._evaluated = self.step
            if done is not None and isinstance(self.schedule, ReduceOnPlateau):
                self.schedule.update(done.loss)
            if done is not None and self.best is not None and self.best["step"] < self.step:
                self.best = {**self.best, "stale": self.best.get("stale", 0) + 1}
        improved = self.best is not None and self.best["step"] == self.step
        due = self.save_every and self.step % self.save_every == 0
        saved = None
        if self.checkpoint_dir is not None and (self.is_done or due or guard.requested):
            saved = self.save()
        if self.checkpoint_dir is not None and improved and self.config.keep_best:
            self._save_best(saved)

    def _mfu(self, tokens_per_s: float) -> float | None:
        """The share of the measured peak that the model's products need."""
        if self._peak_flop_s is None:
            return None
        return flops_per_token(self.model, self.seq_len) * tokens_per_s / self._peak_flop_s

    def _explain(self, error: NonFiniteError, batches: list[Batch]) -> str:
        """The message of a run that cannot go on, with the op that began it."""
        cause = None
        if not error.spoiled:
            runs = self.step * self.config.accumulate
            cause = find_cause(self._train_step, batches, runs)
        return diverged(error, self.config, self.step, self.last_checkpoint, cause)

    def evaluate(self, stop: Callable[[], bool] = lambda: False) -> EvalMetrics | None:
        """Loss, perplexity and scores on every set of validation tokens.

        Args:
            stop: asked before each batch; when it says yes, there is no result.

        Returns:
            What was measured on the first set; `evaluations` has the others.

        Raises:
            ValueError: the trainer has no validation tokens.
        """
        if not self._sets:
            raise ValueError("Trainer.evaluate: validation tokens are needed; got none")
        self.tell("on_evaluation_start")
        found = []
        with self.averaged():
            for name in self._sets:
                metrics = evaluate(
                    self.model,
                    self._eval_batches(name),
                    self._train_step,
                    self.step,
                    stop,
                    self.config.scores,
                    self.token_bytes,
                    name,
                )
                if metrics is None:
                    return None
                found.append(metrics)
        self.evaluations = {metrics.name: metrics for metrics in found}
        loss, bar = found[0].loss, math.inf
        if self.best is not None:
            bar = self.best["loss"] - self.config.min_delta
        if loss < bar:  # a NaN is not
            self.best = {"step": self.step, "loss": loss, "stale": 0}
        for metrics in found:
            self.tell("on_evaluation", metrics)
        return found[0]

    def averaged(self) -> AbstractContextManager[None]:
        """Lend the model the average of its weights for a block, where one is kept."""
        return nullcontext() if self.ema is None else self.ema.applied()

    def _optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state, with that of the average."""
        state: dict[str, Any] = dict(self.optimizer.state_dict())
        return state if self.ema is None else {**state, EMA_KEY: self.ema.state_dict()}

    def _eval_batches(self, name: str) -> Iterator[Batch]:
        """The batches of a set; those of a loader come as it gives them."""
        of, most = self._sets[name], self.config.eval_batches
        if hasattr(of, "once"):
            return islice(of.once(), most)
        return eval_batches(of, self.seq_len, self.loader.batch_size, most)

    def _state(self) -> TrainState:
        """Where the run stands, apart from its arrays."""
        return TrainState(
            self.step,
            self.total_steps,
            self.tokens,
            self.elapsed_s,
            self.loader.state_dict(),
            {"generator": random_generator().bit_generator.state},
            self.config.to_dict(),
            self.best,
            self.data,
            None if self.scaler is None else self.scaler.state_dict(),
            self.schedule.state_dict() if isinstance(self.schedule, ReduceOnPlateau) else None,
            self._evaluated,
        )

    def _save_best(self, saved: Path | None) -> None:
        """Keep the checkpoint of this step apart."""
        assert self.checkpoint_dir is not None
        model = {} if saved else self.model.state_dict()
        optimizer = {} if saved else self._optimizer_state()
        path = keep_best(self.checkpoint_dir, self._state(), model, optimizer, saved)
        self.best_checkpoint = path
        self.tell("on_best", path)

    def save(self) -> Path:
        """Write a checkpoint.

        Raises:
            ValueError: the trainer keeps no checkpoints.
            CheckpointError: it could not be written; the earlier ones are whole.
        """
        if self.checkpoint_dir is None:
            raise ValueError("Trainer.save: a checkpoint_dir is needed; got none")
        path = save_checkpoint(
            self.checkpoint_dir,
            self._state(),
            self.model.state_dict(),
            self._optimizer_state(),
            self.config.keep,
        )
        self.last_checkpoint = path
        self.tell("on_checkpoint", path)
        return path

    def resume(self, path: str | Path | None = None) -> int:
        """Continue from a checkpoint.

        Args:
            path: its directory; None takes the newest of `checkpoint_dir`.

        Returns:
            The step it was written at; 0 when there is none yet.

        Raises:
            FormatError: the checkpoint is damaged or of another run.
        """
        if path is None:
            if self.checkpoint_dir is None:
                raise ValueError("Trainer.resume: a checkpoint_dir or a path is needed; got none")
            path = latest_checkpoint(self.checkpoint_dir)
            if path is None:
                return 0
        restore(self, load_checkpoint(path))
        if self.checkpoint_dir is not None:
            is_best = self.best is not None and self.best["step"] == self.step
            if is_best and self.config.keep_best and best_step(self.checkpoint_dir) != self.step:
                self._save_best(self.last_checkpoint)  # the run was killed before it could
            if (self.checkpoint_dir / BEST).is_dir():
                self.best_checkpoint = self.checkpoint_dir / BEST
        return self.step

    def _interrupted(self, signum: int) -> None:
        self.tell("on_interrupt", signum)

    def tell(self, event: str, *details: Any) -> None:
        """Call one method of every callback.

        Args:
            event: name of the method.
            details: what it takes after the trainer.
        """
        for callback in self.callbacks:
            getattr(callback, event)(self, *details)

    def summary(self) -> dict[str, Any]:
        """Where the run stands, as JSON-ready values."""
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


def _free_memory(model: Any) -> int | None:
    """Bytes that the model's device has free, with what the model takes of them already."""
    parameters = model.parameters()
    free = find_device(parameters[0].device).memory_free
    return free + sum(p.nbytes for p in parameters) if free else None
