# SPDX-License-Identifier: MIT
"""Tokenizer files of the `tokenizers` library, and the settings beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import FormatError
from ...io.atomic import atomic_write
from ...io.regular import read_regular
from .training import guarded, library

if TYPE_CHECKING:
    import tokenizers

__all__ = ["read_backend", "read_config", "write_config"]

# The library walks over every number up to the largest; no vocabulary comes near this.
_ID_MAX = 2**24


def read_backend(file: Path) -> tokenizers.Tokenizer:
    """Read the tokenizer of a JSON file.

    Args:
        file: its path.

    Raises:
        FormatError: the file is missing, or is not a tokenizer.
    """
    try:
        text = read_regular(file).decode()
    except OSError as error:
        raise FormatError(f"Tokenizer.from_file: {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"Tokenizer.from_file: {file}: not UTF-8 at {error.start}") from error
    _check_ids(file, text)
    try:
        with guarded(f"Tokenizer.from_file: {file}"):
            backend: tokenizers.Tokenizer = library().Tokenizer.from_str(text)
    except (ImportError, FormatError):
        raise
    except Exception as error:  # the library raises bare Exception
        raise FormatError(
            f"Tokenizer.from_file: {file}: not a file of the tokenizers library: {error}"
        ) from error
    return backend


def read_config(file: Path) -> dict[str, Any]:
    """Return the `tokenizer_config.json` beside a tokenizer file, with tokens as text.

    Args:
        file: the tokenizer file.

    Raises:
        FormatError: the settings cannot be read.
    """
    beside = file.with_name("tokenizer_config.json")
    try:
        content = json.loads(read_regular(beside))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"Tokenizer.from_file: {beside}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"Tokenizer.from_file: {beside}: must be a JSON object")
    for role in ("bos_token", "eos_token"):
        if isinstance(content.get(role), dict):
            content[role] = content[role].get("content")
    return content


def write_config(file: Path, bos: str | None, eos: str | None) -> None:
    """Write which tokens begin and end a text into the settings beside a tokenizer file."""
    config = {**read_config(file), "bos_token": bos, "eos_token": eos}
    with atomic_write(file.with_name("tokenizer_config.json"), "w") as handle:
        handle.write(json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def _check_ids(file: Path, text: str) -> None:
    """Raise on token numbers that would keep the library busy for hours; it checks the rest."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"Tokenizer.from_file: {file}: not a JSON file: {error}") from error
    model = content.get("model") if isinstance(content, dict) else None
    vocab = model.get("vocab") if isinstance(model, dict) else None
    added = content.get("added_tokens") if isinstance(content, dict) else None
    ids = list(vocab.values()) if isinstance(vocab, dict) else []
    if isinstance(added, list):
        ids += [token.get("id") for token in added if isinstance(token, dict)]
    largest = max((n for n in ids if isinstance(n, int)), default=0)
    if largest > _ID_MAX:
        raise FormatError(
            f"Tokenizer.from_file: {file}: token numbers must be at most {_ID_MAX}; got {largest}"
        )
