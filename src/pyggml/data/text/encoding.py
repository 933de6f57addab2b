# SPDX-License-Identifier: MIT
"""Chunks of text to token ids, with the parallel encoder of `tokenizers`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import FormatError
from .chunks import Chunk, check_unicode, describe
from .training import guarded
from .vocabulary import byte_alphabet, cuts_at_newline, is_byte_level

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Encoded", "Encoder"]

# Text that is encoded at once: enough for all cores, and little for the memory.
_BATCH_CHARS = 1 << 20


class Encoded(NamedTuple):
    """Ids of some chunks.

    Attributes:
        ids: the ids, (n,).
        ends: positions in ids behind which a document ends.
    """

    ids: np.ndarray
    ends: list[int]


class Encoder:
    """Text to ids; raises on characters that the library would drop in silence.

    Args:
        backend: a tokenizer of the `tokenizers` library.

    Attributes:
        byte_level: whether it is a BPE over bytes.
        cuttable: whether a document may be cut between a letter and a line end.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        # Special tokens spelled out in a text are text, unless the caller asks to parse them.
        backend.encode_special_tokens = True
        # A file may bring settings that would cut off the end of a text in silence.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._parsing: tokenizers.Tokenizer | None = None
        content: dict[str, Any] = json.loads(backend.to_str())
        self.byte_level = is_byte_level(content)
        self._added = [token["content"] for token in content["added_tokens"]]
        self._drops = not self.byte_level and content["model"].get("unk_token") is None
        vocab = backend.get_vocab(with_added_tokens=True)
        present = bytes(byte for char, byte in byte_alphabet().items() if char in vocab)
        # Bytes that the vocabulary has; None for all.
        self._present = present if self.byte_level and len(present) < 256 else None
        self.cuttable = self.byte_level and _is_cuttable(content)

    def encode_text(self, who: str, text: str, parse_special: bool, add_special: bool) -> list[int]:
        """Return the ids of a whole text; see `Tokenizer.encode`."""
        self._check_bytes(who, Chunk(text), self._added if parse_special else ())
        backend = self._parser() if parse_special else self._backend
        with guarded(who):
            encoding = backend.encode(text, add_special_tokens=add_special)
        if self._drops:
            self._check_covered(who, Chunk(text), encoding)
        return list(encoding.ids)

    def _parser(self) -> tokenizers.Tokenizer:
        """The backend that parses special tokens in a text."""
        if self._parsing is None:
            self._parsing = type(self._backend).from_str(self._backend.to_str())
        return self._parsing

    def encode(
        self, who: str, chunks: Iterable[Chunk], head: list[int], tail: list[int], dtype: str
    ) -> Iterator[Encoded]:
        """Go through the ids of chunks, some 1 MB of text at a time.

        Args:
            who: the caller, for messages.
            chunks: documents, or parts of them in order.
            head: ids before each document.
            tail: ids after each document.
            dtype: of the ids.

        Raises:
            ValueError: the vocabulary has no tokens for a character; names its place.
        """
        batch: list[Chunk] = []
        size = 0
        for chunk in chunks:
            batch.append(chunk)
            size += len(chunk.text)
            if size >= _BATCH_CHARS:
                yield self._encode_batch(who, batch, head, tail, dtype)
                batch, size = [], 0
        if batch:
            yield self._encode_batch(who, batch, head, tail, dtype)

    def _encode_batch(
        self, who: str, batch: list[Chunk], head: list[int], tail: list[int], dtype: str
    ) -> Encoded:
        for chunk in batch:
            self._check_bytes(who, chunk)
        texts = [chunk.text for chunk in batch]
        # The fast one leaves out offsets, which only tell of dropped characters.
        encode = self._backend.encode_batch if self._drops else self._backend.encode_batch_fast
        parts = [np.zeros(0, dtype)]
        ends: list[int] = []
        total = 0
        with guarded(f"{who}: {batch[0].source}" if batch[0].source else who):
            encodings = encode(texts, add_special_tokens=False)
        for chunk, encoding in zip(batch, encodings, strict=True):
            if self._drops:
                self._check_covered(who, chunk, encoding)
            ids = [*(head if chunk.starts else ()), *encoding.ids, *(tail if chunk.ends else ())]
            parts.append(np.array(ids, dtype))
            total += len(ids)
            if chunk.ends:
                ends.append(total)
        return Encoded(np.concatenate(parts), ends)

    def _check_bytes(self, who: str, chunk: Chunk, parsed: Iterable[str] = ()) -> None:
        """Raise on a character whose bytes a byte-level vocabulary lacks; `parsed` needs none."""
        data = check_unicode(who, chunk.text)
        if self._present is None or not data.translate(None, self._present):
            return
        pattern = "|".join(map(re.escape, parsed))
        spans = re.finditer(pattern, chunk.text) if pattern else ()
        skipped = {offset for span in spans for offset in range(*span.span())}
        for offset, char in enumerate(chunk.text):
            if offset not in skipped and char.encode().translate(None, self._present):
                raise _missing(who, chunk, offset)

    def _check_covered(self, who: str, chunk: Chunk, encoding: Any) -> None:
        """Raise on a character that no token covers."""
        position = 0
        for start, end in [*encoding.offsets, (len(chunk.text),) * 2]:
            for offset in range(position, start):
                if not chunk.text[offset].isspace():
                    raise _missing(who, chunk, offset)
            position = max(position, end)


def _missing(who: str, chunk: Chunk, offset: int) -> ValueError:
    """The error of a character that the vocabulary does not have."""
    kind = FormatError if chunk.source else ValueError
    return kind(
        f"{who}: {chunk.source + ': ' if chunk.source else ''}text must consist of the vocabulary's"
        f" characters; got {describe(chunk.text[offset])} at offset {chunk.offset + offset}; make"
        " the tokenizer from text that has it, or use bpe:SIZE"
    )


def _is_cuttable(content: dict[str, Any]) -> bool:
    """Return True if no token spans a letter and a line end after it."""
    if content.get("normalizer"):
        return False
    # An added token may take the white space after it.
    if any({*"\r\n"} & {*token["content"]} or token["rstrip"] for token in content["added_tokens"]):
        return False
    try:
        return cuts_at_newline(content)
    except FormatError:
        return False
