# SPDX-License-Identifier: MIT
"""`pyggml check`: what llama.cpp would say of a file."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .errors import EXIT_FAILED, friendly_errors
from .terminal import say

__all__ = ["check"]


def check(
    file: Annotated[str, typer.Argument(help="A GGUF file.", show_default=False)],
    weights: Annotated[
        bool, typer.Option("--weights", help="Look for NaN and infinite weights too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell what llama.cpp would say of a model's file, by rules of our own.

    A line begins with "refused" where llama.cpp would not load the file, with "differs" where it
    would compute another thing than pyggml, and with "unchecked" where the rules end. The exit code
    is 1 if something is refused.
    """
    with friendly_errors():
        from ..io import read_gguf
        from ..models import check_gguf
        from ..models.files import check_finite

        with read_gguf(file) as opened:
            found = check_gguf(opened)
            if weights:
                check_finite(opened)
        if as_json:
            print(json.dumps([vars(each) for each in found]))
        else:
            for each in found:
                say(f"{each.kind}: {each}")
            if not found:
                say("llama.cpp loads it and computes the same")
        if any(each.kind == "refused" for each in found):
            raise typer.Exit(EXIT_FAILED)
