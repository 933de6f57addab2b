# SPDX-License-Identifier: MIT
"""A text with trained spans to token ids: each span has tokens of its own."""

from __future__ import annotations

import numpy as np

from .... import checks
from ..tokenizer import Tokenizer
from ..vocabulary import END_NAMES
from .spans import Rendered

__all__ = ["PieceEncoder", "end_ids"]

# A text that a piece is put after, to encode it as the continuation of a text.
_GUARDS = ("\n", "a", "0", ".")


def end_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of the tokens that end an answer: the end of text, and those of llama.cpp.

    Args:
        tokenizer: whose special tokens are looked at.

    Source: llama.cpp, src/llama-vocab.cpp, special_eog_ids.
    """
    checks.instance("end_ids", "tokenizer", tokenizer, Tokenizer)
    found = {n for n in tokenizer.special_ids if tokenizer.token(n) in END_NAMES}
    return frozenset(found if tokenizer.eos_id is None else {*found, tokenizer.eos_id})


class PieceEncoder:
    """Texts to ids, with borders of tokens where spans begin and end.

    Args:
        tokenizer: text to ids.

    Attributes:
        special: the spellings of the special tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        spelled = (tokenizer.token(number) for number in sorted(tokenizer.special_ids))
        self.special = [text for text in spelled if text]
        self._guards = self._find_guards()

    def _find_guards(self) -> list[tuple[str, list[int]]]:
        """The guards, with their ids; none where a text begins as it continues."""
        found: list[tuple[str, list[int]]] = []
        for guard in _GUARDS:
            try:
                ids = self._ids(guard)
                both, alone = self._ids(guard + "z"), self._ids("z")
            except ValueError:  # the vocabulary lacks the character
                continue
            if both[: len(ids)] == ids and both[len(ids) :] != alone:
                found.append((guard, ids))
        return found

    def encode(self, example: Rendered, whole: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of a text, and which of them are trained.

        What follows the last span is left out: nothing that is trained sees it.

        Args:
            example: the text with its spans.
            whole: keep what follows the last span.

        Raises:
            ValueError: the vocabulary has no tokens for a character.
        """
        tokenizer, text = self._tokenizer, example.text
        ids: list[int] = []
        flags: list[bool] = []
        place = 0
        for start, end in example.spans:
            for piece, trained in ((text[place:start], False), (text[start:end], True)):
                found = self._continued(ids, piece)
                ids += found
                flags += [trained] * len(found)
            place = end
        if whole:
            found = self._continued(ids, text[place:])
            ids += found
            flags += [False] * len(found)
        elif not example.ended and tokenizer.eos_id is not None:
            ids.append(tokenizer.eos_id)
            flags.append(True)
        if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
            ids.insert(0, tokenizer.bos_id)
            flags.insert(0, False)
        return np.array(ids, np.int32), np.array(flags, bool)

    def _continued(self, before: list[int], piece: str) -> list[int]:
        """Return the ids of a text that continues a text; some tokenizers put a space first."""
        # After a special token they do so as well, as llama.cpp does.
        if before and before[-1] not in self._tokenizer.special_ids:
            for guard, ids in self._guards:
                found = self._ids(guard + piece)
                if found[: len(ids)] == ids:
                    return found[len(ids) :]
        return self._ids(piece)

    def _ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text, parse_special=True).tolist()
        return found
