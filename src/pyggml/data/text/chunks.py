# SPDX-License-Identifier: MIT
"""Documents cut into chunks that tokenize to the same ids as the whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...errors import FormatError

__all__ = ["CHUNK_CHARS", "Chunk", "check_unicode", "cut", "describe"]

# Smaller chunks let `tokenizers` use all cores and keep its memory small.
CHUNK_CHARS = 1 << 12
# Text of a file that has no place to cut is one chunk, up to here.
LONGEST_CHARS = 1 << 28
# No token spans a letter and a line end. These letters are letters in every Unicode version: the
# tables of `tokenizers` may be older than Python's.
_AFTER_LETTER = re.compile(
    r"(?<=[A-Za-z\u00c0-\u00d6\u0391-\u03a1\u0410-\u044f\u4e00-\u9fa5])(?=\r?\n)"
)


class Chunk(NamedTuple):
    """A part of a document.

    Attributes:
        text: the text, valid Unicode.
        starts: whether the document starts with it.
        ends: whether the document ends with it.
        source: the file, row or number of the document, for messages.
        offset: characters of the source before it.
    """

    text: str
    starts: bool = True
    ends: bool = True
    source: str = ""
    offset: int = 0

    @property
    def is_blank(self) -> bool:
        """True for a whole document of nothing but white space."""
        return self.starts and self.ends and not self.text.strip()


def describe(char: str) -> str:
    """Return a character for an error message."""
    return f"{char!r} (U+{ord(char):04X})"


def check_unicode(who: str, text: str) -> bytes:
    """Return the text in UTF-8; raise on half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{who}: text must be valid Unicode; got {describe(text[error.start])} at offset"
            f" {error.start}"
        ) from error


def cut(
    blocks: Iterable[str],
    source: str = "",
    separator: str | None = None,
    anywhere: bool = True,
    longest: int | None = None,
) -> Iterator[Chunk]:
    """Cut text into documents, and long documents into chunks between a letter and a line end.

    Args:
        blocks: the text, in parts that may end anywhere.
        source: a name of the text, for messages.
        separator: stands between two documents, as `str.split` takes it; None takes one document.
        anywhere: whether long documents may be cut; otherwise only separators cut.
        longest: characters without a place to cut that raise.

    Raises:
        FormatError: there is a longer stretch without a place to cut.

    Example:
        >>> [chunk.text for chunk in cut(["one|t", "wo"], separator="|")]
        ['one', 'two']
    """
    mark = separator or ""
    margin = max(1, len(mark) - 1)
    text, offset, starts = "", 0, True
    for block in blocks:
        # Nothing was found before here. A separator, and a "\r\n", may lie across two blocks.
        seen = len(text) - margin
        text += block
        start = 0
        while True:
            end = text.find(mark, max(start, seen)) if mark else -1
            # A later separator may begin in the last characters.
            stop = len(text) - margin if end < 0 else end
            limit = len(text) if end < 0 else end
            while anywhere:
                found = _AFTER_LETTER.search(text, max(start + CHUNK_CHARS, seen), limit)
                if found is None or found.start() > stop:
                    break
                at = found.start()
                yield Chunk(text[start:at], starts, False, source, offset + start)
                start, starts = at, False
            if end < 0:
                break
            yield Chunk(text[start:end], starts, True, source, offset + start)
            start, starts = end + len(mark), True
        text, offset = text[start:], offset + start
        if longest is not None and len(text) > longest:
            raise FormatError(
                f"Corpus: {source}: text must be cut every {longest:,} characters at least; found"
                f" no place for it after character {offset:,}; give the separator of its"
                " documents, or a byte-level tokenizer and text with line ends"
            )
    yield Chunk(text, starts, True, source, offset)
