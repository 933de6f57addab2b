# SPDX-License-Identifier: MIT
"""A whole fine-tuning: from a base and examples to an adapter or a model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ... import __version__, checks
from ...errors import FormatError, OutOfMemoryError, reason
from ...io import atomic_write, read_regular
from ...io.names import portable
from ...models import load, save_lora
from ...nn.raw_bytes import checksum
from ...tensors.random import seed as set_seed
from ...train.arguments import check_callbacks
from ...train.callbacks import Callback, MetricsWriter
from ...train.metrics import token_bytes
from ...train.step import TrainStep
from ...train.trainer import FitResult, Trainer
from ..config_file import save_config
from ..optimizer import make_optimizer
from ..report import system_info
from ..run import Note, Run, log_writers, silent
from .answers import Comparison, Measurement, answers_of, measure
from .base import aware_of, changes_base, prepare_model, read_base
from .class_options import CLASSIFY
from .classes import read_class_examples
from .config import FinetuneConfig
from .data import Examples, read_examples
from .describe import amounts, describe, left_out
from .preference_options import SFT
from .preferences import PreferenceExamples, Reference, read_preference_examples
from .results import FinetuneArtifact, check_merge, llama_cpp_commands, save_merged, widest
from .rows import Rows, kept_rows, write_rows
from .teacher import taught

__all__ = ["FinetuneRun"]

_TEMPLATE = "tokenizer.chat_template"
# A merged model whose loss rises by more than this has lost a part of what was learnt.
_LOST = 0.05


class FinetuneRun(Run):
    """A fine-tuning with everything it needs, made by `prepare` or `resume`.

    Attributes:
        config: the run's configuration.
        artifact: its folder.
        tokenizer: text to tokens and back.
        examples: the chats as tokens.
        objective: the loss of preferences or of a reward, or None.
        reference: log-probabilities of the answers before the training, or None.
        model: the base with adapters, or with all weights trained.
        adapted: paths of the layers with adapters.
        trainer: trains the model.
        memory: bytes by kind.
        comparison: loss and answers before and after.
        exported: the weights that the files have, or None before they are written.

    Example:
        >>> options = {"model": "base.gguf", "data": "chats.jsonl"}
        >>> run = FinetuneRun.prepare(FinetuneConfig(**options))  # doctest: +SKIP
        >>> run.train().step  # doctest: +SKIP
        120
    """

    CONFIG = FinetuneConfig
    ARTIFACT = FinetuneArtifact
    TASK = "finetune"

    reference: Reference | None = None

    def __init__(
        self,
        config: FinetuneConfig,
        artifact: FinetuneArtifact,
        callbacks: Iterable[Callback] = (),
        note: Note = silent,
        rows: Rows | None = None,
    ):
        checks.instance(type(self).__name__, "config", config, FinetuneConfig)
        checks.instance(type(self).__name__, "artifact", artifact, FinetuneArtifact)
        self.config: FinetuneConfig = config
        self.artifact: FinetuneArtifact = artifact
        self._rows = kept_rows(artifact.rows, config.data.data) if rows is None else rows
        source = config.data.data if self._rows is None else self._rows
        self.note = note
        self.comparison = Comparison()
        config.machine.choose()
        classify = config.task.task == CLASSIFY
        self.model, self.tokenizer = read_base(config.model, classify)
        self.base_parameters = self.model.num_parameters()
        base = checksum(self.model)
        read = read_class_examples if classify else read_examples
        if config.preferences.method != SFT:
            read = read_preference_examples
        self.examples: Examples = read(config, self.model, self.tokenizer, source)
        self.objective = self.examples.objective(config)
        self.seq_len = self.examples.seq_len
        self.data = {
            "chats": len(self.examples.chats),
            "tokens": self.examples.tokens,
            "crc32": self.examples.crc32,
            "base": base,
        }
        set_seed(config.trainer.seed)
        self.model = self.examples.with_head(self.model)
        check_merge(self.model, config.output.merge, config.output.imatrix)
        self.adapted = prepare_model(self.model, config.model)
        if config.model.originals is not None or config.model.adapter is not None:
            self.data["start"] = checksum(self.model)
        if changes_base(self.model, config.model):
            self.comparison.first = "before"
        self._add_template()
        loader, *validation = self._loaders(base)
        loader, loss, weights = taught(
            config, loader, self.tokenizer, self.model, self.data["crc32"]
        )
        if weights is not None:
            self.data["teacher"] = weights
        # Batches of examples that are not packed have as many rows as fit.
        size = min(config.trainer.value("batch_size"), loader.batch_size)
        options = config.trainer.replace(
            batch_size=size if config.data.packing else None,
            metrics=tuple(dict.fromkeys((*config.trainer.metrics, *self.examples.metrics))),
        )
        if self.objective is not None:  # which smooths labels by itself
            options = options.replace(label_smoothing=0.0)
        optimizer = make_optimizer(config.optimizer, self.model, config.lr)
        self._aware = aware_of(self.model, optimizer, config.model)
        self.trainer = Trainer(
            self.model,
            loader,
            {"validation": validation[0]} if validation else None,
            optimizer,
            options=options,
            checkpoint_dir=artifact.checkpoints,
            callbacks=[
                MetricsWriter(artifact.metrics),
                *log_writers(config, artifact),
                *check_callbacks("FinetuneRun", callbacks),
            ],
            loss=self.objective or loss,
            data=self.data,
            token_bytes=self._token_bytes(),
            save_frozen=False,
        )
        self.memory = self.trainer.plan()
        for line in left_out(self):
            note(line)

    def _loaders(self, base: int) -> list[Any]:
        """Return the batches to train on and, if there are any, to validate on."""
        config = self.config
        if not isinstance(self.examples, PreferenceExamples):
            return self.examples.loaders(config)
        reference = Reference(config, self.examples, base, self.artifact.reference)
        if self.objective.needs_reference:
            reference.compute(self.model)
            self.reference = reference
        return reference.loaders(self.objective.needs_reference)

    def _token_bytes(self) -> Any:
        """Return the bytes of text of each token, where the loss is that of text."""
        if self.objective is not None or not self.examples.is_text:
            return None
        return token_bytes(self.tokenizer, self.model.config.vocab_size)

    @classmethod
    def make(
        cls,
        config: FinetuneConfig,
        artifact: Any,
        callbacks: Iterable[Callback] = (),
        note: Note = silent,
        resumed: bool = False,
        rows: Rows | None = None,
    ) -> FinetuneRun:
        """Read base and examples, and make the trainer."""
        return cls(config, artifact, callbacks, note, rows)

    def write_inputs(self) -> None:
        """Write the options, rows without a file, the template, and preferences' reference."""
        save_config(self.config, self.artifact.options)
        if self._rows is not None:
            write_rows(self.artifact.rows, self._rows)
        if self.reference is not None:
            self.reference.write()
        if self.examples.template_file is not None:
            with atomic_write(self.artifact.template, "w") as file:
                file.write(self.examples.template_file)

    def check_data(self, record: dict[str, Any]) -> None:
        """Raise `FormatError` unless base and examples are those that the run began with."""
        before = record.get("data")
        before = before if isinstance(before, dict) else {}
        start = "adapter" if self.config.model.adapter is not None else "originals"
        for option, name in (("model", "base"), (start, "start"), ("teacher", "teacher")):
            if before.get(name) != self.data.get(name):
                raise FormatError(
                    f"{self.artifact.config}: `{option}`={self.config[option]} must be the model "
                    "that the run began with; its weights are others: give the old one with "
                    f"`{option}`, or start anew with `overwrite`"
                )
        if before != self.data:
            counts = [amounts(each) for each in (before, self.data)]
            if counts[0] == counts[1]:
                counts[1] = "as many of another content"
            raise FormatError(
                f"{self.artifact.config}: the data must be those that the run began with, "
                f"{counts[0]}; got {counts[1]}: give the old ones with `data`, or start anew with "
                "`overwrite`"
            )

    def record(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        return {
            "pyggml": __version__,
            "task": self.TASK,
            "arch": self.model.arch,
            "base": str(self.config.model.model),
            "model": self.model.config.to_dict(),
            "parameters": self.model.num_parameters(),
            "trained_parameters": self.model.num_parameters(trainable_only=True),
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

    def sample(self) -> list[list[tuple[str, bool]]]:
        """Return the first row of an epoch: its examples in pieces, each with whether it trains.

        Example:
            >>> run.sample()  # doctest: +SKIP
            [[('2 + 2 =', False), (' 4', True)]]
        """
        return self.examples.sample(next(iter(self.trainer.loader.once())), self.tokenizer)

    def train(self) -> FitResult:
        """Measure the base, train, then write adapter or model, the answers and the report.

        Raises:
            TrainingInterrupted: a signal asked for the end; checkpoint and results are written.
            TrainingError: a loss or gradient is not finite.
            OutOfMemoryError: memory ran out; names the checkpoint to go on from.
            CheckpointError: a checkpoint could not be written.
            MetricsError: the metrics could not be written.
        """
        try:
            self.trainer.group.first(self._measure_base)
            return super().train()
        except OutOfMemoryError as error:
            last = self.trainer.last_checkpoint
            cure = "nothing was saved yet" if last is None else f"the checkpoint {last} is whole"
            raise OutOfMemoryError(
                f"train: memory ran out at step {self.trainer.step + 1} ({error}); {cure}: "
                "continue with `resume` and a smaller `memory_limit`, or start with a smaller "
                "`batch_size` or `seq_len`"
            ) from error
        finally:
            self.artifact.release()

    def _measure_base(self) -> None:
        """Compute loss and answers of the base, or read them where the run goes on."""
        with self.artifact.lock():
            if self.trainer.step:
                self._read_comparison()
                return
            self.comparison.before = before = self._loss()
            if before is not None and not math.isfinite(before.loss):
                raise FormatError(
                    f"{self.config.model.model}: the base's validation loss must be finite; got "
                    f"{before.loss}: `pyggml check` with `weights` names those that are not"
                )
            self.comparison.base_answers = self._answers()
            self._write_comparison()
        if self.comparison.before is not None:
            self.note(f"{self.comparison.first}: {self.comparison.before}")

    def _loss(self) -> Measurement | None:
        """Return the validation loss of the model as it is; None without validation."""
        return self._measured(self.model, self.trainer.train_step)

    def _measured(self, model: Any, step: Any) -> Measurement | None:
        """Return the validation loss of a model; None without validation."""
        sets, examples = self.trainer.sets, self.examples
        if not sets:
            return None
        batches = sets["validation"].batches(self.config.trainer.eval_batches)
        return measure(model, batches, step, examples.metrics, examples.is_text)

    def _answers(self) -> list[Any]:
        """Return answers of the model as it is to validation prompts."""
        output, held = self.config.output, self.examples.validation
        if held is None or not output.answers or not self.examples.writes:
            return []
        return answers_of(
            self.model, held.documents, self.tokenizer, output.answers, output.answer_tokens
        )

    def _read_comparison(self) -> None:
        try:
            values = json.loads(read_regular(self.artifact.comparison))
            self.comparison = Comparison.from_dict(values)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self.note(f"note: {self.artifact.comparison} is lost; the base is not measured again")

    def _write_comparison(self) -> None:
        with atomic_write(self.artifact.comparison, "w") as file:
            json.dump(portable(self.comparison.to_dict()), file, indent=1)
            file.write("\n")

    def _write_samples(self) -> None:
        """Write the answers for the report: those of the base, and those of the last step."""
        found = self.comparison
        lines = [
            {"step": step, "text": "\n\n".join(f"{a.prompt}\n→ {a.given}" for a in answers)}
            for step, answers in ((0, found.base_answers), (self.trainer.step, found.answers))
            if answers
        ]
        with atomic_write(self.artifact.samples, "w") as file:
            file.writelines(json.dumps(portable(line)) + "\n" for line in lines)

    def save_model(self, path: Path, dtype: str = "f32") -> None:
        """Write the model as it is: adapters alone, or all weights.

        Args:
            path: the file; for adapters also a folder for PEFT, and for a classifier one of
                transformers.
            dtype: type of the matrices; adapters are f32.
        """
        if self.adapted:
            save_lora(self.model, path)
            return
        if path.suffix != ".gguf" and not self.examples.writes:
            self.model.save_pretrained(path, self.tokenizer, dtype)
            return
        with nullcontext() if self._aware is None else self._aware.quantized():
            self.model.save_gguf(path, self.tokenizer, dtype=dtype)

    def write_results(self) -> None:
        """Write adapter or model, answers, the picture of the loss, and the report.

        The weights are those of the best evaluation or of the last step, as `export` chooses. Of a
        run that was interrupted there are no answers, and no merged model.

        Raises:
            FormatError: the best checkpoint is damaged.
            OSError: a file cannot be written; an earlier one is then whole.
        """
        title = f"{self.model.arch}, {self.model.num_parameters(trainable_only=True):,} trained"
        with self.artifact.naming():
            with self.exported_weights() as exported:
                if self._aware is not None and self.trainer.is_done:
                    self._aware.settle()
                kind = self.config.output.merge
                if not self.adapted:
                    self.save_model(self.artifact.whole(self.model))
                elif not self._save_adapter():
                    kind = kind or widest(self.model)
                if self.trainer.is_done:
                    self.comparison.after = self._loss()
                    self.comparison.answers = self._answers()
                    self._write_classes()
                    if kind is not None:
                        self._merge(kind)
            self.exported = exported
            self._write_comparison()
            self._write_samples()
            self.artifact.write_config({**self.record(), "exported": asdict(exported)})
            self.draw_report(title)

    def _write_classes(self) -> None:
        """Write the predictions of a classifier for the validation texts."""
        if not self.trainer.sets:
            return
        step, batches = self.trainer.train_step, self.trainer.sets["validation"].batches()
        found = self.examples.results(map(step.logits, batches), self.tokenizer)
        if found is not None:
            with atomic_write(self.artifact.results, "w") as file:
                json.dump(portable(found.to_dict("texts")), file, indent=1)

    def _save_adapter(self) -> bool:
        """Write the adapter for llama.cpp and for PEFT; return whether llama.cpp has a file."""
        has_file = self.examples.writes  # a classifier's head is no adapter
        for path in (self.artifact.adapter, self.artifact.peft)[not has_file :]:
            try:
                self.save_model(path)
            except ValueError as error:  # an adapter that one of the two does not know
                self.note(f"note: {path.name} is not written: {reason(error)}")
                has_file = has_file and path is not self.artifact.adapter
        return has_file

    def _merge(self, kind: str) -> None:
        """Write the merged model, and measure what the rounding of its weights costs."""
        path = self.artifact.whole(self.model)
        try:
            save_merged(self.model, path, kind, self.tokenizer, self.config.output.imatrix)
        except OSError:
            self.note(f"note: the adapter is written, {self.artifact.adapter}; {path.name} is not")
            raise
        if not self.trainer.sets or self.comparison.after is None:
            return
        merged, _ = load(path, keep_types=True, mapped=path.suffix == ".gguf")
        step = None if self.objective is None else TrainStep(merged, None, loss=self.objective)
        found = self.comparison.merged = self._measured(merged, step)
        if found is not None and found.loss > self.comparison.after.loss + _LOST:
            self.note(
                f"note: rounding to {kind} costs the merged model a part of what was learnt: "
                f"{found}, where the adapter beside the base has a loss of "
                f"{self.comparison.after.loss:.4f}: use the adapter, or `merge`=Q8_0 or F16"
            )

    def commands(self) -> list[str]:
        """Return the command lines with which llama.cpp uses the results."""
        base = Path(self.config.model.model)
        examples = self.examples
        return llama_cpp_commands(base, self.artifact, examples.is_own, not examples.writes)

    def _add_template(self) -> None:
        """Give the model the template of the chats, for the files that are written."""
        if self.examples.is_own:
            self.model.metadata[_TEMPLATE] = self.examples.template_file

    def summary(self) -> dict[str, Any]:
        """Return the run and where it stands, as JSON-ready values."""
        return {
            **self.record(),
            **self.trainer.summary(),
            "memory": asdict(self.memory),
            "comparison": self.comparison.to_dict(),
        }
