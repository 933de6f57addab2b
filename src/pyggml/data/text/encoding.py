# SPDX-License-Identifier: MIT
"""Chunks of text to token ids, with the parallel encoder of `tokenizers`."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import checks
from ...errors import FormatError
from .chunks import Chunk, check_unicode, describe
from .library import ENCODED, guarded, start_threads
from .vocabulary import (
    Charsmap,
    Special,
    byte_alphabet,
    coder,
    cuttable,
    is_byte_level,
    split_special,
)

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

    Special tokens are found as llama.cpp finds them, and the library encodes the text between.
    Where a tokenizer asks for what llama.cpp has not, such as whole words only, the library finds
    them too.

    Args:
        backend: a tokenizer of the `tokenizers` library.
        types: the types of the tokens in a GGUF file, or None.

    Attributes:
        byte_level: whether it is a BPE over bytes.
        cuttable: whether a document may be cut between a letter and a line end.
    """

    def __init__(self, backend: tokenizers.Tokenizer, types: list[int] | None = None) -> None:
        # Special tokens spelled out in a text are text, unless the caller asks to parse them.
        backend.encode_special_tokens = True
        # A file may bring settings that would cut off the end of a text in silence.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._parsing: tokenizers.Tokenizer | None = None
        self._types = types
        content: dict[str, Any] = json.loads(backend.to_str())
        self.byte_level = is_byte_level(content)
        added = content["added_tokens"]
        self._added = [token["content"] for token in added]
        self._special = None if _needs_library(content) else _special(added)
        self._unigram = content["model"].get("type") == "Unigram"
        model = content["model"]
        unknown = model.get("unk_token") if "unk_token" in model else model.get("unk_id")
        self._drops = not self.byte_level and unknown is None
        vocab = backend.get_vocab(with_added_tokens=True)
        present = bytes(byte for char, byte in byte_alphabet().items() if char in vocab)
        # Bytes that the vocabulary has; None for all.
        self._present = present if self.byte_level and len(present) < 256 else None
        if model.get("byte_fallback") and all(f"<0x{byte:02X}>" in vocab for byte in range(256)):
            self._drops = False
        self.cuttable = self.byte_level and _is_cuttable(content)

    def encode_text(self, who: str, text: str, parse_special: bool, add_special: bool) -> list[int]:
        """Return the ids of a whole text; see `Tokenizer.encode`."""
        start_threads()
        self._check_bytes(who, Chunk(text), self._added if parse_special else ())
        if self._special is None:
            backend = self._parser() if parse_special else self._backend
            with guarded(who, ENCODED * len(text)):
                encoding = backend.encode(text, add_special_tokens=add_special)
            if self._drops:
                self._check_covered(who, Chunk(text), encoding)
            return list(encoding.ids)
        head, tail = self.ends() if add_special else ([], [])
        with guarded(who, ENCODED * len(text)):
            ids = self._encode_parts(who, [Chunk(text)], parse_special)[0]
        return [*head, *ids, *tail]

    def ends(self) -> tuple[list[int], list[int]]:
        """Return the ids that the tokenizer's post-processor puts before and after a text."""
        for text in ("a", "0", " ", "\u4e00"):
            with guarded("Tokenizer"):
                plain = self._backend.encode(text, add_special_tokens=False).ids
                whole = self._backend.encode(text, add_special_tokens=True).ids
            for start in range(len(whole) - len(plain) + 1 if plain else 0):
                if whole[start : start + len(plain)] == plain:
                    return whole[:start], whole[start + len(plain) :]
        return [], []

    def _encode_parts(self, who: str, chunks: list[Chunk], parse: bool) -> list[list[int]]:
        """Return the ids of each chunk: those of its special tokens, and of the text between."""
        assert self._special is not None
        parts = [split_special(chunk.text, self._special, parse) for chunk in chunks]
        texts = [part for some in parts for part in some if isinstance(part, str)]
        backend, charsmap = self._coder
        if charsmap is not None:
            texts = [charsmap.apply(text) for text in texts]
        # The fast one leaves out offsets, which only tell of dropped characters.
        encode = backend.encode_batch if self._drops else backend.encode_batch_fast
        encodings = iter(encode(texts, add_special_tokens=False) if texts else [])
        found = []
        for chunk, some in zip(chunks, parts, strict=True):
            ids: list[int] = []
            place = 0
            for part in some:
                if isinstance(part, int):
                    ids.append(part)
                    continue
                encoding = next(encodings)
                if self._drops:
                    place = chunk.text.find(part, place)
                    at = Chunk(part, source=chunk.source, offset=chunk.offset + place)
                    self._check_covered(who, at, encoding)
                    place += len(part)
                ids += encoding.ids
            found.append(ids)
        return found

    @functools.cached_property
    def _coder(self) -> tuple[tokenizers.Tokenizer, Charsmap | None]:
        """The tokenizer of the text between special tokens, and the table to apply before it."""
        if self._unigram:
            return coder(json.loads(self._backend.to_str()), self._types)
        return self._backend, None

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
            batch.append(checks.instance(who, "each of chunks", chunk, Chunk))
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
        parts = [np.zeros(0, dtype)]
        ends: list[int] = []
        total = 0
        start_threads()
        needs = ENCODED * sum(len(chunk.text) for chunk in batch)
        with guarded(f"{who}: {batch[0].source}" if batch[0].source else who, needs):
            found = self._encode_plain(who, batch)
        for chunk, some in zip(batch, found, strict=True):
            ids = [*(head if chunk.starts else ()), *some, *(tail if chunk.ends else ())]
            parts.append(np.array(ids, dtype))
            total += len(ids)
            if chunk.ends:
                ends.append(total)
        return Encoded(np.concatenate(parts), ends)

    def _encode_plain(self, who: str, batch: list[Chunk]) -> list[list[int]]:
        """Return the ids of each chunk; special tokens in it are text."""
        if self._special is not None:
            return self._encode_parts(who, batch, parse=False)
        encodings = self._backend.encode_batch(
            [chunk.text for chunk in batch], add_special_tokens=False
        )
        if self._drops:
            for chunk, encoding in zip(batch, encodings, strict=True):
                self._check_covered(who, chunk, encoding)
        return [encoding.ids for encoding in encodings]

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


def _needs_library(content: dict[str, Any]) -> bool:
    """Return True for added tokens that llama.cpp could not find as the library does."""
    normalizes = content.get("normalizer") is not None
    return any(
        token["single_word"] or (token["normalized"] and normalizes)
        for token in content["added_tokens"]
    )


def _special(added: list[dict[str, Any]]) -> list[Special]:
    """The added tokens in the order in which they are looked for: the longest first."""
    found = [
        Special(token["content"], token["id"], token["special"], token["lstrip"], token["rstrip"])
        for token in added
    ]
    return sorted(found, key=lambda token: -len(token.text.encode()))


def _is_cuttable(content: dict[str, Any]) -> bool:
    """Return True if no token spans a letter and a line end after it."""
    if content.get("normalizer"):
        return False
    # An added token may take the white space after it.
    if any({*"\r\n"} & {*token["content"]} or token["rstrip"] for token in content["added_tokens"]):
        return False
    try:
        return cuttable(content)
    except FormatError:
        return False
