# SPDX-License-Identifier: MIT
"""`pyggml report`: a run on one page."""

from __future__ import annotations

from typing import Annotated

import typer

from .errors import friendly_errors, naming
from .terminal import say

__all__ = ["report"]


def report(
    artifact_dir: Annotated[
        str, typer.Option("--artifact-dir", help="The folder that train-llm left.")
    ],
    output: Annotated[
        str | None,
        typer.Option("--output", help="The page.", show_default="report.html in the folder"),
    ] = None,
) -> None:
    """Write a run's configuration, curves, samples and results as one HTML page.

    The page needs no other file and no network. train-llm writes it at its end; this one serves
    while a run is going on, and for runs that were killed.
    """
    with friendly_errors():
        from ..recipes import write_report

        with (
            naming("--artifact-dir", artifact_dir) if output is None else naming("--output", output)
        ):
            written = write_report(artifact_dir, output)
        say(written)
