# SPDX-License-Identifier: MIT
"""Documents on their way into a tokenizer: checked, cut into pieces, gathered into batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .._check import several

__all__ = ["batches", "check_bytes", "check_covered", "check_documents", "cut_text"]

# Longer documents are cut where no token can span, to bound memory and use all cores. The library
# takes a fifth less time for a megabyte in pieces of this size than in four large ones.
PIECE_CHARS = 1 << 12
BATCH_CHARS = 1 << 22
# Letters that every Unicode version agrees on: the library's tables may be older than Python's.
_AFTER_LETTER = re.compile(
    r"(?<=[A-Za-z\u00c0-\u00d6\u0391-\u03a1\u0410-\u044f\u4e00-\u9fa5])(?=\n)"
)


def describe(char: str) -> str:
    """A character for an error message."""
    return f"{char!r} (U+{ord(char):04X})"


def check_documents(texts: Any, who: str) -> Iterator[str]:
    """Go through documents; refuse none at all, and text that UTF-8 cannot hold."""
    if isinstance(texts, str):
        texts = [texts]
    if not several(texts):
        raise TypeError(f"Tokenizer.{who}: texts must be documents; got {type(texts).__name__}")
    found = False
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(
                f"Tokenizer.{who}: every document must be text; got {type(text).__name__}"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Tokenizer.{who}: text must be valid Unicode; got {describe(text[error.start])}"
            ) from error
        found = found or bool(text)
        yield text
    if not found:
        raise ValueError(f"Tokenizer.{who}: needs text to start from; got none")


def batches(documents: Sequence[str], cut: bool) -> Iterator[list[tuple[str, tuple[bool, bool]]]]:
    """Pieces of documents, each with whether it starts and whether it ends its document."""
    batch: list[tuple[str, tuple[bool, bool]]] = []
    size = 0
    for document in documents:
        pieces = cut_text(document) if cut else [document]
        for number, piece in enumerate(pieces):
            batch.append((piece, (number == 0, number == len(pieces) - 1)))
            size += len(piece)
            if size >= BATCH_CHARS:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def cut_text(document: str) -> list[str]:
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


def check_bytes(text: str, present: bytes | None, added: list[str]) -> None:
    """Refuse characters that a vocabulary has no bytes for: the library drops them.

    `present` is None where all bytes are there; texts of `added` tokens need no bytes.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Tokenizer.encode: text must be valid Unicode; got {describe(text[error.start])}"
            f" at offset {error.start}"
        ) from error
    if present is None or not data.translate(None, present):
        return
    spans = re.finditer("|".join(map(re.escape, added)), text) if added else ()
    parsed = {offset for span in spans for offset in range(*span.span())}
    for offset, char in enumerate(text):
        if offset not in parsed and char.encode().translate(None, present):
            raise ValueError(
                f"Tokenizer.encode: text must consist of the vocabulary's characters; got"
                f" {describe(char)} at offset {offset}; make the tokenizer from text that has"
                " it, or use bpe:SIZE"
            )


def check_covered(text: str, encoding: Any) -> None:
    """Refuse characters that a tokenizer without bytes and without an unknown token dropped."""
    position = 0
    for start, end in [*encoding.offsets, (len(text), len(text))]:
        for offset in range(position, start):
            if not text[offset].isspace():
                raise ValueError(
                    f"Tokenizer.encode: text must consist of the vocabulary's characters; got"
                    f" {describe(text[offset])} at offset {offset}"
                )
        position = max(position, end)
