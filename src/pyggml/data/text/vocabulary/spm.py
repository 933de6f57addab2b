# SPDX-License-Identifier: MIT
"""SentencePiece vocabularies ("llama" in GGUF), as a BPE of the `tokenizers` library.

llama.cpp joins the two neighbours whose joint token has the highest score, the leftmost first. A
BPE joins by the rank of the pair. The two agree where the pairs are ranked by the score of their
joint token. Of tokens with equal scores the rank decides, wherever they stand in the text: pairs
that can compete for a symbol are ranked so that the left one wins, and a vocabulary where no order
does that is refused.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np

from .bpe import merges_of, spaced_decoder
from .fields import BYTE, CONTROL, NORMAL, UNKNOWN, Tokens, bad, byte_of, flag, refusal

if TYPE_CHECKING:
    import tokenizers

    from ....errors import FormatError

__all__ = ["describe", "is_spaced", "read", "scores_of"]

_log = logging.getLogger("pyggml.data")

_SPACE = "\u2581"
Pair = tuple[str, str]
# The longest of known vocabularies have some dozens; each place in a token may be a pair's.
_LENGTH_MAX = 2000


def _pairs(tokens: Tokens, reachable: dict[str, int]) -> dict[str, list[Pair]]:
    """The pairs that make each token; a pair's parts are characters or made of pairs themselves."""
    longest = max(reachable, key=len)
    if len(longest) > _LENGTH_MAX:
        raise bad("tokens", f"have at most {_LENGTH_MAX} characters; {longest!r:.40} has more")
    found: dict[str, list[Pair]] = {}
    for text in sorted((text for text in reachable if len(text) > 1), key=len):
        pairs = [
            (text[:cut], text[cut:])
            for cut in range(1, len(text))
            if (cut == 1 or text[:cut] in found) and (cut == len(text) - 1 or text[cut:] in found)
        ]
        if pairs:
            found[text] = pairs
    for text, pairs in found.items():
        lost = next((part for pair in pairs for part in pair if part not in reachable), None)
        if lost is not None:
            raise bad("tokens", f"{text!r:.60} has {lost!r}, which is no token")
    return found


def _untie(pairs: list[Pair], higher: set[Pair]) -> list[Pair]:
    """Order pairs of one score such that of two that share a symbol the left one comes first.

    Args:
        pairs: the pairs.
        higher: the pairs of higher scores, which are joined as soon as they arise.

    Raises:
        FormatError: there is no such order, or joining one pair gives a pair of a higher score.
    """
    made = {first + second for first, second in pairs}
    # A token that repeats a string grows from its left end: the longest comes first.
    pairs = sorted(pairs, key=lambda pair: (-len(pair[0] + pair[1]), -len(pair[0]), pair))
    if len(made) == 1:
        return pairs
    for first, second in higher:
        if first in made or second in made:
            raise _tied(first if first in made else second, *made)
    lefts: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        lefts[pair[0]].append(pair)
    before: dict[Pair, list[Pair]] = {pair: [] for pair in pairs}
    for pair in pairs:
        for right in lefts.get(pair[1], ()):
            if right != pair and len({*pair[0], *pair[1], *right[1]}) > 1:
                before[right].append(pair)
    try:
        # Without a reason for another order it keeps this one.
        return list(TopologicalSorter(before).static_order()) if any(before.values()) else pairs
    except CycleError as error:
        raise _tied(*(first + second for first, second in error.args[1])) from None


def _tied(*texts: str) -> FormatError:
    shown = ", ".join(map(repr, dict.fromkeys(texts[:3])))
    return bad(
        "scores",
        f"of tokens that can overlap must differ; those of {shown} are equal, and merges cannot say"
        " that the left one comes first; give a tokenizer JSON file instead",
    )


def merges(tokens: Tokens) -> list[Pair]:
    """Return the pairs of a vocabulary in the order in which they are joined.

    Args:
        tokens: with scores.

    Raises:
        FormatError: merges cannot do what the scores say.
    """
    assert tokens.scores is not None
    # A byte token stands for a byte, not for its spelling.
    ids = {t: n for n, t in enumerate(tokens.texts) if tokens.types[n] != BYTE}
    by_score: dict[float, list[Pair]] = defaultdict(list)
    for text, pairs in _pairs(tokens, ids).items():
        by_score[float(tokens.scores[ids[text]])].extend(pairs)
    ordered: list[Pair] = []
    higher: set[Pair] = set()
    for score in sorted(by_score, reverse=True):
        tied = by_score[score]
        ordered += tied if len(tied) == 1 else _untie(tied, higher)
        higher.update(tied)
    return ordered


