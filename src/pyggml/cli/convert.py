# SPDX-License-Identifier: MIT
"""`pyggml convert`: models and adapters between GGUF and Hugging Face's folders."""

from __future__ import annotations

from typing import Annotated

import typer

from .errors import friendly_errors
from .options import TokenizerFile
from .terminal import say

__all__ = ["convert"]


def convert(
    source: Annotated[
        str, typer.Argument(help="GGUF file, Hugging Face or PEFT folder, or a run's folder.")
    ],
    target: Annotated[str, typer.Argument(help="FILE.gguf, or else a folder; replaced if there.")],
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Type of the matrices, such as bf16 or q8_0; those of the source unless given."
        ),
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="The model of an adapter, a file or folder.")
    ] = None,
    tokenizer: TokenizerFile = None,
) -> None:
    """Convert a model or an adapter between GGUF and Hugging Face's formats.

    Sizes, tokenizer and chat template come with it.
    """
    with friendly_errors():
        from ..backend.device import set_default_device
        from ..models import convert as convert_files

        set_default_device("cpu")  # nothing is computed
        say(f"wrote {convert_files(source, target, dtype, base, tokenizer)}")
