# SPDX-License-Identifier: MIT
from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pyggml.io import atomic, atomic_dir, atomic_path, atomic_write, clean_stale

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX processes")


def test_a_new_file_appears_whole(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a") as file:
        file.write(b"new")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_text_is_utf8(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a", "w") as file:
        file.write("é")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9"
    with pytest.raises(ValueError, match="mode"), atomic_write(tmp_path / "a", "a"):
        pass


def test_an_error_of_a_write_names_the_file(tmp_path: Path) -> None:
    """A write to an open file tells no name."""
    error = OSError(errno.EFBIG, "File too large")
    with pytest.raises(OSError, match="File too large") as caught, atomic_write(tmp_path / "a"):
        raise error
    assert caught.value.filename == str(tmp_path / "a")


@pytest.mark.parametrize("make", [atomic_write, atomic_path, atomic_dir])
def test_an_error_names_what_the_caller_named(tmp_path: Path, make: Any) -> None:
    def write(target: Path) -> None:
        with make(target) as given:
            if make is atomic_path:
                given.write_text("x")

    missing = tmp_path / "missing"
    with pytest.raises(FileNotFoundError) as caught:
        write(missing / "page.html")
    assert caught.value.filename == str(missing)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError) as other:
        write(tmp_path / "file" / "page.html")
    assert other.value.filename == str(tmp_path / "file")
    for error in (caught.value, other.value):
        assert "page.html belongs into this folder; was it moved or removed? Make it" in str(error)


@posix
def test_what_is_no_file_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink("pipe", tmp_path / "link")
    os.symlink("loop", tmp_path / "loop")
    for name in ("pipe", "link", "loop"):
        with (
            pytest.raises(OSError, match="takes the place of no pipe, device") as e,
            atomic_write(tmp_path / name) as file,
        ):
            file.write(b"x")
        assert e.value.filename == str(tmp_path / name)
    assert (tmp_path / "link").is_fifo()
    assert os.readlink(tmp_path / "loop") == "loop"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "loop", "pipe"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with atomic_write(tmp_path / "a", "w") as file:
            file.write("half")
            raise error

    (tmp_path / "a").write_text("old")
    with pytest.raises(error):
        write()
    assert (tmp_path / "a").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@posix
def test_mode_and_links_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "link").symlink_to("a")
    with atomic_write(tmp_path / "link", "w") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_folder_is_no_target_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="name a file"), atomic_write(tmp_path):
        pass


def test_a_missing_parent_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "none" / "a"):
        pass


def test_long_names_fit(tmp_path: Path) -> None:
    with atomic_write(tmp_path / ("é" * 120)) as file:
        file.write(b"x")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_path_for_code_that_opens_itself(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a") as temporary:
        temporary.write_bytes(b"x")
        assert temporary.parent == tmp_path
    assert (tmp_path / "a").read_bytes() == b"x"
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "b"):
        pass  # nothing was written


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    with atomic_dir(tmp_path / "step") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "a").write_text("x")
        assert not (tmp_path / "step").exists()
    assert (tmp_path / "step" / "deep" / "a").read_text() == "x"
    assert [p.name for p in tmp_path.iterdir()] == ["step"]


def test_a_failure_leaves_no_directory(tmp_path: Path) -> None:
    def build() -> None:
        with atomic_dir(tmp_path / "step") as folder:
            (folder / "a").write_text("x")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        build()
    assert list(tmp_path.iterdir()) == []


def test_replacing_a_directory_must_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "step").mkdir()
    (tmp_path / "step" / "old").touch()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="another name"), atomic_dir(tmp_path / "step"):
        pass
    with pytest.raises(FileExistsError, match="is a file"), atomic_dir(tmp_path / "file", True):
        pass
    with atomic_dir(tmp_path / "step", replace=True) as folder:
        (folder / "new").touch()
    assert [p.name for p in (tmp_path / "step").iterdir()] == ["new"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "step", "step.left"]


def test_what_a_replaced_directory_has_besides_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for content in ("1", "2", "3"):
        with atomic_dir(tmp_path / "step", replace=True) as folder:
            (folder / "own").write_text(content)
        (tmp_path / "step" / "mine").write_text(content)
        (tmp_path / "step" / "deep").mkdir()
        (tmp_path / "step" / ".DS_Store").touch()  # a file manager's, which goes
    for folder, content in (("step.left", "1"), ("step.left1", "2"), ("step", "3")):
        assert (tmp_path / folder / "mine").read_text() == content
        assert (tmp_path / folder / "deep").is_dir()
        assert (tmp_path / folder / ".DS_Store").exists() == (folder == "step")
    assert (tmp_path / "step" / "own").read_text() == "3"
    assert not (tmp_path / "step.left" / "own").exists()
    assert "what else was in it is in" in caplog.text


