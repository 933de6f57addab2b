# SPDX-License-Identifier: MIT
"""`pyggml report`: one run, or two side by side, on one page."""

from __future__ import annotations

from typing import Annotated

import typer

from .errors import friendly_errors, naming
from .terminal import say

__all__ = ["report"]


def report(
    run: Annotated[str, typer.Argument(help="The folder that a training left.", metavar="RUN")],
    other: Annotated[
        str | None,
        typer.Argument(help="The folder of a second run, to be shown beside.", metavar="OTHER"),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", help="The page.", show_default="report.html or comparison.html in RUN"
        ),
    ] = None,
) -> None:
    """Write a run's options, curves, samples and results as one HTML page; of two, side by side.

    The page needs no other file and no network. Trainings write it at their end; this command
    serves while a run is going on, for runs that were killed, and to compare two runs.
    """
    with friendly_errors():
        from ..recipes import write_comparison, write_report

        with naming("RUN", run) if output is None else naming("--output", output):
            if other is None:
                written = write_report(run, output)
            else:
                written = write_comparison(run, other, output)
        say(written)
