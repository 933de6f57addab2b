# SPDX-License-Identifier: MIT
"""WordPiece vocabularies ("bert" in GGUF).

The file spells the first piece of a word with U+2581 before it and the others bare; the library
spells the first bare and the others with `##`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .fields import NORMAL, Tokens, bad, flag, refusal

if TYPE_CHECKING:
    import tokenizers

__all__ = ["describe", "read", "respelt"]

_log = logging.getLogger("pyggml.data")

_SPACE = "\u2581"
# The library tries every length of a piece: a word of n letters takes time like n ** 2.
_WORD_MAX = 1000
_CHINESE = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
# The punctuation of Unicode and the symbols of ASCII.
_SINGLE = rf"[\p{{P}}$+<=>^`|~{_CHINESE}]"


def respelt(tokens: Tokens, unknown: int | None = None) -> list[str]:
    """Return the library's spelling of the tokens of a file.

    Raises:
        FormatError: two tokens get one spelling.
    """
    texts = []
    for number, (text, kind) in enumerate(zip(tokens.texts, tokens.types, strict=True)):
        if kind != NORMAL or number == unknown or (text.startswith("[") and text.endswith("]")):
            texts.append(text)
        elif text.startswith(_SPACE) and len(text) > 1:
            texts.append(text[1:])
        else:
            texts.append("##" + text)
    if len(set(texts)) != len(texts):
        seen: set[str] = set()
        twice = next(text for text in texts if text in seen or seen.add(text))  # type: ignore[func-returns-value]
        raise bad("tokens", f"two of them stand for {twice!r}")
    return texts


def _normalizer(lowercase: bool, strip_accents: bool) -> Any:
    """llama.cpp's cleaning of a text, in steps of the library."""
    from tokenizers import Regex, normalizers

    def replace(pattern: str, text: str) -> Any:
        return normalizers.Replace(Regex(pattern), text)

    steps: list[Any] = []
    if strip_accents:
        # llama.cpp keeps the first letter of what a character is composed of, also of Hangul.
        for first in range(19):
            start = 0xAC00 + 588 * first
            steps.append(replace(f"[{chr(start)}-{chr(start + 587)}]", chr(0x1100 + first)))
        steps.append(normalizers.NFD())
    steps.append(replace(r"[\p{Cc}\p{Cf}\p{Co}\ufffd&&[^\s]]", ""))
    if strip_accents:
        steps.append(replace(r"\p{M}", ""))
    if lowercase:
        steps += [normalizers.Replace("\u0130", "i"), normalizers.Lowercase()]
    return normalizers.Sequence(steps)


def read(metadata: Mapping[str, Any], tokens: Tokens, unknown: int | None) -> tokenizers.Tokenizer:
    """Rebuild a WordPiece tokenizer.

    Args:
        metadata: values by key.
        tokens: the tokens, as the library spells them.
        unknown: id of the token of words that have no pieces.

    Raises:
        FormatError: there is no such token.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    if unknown is None:
        raise bad("unknown_token_id", "missing, and there are too few tokens for 100")
    lowercase = flag(metadata, "normalizer.lowercase", True)
    strip_accents = flag(metadata, "normalizer.strip_accents", lowercase)
    known = {text: number for number, text in enumerate(tokens.texts)}
    backend = Tokenizer(
        models.WordPiece(known, unk_token=tokens.texts[unknown], max_input_chars_per_word=_WORD_MAX)
    )
    backend.normalizer = _normalizer(lowercase, strip_accents)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\s+"), "removed"),
            pre_tokenizers.Split(Regex(_SINGLE), "isolated"),
        ]
    )
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return backend


def describe(content: dict[str, Any], texts: list[str], types: list[int]) -> dict[str, Any]:
    """Return the keys of a WordPiece vocabulary, without the tokens, and respell the tokens.

    Args:
        content: the JSON of the tokenizer.
        texts: the tokens by id; each gets the spelling of the file.
        types: their types.

    Raises:
        FormatError: llama.cpp would tokenize differently.
    """
    model = content["model"]
    if model.get("continuing_subword_prefix") != "##":
        raise refusal(f"its pieces begin with {model.get('continuing_subword_prefix')!r}")
    lowercase, strip_accents = _settings(content)
    for number, text in enumerate(texts):
        if types[number] != NORMAL or (text.startswith("[") and text.endswith("]")):
            continue
        texts[number] = text[2:] if text.startswith("##") and len(text) > 2 else _SPACE + text
    if len(set(texts)) != len(texts):
        raise refusal("two of its pieces have one spelling in a GGUF file")
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.normalizer.lowercase": lowercase,
        "tokenizer.ggml.normalizer.strip_accents": strip_accents,
    }


def _settings(content: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether letters become lower-case, and whether they lose their accents."""
    normalizer, pre = content.get("normalizer") or {}, content.get("pre_tokenizer") or {}
    for lowercase in (True, False):
        for strip_accents in (True, False):
            if normalizer == _as_json(_normalizer(lowercase, strip_accents)):
                return lowercase, strip_accents
    if normalizer.get("type") != "BertNormalizer" or pre.get("type") != "BertPreTokenizer":
        raise refusal("it normalizes or splits text in another way than BERT")
    if not normalizer["clean_text"] or not normalizer["handle_chinese_chars"]:
        raise refusal("its BertNormalizer does not clean the text or does not split Chinese")
    lowercase = bool(normalizer["lowercase"])
    strip_accents = normalizer["strip_accents"]
    _log.warning("llama.cpp normalizes some scripts, such as Hangul, in another way than BERT")
    return lowercase, lowercase if strip_accents is None else bool(strip_accents)


def _as_json(normalizer: Any) -> Any:
    """The JSON of a normalizer of the library."""
    return json.loads(normalizer.__getstate__())
