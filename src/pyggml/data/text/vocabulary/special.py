# SPDX-License-Identifier: MIT
"""Special tokens: which tokens are parsed in a text, and the parsing, by llama.cpp's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .fields import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Tokens

if TYPE_CHECKING:
    import tokenizers

__all__ = ["END_NAMES", "Special", "add_special", "retyped", "split_special"]

# Tokens that llama.cpp takes for control tokens, and for ends of a text, by their names.
END_NAMES = frozenset(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn>"
    " <|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance>"
    " <eos> <turn|> <|tool_response> <\uff5cend\u2581of\u2581sentence\uff5c> [e~["
    " <|ifm|im_end|>".split()
)
_MIDDLES = {
    "fim_pre": "<|fim_prefix|> <fim-prefix> <fim_prefix> <\uff5cfim\u2581begin\uff5c> <PRE>"
    " \u2581<PRE> <|code_prefix|> <|prefix|> <|plamo:fim_prefix|>",
    "fim_suf": "<|fim_suffix|> <fim-suffix> <fim_suffix> <\uff5cfim\u2581hole\uff5c> <SUF>"
    " \u2581<SUF> <|code_suffix|> <|suffix|> <|plamo:fim_suffix|>",
    "fim_mid": "<|fim_middle|> <fim-middle> <fim_middle> <\uff5cfim\u2581end\uff5c> <MID>"
    " \u2581<MID> <|code_middle|> <|middle|> <|plamo:fim_middle|>",
    "fim_pad": "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]",
    "fim_rep": "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>",
    "fim_sep": "<|file_sep|> <|plamo:file_separator|>",
}
_OLD_NAMES = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}
_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
# C's `isspace`.
_SPACES = " \t\n\v\f\r"


class Special(NamedTuple):
    """A token that is looked for in a text.

    Attributes:
        text: its spelling.
        number: its id.
        control: whether only a caller who parses special tokens looks for it.
        lstrip: whether it takes the white space before it.
        rstrip: whether it takes the white space after it.
    """

    text: str
    number: int
    control: bool
    lstrip: bool = False
    rstrip: bool = False


def retyped(tokens: Tokens, metadata: Mapping[str, Any]) -> Tokens:
    """Return the tokens with the types that llama.cpp gives them by their names."""
    ids = {text: number for number, text in enumerate(tokens.texts)}
    types = list(tokens.types)

    def control(names: Iterable[str]) -> None:
        for name in names:
            if name in ids and types[ids[name]] != UNKNOWN:
                types[ids[name]] = CONTROL

    for role, names in _MIDDLES.items():
        keys = (role, _OLD_NAMES.get(role, role))
        if not any(f"tokenizer.ggml.{key}_token_id" in metadata for key in keys):
            control(names.split())
    control(END_NAMES)
    for name in _SHOWN:
        if name in ids:
            types[ids[name]] = USER_DEFINED
    calls = "<|return|>" in ids and ("<|call|>" in ids or "<|calls|>" in ids)
    flushes = "<|flush|>" in ids and ("<|call|>" in ids or "<|calls|>" in ids)
    if "<|end|>" in ids and (calls or flushes):
        types[ids["<|end|>"]] = USER_DEFINED
    if "</s>" in ids and "<|tool_response>" in ids:
        types[ids["</s>"]] = NORMAL
    return Tokens(tokens.texts, types, tokens.scores)


def _strips(texts: list[str], metadata: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the tokens that take white space before, and after; llama.cpp goes by names."""
    pre, arch, name = (
        str(metadata.get(key, ""))
        for key in ("tokenizer.ggml.pre", "general.architecture", "general.name")
    )
    masked = any(part in pre for part in ("jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"))
    if masked or any(part in arch for part in ("nomic-bert-moe", "jina-bert-v3")):
        return {"<mask>"}, set()
    if any(part in name.lower() for part in ("phi-3", "phi3")):
        return set(), {*texts} - {"<unk>", "<s>", "<|endoftext|>"}
    if "modern-bert" in name.lower():
        return {"[MASK]"}, set()
    return set(), set()


def add_special(backend: tokenizers.Tokenizer, tokens: Tokens, metadata: Mapping[str, Any]) -> None:
    """Add the control, unknown and user-defined tokens to a tokenizer of the library."""
    from tokenizers import AddedToken

    kinds = (CONTROL, UNKNOWN, USER_DEFINED)
    before, after = _strips(tokens.texts, metadata)
    for special in (True, False):
        added = [
            AddedToken(
                text,
                normalized=False,
                special=special,
                lstrip=text in before,
                rstrip=text in after,
            )
            for text, kind in zip(tokens.texts, tokens.types, strict=True)
            if kind in kinds and (kind != USER_DEFINED) == special
        ]
        (backend.add_special_tokens if special else backend.add_tokens)(added)


def split_special(text: str, special: list[Special], parse: bool) -> list[str | int]:
    """Cut a text at its special tokens, which become their ids.

    Args:
        text: the text.
        special: tokens, in the order in which they are looked for: each in the whole text.
        parse: whether control tokens are looked for too.

    Source: llama.cpp, src/llama-vocab.cpp, tokenizer_st_partition.
    """
    parts: list[str | int] = [text] if text else []
    for token in special:
        if (token.control and not parse) or token.text not in text:
            continue
        found: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                found.append(part)
                continue
            pieces = part.split(token.text)
            if token.rstrip:
                pieces[1:] = [piece.lstrip(_SPACES) for piece in pieces[1:]]
            if token.lstrip:
                pieces[:-1] = [piece.rstrip(_SPACES) for piece in pieces[:-1]]
            found += [pieces[0]] if pieces[0] else []
            for piece in pieces[1:]:
                found += [token.number, piece] if piece else [token.number]
        parts = found
    return parts
