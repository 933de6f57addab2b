# SPDX-License-Identifier: MIT
"""Byte-level BPE vocabularies between `tokenizers` and the GGUF keys that llama.cpp reads."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import FormatError

if TYPE_CHECKING:
    import tokenizers

__all__ = [
    "Vocabulary",
    "build",
    "byte_alphabet",
    "cuts_at_newline",
    "from_gguf",
    "is_byte_level",
    "split_steps",
    "to_gguf",
]

_log = logging.getLogger("pyggml.data")

# Token types of llama.cpp's `enum llama_token_type`.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BOTH_CASES = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_LLAMA3 = (
    _ANY_CASE + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_DIGITS = "digits"
# Other spellings of a pattern that match the same text.
_SPELLINGS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": _GPT2,
    _LLAMA3.replace(_ANY_CASE, _BOTH_CASES): _LLAMA3,
    _QWEN2.replace(_ANY_CASE, _BOTH_CASES): _QWEN2,
}


class _Pre(NamedTuple):
    """A way of splitting text: patterns in order, and whether whole words skip the merges."""

    steps: tuple[str, ...]
    ignore_merges: bool


# llama.cpp's names (src/llama-vocab.cpp, b11549); the first of equals is the one that is written.
_PRE: dict[str, _Pre] = {
    **dict.fromkeys(["gpt-2", "phi-2", "mpt", "olmo", "gigachat", "mellum"], _Pre((_GPT2,), False)),
    **dict.fromkeys(["smollm", "starcoder", "refact"], _Pre((_DIGITS, _GPT2), False)),
    **dict.fromkeys(
        ["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"], _Pre((_LLAMA3,), True)
    ),
    **dict.fromkeys(["dbrx", "smaug-bpe"], _Pre((_LLAMA3,), False)),
    **dict.fromkeys(["qwen2", "deepseek-r1-qwen", "stablelm2"], _Pre((_QWEN2,), False)),
}
# llama.cpp adds a beginning-of-text token for these unless the file says otherwise.
_ADDS_BOS = {name for name, pre in _PRE.items() if pre == _PRE["llama-bpe"]}


def byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary.

    Source: `bytes_to_unicode` of OpenAI's GPT-2 encoder.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + number): byte for number, byte in enumerate(others)})
    return table


def _flat(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The members of a pre-tokenizer, whether it is a sequence or a single one."""
    if part is None:
        return []
    return list(part["pretokenizers"]) if part["type"] == "Sequence" else [part]


def is_byte_level(content: dict[str, Any]) -> bool:
    """Return True for a tokenizer (as its JSON) that is a BPE over bytes."""
    pre = _flat(content.get("pre_tokenizer"))
    return content["model"].get("type") == "BPE" and any(p["type"] == "ByteLevel" for p in pre)


def split_steps(content: dict[str, Any]) -> tuple[str, ...]:
    """The patterns that cut text into words, in order.

    Raises:
        FormatError: a step is of a kind that llama.cpp's tokenizer has not.
    """
    steps: list[str] = []
    for part in _flat(content.get("pre_tokenizer")):
        kind = part["type"]
        if kind == "Split":
            whole = (part["behavior"], bool(part["invert"]))
            if whole not in (("Isolated", False), ("Removed", True)):
                raise _refusal(f"pre_tokenizer: Split with behavior {part['behavior']!r}")
            pattern = part["pattern"].get("Regex", "")
            steps.append(_SPELLINGS.get(pattern, pattern))
        elif kind == "Digits" and part["individual_digits"]:
            steps.append(_DIGITS)
        elif kind == "ByteLevel" and not part["add_prefix_space"]:
            steps += [_GPT2] if part["use_regex"] else []
        else:
            raise _refusal(f"pre_tokenizer: {kind} with these settings: {json.dumps(part)}")
    return tuple(steps)


def cuts_at_newline(content: dict[str, Any]) -> bool:
    """Return True if words always end between a letter and a line end.

    Raises:
        FormatError: the way of splitting words is not a known one.
    """
    steps = set(split_steps(content))
    return bool(steps - {_DIGITS}) and steps <= {_DIGITS, _GPT2, _LLAMA3, _QWEN2}


def _refusal(reason: str) -> FormatError:
    return FormatError(
        f"Tokenizer.to_gguf_metadata: llama.cpp has no equal of this tokenizer: {reason};"
        " train one with bpe:SIZE or chars, or use a GPT-2, Llama 3, Qwen 2 or SmolLM tokenizer"
    )


