# SPDX-License-Identifier: MIT
"""`pyggml train-image`: from images to a model that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import friendly_errors

if TYPE_CHECKING:
    from ..recipes import ImageResults

__all__ = ["train_image"]

_DATA, _RUN, _FILES = "Data", "Training", "Results"
# Larger tables do not fit on a line; the picture and results.json have them.
_MOST_SHOWN = 20


def _option(name: str, text: str, panel: str, default: str | None = None) -> Any:
    """An option that is None when it is not given; `default` is what the help shows."""
    return typer.Option(
        f"--{name}", help=text, rich_help_panel=panel, show_default=default or False
    )


def train_image(
    data: Annotated[
        str | None,
        _option("data", "digits, a folder of classes' folders, or one of MNIST's files.", _DATA),
    ] = None,
    size: Annotated[
        int | None, _option("size", "Height and width.", _DATA, "as arrays are; 64 for files")
    ] = None,
    channels: Annotated[
        int | None, _option("channels", "1 grey, 3 colour.", _DATA, "3 for files")
    ] = None,
    augment: Annotated[
        str | None, _option("augment", "none, shift or photo.", _DATA, "photo for files")
    ] = None,
    mixup: Annotated[
        float | None, _option("mixup", "Mix images in pairs, such as 0.2.", _DATA, "0")
    ] = None,
    balance: Annotated[
        bool | None,
        typer.Option(
            "--balance/--no-balance",
            help="Draw each class as often.",
            rich_help_panel=_DATA,
            show_default="off",
        ),
    ] = None,
    val_fraction: Annotated[
        float | None, _option("val-fraction", "Share of each class held back.", _DATA, "0.2")
    ] = None,
    model: Annotated[str | None, _option("model", "mlp, cnn or resnet.", _RUN, "cnn")] = None,
    epochs: Annotated[int | None, _option("epochs", "Passes over the images.", _RUN, "15")] = None,
    batch_size: Annotated[
        int | None, _option("batch-size", "Images computed together.", _RUN, "32")
    ] = None,
    optimizer: Annotated[
        str | None, _option("optimizer", "sgd, adamw, lion, muon, …", _RUN, "adamw")
    ] = None,
    lr: Annotated[float | None, _option("lr", "Highest learning rate.", _RUN, "0.003")] = None,
    weight_decay: Annotated[
        float | None, _option("weight-decay", "Of the matrices.", _RUN, "0.05")
    ] = None,
    precision: Annotated[str | None, _option("precision", "f32, bf16 or f16.", _RUN, "f32")] = None,
    seed: Annotated[
        int | None, _option("seed", "Of weights, parts, order and augmentation.", _RUN, "0")
    ] = None,
    threads: Annotated[int | None, _option("threads", "CPU threads.", _RUN, "all cores")] = None,
    device: Annotated[
        str | None, _option("device", "auto, cpu, cuda:0, metal; see pyggml devices.", _RUN, "auto")
    ] = None,
    artifact_dir: Annotated[
        str | None, _option("artifact-dir", "Folder for all results.", _FILES, "artifacts/image")
    ] = None,
    export: Annotated[
        str | None,
        _option("export", "Whose weights model.gguf gets: best or last epoch's.", _FILES, "last"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the run in --artifact-dir.", rich_help_panel=_FILES
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace the run in --artifact-dir.", rich_help_panel=_FILES
        ),
    ] = False,
) -> None:
    """Train a classifier of images.

    The classes are the names of the folders in --data. Images of any sizes, modes and formats are
    brought to one size; what cannot be read is left out, counted and named in skipped.txt. The
    folder of results holds model.gguf (which `pyggml infer` needs, and nothing else), results.json
    with the accuracy of each class, confusion.png, loss.png, report.html and a checkpoint.
    """
    given = {
        name: value
        for name, value in locals().items()
        if value is not None and name not in ("resume", "overwrite")
    }
    with friendly_errors():
        _run(given, resume, overwrite)


def _run(given: dict[str, Any], resume: bool, overwrite: bool) -> None:
    """Prepare, describe, train, and say how well it went and what was written."""
    from ..recipes import ImageConfig, ImageRun
    from ..train import ConfigError, TrainingInterrupted
    from .live import ImageReporter

    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other: give one of them")
    reporter = ImageReporter()
    if resume:
        folder = given.pop("artifact_dir", ImageConfig.artifact_dir)
        run = ImageRun.resume(folder, given, callbacks=[reporter], note=reporter.note)
    elif "data" not in given:
        raise ConfigError(
            "--data must be given: digits, or a folder that has one folder of images for each class"
        )
    else:
        run = ImageRun.prepare(
            ImageConfig(**given), overwrite=overwrite, callbacks=[reporter], note=reporter.note
        )
    reporter.describe(run.describe())
    try:
        run.train()
    except TrainingInterrupted:
        if run.exported is not None:
            reporter.note(f"model.gguf has {run.exported}")
        reporter.written(run.artifact.files())
        raise
    reporter.note(f"model.gguf has {run.exported}")
    for line in describe_results(run.results()):
        reporter.note(line)
    if run.data.skipped:
        count = len(run.data.skipped)
        reporter.note(f"{count} file(s) could not be read; {run.artifact.skipped} names them")
    reporter.written(run.artifact.files())


def describe_results(results: ImageResults) -> list[str]:
    """Accuracy, that of each class, and the confusion matrix, as lines."""
    counts = results.confusion.sum(axis=1)
    lines = [f"held back: {results.accuracy:.2%} of {int(counts.sum()):,} images right"]
    width = max(5, *(len(name) for name in results.classes))
    for (name, share), count in zip(results.of_classes.items(), counts, strict=True):
        said = "none held back" if share is None else f"{share:7.2%} of {count:,}"
        lines.append(f"  {name:<{width}}  {said}")
    if len(results.classes) > _MOST_SHOWN:
        return [*lines, "confusion matrix: see confusion.png and results.json"]
    cell = max(4, len(str(int(results.confusion.max()))) + 1)
    heads = "".join(f"{name[: cell - 1]:>{cell}}" for name in results.classes)
    lines.append("confusion matrix, true classes down, predicted ones across:")
    lines.append(" " * (width + 2) + heads)
    for name, row in zip(results.classes, results.confusion, strict=True):
        cells = "".join(f"{n or '.':>{cell}}" for n in row.tolist())
        lines.append(f"  {name:<{width}}{cells}")
    return lines
