# SPDX-License-Identifier: MIT
from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyggml.data import END_OF_TEXT, Documents, RandomWindows, Tokenizer, TokenStore, embedded_text
from pyggml.data.text import chunks, corpus, vocabulary
from pyggml.data.text import files as text_files
from pyggml.data.text.encoding import Encoder
from pyggml.errors import FormatError
from pyggml.io.sealed import seal

pytest.importorskip("tokenizers")
TEXTS = embedded_text()[:30]
MIXED = "Zwei Wörter\nund 世界\n\n\nfoo  bar\r\nΑΒΓ\nд\nlast"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train_bpe(TEXTS, 400)


def files(folder: Path, *texts: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    made = []
    for number, text in enumerate(texts):
        made.append(folder / f"{number}.txt")
        made[-1].write_bytes(text.encode())
    return made


def cut_small(monkeypatch: pytest.MonkeyPatch, chars: int) -> None:
    """Cut as if texts were large."""
    monkeypatch.setattr(chunks, "CHUNK_CHARS", chars)
    monkeypatch.setattr(text_files, "_BLOCK_BYTES", chars)


@pytest.mark.parametrize("chars", [1, 7, 100, 5000])
def test_ids_are_those_of_whole_documents(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chars: int
) -> None:
    cut_small(monkeypatch, chars)
    texts = [MIXED, *(TEXTS[:4] if chars > 7 else [TEXTS[0][:300]]), "x", "y\n"]
    store = TokenStore.build(files(tmp_path / "t", *texts), tokenizer, tmp_path)
    np.testing.assert_array_equal(store.ids, tokenizer.encode_documents(texts))
    assert store.ids.dtype == np.uint16
    assert len(store.documents) == len(texts)
    for document, text in zip(store.documents, texts, strict=True):
        assert tokenizer.decode(document[:-1]) == text
    store.verify()


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2"])
def test_no_way_of_splitting_words_spans_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pre: str
) -> None:
    cut_small(monkeypatch, 1)
    trained = Tokenizer.train_bpe([MIXED * 5, *TEXTS[:5]], 500)
    model = json.loads(trained.to_json())["model"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    backend = vocabulary.build(model["vocab"], merges, pre)
    backend.add_special_tokens([END_OF_TEXT])
    tokenizer = Tokenizer(backend)
    assert tokenizer.cuttable
    rng = np.random.default_rng(0)
    pieces = [*"aZ é世д1 .'\t", "\n", "\n", "\r\n", "\r", "'s", "\u0301", "\n\n", "  "]
    for trial in range(8):
        text = "x" + "".join(rng.choice(pieces, 200))
        store = TokenStore.build(files(tmp_path / str(trial), text), tokenizer, tmp_path / "c")
        np.testing.assert_array_equal(store.ids, tokenizer.encode_documents([text]))
        # `encode` does not cut at all.
        np.testing.assert_array_equal(store.ids[:-1], tokenizer.encode(text))


@pytest.mark.parametrize("separator", ["\n\n", "END\n", "<|endoftext|>", "|", "aa"])
@pytest.mark.parametrize("chars", [1, 3, 20, 10**6])
def test_separators_cut_as_str_split(
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    separator: str,
    chars: int,
) -> None:
    cut_small(monkeypatch, chars)
    rng = np.random.default_rng(0)
    pieces = [separator, separator[:1], "word", "\n", "é 世界\n", "a", "x\ny", "|", " "]
    for trial in range(6):
        text = "".join(rng.choice(pieces, size=60))
        want = [part for part in text.split(separator) if part.strip()]
        paths = files(tmp_path / f"t{trial}", text)
        store = TokenStore.build(paths, tokenizer, tmp_path / "cache", separator=separator)
        got = [tokenizer.decode(d[:-1]) for d in store.documents]
        assert got == want
        assert all(d[-1] == tokenizer.eos_id for d in store.documents)


def test_the_same_content_is_found_again(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = TokenStore.build(files(tmp_path / "a", *TEXTS[:3]), tokenizer, tmp_path / "c")
    before = (first.path / "tokens.bin").stat().st_mtime_ns
    monkeypatch.setattr(Encoder, "_encode_batch", None)  # nothing is tokenized
    again = TokenStore.build(files(tmp_path / "b", *TEXTS[:3]), tokenizer, tmp_path / "c")
    assert (again.path, (again.path / "tokens.bin").stat().st_mtime_ns) == (first.path, before)


def test_other_text_tokenizer_or_settings_are_other_stores(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    paths = files(tmp_path / "a", "one\n\ntwo", "three")
    other = Tokenizer.train_bpe(TEXTS[:5], 300)
    made = [
        TokenStore.build(paths, tokenizer, tmp_path / "c"),
        TokenStore.build(paths[:1], tokenizer, tmp_path / "c"),
        TokenStore.build(paths[::-1], tokenizer, tmp_path / "c"),
        TokenStore.build(paths, other, tmp_path / "c"),
        TokenStore.build(paths, tokenizer, tmp_path / "c", eos=False),
        TokenStore.build(paths, tokenizer, tmp_path / "c", separator="\n\n"),
    ]
    paths[0].write_text("one\n\ntwp")
    made.append(TokenStore.build(paths, tokenizer, tmp_path / "c"))
    assert len({store.path for store in made}) == len(made)
    assert len(made[5].documents) == 3


def test_progress_counts_all_bytes_twice(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = files(tmp_path / "a", *TEXTS[:3])
    total = 2 * sum(path.stat().st_size for path in paths)
    for _ in range(2):  # built, then found
        seen: list[tuple[int, int]] = []
        TokenStore.build(paths, tokenizer, tmp_path, progress=lambda *at, to=seen: to.append(at))
        assert seen == sorted(seen)
        assert seen[-1] == (total, total)


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    many = Tokenizer.chars(TEXTS)
    many.vocab_size = 70000  # what decides
    store = TokenStore.build(files(tmp_path / "a", "plain"), many, tmp_path)
    assert store.ids.dtype == np.uint32
    assert many.decode(store.documents[0][:-1]) == "plain"


def test_streams_of_documents(tokenizer: Tokenizer, tmp_path: Path) -> None:
    store = TokenStore.write(tmp_path / "s", (t for t in [*TEXTS, "  "]), tokenizer)
    np.testing.assert_array_equal(store.ids, tokenizer.encode_documents(TEXTS))
    assert len(store.documents) == len(TEXTS)
    assert store.documents.lengths.sum() == len(store)
    with pytest.raises(FileExistsError):
        TokenStore.write(tmp_path / "s", TEXTS, tokenizer)
    with pytest.raises(TypeError, match="document 1 is a int"):
        TokenStore.write(tmp_path / "t", ["a", 1], tokenizer)  # type: ignore[list-item]
    with pytest.raises(FormatError, match="all documents are empty"):
        TokenStore.write(tmp_path / "t", [""], tokenizer)
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_windows_of_a_store(tokenizer: Tokenizer, tmp_path: Path) -> None:
    store = TokenStore.write(tmp_path / "s", TEXTS, tokenizer)
    assert isinstance(store.ids, np.memmap)
    x, y = RandomWindows(store.ids, 16).batch(np.array([5]))
    np.testing.assert_array_equal(x[0], store.ids[5:21])
    np.testing.assert_array_equal(y[0], store.ids[6:22])


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"fine\n" * 20 + b"bad \xff", r"1\.txt: text must be UTF-8; got byte 0xff at offset 104"),
        (b"fine\n" * 20 + b"\0", r"1\.txt: must be text; got a NUL byte at offset 100"),
        (b"\xff\xfea\0", r"1\.txt: text must be UTF-8; got UTF-16"),
    ],
)
def test_bad_files_are_refused_by_name(
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    match: str,
) -> None:
    cut_small(monkeypatch, 30)
    paths = files(tmp_path / "a", "good\n" * 30, "")
    paths[1].write_bytes(content)
    with pytest.raises(FormatError, match=match):
        TokenStore.build(paths, tokenizer, tmp_path / "c")
    assert list((tmp_path / "c").iterdir()) == []


def test_unknown_characters_name_the_file(tmp_path: Path) -> None:
    chars = Tokenizer.chars(["abc\n"])
    with pytest.raises(FormatError, match=r"0\.txt: .*'d' \(U\+0064\) at offset 3"):
        TokenStore.build(files(tmp_path / "a", "abcd"), chars, tmp_path)


def test_bad_arguments(tokenizer: Tokenizer, tmp_path: Path) -> None:
    paths = files(tmp_path / "a", "text")
    with pytest.raises(ValueError, match="separator"):
        TokenStore.build(paths, tokenizer, tmp_path, separator="")
    with pytest.raises(FormatError, match=r"nothing: no such file"):
        TokenStore.build(tmp_path / "nothing", tokenizer, tmp_path)
    with pytest.raises(FormatError, match=r"0\.txt: .*empty"):
        TokenStore.build(files(tmp_path / "b", ""), tokenizer, tmp_path)
    with pytest.raises(TypeError, match="tokenizer"):
        TokenStore.build(paths, "chars", tmp_path)  # type: ignore[arg-type]


def test_text_without_a_place_to_cut_is_refused(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch, 100)
    monkeypatch.setattr(corpus, "LONGEST_CHARS", 1000)
    with pytest.raises(FormatError, match=r"0\.txt: .*separator"):
        TokenStore.build(files(tmp_path / "a", "x " * 5000), tokenizer, tmp_path)


def sealed(**changes: object) -> object:
    """Change store.json, with a hash that fits."""

    def change(data: bytes) -> bytes:
        record = json.loads(data)
        del record["sha256"]
        return seal({**record, **changes})

    return change


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("store.json", lambda d: b"{", "store.json.*damaged"),
        ("store.json", lambda d: d.replace(b"<u2", b"<u4"), "store.json.*damaged"),
        ("store.json", sealed(format=3), "this is no token store"),
        ("store.json", sealed(version=9), "version must be 1"),
        ("store.json", sealed(dtype="<f8"), "dtype must be one of"),
        ("store.json", sealed(tokens=-1), "tokens must be"),
        ("store.json", sealed(hashes=1), "hashes must be"),
        ("store.json", sealed(vocab_size=2), r"tokens\.bin: ids must be below the vocab_size 2"),
        ("store.json", sealed(hashes={}), "tokens.bin must have size_bytes and sha256"),
        ("tokens.bin", lambda d: d[:-1], "bytes that store.json says"),
        ("documents.bin", lambda d: d[:8] + b"\xff" * 8 + d[16:], "offsets must ascend"),
        ("documents.bin", lambda d: b"\1" + d[1:], "offsets must be integers"),
        ("documents.bin", lambda d: d[:8] + d[16:24] * 2 + d[24:], r"documents\.bin: .*SHA-256"),
        ("tokens.bin", lambda d: bytes(len(d)), r"tokens\.bin: .*SHA-256"),
        ("tokens.bin", lambda d: bytes(np.roll(np.frombuffer(d, np.uint8), 2)), "SHA-256"),
    ],
)
def test_damaged_stores_are_refused(
    tokenizer: Tokenizer, tmp_path: Path, name: str, change: object, match: str
) -> None:
    store = TokenStore.write(tmp_path / "s", TEXTS[:3], tokenizer)
    file = store.path / name
    file.write_bytes(change(file.read_bytes()))  # type: ignore[operator]
    with pytest.raises(FormatError, match=match):
        TokenStore(store.path)


