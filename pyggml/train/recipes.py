# SPDX-License-Identifier: MIT
"""A whole run: from text to a folder with a trained model."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from .. import __version__
from ..data import Loader, RandomWindows, TokenDataset, Tokenizer, embedded_text, read_text
from ..device import Device, set_default_device, set_threads
from ..device import device as find_device
from ..errors import FormatError
from ..models import build, generate
from ..random import seed as set_seed
from .artifact import ArtifactDir
from .callbacks import Callback, MetricsWriter, Sampler
from .config import ConfigError, TrainConfig
from .describe import describe
from .files import save_config
from .finder import LRFinding, find_lr
from .interrupt import TrainingInterrupted
from .loggers import TensorBoardWriter, WandbWriter
from .merge import merge
from .metrics import read_metrics
from .named import make_optimizer
from .plan import OutOfMemoryError, format_bytes
from .plot import plot_loss
from .report import system_info, write_report
from .scores import token_bytes
from .sizes import cache_bytes, default_seq_len, estimate_parameters, model_config
from .step import TrainStep
from .trainer import FitResult, Trainer

__all__ = ["LLMRun"]

_log = logging.getLogger("pyggml.train")
# At the least: weights, Adam's two moments and, unless each is used at once, gradients.
_BYTES_PER_WEIGHT = 4
_BYTES_OF_STATE = {"adam": 8, "adamw": 8}
_BYTES_PER_GRADIENT = 4
# Cool enough that a model of a million parameters keeps to what it knows.
_SAMPLE_TEMPERATURE, _SAMPLE_TOP_K = 0.5, 40


def _silent(text: str) -> None:
    """Say nothing."""


class LLMRun:
    """A language-model training with everything it needs, made by `prepare` or `resume`.

    Attributes:
        config: what the run was told.
        artifact: its folder.
        tokenizer: text to tokens and back.
        documents: how many there are.
        characters: of all documents.
        train_tokens: tokens to train on.
        val_tokens: tokens held back.
        arch: architecture of the model.
        model: the model.
        trainer: trains it.
        memory: bytes by kind.

    Example:
        >>> run = LLMRun.prepare(TrainConfig(steps=100, artifact_dir="run"))
        >>> run.train().validation.perplexity
        95.1
        >>> run.sample("The")
        'The value of the expression is …'
    """

    def __init__(
        self,
        config: TrainConfig,
        artifact: ArtifactDir,
        tokenizer: Tokenizer,
        documents: list[str],
        callbacks: Iterable[Callback],
        note: Callable[[str], None],
    ):
        self.config = config
        self.artifact = artifact
        self.tokenizer = tokenizer
        self.note = note
        self.documents = len(documents)
        self.characters = sum(map(len, documents))
        self.arch, sizes = model_config(config, tokenizer.vocab_size)
        # A vocabulary that llama.cpp cannot read is refused now rather than after the training.
        tokenizer.to_gguf_metadata(vocab_size=sizes.vocab_size)
        where = _choose_device(config)
        per_parameter = _BYTES_PER_WEIGHT + _BYTES_OF_STATE.get(config.optimizer, 0)
        per_parameter += _BYTES_PER_GRADIENT * (not config.fused_update)
        count = estimate_parameters(self.arch, sizes)
        _check_estimate(count, count * per_parameter, cache_bytes(sizes), where)
        if sizes.context >= 2**32:
            raise ConfigError(
                f"--context must be below {2**32}, as GGUF files have it; got {sizes.context}: "
                "choose less"
            )
        ids = tokenizer.encode_documents(documents, eos=tokenizer.eos_id is not None)
        self.data = {"tokens": int(ids.size), "crc32": zlib.crc32(ids.tobytes())}
        self.seq_len = default_seq_len(config, sizes.context)
        loader, validation = _split(ids, config, self.seq_len)
        sets = {} if validation is None else {"validation": validation}
        sets |= _read_sets(config, tokenizer)
        set_seed(config.seed)
        self.model = build(self.arch, sizes)
        optimizer = make_optimizer(config, self.model)
        self.trainer = Trainer(
            self.model,
            optimizer,
            loader,
            sets or None,
            config,
            checkpoint_dir=artifact.checkpoints,
            callbacks=[MetricsWriter(artifact.metrics), *self._writers(), *callbacks],
            data=self.data,
            token_bytes=token_bytes(tokenizer),
        )
        self.val_tokens = 0 if validation is None else int(validation.size)
        self.train_tokens = int(ids.size) - self.val_tokens
        self.memory = self.trainer.plan()
        self.memory.check()

    @classmethod
    def prepare(
        cls,
        config: TrainConfig,
        overwrite: bool = False,
        callbacks: Iterable[Callback] = (),
        note: Callable[[str], None] = _silent,
    ) -> LLMRun:
        """Set up a new run: read the text, make tokenizer, model and folder.

        Args:
            config: what to do.
            overwrite: whether a run that is in the folder may be replaced. Nothing of it is
                touched before everything else of the new run is known to work. From then to the
                end of `train`, other processes are kept out of the folder.
            callbacks: what looks on.
            note: told what is going on.

        Raises:
            ConfigError: an option cannot be used, or the folder cannot.
            FormatError: the text or the tokenizer file cannot be read.
            OutOfMemoryError: the run does not fit into the device's memory.
        """
        artifact = ArtifactDir(config.artifact_dir)
        artifact.check_new(overwrite)
        model_config(config, vocab_size=257)
        _choose_device(config)
        documents = _read(config)
        note(f"tokenizer: {config.tokenizer}")
        tokenizer = Tokenizer.from_spec(config.tokenizer, documents)
        run = cls(config, artifact, tokenizer, documents, callbacks, note)
        artifact.create(run._record(), overwrite, hold=True)
        try:
            with artifact.naming():
                tokenizer.save(artifact.tokenizer)
                save_config(config, artifact.options)
        except BaseException:
            artifact.release()
            raise
        return run

    @classmethod
    def sketch(cls, config: TrainConfig, note: Callable[[str], None] = _silent) -> LLMRun:
        """Set up a run that writes nothing, to try something out with its model and text.

        Args:
            config: what it would do.
            note: told what is going on.

        Raises:
            ConfigError: an option cannot be used.
            FormatError: the text or the tokenizer file cannot be read.
            OutOfMemoryError: the run does not fit into the device's memory.
        """
        model_config(config, vocab_size=257)
        _choose_device(config)
        documents = _read(config)
        tokenizer = Tokenizer.from_spec(config.tokenizer, documents)
        return cls(config, ArtifactDir(config.artifact_dir), tokenizer, documents, (), note)

    def find_lr(self, start: float = 1e-6, end: float = 1.0, steps: int = 100) -> LRFinding:
        """The learning-rate range test; the model is then as it was.

        Args:
            start: lowest rate.
            end: highest rate.
            steps: rates between the two.

        Raises:
            ValueError: as `find_lr`.
        """
        trainer, config = self.trainer, self.config
        step = TrainStep(
            self.model,
            trainer.optimizer,
            clip=config.clip,
            seed=config.seed,
            precision=config.precision,
            clip_value=config.clip_value,
        )
        before = trainer.loader.state_dict()
        try:
            return find_lr(
                self.model,
                trainer.optimizer,
                iter(trainer.loader),
                start=start,
                end=end,
                steps=steps,
                step=step,
            )
        finally:
            trainer.loader.load_state_dict(before)

    @classmethod
    def resume(
        cls,
        artifact_dir: str,
        changes: dict[str, Any] | None = None,
        callbacks: Iterable[Callback] = (),
        note: Callable[[str], None] = _silent,
    ) -> LLMRun:
        """Set up the rest of a run that was interrupted, or more steps of a finished one.

        Args:
            artifact_dir: the run's folder.
            changes: options that shall differ from the run's. Those that make it another run are
                refused; those that change its course are noted.
            callbacks: what looks on.
            note: told what is going on.

        Raises:
            ConfigError: there is no run, or an option cannot be changed.
            FormatError: the text has changed, or a file of the run is damaged.
        """
        artifact = ArtifactDir(artifact_dir)
        artifact.check_resume()
        artifact.hold()
        try:
            return cls._resume(artifact, changes or {}, callbacks, note)
        except BaseException:
            artifact.release()
            raise

    @classmethod
    def _resume(
        cls,
        artifact: ArtifactDir,
        changes: dict[str, Any],
        callbacks: Iterable[Callback],
        note: Callable[[str], None],
    ) -> LLMRun:
        """`resume` in a folder that is held."""
        record = artifact.read_config()
        try:
            before = TrainConfig.from_dict({**record["train"], "artifact_dir": str(artifact.path)})
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"{artifact.config}: field train is not the configuration of a run: {error}"
            ) from error
        config = merge(before, changes, note)
        documents = _read(config)
        if artifact.tokenizer.exists():
            tokenizer = Tokenizer.from_file(artifact.tokenizer)
        else:  # the run was killed before it was written; the same text gives the same again
            tokenizer = Tokenizer.from_spec(config.tokenizer, documents)
        run = cls(config, artifact, tokenizer, documents, callbacks, note)
        run._check_data(record)
        step = run.trainer.resume()
        if step == 0:
            note("no checkpoint yet: starting at the first step")
        elif step == run.trainer.total_steps:
            note(f"the run is finished (step {step}); --steps with a larger number extends it")
        elif run.trainer.is_stale:
            note(f"the run ended early (step {step}); a larger --patience extends it")
        else:
            note(f"continuing after step {step}")
        with artifact.naming():
            artifact.write_config(run._record())
            save_config(config, artifact.options)
            tokenizer.save(artifact.tokenizer)
        return run

    def _check_data(self, record: dict[str, Any]) -> None:
        """The tokens must be those that the run began with."""
        if record.get("data") != self.data:
            raise FormatError(
                f"{self.artifact.config}: data must be that of the run, {record.get('data')}; "
                f"got {self.data}: the text has changed since; give the old one with --text, or "
                "start anew with --overwrite"
            )

    def _record(self) -> dict[str, Any]:
        """What `config.json` says."""
        return {
            "pyggml": __version__,
            "arch": self.arch,
            "model": self.model.config.to_dict(),
            "parameters": self.model.num_parameters(),
            "total_steps": self.trainer.total_steps,
            "data": self.data,
            "system": system_info(),
            "train": self.config.to_dict(),
        }

    def describe(self) -> list[tuple[str, str]]:
        """What is about to be trained, as (name, text)."""
        return describe(self)

    def train(self) -> FitResult:
        """Train to the end, then write the model, the picture of the loss and the report.

        Raises:
            TrainingInterrupted: a signal asked for the end; checkpoint, model and picture are
                written.
            TrainingError: a loss or gradient is not finite.
            CheckpointError: a checkpoint could not be written.
            MetricsError: the metrics could not be written.
        """
        try:
            with self.artifact.lock():
                try:
                    result = self.trainer.fit()
                except TrainingInterrupted:
                    self.export()
                    raise
                self.export()
        finally:
            self.artifact.release()
        return result

    def export(self) -> None:
        """Write the model for llama.cpp, the picture of the loss, and the report.

        Raises:
            OSError: a file cannot be written; an earlier one is then whole.
        """
        name = f"pyggml {self.arch} trained on {'text' if self.config.text else 'the manual'}"
        title = f"{self.arch}, {self.model.num_parameters():,} parameters"
        with self.artifact.naming():
            with self.trainer.averaged():
                self.model.save_gguf(self.artifact.model, self.tokenizer, name)
            plot_loss(read_metrics(self.artifact.metrics), self.artifact.plot, title)
            write_report(self.artifact.path)

    def sample(self, prompt: str | None = None, max_tokens: int | None = None) -> str:
        """Some text as the model writes it now; the same for the same seed.

        Args:
            prompt: its beginning; None takes the configuration's.
            max_tokens: tokens to add; None takes the configuration's.
        """
        prompt = self.config.prompt if prompt is None else prompt
        max_tokens = self.config.sample_tokens if max_tokens is None else max_tokens
        if max_tokens == 0:
            return ""
        ids = np.zeros(0, np.int32)
        # A vocabulary of another script may not have the letters of the usual prompt.
        with suppress(ValueError):
            ids = self.tokenizer.encode(prompt)
        if not ids.size:
            start = self.tokenizer.eos_id if self.tokenizer.eos_id is not None else 0
            ids, prompt = np.array([start], np.int32), ""
        stop = () if self.tokenizer.eos_id is None else (self.tokenizer.eos_id,)
        with self.trainer.averaged():
            added = generate(
                self.model,
                ids,
                max_tokens,
                temperature=_SAMPLE_TEMPERATURE,
                top_k=_SAMPLE_TOP_K,
                seed=self.config.seed,
                stop_ids=stop,
            )
        return prompt + self.tokenizer.decode(added, skip_special=True)

    def _writers(self) -> list[Callback]:
        """What writes samples and logs during the training."""
        config, found = self.config, list[Callback]()
        if config.tensorboard:
            found.append(TensorBoardWriter(self.artifact.tensorboard))
        if config.wandb:
            found.append(WandbWriter(config.wandb, self.artifact.path, resume="allow"))
        # After the logs, which hear of the samples.
        if config.sample_every:
            found.append(Sampler(config.sample_every, self.sample, self.artifact.samples))
        return found

    def summary(self) -> dict[str, Any]:
        """The run and where it stands, as JSON-ready values."""
        return {**self._record(), **self.trainer.summary(), "memory": asdict(self.memory)}


def _read_sets(config: TrainConfig, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Tokens of the texts that `eval_text` names."""
    sets = {}
    for text in config.eval_text:
        name, _, path = text.partition("=")
        documents = read_text([path])
        sets[name] = tokenizer.encode_documents(documents, eos=tokenizer.eos_id is not None)
        if sets[name].size < 2:
            raise ConfigError(f"--eval-text {text}: must hold at least 2 tokens: give more text")
    return sets