def read(metadata: Mapping[str, Any], tokens: Tokens) -> tokenizers.Tokenizer:
    """Rebuild a SentencePiece tokenizer.

    Args:
        metadata: values by key.
        tokens: with scores.

    Raises:
        FormatError: a byte token is not one, or merges cannot do what the scores say.
    """
    from tokenizers import Tokenizer, models, normalizers

    for text, kind in zip(tokens.texts, tokens.types, strict=True):
        if kind == BYTE and byte_of(text) is None:
            raise bad("token_type", f"of {text!r:.40} must not be a byte's: <0x0A> is")
    known = {text: number for number, text in enumerate(tokens.texts)}
    backend = Tokenizer(models.BPE(known, merges(tokens), byte_fallback=True))
    prefix = flag(metadata, "add_space_prefix", True)
    normal = [normalizers.Prepend(_SPACE)] if prefix else []
    backend.normalizer = normalizers.Sequence([*normal, normalizers.Replace(" ", _SPACE)])
    backend.decoder = spaced_decoder(strip=prefix)
    return backend


def is_spaced(content: dict[str, Any]) -> bool:
    """Return True for a BPE (as its JSON) over characters with U+2581 for spaces."""
    model = content["model"]
    return model.get("type") == "BPE" and bool(model.get("byte_fallback"))


def _prefix(content: dict[str, Any]) -> bool:
    """Return True if a text gets a space before it; refuse other ways of handling spaces."""
    normalizer = content.get("normalizer")
    parts = [] if normalizer is None else normalizer.get("normalizers", [normalizer])
    replaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prepends = {"type": "Prepend", "prepend": _SPACE}
    pre = content.get("pre_tokenizer")
    if pre is None or _only_spaces(pre):
        if parts in ([replaces], [prepends, replaces]):
            return len(parts) == 2
    elif pre["type"] == "Metaspace" and not parts and not pre.get("split", True):
        if pre.get("prepend_scheme", "always") == "never":
            return False
        _log.warning("llama.cpp puts a space also before a text that begins with one")
        return True
    raise refusal("it normalizes or splits text in another way than SentencePiece")


def _only_spaces(pre: dict[str, Any]) -> bool:
    """Return True for Gemma's split at spaces, of which the normalizer has left none."""
    return pre.get("type") == "Split" and pre["pattern"] == {"String": " "}


def scores_of(content: dict[str, Any], texts: list[str], types: list[int]) -> np.ndarray:
    """Return scores that rank tokens as merges do.

    Args:
        content: the JSON of a BPE.
        texts: the tokens by id.
        types: their types.

    Raises:
        FormatError: the order of the merges is not one of tokens.
    """
    scores = np.zeros(len(texts), np.float32)
    ids = {text: number for number, text in enumerate(texts)}
    ranks: dict[str, list[int]] = defaultdict(list)
    ordered = [tuple(merge.split(" ")) for merge in merges_of(content)]
    for rank, (first, second) in enumerate(ordered):
        ranks[first + second].append(rank)
    last = -1
    for place, (text, made) in enumerate(sorted(ranks.items(), key=lambda item: item[1])):
        if made[0] < last:
            raise refusal(f"its merges make {text!r} before and after another token")
        last = made[-1]
        scores[ids[text]] = -1.0 - place
    # Tokens that no merge makes come last; the text never gets them, or as a single character.
    scores[[n for n, text in enumerate(texts) if types[n] == NORMAL and text not in ranks]] = (
        -1.0 - len(ranks)
    )
    ours = set(merges(Tokens(texts, types, scores)))
    for pair in ours - {*ordered}:
        raise refusal(f"it has no merge of {pair[0]!r} and {pair[1]!r}, but their joint token")
    return scores


def describe(content: dict[str, Any], texts: list[str], types: list[int]) -> dict[str, Any]:
    """Return the keys of a SentencePiece vocabulary, without the tokens.

    Args:
        content: the JSON of the tokenizer.
        texts: the tokens by id.
        types: their types; those of byte tokens and of the unknown token are set here.

    Raises:
        FormatError: llama.cpp would tokenize differently.
    """
    prefix = _prefix(content)
    model = content["model"]
    for field in ("continuing_subword_prefix", "end_of_word_suffix", "dropout", "ignore_merges"):
        if model.get(field):
            raise refusal(f"model.{field} is {model[field]!r}")
    present = set()
    for number, text in enumerate(texts):
        byte = byte_of(text)
        if byte is not None and types[number] == NORMAL:
            types[number] = BYTE
            present.add(byte)
        if text == model.get("unk_token") and types[number] in (NORMAL, CONTROL):
            types[number] = UNKNOWN
    if len(present) < 256:
        raise refusal(f"it has tokens for {len(present)} of 256 bytes")
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": scores_of(content, texts, types),
        "tokenizer.ggml.add_space_prefix": prefix,
    }
