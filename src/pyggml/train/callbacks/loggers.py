# SPDX-License-Identifier: MIT
"""Callbacks that send metrics to TensorBoard and to Weights & Biases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ...checks import path
from ...io.names import check_unicode
from ..metrics.records import EvalMetrics, StepMetrics, to_line
from .writers import Callback, explained

__all__ = ["TensorBoardWriter", "WandbWriter"]


def _scalars(metrics: StepMetrics | EvalMetrics) -> dict[str, float]:
    """Numbers by tag: the kind of line, a slash, the field."""
    values = to_line(metrics)
    kind = values.pop("kind")
    del values["step"]
    return {f"{kind}/{name}": value for name, value in values.items() if value is not None}


class TensorBoardWriter(Callback):
    """Writes steps, evaluations and samples as TensorBoard's event files.

    A resumed run writes another file, which takes back what the earlier ones say of later steps.

    Args:
        folder: where the files go; made when missing.

    Raises:
        ModuleNotFoundError: tensorboard is not installed; names the extra.
        ValueError: the folder's name is not Unicode, which TensorBoard needs.
        MetricsError: from the hooks, when a file cannot be written.

    Example:
        >>> callbacks = [TensorBoardWriter("runs/1")]
    """

    def __init__(self, folder: str | Path):
        place = path("TensorBoardWriter", "folder", folder)
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "TensorBoardWriter: tensorboard is not installed: "
                'pip install "pyggml[tensorboard]"',
                name=error.name,
            ) from error
        check_unicode(
            "TensorBoardWriter", "folder", str(place), "rename it, or train without TensorBoard"
        )
        self.folder = place
        self._event, self._summary = event_pb2, summary_pb2
        self._tensor, self._types = tensor_pb2, types_pb2
        self._make = EventFileWriter
        self._writer: Any = None

    def on_start(self, trainer: Any) -> None:
        """Open a file, and take back later steps."""
        with explained(trainer, self.folder):
            self._writer = self._make(str(self.folder))
            if trainer.step:
                log = self._event.SessionLog(status=self._event.SessionLog.START)
                self._add(trainer.step + 1, session_log=log)

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._event.Event(wall_time=time.time(), step=step, **content))

    def _write(self, trainer: Any, metrics: StepMetrics | EvalMetrics) -> None:
        values = [
            self._summary.Summary.Value(tag=tag, simple_value=value)
            for tag, value in _scalars(metrics).items()
        ]
        with explained(trainer, self.folder):
            self._add(metrics.step, summary=self._summary.Summary(value=values))

    def on_step(self, trainer: Any, metrics: StepMetrics) -> None:
        """Write the step's numbers."""
        self._write(trainer, metrics)

    def on_evaluation(self, trainer: Any, metrics: EvalMetrics) -> None:
        """Write the evaluation's numbers, and flush."""
        self._write(trainer, metrics)
        with explained(trainer, self.folder):
            self._writer.flush()

    def on_sample(self, trainer: Any, text: str) -> None:
        """Write the sample."""
        summary = self._summary
        plugin = summary.SummaryMetadata.PluginData(plugin_name="text")
        tensor = self._tensor.TensorProto(
            dtype=self._types.DT_STRING, string_val=[text.encode("utf-8", "replace")]
        )
        metadata = summary.SummaryMetadata(plugin_data=plugin)
        value = summary.Summary.Value(tag="sample", metadata=metadata, tensor=tensor)
        with explained(trainer, self.folder):
            self._add(trainer.step, summary=summary.Summary(value=[value]))

    def on_end(self, trainer: Any) -> None:
        """Close the file."""
        if self._writer is not None:
            with explained(trainer, self.folder):
                self._writer.close()
            self._writer = None


class WandbWriter(Callback):
    """Sends steps, evaluations and samples to Weights & Biases.

    Args:
        project: name of the project.
        folder: folder of its library's files; None leaves the choice to it.
        config: configuration that is told; None tells the trainer's options.
        options: passed on to `wandb.init`, such as `name`, `mode="offline"`, `id` and `resume`.

    Raises:
        ModuleNotFoundError: wandb is not installed; names the extra.
        RuntimeError: from `on_start`, when it begins no run, as without a login.

    Example:
        >>> writer = WandbWriter("shakespeare", mode="offline")
    """

    def __init__(
        self,
        project: str,
        folder: str | Path | None = None,
        config: dict[str, Any] | None = None,
        **options: Any,
    ):
        try:
            import wandb
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                'WandbWriter: wandb is not installed: pip install "pyggml[wandb]"', name=error.name
            ) from error
        self._wandb: Any = wandb
        self._options = {"project": project, **options}
        self._config = config
        if folder is not None:
            self._options["dir"] = str(folder)
        self._run: Any = None

    def on_start(self, trainer: Any) -> None:
        """Begin a run with the training's configuration."""
        config = trainer.options.to_dict() if self._config is None else self._config
        try:
            self._run = self._wandb.init(config=config, **self._options)
        except self._wandb.Error as error:
            raise RuntimeError(
                f"WandbWriter: no run could be begun: {error} Else set WANDB_MODE=offline, or train"
                " without it; nothing was trained"
            ) from error

    def on_step(self, trainer: Any, metrics: StepMetrics) -> None:
        """Send the step's numbers."""
        self._run.log(_scalars(metrics), step=metrics.step)

    def on_evaluation(self, trainer: Any, metrics: EvalMetrics) -> None:
        """Send the evaluation's numbers."""
        self._run.log(_scalars(metrics), step=metrics.step)

    def on_sample(self, trainer: Any, text: str) -> None:
        """Send the sample."""
        self._run.log({"sample": text}, step=trainer.step)

    def on_end(self, trainer: Any) -> None:
        """End the run; one that failed or was interrupted says so."""
        if self._run is not None:
            self._run.finish(exit_code=0 if trainer.is_done else 1)
            self._run = None