def test_a_failed_exchange_puts_the_old_directory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "step").mkdir()
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith(".tmp"):
            raise OSError("refused")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="refused"), atomic_dir(tmp_path / "step", True) as folder:
        (folder / "new").touch()
    assert [p.name for p in tmp_path.iterdir()] == ["step"]
    assert list((tmp_path / "step").iterdir()) == []


def dead_process() -> int:
    """The id of a process that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def leftover(
    folder: Path, name: str, kind: str, pid: int, host: str | None = None, boot: str | None = None
) -> Path:
    tag = f"{host or atomic._host()}{boot or atomic._boot()}"
    return folder / f".{name}.pyggml-{tag}-{pid}-0123abcd.{kind}"


@posix
def test_what_a_loss_of_power_left_goes_whoever_has_the_process_id_now(tmp_path: Path) -> None:
    before = "0000" if atomic._boot() != "0000" else "1111"
    leftover(tmp_path, "a", "tmp", os.getppid(), boot=before).touch()
    leftover(tmp_path, "best", "old", os.getppid(), boot=before).mkdir()
    leftover(tmp_path, "b", "tmp", os.getppid()).touch()
    clean_stale(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        "best",
        leftover(tmp_path, "b", "tmp", os.getppid()).name,
    }


@posix
def test_leftovers_of_dead_processes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "_RUN", "4567")  # drawn at random, it may be that of the dead one
    dead = dead_process()
    leftover(tmp_path, "a", "tmp", dead).touch()
    leftover(tmp_path, "step", "tmp", dead).mkdir()
    (leftover(tmp_path, "step", "tmp", dead) / "x").touch()
    # Of a killed process that had the number of this one, as in a container.
    before = leftover(tmp_path, "b", "tmp", os.getpid())
    before.touch()
    mine = before.with_name(before.name.replace("-0123abcd", "-4567abcd"))
    mine.touch()
    foreign = leftover(tmp_path, "c", "tmp", dead, host="00000000")
    foreign.touch()
    other = tmp_path / ".a.tmp"
    other.touch()
    with atomic_write(tmp_path / "new") as file:
        file.write(b"x")
    assert set(tmp_path.iterdir()) == {mine, foreign, other, tmp_path / "new"}
    old = time.time() - 2 * atomic.STALE_SECONDS
    os.utime(foreign, (old, old))
    assert clean_stale(tmp_path) == [foreign]
    assert clean_stale(tmp_path / "missing") == []


@posix
def test_a_directory_whose_replacement_was_killed_comes_back(tmp_path: Path) -> None:
    old = leftover(tmp_path, "step", "old", dead_process())
    old.mkdir()
    (old / "weights").touch()
    clean_stale(tmp_path)
    assert [p.name for p in (tmp_path / "step").iterdir()] == ["weights"]
    # With the new one in place, the old one is what goes.
    old.mkdir()
    clean_stale(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step"]


LOOP = """
import sys
from pyggml.io import atomic_dir, atomic_write
print("ready", flush=True)
for number in range(10**9):
    with atomic_write(sys.argv[1] + "/file", "w") as file:
        file.write(str(number) * 2000 + "end")
    if number == 0:
        print("written", flush=True)
    with atomic_dir(sys.argv[1] + "/step", replace=True) as folder:
        for name in "ab":
            (folder / name).write_text(str(number))
"""


@posix
def test_killing_at_any_instant_loses_nothing(tmp_path: Path) -> None:
    for attempt in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if attempt == 3:  # however slow the disk is, there is something to lose at last
            assert process.stdout.readline() == b"written\n"
        time.sleep(0.05 + 0.037 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        clean_stale(tmp_path)
        assert {p.name for p in tmp_path.iterdir()} <= {"file", "step"}
        if (tmp_path / "file").exists():
            assert re.fullmatch(r"(\d+?)\1*end", (tmp_path / "file").read_text())
        if (tmp_path / "step").exists():
            texts = {(tmp_path / "step" / name).read_text() for name in "ab"}
            assert len(texts) == 1
    assert (tmp_path / "file").exists()


@posix
def test_a_link_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "step").symlink_to("../elsewhere")
    with pytest.raises(FileExistsError), atomic_dir(tmp_path / "run" / "step"):
        pass
    with atomic_dir(tmp_path / "run" / "step", replace=True) as folder:
        (folder / "new").touch()
    assert [p.name for p in (tmp_path / "elsewhere").iterdir()] == ["mine"]
    assert [p.name for p in (tmp_path / "run").rglob("*")] == ["step", "new"]
    assert not (tmp_path / "run" / "step").is_symlink()
