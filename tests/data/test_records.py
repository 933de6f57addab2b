# SPDX-License-Identifier: MIT
from __future__ import annotations

import csv
import gzip
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyggml.data import (
    IGNORE_INDEX,
    Corpus,
    PackedDataset,
    Tokenizer,
    TokenStore,
    encode_pairs,
    read_chats,
    read_choices,
    read_labelled,
    read_pairs,
    read_records,
    read_table,
    read_texts,
)
from pyggml.data.text import record_files
from pyggml.data.text.chat.preferences import read_preferences
from pyggml.errors import FormatError
from pyggml.io import regular

ROWS = [
    {"text": "one\ntwo", "id": "1"},
    {"text": 'quoted, "so"', "id": "2"},
    {"text": "é世", "id": "3"},
]


def jsonl(path: Path) -> None:
    path.write_text(
        '{"text": "one\\ntwo", "id": "1"}\n\n{"text": "quoted, \\"so\\"", "id": "2"}\r\n'
        '{"id": "3", "text": "é世"}',
        encoding="utf-8",
        newline="",
    )


def table(path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["text", "id"], delimiter="\t" if "tsv" in path.name else ",")
        writer.writeheader()
        writer.writerows(ROWS)


def parquet(path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(ROWS), path)


FILES = {
    "a.jsonl": jsonl,
    "a.NDJSON": jsonl,
    "a.csv": table,
    "a.tsv": table,
    "a.parquet": parquet,
}


@pytest.mark.parametrize("name", FILES)
def test_rows_of_files(tmp_path: Path, name: str) -> None:
    FILES[name](tmp_path / name)
    assert list(read_records(tmp_path / name)) == ROWS
    assert list(read_texts(str(tmp_path / name))) == [row["text"] for row in ROWS]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_compressed_files_and_byte_order_marks(tmp_path: Path, name: str) -> None:
    FILES[name](tmp_path / name)
    data = b"\xef\xbb\xbf" + (tmp_path / name).read_bytes()
    with gzip.open(tmp_path / f"{name}.gz", "wb") as file:
        file.write(data)
    assert list(read_records([tmp_path / f"{name}.gz", tmp_path / name])) == ROWS * 2


def test_rows_of_lists_generators_and_datasets() -> None:
    assert list(read_records(ROWS)) == ROWS
    assert list(read_records(row for row in ROWS)) == ROWS

    class Columns:
        """What a dataset of the `datasets` library offers."""

        column_names = ("text", "id")

        def __iter__(self) -> Iterator[dict[str, Any]]:
            return iter(ROWS)

    assert list(read_records(Columns())) == ROWS
    assert list(read_texts(Columns())) == [row["text"] for row in ROWS]


