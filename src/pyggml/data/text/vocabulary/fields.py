# SPDX-License-Identifier: MIT
"""Fields of a GGUF vocabulary, read with checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ....errors import FormatError

__all__ = [
    "BYTE",
    "CONTROL",
    "NORMAL",
    "Tokens",
    "UNKNOWN",
    "UNUSED",
    "USER_DEFINED",
    "bad",
    "byte_of",
    "field",
    "filler_names",
    "flag",
    "read_tokens",
    "refusal",
    "strings",
    "token_id",
    "word",
]

# Token types of llama.cpp's `enum llama_token_type`; 0 is undefined.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


class Tokens(NamedTuple):
    """The tokens of a vocabulary.

    Attributes:
        texts: the spelling of each, all different.
        types: the type of each.
        scores: the score of each, (N,) float32, or None.
    """

    texts: list[str]
    types: list[int]
    scores: np.ndarray | None


def bad(key: str, reason: str) -> FormatError:
    """Return the error of a field `tokenizer.ggml.KEY`."""
    return FormatError(f"Tokenizer.from_gguf_metadata: tokenizer.ggml.{key}: {reason}")


def refusal(reason: str) -> FormatError:
    """Return the error of a tokenizer that cannot be written into a GGUF file."""
    return FormatError(
        f"Tokenizer.to_gguf_metadata: llama.cpp has no equal of this tokenizer: {reason}; train one"
        " with bpe:SIZE or chars, or read a tokenizer of a GGUF file"
    )


def filler_names(number: int) -> tuple[str, str]:
    """Names of an unused token: the usual one, and one for when that is taken.

    llama.cpp aborts when two tokens have one text.
    """
    return f"[PAD{number}]", f"[PAD{number}|unused]"


def byte_of(text: str) -> int | None:
    """Return the byte that a byte token such as `<0x0A>` stands for, or None."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        digits = text[3:5]
        if all(char in "0123456789ABCDEFabcdef" for char in digits):
            return int(digits, 16)
    return None


def field(metadata: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """Return the value of `tokenizer.ggml.KEY`.

    Raises:
        FormatError: it is missing and has no default.
    """
    value = metadata.get(f"tokenizer.ggml.{key}", default)
    if value is None:
        raise bad(key, "missing; the file has no vocabulary")
    return value


def word(metadata: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """Return a field that is a text."""
    value = field(metadata, key, default)
    if not isinstance(value, str):
        raise bad(key, f"must be a text; got {type(value).__name__}")
    return value


def flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    """Return a field that is true or false."""
    value = field(metadata, key, default)
    if not isinstance(value, (bool, np.bool_)):
        raise bad(key, f"must be true or false; got {value!r:.60}")
    return bool(value)


def strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    """Return a field that is an array of texts."""
    values = field(metadata, key)
    # An empty array carries no strings, whatever its type.
    values = list(values) if isinstance(values, (list, np.ndarray)) else [values]
    if not all(isinstance(value, str) for value in values):
        raise bad(key, "must be an array of strings")
    return values


def token_id(
    metadata: Mapping[str, Any], key: str, size: int, default: int | None = None
) -> int | None:
    """Return a field that is a token's id; `default` where the file is silent."""
    value = metadata.get(f"tokenizer.ggml.{key}")
    if value is None:
        return default if default is not None and default < size else None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise bad(key, f"must be a token's number; got {value!r:.60}")
    if not 0 <= int(value) < size:
        raise bad(key, f"must be below {size} tokens; got {value!r:.60}")
    return int(value)


def _numbers(metadata: Mapping[str, Any], key: str, kinds: str, count: int) -> np.ndarray:
    """Return a field that is an array with a number for each token."""
    value = metadata[f"tokenizer.ggml.{key}"]
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds or value.ndim != 1:
        raise bad(key, f"must be an array of {'numbers' if 'f' in kinds else 'whole numbers'}")
    if len(value) != count:
        raise bad(key, f"must have {count} entries, one per token; got {len(value)}")
    if not np.isfinite(value).all():
        raise bad(key, f"must be finite; entry {int(np.argmin(np.isfinite(value)))} is not")
    return value


def read_tokens(metadata: Mapping[str, Any], scored: bool = False) -> Tokens:
    """Read tokens, types and scores, without the unused tokens that pad a vocabulary at its end.

    Args:
        metadata: values by key.
        scored: whether there must be scores.

    Raises:
        FormatError: a field is missing, of another type or length, or two tokens are equal.
    """
    # llama.cpp gives an empty token this name.
    texts = [text or f"[EMPTY_{n}]" for n, text in enumerate(strings(metadata, "tokens"))]
    size = len(texts)
    types = [NORMAL] * size
    if "tokenizer.ggml.token_type" in metadata:
        types = [int(kind) for kind in _numbers(metadata, "token_type", "iu", size)]
    if not all(0 <= kind <= BYTE for kind in types):
        number = next(n for n, kind in enumerate(types) if not 0 <= kind <= BYTE)
        raise bad("token_type", f"must be from 0 to {BYTE}; got {types[number]} of token {number}")
    scores = None
    if "tokenizer.ggml.scores" in metadata:
        scores = _numbers(metadata, "scores", "fiu", size).astype(np.float32)
    elif scored:
        raise bad("scores", "missing; this kind of vocabulary ranks tokens by them")
    while texts and types[-1] == UNUSED and texts[-1] in filler_names(len(texts) - 1):
        texts.pop()
        types.pop()
    if not texts:
        raise bad("tokens", "is empty")
    if len(set(texts)) != len(texts):
        seen: set[str] = set()
        twice = next(text for text in texts if text in seen or seen.add(text))  # type: ignore[func-returns-value]
        raise bad("tokens", f"{twice!r} occurs twice")
    return Tokens(texts, types, None if scores is None else scores[: len(texts)])
