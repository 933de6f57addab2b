# SPDX-License-Identifier: MIT
"""Text from tokens as they come."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from .vocabulary import byte_alphabet

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

__all__ = ["StreamDecoder"]


class StreamDecoder:
    """Text from token ids one at a time, held back until characters are whole.

    What `push` and `finish` return, joined, is what `Tokenizer.decode` gives for the same ids.

    Example:
        >>> tokenizer = Tokenizer.train_bpe(["abc"], 257)
        >>> stream = tokenizer.stream()
        >>> [stream.push(token) for token in tokenizer.encode("é")]
        ['', 'é']
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._special = {t["id"] for t in tokenizer._content["added_tokens"] if t["special"]}
        self._alphabet = byte_alphabet() if tokenizer._byte_level else None
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._ids: list[int] = []
        self._given = 0

    def push(self, token_id: int) -> str:
        """Take one token and return the text that is certain by now; often empty.

        Raises:
            ValueError: the id is negative, or beyond the fillers of a padded embedding.
            DTypeError: the id is not an integer.
        """
        token_id = self._tokenizer._number(token_id, "StreamDecoder.push: ids")
        if token_id >= self._tokenizer.vocab_size:
            return ""
        if self._alphabet is None:
            return self._push_text(token_id)
        if self._skip_special and token_id in self._special:
            return ""
        token = self._tokenizer.token(token_id) or ""
        values = [self._alphabet.get(char) for char in token]
        data = token.encode() if None in values else bytes(v for v in values if v is not None)
        return self._utf8.decode(data)

    def _push_text(self, token_id: int) -> str:
        """Without a byte alphabet: decode all so far, and give what was not given yet."""
        self._ids.append(token_id)
        text = self._tokenizer.decode(self._ids, self._skip_special)
        whole = text.rstrip("\ufffd")
        new = whole[self._given :]
        self._given = max(self._given, len(whole))
        return new

    def finish(self) -> str:
        """Return what was held back, such as half a character as U+FFFD, and start anew."""
        if self._alphabet is None:
            rest = self._tokenizer.decode(self._ids, self._skip_special)[self._given :]
        else:
            rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self._ids.clear()
        self._given = 0
        return rest
