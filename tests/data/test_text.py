# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pyggml.data import embedded_text, read_text
from pyggml.errors import FormatError


def test_files_come_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "b.dat").write_text("second")
    (tmp_path / "a.txt").write_text("first")
    assert read_text([tmp_path / "b.dat", tmp_path / "a.txt"]) == ["second", "first"]
    assert read_text(str(tmp_path / "a.txt")) == ["first"]


def test_folders_are_searched_in_sorted_order(tmp_path: Path) -> None:
    for name in ["z.txt", "a/b.md", "a/a.RST", ".hidden/x.txt", ".x.txt", "code.py", "a/empty.txt"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if "empty" in name else name)
    assert read_text(tmp_path) == ["a/a.RST", "a/b.md", "z.txt"]
    # A file reached twice is read once.
    assert read_text([tmp_path / "z.txt", tmp_path]) == ["z.txt", "a/a.RST", "a/b.md"]


def test_line_ends_stay_and_the_mark_goes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    assert read_text(tmp_path / "a") == ["one\r\ntwo\n"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"text\0more", "NUL byte at offset 4"),
        (b"caf\xe9!", "0xe9 at offset 3"),
        (b"cut \xe6\xbc", "offset 4"),
        ("utf-16".encode("utf-16"), "UTF-16"),
        ("utf-32".encode("utf-32"), "UTF-32"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for target in (path, tmp_path):
        with pytest.raises(FormatError, match=match):
            read_text(target)
    with pytest.raises(FormatError, match=r"a\.txt"):
        read_text(path)


def test_bad_paths_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none.*no such file"):
        read_text(tmp_path / "none")
    with pytest.raises(FormatError, match="no text file"):
        read_text(tmp_path)
    with pytest.raises(FormatError, match="at least one"):
        read_text([])


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="needs a user whom modes bind"
)
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0)
    with pytest.raises(FormatError, match="Permission denied"):
        read_text(tmp_path / "a")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs POSIX pipes")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="regular"):
        read_text(tmp_path / "pipe")


def test_the_embedded_text_is_english_and_in_order() -> None:
    documents = embedded_text()
    assert documents == embedded_text()
    assert 300_000 < sum(map(len, documents)) < 1_000_000
    assert any('The "with" statement' in document for document in documents)


def test_a_python_without_the_embedded_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(FormatError, match="pydoc_data"):
        embedded_text()


@pytest.mark.parametrize("paths", ["", [""], ["a.txt", ""]])
def test_an_empty_path_is_not_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: str | list[str]
) -> None:
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FormatError, match="must not be empty"):
        read_text(paths)
