# SPDX-License-Identifier: MIT
"""Tokenizer files of the `tokenizers` library, and the settings beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import FormatError, shown
from ...io.atomic import atomic_write
from ...io.regular import read_regular
from .library import READ, guarded, library
from .vocabulary import check_growth

if TYPE_CHECKING:
    import tokenizers

__all__ = ["read_backend", "read_config", "write_config"]

# Numbers without a token below the largest; each takes memory, and padded vocabularies have a few
# thousand of them.
_HOLES_MAX = 2**16


def read_backend(file: Path) -> tokenizers.Tokenizer:
    """Read the tokenizer of a JSON file.

    Args:
        file: its path.

    Raises:
        FormatError: the file is missing, or is not a tokenizer.
    """
    who = f"Tokenizer.from_file: {file}"
    try:
        text = read_regular(file).decode()
    except OSError as error:
        raise FormatError(f"{who}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{who}: not UTF-8 at {error.start}") from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{who}: cannot be read as JSON: {error}") from error
    _check_ids(who, content)
    parse = library().Tokenizer.from_str
    with guarded(who, READ * len(text)):
        check_growth(who, content)
        try:
            backend: tokenizers.Tokenizer = parse(text)
        except Exception as error:
            raise FormatError(f"{who}: not a file of the tokenizers library: {error}") from error
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
        if not isinstance(content.get(role, ""), (str, type(None))):
            raise FormatError(
                f"Tokenizer.from_file: {beside}: {role} must be a text or null; got "
                f"{shown(content[role])}"
            )
    return content


def write_config(file: Path, bos: str | None, eos: str | None) -> None:
    """Write which tokens begin and end a text into the settings beside a tokenizer file."""
    config = {**read_config(file), "bos_token": bos, "eos_token": eos}
    with atomic_write(file.with_name("tokenizer_config.json"), "w") as handle:
        handle.write(json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def _check_ids(who: str, content: Any) -> None:
    """Raise on a token number far beyond the number of tokens; the library checks the rest."""
    model = content.get("model") if isinstance(content, dict) else None
    vocab = model.get("vocab") if isinstance(model, dict) else None
    added = content.get("added_tokens") if isinstance(content, dict) else None
    fields: dict[str, Iterable[object]] = {}
    if isinstance(vocab, (dict, list)):
        fields["model.vocab"] = vocab.values() if isinstance(vocab, dict) else range(len(vocab))
    if isinstance(added, list):
        fields["added_tokens"] = (token.get("id") for token in added if isinstance(token, dict))
    numbers = {
        number: field for field, ids in fields.items() for number in ids if isinstance(number, int)
    }
    largest = max(numbers, default=0)
    if largest - len(numbers) > _HOLES_MAX:
        raise FormatError(
            f"{who}: {numbers[largest]}: a token's number must be at most {_HOLES_MAX:,} above the"
            f" number of tokens, {len(numbers):,}; got {largest:,}"
        )
