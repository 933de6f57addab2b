# SPDX-License-Identifier: MIT
"""The length to which the parts of a `tokenizer.json` let a text grow."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from ....errors import FormatError
from .charsmap import TEXT_MAX, Charsmap

__all__ = ["check_growth"]

# Characters that may become of one.
_GROWTH_MAX = 1000
# A character has up to 4 bytes, and may get a space before it.
_BYTE_LEVEL = 5
# What an expression needs to match between two characters; others match one at least.
_EMPTY = re.compile(r"[*?|()$]|(?<!\[)\^|\{[0,]|\\[ABGKZbz]|\A\Z")
_FIELDS = ("normalizer", "pre_tokenizer", "decoder")
_LISTS = ("normalizers", "pretokenizers", "decoders")


def check_growth(who: str, content: Any) -> None:
    """Raise on parts that make a text so much longer that memory would not hold it.

    A chain of forty replacements of "a" by "aa" makes a million million letters of one.

    Args:
        who: the caller and the file, for messages.
        content: of the file; what is malformed is left to the library.

    Raises:
        FormatError: names the field.
    """
    growth = 1
    steps = _steps(content)
    for field in _FIELDS:
        # A text is decoded from its tokens, whatever became of it before.
        try:
            growth = _grown(steps.get(field), 1 if field == "decoder" else growth)
        except FormatError as error:
            raise FormatError(f"{who}: {field}: {error}") from None
        if growth > _GROWTH_MAX:
            raise FormatError(
                f"{who}: {field}: its steps may make at most {_GROWTH_MAX:,} characters of one;"
                " these make more: take steps out of the file"
            )


def _steps(content: Any) -> dict[str, Any]:
    """Return the fields as the library understands them: it goes by more than their `type`."""
    from tokenizers import Tokenizer, models

    given = content if isinstance(content, dict) else {}
    alone = json.loads(Tokenizer(models.BPE()).to_str())
    alone.update({field: given[field] for field in _FIELDS if field in given})
    try:
        found: dict[str, Any] = json.loads(Tokenizer.from_str(json.dumps(alone)).to_str())
    except Exception:  # noqa: BLE001 - the library raises it, and will again for the whole file
        return {}
    return found


def _grown(part: Any, growth: int) -> int:
    """Return what a part, or a sequence of them, makes of so many characters."""
    if not isinstance(part, dict) or growth > _GROWTH_MAX:
        return growth
    kind = part.get("type")
    if kind == "Sequence":
        for name in _LISTS:
            for each in part[name] if isinstance(part.get(name), list) else ():
                growth = _grown(each, growth)
        return growth
    if kind == "Prepend":
        return growth + _length(part.get("prepend"))
    if kind == "Replace":
        return growth * _replaced(part.get("pattern"), _length(part.get("content")))
    if kind == "Precompiled":
        return growth * _mapped(part.get("precompiled_charsmap"))
    return growth * (_BYTE_LEVEL if kind == "ByteLevel" else 1)


def _length(value: Any) -> int:
    """Return the length of a text; 0 for what is none."""
    return len(value) if isinstance(value, str) else 0


def _replaced(pattern: Any, length: int) -> int:
    """Return what a replacement of a length makes of a character."""
    pattern = pattern if isinstance(pattern, dict) else {}
    text, expression = pattern.get("String"), pattern.get("Regex")
    if isinstance(text, str) and text:
        return max(1, -(-length // len(text)))
    if isinstance(expression, str) and not _EMPTY.search(expression):
        return max(1, length)
    return 1 + length


def _mapped(packed: Any) -> int:
    """Return what a compiled table makes of a character; raise on one that is damaged."""
    if not isinstance(packed, str):
        return 1
    try:
        Charsmap.parse(base64.b64decode(packed))
    except (FormatError, binascii.Error, ValueError) as error:
        raise FormatError(f"precompiled_charsmap: {error}") from None
    return TEXT_MAX
