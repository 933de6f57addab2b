# SPDX-License-Identifier: MIT
"""The commands, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

from .devices import devices
from .errors import friendly_errors
from .evaluate import evaluate
from .generate import generate
from .lr_find import lr_find
from .page import report
from .train_llm import BareCheckpointing, train_llm

__all__ = ["app"]

app = typer.Typer(
    name="pyggml",
    help="Train language models with ggml, and run them anywhere that llama.cpp does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train-llm", cls=BareCheckpointing)(train_llm)
app.command("generate")(generate)
app.command("eval")(evaluate)
app.command("report")(report)
app.command("lr-find")(lr_find)
app.command("devices")(devices)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    with friendly_errors():
        from .. import __version__
        from .._lib import ggml_version, patch_count

        print(f"pyggml {__version__} (ggml {ggml_version()}, {patch_count()} patches)")
    raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the versions of pyggml and ggml and the number of patches, and exit.",
        ),
    ] = False,
) -> None:
    """Options that come before a command."""
