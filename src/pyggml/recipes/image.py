# SPDX-License-Identifier: MIT
"""A training on images from options to a file that needs nothing else to name an image."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..backend.device import set_default_device, set_threads
from ..data import Loader
from ..data.images.files import one_line
from ..errors import FormatError
from ..io import atomic_write
from ..models import CNN, MLP, CNNConfig, MLPConfig, ResNet, ResNetConfig
from ..tensors.random import seed as set_seed
from ..train.callbacks import Callback, MetricsWriter
from ..train.config import ConfigError
from ..train.interrupt import TrainingInterrupted
from ..train.metrics import confusion_matrix, read_metrics
from ..train.named import make_optimizer
from ..train.result import FitResult
from ..train.step import TrainStep
from ..train.trainer import Trainer
from .artifact import ArtifactDir
from .export import Exported, exported_weights, save_image_model
from .image_config import ImageConfig
from .image_data import ImageData, read_images
from .report import plot_loss, plot_matrix, system_info, write_report

__all__ = ["ImageArtifact", "ImageResults", "ImageRun"]

_WIDTHS = (32, 64, 128)


class ImageArtifact(ArtifactDir):
    """The folder of a training on images; see `ArtifactDir`."""

    def __init__(self, path: str | Path):
        super().__init__(path)
        self.results = self.path / "results.json"
        self.confusion = self.path / "confusion.png"
        self.skipped = self.path / "skipped.txt"

    def files(self) -> list[Path]:
        """What of the run there is, in the order of its making."""
        own = (self.results, self.confusion, self.skipped)
        return [*super().files(), *(path for path in own if path.exists())]


@dataclass(frozen=True)
class ImageResults:
    """How well the images held back were named.

    Args:
        classes: names.
        confusion: images by true class (rows) and by predicted class.
    """

    classes: list[str]
    confusion: np.ndarray

    @property
    def accuracy(self) -> float:
        """Share of the images that were named right."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def of_classes(self) -> dict[str, float | None]:
        """The same for each class; None where none was held back."""
        counts = self.confusion.sum(axis=1)
        hits = np.diag(self.confusion)
        return {
            name: float(hit / count) if count else None
            for name, hit, count in zip(self.classes, hits, counts, strict=True)
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "accuracy": self.accuracy,
            "images": int(self.confusion.sum()),
            "classes": self.of_classes,
            "confusion": self.confusion.tolist(),
        }


