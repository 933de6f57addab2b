# SPDX-License-Identifier: MIT
"""`pyggml infer`: what a model says of an image."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from .errors import EXIT_FAILED, friendly_errors

__all__ = ["infer"]


def infer(
    model: Annotated[
        str, typer.Option("--model", help="A GGUF file, or the folder that train-image left.")
    ],
    image: Annotated[
        list[str],
        typer.Option("--image", help="Image file, or a folder of them; may be repeated."),
    ],
    size: Annotated[
        int | None,
        typer.Option("--size", help="Height and width to bring images to.", show_default="model's"),
    ] = None,
    top: Annotated[int, typer.Option("--top", help="Classes to name, the likeliest first.")] = 5,
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads.", show_default="all cores")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="See pyggml devices.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Probabilities of the classes of images.

    A folder stands for all images in it and below. An image may be of any size and mode: it is
    read, turned, resized and cut as in training. An image that cannot be read is named on stderr;
    the others are answered, and the exit code is 1.
    """
    with friendly_errors():
        from ..backend.device import set_default_device, set_threads
        from ..recipes import ImageClassifier
        from ..train import ConfigError

        if top < 1:
            raise ConfigError(f"--top must be at least 1; got {top}: give 1 or more")
        if size is not None and not 4 <= size <= 1024:
            raise ConfigError(f"--size must be from 4 to 1024; got {size}")
        set_default_device(device)
        if threads is not None:
            try:
                set_threads(threads)
            except ValueError as error:
                raise ConfigError(f"--threads: {error}") from error
        classifier = ImageClassifier.load(model, size)
        answers = {}
        paths, failed = _paths(image)
        for path in paths:
            try:
                answers[path] = classifier(path)
            except ValueError as error:
                print(f"error: {error}", file=sys.stderr)
                failed = True
        if as_json:
            print(json.dumps(answers))
        else:
            for path, found in answers.items():
                print(path)
                for name, share in list(found.items())[:top]:
                    print(f"  {share:7.2%}  {name}")
        if failed:
            raise typer.Exit(EXIT_FAILED)


def _paths(given: list[str]) -> tuple[list[str], bool]:
    """The files that are meant, and whether something of a folder could not be looked into."""
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
            print(f"error: {path}: {cause}", file=sys.stderr)
            failed = True
    return paths, failed
