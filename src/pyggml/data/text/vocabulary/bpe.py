# SPDX-License-Identifier: MIT
"""Vocabularies with merges, between `tokenizers` and GGUF: byte-level, or with escaped spaces."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .fields import Tokens, bad, refusal, strings
from .patterns import APPROXIMATE, PRE_TOKENIZERS, SPELLINGS, Pre, cuts_at_newline

if TYPE_CHECKING:
    import tokenizers

__all__ = [
    "build",
    "byte_alphabet",
    "cuttable",
    "describe",
    "escaped",
    "is_byte_level",
    "merges_of",
    "read",
    "spaced_decoder",
    "split_steps",
]

_log = logging.getLogger("pyggml.data")

_SPACE = "\u2581"
_GPT2 = PRE_TOKENIZERS["gpt-2"].steps[0]


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
                raise refusal(f"pre_tokenizer: Split with behavior {part['behavior']!r}")
            pattern = part["pattern"].get("Regex", "")
            steps.append(SPELLINGS.get(pattern, pattern))
        elif kind == "Digits" and part["individual_digits"]:
            steps.append(r"\p{N}")
        elif kind == "ByteLevel" and not part["add_prefix_space"]:
            steps += [_GPT2] if part["use_regex"] else []
        else:
            raise refusal(f"pre_tokenizer: {kind} with these settings: {json.dumps(part)}")
    return tuple(steps)


def cuttable(content: dict[str, Any]) -> bool:
    """Return True if words always end between a letter and a line end.

    Raises:
        FormatError: the way of splitting words is not a known one.
    """
    return cuts_at_newline(split_steps(content))


def _check_model(content: dict[str, Any]) -> None:
    """Raise on what llama.cpp's byte-level BPE would do otherwise."""
    model = content["model"]
    for field in ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout"):
        if model.get(field):
            raise refusal(f"model.{field} is {model[field]!r}")
    normalizer = content.get("normalizer")
    if normalizer and normalizer["type"] == "NFC":
        _log.warning("llama.cpp does not compose characters (NFC) before it tokenizes")
    elif normalizer:
        raise refusal(f"its normalizer is {normalizer['type']}")


def _pre_name(content: dict[str, Any]) -> str:
    """llama.cpp's name of the pre-tokenizer."""
    found = split_steps(content)
    steps = tuple(APPROXIMATE.get(step, step) for step in found)
    ignore_merges = bool(content["model"].get("ignore_merges"))
    for name, pre in PRE_TOKENIZERS.items():
        if pre.byte_level and (pre.steps, pre.ignore_merges) == (steps, ignore_merges):
            if steps != found:
                _log.warning("llama.cpp cuts some words of this tokenizer (%s) elsewhere", name)
            return name
    raise refusal(f"it splits words by {found}, ignore_merges={ignore_merges}")


def merges_of(content: dict[str, Any]) -> list[str]:
    """Return the merges of a BPE as GGUF spells them."""
    merges = []
    for merge in content["model"]["merges"]:
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        if " " in first or " " in second:
            raise refusal(f"the merge of {first!r} and {second!r} holds a space")
        merges.append(f"{first} {second}")
    return merges


def describe(content: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a byte-level BPE, without the tokens.

    Args:
        content: the JSON of the tokenizer.

    Raises:
        FormatError: llama.cpp would tokenize differently.
    """
    _check_model(content)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": _pre_name(content),
        "tokenizer.ggml.merges": merges_of(content),
        "tokenizer.ggml.add_space_prefix": False,
    }


def _read_merges(metadata: Mapping[str, Any], known: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for merge in strings(metadata, "merges"):
        # A token may begin with a space.
        place = merge.find(" ", 1)
        first, second = merge[:place], merge[place + 1 :]
        if place < 0 or first not in known or second not in known or first + second not in known:
            raise bad("merges", f"{merge!r:.80} must be two tokens whose joint text is a token too")
        merges.append((first, second))
    # Of equal merges the first counts.
    return list(dict.fromkeys(merges))


def _pre_tokenizer(pre: Pre) -> Any:
    from tokenizers import Regex, pre_tokenizers

    whole = pre.byte_level and pre.steps[-1] == _GPT2
    steps = pre.steps[:-1] if whole else pre.steps
    parts: list[Any] = [pre_tokenizers.Split(Regex(step), "isolated") for step in steps]
    if pre.byte_level:
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=whole))
    return parts[0] if len(parts) == 1 else pre_tokenizers.Sequence(parts)


def build(
    known: dict[str, int], merges: list[tuple[str, str]], pre: str = "gpt-2"
) -> tokenizers.Tokenizer:
    """A byte-level BPE of the `tokenizers` library with a pre-tokenizer of llama.cpp's name."""
    from tokenizers import Tokenizer, decoders, models, processors

    way = PRE_TOKENIZERS[pre]
    backend = Tokenizer(models.BPE(known, merges, ignore_merges=way.ignore_merges))
    backend.pre_tokenizer = _pre_tokenizer(way)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return backend


def spaced_decoder(strip: bool) -> Any:
    """Return the library's decoder of tokens with U+2581 for spaces, and byte tokens."""
    from tokenizers import decoders

    parts = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if strip else [])])


def escaped(known: dict[str, int], merges: list[tuple[str, str]], pre: str) -> tokenizers.Tokenizer:
    """A BPE over characters, with U+2581 for spaces and bytes for unknown characters."""
    from tokenizers import Regex, Tokenizer, models, normalizers

    backend = Tokenizer(models.BPE(known, merges, byte_fallback=True))
    normal: list[Any] = [normalizers.Replace(" ", _SPACE)]
    if pre == "mmbert":
        # Each line begins with a space.
        normal.append(normalizers.Replace(Regex(f"(?<![^\n])(?=[^\n{_SPACE}])"), _SPACE))
    backend.normalizer = normalizers.Sequence(normal)
    backend.pre_tokenizer = _pre_tokenizer(PRE_TOKENIZERS[pre])
    backend.decoder = spaced_decoder(strip=False)
    if pre in ("gemma4", "granite-embed-multi-311m", "mmbert"):
        # llama.cpp takes a run of line ends that is a token whole; the merges must give it too.
        for text, number in known.items():
            if not text.strip("\n") and backend.encode(text).ids != [number]:
                raise bad("merges", f"do not make the token of {len(text)} line ends")
    return backend


def read(metadata: Mapping[str, Any], tokens: Tokens, pre: str) -> tokenizers.Tokenizer:
    """Rebuild a tokenizer with merges.

    Args:
        metadata: values by key.
        tokens: the tokens.
        pre: a name of `PRE_TOKENIZERS`.

    Raises:
        FormatError: a merge is not of two tokens.
    """
    known = {text: number for number, text in enumerate(tokens.texts)}
    # Kimi's files have none.
    bare = pre == "kimi-k2" and "tokenizer.ggml.merges" not in metadata
    merges = [] if bare else _read_merges(metadata, known)
    return (build if PRE_TOKENIZERS[pre].byte_level else escaped)(known, merges, pre)
