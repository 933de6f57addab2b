# SPDX-License-Identifier: MIT
"""Readers wait for no pipe, and unpack no more than a bound."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from pyggml.io import open_regular, open_unpacked, read_regular, regular

posix = pytest.mark.skipif(os.name != "posix", reason="needs pipes and devices")


@posix
@pytest.mark.parametrize("read", [open_regular, read_regular, open_unpacked])
def test_only_regular_files_are_opened(tmp_path: Path, read) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(OSError, match=str(path)) as caught:
            read(path)
        assert caught.value.filename == str(path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_cannot_be_is_an_error_of_the_system(name: str) -> None:
    with pytest.raises(OSError, match=r"null|surrogates"):
        open_regular(name)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "link").symlink_to("a")
    assert read_regular(tmp_path / "link") == b"a"


def test_a_file_of_more_bytes_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="at most"):
        read_regular(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"12345")
    assert read_regular(tmp_path / "b", 5) == b"12345"
    with pytest.raises(OSError, match="at most 4"):
        read_regular(tmp_path / "b", 4)


def test_gzip_is_known_by_its_bytes(tmp_path: Path) -> None:
    text = os.urandom(3 << 20)
    (tmp_path / "packed").write_bytes(gzip.compress(text, 1))
    (tmp_path / "plain.gz").write_bytes(text)
    for name in ("packed", "plain.gz"):
        with open_unpacked(tmp_path / name) as file:
            assert file.read() == text


def test_gzip_ends_at_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "_RATIO_FREE_BYTES", 1 << 20)
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(8 << 20)))
    with open_unpacked(bomb) as file, pytest.raises(OSError, match="unpack") as caught:
        file.read()
    assert caught.value.filename == str(bomb)


def test_a_damaged_gzip_file_is_an_error(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(10_000))
    for data in (whole[:-5], whole[:50], whole[:50] + b"x" * 50 + whole[100:]):
        (tmp_path / "a.gz").write_bytes(data)
        with open_unpacked(tmp_path / "a.gz") as file, pytest.raises((OSError, EOFError)):
            file.read()