@pytest.mark.skipif(sys.platform != "linux", reason="names that are any bytes")
def test_a_parquet_file_whose_name_is_no_unicode(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.parquet")
    parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").rename(path)
    assert list(read_records(path)) == ROWS


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return pytest.importorskip("datasets", exc_type=ImportError)


def test_datasets_of_hugging_face(datasets: Any) -> None:
    rows = datasets.Dataset.from_list(ROWS)
    assert list(read_records(rows)) == ROWS
    assert list(read_records(rows.to_iterable_dataset())) == ROWS
    assert list(read_texts(rows.select([1]))) == [ROWS[1]["text"]]
    with pytest.raises(TypeError, match=r"source\['train'\]"):
        next(read_records(datasets.DatasetDict({"train": rows})))


@pytest.mark.parametrize("kind", ["Dataset", "IterableDataset", "generated", "numpy"])
def test_datasets_are_read_as_texts_and_pairs(datasets: Any, tmp_path: Path, kind: str) -> None:
    """All the ways from a dataset to batches, twice: iterating it again gives the same."""
    pytest.importorskip("tokenizers")
    columns = {"q": ["2 + 2 =", "1 + 1 ="], "a": [" 4", " 2"], "id": [1, 2]}
    rows = datasets.Dataset.from_dict(columns)
    if kind == "IterableDataset":
        rows = rows.to_iterable_dataset()
    elif kind == "generated":
        each = list(rows)
        rows = datasets.IterableDataset.from_generator(lambda: iter(each))
    elif kind == "numpy":
        rows = rows.with_format("numpy")
    tokenizer = Tokenizer.chars(["0123456789 +=x"])
    for number in range(2):
        assert list(read_texts(rows, "a")) == columns["a"]
        corpus = Corpus.of(read_texts(rows, "q"))
        store = TokenStore.write(tmp_path / f"s{number}", read_texts(rows, "q"), tokenizer)
        want = [*(tokenizer.encode(text) for text in columns["q"])]
        for documents in (corpus.tokens(tokenizer), store.documents):
            assert [d[:-1].tolist() for d in documents] == [list(ids) for ids in want]
        pairs = encode_pairs(read_pairs(rows, "q", "a"), tokenizer)
        batch = PackedDataset(pairs, 16).batch(np.array([0, 1]))
        assert batch.tokens == 6
    with pytest.raises(FormatError, match=r"row 0: .*'text'"):
        list(read_texts(rows))
    with pytest.raises(FormatError, match=r"row 0: id must be text; got int"):
        list(read_texts(rows, "id"))
    name = type(rows).__name__
    with pytest.raises(TypeError, match=rf"paths .*{name}.*Corpus\.of"):
        Corpus(rows)
    with pytest.raises(TypeError, match=rf"paths .*{name}.*TokenStore\.write"):
        TokenStore.build(rows, tokenizer, tmp_path)


def test_rows_in_the_place_of_paths_or_texts_name_what_takes_them(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    tokenizer = Tokenizer.chars(["ab"])
    for call in (
        lambda: Corpus(ROWS),
        lambda: Corpus.of(ROWS),
        lambda: TokenStore.build(ROWS, tokenizer, tmp_path),
    ):
        with pytest.raises(TypeError, match=r"Corpus\.of\(read_texts"):
            call()
    with pytest.raises(TypeError, match=r"read_texts\(rows, field\)"):
        TokenStore.write(tmp_path / "s", ROWS, tokenizer)
    with pytest.raises(TypeError, match=r"paths .*got 5"):
        Corpus([5])


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": }\n', r"a\.jsonl:2: not JSON: Expecting value"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', r"a\.jsonl:2: must be a JSON object; got list"),
        ("a.jsonl", b'{"text": "a"}\n\n{"b": 1}\n', r"a\.jsonl:3: must have .*'text'; got 'b'"),
        ("a.jsonl", b'{"text": 1}', r"a\.jsonl:1: text must be text; got int"),
        ("a.jsonl", b'{"text": "a\\ud800"}', r"a\.jsonl:1: must be valid Unicode; .*ud800"),
        ("a.json", b'[{"text": "\\uDFFF"}]', r"a\.json: item 0: must be valid Unicode"),
        ("a.jsonl", b'{"text": null}', r"a\.jsonl:1: text must be text; got NoneType"),
        ("a.jsonl", b'{"text": "\xff"}', r"a\.jsonl:1: text must be UTF-8; got byte 0xff"),
        ("a.jsonl", b"PK\0\1", r"a\.jsonl:1: must be text; got a NUL byte"),
        ("a.jsonl", b"[" * 10**5, r"a\.jsonl:1: not JSON"),
        ("a.csv", b'text,id\n"a\nb",1\nc\n', r"a\.csv:4: must have 2 fields .*got 1"),
        ("a.csv", b'text,id\n"a"b,1\n', r"a\.csv:2: not CSV: ',' expected after '\"'"),
        ("a.csv", b'text,id\n"a\n', r"a\.csv:2: not CSV: unexpected end of data"),
        ("a.csv", b"text,text\n", r"a\.csv:1: names of columns must differ; got text twice"),
        ("a.csv", b"body\nx\n", r"a\.csv:2: must have the field 'text'"),
        ("a.jsonl.gz", b"no gzip", r"a\.jsonl\.gz:1: not JSON"),
        ("a.parquet", b"PAR1 or not", r"a\.parquet: row 0: not a Parquet file"),
        ("a.txt", b"text", r"a\.txt: must end in one of \.jsonl, \.ndjson"),
        ("a", b"text", r"a: must end in one of"),
    ],
)  # fmt: skip
def test_bad_lines_are_refused_with_file_and_line(
    tmp_path: Path, name: str, content: bytes, match: str
) -> None:
    if "parquet" in name:
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=match):
        list(read_texts(tmp_path / name))


def test_a_parquet_file_with_a_damaged_name_is_refused(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole.replace(b"text", b"\xfe\xffxt"))
    with pytest.raises(FormatError, match=r"b\.parquet: row 0: not a Parquet file, or damaged"):
        list(read_texts(tmp_path / "b.parquet"))


def test_large_fields(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    (tmp_path / "a.csv").write_text("text\n" + "x" * 300_000 + "\n")
    assert [len(text) for text in read_texts(tmp_path / "a.csv")] == [300_000]
    assert csv.field_size_limit() == limit


def test_bad_sources(tmp_path: Path) -> None:
    for source, error, match in [
        (tmp_path / "no.csv", FormatError, r"no\.csv: no such file"),
        (5, TypeError, "must be a path, a dataset, or rows; got int"),
        ([1], TypeError, "row 0 must be a mapping"),
        ({"train": ROWS}, TypeError, r"choose one of its parts: source\['train'\]"),
    ]:
        with pytest.raises(error, match=match):
            list(read_records(source))
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(FormatError, match="is a folder; name its files"):
        list(read_records(tmp_path / "b.csv"))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "c.csv")
        with pytest.raises(FormatError, match=r"c\.csv: must be a regular file"):
            list(read_records(tmp_path / "c.csv"))


