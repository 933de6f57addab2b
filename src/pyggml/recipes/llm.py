# SPDX-License-Identifier: MIT
"""A whole run: from text to a folder with a trained model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from .. import __version__
from ..checks import instance
from ..data import Corpus, Tokenizer
from ..errors import FormatError
from ..models import build, generate
from ..tensors.random import seed as set_seed
from ..train.arguments import check_callbacks
from ..train.callbacks import Callback, MetricsWriter, Sampler, TensorBoardWriter, WandbWriter
from ..train.config import ConfigError, TrainConfig
from ..train.finder import LRFinding, find_lr
from ..train.interrupt import TrainingInterrupted
from ..train.metrics import read_metrics, token_bytes
from ..train.named import make_optimizer
from ..train.trainer import FitResult, Trainer
from .artifact import ArtifactDir
from .corpus import make_tokenizer, read_corpus, read_eval_texts, split_text, tokenize
from .describe import describe
from .export import Exported, chosen_export, exported_weights
from .files import save_config
from .merge import merge
from .prepare import check_estimate, choose_device
from .report import plot_loss, system_info, write_report
from .sizes import cache_bytes, default_seq_len, estimate_parameters, model_config

__all__ = ["LLMRun"]

_log = logging.getLogger("pyggml.train")
# Cool enough that a model of a million parameters keeps to what it knows.
_SAMPLE_TEMPERATURE, _SAMPLE_TOP_K = 0.5, 40
# Evaluations of so many times the tokens trained on between two deserve a word.
_MOST_PARTS = 10


def _silent(text: str) -> None:
    """Say nothing."""


class LLMRun:
    """A language-model training with everything it needs, made by `prepare` or `resume`.

    Attributes:
        config: what the run was told.
        artifact: its folder.
        tokenizer: text to tokens and back.
        documents: how many there are.
        text_bytes: size of the text; an estimate where it is compressed.
        tokens_folder: of the token store, or None where the tokens are in memory.
        train_tokens: tokens to train on.
        val_tokens: tokens held back.
        arch: architecture of the model.
        model: the model.
        trainer: trains it.
        memory: bytes by kind.
        exported: whose weights `model.gguf` has, or None before `export`.

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
        corpus: Corpus,
        callbacks: Iterable[Callback],
        note: Callable[[str], None],
    ):
        self.config = config
        self.artifact = artifact
        self.tokenizer = tokenizer
        self.note = note
        self.exported: Exported | None = None
        self.text_bytes = corpus.size_bytes
        self.arch, sizes = model_config(config, tokenizer.vocab_size)
        # A vocabulary that llama.cpp cannot read is refused now rather than after the training.
        tokenizer.to_gguf_metadata(vocab_size=sizes.vocab_size)
        where = choose_device(config)
        count = estimate_parameters(sizes)
        check_estimate(config, count, cache_bytes(sizes), where)
        if sizes.context >= 2**32:
            raise ConfigError(
                f"--context must be below {2**32}, as GGUF files have it; got {sizes.context}: "
                "choose less"
            )
        self.seq_len = default_seq_len(config, sizes.context)
        tokens = tokenize(corpus, tokenizer, config, note)
        self.documents, self.tokens_folder = len(tokens.documents), tokens.folder
        self.data = {"tokens": int(tokens.ids.size), "crc32": tokens.crc32}
        loader, validation = split_text(tokens.documents, config, self.seq_len)
        sets = {} if validation is None else {"validation": validation}
        sets |= read_eval_texts(config, tokenizer, note)
        set_seed(config.seed)
        self.model = build(self.arch, sizes)
        optimizer = make_optimizer(config, self.model)
        self.trainer = Trainer(
            self.model,
            loader,
            sets or None,
            optimizer,
            options=config.trainer_options(),
            checkpoint_dir=artifact.checkpoints,
            callbacks=[
                MetricsWriter(artifact.metrics),
                *self._writers(),
                *check_callbacks("LLMRun", callbacks),
            ],
            data=self.data,
            token_bytes=token_bytes(tokenizer),
        )
        held_back = getattr(getattr(validation, "dataset", None), "documents", None)
        held_back = validation if held_back is None else held_back.ids
        self.val_tokens = 0 if held_back is None else int(held_back.size)
        self.train_tokens = int(tokens.ids.size) - self.val_tokens
        self.memory = self.trainer.plan()
        self.memory.check()
        self._note_long_evaluations()

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
        instance("LLMRun.prepare", "config", config, TrainConfig)
        artifact = ArtifactDir(config.artifact_dir)
        artifact.check_new(overwrite)
        model_config(config, vocab_size=257)
        choose_device(config)
        corpus = read_corpus(config, note)
        tokenizer = make_tokenizer(config, corpus, note)
        run = cls(config, artifact, tokenizer, corpus, callbacks, note)
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

        Tokens of large text are kept as `train-llm` would keep them.

        Args:
            config: what it would do.
            note: told what is going on.

        Raises:
            ConfigError: an option cannot be used.
            FormatError: the text or the tokenizer file cannot be read.
            OutOfMemoryError: the run does not fit into the device's memory.
        """
        # What would only write, or be told, is left out.
        config = config.replace(tensorboard=False, wandb=None, sample_every=0)
        model_config(config, vocab_size=257)
        choose_device(config)
        corpus = read_corpus(config, note)
        tokenizer = make_tokenizer(config, corpus, note)
        return cls(config, ArtifactDir(config.artifact_dir), tokenizer, corpus, (), note)

    def find_lr(self, start: float = 1e-6, end: float = 1.0, steps: int = 100) -> LRFinding:
        """The learning-rate range test; the model is then as it was.

        Args:
            start: lowest rate.
            end: highest rate.
            steps: rates between the two.

        Raises:
            ValueError: as `find_lr`.
        """
        trainer = self.trainer
        before = trainer.loader.state_dict()
        try:
            return find_lr(
                self.model,
                trainer.optimizer,
                iter(trainer.loader),
                start=start,
                end=end,
                steps=steps,
                step=trainer.train_step,
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
        corpus = read_corpus(config, note)
        if artifact.tokenizer.exists():
            tokenizer = Tokenizer.from_file(artifact.tokenizer)
        else:  # the run was killed before it was written; the same text gives the same again
            tokenizer = make_tokenizer(config, corpus, note)
        run = cls(config, artifact, tokenizer, corpus, callbacks, note)
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

    def _note_long_evaluations(self) -> None:
        """Tell when evaluations would take longer than the training between them."""
        config, every = self.config, self.trainer.eval_every
        between = every * config.batch_size * config.accumulate * self.seq_len
        if config.eval_batches is None and every and self.val_tokens > _MOST_PARTS * between:
            self.note(
                f"note: each evaluation reads {self.val_tokens:,} tokens, "
                f"{self.val_tokens / between:.0f} times what is trained on between two: "
                "--eval-batches 100 reads fewer"
            )

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

        The weights are those of the best evaluation or of the last step, as `config.export` says.

        Raises:
            FormatError: the best checkpoint is damaged.
            OSError: a file cannot be written; an earlier one is then whole.
        """
        name = f"pyggml {self.arch} trained on {'text' if self.config.text else 'the manual'}"
        title = f"{self.arch}, {self.model.num_parameters():,} parameters"
        with self.artifact.naming():
            with exported_weights(self.trainer, chosen_export(self.config)) as found:
                self.model.save_gguf(self.artifact.model, self.tokenizer, name)
            self.exported = found
            self.artifact.write_config({**self._record(), "exported": asdict(found)})
            plot_loss(read_metrics(self.artifact.metrics), self.artifact.plot, title)
            write_report(self.artifact.path)

    def sample(
        self, prompt: str | None = None, max_tokens: int | None = None, exported: bool = False
    ) -> str:
        """Some text as the model writes it now; the same for the same seed.

        Args:
            prompt: its beginning; None takes the configuration's.
            max_tokens: tokens to add; None takes the configuration's.
            exported: as the weights write it that `export` chooses.
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
        with (
            exported_weights(self.trainer, chosen_export(self.config))
            if exported
            else self.trainer.averaged()
        ):
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
            settings = config.to_dict()
            found.append(WandbWriter(config.wandb, self.artifact.path, settings, resume="allow"))
        # After the logs, which hear of the samples.
        if config.sample_every:
            found.append(Sampler(config.sample_every, self.sample, self.artifact.samples))
        return found

    def summary(self) -> dict[str, Any]:
        """The run and where it stands, as JSON-ready values."""
        return {**self._record(), **self.trainer.summary(), "memory": asdict(self.memory)}