def _check_model(content: dict[str, Any]) -> None:
    """Refuse what a byte-level BPE of llama.cpp would do otherwise."""
    model = content["model"]
    if not is_byte_level(content):
        raise _refusal(f"its model is {model.get('type')!r} and not byte-level BPE")
    for field in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout"):
        if model.get(field):
            raise _refusal(f"model.{field} is {model[field]!r}")
    for token in content["added_tokens"]:
        if token["single_word"] or token["lstrip"] or token["rstrip"]:
            raise _refusal(f"added token {token['content']!r} is single_word, lstrip or rstrip")
    normalizer = content.get("normalizer")
    if normalizer and normalizer["type"] == "NFC":
        _log.warning("llama.cpp does not compose characters (NFC) before it tokenizes")
    elif normalizer:
        raise _refusal(f"its normalizer is {normalizer['type']}")


def _pre_name(content: dict[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer."""
    wanted = _Pre(split_steps(content), bool(content["model"].get("ignore_merges")))
    for name, pre in _PRE.items():
        if pre == wanted:
            return name
    raise _refusal(f"it splits words by {wanted.steps}, ignore_merges={wanted.ignore_merges}")


def _merges(content: dict[str, Any]) -> list[str]:
    merges = []
    for merge in content["model"]["merges"]:
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        if " " in first or " " in second:
            raise _refusal(f"the merge of {first!r} and {second!r} holds a space")
        merges.append(f"{first} {second}")
    return merges


def _fillers(number: int) -> tuple[str, str]:
    """Names of an unused token: the usual one, and one for when that is taken.

    llama.cpp aborts when two tokens have one text.
    """
    return f"[PAD{number}]", f"[PAD{number}|unused]"


class Vocabulary(NamedTuple):
    """A tokenizer of the `tokenizers` library with its first and last tokens."""

    backend: tokenizers.Tokenizer
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool


def to_gguf(vocabulary: Vocabulary, vocab_size: int | None = None) -> dict[str, Any]:
    """Describe a vocabulary in llama.cpp's keys; see `Tokenizer.to_gguf_metadata`."""
    content = json.loads(vocabulary.backend.to_str())
    _check_model(content)
    pre = _pre_name(content)
    if vocabulary.eos_id is None:
        raise _refusal("it has no end-of-text token; name one with eos=")
    by_id = {number: token for token, number in content["model"]["vocab"].items()}
    types = dict.fromkeys(by_id, NORMAL)
    for token in content["added_tokens"]:
        by_id[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    size = max(by_id) + 1
    if vocab_size is not None and vocab_size < size:
        raise ValueError(
            f"Tokenizer.to_gguf_metadata: vocab_size must be at least the tokenizer's {size};"
            f" got {vocab_size}"
        )
    taken = set(by_id.values())
    for number in range(vocab_size or size):
        if number not in by_id:
            by_id[number] = next(name for name in _fillers(number) if name not in taken)
            types[number] = UNUSED
    ids = range(len(by_id))
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [by_id[number] for number in ids],
        "tokenizer.ggml.token_type": np.array([types[number] for number in ids], np.int32),
        "tokenizer.ggml.merges": _merges(content),
        # Without these two llama.cpp takes token 11 for both.
        "tokenizer.ggml.bos_token_id": np.uint32(
            vocabulary.eos_id if vocabulary.bos_id is None else vocabulary.bos_id
        ),
        "tokenizer.ggml.eos_token_id": np.uint32(vocabulary.eos_id),
        "tokenizer.ggml.add_bos_token": vocabulary.add_bos,
        "tokenizer.ggml.add_eos_token": vocabulary.add_eos,
        "tokenizer.ggml.add_space_prefix": False,
    }
    unknown = content["model"].get("unk_token")
    if unknown is not None and unknown in taken:
        unknown_id = vocabulary.backend.token_to_id(unknown)
        metadata["tokenizer.ggml.unknown_token_id"] = np.uint32(unknown_id or 0)
    return metadata


def _field(metadata: Mapping[str, Any], key: str, default: Any = None) -> Any:
    key = f"tokenizer.ggml.{key}"
    value = metadata.get(key, default)
    if value is None:
        raise FormatError(
            f"Tokenizer.from_gguf_metadata: {key}: missing; the file has no vocabulary"
        )
    return value


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    values = _field(metadata, key)
    # An empty array carries no strings, whatever its type.
    values = list(values) if isinstance(values, (list, np.ndarray)) else [values]
    if not all(isinstance(value, str) for value in values):
        raise FormatError(
            f"Tokenizer.from_gguf_metadata: tokenizer.ggml.{key}: must be an array of strings"
        )
    return values


def _token_id(metadata: Mapping[str, Any], key: str, size: int) -> int | None:
    """A special token's id; llama.cpp's default of 11 where the file is silent."""
    value = metadata.get(f"tokenizer.ggml.{key}")
    if value is None:
        return 11 if size > 11 else None
    if isinstance(value, (bool, str)) or not 0 <= int(value) < size:
        raise FormatError(
            f"Tokenizer.from_gguf_metadata: tokenizer.ggml.{key}: must be below {size} tokens;"
            f" got {value!r}"
        )
    return int(value)


def _read_tokens(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """Tokens and their types, without the unused ones that pad a vocabulary at its end."""
    tokens = _strings(metadata, "tokens")
    types = [int(t) for t in np.asarray(_field(metadata, "token_type", [NORMAL] * len(tokens)))]
    if len(types) != len(tokens):
        raise FormatError(
            f"Tokenizer.from_gguf_metadata: tokenizer.ggml.token_type: must have {len(tokens)}"
            f" entries, one per token; got {len(types)}"
        )
    while tokens and types[-1] == UNUSED and tokens[-1] in _fillers(len(tokens) - 1):
        tokens.pop()
        types.pop()
    if len(set(tokens)) != len(tokens):
        seen: set[str] = set()
        twice = next(token for token in tokens if token in seen or seen.add(token))  # type: ignore[func-returns-value]
        raise FormatError(
            f"Tokenizer.from_gguf_metadata: tokenizer.ggml.tokens: {twice!r} occurs twice"
        )
    if not tokens:
        raise FormatError("Tokenizer.from_gguf_metadata: tokenizer.ggml.tokens: is empty")
    return tokens, types


def _read_merges(metadata: Mapping[str, Any], known: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for merge in _strings(metadata, "merges"):
        first, _, second = merge.partition(" ")
        if first not in known or second not in known or first + second not in known:
            raise FormatError(
                f"Tokenizer.from_gguf_metadata: tokenizer.ggml.merges: {merge!r} must be two tokens"
                " whose joint text is a token too"
            )
        merges.append((first, second))
    return merges


def _pre_tokenizer(steps: tuple[str, ...]) -> Any:
    from tokenizers import Regex, pre_tokenizers

    parts: list[Any] = []
    for step in steps:
        if step == _DIGITS:
            parts.append(pre_tokenizers.Digits(individual_digits=True))
        elif step != _GPT2:
            parts.append(pre_tokenizers.Split(Regex(step), "isolated"))
    parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=_GPT2 in steps))
    return parts[0] if len(parts) == 1 else pre_tokenizers.Sequence(parts)


def build(
    known: dict[str, int], merges: list[tuple[str, str]], pre: str = "gpt-2"
) -> tokenizers.Tokenizer:
    """A byte-level BPE of the `tokenizers` library with a pre-tokenizer of llama.cpp's name."""
    from tokenizers import Tokenizer, decoders, models, processors

    backend = Tokenizer(models.BPE(known, merges, ignore_merges=_PRE[pre].ignore_merges))
    backend.pre_tokenizer = _pre_tokenizer(_PRE[pre].steps)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend


def _template(backend: tokenizers.Tokenizer, bos: int | None, eos: int | None) -> Any:
    """A post-processor that puts the given tokens before and after the text."""
    from tokenizers import processors

    pairs = [(backend.id_to_token(number), number) for number in (bos, eos) if number is not None]
    start = f"{backend.id_to_token(bos)}:0 " if bos is not None else ""
    end = f" {backend.id_to_token(eos)}:0" if eos is not None else ""
    return processors.TemplateProcessing(single=f"{start}$A:0{end}", special_tokens=pairs)


def from_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """Rebuild a vocabulary from llama.cpp's keys; see `Tokenizer.from_gguf_metadata`."""
    from tokenizers import AddedToken

    model = _field(metadata, "model")
    if model != "gpt2":
        raise FormatError(
            f"Tokenizer.from_gguf_metadata: tokenizer.ggml.model: must be 'gpt2' (byte-level BPE);"
            f" got {model!r}, which is not supported; give a tokenizer JSON file instead"
        )
    pre = _field(metadata, "pre", "default")
    if pre not in _PRE:
        raise FormatError(
            f"Tokenizer.from_gguf_metadata: tokenizer.ggml.pre: must be one of {', '.join(_PRE)};"
            f" got {pre!r}; give a tokenizer JSON file instead"
        )
    tokens, types = _read_tokens(metadata)
    known = {token: number for number, token in enumerate(tokens)}
    backend = build(known, _read_merges(metadata, known), pre)
    for token, kind in zip(tokens, types, strict=True):
        if kind in (CONTROL, UNKNOWN):
            backend.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif kind == USER_DEFINED:
            backend.add_tokens([AddedToken(token, normalized=False)])
    bos = _token_id(metadata, "bos_token_id", len(tokens))
    eos = _token_id(metadata, "eos_token_id", len(tokens))
    add_bos = bool(_field(metadata, "add_bos_token", pre in _ADDS_BOS)) and bos is not None
    add_eos = bool(_field(metadata, "add_eos_token", False)) and eos is not None
    if add_bos or add_eos:
        backend.post_processor = _template(
            backend, bos if add_bos else None, eos if add_eos else None
        )
    return Vocabulary(backend, bos, eos, add_bos, add_eos)
