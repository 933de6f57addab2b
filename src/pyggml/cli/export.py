# SPDX-License-Identifier: MIT
"""`pyggml export`: a checkpoint of a run as a model file."""

from __future__ import annotations

from typing import Annotated

import typer

from .errors import friendly_errors, naming
from .terminal import say

__all__ = ["export"]


def export(
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", help="Its folder, such as RUN/checkpoints/best.")
    ],
    output: Annotated[str, typer.Option("--output", help="The GGUF file; replaced if there.")],
) -> None:
    """Write the model of a checkpoint as GGUF.

    The weights are those that evaluations saw: the average, where the run kept one. Sizes and
    tokenizer, or labels, come from the run's folder. llama.cpp, pyggml generate, eval and infer
    take the file.
    """
    with friendly_errors():
        from ..backend.device import set_default_device
        from ..recipes import export_checkpoint

        set_default_device("cpu")  # nothing is computed
        with naming("--output", output):
            written = export_checkpoint(checkpoint, output)
        say(written)
