# SPDX-License-Identifier: MIT
"""SentencePiece's table of characters and what they become, and its use on a text.

The library's `Precompiled` goes by what a reader sees as one character, and drops parts of some; a
text is normalized here as SentencePiece and llama.cpp do, by the longest match.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from ....errors import FormatError

__all__ = ["TEXT_MAX", "Charsmap"]

TEXT_MAX = 64
"""Characters that may become of one: Unicode's compatibility forms have up to 18."""
# The longest key of known tables has 18 bytes.
_DEPTH_MAX = 64
_KEYS_MAX = 1 << 20
_LEAF_BIT, _VALUE_BITS, _CHECK_BITS = 8, (1 << 31) - 1, (1 << 31) | 0xFF


class Charsmap:
    """The replacements of characters and of runs of them.

    Args:
        table: replacement by key, both texts.

    Example:
        >>> Charsmap({"\\uff21": "A", "e\\u0301": "\\u00e9"}).apply("\\uff21e\\u0301e")
        'A\u00e9e'
    """

    def __init__(self, table: dict[str, str]) -> None:
        self._single = str.maketrans({key: text for key, text in table.items() if len(key) == 1})
        self._long = {key: text for key, text in table.items() if len(key) > 1}
        self._lengths = sorted({len(key) for key in self._long}, reverse=True)
        firsts, seconds = (
            "".join(map(re.escape, sorted({key[place] for key in self._long}))) for place in (0, 1)
        )
        self._start = re.compile(f"[{firsts}](?=[{seconds}])") if self._long else None

    def apply(self, text: str) -> str:
        """Return a text with every longest key replaced, from left to right."""
        if self._start is None:
            return text.translate(self._single)
        parts = []
        done = 0
        for found in self._start.finditer(text):
            at = found.start()
            if at < done:
                continue
            for length in self._lengths:
                key = text[at : at + length]
                if key in self._long:
                    parts += [text[done:at].translate(self._single), self._long[key]]
                    done = at + length
                    break
        parts.append(text[done:].translate(self._single))
        return "".join(parts)

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def parse(data: bytes) -> Charsmap:
        """Read a compiled table: a double array of keys, then the replacements.

        Args:
            data: what `tokenizer.ggml.precompiled_charsmap` holds.

        Raises:
            FormatError: the table is damaged.

        Source: Kanda 2018, the XOR-compressed double array; SentencePiece's normalizer.
        """
        size = int.from_bytes(data[:4], "little")
        if len(data) < 4 or size % 4 or 4 + size >= len(data):
            raise FormatError(f"its array of {size} bytes must lie within its {len(data)} bytes")
        array = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
        texts = data[4 + size :]
        keys = _keys(array)
        found = {at: _text(texts, at) for at in set(keys.values())}
        return Charsmap({key: found[at] for key, at in keys.items()})


def _bases(array: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    packed: np.ndarray = array[nodes]
    bases: np.ndarray = (packed >> 10) << ((packed & (1 << 9)) >> 6)
    return bases


def _keys(array: np.ndarray) -> dict[str, int]:
    """Walk the array a byte at a time; return the place of the replacement of each key."""
    if not len(array):
        raise FormatError("its array is empty")
    letters = np.arange(1, 256)
    found: dict[str, int] = {}
    nodes, prefixes = _bases(array, np.zeros(1, np.int64)), [b""]
    for _ in range(_DEPTH_MAX):
        children = nodes[:, None] ^ letters
        inside = children < len(array)
        fits = inside & ((array[np.where(inside, children, 0)] & _CHECK_BITS) == letters)
        rows, columns = np.nonzero(fits)
        if len(rows) + len(found) > _KEYS_MAX:
            break
        if not len(rows):
            return found
        at = children[rows, columns]
        prefixes = [
            prefixes[row] + bytes([column + 1])
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        ]
        leaves = (array[at] >> _LEAF_BIT) & 1
        nodes = at ^ _bases(array, at)
        for number in np.nonzero(leaves)[0]:
            if nodes[number] >= len(array):
                raise FormatError(f"the key {prefixes[number]!r} points out of its array")
            try:
                key = prefixes[number].decode()
            except UnicodeDecodeError:
                raise FormatError(f"the key {prefixes[number]!r} is not UTF-8") from None
            found[key] = int(array[nodes[number]]) & _VALUE_BITS
    raise FormatError(f"it has keys longer than {_DEPTH_MAX} bytes, or too many")


def _text(texts: bytes, at: int) -> str:
    """Return the replacement at a place."""
    end = texts.find(b"\0", at) if at < len(texts) else -1
    if end < 0:
        raise FormatError(f"its text at {at} does not end within {len(texts)} bytes")
    try:
        text = texts[at:end].decode()
    except UnicodeDecodeError:
        raise FormatError(f"its text at {at} is not UTF-8") from None
    if len(text) > TEXT_MAX:
        raise FormatError(f"its text at {at} may have {TEXT_MAX} characters; got {len(text):,}")
    return text
