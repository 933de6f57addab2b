# SPDX-License-Identifier: MIT
"""Trainer: steps, evaluations and checkpoints until the run is done."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..device import device as find_device
from ..errors import FormatError
from ..optim.schedules import warmup_cosine
from ..random import random_generator
from .callbacks import Callback
from .checkpoint import Checkpoint, TrainState, latest_checkpoint, load_checkpoint, save_checkpoint
from .config import ConfigError, TrainConfig
from .evaluate import eval_batches, evaluate
from .interrupt import InterruptGuard, TrainingInterrupted
from .limit import fit_memory, must_fit
from .metrics import EvalMetrics, StepMetrics
from .plan import MemoryPlan
from .step import Batch, NonFiniteError, TrainStep

__all__ = ["FitResult", "Trainer", "TrainingError"]

DEFAULT_STEPS = 1000
_SPEED_STEPS = 20


class TrainingError(RuntimeError):
    """Training cannot go on; the message says whether the parameters are still good."""


@dataclass(frozen=True)
class FitResult:
    """How a training ended.

    Args:
        step: optimizer steps done.
        loss: mean training loss of the last step, or None when none was left to do.
        validation: the last evaluation, or None.
        checkpoint: the last checkpoint, or None.
        elapsed_s: seconds of training since the run began.
    """

    step: int
    loss: float | None
    validation: EvalMetrics | None
    checkpoint: Path | None
    elapsed_s: float


class Trainer:
    """Trains a language model.

    Args:
        model: the model.
        optimizer: over its parameters.
        loader: endless training batches (x, y), with `state_dict` and `load_state_dict`.
        validation: tokens to evaluate on, a dataset with `ids`, or None.
        config: lengths, rates and intervals; its text, tokenizer and sizes are not used here.
        checkpoint_dir: folder of the checkpoints; None keeps none.
        callbacks: what looks on.
        schedule: step -> learning rate; None takes warm-up and cosine from the configuration.
        data: fingerprint of the training tokens, kept in the checkpoints.

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
        self.loader = loader
        self.callbacks = list(callbacks)
        self.checkpoint_dir = None if checkpoint_dir is None else Path(checkpoint_dir)
        self.total_steps = self.config.total_steps(len(loader), DEFAULT_STEPS)
        self.schedule = schedule or default_schedule(self.config, self.total_steps)
        self.data = data
        self.step = 0
        self.tokens = 0
        self.elapsed_s = 0.0
        self.best: dict[str, Any] | None = None
        self.last_checkpoint: Path | None = None
        self.last_evaluation: EvalMetrics | None = None
        self._free_bytes = _free_memory(model)
        self._validation = None if validation is None else np.asarray(_ids(validation))
        self._batches: Iterator[Batch] | None = None
        self._train_step = TrainStep(
            model,
            optimizer,
            clip=self.config.clip,
            seed=self.config.seed,
            precision=self.config.precision,
            clip_value=self.config.clip_value,
        )
        self.scaler = self._train_step.scaler
        self.memory: MemoryPlan | None = None

    @property
    def eval_every(self) -> int:
        """Steps between evaluations; 0 evaluates at the end only."""
        return _interval(self.config.eval_every, self.total_steps, 10)

    @property
    def save_every(self) -> int:
        """Steps between checkpoints; 0 saves at the end only."""
        return _interval(self.config.save_every, self.total_steps, 5)

    @property
    def seq_len(self) -> int:
        """Tokens per sequence."""
        return int(self.loader.dataset.seq_len)

    def plan(self) -> MemoryPlan:
        """Record and plan the graphs, and tell what memory the run takes.

        With a `memory_limit`, or checkpointing `auto`, this chooses as few blocks to compute twice
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
        shape = (self.loader.batch_size, self.seq_len)
        activations = self._train_step.record(shape).memory_bytes
        if self._validation is not None:
            x, _ = next(self._eval_batches())
            activations += self._train_step.record(x.shape, gradients=False).memory_bytes
        parameters = sum(p.nbytes for p in self.model.parameters())
        return MemoryPlan(
            parameters,
            self.optimizer.grad_nbytes,
            self.optimizer.nbytes,
            activations,
            self.model.parameters()[0].device.name,
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
            CheckpointError: a checkpoint could not be written.
            MetricsError: the file of a `MetricsWriter` could not be written.
        """
        if self.memory is None and must_fit(self.config):
            self.plan()
        loss: float | None = None
        recent: deque[tuple[float, int]] = deque(maxlen=_SPEED_STEPS)
        with InterruptGuard(self._interrupted) as guard:
            self._tell("on_start")
            self._batches = iter(self.loader)
            try:
                if self.step == self.total_steps and self._validation is not None:
                    self.evaluate(stop=lambda: guard.requested)
                while self.step < self.total_steps and not guard.requested:
                    loss = self._one_step(recent)
                    self._after_step(guard)
            finally:
                self._batches = None
                self._tell("on_end")
            if guard.requested:
                raise TrainingInterrupted(self.step, self.last_checkpoint, guard.signum)
        return FitResult(
            self.step, loss, self.last_evaluation, self.last_checkpoint, self.elapsed_s
        )

    def _one_step(self, recent: deque[tuple[float, int]]) -> float:
        """One optimizer step, measured."""
        began = time.perf_counter()
        lr = self.schedule(self.step)
        assert self._batches is not None
        batches = [next(self._batches) for _ in range(self.config.accumulate)]
        self._train_step.runs = self.step * self.config.accumulate
        scale = None if self.scaler is None else self.scaler.scale
        try:
            result = self._train_step(batches, lr)
        except NonFiniteError as error:
            raise TrainingError(self._diverged(error)) from error
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
            scale,
            None if self.scaler is None else self.scaler.skipped,
        )
        self._tell("on_step", metrics)
        return result.loss

    def _after_step(self, guard: InterruptGuard) -> None:
        """Evaluate and save when it is time."""
        last = self.step == self.total_steps
        due = self.eval_every and self.step % self.eval_every == 0
        if self._validation is not None and (last or due) and not guard.requested:
            self.evaluate(stop=lambda: guard.requested)
        due = self.save_every and self.step % self.save_every == 0
        if self.checkpoint_dir is not None and (last or due or guard.requested):
            self.save()

    def _diverged(self, error: NonFiniteError) -> str:
        """The message of a run that cannot go on."""
        if self.last_checkpoint is not None:
            where = f"the last checkpoint is {self.last_checkpoint}"
        else:
            where = "there is no checkpoint yet"
        state = f"the parameters are those of step {self.step}"
        if error.spoiled:
            state = "the parameters are spoiled, as --fused-update had changed them by then"
        clip = "run without --fused-update and with --clip 1"
        if not self.config.fused_update:
            clip = "lower --clip"
        return (
            f"train: {error} at step {self.step + 1}; {state}, {where}: "
            f"lower --lr {self.config.lr:g}, lengthen --warmup, or {clip}"
        )

    def evaluate(self, stop: Callable[[], bool] = lambda: False) -> EvalMetrics | None:
        """Loss and perplexity on the validation tokens.

        Args:
            stop: asked before each batch; when it says yes, there is no result.

        Raises:
            ValueError: the trainer has no validation tokens.
        """
        if self._validation is None:
            raise ValueError("Trainer.evaluate: validation tokens are needed; got none")
        self._tell("on_evaluation_start")
        metrics = evaluate(self.model, self._eval_batches(), self._train_step, self.step, stop)
        if metrics is not None:
            self.last_evaluation = metrics
            if self.best is None or metrics.loss < self.best["loss"]:
                self.best = {"step": self.step, "loss": metrics.loss}
            self._tell("on_evaluation", metrics)
        return metrics

    def _eval_batches(self) -> Iterator[Batch]:
        assert self._validation is not None
        return eval_batches(
            self._validation, self.seq_len, self.loader.batch_size, self.config.eval_batches
        )

    def save(self) -> Path:
        """Write a checkpoint.

        Raises:
            ValueError: the trainer keeps no checkpoints.
            CheckpointError: it could not be written; the earlier ones are whole.
        """
        if self.checkpoint_dir is None:
            raise ValueError("Trainer.save: a checkpoint_dir is needed; got none")
        state = TrainState(
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
        )
        path = save_checkpoint(
            self.checkpoint_dir,
            state,
            self.model.state_dict(),
            self.optimizer.state_dict(),
            self.config.keep,
        )
        self.last_checkpoint = path
        self._tell("on_checkpoint", path)
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
        self._restore(load_checkpoint(path))
        return self.step

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Take over everything a checkpoint holds."""
        state, where = checkpoint.state, checkpoint.path
        if state.data is not None and self.data is not None and state.data != self.data:
            raise FormatError(
                f"{where}: data must be that of the run, {state.data}; got {self.data}: "
                "the text has changed since; put it back or start anew with --overwrite"
            )
        if state.step > self.total_steps:
            raise FormatError(
                f"{where}: step must not be beyond the run's {self.total_steps} steps; "
                f"got {state.step}: give --steps {state.step} or more"
            )
        for what, load, values in (
            ("model.safetensors", self.model.load_state_dict, checkpoint.model),
            ("optimizer.safetensors", self.optimizer.load_state_dict, checkpoint.optimizer),
            ("state.json: loader", self.loader.load_state_dict, state.loader),
        ):
            try:
                load(values)
            except (KeyError, ValueError, TypeError) as error:
                reason = error.args[0] if error.args else error
                raise FormatError(f"{where / what}: does not fit this run: {reason}") from error
        if self.scaler is not None and state.scaler is not None:
            try:
                self.scaler.load_state_dict(state.scaler)
            except ValueError as error:
                raise FormatError(f"{where / 'state.json'}: field 'scaler': {error}") from error
        try:
            random_generator().bit_generator.state = state.rng["generator"]
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise FormatError(
                f"{where / 'state.json'}: field 'rng' is not the state of a generator: {error}"
            ) from error
        self.step, self.tokens, self.elapsed_s = state.step, state.tokens, state.elapsed_s
        self.best = state.best
        self.last_checkpoint = where

    def _interrupted(self, signum: int) -> None:
        self._tell("on_interrupt", signum)

    def _tell(self, event: str, *details: Any) -> None:
        """Call one method of every callback."""
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
        }


def default_schedule(config: TrainConfig, total_steps: int) -> Callable[[int], float]:
    """Linear warm-up, then a cosine down to the lowest rate.

    Args:
        config: rates, and the length of the warm-up.
        total_steps: steps of the whole run.

    Raises:
        ConfigError: the warm-up is longer than the run.
    """
    if config.warmup is not None and config.warmup > total_steps:
        raise ConfigError(
            f"--warmup must not exceed the run's {total_steps} steps; got {config.warmup}: "
            "lower it, or give more --steps"
        )
    warmup = min(100, total_steps // 20) if config.warmup is None else config.warmup
    min_lr = config.lr / 10 if config.min_lr is None else config.min_lr
    return warmup_cosine(config.lr, warmup, total_steps, min_lr)


def _interval(value: int | None, total_steps: int, parts: int) -> int:
    """An interval in steps: as given, or so that the run has so many parts."""
    return max(1, total_steps // parts) if value is None else value


def _ids(validation: Any) -> Any:
    """The tokens of a dataset, or the tokens themselves."""
    return getattr(validation, "ids", validation)


def _free_memory(model: Any) -> int | None:
    """Bytes that the model's device has free, with what the model takes of them already."""
    parameters = model.parameters()
    free = find_device(parameters[0].device).memory_free
    return free + sum(p.nbytes for p in parameters) if free else None
