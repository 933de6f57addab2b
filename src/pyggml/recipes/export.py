# SPDX-License-Identifier: MIT
"""The weights in the model file of a run: those of the last step or of the best one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backend.device import alone
from ..backend.undivided import Undone
from ..checks import path as checked_path
from ..data import Tokenizer
from ..errors import FormatError
from ..io import i64, write_gguf
from ..models import ImageModel, build
from ..train.checkpoints.checkpoint import load_weights
from ..train.checkpoints.folders import read_best
from ..train.checkpoints.manifest import read_manifest
from ..train.checkpoints.state import typed
from .artifact import ArtifactDir

__all__ = [
    "Exported",
    "export_checkpoint",
    "exported_weights",
    "save_image_model",
]


@dataclass(frozen=True)
class Exported:
    """The weights that a model file has.

    Args:
        which: `best` or `last`.
        step: optimizer steps done by then.
        loss: validation loss of the best; None of the last.
        note: the reason where they are not those asked for, or "".
    """

    which: str
    step: int
    loss: float | None = None
    note: str = ""

    def __str__(self) -> str:
        if self.which == "best":
            return f"the best weights, of step {self.step}: validation loss {self.loss:.4f}"
        return f"the last weights, of step {self.step}{self.note}"


def exported_weights(trainer: Any, which: str) -> AbstractContextManager[Exported]:
    """Let the model use the exported weights inside the block; its own come back bit for bit.

    Where the run keeps an average of its weights, they are the average, as in evaluations. A
    training in another thread waits, and trains its own weights.

    Args:
        trainer: of the run.
        which: `best` or `last`.

    Raises:
        FormatError: the best checkpoint is damaged.
    """
    return _Exported(trainer, which)


class _Exported(Undone):
    """A block in which a model has the exported weights; `as` says which these are.

    Args:
        trainer: of the run.
        which: `best` or `last`.
    """

    def __init__(self, trainer: Any, which: str):
        super().__init__(alone())
        self._trainer, self._which = trainer, which
        self._before: Any = None
        self._averaged: AbstractContextManager[Any] = nullcontext()

    def enter(self) -> Exported:
        """Load the weights, or apply the average."""
        weights, found = _chosen(self._trainer, self._which)
        if weights is None:
            self._averaged = self._trainer.averaged(None)
            self._averaged.__enter__()
        else:
            self._before = self._trainer.weights.state_dict()
            self._trainer.weights.load_state_dict(weights)
        return found

    def undo(self) -> None:
        """Put back those of before."""
        if self._before is not None:
            self._trainer.weights.load_state_dict(self._before)
            self._before = None
        averaged, self._averaged = self._averaged, nullcontext()
        averaged.__exit__(None, None, None)


def _chosen(trainer: Any, which: str) -> tuple[Any, Exported]:
    """Return the arrays to export, or None for those of now; and which they are."""
    path = trainer.best_checkpoint
    if which != "best":
        return None, Exported("last", trainer.step)
    if trainer.best is not None and trainer.is_best:
        return None, Exported("best", trainer.step, trainer.best["loss"])
    if path is None:
        return None, Exported("last", trainer.step, note=", as no best checkpoint is kept")
    weights, kept = load_weights(path), read_best(path.parent)
    if kept is None:
        raise FormatError(f"{path}: has no validation loss; give `export`=last")
    return weights, Exported("best", kept["step"], kept["loss"])


def export_checkpoint(checkpoint: str | Path, path: str | Path) -> Path:
    """Write the model of a run's checkpoint as GGUF, with the weights that evaluations use.

    Args:
        checkpoint: its directory, in the folder of a run of `train-llm` or `train-image`.
        path: the file to create or replace.

    Returns:
        The file.

    Raises:
        FormatError: it is no checkpoint, is damaged, or lies in no run's folder.
        OSError: the file cannot be written; an earlier one is then whole.

    Example:
        >>> best = "artifacts/llm/checkpoints/best"
        >>> export_checkpoint(best, "best.gguf").name  # doctest: +SKIP
        'best.gguf'
    """
    who = "export_checkpoint"
    checkpoint = checked_path(who, "checkpoint", checkpoint)
    path = checked_path(who, "path", path)
    read_manifest(checkpoint, ())
    artifact = ArtifactDir(checkpoint.resolve().parent.parent)
    if not artifact.holds_run:
        raise FormatError(
            f"{checkpoint}: must lie in the folder of a run, which has the model's sizes and "
            f"tokenizer; {artifact.config} is not of one: give RUN/checkpoints/best or the like"
        )
    record = artifact.read_config()
    if record.get("task") == "finetune":
        raise FormatError(
            f"{checkpoint}: holds what a fine-tuning trained, without its base: pyggml finetune "
            "with `resume` and `export`=best or last writes the files again"
        )
    arch = typed(record, "arch", str, artifact.config)
    sizes = typed(record, "model", dict, artifact.config)
    try:
        model: Any = build(arch, sizes)
        model.load_state_dict(load_weights(checkpoint))
    except (LookupError, ValueError, TypeError) as error:
        if isinstance(error, FormatError):
            raise
        reason = error.args[0] if error.args else error
        raise FormatError(f"{checkpoint}: does not fit {artifact.config}: {reason}") from error
    if isinstance(model, ImageModel):
        shape = typed(record, "image", dict, artifact.config)
        size, channels = (typed(shape, n, int, artifact.config) for n in ("size", "channels"))
        save_image_model(model, size, channels, path)
    else:
        model.save_gguf(path, Tokenizer.from_file(artifact.tokenizer), f"pyggml {arch}")
    return path


def save_image_model(model: Any, size: int, channels: int, path: Path, dtype: str = "f32") -> None:
    """Write a classifier with the size of its images.

    Args:
        model: the classifier.
        size: height and width of its images.
        channels: 1 for grey, 3 for colour.
        path: the file.
        dtype: type of the matrices.
    """
    sizes = {"pyggml.image.size": i64(size), "pyggml.image.channels": i64(channels)}
    name = f"pyggml {model.arch} for {model.config.classes} classes"
    write_gguf(path, {**model.to_gguf_metadata(name=name), **sizes}, model.to_gguf_tensors())
