# SPDX-License-Identifier: MIT
"""Text that is cut and encoded in parallel has the tokens of the whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from pyggml.data import Corpus, Tokenizer, TokenStore, embedded_text
from pyggml.data.text import chunks, encoding, files
from pyggml.data.text.chunks import cut

TEXTS = [*embedded_text()[:3], "Zwei Wörter\nund 世界\n\n\nfoo  bar\r\nΑΒΓ\r\nд\nlast \n", "x"]


def backend_of(model: Any, pre: Any, normalizer: Any = None) -> Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre
    if normalizer is not None:
        backend.normalizer = normalizer
    return Tokenizer(backend)


def pieces(prefix: str = "") -> dict[str, int]:
    """A vocabulary of characters, and of some words."""
    letters = sorted(set("".join(TEXTS)) - set(" \n\r"))
    known = ["[UNK]", *letters, *(prefix + letter for letter in letters if prefix), "the", "with"]
    return {token: number for number, token in enumerate(known)}


def word_piece() -> Tokenizer:
    model = models.WordPiece(pieces("##"), unk_token="[UNK]")
    return backend_of(model, pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())


def unigram() -> Tokenizer:
    scores = [("[UNK]", 0.0), *((token, -5.0) for token in [*pieces(), "\n", "\r", "▁", "▁the"])]
    model = models.Unigram(list(dict(scores).items()), unk_id=0, byte_fallback=False)
    return backend_of(model, pre_tokenizers.Metaspace())


def words() -> Tokenizer:
    model = models.WordLevel({"[UNK]": 0, "the": 1, "with": 2}, unk_token="[UNK]")
    return backend_of(model, pre_tokenizers.Whitespace())


def not_of_bytes() -> Tokenizer:
    model = models.BPE({**pieces(), "\n": 9999, "\r": 10000}, [])
    return backend_of(model, pre_tokenizers.Split(" ", "removed"))


def normalized() -> Tokenizer:
    backend = tokenizers.Tokenizer.from_str(Tokenizer.train_bpe(TEXTS, 400).to_json())
    backend.normalizer = normalizers.NFC()
    return Tokenizer(backend)


def with_added(content: str, **settings: bool) -> Tokenizer:
    backend = tokenizers.Tokenizer.from_str(Tokenizer.train_bpe(TEXTS, 400).to_json())
    backend.add_tokens([AddedToken(content, normalized=False, **settings)])
    return Tokenizer(backend)


def shortening() -> Tokenizer:
    """A file whose settings cut texts off, and fill them up."""
    backend = tokenizers.Tokenizer.from_str(Tokenizer.train_bpe(TEXTS, 400).to_json())
    backend.enable_truncation(8)
    backend.enable_padding(length=12)
    return Tokenizer(backend)


# Whether each may be cut.
KINDS: dict[str, tuple[Callable[[], Tokenizer], bool]] = {
    "bpe": (lambda: Tokenizer.train_bpe(TEXTS, 400), True),
    "chars": (lambda: Tokenizer.chars(TEXTS), True),
    "truncation": (shortening, True),
    "added": (lambda: with_added("with"), True),
    "added, takes the space after it": (lambda: with_added("und", rstrip=True), False),
    "added, spans a line end": (lambda: with_added("r\r"), False),
    "normalizer": (normalized, False),
    "BPE not of bytes": (not_of_bytes, False),
    "WordPiece": (word_piece, False),
    "Unigram": (unigram, False),
    "WordLevel": (words, False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_paths_give_the_tokens_of_the_whole(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 4)
    monkeypatch.setattr(files, "_BLOCK_BYTES", 7)
    monkeypatch.setattr(encoding, "_BATCH_CHARS", 300)
    make, cuttable = KINDS[kind]
    tokenizer = make()
    assert tokenizer.cuttable == cuttable
    whole = [tokenizer.encode(text).tolist() for text in TEXTS]
    want = [number for ids in whole for number in ids]
    assert tokenizer.encode_documents(TEXTS, eos=False).tolist() == want
    found = Corpus.of(TEXTS).tokens(tokenizer, eos=False)
    assert [ids.tolist() for ids in found] == whole
    for number, text in enumerate(TEXTS):
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
    store = TokenStore.build(tmp_path, tokenizer, tmp_path / "cache", eos=False)
    assert [ids.tolist() for ids in store.documents] == whole
    written = TokenStore.write(tmp_path / "store", TEXTS, tokenizer, eos=False)
    np.testing.assert_array_equal(written.ids, want)


def test_truncation_in_a_file_does_not_shorten_texts() -> None:
    plain = Tokenizer.train_bpe(TEXTS, 400)
    assert shortening().encode(TEXTS[0]).tolist() == plain.encode(TEXTS[0]).tolist()


@pytest.mark.parametrize("separator", [None, "|", "\n\n", "word\n", "aa", "\r\n"])
def test_chunks_join_to_the_documents(
    separator: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the blocks fall; no chunk but the last of a document is short."""
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 5)
    draw = random.Random(0)
    parts = ["a", "b ", "\n", "\r\n", "\r", "|", "世", "word\n", "  "]
    for _ in range(200):
        text = "".join(draw.choices(parts, k=60))
        blocks, rest = [], text
        while rest:
            size = draw.choice([1, 2, 3, 10, 50])
            blocks.append(rest[:size])
            rest = rest[size:]
        documents: list[str] = []
        for chunk in cut(blocks, separator=separator):
            assert text.startswith(chunk.text, chunk.offset)
            if chunk.starts:
                documents.append("")
            documents[-1] += chunk.text
            assert chunk.ends or len(chunk.text) >= 5
        assert documents == (text.split(separator) if separator else [text])
