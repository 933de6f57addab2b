# SPDX-License-Identifier: MIT
"""Unigram vocabularies ("t5" in GGUF)."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import FormatError
from .charsmap import Charsmap
from .fields import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Tokens,
    bad,
    flag,
    refusal,
)

if TYPE_CHECKING:
    import tokenizers

__all__ = ["coder", "describe", "read"]

_log = logging.getLogger("pyggml.data")

_SPACE = "\u2581"
# No text has it, so the model finds no token of this spelling.
_NOWHERE = "\uffff\ufffe\uffff"


def _spaces(merge: bool, prefix: bool) -> list[Any]:
    """llama.cpp's treatment of spaces, in steps of the library."""
    from tokenizers import Regex, normalizers

    def replace(pattern: str, text: str) -> Any:
        return normalizers.Replace(Regex(pattern), text)

    if merge:
        # A text then begins with a space, whatever the file says of a prefix.
        first = [replace(r"\A +| +\z", ""), replace(" +", " "), normalizers.Prepend(_SPACE)]
    else:
        first = [replace(r"\A(?= *[^ ])", _SPACE)] if prefix else []
    return [*first, normalizers.Replace(" ", _SPACE)]


def read(metadata: Mapping[str, Any], tokens: Tokens, unknown: int | None) -> tokenizers.Tokenizer:
    """Rebuild a unigram tokenizer.

    Args:
        metadata: values by key.
        tokens: with scores.
        unknown: id of the token of what has no token.

    Raises:
        FormatError: there is no such token, or the table of characters is damaged.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers

    if unknown is None:
        raise bad("unknown_token_id", "missing, and there are too few tokens for 2")
    assert tokens.scores is not None
    pieces = [(text, float(score)) for text, score in zip(tokens.texts, tokens.scores, strict=True)]
    backend = Tokenizer(models.Unigram(pieces, unknown, False))
    prefix = flag(metadata, "add_space_prefix", False)
    steps = _spaces(flag(metadata, "remove_extra_whitespaces", False), prefix)
    value = metadata.get("tokenizer.ggml.precompiled_charsmap")
    if value is not None and len(np.atleast_1d(np.asarray(value))):
        if not isinstance(value, np.ndarray) or value.dtype not in (np.uint8, np.int8):
            raise bad("precompiled_charsmap", "must be an array of bytes")
        data = value.tobytes()
        try:
            Charsmap.parse(data)
        except FormatError as error:
            raise bad("precompiled_charsmap", str(error)) from None
        steps.insert(0, normalizers.Precompiled(data))
    backend.normalizer = normalizers.Sequence(steps)
    parts = [decoders.Replace(_SPACE, " "), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    return backend


def _table(content: dict[str, Any]) -> tuple[bytes | None, list[dict[str, Any]]]:
    """The compiled table of a tokenizer, and its other normalizers."""
    normalizer = content.get("normalizer")
    parts = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    if parts and parts[0]["type"] == "Precompiled":
        return base64.b64decode(parts[0]["precompiled_charsmap"]), parts[1:]
    return None, parts


def coder(
    content: dict[str, Any], types: list[int] | None
) -> tuple[tokenizers.Tokenizer, Charsmap | None]:
    """Return the tokenizer of the texts between special tokens, and the table to apply before it.

    Args:
        content: the JSON of the tokenizer.
        types: the types of its tokens; None goes by its special tokens.

    Control and byte tokens are not found in a text by their spelling, and do not count for the
    score of an unknown character.
    """
    from tokenizers import Tokenizer

    pieces = content["model"]["vocab"]
    if types is None:
        special = {token["id"]: token["special"] for token in content["added_tokens"]}
        types = [CONTROL if special.get(number) else NORMAL for number in range(len(pieces))]
    normal = [score for (_, score), kind in zip(pieces, types, strict=False) if kind == NORMAL]
    worst = min(normal, default=0.0)
    hidden = {UNKNOWN, CONTROL, BYTE, USER_DEFINED, 0}
    vocab = [
        [_NOWHERE, 0.0] if kind in hidden or (kind == UNUSED and score < worst) else [text, score]
        for (text, score), kind in zip(pieces, types, strict=False)
    ]
    data, rest = _table(content)
    changed = {
        **content,
        "added_tokens": [],
        "post_processor": None,
        "normalizer": {"type": "Sequence", "normalizers": rest},
        "model": {**content["model"], "vocab": vocab},
    }
    backend = Tokenizer.from_str(json.dumps(changed))
    return backend, None if data is None else Charsmap.parse(data)


def _whitespace(content: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether runs of spaces become one, and whether a text gets a space before it."""
    rest = _table(content)[1]
    pre = content.get("pre_tokenizer")
    for merge in (True, False):
        for prefix in (True, False):
            steps = [json.loads(step.__getstate__()) for step in _spaces(merge, prefix)]
            if pre is None and rest == steps:
                return merge, prefix
    parts = [] if pre is None else pre.get("pretokenizers", [pre])
    merge = bool(parts) and parts[0]["type"] == "WhitespaceSplit"
    parts = parts[1:] if merge else parts
    for step in rest:
        if step["type"] == "Replace" and step["pattern"] == {"Regex": " {2,}"}:
            merge = True
        elif step["type"] != "Strip":
            raise refusal(f"its normalizer is {step['type']}")
    if len(parts) != 1 or parts[0]["type"] != "Metaspace" or parts[0]["replacement"] != _SPACE:
        raise refusal("it splits text in another way than T5")
    return merge, parts[0].get("prepend_scheme", "always") != "never"


def describe(content: dict[str, Any], texts: list[str], types: list[int]) -> dict[str, Any]:
    """Return the keys of a unigram vocabulary, without the tokens.

    Args:
        content: the JSON of the tokenizer.
        texts: the tokens by id.
        types: their types; that of the unknown token is set here.

    Raises:
        FormatError: llama.cpp would tokenize differently.
    """
    model = content["model"]
    if model.get("byte_fallback"):
        raise refusal("its unigram model falls back to bytes")
    merge, prefix = _whitespace(content)
    scores = np.full(len(texts), -1000.0, np.float32)
    for number, (_, score) in enumerate(model["vocab"]):
        scores[number] = score
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": prefix,
        "tokenizer.ggml.remove_extra_whitespaces": merge,
    }
    unknown = model.get("unk_id")
    if unknown is None:
        raise refusal("its unigram model has no unknown token")
    types[unknown] = UNKNOWN
    metadata["tokenizer.ggml.unknown_token_id"] = np.uint32(unknown)
    data = _table(content)[0]
    if data is None and content.get("pre_tokenizer") is not None:
        _log.warning("llama.cpp takes spaces alone for white space, without a table of characters")
    if data is not None:
        metadata["tokenizer.ggml.precompiled_charsmap"] = np.frombuffer(data, np.uint8)
    return metadata
