# SPDX-License-Identifier: MIT
"""Converting models and adapters between GGUF files and Hugging Face folders."""

from __future__ import annotations

import os
from pathlib import Path

from .. import checks
from ..io import read_gguf
from .adapters import load_lora, save_lora
from .files import read_scalar
from .registry import load

__all__ = ["convert"]

# The types of a Hugging Face folder's matrices.
_FOLDER = ("f32", "f16", "bf16")


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    dtype: str | None = None,
    base: str | os.PathLike[str] | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Path:
    """Convert a model or an adapter between GGUF and Hugging Face's formats.

    Args:
        source: a GGUF file, a Hugging Face folder, a PEFT folder, or a run's folder.
        target: a GGUF file, `*.gguf`, or else a folder.
        dtype: type of the matrices; None keeps those of the source. A folder takes "f32", "f16"
            and "bf16", and quantised matrices become f16 there.
        base: the model that an adapter is for: a file or folder as source.
        tokenizer: a tokenizer JSON file or a GGUF file instead of the source's tokenizer; see
            `load`.

    Returns:
        The target.

    Raises:
        FormatError: the source is damaged, or is no model or adapter that can be read.
        ValueError: the target cannot hold the model or the type; or base is missing, or given with
            a model.
        OSError: a file cannot be read or written.

    Example:
        >>> model.save("model.gguf")
        >>> convert("model.gguf", "folder").name
        'folder'
    """
    given, there = (
        checks.path("convert", "source", source),
        checks.path("convert", "target", target),
    )
    to_file = there.suffix == ".gguf"
    if _is_adapter(given):
        if base is None:
            raise ValueError(f"convert: base must name the model of the adapter {given}; got None")
        if tokenizer is not None:
            raise ValueError("convert: tokenizer is for models: leave it out")
        if dtype is not None:
            raise ValueError("convert: dtype is for models; an adapter stays f32: leave it out")
        model, _ = load(base, keep_types=True)
        load_lora(model, given)
        save_lora(model, there)
        return there
    if base is not None:
        raise ValueError(f"convert: base is for adapters; {given} is a model: leave `base` out")
    if dtype is not None and not to_file:
        checks.choice("convert", "dtype", dtype, _FOLDER)
    model, words = load(given, keep_types=dtype is None, tokenizer=tokenizer)
    if to_file:
        model.save(there, words, dtype=dtype or "f32")
        return there
    kinds = {p.dtype.name for _, p in model.named_state() if p.ndim > 1} - {"f32"}
    own = next(iter(kinds)) if len(kinds) == 1 and kinds <= set(_FOLDER) else "f16"
    model.save_pretrained(there, words, dtype or (own if kinds else "f32"))
    return there


def _is_adapter(path: Path) -> bool:
    """Return True for a PEFT folder and for a GGUF file of an adapter."""
    if path.is_dir():
        return (path / "adapter_config.json").is_file()
    if path.suffix != ".gguf" or not path.is_file():
        return False
    with read_gguf(path) as file:
        return bool(read_scalar(file, "general.type") == "adapter")
