# SPDX-License-Identifier: MIT
"""Vocabularies from and to the keys `tokenizer.ggml.*` of a GGUF file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .... import checks
from . import bpe, spm, ugm, wpm
from .fields import (
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Tokens,
    bad,
    filler_names,
    flag,
    read_tokens,
    refusal,
    token_id,
    word,
)
from .patterns import PRE_TOKENIZERS, reason_against
from .special import add_special, retyped

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Vocabulary", "from_gguf", "to_gguf"]

_log = logging.getLogger("pyggml.data")

_PREFIX = "tokenizer.ggml."
_FILLER_SCORE = -10000.0

_OTHER_MODELS = {
    "rwkv": "its tokens are bytes, the longest of which wins; the library has no such model",
    "plamo2": "its scores are summed from the end; the library has no such model",
    "plamo3": "its scores are summed from the end; the library has no such model",
    "hybriddna": "it has one way for text and one for genomes; the library has one",
    "whitespace": "it drops white space, so that ids do not give the text back",
    "test": "it is llama.cpp's own test",
}


class Vocabulary(NamedTuple):
    """A tokenizer of the `tokenizers` library with its first and last tokens.

    Attributes:
        backend: the tokenizer.
        bos_id: id of the token that begins a text, or None.
        eos_id: id of the token that ends a text, or None.
        add_bos: whether a text begins with it.
        add_eos: whether a text ends with it.
        types: the types of its tokens in a file, or None.
        metadata: the keys of the file that it was read from, or None.
    """

    backend: tokenizers.Tokenizer
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool
    types: list[int] | None = None
    metadata: dict[str, Any] | None = None


def _template(backend: tokenizers.Tokenizer, bos: int | None, eos: int | None) -> Any:
    """A post-processor that puts the given tokens before and after the text."""
    from tokenizers import processors

    pairs = [(backend.id_to_token(number), number) for number in (bos, eos) if number is not None]
    start = [f"{backend.id_to_token(bos)}:0"] if bos is not None else []
    end = [f"{backend.id_to_token(eos)}:0"] if eos is not None else []
    return processors.TemplateProcessing(
        single=[*start, "$A:0", *end], special_tokens=list(dict.fromkeys(pairs))
    )


class _Ends(NamedTuple):
    """Tokens at the ends of a text where the file is silent."""

    bos: int | None = None
    eos: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    eos_key: str = "eos_token_id"


def _ends(model: str, pre: str) -> _Ends:
    """llama.cpp's defaults."""
    if model == "llama":
        return _Ends(1, 2, add_bos=True)
    if model == "bert":
        return _Ends(101, 102, True, True, "seperator_token_id")
    if model == "t5":
        return _Ends(None, 1, add_eos=True)
    way = PRE_TOKENIZERS[pre]
    if model == "gemma4":
        return _Ends(add_bos=True)
    return _Ends(None if way.no_bos else 11, 11, add_bos=way.adds_bos)


def from_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """Rebuild a vocabulary from llama.cpp's keys; see `Tokenizer.from_gguf_metadata`."""
    model = word(metadata, "model")
    cure = "give a tokenizer JSON file instead"
    if model not in ("llama", "gpt2", "gemma4", "bert", "t5"):
        reason = _OTHER_MODELS.get(model, "llama.cpp b11549 has no such name")
        raise bad("model", f"{model!r:.40} cannot be used: {reason}; {cure}")
    pre = "gemma4" if model == "gemma4" else word(metadata, "pre", "default") or "default"
    if model == "gpt2" and pre not in PRE_TOKENIZERS:
        raise bad("pre", f"{pre!r:.40} cannot be used: {reason_against(pre)}; {cure}")
    tokens = read_tokens(metadata, scored=model in ("llama", "t5"))
    typed = retyped(tokens, metadata)
    size = len(tokens.texts)
    if model == "llama":
        backend = spm.read(metadata, tokens)
    elif model == "bert":
        unknown = token_id(metadata, "unknown_token_id", size, 100)
        typed = Tokens(wpm.respelt(typed, unknown), typed.types, None)
        backend = wpm.read(metadata, typed, unknown)
    elif model == "t5":
        backend = ugm.read(metadata, tokens, token_id(metadata, "unknown_token_id", size, 2))
    else:
        backend = bpe.read(metadata, tokens, pre)
    add_special(backend, typed, metadata)
    ends = _ends(model, pre)
    bos = token_id(metadata, "bos_token_id", size, ends.bos)
    eos = token_id(metadata, ends.eos_key, size, ends.eos)
    add_bos, add_eos = True, True
    if model != "bert":
        # llama.cpp adds it for these even where the file says not to.
        forced = pre in ("gemma4", "granite-embed-multi-311m") and model != "llama"
        add_bos = flag(metadata, "add_bos_token", ends.add_bos) or forced
        add_eos = flag(metadata, "add_eos_token", ends.add_eos)
    add_bos, add_eos = add_bos and bos is not None, add_eos and eos is not None
    if add_bos or add_eos:
        backend.post_processor = _template(
            backend, bos if add_bos else None, eos if add_eos else None
        )
    kept = {key: _typed(value) for key, value in metadata.items() if key.startswith(_PREFIX)}
    return Vocabulary(backend, bos, eos, add_bos, add_eos, tokens.types, kept)


