# SPDX-License-Identifier: MIT
"""Token ids to text, one id at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Protocol

from ...checks import having
from .vocabulary import byte_alphabet

__all__ = ["StreamDecoder"]

# Tokens that tell how the next one is spelt.
_CONTEXT = 32


class Decoder(Protocol):
    """The part of a `Tokenizer` that a stream needs."""

    vocab_size: int
    byte_level: bool
    special_ids: frozenset[int]
    literal_ids: frozenset[int]

    def check_id(self, who: str, token_id: int) -> int:
        """Return a token id, checked."""

    def token(self, token_id: int) -> str | None:
        """Return the spelling of a token."""

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Return the text of ids."""


class StreamDecoder:
    """Turn token ids into text one at a time; a part of a character waits for the rest of it.

    The returned texts of `push` and `finish`, joined, equal `Tokenizer.decode` of the same ids,
    but for byte tokens of SentencePiece that make no whole character.

    Args:
        tokenizer: ids to text.
        skip_special: whether special tokens are left out.
        after: the ids before the first one, whose text is not returned: the space of a
            SentencePiece token leads a text no more.

    Example:
        >>> tokenizer = Tokenizer.train_bpe(["abc"], 257)
        >>> stream = tokenizer.stream()
        >>> [stream.push(token) for token in tokenizer.encode("é")]
        ['', 'é']
    """

    def __init__(
        self, tokenizer: Decoder, skip_special: bool = True, after: Iterable[int] = ()
    ) -> None:
        who = "StreamDecoder"
        having(who, "tokenizer", tokenizer, "a Tokenizer", "byte_level", "decode", "check_id")
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._alphabet = byte_alphabet() if tokenizer.byte_level else None
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._ids: list[int] = []
        self._given = 0
        if self._alphabet is None:
            self._ids = [*after][-_CONTEXT:]
            self._given = len(self._tokenizer.decode(self._ids, skip_special).rstrip("\ufffd"))

    def push(self, token_id: int) -> str:
        """Take one token and return the text that is complete; often empty.

        Raises:
            ValueError: the id is negative, or beyond the fillers of a padded embedding.
            DTypeError: the id is not an integer.
        """
        token_id = self._tokenizer.check_id("StreamDecoder.push", token_id)
        if token_id >= self._tokenizer.vocab_size:
            return ""
        if self._alphabet is None:
            return self._push_text(token_id)
        if self._skip_special and token_id in self._tokenizer.special_ids:
            return ""
        token = self._tokenizer.token(token_id) or ""
        values = [self._alphabet.get(char) for char in token]
        literal = None in values or token_id in self._tokenizer.literal_ids
        data = token.encode() if literal else bytes(v for v in values if v is not None)
        return self._utf8.decode(data)

    def _push_text(self, token_id: int) -> str:
        """Decode the last ids and return the new part; for vocabularies that are not of bytes."""
        self._forget()
        self._ids.append(token_id)
        text = self._tokenizer.decode(self._ids, self._skip_special)
        whole = text.rstrip("\ufffd")
        new = whole[self._given :]
        self._given = max(self._given, len(whole))
        return new

    def _forget(self) -> None:
        """Keep a few ids, the first of which has text, so that the next ones get their spaces."""
        if len(self._ids) < 2 * _CONTEXT:
            return
        for start in range(len(self._ids) - _CONTEXT, len(self._ids)):
            if self._tokenizer.decode(self._ids[start : start + 1], self._skip_special).strip(
                " \ufffd"
            ):
                text = self._tokenizer.decode(self._ids, self._skip_special)
                waiting = len(text) - self._given
                del self._ids[:start]
                self._given = len(self._tokenizer.decode(self._ids, self._skip_special)) - waiting
                return

    def finish(self) -> str:
        """Return the rest, such as half a character as U+FFFD, and start again."""
        if self._alphabet is None:
            rest = self._tokenizer.decode(self._ids, self._skip_special)[self._given :]
        else:
            rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self._ids.clear()
        self._given = 0
        return rest
