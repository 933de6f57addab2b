# SPDX-License-Identifier: MIT
"""Trainer: steps, evaluations and checkpoints until the run is done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..backend.device import device as find_device
from ..data import Prefetch
from ..debug import measure_peaks
from ..models import LanguageModel
from ..optim import EMA
from ..optim.schedules.adaptive import is_adaptive
from .arguments import (
    need_callbacks,
    need_config,
    need_data,
    need_loader,
    need_model,
    need_optimizer,
    need_token_bytes,
    set_checkpointing,
)
from .batches import prefetched
from .callbacks.writers import Callback
from .checkpoints.best import find_best, judge, keep_best
from .checkpoints.checkpoint import load_checkpoint, save_checkpoint
from .checkpoints.folders import clear_ahead, latest_checkpoint, make_folder
from .checkpoints.restore import optimizer_state, restore, state_of
from .config import TrainConfig
from .diagnose import TrainingError
from .evaluation.sets import check_no_sets, check_scores, check_set, evaluate_sets, read_sets
from .interrupt import InterruptGuard, TrainingInterrupted
from .loop import Loop
from .losses import LossFunction
from .memory.fit import count_memory, fit_memory, must_fit
from .memory.plan import MemoryPlan
from .metrics.efficiency import flops_per_token, free_memory
from .metrics.records import EvalMetrics
from .named import make_loss
from .need import need_function, need_path
from .result import FitResult
from .schedule import DEFAULT_STEPS, check_rates, default_schedule, interval
from .step import TrainStep

__all__ = ["FitResult", "Trainer", "TrainingError"]

_log = logging.getLogger("pyggml.train")


class Trainer:
    """Trains a language model, or another model that has a loss or gives logits of classes.

    Args:
        model: the model.
        optimizer: over its parameters.
        loader: endless training batches (x, y), with `state_dict` and `load_state_dict`. One of
            pyggml.data is read ahead, in a thread, as `prefetch` of the configuration says.
        validation: tokens to evaluate on, a dataset, `Documents`, a loader with `once()`, several
            of these by name, or None. The first decides what is best and when to stop early.
        config: lengths, rates and intervals; its text, tokenizer and sizes are not used here.
        checkpoint_dir: folder of the checkpoints; None keeps none.
        callbacks: what looks on.
        schedule: step -> learning rate; None takes the configuration's. One that has `update`,
            `state_dict` and `load_state_dict`, as `ReduceOnPlateau` and what is joined of it, hears
            of the validation loss.
        data: fingerprint of the training tokens, kept in the checkpoints.
        token_bytes: bytes of text of each token, as `token_bytes(tokenizer)` tells them, for bits
            per byte.
        loss: the mean loss of a batch, or (sum, count); None as `TrainStep` chooses.

    Attributes:
        step: optimizer steps done.
        best: step and loss of the best evaluation, and evaluations since; None before the first.
        evaluations: the last one of each set.
        scaler: the loss scaling of precision f16, or None.
        ema: the running average of the weights, or None.
        device: where the model is.

    Raises:
        TypeError: a part is of another kind.
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
        self.config = need_config("Trainer", config)
        self.model = need_model("Trainer", model)
        self.optimizer = need_optimizer("Trainer", optimizer, self.model)
        if optimizer.fused_update != self.config.fused_update:
            raise ValueError(
                "Trainer: optimizer and config must agree on fused_update; "
                f"got {optimizer.fused_update} and {self.config.fused_update}"
            )
        if self.config.mfu and not isinstance(model, LanguageModel):
            raise ValueError("Trainer: mfu is for language models; leave it out")
        if self.config.checkpointing not in (None, "auto"):
            set_checkpointing("Trainer", model, self.config.checkpointing)
        loader = need_loader("Trainer", loader, self.config, checkpoint_dir is not None)
        self.loader = prefetched(loader, self.config.prefetch)
        self.callbacks = need_callbacks("Trainer", callbacks)
        self.checkpoint_dir: Path | None = None
        if checkpoint_dir is not None:
            self.checkpoint_dir = need_path("Trainer", "checkpoint_dir", checkpoint_dir)
        batches = len(loader) if hasattr(loader, "__len__") else 0
        self.total_steps = self.config.total_steps(batches, DEFAULT_STEPS)
        if schedule is not None:
            need_function("Trainer", "schedule", schedule, "from a step to its learning rate")
            check_rates("Trainer: ", schedule, self.total_steps)
        self.schedule = schedule or default_schedule(self.config, self.total_steps)
        self.data = need_data("Trainer", data)
        self.step = 0
        self.tokens = 0
        self.elapsed_s = 0.0
        self.best: dict[str, Any] | None = None
        self._evaluated: int | None = None
        self._saved_step: int | None = None
        self.last_checkpoint: Path | None = None
        self.best_checkpoint: Path | None = None
        self.evaluations: dict[str, EvalMetrics] = {}
        self.token_bytes = need_token_bytes("Trainer", token_bytes, model)
        self.device = find_device(model.parameters()[0].device)
        self._free_bytes = free_memory(model)
        self._sets = read_sets(validation, loader)
        self._peak_flop_s: float | None = None
        self.ema = EMA(model, self.config.ema) if self.config.ema else None
        self._train_step = TrainStep(
            model,
            optimizer,
            clip=self.config.clip,
            loss=loss or make_loss(self.config, model),
            seed=self.config.seed,
            precision=self.config.precision,
            clip_value=self.config.clip_value,
        )
        self._train_step.accumulates = self.config.accumulate > 1
        self.scaler = self._train_step.scaler
        self.memory: MemoryPlan | None = None
        check_scores(model, self.config.scores)
        if not self._sets:
            check_no_sets(self.config, is_adaptive(self.schedule))

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
            forget = self._train_step.forget
            free = self._free_bytes
            self.memory = fit_memory(
                self.model, self.config, lambda: count_memory(self, free), forget, free
            )
        return self.memory

    def check(self) -> None:
        """Refuse what would fail at the first evaluation, and record the graphs for it.

        Raises:
            ValueError: a set has no batch, or one that does not suit the model or a score.
        """
        for name, of in self._sets.items():
            check_set(name, of, self.loader, self._train_step, self.config.scores)

    def fit(self) -> FitResult:
        """Train from the current step to the last.

        An error in an evaluation, a callback or a batch ends the run with a checkpoint of the
        steps that were done.

        Returns:
            How it ended.

        Raises:
            TrainingInterrupted: a signal asked for the end; the running step was finished and a
                checkpoint written.
            TrainingError: a loss or gradient is not finite; names the last checkpoint.
            CheckpointError: a checkpoint could not be written, or the run begins at step 0
                in a folder that holds another's.
            MetricsError: the file of a `MetricsWriter` could not be written.
            ValueError: a validation set cannot be evaluated; nothing was trained.
        """
        if self.memory is None and must_fit(self.config):
            self.plan()
        else:
            self.check()
        if self.checkpoint_dir is not None:
            make_folder(self.checkpoint_dir)
            clear_ahead(self.checkpoint_dir, self.step)
            if self.step:
                find_best(self)
        if self.config.mfu and self._peak_flop_s is None:
            self._peak_flop_s = measure_peaks(self.device).flop_s
        with InterruptGuard(self._interrupted) as guard:
            self.tell("on_start")
            try:
                loop = Loop(self, guard)
                loop.run()
            finally:
                if isinstance(self.loader, Prefetch):
                    self.loader.close()
                self.tell("on_end")
            if guard.requested:
                raise TrainingInterrupted(self.step, self.last_checkpoint, guard.signum)
        return FitResult(
            self.step,
            loop.loss,
            self.last_evaluation,
            self.last_checkpoint,
            self.elapsed_s,
            self.step < self.total_steps,
            self.best_checkpoint,
        )

    @property
    def is_best(self) -> bool:
        """Whether the evaluation of this very step is the best so far."""
        return self.best is not None and bool(self.best["step"] == self.step)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to train."""
        return self.step >= self.total_steps or self.is_stale

    def mfu(self, tokens_per_s: float) -> float | None:
        """The share of the measured peak that the model's products need, where it was measured.

        Args:
            tokens_per_s: of the training.
        """
        if self._peak_flop_s is None:
            return None
        return flops_per_token(self.model, self.seq_len) * tokens_per_s / self._peak_flop_s

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
        with self.averaged():
            found = evaluate_sets(self, stop)
        if found is None:
            return None
        self.evaluations = {metrics.name: metrics for metrics in found}
        self.best = judge(self.best, self.step, found[0].loss, self.config.min_delta)
        for metrics in found:
            self.tell("on_evaluation", metrics)
        return found[0]

    def averaged(self) -> AbstractContextManager[None]:
        """Lend the model the average of its weights for a block, where one is kept."""
        return nullcontext() if self.ema is None else self.ema.applied()

    def loader_state(self) -> dict[str, Any]:
        """Where the loader stands, for a checkpoint; nothing where none is kept."""
        return {} if self.checkpoint_dir is None else self.loader.state_dict()

    def save_best(self, saved: Path | None) -> None:
        """Keep the checkpoint of this step apart.

        Args:
            saved: the step's own checkpoint, where it has one.

        Raises:
            ValueError: the trainer keeps no checkpoints.
            CheckpointError: it could not be written; the best before is as it was.
        """
        folder = self._folder("save_best")
        model = {} if saved else self.model.state_dict()
        optimizer = {} if saved else optimizer_state(self)
        state = state_of(self, self.loader_state())
        self.best_checkpoint = keep_best(folder, state, model, optimizer, saved)
        if saved is None:
            self.last_checkpoint = self.best_checkpoint
        self.tell("on_best", self.best_checkpoint)

    def _folder(self, method: str) -> Path:
        """Where checkpoints go."""
        if self.checkpoint_dir is None:
            raise ValueError(f"Trainer.{method}: a checkpoint_dir is needed; got none")
        return self.checkpoint_dir

    def save(self) -> Path:
        """Write a checkpoint.

        Raises:
            ValueError: the trainer keeps no checkpoints.
            CheckpointError: it could not be written; the earlier ones are whole.
        """
        return self._save(self.loader_state())

    def _save(self, loader: dict[str, Any]) -> Path:
        """Write a checkpoint with a state of the loader."""
        path = save_checkpoint(
            self._folder("save"),
            state_of(self, loader),
            self.model.state_dict(),
            optimizer_state(self),
            self.config.keep,
        )
        self.last_checkpoint, self._saved_step = path, self.step
        self.tell("on_checkpoint", path)
        return path

    def resume(self, path: str | Path | None = None) -> int:
        """Continue from a checkpoint.

        Args:
            path: its directory; None takes the newest of `checkpoint_dir`, which may be the best.

        Returns:
            The step it was written at; 0 when there is none yet.

        Raises:
            FormatError: the checkpoint is damaged or of another run; nothing has changed then.
        """
        if path is None:
            if self.checkpoint_dir is None:
                raise ValueError("Trainer.resume: a checkpoint_dir or a path is needed; got none")
            path = latest_checkpoint(self.checkpoint_dir)
            if path is None:
                return 0
        restore(self, load_checkpoint(need_path("Trainer.resume", "path", path)))
        if self.checkpoint_dir is not None:
            find_best(self)
        return self.step

    def _interrupted(self, signum: int) -> None:
        try:
            self.tell("on_interrupt", signum)
        except Exception:  # noqa: BLE001 (it is logged)
            # It would be raised wherever the signal came, in the middle of a save for instance.
            _log.exception("train: a callback's on_interrupt failed")

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
