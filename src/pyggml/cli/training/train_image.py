# SPDX-License-Identifier: MIT
"""`pyggml train-image`: from images to a classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...recipes import ImageConfig
from ..errors import friendly_errors
from ..options import ConfigFile, Overwrite, Resume, with_options

if TYPE_CHECKING:
    from ...recipes import ClassResults

__all__ = ["train_image"]

# Larger tables do not fit on a line; the picture and results.json have them.
_MOST_SHOWN = 20


@with_options(ImageConfig)
def train_image(
    given: dict[str, Any],
    config: ConfigFile = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a classifier of images.

    The classes are the names of the folders in --data. Images of any sizes, modes and formats are
    brought to one size; what cannot be read is left out, counted and named in skipped.txt. The
    folder of results holds model.gguf (which `pyggml infer` needs, and nothing else), results.json
    with the accuracy of each class, config.toml (for --config), confusion.png, loss.png,
    report.html and a checkpoint.
    """
    with friendly_errors(trains=True):
        from ...recipes import read_config
        from ...recipes import train_image as train
        from .live import ImageReporter, trained

        if config is not None:
            given = ImageConfig.merged(read_config(config, ImageConfig), given)
        reporter = ImageReporter()
        with trained(train, reporter, resume=resume, overwrite=overwrite, **given) as run:
            reporter.note(f"model.gguf has {run.exported}")
            for line in describe_results(run.results()):
                reporter.note(line)
            if run.data.skipped:
                count = len(run.data.skipped)
                reporter.note(
                    f"{count} file(s) could not be read; {run.artifact.skipped} names them"
                )


def describe_results(results: ClassResults) -> list[str]:
    """Return the accuracy, the accuracy of each class and the confusion matrix as lines.

    Args:
        results: of the validation images.
    """
    counts = results.confusion.sum(axis=1)
    lines = [f"validation: {results.accuracy:.2%} of {int(counts.sum()):,} images right"]
    width = max(5, *(len(name) for name in results.classes))
    for (name, share), count in zip(results.of_classes.items(), counts, strict=True):
        told = "no validation image" if share is None else f"{share:7.2%} of {count:,}"
        lines.append(f"  {name:<{width}}  {told}")
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
