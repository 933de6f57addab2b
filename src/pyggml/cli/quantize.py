# SPDX-License-Identifier: MIT
"""`pyggml quantize` and `pyggml imatrix`: smaller files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..options import Options, option
from ..recipes import Configuration
from ..recipes.options import MachineOptions
from .errors import friendly_errors, naming
from .generate import load_model
from .options import TokenizerFile, with_options
from .terminal import say

__all__ = ["imatrix", "quantize"]


def quantize(
    source: Annotated[str, typer.Argument(help="A GGUF file of f32, f16 or bf16.")],
    target: Annotated[str, typer.Argument(help="The file that is written.")],
    mix: Annotated[
        str, typer.Option("--type", help="llama.cpp's name of the mix, such as Q4_K_M or IQ2_XS.")
    ] = "Q4_K_M",
    importance: Annotated[
        str | None,
        typer.Option(
            "--imatrix", help="A file of pyggml imatrix or llama-imatrix.", show_default=False
        ),
    ] = None,
    pure: Annotated[
        bool, typer.Option("--pure", help="Give all matrices one type, without a mix.")
    ] = False,
    requantize: Annotated[
        bool, typer.Option("--allow-requantize", help="Take a file that is quantised already.")
    ] = False,
    max_part_bytes: Annotated[
        int | None,
        typer.Option("--max-part-bytes", help="Split into files of this size.", show_default=False),
    ] = None,
) -> None:
    """Write a model with its matrices in other types, byte for byte as llama.cpp does.

    The mixes of one to three bits (IQ1 to IQ3_XXS, Q2_K_S) need --imatrix.
    """
    with friendly_errors():
        from ..io import read_gguf
        from ..models.quantization import MIXES, quantize_gguf

        known = {name.lower(): name for name in MIXES}
        name = known.get(mix.lower(), mix)
        files = quantize_gguf(
            source,
            target,
            name,
            importance,
            pure=pure,
            requantize=requantize,
            max_part_bytes=max_part_bytes,
        )
        with read_gguf(files[0]) as file:
            found = Counter(info.dtype for info in file.tensors.values())
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
        more = f" and {len(files) - 1} more parts" if len(files) > 1 else ""
        say(f"{files[0]}{more}: {name}: {told}")


@dataclass(frozen=True, kw_only=True)
class ImatrixOptions(Options):
    """The texts, and how they are cut."""

    chunk: int | None = option(
        None, "Tokens that are read at a time.", least=1, chosen="512, or the context if less"
    )


class ImatrixConfig(Configuration):
    """The options of `pyggml imatrix`."""

    text: ImatrixOptions
    machine: MachineOptions


@with_options(ImatrixConfig)
def imatrix(
    given: dict[str, Any],
    model: Annotated[str, typer.Argument(help="A GGUF file, or a folder with one.")],
    text: Annotated[list[str], typer.Option("--text", help="Text file; may be repeated.")],
    output: Annotated[
        str, typer.Option("--output", help="The importance matrix.")
    ] = "imatrix.gguf",
    tokenizer_file: TokenizerFile = None,
) -> None:
    """Measure an importance matrix on text, for pyggml quantize and llama.cpp's quantiser."""
    with friendly_errors():
        import numpy as np

        from ..models.quantization import measure_importance, write_importance

        config = ImatrixConfig(**given)
        language_model, tokenizer = load_model(model, config.machine, tokenizer_file)
        parts = []
        for path in text:
            parts.append(tokenizer.encode(_text(path), add_special=bool(tokenizer.add_bos)))
        ids = np.concatenate(parts)
        if not ids.size:
            raise ValueError(f"read_texts: {', '.join(text)}: must not be empty; got no text")
        bos = tokenizer.bos_id if tokenizer.add_bos else None
        found = measure_importance(language_model, ids, config.text.chunk, text, bos)
        with naming("--output", output):
            write_importance(output, found)
        say(f"{output}: {len(found.values)} matrices, {found.chunks} × {found.chunk_size} tokens")


def _text(path: str) -> str:
    """Return the text of a file, packed by gzip or not."""
    import gzip
    import zlib

    from ..errors import FormatError
    from ..io import open_unpacked

    try:
        with open_unpacked(path) as file:
            text = file.read().decode()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"imatrix: {path}: the gzip stream is damaged: {error}") from error
    except UnicodeDecodeError as error:
        raise FormatError(
            f"imatrix: {path}: text must be UTF-8; got byte 0x{error.object[error.start]:02x} at"
            f" offset {error.start} ({error.reason}); convert the file to UTF-8 first"
        ) from error
    if "\0" in text:
        raise FormatError(f"imatrix: {path}: must be text; got a NUL byte; it is a binary file")
    return text
