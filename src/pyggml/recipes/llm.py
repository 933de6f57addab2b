# SPDX-License-Identifier: MIT
"""A whole run: from text to a folder with a trained model."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, checks
from ..data import Corpus, Tokenizer
from ..errors import ConfigError, FormatError, reason
from ..models import build, generate
from ..tensors.random import seed as set_seed
from ..train.arguments import check_callbacks
from ..train.callbacks import Callback, MetricsWriter, Sampler
from ..train.finder import LRFinding, find_lr
from ..train.metrics import token_bytes
from ..train.trainer import Trainer
from .artifact import ArtifactDir
from .config_file import save_config
from .corpus import make_tokenizer, read_corpus, read_eval_texts, split_text, tokenize
from .describe import describe
from .llm_config import LLMConfig
from .optimizer import make_optimizer
from .report import system_info
from .resume import identity
from .run import Note, Run, log_writers, silent
from .sizes import (
    cache_bytes,
    check_estimate,
    default_seq_len,
    estimate_parameters,
    model_config,
)

__all__ = ["LLMRun"]

# Cool enough that a model of a million parameters keeps to what it knows.
_SAMPLE_TEMPERATURE, _SAMPLE_TOP_K = 0.5, 40
# Evaluations of so many times the tokens trained on between two deserve a note.
_MOST_PARTS = 10


class LLMRun(Run):
    """A language-model training with everything it needs, made by `prepare` or `resume`.

    Attributes:
        config: the run's configuration.
        artifact: its folder.
        tokenizer: text to tokens and back.
        documents: how many there are.
        text_bytes: size of the text; an estimate where it is compressed.
        tokens_folder: of the token store, or None where the tokens are in memory.
        train_tokens: tokens to train on.
        val_tokens: tokens for validation.
        arch: architecture of the model.
        model: the model.
        trainer: trains it.
        memory: bytes by kind.
        exported: the weights that `model.gguf` has, or None before they are written.

    Example:
        >>> sizes = {"layers": 1, "heads": 2, "embd": 16, "seq_len": 16, "tokenizer": "chars"}
        >>> run = LLMRun.prepare(LLMConfig(steps=2, artifact_dir="run", **sizes))
        >>> run.train().step
        2
        >>> run.generate("The", max_tokens=4).startswith("The")
        True
    """

    CONFIG = LLMConfig
    identity = staticmethod(identity)

    def __init__(
        self,
        config: LLMConfig,
        artifact: ArtifactDir,
        tokenizer: Tokenizer,
        corpus: Corpus,
        callbacks: Iterable[Callback],
        note: Note,
    ):
        who = "LLMRun"
        config = checks.instance(who, "config", config, LLMConfig)
        artifact = checks.instance(who, "artifact", artifact, ArtifactDir)
        tokenizer = checks.instance(who, "tokenizer", tokenizer, Tokenizer)
        corpus = checks.instance(who, "corpus", corpus, Corpus, "use LLMRun.prepare(config)")
        self.config: LLMConfig = config
        self.artifact: ArtifactDir = artifact
        self.tokenizer = tokenizer
        self.note = note
        self.text_bytes = corpus.size_bytes
        self.arch, sizes = model_config(config, tokenizer.vocab_size)
        if config.output.prompt is not None:
            self._encode(config.output.prompt)
        # A vocabulary that llama.cpp cannot read raises now rather than after the training.
        tokenizer.to_gguf_metadata(vocab_size=sizes.vocab_size)
        where = config.machine.choose()
        count = estimate_parameters(sizes)
        check_estimate(config, count, cache_bytes(sizes), where)
        if sizes.context >= 2**32:
            raise ConfigError(
                f"`context` must be below {2**32}, as GGUF files have it; got {sizes.context}: "
                "choose less"
            )
        self.seq_len = default_seq_len(config, sizes.context)
        tokens = tokenize(corpus, tokenizer, config, note)
        self.documents, self.tokens_folder = len(tokens.documents), tokens.folder
        self.data = {"tokens": int(tokens.ids.size), "crc32": tokens.crc32}
        loader, validation = split_text(tokens.documents, config, self.seq_len)
        sets = {} if validation is None else {"validation": validation}
        sets |= read_eval_texts(config, tokenizer, note)
        set_seed(config.trainer.seed)
        self.model = build(self.arch, sizes)
        self.model.check_saving()
        optimizer = make_optimizer(config.optimizer, self.model, config["lr"])
        self.trainer = Trainer(
            self.model,
            loader,
            sets or None,
            optimizer,
            options=config.trainer,
            checkpoint_dir=artifact.checkpoints,
            callbacks=[
                MetricsWriter(artifact.metrics),
                *log_writers(config, artifact),
                *self._samplers(),
                *check_callbacks("LLMRun", callbacks),
            ],
            data=self.data,
            token_bytes=token_bytes(tokenizer, self.model.config.vocab_size),
        )
        documents = getattr(getattr(validation, "dataset", None), "documents", None)
        ids = validation if documents is None else documents.ids
        self.val_tokens = 0 if ids is None else int(ids.size)
        self.train_tokens = int(tokens.ids.size) - self.val_tokens
        self.memory = self.trainer.plan()
        self.memory.check()
        self._note_long_evaluations()

    @classmethod
    def make(
        cls,
        config: LLMConfig,
        artifact: ArtifactDir,
        callbacks: Iterable[Callback] = (),
        note: Note = silent,
        resumed: bool = False,
    ) -> LLMRun:
        """Read the text and make tokenizer, model and trainer; a resumed run has its tokenizer."""
        model_config(config, vocab_size=257)
        config.machine.choose()
        corpus = read_corpus(config, note)
        # One that was killed before it was written is made again of the same text.
        if resumed and artifact.tokenizer.exists():
            tokenizer = Tokenizer.from_file(artifact.tokenizer)
        else:
            tokenizer = make_tokenizer(config, corpus, note)
        return cls(config, artifact, tokenizer, corpus, callbacks, note)

    def write_inputs(self) -> None:
        """Write the tokenizer and the options."""
        self.tokenizer.save(self.artifact.tokenizer)
        save_config(self.config, self.artifact.options)

    @classmethod
    def sketch(cls, config: LLMConfig, note: Note = silent) -> LLMRun:
        """Set up a run that writes nothing, to try something out with its model and text.

        Tokens of large text are kept as `train-llm` would keep them.

        Args:
            config: the run's configuration.
            note: called with lines of progress.

        Raises:
            ConfigError: an option cannot be used.
            FormatError: the text or the tokenizer file cannot be read.
            OutOfMemoryError: the run does not fit into the device's memory.
        """
        # Logs and samples are left out.
        config = config.replace(tensorboard=False, wandb=None, sample_every=0)
        return cls.make(config, ArtifactDir(config.output.artifact_dir), note=note)

    def find_lr(self, start: float = 1e-6, end: float = 1.0, steps: int = 100) -> LRFinding:
        """Run the learning-rate range test; the model is then as it was.

        Args:
            start: lowest rate.
            end: highest rate.
            steps: rates between the two.

        Raises:
            ValueError: as `find_lr`.
        """
        trainer = self.trainer
        return find_lr(
            self.model,
            trainer.optimizer,
            trainer.loader,
            start=start,
            end=end,
            steps=steps,
            step=trainer.train_step,
        )

    def _note_long_evaluations(self) -> None:
        """Note that evaluations would take longer than the training between them."""
        options, every = self.config.trainer, self.trainer.eval_every
        between = every * options.value("batch_size") * options.accumulate * self.seq_len
        if options.eval_batches is None and every and self.val_tokens > _MOST_PARTS * between:
            self.note(
                f"note: each evaluation reads {self.val_tokens:,} tokens, "
                f"{self.val_tokens / between:.0f} times what is trained on between two: "
                "`eval_batches`=100 reads fewer"
            )

    def check_data(self, record: dict[str, Any]) -> None:
        """Raise `FormatError` unless the tokens are those that the run began with."""
        if record.get("data") != self.data:
            raise FormatError(
                f"{self.artifact.config}: data must be that of the run, {record.get('data')}; "
                f"got {self.data}: the text has changed since; give the old one with `text`, or "
                "start anew with `overwrite`"
            )

    def record(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        return {
            "pyggml": __version__,
            "arch": self.arch,
            "model": self.model.config.to_dict(),
            "parameters": self.model.num_parameters(),
            "total_steps": self.trainer.total_steps,
            "data": self.data,
            "planned_bytes": self.memory.total,
            "system": system_info(),
            "train": self.config.to_dict(),
            "options": self.options_in_force(),
        }

    def describe(self) -> list[tuple[str, str]]:
        """Return what is about to be trained, as (name, text)."""
        return describe(self)

    def save_model(self, path: Path, dtype: str = "f32") -> None:
        """Write the model as it is, with its tokenizer.

        Args:
            path: the file.
            dtype: type of the matrices.
        """
        text = "text" if self.config.data.text else "the manual"
        self.model.save_gguf(path, self.tokenizer, f"pyggml {self.arch} trained on {text}", dtype)

    def write_results(self) -> None:
        """Write the model for llama.cpp, the picture of the loss, and the report.

        The weights are those of the best evaluation or of the last step, as `export` chooses.

        Raises:
            FormatError: the best checkpoint is damaged.
            OSError: a file cannot be written; an earlier one is then whole.
        """
        title = f"{self.arch}, {self.model.num_parameters():,} parameters"
        with self.artifact.naming():
            with self.exported_weights() as exported:
                self.save_model(self.artifact.model)
            self.exported = exported
            self.artifact.write_config({**self.record(), "exported": asdict(exported)})
            self.draw_report(title)

    def generate(
        self,
        prompt: str | None = None,
        max_tokens: int | None = None,
        *,
        temperature: float = _SAMPLE_TEMPERATURE,
        top_k: int | None = _SAMPLE_TOP_K,
        seed: int | None = None,
        exported: bool = True,
    ) -> str:
        """Return a prompt and the model's continuation; the same for the same seed.

        Args:
            prompt: the beginning; None takes the option `prompt`.
            max_tokens: most tokens to add; None takes the option `sample_tokens`.
            temperature: 0 takes the likeliest token each time.
            top_k: choose among the k likeliest tokens; None among all.
            seed: None takes the run's.
            exported: use the weights that the option `export` chooses; otherwise those of now.

        Raises:
            ConfigError: the vocabulary lacks a character of the prompt.
            ValueError: an argument is out of range.
        """
        output = self.config.output
        prompt = output.prompt if prompt is None else prompt
        max_tokens = output.sample_tokens if max_tokens is None else max_tokens
        if max_tokens == 0:
            return ""
        if prompt is None:
            prompt, ids = output.value("prompt"), np.zeros(0, np.int32)
            # A vocabulary of another script may not have the letters of the usual prompt.
            with suppress(ValueError):
                ids = self.tokenizer.encode(prompt)
        else:
            ids = self._encode(prompt)
        if not ids.size:
            start = self.tokenizer.eos_id if self.tokenizer.eos_id is not None else 0
            ids, prompt = np.array([start], np.int32), ""
        stop = () if self.tokenizer.eos_id is None else (self.tokenizer.eos_id,)
        with self.exported_weights() if exported else self.trainer.averaged(None):
            added = generate(
                self.model,
                ids,
                max_tokens,
                temperature=temperature,
                top_k=top_k,
                seed=self.config.trainer.seed if seed is None else seed,
                stop_ids=stop,
            )
        decoder = self.tokenizer.stream(after=ids if prompt else ())
        return prompt + "".join([*map(decoder.push, added), decoder.finish()])

    def _encode(self, prompt: str) -> np.ndarray:
        """Return the tokens of a prompt that was given."""
        try:
            return self.tokenizer.encode(prompt)
        except ValueError as error:
            raise ConfigError(f"`prompt`: {reason(error)}") from error

    def _samplers(self) -> list[Callback]:
        """Return the callback that writes samples, after the logs, which hear of them."""
        every = self.config.output.sample_every

        def sample() -> str:
            return self.generate(exported=False)

        return [Sampler(every, sample, self.artifact.samples)] if every else []

    def summary(self) -> dict[str, Any]:
        """Return the run and where it stands, as JSON-ready values."""
        return {**self.record(), **self.trainer.summary(), "memory": asdict(self.memory)}
