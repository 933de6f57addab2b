# SPDX-License-Identifier: MIT
"""The small files of a tokenizer: its settings and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import FormatError

__all__ = ["check_ids", "read_config"]

# The library walks over every number up to the largest; no vocabulary comes near this.
_ID_MAX = 2**24


def read_config(file: Path) -> dict[str, Any]:
    """The settings beside a tokenizer file; tokens may be spelled as text or as objects."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"Tokenizer.from_file: {file}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"Tokenizer.from_file: {file}: must be a JSON object")
    for role in ("bos_token", "eos_token"):
        if isinstance(content.get(role), dict):
            content[role] = content[role].get("content")
    return content


def check_ids(file: Path, text: str) -> None:
    """Refuse token numbers that would keep the library busy for hours; it checks the rest."""
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
