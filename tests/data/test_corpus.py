# SPDX-License-Identifier: MIT
from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyggml.data import Corpus, Tokenizer, TokenStore, embedded_text, read_text
from pyggml.data.text import chunks
from pyggml.data.text import files as text_files
from pyggml.errors import FormatError

pytest.importorskip("tokenizers")
TEXTS = embedded_text()[:12]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe(TEXTS, 300)


def jsonl(path: Path, texts: list[str], field: str = "text") -> Path:
    path.write_text("".join(json.dumps({field: text, "id": 1}) + "\n" for text in texts))
    return path


def decoded(documents: Any, tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(document[:-1]) for document in documents]


def test_records_are_read_as_records(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """And not as the text that spells them."""
    rows = jsonl(tmp_path / "a.jsonl", [*TEXTS, "  "], "body")
    (tmp_path / "b.csv").write_text('id,body\n1,"one\n""two"""\n', newline="")
    with gzip.open(tmp_path / "c.jsonl.gz", "wt") as file:
        file.write(json.dumps({"body": "packed"}))
    (tmp_path / "d.txt").write_text("plain")
    paths = [rows, *(tmp_path / name for name in ("b.csv", "d.txt", "c.jsonl.gz"))]
    want = [*TEXTS, 'one\n"two"', "plain", "packed"]
    found = Corpus(paths, field="body")
    assert decoded(found.tokens(tokenizer), tokenizer) == want
    store = TokenStore.build(paths, tokenizer, tmp_path / "c", field="body")
    assert decoded(store.documents, tokenizer) == want
    assert TokenStore.build(found, tokenizer, tmp_path / "c").path == store.path
    assert "".join(found.pieces()) == "".join(want)
    with pytest.raises(FormatError, match=r"a\.jsonl:1: must have the field 'text'; got 'body'"):
        TokenStore.build(rows, tokenizer, tmp_path / "c")


def test_parquet(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"body": TEXTS}), tmp_path / "a.parquet")
    store = TokenStore.build(tmp_path / "a.parquet", tokenizer, tmp_path / "c", field="body")
    assert decoded(store.documents, tokenizer) == TEXTS


