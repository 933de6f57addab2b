# SPDX-License-Identifier: MIT
"""`pyggml infer`: the class of an image."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import reason
from ..options import Options, option
from ..recipes import Configuration
from ..recipes.options import MachineOptions
from .errors import EXIT_FAILED, friendly_errors
from .options import with_options
from .terminal import say

__all__ = ["infer"]


@dataclass(frozen=True, kw_only=True)
class ImageOptions(Options):
    """The size of images, and the number of classes that are shown."""

    size: int | None = option(
        None, "Height and width to bring images to.", least=4, most=1024, chosen="the model's"
    )
    top: int = option(5, "Classes to name, the likeliest first.", least=1)


class InferConfig(Configuration):
    """The options of `pyggml infer`."""

    images: ImageOptions
    machine: MachineOptions


@with_options(InferConfig)
def infer(
    given: dict[str, Any],
    model: Annotated[
        str, typer.Option("--model", help="A GGUF file, or the folder that train-image left.")
    ],
    image: Annotated[
        list[str],
        typer.Option("--image", help="Image file, or a folder of them; may be repeated."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the probabilities of the classes of images.

    A folder stands for all images in it and below. An image may be of any size and mode: it is
    read, turned, resized and cut as in training. An image that cannot be read is named on stderr;
    the others are answered, and the exit code is 1.
    """
    with friendly_errors():
        from ..recipes import ImageClassifier

        config = InferConfig(**given)
        config.machine.choose()
        classifier = ImageClassifier.load(model, config.images.size)
        answers = {}
        paths, failed = _paths(image)
        for path in paths:
            try:
                answers[path] = classifier(path)
            except ValueError as error:
                say(f"error: --image {reason(error)}", error=True)
                failed = True
        if as_json:
            print(json.dumps(answers))
        else:
            for path, found in answers.items():
                say(path)
                for name, share in list(found.items())[: config.images.top]:
                    say(f"  {share:7.2%}  {name}")
        if failed:
            raise typer.Exit(EXIT_FAILED)


def _paths(given: list[str]) -> tuple[list[str], bool]:
    """Return the files that are meant, and whether a folder could not be read."""
    from ..data.images.files import files_below
    from ..errors import FormatError

    paths, failed = list[str](), False
    for name in given:
        if not Path(name).is_dir():
            paths.append(name)
            continue
        files, unlisted = files_below(Path(name))
        if not files:
            raise FormatError(f"--image: {name}: the folder must hold an image; got none")
        paths += map(str, files)
        for path, cause in unlisted:
            say(f"error: --image {path}: {cause}", error=True)
            failed = True
    return paths, failed