def test_parquet_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "pyggml\[data\]"'):
        list(read_records(tmp_path / "a.parquet"))


def test_pairs_count_completions() -> None:
    pytest.importorskip("tokenizers")
    rows = [{"q": "2 + 2 =", "a": " 4"}, {"q": "", "a": "x"}]
    tokenizer = Tokenizer.chars(["0123456789 +=x"])
    pairs = list(read_pairs(rows, "q", "a"))
    documents = encode_pairs(pairs, tokenizer)
    assert [tokenizer.decode(d[:-1]) for d in documents] == ["2 + 2 = 4", "x"]
    assert all(d[-1] == tokenizer.eos_id for d in documents)
    assert documents.targets(0).tolist() == [False] * 7 + [True] * 3
    assert documents.targets(1).all()
    assert encode_pairs(pairs, tokenizer, train_on_prompt=True).targets(0).all()
    batch = PackedDataset(documents, 16).batch(np.array([0]))
    kept = batch.y[batch.y != IGNORE_INDEX]
    eos = tokenizer.eos_id
    assert kept.tolist() == [*tokenizer.encode(" 4"), eos, eos]
    with pytest.raises(FormatError, match="row 0: a must not be empty"):
        list(read_pairs([{"q": "", "a": ""}], "q", "a"))
    with pytest.raises(FormatError, match=r"row 0: .*'completion'"):
        list(read_pairs([{"prompt": ""}]))
    with pytest.raises(ValueError, match="needs at least one pair"):
        encode_pairs([], tokenizer)


def test_texts_go_into_a_store(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    jsonl(tmp_path / "a.jsonl")
    tokenizer = Tokenizer.chars(row["text"] for row in ROWS)
    store = TokenStore.write(tmp_path / "store", read_texts(tmp_path / "a.jsonl"), tokenizer)
    assert [tokenizer.decode(d[:-1]) for d in store.documents] == [row["text"] for row in ROWS]


def test_a_compressed_file_that_fills_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 MB of zeros by gzip is 1 GB: a single line, many lines, and a table."""
    monkeypatch.setattr(regular, "_RATIO_FREE_BYTES", 1 << 20)
    contents = {
        "line.jsonl.gz": b'{"text": "' + b"a" * (4 << 20) + b'"}',
        "lines.jsonl.gz": b'{"text": "' + b"a" * 90 + b'"}\n',
        "table.csv.gz": b"text\n" + b'"' + b"a\n" * (2 << 20) + b'"\n',
    }
    contents["lines.jsonl.gz"] *= 40_000
    for name, content in contents.items():
        (tmp_path / name).write_bytes(gzip.compress(content, 6))
        with pytest.raises(FormatError, match=name):
            for _ in read_texts(tmp_path / name):
                pass
        with pytest.raises(FormatError, match=name):
            Corpus(tmp_path / name)


def test_a_line_is_in_memory_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "_LINE_MAX", 100)
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "%s"}\n' % ("a" * 80) * 3)
    assert len(list(read_texts(file))) == 3
    file.write_text('{"text": "a"}\n{"text": "%s"}\n' % ("a" * 100))
    with pytest.raises(FormatError, match=r"a\.jsonl:2: "):
        list(read_texts(file))


def test_the_size_of_compressed_text_is_that_of_the_text(tmp_path: Path) -> None:
    text = b'{"text": "again"}\n' * 10_000
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text))
    assert Corpus(tmp_path / "a.jsonl.gz").size_bytes == len(text)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_what_stands_between_the_columns_of_a_table_is_found(tmp_path, mark):
    text = '"a, completion";prompt\n4;"2;2 = ?"\n'.replace(";", mark)
    (tmp_path / "c.csv").write_text(text)
    row = next(iter(read_records(tmp_path / "c.csv")))
    assert row == {"prompt": f"2{mark}2 = ?", "a, completion": "4"}
    (tmp_path / "c.csv").write_text("text\nthis; that\n")  # one column, with a comma between
    assert next(iter(read_records(tmp_path / "c.csv"))) == {"text": "this; that"}


@pytest.mark.parametrize(
    "read",
    [
        read_chats,
        read_choices,
        read_preferences,
        read_labelled,
        lambda source: read_table(source, "label"),
    ],
    ids=["chats", "choices", "preferences", "labelled", "table"],
)
def test_files_without_rows_are_named(read: Callable[[Any], Any], tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("text,label\n")
    for source in (tmp_path / "none.csv", [str(tmp_path / "none.csv")]):
        with pytest.raises(FormatError, match=r"none\.csv: needs at least .*; got none"):
            read(source)
    with pytest.raises(FormatError, match=r"^\w+: needs at least .*; got none"):
        read([])