def _read(config: TrainConfig) -> list[str]:
    """The documents to train on."""
    return read_text(config.text) if config.text else embedded_text()


def _choose_device(config: TrainConfig) -> Device:
    """Make the run's device and threads the default ones."""
    where = find_device(config.device)
    set_default_device(where)
    if config.threads is not None:
        try:
            set_threads(config.threads)
        except ValueError as error:
            raise ConfigError(f"--threads: {error}") from error
    return where


def _check_estimate(parameters: int, needed: int, cache: int, where: Device) -> None:
    """Refuse a model whose weights or context alone do not fit, before any is made."""
    free = where.memory_free
    if free and needed > free:
        raise OutOfMemoryError(
            f"train: {parameters:,} parameters need {format_bytes(needed)} with gradients and "
            f"optimizer state, but {where.name} has {format_bytes(free)} free: choose a smaller "
            "--preset, or fewer --layers or a smaller --embd"
        )
    if free and cache > free:
        raise OutOfMemoryError(
            f"train: the keys and values of a whole context need {format_bytes(cache)}, but "
            f"{where.name} has {format_bytes(free)} free: choose a shorter --context"
        )


def _split(ids: np.ndarray, config: TrainConfig, seq_len: int) -> tuple[Loader, np.ndarray | None]:
    """The training batches and the validation tokens."""
    cut = ids.size - int(ids.size * config.val_fraction)
    train, validation = ids[:cut], ids[cut:]
    if train.size < seq_len + 1:
        raise ConfigError(
            f"--text must hold more than one sequence of --seq-len {seq_len} tokens for training; "
            f"got {train.size} tokens of {ids.size}: give more text or a smaller --seq-len"
        )
    if config.val_fraction and validation.size < 2:
        raise ConfigError(
            f"--val-fraction {config.val_fraction} of {ids.size} tokens leaves "
            f"{validation.size} for validation: give more text, or --val-fraction 0"
        )
    dataset: TokenDataset | RandomWindows
    if config.stride is not None or config.epochs is not None:
        dataset = TokenDataset(train, seq_len, config.stride)
    else:
        dataset = RandomWindows(train, seq_len)
    if len(dataset) < config.batch_size:
        raise ConfigError(
            f"--batch-size must be at most the number of training sequences; got "
            f"--batch-size {config.batch_size} and {len(dataset)} sequences of {seq_len} tokens: "
            f"use --batch-size {len(dataset)}, a smaller --seq-len, or more text"
        )
    loader = Loader(dataset, config.batch_size, seed=config.seed)
    return loader, validation if config.val_fraction else None