def _typed(value: Any) -> Any:
    """A value of a file, of a type that can be written: whole numbers here are ids and counts."""
    if isinstance(value, int) and not isinstance(value, bool):
        return np.uint32(value) if 0 <= value < 2**32 else np.int64(value)
    return np.float32(value) if isinstance(value, float) else value


def _size(tokenizer: int, vocab_size: int | None) -> int:
    if vocab_size is None:
        return tokenizer
    if checks.whole("Tokenizer.to_gguf_metadata", "vocab_size", vocab_size) < tokenizer:
        raise ValueError(
            f"Tokenizer.to_gguf_metadata: vocab_size must be at least the tokenizer's {tokenizer};"
            f" got {vocab_size}"
        )
    return vocab_size


def to_gguf(vocabulary: Vocabulary, vocab_size: int | None = None) -> dict[str, Any]:
    """Describe a vocabulary in llama.cpp's keys; see `Tokenizer.to_gguf_metadata`."""
    if vocabulary.metadata is not None:
        return _again(vocabulary, vocab_size)
    content = json.loads(vocabulary.backend.to_str())
    texts, types = _tokens(content, vocab_size)
    kind = content["model"].get("type")
    special = [token["id"] for token in content["added_tokens"] if token["special"]]
    for token in content["added_tokens"]:
        if token["single_word"]:
            raise refusal(f"added token {token['content']!r} is single_word")
    strips = [t["content"] for t in content["added_tokens"] if t["lstrip"] or t["rstrip"]]
    if strips:
        text = "llama.cpp knows by the names of models which tokens take the space beside them: %s"
        _log.warning(text, ", ".join(strips[:4]))
    if vocabulary.eos_id is None:
        raise refusal("it has no end-of-text token; name one with eos=")
    if bpe.is_byte_level(content):
        described = bpe.describe(content)
    elif spm.is_spaced(content):
        described = spm.describe(content, texts, types)
    elif kind == "WordPiece":
        described = wpm.describe(content, texts, types)
        if not (vocabulary.add_bos and vocabulary.add_eos):
            raise refusal("llama.cpp begins and ends every text of a WordPiece tokenizer")
        described["tokenizer.ggml.seperator_token_id"] = np.uint32(vocabulary.eos_id)
    elif kind == "Unigram":
        described = ugm.describe(content, texts, types)
    else:
        raise refusal(f"its model is {kind!r} and not byte-level BPE, SentencePiece or WordPiece")
    # Without these two llama.cpp takes other tokens.
    bos = vocabulary.eos_id if vocabulary.bos_id is None else vocabulary.bos_id
    metadata: dict[str, Any] = {
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        **described,
        "tokenizer.ggml.bos_token_id": np.uint32(bos),
        "tokenizer.ggml.eos_token_id": np.uint32(vocabulary.eos_id),
        "tokenizer.ggml.add_bos_token": vocabulary.add_bos,
        "tokenizer.ggml.add_eos_token": vocabulary.add_eos,
    }
    unknown = content["model"].get("unk_token")
    number = None if unknown is None else vocabulary.backend.token_to_id(unknown)
    if number is not None:
        metadata["tokenizer.ggml.unknown_token_id"] = np.uint32(number)
    for role, names in _ROLES.items():
        found = next((n for n in special if vocabulary.backend.id_to_token(n) in names), None)
        if found is not None and not bpe.is_byte_level(content):
            metadata[f"tokenizer.ggml.{role}_token_id"] = np.uint32(found)
    return metadata


_ROLES = {"padding": ("<pad>", "[PAD]"), "mask": ("<mask>", "[MASK]"), "cls": ("[CLS]",)}


def _tokens(content: dict[str, Any], vocab_size: int | None) -> tuple[list[str], list[int]]:
    """The tokens of a tokenizer's JSON by id, with their types; fillers for ids without one."""
    vocab = content["model"]["vocab"]
    if isinstance(vocab, dict):
        by_id = {number: token for token, number in vocab.items()}
    else:
        by_id = {number: token for number, (token, _) in enumerate(vocab)}
    types = dict.fromkeys(by_id, NORMAL)
    for token in content["added_tokens"]:
        by_id[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    size = _size(max(by_id) + 1, vocab_size)
    taken = set(by_id.values())
    for number in range(size):
        if number not in by_id:
            by_id[number] = next(name for name in filler_names(number) if name not in taken)
            types[number] = UNUSED
    return [by_id[number] for number in range(size)], [types[number] for number in range(size)]


def _again(vocabulary: Vocabulary, vocab_size: int | None) -> dict[str, Any]:
    """The keys as they were read, for as many tokens as the model has."""
    assert vocabulary.metadata is not None
    assert vocabulary.types is not None
    metadata = dict(vocabulary.metadata)
    size = _size(len(vocabulary.types), vocab_size)
    texts = list(metadata[_PREFIX + "tokens"])[:size]
    taken = set(texts)
    fill = range(len(texts), size)
    texts += [next(name for name in filler_names(n) if name not in taken) for n in fill]
    metadata[_PREFIX + "tokens"] = texts
    for key, filler in (("token_type", UNUSED), ("scores", _FILLER_SCORE)):
        values = metadata.get(_PREFIX + key)
        if values is None and key == "token_type" and fill:
            values = np.full(size - len(fill), NORMAL, np.int32)
        if values is not None:
            padded = np.concatenate([values[:size], np.full(len(fill), filler)])
            metadata[_PREFIX + key] = padded.astype(values.dtype)
    return metadata
