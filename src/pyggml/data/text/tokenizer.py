# SPDX-License-Identifier: MIT
"""Text to token ids and back, on the `tokenizers` library."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import checks
from ...errors import DTypeError, FormatError, shown
from ...io.atomic import atomic_write
from ...io.gguf import read_gguf
from . import vocabulary as gguf
from .chunks import Chunk, cut
from .encoding import Encoded, Encoder
from .library import DECODED, guarded, library
from .stream import StreamDecoder
from .tokenizer_files import read_backend, read_config, write_config
from .training import END_OF_TEXT, characters, train

if TYPE_CHECKING:
    import tokenizers

__all__ = ["END_OF_TEXT", "Tokenizer"]

# Embeddings are padded to a multiple of some hundreds or thousands; an id beyond is a mistake.
_FILLERS_MAX = 1 << 14
# Where a tokenizer file does not say which token ends or begins a text; the first known one counts.
_EOS_NAMES = (END_OF_TEXT, "<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "</s>", "<eos>", "[SEP]")
_BOS_NAMES = ("<|begin_of_text|>", "<s>", "<bos>", "[CLS]", END_OF_TEXT)


class Tokenizer:
    """Text to token ids and back.

    Made by `train_bpe`, `chars`, `from_file`, `from_spec` or `from_gguf_metadata`.

    Attributes:
        vocab_size: highest token id plus one.
        bos_id: id of the token that begins a text, or None.
        eos_id: id of the token that ends a text, or None.
        add_bos: whether a text begins with `bos_id` when special tokens are asked for.
        add_eos: whether a text ends with `eos_id` when special tokens are asked for.
        special_ids: ids of the tokens that are no text.
        literal_ids: ids of the tokens of a byte-level BPE whose spelling is their text.
        byte_level: whether it is a BPE over bytes, which has tokens for any text.
        cuttable: whether no token spans a letter and a line end, so that long documents are
            tokenized in chunks.

    Example:
        >>> tokenizer = Tokenizer.chars(["hello world"])
        >>> tokenizer.decode(tokenizer.encode("hold"))
        'hold'
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        bos: str | None = None,
        eos: str | None = None,
        vocabulary: gguf.Vocabulary | None = None,
    ) -> None:
        checks.instance("Tokenizer", "backend", backend, library().Tokenizer)
        if vocabulary is not None:
            checks.instance("Tokenizer", "vocabulary", vocabulary, gguf.Vocabulary)
        self._backend = backend
        self._vocabulary = vocabulary
        self._encoder = Encoder(backend, None if vocabulary is None else vocabulary.types)
        self.byte_level, self.cuttable = self._encoder.byte_level, self._encoder.cuttable
        added = backend.get_added_tokens_decoder().items()
        self.special_ids = frozenset(number for number, token in added if token.special)
        # The library would take their letters for bytes, if each is in the alphabet of bytes.
        self.literal_ids = frozenset(
            number for number, token in added if self.byte_level and not token.content.isascii()
        )
        vocab = backend.get_vocab(with_added_tokens=True)
        if not vocab:
            raise FormatError("Tokenizer: the vocabulary is empty")
        self.vocab_size = max(vocab.values()) + 1
        self.bos_id: int | None
        self.eos_id: int | None
        if vocabulary is not None:
            self.bos_id, self.eos_id = vocabulary.bos_id, vocabulary.eos_id
            self.add_bos, self.add_eos = vocabulary.add_bos, vocabulary.add_eos
        else:
            self._find_special(vocab, bos, eos)

    def _find_special(self, vocab: dict[str, int], bos: str | None, eos: str | None) -> None:
        for role, token in (("bos", bos), ("eos", eos)):
            if token is not None and checks.text("Tokenizer", role, token) not in vocab:
                raise ValueError(f"Tokenizer: {role} must be in the vocabulary; got {token!r}")
        head, tail = self._encoder.ends()
        known_eos = [vocab[name] for name in _EOS_NAMES if name in vocab]
        known_bos = [vocab[name] for name in _BOS_NAMES if name in vocab]
        self.eos_id = vocab[eos] if eos else next(iter([*tail[-1:], *known_eos]), None)
        self.bos_id = vocab[bos] if bos else next(iter([*head[:1], *known_bos]), self.eos_id)
        self.add_bos = bool(head) and head == [self.bos_id]
        self.add_eos = bool(tail) and tail == [self.eos_id]

    @classmethod
    def train_bpe(cls, texts: Iterable[str], vocab_size: int) -> Tokenizer:
        """Train a byte-level BPE, as GPT-2's, on texts.

        The same texts give the same tokenizer. `<|endoftext|>` is token 0.

        Args:
            texts: documents, one after another: an iterator may give more than memory holds.
            vocab_size: tokens wanted, from 257 (256 bytes and the end of text) to 1,000,000. A
                short text gives fewer.

        Raises:
            ValueError: the size is too small or too large, or there is no text.

        Source: Sennrich et al. 2016, arXiv:1508.07909; Radford et al. 2019 (GPT-2).
        """
        return cls(train(texts, vocab_size))

    @classmethod
    def chars(cls, texts: Iterable[str]) -> Tokenizer:
        """Make a tokenizer with one token per character found in texts.

        It is a byte-level BPE as well, so llama.cpp reads it: characters of several bytes come
        from merges of their bytes, which are tokens too. `<|endoftext|>` is token 0.

        Args:
            texts: documents.

        Raises:
            ValueError: there is no text.
        """
        return cls(characters(texts))

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], bos: str | None = None, eos: str | None = None
    ) -> Tokenizer:
        """Read a JSON file of the `tokenizers` library, or the tokenizer of a GGUF file.

        Args:
            path: the file, or a folder holding `tokenizer.json`. A `tokenizer_config.json` beside
                it says which tokens begin and end a text. A GGUF file says so itself.
            bos: token that begins a text; None looks for it.
            eos: token that ends a text; None looks for it.

        Raises:
            FormatError: the file is missing, or is not a tokenizer.
            ValueError: bos or eos is not in the vocabulary.
        """
        file = checks.path("Tokenizer.from_file", "path", path)
        if file.is_dir():
            file = file / "tokenizer.json"
        if bos is None and eos is None and file.suffix == ".gguf" and file.is_file():
            with read_gguf(file) as model:
                try:
                    return cls.from_gguf_metadata(model.metadata)
                except FormatError as error:
                    raise FormatError(f"{file}: {error}") from error
        backend, config = read_backend(file), read_config(file)
        try:
            return cls(backend, bos or config.get("bos_token"), eos or config.get("eos_token"))
        except FormatError as error:
            raise FormatError(f"{file}: {error}") from error
        except ValueError as error:
            if bos or eos:
                raise
            raise FormatError(f"{file.with_name('tokenizer_config.json')}: {error}") from error

    @classmethod
    def from_spec(cls, spec: str | os.PathLike[str], texts: Iterable[str]) -> Tokenizer:
        """Make the tokenizer that a short text names.

        Args:
            spec: "chars", "bpe:SIZE", or the path of a tokenizer JSON file.
            texts: documents to make "chars" and "bpe:SIZE" from.

        Raises:
            ValueError: the size is not a number or too small.
            FormatError: the file is missing or is not a tokenizer.
        """
        if not isinstance(spec, (str, os.PathLike)):
            raise TypeError(
                f"Tokenizer.from_spec: spec must be chars, bpe:SIZE or a path; got {spec!r}"
            )
        if spec == "chars":
            return cls.chars(texts)
        if isinstance(spec, str) and spec.startswith("bpe:"):
            # Python's int raises on numbers of thousands of digits.
            if not spec[4:].isascii() or not spec[4:].isdigit() or len(spec) > 24:
                raise ValueError(
                    f"Tokenizer.from_spec: must be bpe:SIZE as in bpe:4096; got {spec!r:.40}"
                )
            return cls.train_bpe(texts, int(spec[4:]))
        if not os.fspath(spec) or not checks.path("Tokenizer.from_spec", "spec", spec).exists():
            raise FormatError(
                f"Tokenizer.from_spec: {os.fspath(spec) or repr('')}: no such file; name a"
                " tokenizer JSON file, chars, or bpe:SIZE"
            )
        return cls.from_file(spec)

    @classmethod
    def from_gguf_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Rebuild a tokenizer from the metadata of a GGUF file.

        Args:
            metadata: values by key, as `GGUFFile.metadata`.

        Raises:
            FormatError: the vocabulary is missing, inconsistent, or not a byte-level BPE with a
                known way of splitting words.

        Source: llama.cpp, src/llama-vocab.cpp.
        """
        library()
        try:
            with guarded("Tokenizer.from_gguf_metadata"):
                vocabulary = gguf.from_gguf(metadata)
        except (FormatError, MemoryError):
            raise
        except Exception as error:  # the library raises bare Exception
            raise FormatError(f"Tokenizer.from_gguf_metadata: {error}") from error
        return cls(vocabulary.backend, vocabulary=vocabulary)

    def to_gguf_metadata(self, vocab_size: int | None = None) -> dict[str, Any]:
        """Describe the vocabulary in the keys that llama.cpp reads.

        Args:
            vocab_size: rows of the model's embedding; ids above the tokenizer's get unused filler
                tokens. None means the tokenizer's own size.

        Returns:
            Values of the right types for `pyggml.io.write_gguf`.

        Raises:
            FormatError: llama.cpp would tokenize differently, or there is no end-of-text token.
            ValueError: vocab_size is below the tokenizer's.

        Source: llama.cpp, conversion/base.py and src/llama-vocab.cpp.
        """
        if self._vocabulary is not None:
            return gguf.to_gguf(self._vocabulary, vocab_size)
        head, tail = self._encoder.ends()
        if head != [self.bos_id] * self.add_bos or tail != [self.eos_id] * self.add_eos:
            raise FormatError(
                f"Tokenizer.to_gguf_metadata: only one token may lead and one may follow a text;"
                f" got {head} and {tail}, with bos_id={self.bos_id}, eos_id={self.eos_id}"
            )
        vocabulary = gguf.Vocabulary(
            self._backend, self.bos_id, self.eos_id, self.add_bos, self.add_eos
        )
        return gguf.to_gguf(vocabulary, vocab_size)

    def encode(
        self, text: str, parse_special: bool = False, add_special: bool = False
    ) -> np.ndarray:
        """Turn text into token ids.

        Args:
            text: what to encode.
            parse_special: whether special tokens spelled out in the text, such as
                `<|endoftext|>`, become their ids; otherwise they are plain text.
            add_special: whether to add what `add_bos` and `add_eos` say.

        Returns:
            ids (N,), int32.

        Raises:
            ValueError: the vocabulary has no tokens for a character.
        """
        who = "Tokenizer.encode"
        ids = self._encoder.encode_text(
            who,
            checks.text(who, "text", text),
            checks.flag(who, "parse_special", parse_special),
            checks.flag(who, "add_special", add_special),
        )
        return np.array(ids, dtype=np.int32)

    def encode_documents(self, documents: Sequence[str], eos: bool = True) -> np.ndarray:
        """Turn documents into one stream of token ids, using all cores.

        Args:
            documents: texts; special tokens spelled out in them are plain text.
            eos: whether `eos_id` follows each document, and `bos_id` leads it where `add_bos`.

        Returns:
            ids (N,), int32.

        Raises:
            ValueError: the vocabulary has no tokens for a character, or no end-of-text token.
        """
        who = "Tokenizer.encode_documents"
        documents = [documents] if isinstance(documents, str) else documents
        texts = [
            checks.text(who, "every document", text)
            for text in checks.items(who, "documents", documents)
        ]
        chunks = (chunk for text in texts for chunk in cut([text], anywhere=self.cuttable))
        parts = [part.ids for part in self.encode_chunks(chunks, eos, who=who)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def encode_chunks(
        self,
        chunks: Iterable[Chunk],
        eos: bool = True,
        dtype: str = "<i4",
        who: str = "Tokenizer.encode_chunks",
    ) -> Iterator[Encoded]:
        """Turn documents, cut into chunks, into token ids, some 1 MB of text at a time.

        Args:
            chunks: as `cut` makes them; with `anywhere` only where the tokenizer is `cuttable`.
            eos: whether `eos_id` follows each document, and `bos_id` leads it where `add_bos`.
            dtype: of the ids.
            who: the caller, for messages.

        Raises:
            ValueError: the vocabulary has no tokens for a character, or no end-of-text token.
        """
        if checks.flag(who, "eos", eos) and self.eos_id is None:
            raise ValueError(f"{who}: the tokenizer has no end-of-text token; use eos=False")
        if not checks.is_iterable(chunks):
            raise TypeError(f"{who}: chunks must be those that cut() makes; got {shown(chunks)}")
        head = [self.bos_id] if eos and self.add_bos and self.bos_id is not None else []
        tail = [self.eos_id] if eos and self.eos_id is not None else []
        return self._encoder.encode(who, chunks, head, tail, dtype)

    def decode(self, ids: Iterable[int] | np.ndarray, skip_special: bool = False) -> str:
        """Turn token ids back into text.

        Args:
            ids: token ids; fillers of a padded embedding, the 16,384 ids from `vocab_size` on, are
                empty.
            skip_special: whether special tokens are left out.

        Raises:
            ValueError: an id is negative, or beyond the fillers.
            DTypeError: an id is not an integer.
        """
        who = "Tokenizer.decode"
        skip_special = checks.flag(who, "skip_special", skip_special)
        numbers = [self.check_id(who, number) for number in checks.items(who, "ids", ids)]
        known = [number for number in numbers if number < self.vocab_size]
        parts: list[str] = []
        with guarded(who, DECODED * len(known)):
            for literal, run in itertools.groupby(known, self.literal_ids.__contains__):
                shown = [n for n in run if not (skip_special and n in self.special_ids)]
                if literal:
                    parts += [self.token(number) or "" for number in shown]
                else:
                    parts.append(self._backend.decode(shown, skip_special_tokens=False))
        return "".join(parts)

    def check_id(self, who: str, token_id: Any) -> int:
        """Return a token id as an int; raise if neither the vocabulary nor a filler has it."""
        try:
            number = operator.index(token_id)
        except TypeError:
            raise DTypeError(f"{who}: ids must be integers; got {token_id!r}") from None
        below = self.vocab_size + _FILLERS_MAX
        if not 0 <= number < below:
            raise ValueError(
                f"{who}: ids must be >= 0 and, fillers included, < {below}; got {number}:"
                " is it of another tokenizer?"
            )
        return number

    def stream(self, skip_special: bool = True, after: Iterable[int] = ()) -> StreamDecoder:
        """Return a decoder that takes one token at a time.

        Args:
            skip_special: whether special tokens are left out.
            after: the ids that the text continues; see `StreamDecoder`.
        """
        return StreamDecoder(self, skip_special, after)

    def token(self, token_id: int) -> str | None:
        """The text of a token as the vocabulary spells it, or None."""
        number = self.check_id("Tokenizer.token", token_id)
        text: str | None = self._backend.id_to_token(number)
        return text

    def token_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it, or None."""
        checks.text("Tokenizer.token_id", "token", token)
        if any("\ud800" <= char <= "\udfff" for char in token):
            return None
        number: int | None = self._backend.token_to_id(token)
        return number

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer as a JSON file of the `tokenizers` library.

        Which tokens begin and end a text goes into `tokenizer_config.json` beside it where
        `from_file` could not tell otherwise.

        Args:
            path: the file; it is replaced in one step.

        Raises:
            OSError: it cannot be written.
        """
        file = checks.path("Tokenizer.save", "path", path)
        with atomic_write(file, "w") as handle:
            handle.write(self._backend.to_str(pretty=True) + "\n")
        again = Tokenizer(library().Tokenizer.from_str(self.to_json()))
        same = (again.bos_id, again.eos_id) == (self.bos_id, self.eos_id)
        if not same or read_config(file):
            ids = (self.bos_id, self.eos_id)
            write_config(file, *(None if number is None else self.token(number) for number in ids))

    def to_json(self) -> str:
        """Return the tokenizer in the JSON of the `tokenizers` library."""
        text: str = self._backend.to_str()
        return text

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, eos_id={self.eos_id})"

    def __len__(self) -> int:
        return self.vocab_size
