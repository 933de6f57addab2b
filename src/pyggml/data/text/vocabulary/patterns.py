# SPDX-License-Identifier: MIT
"""Ways of cutting text into words, by llama.cpp's names of them.

Each model's publisher defined its patterns; the table has them as llama.cpp applies them, one after
another, each to the pieces that the one before left.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["APPROXIMATE", "PRE_TOKENIZERS", "Pre", "SPELLINGS", "cuts_at_newline", "reason_against"]

_ENDINGS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_ENDINGS_ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHER = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ASCII_WORD = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_LETTERS_MARKS = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"

_DIGIT = r"\p{N}"
_DIGITS_3 = r"\p{N}{1,3}"
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = f"{_ENDINGS}|{_LETTERS}|{_DIGITS_3}|{_OTHER}|{_SPACE}"
_QWEN2 = f"{_ENDINGS}|{_LETTERS}|{_DIGIT}|{_OTHER}|{_SPACE}"
_QWEN35 = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|{_DIGIT}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_JAIS2 = (
    rf"{_ENDINGS}|{_LETTERS}|{_DIGITS_3}|{_OTHER}|\s*[\r\n]+|"
    + "".join(rf"\s{{{count}}}(?!\S)|" for count in (512, 256, 128, 64, 32, 16, 8, 4))
    + r"\s{1,2}(?!\S)|\s{1}"
)
# Runs of letters from capitals to small ones; llama.cpp tells only A-Z from a-z.
_CASED = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"((?=[\p{L}])([^a-z]))", r"((?=[\p{L}])([^A-Z]))"
_CASED_REST = rf"{_DIGITS_3}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACE}"
_TEKKEN = (
    rf"{_CASED}{_UPPER}*{_LOWER}+|{_CASED}{_UPPER}+{_LOWER}*|{_DIGIT}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACE}"
)
_GPT4O = (
    f"{_CASED}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_CASED}{_UPPER}+{_LOWER}*{_ENDINGS}?|{_CASED_REST}"
)
_GRANITE_EMBED = _GPT4O.replace(r"(?=[\p{L}])", r"(?=[\p{L}\p{M}])")
# Here capitals and small letters are one class.
_UNCASED = rf"{_CASED}[\p{{L}}\p{{M}}]+{_ENDINGS}?|"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_MAIN = rf"{_ASCII_WORD}|{_LETTERS_MARKS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACE}"
_DEEPSEEK_V3 = (_DIGITS_3, _CJK, _DEEPSEEK_MAIN)
_SPARK = (
    *_DEEPSEEK_V3[:2],
    rf"{_ASCII_WORD}|{_LETTERS_MARKS}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
    _DIGIT,
)
# llama.cpp takes no white space for one of the range.
_DEEPSEEK_CJK = r"(?:(?!\s)" + "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff])+"
_DEEPSEEK_LLM = (
    "[\r\n]",
    r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    r"\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    r"\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5"
    r"\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    r"\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    r"\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    r"\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    r"\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    r"\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    r"\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    r"\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    r"\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    r"\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+".encode("ascii").decode(
        "raw_unicode_escape"
    ),
    # llama.cpp takes U+3000, with which the publisher's last range begins, for a space.
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001-\u3002]+",
    r"\s+$",
    _DEEPSEEK_CJK,
    r"\p{N}+",
)
_DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, _DIGIT)
_YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    _UNCASED + _CASED_REST.replace("{1,3}", ""),
)
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
# Digits in threes from the right; the text before a number stays with its first digits.
_DIGITS_FROM_RIGHT = r"\P{N}*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_THREES = "(?:[0-9]{3})+(?![0-9])"
_HAN = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\U0002ceb0-\U0002ebef\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_KIMI = rf"[{_HAN}]+|{_CASED}(?:(?![{_HAN}])\p{{L}})+{_ENDINGS}?|{_DIGITS_3}|{_OTHER}|{_SPACE}"
_AFMOE = (
    _DIGITS_FROM_RIGHT,
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+",
    _DEEPSEEK_MAIN,
)
_CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    _DIGIT,
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_BAILING = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|"
    rf"{_LETTERS}|{_DIGIT}|{_OTHER}|\s*[\r\n]|\s+(?!\S)|\s+"
)
_EXAONE_MOE = (
    rf"{_ENDINGS}|{_CASED}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|{_DIGIT}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_K2_HORIZON = (
    _ENDINGS.replace("'[sS]", "'[sS\u017f]")
    + rf"|{_CASED}[\p{{L}}\p{{M}}"
    + "\u200c\u200d"
    + f"]+|{_DIGITS_3}|{_OTHER}|{_SPACE}"
)
_SEED = rf"{_ENDINGS}|{_LETTERS}|{_DIGIT}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACE}"
_LINES = r"[^\n]+|[\n]+"


class Pre(NamedTuple):
    """A way of cutting text into words.

    Attributes:
        steps: patterns in order; each cuts the pieces of the one before.
        ignore_merges: whether a whole word that is a token skips the merges.
        adds_bos: whether the first token is added unless the file says otherwise.
        byte_level: whether words become bytes; otherwise spaces become U+2581, and characters
            without a token bytes.
        no_bos: whether there is no first token unless the file names one.
    """

    steps: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    byte_level: bool = True
    no_bos: bool = False


def _names(names: str, pre: Pre) -> dict[str, Pre]:
    return dict.fromkeys(names.split(), pre)


PRE_TOKENIZERS: dict[str, Pre] = {
    **_names(
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 jina-es jina-de gigachat"
        " jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en jina-v2-code roberta-bpe",
        Pre((_GPT2,)),
    ),
    **_names(
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        Pre((_DIGIT, _GPT2)),
    ),
    **_names(
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        Pre((_LLAMA3,), ignore_merges=True, adds_bos=True),
    ),
    **_names("dbrx smaug-bpe", Pre((_LLAMA3,))),
    **_names("chatglm-bpe", Pre((_LLAMA3,), no_bos=True)),
    **_names("glm4 glm5", Pre((_LLAMA3,), ignore_merges=True, no_bos=True)),
    **_names(
        "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        Pre((_QWEN2,)),
    ),
    **_names("qwen35", Pre((_QWEN35,))),
    **_names("jais-2", Pre((_JAIS2,))),
    **_names("tekken", Pre((_TEKKEN,), ignore_merges=True, adds_bos=True)),
    **_names("gpt-4o llama4 kanana2 talkie minimax-m2", Pre((_GPT4O,))),
    **_names("granite-embed-multi-97m", Pre((_GRANITE_EMBED,), ignore_merges=True)),
    **_names("tiny_aya cohere2moe", Pre((_DIGITS_FROM_RIGHT, _UNCASED + _CASED_REST))),
    **_names("deepseek-v3 hunyuan-dense hy_v4 joyai-llm", Pre(_DEEPSEEK_V3)),
    **_names("spark2_5", Pre(_SPARK)),
    **_names("deepseek-llm", Pre(_DEEPSEEK_LLM)),
    **_names("deepseek-coder", Pre(_DEEPSEEK_CODER)),
    **_names("youtu", Pre(_YOUTU, ignore_merges=True)),
    **_names("falcon", Pre((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"))),
    **_names("poro-chat bloom gpt3-finnish", Pre((_BLOOM,))),
    **_names("viking", Pre((_BLOOM, _DIGIT))),
    **_names("chameleon", Pre(_CHAMELEON, adds_bos=True)),
    **_names("kimi-k2", Pre((_KIMI,))),
    **_names("superbpe", Pre((r"\p{N}+", rf"(?={_THREES})[\s\S](?:(?!{_THREES})[\s\S])*"))),
    **_names("bailingmoe bailingmoe2 llada-moe", Pre((_BAILING,))),
    **_names("seed-coder", Pre((_SEED,))),
    **_names("ufakzeka", Pre((f"{_LETTERS}|{_DIGIT}|{_OTHER}|{_SPACE}",))),
    **_names("afmoe", Pre(_AFMOE)),
    **_names("laguna", Pre((_LINES, _QWEN2))),
    **_names("exaone-moe", Pre((_EXAONE_MOE,))),
    **_names(
        "minicpm5",
        Pre((_DIGITS_3, _LLAMA3.replace(_DIGITS_3, r"\p{N}+")), ignore_merges=True),
    ),
    **_names("k2-horizon", Pre((_K2_HORIZON,))),
    **_names("gemma4 granite-embed-multi-311m", Pre((_LINES,), adds_bos=True, byte_level=False)),
    **_names("sarvam-moe", Pre((_LINES,), byte_level=False)),
    **_names("mmbert", Pre(("\n+|\u2581[^\u2581\n]*|[^\u2581\n]+",), byte_level=False)),
    "default": Pre(
        (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    ),
}
"""llama.cpp's names (src/llama-vocab.cpp, b11549); of equals the first is written."""

