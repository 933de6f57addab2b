# SPDX-License-Identifier: MIT
"""A whole run: from images to a folder with a trained classifier."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, checks
from ..backend.device import alone
from ..data import Loader
from ..errors import FormatError, printable
from ..io import atomic_write
from ..models import CNN, MLP, CNNConfig, MLPConfig, ResNet, ResNetConfig
from ..nn.weight_check import WeightCheck
from ..tensors.random import seed as set_seed
from ..train.arguments import check_callbacks
from ..train.callbacks import Callback, MetricsWriter
from ..train.metrics import confusion_matrix
from ..train.step import TrainStep
from ..train.trainer import Trainer
from .artifact import ArtifactDir
from .config_file import save_config
from .export import save_image_model
from .image_config import ImageConfig
from .image_data import ImageData, read_images
from .optimizer import make_optimizer
from .report import ClassResults, WorstExamples, plot_matrix, system_info
from .run import Note, Run, log_writers, silent

__all__ = ["ImageArtifact", "ClassResults", "ImageRun"]

_WIDTHS = (32, 64, 128)


class ImageArtifact(ArtifactDir):
    """The folder of a training on images; see `ArtifactDir`."""

    def __init__(self, path: str | Path):
        super().__init__(path)
        self.results = self.path / "results.json"
        self.confusion = self.path / "confusion.png"
        self.skipped = self.path / "skipped.txt"

    def places(self) -> list[Path]:
        """Return all that a run may write into the folder, in the order of its making."""
        return [*super().places(), self.results, self.confusion, self.skipped]


class ImageRun(Run):
    """A training on images: data, model, trainer and folder of results.

    Args:
        config: the run's configuration.
        artifact: the folder.
        callbacks: told of the trainer's events.
        note: called with lines of progress.

    Attributes:
        config: the run's configuration.
        artifact: its folder.
        data: the images.
        model: the classifier.
        trainer: trains it.
        exported: the weights that `model.gguf` has, or None before they are written.

    Example:
        >>> options = {"data": "digits", "model": "mlp", "steps": 2, "artifact_dir": "run"}
        >>> run = ImageRun.prepare(ImageConfig(**options))  # doctest: +SKIP
        >>> run.train().step  # doctest: +SKIP
        2
    """

    CONFIG = ImageConfig
    ARTIFACT = ImageArtifact
    TASK = "image"

    def __init__(
        self,
        config: ImageConfig,
        artifact: ImageArtifact,
        callbacks: Iterable[Callback] = (),
        note: Note = silent,
    ):
        checks.instance("ImageRun", "config", config, ImageConfig, "give ImageConfig(**options)")
        self.config: ImageConfig = config
        self.artifact: ImageArtifact = checks.instance(
            "ImageRun", "artifact", artifact, ImageArtifact
        )
        config.machine.choose()
        self.data: ImageData = read_images(config, note)
        set_seed(config.trainer.seed)
        self.model = _build(config, self.data)
        batch = min(config.trainer.value("batch_size"), len(self.data.train))
        loader = Loader(self.data.train, batch, seed=config.trainer.seed)
        # By default an evaluation and a checkpoint follow each epoch.
        epoch = max(1, len(loader) // config.trainer.accumulate)
        given = config.trainer
        options = given.replace(
            eval_every=epoch if given.eval_every is None else given.eval_every,
            save_every=epoch if given.save_every is None else given.save_every,
            batch_size=batch,
        )
        self.trainer = Trainer(
            self.model,
            loader,
            self._evaluation(batch),
            make_optimizer(config.optimizer, self.model, config["lr"]),
            options=options,
            checkpoint_dir=artifact.checkpoints,
            callbacks=[
                MetricsWriter(artifact.metrics),
                *log_writers(config, artifact),
                *check_callbacks("ImageRun", callbacks),
            ],
            data={"images": len(self.data.train), "classes": self.data.classes},
            task="classification",
        )
        self.memory = self.trainer.plan()
        self.memory.check()

    @classmethod
    def make(
        cls,
        config: ImageConfig,
        artifact: ArtifactDir,
        callbacks: Iterable[Callback] = (),
        note: Note = silent,
        resumed: bool = False,
    ) -> ImageRun:
        """Read the images and make model and trainer."""
        return cls(config, artifact, callbacks, note)  # type: ignore[arg-type]

    def check_data(self, record: dict[str, Any]) -> None:
        """Raise `FormatError` unless the images are those that the run began with."""
        if self._images() != record.get("images"):
            raise FormatError(
                f"{self.artifact.config}: images must be those of the run, {record.get('images')}; "
                f"got {self._images()}: they have changed since; start anew with `overwrite`"
            )

    def _evaluation(self, batch: int) -> Loader:
        """Return the validation images, each once, in batches of one shape."""
        return Loader(self.data.validation, batch, shuffle=False, pad_last=True)

    def _images(self) -> dict[str, Any]:
        """Return what tells these images from others."""
        counts = np.bincount(self.data.train.source.labels, minlength=len(self.data.classes))
        return {
            "classes": dict(zip(self.data.classes, counts.tolist(), strict=True)),
            "validation": len(self.data.validation),
            "mean": list(self.data.mean),
        }

    def record(self) -> dict[str, Any]:
        """Return the content of `config.json`."""
        return {
            "pyggml": __version__,
            "task": self.TASK,
            "arch": self.config.model.model,
            "model": self.model.config.to_dict(),
            "parameters": self.model.num_parameters(),
            "total_steps": self.trainer.total_steps,
            "images": self._images(),
            "image": {"size": self.data.size, "channels": self.data.channels},
            "skipped": len(self.data.skipped),
            "planned_bytes": self.memory.total,
            "system": system_info(),
            "train": self.config.to_dict(),
            "options": self.options_in_force(),
        }

    def write_inputs(self) -> None:
        """Write the options, and name every file that could not be read, with the cause."""
        save_config(self.config, self.artifact.options)
        self._name_skipped()

    def _name_skipped(self) -> None:
        if self.data.skipped:
            with atomic_write(self.artifact.skipped, "w") as file:
                file.writelines(
                    printable(f"{path}: {cause}") + "\n" for path, cause in self.data.skipped
                )

    def describe(self) -> list[tuple[str, str]]:
        """Return what is about to be trained, as (name, text)."""
        data = self.data
        rows = [
            (
                "images",
                f"{len(data.train):,} for training, {len(data.validation):,} for validation",
            ),
            ("classes", f"{len(data.classes)}: {', '.join(data.classes[:12])}"),
            ("size", f"{data.size} x {data.size}, {data.channels} channel(s)"),
            ("model", f"{self.config.model.model}, {self.model.num_parameters():,} parameters"),
            (
                "training",
                f"{self.config.trainer.epochs} epochs, {self.trainer.total_steps:,} steps",
            ),
            ("device", self.model.device.name),
        ]
        if data.skipped:
            named = f"{len(data.skipped)} that cannot be read, named in {self.artifact.skipped}"
            rows.insert(1, ("skipped", named))
        return rows

    def results(self) -> ClassResults:
        """Return the predictions of the exported weights for the validation images."""
        with self.exported_weights():
            return self._results()

    def _results(self) -> ClassResults:
        """Return the predictions of the model as it is."""
        step, weights = TrainStep(self.model, None), WeightCheck("evaluate", self.model)
        predicted, labels = [], []
        worst = WorstExamples(self.data.classes)
        for batch in self._evaluation(min(64, len(self.data.validation))).once():
            rows = slice(0, batch.rows)  # those after them fill the batch up
            with alone(), weights.unchanged():
                logits = step.logits(batch)[rows]
            worst.add(batch.x[rows], logits, batch.y[rows])
            predicted.append(logits.argmax(axis=-1))
            labels.append(batch.y[rows])
        table = confusion_matrix(
            np.concatenate(predicted), np.concatenate(labels), len(self.data.classes)
        )
        return ClassResults(self.data.classes, table, worst.to_list())

    def save_model(self, path: Path, dtype: str = "f32") -> None:
        """Write the model as it is, with the size of its images.

        Args:
            path: the file.
            dtype: type of the matrices.
        """
        save_image_model(self.model, self.data.size, self.data.channels, path, dtype)

    def write_results(self) -> None:
        """Write model, results, pictures and report.

        The weights are those of the best evaluation or of the last step, as `export` chooses.

        Raises:
            FormatError: the best checkpoint is damaged.
            OSError: a file cannot be written; an earlier one is then whole.
        """
        with self.artifact.naming():
            with self.exported_weights() as exported:
                found = self._results()
                self.save_model(self.artifact.model)
            self.exported = exported
            self.artifact.write_config({**self.record(), "exported": asdict(exported)})
            with atomic_write(self.artifact.results, "w") as file:
                json.dump(found.to_dict(), file, indent=1)
            title = f"{self.config.model.model}, {self.model.num_parameters():,} parameters"
            if self.draw_report(title, images=True):
                title = f"{found.accuracy:.1%} of {int(found.confusion.sum())} right"
                plot_matrix(
                    self.artifact.confusion, found.confusion, self.data.classes, title=title
                )
            self._name_skipped()


def _build(config: ImageConfig, data: ImageData) -> Any:
    """Return the model for these images, which normalises them itself."""
    shared: dict[str, Any] = {
        "classes": len(data.classes),
        "labels": tuple(data.classes),
        "mean": data.mean,
        "std": data.std,
    }
    if config.model.model == "mlp":
        pixels = data.size**2
        # The same mean for each pixel of a channel; the channels lie one after the other.
        for name in ("mean", "std"):
            shared[name] = tuple(np.repeat(shared[name], pixels).tolist())
        inputs = data.channels * pixels
        return MLP(MLPConfig(inputs=inputs, hidden=(256, 128), dropout=0.2, **shared))
    shared["channels"] = data.channels
    if config.model.model == "resnet":
        return ResNet(ResNetConfig.preset("resnet-8", **shared))
    stages = max(1, min(len(_WIDTHS), int(np.log2(data.size)) - 1))
    sizes = {"size": data.size, "widths": _WIDTHS[:stages], "hidden": 128, "dropout": 0.2}
    return CNN(CNNConfig.from_dict({**sizes, **shared}))
