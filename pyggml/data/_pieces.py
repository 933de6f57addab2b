# SPDX-License-Identifier: MIT
"""Documents on their way into a tokenizer: checked, cut into pieces, gathered into batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["batches", "check_documents", "describe"]

# Longer documents are cut where no token can span, to bound memory and use all cores.
PIECE_CHARS = 1 << 18
BATCH_CHARS = 1 << 22
# Letters that every Unicode version agrees on: the library's tables may be older than Python's.
_AFTER_LETTER = re.compile(
    r"(?<=[A-Za-z\u00c0-\u00d6\u0391-\u03a1\u0410-\u044f\u4e00-\u9fa5])(?=\n)"
)


def describe(char: str) -> str:
    """A character for an error message."""
    return f"{char!r} (U+{ord(char):04X})"


def check_documents(texts: Iterable[str], who: str) -> list[str]:
    """Collect documents; refuse none at all, and text that UTF-8 cannot hold."""
    if isinstance(texts, str):
        texts = [texts]
    documents = list(texts)
    if not any(documents):
        raise ValueError(f"Tokenizer.{who}: needs text to start from; got none")
    for text in documents:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Tokenizer.{who}: text must be valid Unicode; got {describe(text[error.start])}"
            ) from error
    return documents


def batches(documents: Sequence[str], cut: bool) -> Iterator[list[tuple[str, tuple[bool, bool]]]]:
    """Pieces of documents, each with whether it starts and whether it ends its document."""
    batch: list[tuple[str, tuple[bool, bool]]] = []
    size = 0
    for document in documents:
        pieces = _pieces(document) if cut else [document]
        for number, piece in enumerate(pieces):
            batch.append((piece, (number == 0, number == len(pieces) - 1)))
            size += len(piece)
            if size >= BATCH_CHARS:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _pieces(document: str) -> list[str]:
    """Cut a long document at line ends that follow a letter."""
    pieces = []
    start = 0
    while len(document) - start > PIECE_CHARS:
        found = _AFTER_LETTER.search(document, start + PIECE_CHARS)
        if found is None:
            break
        pieces.append(document[start : found.start()])
        start = found.start()
    return [*pieces, document[start:]]