_REASONS = {"whitespace": "it drops white space, so ids do not give the text back"}

SPELLINGS: dict[str, str] = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": _GPT2,
    **{
        pattern.replace(_ENDINGS, _ENDINGS_ANY_CASE): pattern
        for pattern in (_LLAMA3, _QWEN2, _QWEN35, _JAIS2, _SEED, _EXAONE_MOE)
    },
}
"""Other spellings of a pattern that match the same text."""

_TITLE = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_WORDS = rf"{_CASED}{_TITLE[0]}*{_TITLE[1]}+END|{_CASED}{_TITLE[0]}+{_TITLE[1]}*END|".replace
APPROXIMATE: dict[str, str] = {
    _CASED_WORDS("END", "") + _TEKKEN[_TEKKEN.index(_DIGIT + "| ?[^") :]: _TEKKEN,
    _CASED_WORDS("END", _ENDINGS_ANY_CASE + "?") + _CASED_REST: _GPT4O,
}
"""Patterns of publishers to those that llama.cpp has for them, which cut some words elsewhere."""

# Patterns whose words end between a letter and a line end, and some that touch digits only.
_CUTTING = {_GPT2, _LLAMA3, _QWEN2, _QWEN35, _JAIS2, _SEED}
_DIGITS_ONLY = {_DIGIT, _DIGITS_3}


def cuts_at_newline(steps: tuple[str, ...]) -> bool:
    """Return True if words always end between a letter and a line end."""
    return bool(_CUTTING & {*steps}) and {*steps} <= _CUTTING | _DIGITS_ONLY


def reason_against(name: str) -> str:
    """Return why a name of llama.cpp is not in the table."""
    return _REASONS.get(name, "llama.cpp b11549 has no such name")