@pytest.mark.parametrize("name", ["tokens.bin", "documents.bin"])
@pytest.mark.parametrize(
    "change", [lambda d: b"short", lambda d: bytes(len(d)), lambda d: bytes(reversed(d))]
)
def test_a_damaged_store_is_built_anew(
    tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture, change, name: str
) -> None:
    paths = files(tmp_path / "a", *TEXTS[:3])
    store = TokenStore.build(paths, tokenizer, tmp_path / "c")
    want = [document.tolist() for document in store.documents]
    file = store.path / name
    file.write_bytes(change(file.read_bytes()))
    again = TokenStore.build(paths, tokenizer, tmp_path / "c")
    assert (again.path, [document.tolist() for document in again.documents]) == (store.path, want)
    assert len(list((tmp_path / "c").iterdir())) == 1
    assert f"{name}: " in caplog.text
    assert "The text is tokenized again" in caplog.text
    caplog.clear()
    TokenStore.build(paths, tokenizer, tmp_path / "c")
    assert not caplog.records


def test_a_damaged_store_that_cannot_be_replaced_is_not_taken(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = files(tmp_path / "a", *TEXTS[:3])
    built = TokenStore.build(paths, tokenizer, tmp_path / "c")
    (built.path / "tokens.bin").write_bytes(bytes(2 * len(built)))

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pyggml.data.text.store._write", full)
    with pytest.raises(OSError, match="No space left"):
        TokenStore.build(paths, tokenizer, tmp_path / "c")


def test_a_store_is_not_read_unless_it_is_to_be_checked(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    store = TokenStore.write(tmp_path / "s", TEXTS[:3], tokenizer)
    (store.path / "tokens.bin").write_bytes(bytes(2 * len(store)))
    unchecked = TokenStore(store.path, check=False)
    assert not unchecked.ids.any()
    with pytest.raises(FormatError, match="SHA-256"):
        unchecked.verify()


def test_a_store_that_another_process_built_first_is_taken(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = files(tmp_path / "a", *TEXTS[:3])
    inner: list[TokenStore] = []

    def progress(done: int, total: int) -> None:
        if done > total / 2 and not inner:
            inner.append(TokenStore.build(paths, tokenizer, tmp_path / "c"))

    outer = TokenStore.build(paths, tokenizer, tmp_path / "c", progress=progress)
    assert inner[0].path == outer.path
    np.testing.assert_array_equal(outer.ids, inner[0].ids)
    assert len(list((tmp_path / "c").iterdir())) == 1


BUILD = """
import json, sys
from pathlib import Path
from pyggml.data import TokenStore, Tokenizer
folder = Path(sys.argv[1])
tokenizer = Tokenizer.from_file(folder / "tokenizer.json")
def progress(done, total):
    if done > 0.6 * total:
        print("on the way", flush=True)
store = TokenStore.build(folder / "text", tokenizer, folder / "cache", progress=progress)
print("done", len(store))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_killed_build_leaves_no_half_store(tokenizer: Tokenizer, tmp_path: Path) -> None:
    files(tmp_path / "text", *(text * 8 for text in TEXTS))
    tokenizer.save(tmp_path / "tokenizer.json")
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on the way\n"
        process.send_signal(signal.SIGKILL)
    left = list((tmp_path / "cache").iterdir())
    assert [p.name[0] for p in left] == ["."]  # unfinished, under a hidden name
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    assert done.stdout.splitlines()[-1].startswith("done ")
    left = list((tmp_path / "cache").iterdir())
    assert [p.name[:7] for p in left] == ["tokens-"]
    assert json.loads((left[0] / "store.json").read_text())["documents"] == len(TEXTS)


def test_an_interrupted_build_leaves_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    total = sum(len(t.encode()) for t in TEXTS)

    def progress(done: int, _: int) -> None:
        if done > 1.5 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TokenStore.build(
            files(tmp_path / "a", *TEXTS), tokenizer, tmp_path / "c", progress=progress
        )
    assert list((tmp_path / "c").iterdir()) == []


def test_a_file_that_changes_while_it_is_read_raises(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Its name would be the hash of another text."""
    (path,) = files(tmp_path / "a", TEXTS[0])

    def progress(done: int, total: int) -> None:
        if done == total // 2:
            path.write_text("another text")

    with pytest.raises(FormatError, match=r"0\.txt: must not change"):
        TokenStore.build(path, tokenizer, tmp_path / "c", progress=progress)
    assert list((tmp_path / "c").iterdir()) == []


def test_documents() -> None:
    documents = Documents.of([[1, 2, 3], [], [4]], counted=[[0, 1, 1], [], [1]])
    assert [d.tolist() for d in documents] == [[1, 2, 3], [], [4]]
    assert documents.lengths.tolist() == [3, 0, 1]
    assert documents.targets(0).tolist() == [False, True, True]
    assert documents[-1].tolist() == [4]
    assert documents.part(0, 1).tolist() == [2, 3]
    assert documents.part(0, 1, 2).tolist() == [2]
    assert documents.part(0, 2, 99).tolist() == [3]  # and not the next document's
    assert documents.part(1, 0, 9).tolist() == []
    assert documents.targets(0, 0, 2).tolist() == [False, True]
    first, second = documents.split(0.4)
    assert [d.tolist() for d in first] == [[1, 2, 3]]
    assert [d.tolist() for d in second] == [[], [4]]
    assert second.targets(1).tolist() == [True]
    for call, match in [
        (lambda: Documents(np.arange(3), np.array([0, 2])), "from 0 to 3"),
        (lambda: Documents(np.arange(3), np.array([0, 2, 1, 3])), "must ascend"),
        (lambda: Documents(np.arange(3), np.array([0, 3]), np.ones(2)), "counted must be as ids"),
        (lambda: Documents.of([[1, 2]], [[1]]), "a flag for every token"),
        (lambda: Documents.of([[-1]]), "ids must lie between"),
        (lambda: Documents.of([[0.5]]), "integer array"),
        (lambda: Documents.of([[1]]).split(0.5), "both parts must hold a document"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(IndexError):
        documents[3]
