# SPDX-License-Identifier: MIT
"""Metrics of steps and evaluations, and the file they are written to."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import path as check_path
from ...checks import whole
from ...io import atomic_write, make_dirs, read_regular
from ..checkpoints.folders import put_aside

__all__ = [
    "EvalMetrics",
    "MetricsError",
    "MetricsFile",
    "StepMetrics",
    "append_line",
    "perplexity",
    "read_metrics",
    "to_line",
]

_log = logging.getLogger("pyggml.train")

# The metrics of a run are as long as it was.
_MOST_BYTES = 1 << 40


def perplexity(loss: float) -> float:
    """Return exp(loss), the number of equally likely choices that a loss in nats amounts to.

    Args:
        loss: mean cross-entropy per token in nats.

    Returns:
        The perplexity; infinity where it exceeds a double.

    Raises:
        TypeError: it is no number.

    Example:
        >>> perplexity(0.0)
        1.0
    """
    if not isinstance(loss, (int, float, np.number)):
        raise TypeError(f"perplexity: loss must be a number; got {loss!r:.60}")
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class StepMetrics:
    """One optimizer step.

    Args:
        step: steps done, this one included.
        loss: mean loss per token of this step, in nats; NaN where none of its targets counts: such
            a step changes nothing, and is null in a file of metrics.
        lr: learning rate of this step.
        grad_norm: global gradient norm before clipping.
        tokens: tokens trained on since the run began.
        tokens_per_s: tokens per second of the latest steps.
        elapsed_s: seconds of training since the run began.
        wait_s: seconds of this step that were spent waiting for its batches.
        memory_bytes: what the process takes of the CPU's memory, or the device has in use.
        mfu: share of the device's measured peak that the model's matmuls need, where measured.
        loss_scale: factor on the loss in this step, where there is loss scaling.
        skipped: steps of the run so far whose gradients overflowed, where there is loss scaling.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens: int
    tokens_per_s: float
    elapsed_s: float
    wait_s: float | None = None
    memory_bytes: int | None = None
    mfu: float | None = None
    loss_scale: float | None = None
    skipped: int | None = None


@dataclass(frozen=True)
class EvalMetrics:
    """One evaluation.

    Args:
        step: steps done when it took place.
        loss: mean loss per token, in nats.
        perplexity: exp(loss) of a cross-entropy; None of another loss.
        tokens: tokens evaluated.
        bits_per_byte: of the text that was predicted, where the tokenizer tells bytes.
        metrics: further metrics by name.
        name: of the set.
    """

    step: int
    loss: float
    perplexity: float | None
    tokens: int
    bits_per_byte: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    name: str = "validation"


class MetricsError(RuntimeError):
    """The file of metrics could not be written; the checkpoints are as they were."""


class MetricsFile:
    """A file of JSON lines, one per step and one per evaluation.

    Every line carries `kind` ("train", or the name of the set that was evaluated), `step` and the
    fields of the metrics that there are.
    Lines are flushed as they come, so that the file can be followed while training.

    Args:
        path: the file; made when missing, continued when present.

    Raises:
        TypeError: it is no path.
    """

    def __init__(self, path: str | Path):
        self.path = check_path("MetricsFile", "path", path)
        self._written: set[tuple[str, int]] = set()

    def begin(self, step: int) -> None:
        """Prepare the file for a run; an error is raised before the training starts.

        Lines of another run, which this one begins after, are put aside; of its own, those of
        steps that it will do again are dropped.

        Args:
            step: where the run begins; 0 for a new one.

        Raises:
            OSError: the file cannot be written.
        """
        step = whole("MetricsFile.begin", "step", step, 0)
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path))
        if step == 0:
            put_aside(self.path)
        self.truncate_after(step)
        make_dirs(self.path.parent)
        append_line(self.path, b"")

    def truncate_after(self, step: int) -> None:
        """Drop the lines of later steps, and a last line that a kill cut short.

        Args:
            step: last step that stays.
        """
        whole("MetricsFile.truncate_after", "step", step, 0)
        lines = [line for line in read_metrics(self.path) if line["step"] <= step]
        self._written = {(str(line.get("kind")), line["step"]) for line in lines}
        if not self.path.exists():
            return
        with atomic_write(self.path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def write(self, metrics: StepMetrics | EvalMetrics) -> None:
        """Append one line; a step or evaluation that the file already has is left as it is.

        Args:
            metrics: what was measured.

        Raises:
            TypeError: it is something else.
            OSError: it cannot be written, for instance because the disk is full; names the file,
                which is then as it was.
        """
        if not isinstance(metrics, (StepMetrics, EvalMetrics)):
            raise TypeError(
                "MetricsFile.write: metrics must be StepMetrics or EvalMetrics; got "
                f"{type(metrics).__name__}"
            )
        values = to_line(metrics)
        kind = values["kind"]
        if (kind, metrics.step) in self._written:
            return
        line = json.dumps(values) + "\n"
        if self._written and not self.path.exists():
            text = "metrics: %s was removed; the lines before step %d are lost"
            _log.warning(text, self.path, metrics.step)
        try:
            append_line(self.path, line.encode())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._written.add((kind, metrics.step))


def to_line(metrics: StepMetrics | EvalMetrics) -> dict[str, Any]:
    """Return the line of a step or an evaluation in a file of metrics.

    Args:
        metrics: what was measured.

    Returns:
        The fields that there are, `kind` first; None for numbers that JSON does not have.
    """
    values = asdict(metrics)
    kind = values.pop("name", "train")
    values |= values.pop("metrics", {})
    known = {name: value for name, value in values.items() if value is not None}
    return {"kind": kind, **{name: _finite(value) for name, value in known.items()}}


def append_line(path: Path, data: bytes) -> None:
    """Add a line to a file, whole or not at all.

    Args:
        path: the file; made when missing.
        data: the line with its end.

    Raises:
        OSError: it cannot be written; the file is then as it was.
    """
    # Opened per line: nothing is held open across a crash, and one write is one line.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(fd).st_size
        try:
            # A disk that fills up writes the beginning of a line, and fails after it.
            while data:
                data = data[os.write(fd, data) :]
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def _finite(value: Any) -> Any:
    """None for what JSON cannot express."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a metrics file; incomplete ones are left out.

    Args:
        path: a `metrics.jsonl`; a missing one is an empty one.

    Raises:
        TypeError: it is no path.
        OSError: it cannot be read.
    """
    path = check_path("read_metrics", "path", path)
    if not path.exists():
        return []
    found = []
    data = read_regular(path, _MOST_BYTES)
    for text in data.decode(errors="replace").split("\n"):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            found.append(line)
    return found
