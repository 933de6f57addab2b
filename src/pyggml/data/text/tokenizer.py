# SPDX-License-Identifier: MIT
"""Text to token ids and back, on the `tokenizers` library."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DTypeError, FormatError
from ...io.atomic import atomic_write
from .._check import path_like, several
from . import vocabulary as _vocab
from .chunks import batches, check_bytes, check_covered, check_documents, cut_text
from .stream import StreamDecoder
from .tokenizer_files import check_ids, read_config

if TYPE_CHECKING:
    import tokenizers

__all__ = ["END_OF_TEXT", "Tokenizer"]

END_OF_TEXT = "<|endoftext|>"
# The library sets memory aside for as many before it looks at the text.
_BPE_SIZE_MAX = 10**6
# Embeddings are padded to a multiple of some hundreds or thousands; further up there is a mistake.
_FILLERS_MAX = 1 << 14
# Where a tokenizer file does not say which token ends or begins a text; the first known one counts.
_EOS_NAMES = (END_OF_TEXT, "<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "</s>", "<eos>", "[SEP]")
_BOS_NAMES = ("<|begin_of_text|>", "<s>", "<bos>", "[CLS]", END_OF_TEXT)


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        cure = 'pip install "pyggml[cli]"'
        raise ImportError(f"Tokenizer: needs the package tokenizers; {cure}") from error
    return tokenizers


class Tokenizer:
    """Text to token ids and back.

    Made by `train_bpe`, `chars`, `from_file`, `from_spec` or `from_gguf_metadata`.

    Attributes:
        vocab_size: highest token id plus one.
        bos_id: id of the token that begins a text, or None.
        eos_id: id of the token that ends a text, or None.
        add_bos: whether a text begins with `bos_id` when special tokens are asked for.
        add_eos: whether a text ends with `eos_id` when special tokens are asked for.

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
        vocabulary: _vocab.Vocabulary | None = None,
    ) -> None:
        self._backend = backend
        self._content: dict[str, Any] = json.loads(backend.to_str())
        self._parsing: tokenizers.Tokenizer | None = None
        # Special tokens spelled out in a text are text, unless the caller asks to parse them.
        backend.encode_special_tokens = True
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
        alphabet = _vocab.byte_alphabet()
        self._byte_level = _vocab.is_byte_level(self._content)
        unknown = self._content["model"].get("unk_token")
        self._drops_silently = not self._byte_level and unknown is None
        present = bytes(byte for char, byte in alphabet.items() if char in vocab)
        self._present = present if self._byte_level and len(present) < 256 else None

    def _find_special(self, vocab: dict[str, int], bos: str | None, eos: str | None) -> None:
        for role, token in (("bos", bos), ("eos", eos)):
            if token is not None and token not in vocab:
                raise ValueError(f"Tokenizer: {role} must be in the vocabulary; got {token!r}")
        head, tail = self._template()
        known_eos = [vocab[name] for name in _EOS_NAMES if name in vocab]
        known_bos = [vocab[name] for name in _BOS_NAMES if name in vocab]
        self.eos_id = vocab[eos] if eos else next(iter([*tail[-1:], *known_eos]), None)
        self.bos_id = vocab[bos] if bos else next(iter([*head[:1], *known_bos]), self.eos_id)
        self.add_bos = bool(head) and head == [self.bos_id]
        self.add_eos = bool(tail) and tail == [self.eos_id]

    def _template(self) -> tuple[list[int], list[int]]:
        """The ids that the tokenizer's post-processor puts before and after a text."""
        for text in ("a", "0", " ", "\u4e00"):
            plain = self._backend.encode(text, add_special_tokens=False).ids
            whole = self._backend.encode(text, add_special_tokens=True).ids
            for start in range(len(whole) - len(plain) + 1 if plain else 0):
                if whole[start : start + len(plain)] == plain:
                    return whole[:start], whole[start + len(plain) :]
        return [], []

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
        _library()
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, pre_tokenizers, processors, trainers

        whole = isinstance(vocab_size, (int, np.integer)) and not isinstance(vocab_size, bool)
        if not whole or not 257 <= vocab_size <= _BPE_SIZE_MAX:
            raise ValueError(
                f"Tokenizer.train_bpe: vocab_size must be an integer >= 257 (256 bytes and"
                f" {END_OF_TEXT}) and <= {_BPE_SIZE_MAX}; got {vocab_size!r}; try 4096"
            )
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        backend.post_processor = processors.ByteLevel(trim_offsets=False)
        trainer = trainers.BpeTrainer(
            vocab_size=int(vocab_size),
            special_tokens=[END_OF_TEXT],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        documents = check_documents(texts, "train_bpe")
        # Long documents in pieces, of the same words: the library's memory grows with the longest.
        pieces = (piece for document in documents for piece in cut_text(document))
        backend.train_from_iterator(pieces, trainer)
        return cls(backend)

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
        _library()
        symbol = {byte: char for char, byte in _vocab.byte_alphabet().items()}
        seen: set[str] = set()
        for text in check_documents(texts, "chars"):
            seen.update(text)
        found = sorted(seen)
        tokens = {END_OF_TEXT: 0}
        merges: dict[tuple[str, str], None] = {}
        for char in found:
            encoded = [symbol[byte] for byte in char.encode()]
            for part in encoded:
                tokens.setdefault(part, len(tokens))
            for end in range(1, len(encoded)):
                left, right = "".join(encoded[:end]), encoded[end]
                merges[left, right] = None
                tokens.setdefault(left + right, len(tokens))
        backend = _vocab.build(tokens, list(merges))
        backend.add_special_tokens([END_OF_TEXT])
        return cls(backend)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], bos: str | None = None, eos: str | None = None
    ) -> Tokenizer:
        """Read a JSON file of the `tokenizers` library.

        Args:
            path: the file, or a folder holding `tokenizer.json`. A `tokenizer_config.json` beside
                it says which tokens begin and end a text.
            bos: token that begins a text; None looks for it.
            eos: token that ends a text; None looks for it.

        Raises:
            FormatError: the file is missing, or is not a tokenizer.
            ValueError: bos or eos is not in the vocabulary.
        """
        file = path_like("Tokenizer.from_file", "path", path)
        if file.is_dir():
            file = file / "tokenizer.json"
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise FormatError(f"Tokenizer.from_file: {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise FormatError(f"Tokenizer.from_file: {file}: not UTF-8 at {error.start}") from error
        check_ids(file, text)
        try:
            backend = _library().Tokenizer.from_str(text)
        except ImportError:
            raise
        except Exception as error:  # the library raises bare Exception
            raise FormatError(
                f"Tokenizer.from_file: {file}: not a file of the tokenizers library: {error}"
            ) from error
        config = read_config(file.with_name("tokenizer_config.json"))
        return cls(backend, bos or config.get("bos_token"), eos or config.get("eos_token"))

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
            # Python itself refuses to read numbers of thousands of digits.
            if not spec[4:].isascii() or not spec[4:].isdigit() or len(spec) > 24:
                raise ValueError(
                    f"Tokenizer.from_spec: must be bpe:SIZE as in bpe:4096; got {spec!r:.40}"
                )
            return cls.train_bpe(texts, int(spec[4:]))
        if not os.fspath(spec) or not path_like("Tokenizer.from_spec", "spec", spec).exists():
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
        _library()
        try:
            vocabulary = _vocab.from_gguf(metadata)
        except FormatError:
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
        head, tail = self._template()
        if head != [self.bos_id] * self.add_bos or tail != [self.eos_id] * self.add_eos:
            raise FormatError(
                f"Tokenizer.to_gguf_metadata: only one token may lead and one may follow a text;"
                f" got {head} and {tail}, with bos_id={self.bos_id}, eos_id={self.eos_id}"
            )
        vocabulary = _vocab.Vocabulary(
            self._backend, self.bos_id, self.eos_id, self.add_bos, self.add_eos
        )
        return _vocab.to_gguf(vocabulary, vocab_size)

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
        if not isinstance(text, str):
            raise TypeError(f"Tokenizer.encode: text must be text; got {type(text).__name__}")
        backend = self._for(parse_special)
        added = [t["content"] for t in self._content["added_tokens"] if parse_special]
        check_bytes(text, self._present, added)
        encoding = backend.encode(text, add_special_tokens=add_special)
        if self._drops_silently:
            check_covered(text, encoding)
        return np.array(encoding.ids, dtype=np.int32)

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
        if eos and self.eos_id is None:
            raise ValueError(
                "Tokenizer.encode_documents: the tokenizer has no end-of-text token; use eos=False"
            )
        if isinstance(documents, str):
            documents = [documents]
        for document in documents if several(documents) else (documents,):
            if not isinstance(document, str):
                raise TypeError(
                    "Tokenizer.encode_documents: every document must be text; got"
                    f" {type(document).__name__}"
                )
        head = [self.bos_id] if eos and self.add_bos and self.bos_id is not None else []
        parts: list[np.ndarray] = []
        for found, (starts, ends) in self._encode_pieces(documents):
            ids = [*(head if starts else []), *found, *([self.eos_id] if eos and ends else [])]
            parts.append(np.array(ids, dtype=np.int32))
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def _encode_pieces(
        self, documents: Sequence[str]
    ) -> Iterator[tuple[list[int], tuple[bool, bool]]]:
        """Ids of pieces, each with whether it starts and whether it ends its document."""
        for batch in batches(documents, self._can_cut()):
            for text, _ in batch:
                check_bytes(text, self._present, [])
            encodings = self._batch_encode([text for text, _ in batch])
            for (text, place), encoding in zip(batch, encodings, strict=True):
                if self._drops_silently:
                    check_covered(text, encoding)
                yield encoding.ids, place

    def _batch_encode(self, texts: list[str]) -> list[Any]:
        if self._byte_level:  # offsets are not needed
            return list(self._backend.encode_batch_fast(texts, add_special_tokens=False))
        return list(self._backend.encode_batch(texts, add_special_tokens=False))

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
        if not several(ids):
            raise DTypeError(
                f"Tokenizer.decode: ids must be integers, one after another; got {ids!r}"
            )
        numbers = [self._number(number) for number in ids]
        known = [number for number in numbers if number < self.vocab_size]
        return str(self._backend.decode(known, skip_special_tokens=skip_special))

    def _number(self, token_id: Any, who: str = "Tokenizer.decode: ids") -> int:
        """A token id, checked."""
        try:
            number = operator.index(token_id)
        except TypeError:
            raise DTypeError(f"{who} must be integers; got {token_id!r}") from None
        if not 0 <= number < self.vocab_size + _FILLERS_MAX:
            raise ValueError(
                f"{who} must be >= 0 and, fillers included, < {self.vocab_size + _FILLERS_MAX};"
                f" got {number}: is it of another tokenizer?"
            )
        return number

    def stream(self, skip_special: bool = True) -> StreamDecoder:
        """Start to decode token by token, never giving out half a character."""
        return StreamDecoder(self, skip_special)

    def token(self, token_id: int) -> str | None:
        """The text of a token as the vocabulary spells it, or None."""
        number = self._number(token_id, "Tokenizer.token: an id")
        text: str | None = self._backend.id_to_token(number)
        return text

    def token_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it, or None."""
        if not isinstance(token, str):
            raise TypeError(f"Tokenizer.token_id: token must be text; got {type(token).__name__}")
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
        file = path_like("Tokenizer.save", "path", path)
        with atomic_write(file, "w") as handle:
            handle.write(self._backend.to_str(pretty=True) + "\n")
        again = Tokenizer(_library().Tokenizer.from_str(self._backend.to_str()))
        config_file = file.with_name("tokenizer_config.json")
        if (again.bos_id, again.eos_id) != (self.bos_id, self.eos_id) or config_file.exists():
            config = read_config(config_file) if config_file.exists() else {}
            for role, number in (("bos_token", self.bos_id), ("eos_token", self.eos_id)):
                config[role] = None if number is None else self.token(number)
            with atomic_write(config_file, "w") as handle:
                handle.write(json.dumps(config, indent=2, ensure_ascii=False) + "\n")

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, eos_id={self.eos_id})"

    def __len__(self) -> int:
        return self.vocab_size

    def _for(self, parse_special: bool) -> tokenizers.Tokenizer:
        if not parse_special:
            return self._backend
        if self._parsing is None:
            self._parsing = _library().Tokenizer.from_str(self._backend.to_str())
        return self._parsing

    def _can_cut(self) -> bool:
        """Whether words never span a letter and a line end after it."""
        if not self._byte_level or self._content.get("normalizer"):
            return False
        if any("\n" in token["content"] for token in self._content["added_tokens"]):
            return False
        try:
            return _vocab.cuts_at_newline(self._content)
        except FormatError:
            return False