def test_another_field_is_another_store(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one", "body": "two"}')
    paths = [TokenStore.build(tmp_path / "a.jsonl", tokenizer, tmp_path, field=field).path
             for field in ("text", "body")]  # fmt: skip
    (tmp_path / "a.txt").write_text('{"text": "one", "body": "two"}')
    paths.append(TokenStore.build(tmp_path / "a.txt", tokenizer, tmp_path).path)
    assert len(set(paths)) == 3


def test_progress_of_records_ends(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", TEXTS)
    seen: list[tuple[int, int]] = []
    TokenStore.build(path, tokenizer, tmp_path, progress=lambda *at: seen.append(at))
    assert seen == sorted(seen)
    assert seen[-1] == (2 * path.stat().st_size,) * 2


def test_folders(tmp_path: Path) -> None:
    for folder, names in {
        "text": ["b.txt", "a.md", "sub/c.rst", ".hidden.txt", "code.py"],
        "rows": ["b.jsonl", "a.csv", "code.py"],
        "both": ["README.md", "data/rows.parquet"],
    }.items():
        for name in names:
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text("text\nx")
    found = Corpus(tmp_path / "text")
    assert [file.name for file in found.files] == ["a.md", "b.txt", "c.rst"]
    assert (found.has_text, found.has_records, found.left_out) == (True, False, [])
    found = Corpus(tmp_path / "rows")
    assert [file.name for file in found.files] == ["a.csv", "b.jsonl"]
    assert (found.has_text, found.has_records) == (False, True)
    found = Corpus(tmp_path / "both")
    assert [file.name for file in found.files] == ["README.md"]
    assert [file.name for file in found.left_out] == ["rows.parquet"]
    # A file reached twice is read once.
    assert len(Corpus([tmp_path / "text", tmp_path / "text" / "a.md"]).files) == 3


def test_tokens_are_those_of_whole_documents(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1000)
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", 5000)
    for number, text in enumerate([*TEXTS, " \n"]):
        (tmp_path / f"{number:02}.txt").write_text(text)
    found = Corpus(tmp_path).tokens(tokenizer)
    want = tokenizer.encode_documents(read_text(tmp_path))
    np.testing.assert_array_equal(found.ids, want)
    assert found.ids.dtype == want.dtype
    np.testing.assert_array_equal(Corpus.of(TEXTS).tokens(tokenizer).ids, want)
    store = TokenStore.build(tmp_path, tokenizer, tmp_path / "c")
    in_memory = TokenStore.build(Corpus.of(TEXTS), tokenizer, tmp_path / "c")
    np.testing.assert_array_equal(store.ids, want)
    np.testing.assert_array_equal(in_memory.ids, want)
    plain = Corpus.of(TEXTS).tokens(tokenizer, eos=False)
    np.testing.assert_array_equal(plain.ids, tokenizer.encode_documents(TEXTS, eos=False))


def test_the_checksum_is_that_of_the_ids(tokenizer: Tokenizer, tmp_path: Path) -> None:
    import zlib

    store = TokenStore.build(Corpus.of(TEXTS), tokenizer, tmp_path)
    want = zlib.crc32(np.asarray(store.ids, np.int32).tobytes())
    assert store.crc32 == want


def test_pieces_make_the_tokenizer_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 3000)
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    pieces = list(Corpus(tmp_path).pieces())
    assert len(pieces) > 10
    assert "".join(pieces) == "\n".join(TEXTS)
    whole = Tokenizer.train_bpe(["\n".join(TEXTS)], 350)
    assert Tokenizer.train_bpe(iter(pieces), 350).to_json() == whole.to_json()
    assert Tokenizer.chars(iter(pieces)).to_json() == Tokenizer.chars([*TEXTS, "\n"]).to_json()


def test_some_of_the_pieces_come_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1000)
    (tmp_path / "a.txt").write_text("\n".join(f"line {n} end" for n in range(10000)))
    found = Corpus(tmp_path)
    some = list(found.pieces(found.size_bytes // 10))
    size = sum(map(len, some))
    assert found.size_bytes / 15 < size < found.size_bytes / 8
    numbers = [int(piece.split()[1]) for piece in some]
    assert np.diff([*numbers, 10000]).max() < 1500


def test_separators(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one<|endoftext|>two\n<|endoftext|> \n<|endoftext|>three")
    found = Corpus(tmp_path, separator="<|endoftext|>")
    assert list(found.pieces()) == ["one", "two\n", "three"]
    assert decoded(found.tokens(tokenizer), tokenizer) == ["one", "two\n", "three"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, r"a\.txt: no such file or folder"),
        (b"", r"a\.txt: must hold text; the file is empty"),
        (b" \n\t", r"a\.txt: must hold text; the file is empty"),
        (b"text\0more", r"a\.txt: must be text; got a NUL byte at offset 4"),
        (b"caf\xe9!", r"a\.txt: text must be UTF-8; got byte 0xe9 at offset 3"),
        ("text".encode("utf-16"), r"a\.txt: text must be UTF-8; got UTF-16"),
        (
            gzip.compress(b"text", mtime=0),
            r"a\.txt: must be text; got a gzip file; unpack it first",
        ),
        (b"PK\3\4rest", r"a\.txt: must be text; got a zip file"),
    ],
)
def test_files_that_are_no_text(
    tokenizer: Tokenizer, tmp_path: Path, content: bytes | None, match: str
) -> None:
    path = tmp_path / "a.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FormatError, match=match):
        list(Corpus(path).pieces())
    with pytest.raises(FormatError, match=match):
        Corpus(path).tokens(tokenizer)


def test_bad_arguments(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.jsonl").write_text('{"text": " "}')
    os.mkfifo(tmp_path / "pipe") if hasattr(os, "mkfifo") else None
    calls: list[tuple[Any, type[Exception], str]] = [
        (lambda: Corpus([]), FormatError, "at least one file"),
        (lambda: Corpus(""), FormatError, "must not be empty"),
        (lambda: Corpus(5), TypeError, "paths"),  # type: ignore[arg-type]
        (lambda: Corpus({"text": "a"}), TypeError, r"paths .* for rows"),  # type: ignore[arg-type]
        (lambda: Corpus(tmp_path, field=""), ValueError, "field"),
        (lambda: Corpus(tmp_path, separator=""), ValueError, "separator"),
        (lambda: Corpus(tmp_path / "empty"), FormatError, "no text file .* no file of records"),
        (lambda: Corpus.of([1]), TypeError, "text 0 is a int"),  # type: ignore[list-item]
        (lambda: Corpus(tmp_path / "a.jsonl").tokens(tokenizer), FormatError, "are blank"),
        (lambda: Corpus.of(["a"]).tokens("chars"), TypeError, "tokenizer"),  # type: ignore[arg-type]
    ]
    if hasattr(os, "mkfifo"):
        calls.append((lambda: Corpus(tmp_path / "pipe"), FormatError, "neither a regular file"))
    for call, error, match in calls:
        with pytest.raises(error, match=match):
            call()


def test_a_character_that_is_missing_names_the_file(tmp_path: Path) -> None:
    chars = Tokenizer.chars(["abc\n"])
    with pytest.raises(FormatError, match=r"a\.jsonl:1: .*'d' \(U\+0064\) at offset 3"):
        Corpus(jsonl(tmp_path / "a.jsonl", ["abcd"])).tokens(chars)
    (tmp_path / "a.txt").write_text("abcd")
    with pytest.raises(FormatError, match=r"a\.txt: .*'d' \(U\+0064\)"):
        Corpus(tmp_path / "a.txt").tokens(chars)