class ImageRun:
    """A training on images: data, model, trainer and folder of results.

    Args:
        config: what to do.
        artifact: the folder.
        callbacks: what looks on.
        note: told what is going on.

    Attributes:
        config: what the run was told.
        artifact: its folder.
        data: the images.
        model: what is trained.
        trainer: trains it.
        exported: whose weights `model.gguf` has, or None before `export`.

    Example:
        >>> run = ImageRun.prepare(ImageConfig("digits", artifact_dir="run"))
        >>> run.train()
        >>> run.results().accuracy
        0.98
    """

    def __init__(
        self,
        config: ImageConfig,
        artifact: ImageArtifact,
        callbacks: Iterable[Callback] = (),
        note: Callable[[str], None] = lambda text: None,
    ):
        for name, given, kind in (
            ("config", config, ImageConfig),
            ("artifact", artifact, ImageArtifact),
        ):
            if not isinstance(given, kind):
                raise TypeError(
                    f"ImageRun: {name} must be an {kind.__name__}; got {type(given).__name__}"
                )
        self.config = config
        self.artifact = artifact
        self.exported: Exported | None = None
        set_default_device(config.device)
        if config.threads is not None:
            set_threads(config.threads)
        self.data: ImageData = read_images(config, note)
        set_seed(config.seed)
        self.model = _build(config, self.data)
        batch = min(config.batch_size, len(self.data.train))
        loader = Loader(self.data.train, batch, seed=config.seed)
        settings = config.train_config(len(loader))
        self.trainer = Trainer(
            self.model,
            loader,
            self._evaluation(batch),
            make_optimizer(settings, self.model),
            options=settings.trainer_options().replace(batch_size=batch),
            checkpoint_dir=artifact.checkpoints,
            callbacks=[MetricsWriter(artifact.metrics), *callbacks],
            data={"images": len(self.data.train), "classes": self.data.classes},
        )

    @classmethod
    def prepare(
        cls,
        config: ImageConfig,
        overwrite: bool = False,
        callbacks: Iterable[Callback] = (),
        note: Callable[[str], None] = lambda text: None,
    ) -> ImageRun:
        """Set up a new run; nothing is written before all of it is known to work.

        Args:
            config: what to do.
            overwrite: whether a run that is in the folder may be replaced.
            callbacks: what looks on.
            note: told what is going on.

        Raises:
            ConfigError: an option cannot be used, or the folder cannot.
            FormatError: the images cannot be read, or are of one class.
        """
        artifact = ImageArtifact(config.artifact_dir)
        artifact.check_new(overwrite)
        run = cls(config, artifact, callbacks, note)
        run.trainer.plan().check()
        artifact.create(run._record(), overwrite)
        run._name_skipped()
        return run

    @classmethod
    def resume(
        cls,
        artifact_dir: str,
        changes: dict[str, Any] | None = None,
        callbacks: Iterable[Callback] = (),
        note: Callable[[str], None] = lambda text: None,
    ) -> ImageRun:
        """Set up the rest of a run that was interrupted, or more epochs of a finished one.

        Args:
            artifact_dir: the run's folder.
            changes: `epochs`, `threads`, `device` and `export` may differ from the run's.
            callbacks: what looks on.
            note: told what is going on.

        Raises:
            ConfigError: there is no such run, or an option cannot be changed.
            FormatError: the images have changed, or a file of the run is damaged.
        """
        artifact = ImageArtifact(artifact_dir)
        artifact.check_resume()
        record = artifact.read_config()
        if record.get("task") != "image":
            raise ConfigError(
                f"--resume: {artifact.path} holds a run of train-llm: continue it with that"
            )
        before = ImageConfig.from_dict({**record["train"], "artifact_dir": str(artifact.path)})
        asked = {name: value for name, value in (changes or {}).items() if name != "artifact_dir"}
        for name, value in asked.items():
            if name not in ("epochs", "threads", "device", "export") and value != getattr(
                before, name
            ):
                raise ConfigError(
                    f"--{name.replace('_', '-')} must be that of the run, "
                    f"{getattr(before, name)}; got {value}: leave it out, or start anew"
                )
        config = ImageConfig.from_dict({**before.to_dict(), **asked})
        run = cls(config, artifact, callbacks, note)
        if run._images() != record.get("images"):
            raise FormatError(
                f"{artifact.config}: images must be those of the run, {record.get('images')}; got"
                f" {run._images()}: they have changed since; start anew with --overwrite"
            )
        note(f"continuing after step {run.trainer.resume()}")
        artifact.write_config(run._record())
        return run

    def _evaluation(self, batch: int) -> Loader:
        """All images held back, each once, in batches of one shape."""
        return Loader(self.data.held_back, batch, shuffle=False, pad_last=True)

    def _images(self) -> dict[str, Any]:
        """What the images are, for comparison."""
        counts = np.bincount(self.data.train.source.labels, minlength=len(self.data.classes))
        return {
            "classes": dict(zip(self.data.classes, counts.tolist(), strict=True)),
            "held_back": len(self.data.held_back),
            "mean": list(self.data.mean),
        }

    def _record(self) -> dict[str, Any]:
        """What `config.json` says."""
        return {
            "pyggml": __version__,
            "task": "image",
            "arch": self.config.model,
            "model": self.model.config.to_dict(),
            "parameters": self.model.num_parameters(),
            "total_steps": self.trainer.total_steps,
            "images": self._images(),
            "image": {"size": self.data.size, "channels": self.data.channels},
            "skipped": len(self.data.skipped),
            "system": system_info(),
            "train": self.config.to_dict(),
        }

    def _name_skipped(self) -> None:
        """Name every file that could not be read, with the cause."""
        if self.data.skipped:
            with atomic_write(self.artifact.skipped, "w") as file:
                file.writelines(
                    one_line(f"{path}: {cause}") + "\n" for path, cause in self.data.skipped
                )

    def describe(self) -> list[tuple[str, str]]:
        """What is about to be trained, as (name, text)."""
        data = self.data
        rows = [
            ("images", f"{len(data.train):,} to train on, {len(data.held_back):,} held back"),
            ("classes", f"{len(data.classes)}: {', '.join(data.classes[:12])}"),
            ("size", f"{data.size} x {data.size}, {data.channels} channel(s)"),
            ("model", f"{self.config.model}, {self.model.num_parameters():,} parameters"),
            ("training", f"{self.config.epochs} epochs, {self.trainer.total_steps:,} steps"),
            ("device", self.model.device.name),
        ]
        if data.skipped:
            named = f"{len(data.skipped)} that cannot be read, named in {self.artifact.skipped}"
            rows.insert(1, ("skipped", named))
        return rows

    def train(self) -> FitResult:
        """Train to the end; model, results and pictures are written, on Ctrl-C as well.

        Raises:
            TrainingInterrupted: a signal asked for the end.
            TrainingError: a loss or gradient is not finite.
        """
        with self.artifact.lock():
            try:
                return self.trainer.fit()
            except TrainingInterrupted:
                raise
            finally:
                if self.trainer.step:
                    self.export()

    def results(self) -> ImageResults:
        """What the model that is exported says of the images held back."""
        with exported_weights(self.trainer, self.config.export):
            return self._results()

    def _results(self) -> ImageResults:
        """What the model says of them as it is."""
        step = TrainStep(self.model, None)
        predicted, labels = [], []
        for x, y in self._evaluation(min(64, len(self.data.held_back))).once():
            predicted.append(step.logits((x, y)).argmax(axis=-1))
            labels.append(y)
        table = confusion_matrix(
            np.concatenate(predicted), np.concatenate(labels), len(self.data.classes)
        )
        return ImageResults(self.data.classes, table)

    def export(self) -> None:
        """Write model, results, pictures and report.

        The weights are those of the best epoch or of the last, as `config.export` says.

        Raises:
            FormatError: the best checkpoint is damaged.
            OSError: a file cannot be written; an earlier one is then whole.
        """
        with self.artifact.naming():
            with exported_weights(self.trainer, self.config.export) as exported:
                found, data = self._results(), self.data
                save_image_model(self.model, data.size, data.channels, self.artifact.model)
            self.exported = exported
            self.artifact.write_config({**self._record(), "exported": asdict(exported)})
            with atomic_write(self.artifact.results, "w") as file:
                json.dump(found.to_dict(), file, indent=1)
            title = f"{self.config.model}, {self.model.num_parameters():,} parameters"
            drawn = plot_loss(
                read_metrics(self.artifact.metrics), self.artifact.plot, title, images=True
            )
            if drawn:
                title = f"{found.accuracy:.1%} of {int(found.confusion.sum())} right"
                plot_matrix(
                    self.artifact.confusion, found.confusion, self.data.classes, title=title
                )
            self._name_skipped()
            write_report(self.artifact.path)


def _build(config: ImageConfig, data: ImageData) -> Any:
    """The model for these images, which normalises them itself."""
    shared: dict[str, Any] = {
        "classes": len(data.classes),
        "labels": tuple(data.classes),
        "mean": data.mean,
        "std": data.std,
    }
    if config.model == "mlp":
        pixels = data.size**2
        # The same mean for each pixel of a channel; the channels lie one after the other.
        for name in ("mean", "std"):
            shared[name] = tuple(np.repeat(shared[name], pixels).tolist())
        inputs = data.channels * pixels
        return MLP(MLPConfig(inputs=inputs, hidden=(256, 128), dropout=0.2, **shared))
    shared["channels"] = data.channels
    if config.model == "resnet":
        return ResNet(ResNetConfig.preset("resnet-8", **shared))
    stages = max(1, min(len(_WIDTHS), int(np.log2(data.size)) - 1))
    sizes = {"size": data.size, "widths": _WIDTHS[:stages], "hidden": 128, "dropout": 0.2}
    return CNN(CNNConfig.from_dict({**sizes, **shared}))
