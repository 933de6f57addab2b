# SPDX-License-Identifier: MIT
"""The small files of a tokenizer: its settings, and writing in one step."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import FormatError

__all__ = ["read_config", "replace_text"]


def read_config(file: Path) -> dict[str, Any]:
    """The settings beside a tokenizer file; tokens may be spelled as text or as objects."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FormatError(f"Tokenizer.from_file: {file}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"Tokenizer.from_file: {file}: must be a JSON object")
    for role in ("bos_token", "eos_token"):
        if isinstance(content.get(role), dict):
            content[role] = content[role].get("content")
    return content


def replace_text(file: Path, text: str) -> None:
    """Write a small file beside and rename it."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
