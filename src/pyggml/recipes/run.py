# SPDX-License-Identifier: MIT
"""A prepared training with its folder of results: the base of the runs of all kinds."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from .. import checks, distributed
from ..backend.device import get_threads
from ..debug.tables import html_table
from ..errors import ConfigError, FormatError
from ..train.callbacks import Callback, TensorBoardWriter, WandbWriter
from ..train.interrupt import TrainingInterrupted
from ..train.metrics import read_metrics
from ..train.schedule import rates_in_force
from ..train.trainer import FitResult, Trainer
from .artifact import ArtifactDir
from .export import Exported, exported_weights
from .options import OutputOptions
from .report import plot_loss, write_report
from .resume import compare, merge, recorded

__all__ = ["Note", "Run", "log_writers", "read_record", "silent"]

_log = logging.getLogger("pyggml.train")

Note = Callable[[str], None]
# The commands by the tasks that folders name.
_COMMANDS = {None: "train-llm", "image": "train-image", "finetune": "finetune"}


def silent(text: str) -> None:
    """Ignore a line of progress.

    Args:
        text: the line.
    """


def log_writers(config: Any, artifact: ArtifactDir) -> list[Callback]:
    """Return the callbacks that write the logs asked for.

    Args:
        config: the run's configuration.
        artifact: the run's folder.
    """
    output: OutputOptions = config.output
    found = list[Callback]()
    if output.tensorboard:
        found.append(TensorBoardWriter(artifact.tensorboard))
    if output.wandb:
        found.append(WandbWriter(output.wandb, artifact.path, config.to_dict(), resume="allow"))
    return found


def read_record(artifact: ArtifactDir, kind: Any) -> tuple[dict[str, Any], Any]:
    """Return the `config.json` of a run's folder, and the configuration in it.

    Args:
        artifact: the folder.
        kind: the class of the configuration.

    Raises:
        FormatError: the file holds no configuration of this kind.
    """
    record = artifact.read_config()
    try:
        config = kind.from_dict(record["train"]).replace(artifact_dir=artifact.path)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{artifact.config}: field train is not the configuration of a run: {error}"
        ) from error
    return record, config


def _real(path: str | Path) -> Path:
    """The path without links; a loop of links, on which Path.resolve raises, as it is."""
    return Path(os.path.realpath(path))


def _check_inputs_stay(config: Any, artifact: ArtifactDir, written: str) -> None:
    """Raise if the run reads what it would remove first: a model or adapter of the old run."""
    own = [_real(path) for path in artifact.files()]
    for name, each in config.options().items():
        given: Any = (
            config[name] if each.is_path and name not in ("artifact_dir", written) else None
        )
        values = given if isinstance(given, tuple) else () if given is None else (given,)
        for value in values:
            path = _real(value)
            if own and (path == _real(artifact.path) or {path, *path.parents} & set(own)):
                raise ConfigError(
                    f"`overwrite` removes the run in {artifact.path}, of which `{name}`={value} is "
                    "read: give another `artifact_dir`"
                )


_R = TypeVar("_R", bound="Run")


class Run:
    """A training that was prepared: model, trainer and folder of results.

    Attributes:
        config: the run's configuration.
        artifact: its folder.
        model: the model.
        trainer: trains the model.
        result: how the training ended, or None before.
        exported: the weights that `model.gguf` has, or None before they are written.
    """

    # The class of the configuration, of the folder, and the task that the folder's record names.
    CONFIG: ClassVar[Any]
    ARTIFACT: ClassVar[type[ArtifactDir]] = ArtifactDir
    TASK: ClassVar[str | None] = None

    config: Any
    artifact: Any
    model: Any
    trainer: Trainer
    result: FitResult | None = None
    exported: Exported | None = None

    @classmethod
    def prepare(
        cls: type[_R],
        config: Any,
        overwrite: bool = False,
        callbacks: Iterable[Callback] = (),
        note: Note = silent,
        **given: Any,
    ) -> _R:
        """Set up a new run: read the data, make the model, the trainer and the folder.

        Args:
            config: the run's configuration.
            overwrite: replace a run that is in the folder. Nothing of it is touched before
                everything else of the new run is known to work. From then to the end of `train`,
                other processes are kept out of the folder.
            callbacks: told of the trainer's events.
            note: called with lines of progress.
            given: what `make` of this kind of run takes besides.

        Raises:
            TypeError: an argument is of another kind.
            ConfigError: an option cannot be used, or the folder cannot.
            FormatError: the data cannot be read, or the tokenizer file.
            OutOfMemoryError: the run does not fit into the device's memory.
        """
        who, kind = f"{cls.__name__}.prepare", cls.CONFIG
        checks.instance(who, "config", config, kind, f"give {kind.__name__}(**options)")
        checks.function(who, "note", note, "line -> None")
        group = distributed.init(config.trainer.distributed)
        artifact = cls.ARTIFACT(config.output.artifact_dir)
        artifact.check_new(checks.flag(who, "overwrite", overwrite))
        # Rows of a program are in memory; their file is written.
        _check_inputs_stay(config, artifact, "data" if given.get("rows") is not None else "")
        note = note if group.is_first else silent
        run = cls.make(config, artifact, callbacks, note, **given)
        run.trainer.recipe = recorded(config)

        def create() -> None:
            artifact.create(run.record(), overwrite, hold=True)
            try:
                with artifact.naming():
                    run.write_inputs()
            except BaseException:
                artifact.release()
                raise

        run.trainer.group.first(create)
        return run

    def options_in_force(self) -> dict[str, dict[str, Any]]:
        """Return the options by part, with what was chosen for those that were not given."""
        options, known = self.config.options(), self._chosen()

        def value(name: str, given: Any) -> Any:
            if name in known and given in (None, "auto"):
                return known[name]
            if given is not None:
                return given
            each = options[name]
            return (
                (each.chosen.replace("`", "") or None) if each.otherwise is None else each.otherwise
            )

        return {
            part: {name: value(name, given) for name, given in values.items()}
            for part, values in self.config.to_dict().items()
        }

    def _chosen(self) -> dict[str, Any]:
        """Return the values of options that the run has chosen, as far as they are one number."""
        trainer, sizes = self.trainer, self.model.config
        lr = float(getattr(self.config, "lr", None) or trainer.options.lr or trainer.optimizer.lr)
        named = {"layers": "n_layer", "heads": "n_head", "kv_heads": "n_kv_head", "embd": "n_embd",
                 "ffn": "n_ffn", "context": "context"}  # fmt: skip
        found = {
            "steps": trainer.total_steps,
            "batch_size": trainer.loader.batch_size,
            "lr": lr,
            **rates_in_force(trainer.options, lr, trainer.total_steps),
            "eval_every": trainer.eval_every,
            "save_every": trainer.save_every,
            "seq_len": getattr(self, "seq_len", None),
            "arch": getattr(self.model, "arch", None),
            "threads": get_threads(),
            "device": trainer.optimizer.device.name,
            **{name: getattr(sizes, own, None) for name, own in named.items()},
        }
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def resume(
        cls: type[_R],
        artifact_dir: str | Path,
        changes: Mapping[str, Any] | None = None,
        callbacks: Iterable[Callback] = (),
        note: Note = silent,
        **given: Any,
    ) -> _R:
        """Set up the rest of a run that was interrupted, or more steps of a finished one.

        Args:
            artifact_dir: the run's folder.
            changes: options that differ from the run's. Those that make it another run raise;
                those that change its course are noted.
            callbacks: told of the trainer's events.
            note: called with lines of progress.
            given: what `make` of this kind of run takes besides.

        Raises:
            TypeError: an argument is of another kind.
            ConfigError: there is no such run, or an option cannot be changed.
            FormatError: the data have changed, or a file of the run is damaged.
        """
        checks.function(f"{cls.__name__}.resume", "note", note, "line -> None")
        changes = changes or {}
        group = distributed.init(changes.get("distributed", "auto"))
        artifact = cls.ARTIFACT(artifact_dir)
        artifact.check_resume()
        group.first(artifact.hold)
        try:
            note = note if group.is_first else silent
            return cls._resume(artifact, changes, callbacks, note, given)
        except BaseException:
            artifact.release()
            raise

    @classmethod
    def _resume(
        cls: type[_R],
        artifact: ArtifactDir,
        changes: Mapping[str, Any],
        callbacks: Iterable[Callback],
        note: Note,
        given: Mapping[str, Any],
    ) -> _R:
        """Do the work of `resume` in a folder that is locked."""
        task = artifact.read_config().get("task")
        if task != cls.TASK:
            other = _COMMANDS.get(task, "another kind")
            raise ConfigError(
                f"`resume`: {artifact.path} holds a run of {other}: continue it with that"
            )
        record, before = read_record(artifact, cls.CONFIG)
        config = merge(before, changes, note, cls.identity)
        run = cls.make(config, artifact, callbacks, note, True, **given)
        run.trainer.recipe = recorded(config)
        run.check_data(record)
        step = run.trainer.resume()
        if run.trainer.last_checkpoint is not None:
            compare(run.trainer.last_checkpoint, config, changes, artifact.config, note)
        if step == 0 and "exported" in record:
            raise FormatError(
                f"{artifact.path}: must hold a checkpoint of the run, whose results are written; "
                "got none: give `overwrite` to start anew"
            )
        if step == 0:
            note("no checkpoint yet: starting at the first step")
        elif step == run.trainer.total_steps:
            note(f"the run is finished (step {step}); `steps` with a larger number extends it")
        elif run.trainer.is_stale:
            note(f"the run ended early (step {step}); a larger `patience` extends it")
        else:
            note(f"continuing after step {step}")

        def write() -> None:
            with artifact.naming():
                artifact.write_config(run.record())
                run.write_inputs()

        run.trainer.group.first(write)
        return run

    @classmethod
    def make(
        cls: type[_R],
        config: Any,
        artifact: Any,
        callbacks: Iterable[Callback] = (),
        note: Note = silent,
        resumed: bool = False,
    ) -> _R:
        """Read the data and return the run; write nothing.

        Args:
            config: the run's configuration.
            artifact: its folder.
            callbacks: told of the trainer's events.
            note: called with lines of progress.
            resumed: the folder has the run's files already.
        """
        raise NotImplementedError

    @staticmethod
    def identity(config: Any) -> Any:
        """Return equal values for configurations of the same run.

        Args:
            config: of a run.
        """
        return config

    def check_data(self, record: dict[str, Any]) -> None:
        """Raise `FormatError` unless the data are those that the run began with.

        Args:
            record: the content of its `config.json`.
        """
        raise NotImplementedError

    def write_inputs(self) -> None:
        """Write what is known before the training into the run's folder."""
        raise NotImplementedError

    def train(self) -> FitResult:
        """Train to the end, then write the model, the pictures and the report.

        Raises:
            TrainingInterrupted: a signal asked for the end; checkpoint and results are written.
            TrainingError: a loss or gradient is not finite.
            CheckpointError: a checkpoint could not be written.
            MetricsError: the metrics could not be written.
            FormatError: a file of the run was removed meanwhile, and cannot be written again.
        """
        group = self.trainer.group
        try:
            with self.artifact.lock() if group.is_first else nullcontext():
                before = self.artifact.files()
                try:
                    self.result = self.trainer.fit()
                except TrainingInterrupted:
                    group.first(lambda: self._finish(before))
                    raise
                group.first(lambda: self._finish(before))
        finally:
            self.artifact.release()
        return self.result

    def _finish(self, before: list[Path]) -> None:
        """Write the results, and what was removed of the files that were there before."""
        removed = [path for path in before if not path.exists()]
        if removed:
            with self.artifact.naming():
                self.write_inputs()
        self.write_results()
        lost = [path for path in removed if not path.exists()]
        if lost:
            raise FormatError(
                f"train: {', '.join(map(str, lost))}: removed while the run trained, and lost; the"
                " other files of the run are written"
            )
        if removed:
            names = ", ".join(map(str, removed))
            _log.warning("train: %s: removed while the run trained; written again", names)

    def exported_weights(self) -> AbstractContextManager[Exported]:
        """Let the model use the weights that the option `export` chooses, inside the block."""
        output: OutputOptions = self.config.output
        return exported_weights(self.trainer, output.chosen_export(self.config.trainer))

    def export(self, path: str | os.PathLike[str], dtype: str = "f32") -> Path:
        """Write the trained model as one GGUF file, with the weights that `export` chooses.

        Args:
            path: the file to create or replace.
            dtype: type of the matrices, such as `f16` or `q8_0`.

        Returns:
            The file.

        Raises:
            ValueError: there is no such dtype.
            OSError: the file cannot be written; an earlier one is then whole.
        """
        file = checks.path(f"{type(self).__name__}.export", "path", path)
        with self.exported_weights():
            self.save_model(file, dtype)
        return file

    def save_model(self, path: Path, dtype: str = "f32") -> None:
        """Write the model as it is, with all that its use needs.

        Args:
            path: the file.
            dtype: type of the matrices.
        """
        raise NotImplementedError

    def describe(self) -> list[tuple[str, str]]:
        """Return data, model, training and memory in words: (name, text) pairs."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return what is trained, and how it ended, for a notebook."""
        ended = "" if self.result is None else self.result._repr_html_()
        return html_table(self.describe()) + ended

    def write_results(self) -> None:
        """Write model, pictures and report into the run's folder.

        Raises:
            FormatError: the best checkpoint is damaged.
            OSError: a file cannot be written; an earlier one is then whole.
        """
        raise NotImplementedError

    def draw_report(self, title: str, *, images: bool = False) -> bool:
        """Draw the loss and write the report, unless the option `report` is off.

        Args:
            title: printed above the picture of the loss.
            images: whether the run learns images.

        Returns:
            Whether pictures are drawn: False without matplotlib too.
        """
        if not self.config.output.report:
            return False
        lines = read_metrics(self.artifact.metrics)
        drawn = plot_loss(lines, self.artifact.plot, title, images=images)
        write_report(self.artifact.path)
        return drawn

    def record(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        raise NotImplementedError
