# SPDX-License-Identifier: MIT
"""Tokenizers made from text: byte-level BPE, and one token for each character."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ... import checks
from .chunks import check_unicode, cut
from .library import TRAINED, guarded, library, reserve, start_threads
from .vocabulary import build, byte_alphabet

if TYPE_CHECKING:
    import tokenizers

__all__ = ["END_OF_TEXT", "characters", "train"]

END_OF_TEXT = "<|endoftext|>"
"""The token that ends a document."""
# The library sets memory aside for as many before it looks at the text.
_SIZE_MAX = 10**6
# Texts that it reads before it counts their words.
_TEXTS = 256


def _documents(who: str, texts: Any) -> Iterator[str]:
    """Go through documents; raise where there is no text."""
    if isinstance(texts, str):
        texts = [texts]
    single = isinstance(texts, bytes) or getattr(texts, "ndim", 1) == 0
    if single or not isinstance(texts, Iterable):
        raise TypeError(f"{who}: texts must be documents; got {type(texts).__name__}")
    found = False
    for text in texts:
        check_unicode(who, checks.text(who, "every document", text))
        found = found or bool(text)
        yield text
    if not found:
        raise ValueError(f"{who}: needs text to start from; got none")


def train(texts: Iterable[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Train a byte-level BPE; see `Tokenizer.train_bpe`."""
    library()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    who = "Tokenizer.train_bpe"
    # 256 bytes and the end of text.
    size = checks.whole(who, "vocab_size", vocab_size, 257, _SIZE_MAX)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Chunks have the words of the whole; the library's memory grows with the longest text.
    start_threads()
    with guarded(who):
        backend.train_from_iterator(_chunks(who, texts), trainer)
    return backend


def _chunks(who: str, texts: Any) -> Iterator[str]:
    """Go through the parts of documents, as long as there is memory for the library."""
    read: deque[int] = deque(maxlen=_TEXTS)
    for document in _documents(who, texts):
        for chunk in cut([document]):
            read.append(len(chunk.text))
            reserve(who, TRAINED * sum(read))
            yield chunk.text


def characters(texts: Iterable[str]) -> tokenizers.Tokenizer:
    """Make a byte-level BPE with a token for each character; see `Tokenizer.chars`."""
    library()
    symbol = {byte: char for char, byte in byte_alphabet().items()}
    seen: set[str] = set()
    for text in _documents("Tokenizer.chars", texts):
        seen.update(text)
    tokens = {END_OF_TEXT: 0}
    merges: dict[tuple[str, str], None] = {}
    for char in sorted(seen):
        encoded = [symbol[byte] for byte in char.encode()]
        for part in encoded:
            tokens.setdefault(part, len(tokens))
        for end in range(1, len(encoded)):
            left, right = "".join(encoded[:end]), encoded[end]
            merges[left, right] = None
            tokens.setdefault(left + right, len(tokens))
    backend = build(tokens, list(merges))
    backend.add_special_tokens([END_OF_TEXT])
    return backend
