# SPDX-License-Identifier: MIT
"""The application with all commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from .chat import chat
from .check import check
from .convert import convert
from .demo import demo
from .devices import devices
from .errors import friendly_errors
from .evaluate import evaluate
from .export import export
from .generate import generate
from .infer import infer
from .inspect import inspect
from .launch import launch
from .options import Commands, OptionCommand
from .quantize import imatrix, quantize
from .report import report
from .training.finetune import finetune
from .training.lr_find import lr_find
from .training.train_image import train_image
from .training.train_llm import train_llm

__all__ = ["app"]

app = typer.Typer(
    name="pyggml",
    cls=Commands,
    help="Train neural networks with ggml; llama.cpp runs its language models as they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "train-llm": train_llm,
    "finetune": finetune,
    "train-image": train_image,
    "generate": generate,
    "chat": chat,
    "infer": infer,
    "eval": evaluate,
    "export": export,
    "convert": convert,
    "check": check,
    "inspect": inspect,
    "quantize": quantize,
    "imatrix": imatrix,
    "report": report,
    "lr-find": lr_find,
    "devices": devices,
}
for _name, _function in _COMMANDS.items():
    app.command(_name, cls=OptionCommand)(_function)
# Arguments after a demo's name go to the demo.
_OPEN = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
app.command("demo", context_settings=_OPEN)(demo)
app.command("launch", context_settings=_OPEN)(launch)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    with friendly_errors():
        from .. import __version__
        from ..backend.library import ggml_version, patch_count

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
