# SPDX-License-Identifier: MIT
"""A prepared training with its folder of results: the base of the runs of all kinds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .. import checks
from ..errors import FormatError
from ..train.callbacks import Callback, TensorBoardWriter, WandbWriter
from ..train.interrupt import TrainingInterrupted
from ..train.trainer import FitResult, Trainer
from .artifact import ArtifactDir
from .export import Exported, exported_weights
from .options import OutputOptions

__all__ = ["Note", "Run", "log_writers", "read_record", "silent"]

Note = Callable[[str], None]


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

    config: Any
    artifact: Any
    model: Any
    trainer: Trainer
    result: FitResult | None = None
    exported: Exported | None = None

    def train(self) -> FitResult:
        """Train to the end, then write the model, the pictures and the report.

        Raises:
            TrainingInterrupted: a signal asked for the end; checkpoint and results are written.
            TrainingError: a loss or gradient is not finite.
            CheckpointError: a checkpoint could not be written.
            MetricsError: the metrics could not be written.
        """
        try:
            with self.artifact.lock():
                try:
                    self.result = self.trainer.fit()
                except TrainingInterrupted:
                    self.write_results()
                    raise
                self.write_results()
        finally:
            self.artifact.release()
        return self.result

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

    def write_results(self) -> None:
        """Write model, pictures and report into the run's folder.

        Raises:
            FormatError: the best checkpoint is damaged.
            OSError: a file cannot be written; an earlier one is then whole.
        """
        raise NotImplementedError

    def record(self) -> Mapping[str, Any]:
        """Return the content of `config.json`."""
        raise NotImplementedError
