# SPDX-License-Identifier: MIT
"""Files and directories that appear whole or not at all.

What is written goes to a hidden sibling first, is flushed to the disk, and then renamed. A process
that is killed on the way leaves the sibling behind; the next write into the same directory
removes it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .aside import move_others
from .flush import fsync_path, fsync_tree

__all__ = ["atomic_dir", "atomic_path", "atomic_write", "clean_stale", "is_leftover"]

# A leftover of another host, whose processes cannot be asked, is stale after a day.
STALE_SECONDS = 24 * 3600.0
# Of this process; one that was forked from it has another number.
_RUN = secrets.token_hex(2)
# Errors of what is written to an open file, which name none.
_WRITING = (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT)
_LEFTOVER = re.compile(
    r"^\.(?P<name>.+)\.pyggml-(?P<host>[0-9a-f]{8})(?P<boot>[0-9a-f]{4})-(?P<pid>\d+)-(?P<run>[0-9a-f]{4})[0-9a-f]{4}\.(?P<kind>tmp|old)$",
    re.DOTALL,  # names may hold line ends
)


def _host() -> str:
    """A short tag of this machine, so that process ids are compared on one machine only."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


@functools.cache
def _boot() -> str:
    """A short tag of the time since this machine started; process ids begin anew with each."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:  # there is none outside of Linux
        text = ""
    return hashlib.sha256(text.encode()).hexdigest()[:4]


def _sibling(path: Path, kind: str) -> Path:
    """A free hidden name beside `path`."""
    tag = f".pyggml-{_host()}{_boot()}-{os.getpid()}-{_RUN}{secrets.token_hex(2)}.{kind}"
    name = path.name
    if kind == "tmp":
        # File systems allow 255 bytes a name, and the tag takes 50; only "old" is read back.
        raw = os.fsencode(name)
        name = name if len(raw) <= 180 else raw[:180].decode(errors="ignore")
    return path.with_name(f".{name}{tag}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _is_stale(entry: os.DirEntry[str], match: re.Match[str]) -> bool:
    if os.name == "posix" and match["host"] == _host():
        if match["boot"] != _boot():
            return True
        pid = int(match["pid"])
        # In a container each process may have the number that the killed one had.
        return match["run"] != _RUN if pid == os.getpid() else not _is_alive(pid)
    with contextlib.suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS
    return False


def _remove(path: Path) -> None:
    """Remove a file or a tree; what cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _name(error: BaseException, temporary: Path, target: Path) -> None:
    """Let an error name what the caller knows: the missing folder, or the target."""
    if not isinstance(error, OSError):
        return
    if error.filename is None and error.errno in _WRITING:
        error.filename = str(target)
    if error.filename in (str(temporary), temporary):
        error.filename, error.filename2 = str(target), None
        folder = target.parent
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not folder.is_dir():
            error.filename = str(folder)
            error.strerror = (
                f"{error.strerror}: {target.name} belongs into this folder; was it moved or"
                " removed? Make it, or give another path"
            )


def is_leftover(name: str) -> bool:
    """Return True for the name of a file or folder that a killed process leaves.

    Args:
        name: without its folder.

    Example:
        >>> is_leftover(".a.gguf.pyggml-5bce98f7ae89-14263-a11e8b13.tmp")
        True
    """
    return _LEFTOVER.match(name) is not None


def clean_stale(directory: str | os.PathLike[str]) -> list[Path]:
    """Remove the temporary files that killed processes left in a directory.

    Only names made by this module are touched, and only when their process is gone. A directory
    that was being replaced is put back under its own name if the new one never arrived.

    Args:
        directory: where atomic writes took place; a missing one is an empty one.

    Returns:
        The paths that were removed or put back.
    """
    done: list[Path] = []
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return done
    for entry in entries:
        match = _LEFTOVER.match(entry.name)
        if match is None or not _is_stale(entry, match):
            continue
        path = Path(entry.path)
        target = path.with_name(match["name"])
        if match["kind"] == "old" and not os.path.lexists(target):
            with contextlib.suppress(OSError):
                path.rename(target)
        else:
            _remove(path)
        done.append(path)
    return done


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to, and move it to `path` when the block succeeds.

    Args:
        path: the file to create or replace; a symbolic link stays and its target is replaced.

    Yields:
        A path in the same directory, for code that insists on opening the file itself.

    Raises:
        OSError: the file cannot be written, or `path` is a pipe, a device or a loop of links;
            `path` is then as it was before.

    Example:
        >>> with atomic_path("weights.bin") as temporary:
        ...     _ = temporary.write_bytes(b"whole")
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file", str(path))
    if os.path.lexists(target) and not target.is_file():  # a device would become a file
        cause = "a file is written whole, and takes the place of no pipe, device or loop of links"
        raise OSError(errno.EINVAL, cause, str(path))
    clean_stale(target.parent)
    temporary = _sibling(target, "tmp")
    try:
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        fsync_path(temporary)
        os.replace(temporary, target)
    except BaseException as error:
        _remove(temporary)
        _name(error, temporary, target)
        raise
    fsync_path(target.parent)


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: str = "wb", **options: Any
) -> Iterator[IO[Any]]:
    """Open a file whose content replaces `path` only when the block succeeds.

    Args:
        path: the file to create or replace.
        mode: "wb" or "w"; text is UTF-8 unless `options` say otherwise.
        options: passed to `open`.

    Raises:
        ValueError: the mode does not write from the start.
        OSError: the file cannot be written, for instance because the disk is full; `path` is then
            as it was before, and the temporary file is gone.

    Example:
        >>> with atomic_write("notes.txt", "w") as file:
        ...     _ = file.write("all or nothing")
    """
    if mode not in ("w", "wb"):
        raise ValueError(f'atomic_write: mode must be "w" or "wb"; got {mode!r}')
    if mode == "w":
        options.setdefault("encoding", "utf-8")
    with atomic_path(path) as temporary, open(temporary, mode, **options) as file:
        yield file


@contextlib.contextmanager
def atomic_dir(path: str | os.PathLike[str], replace: bool = False) -> Iterator[Path]:
    """Build a directory beside `path` and move it there when the block succeeds.

    Args:
        path: the directory to create. A symbolic link of this name is replaced, and its target
            stays as it is.
        replace: whether an existing directory may be replaced. What it has and the new one has not
            is moved into `NAME.left` beside it, with a warning. There is an instant without
            `path` then; a process killed in it leaves the old one, which `clean_stale` puts back.

    Yields:
        The temporary directory to fill.

    Raises:
        FileExistsError: `path` exists and `replace` is false, or it is not a directory.
        OSError: something cannot be written; `path` is then as it was before.

    Example:
        >>> with atomic_dir("step-000100") as folder:
        ...     _ = (folder / "state.json").write_text("{}")
    """
    target = Path(os.path.realpath(Path(path).parent), Path(path).name)
    clean_stale(target.parent)
    if os.path.lexists(target) and not (replace and target.is_dir()):
        cure = "choose another name" if target.is_dir() else "it is a file; remove it"
        raise FileExistsError(f"atomic_dir: {target} exists; {cure}")
    temporary = _sibling(target, "tmp")
    try:
        temporary.mkdir()
        yield temporary
        fsync_tree(temporary)
        if os.path.lexists(target):
            move_others(target, temporary)
            _exchange(temporary, target)
        else:
            temporary.rename(target)
    except BaseException as error:
        _remove(temporary)
        _name(error, temporary, target)
        raise
    fsync_path(target.parent)


def _exchange(new: Path, target: Path) -> None:
    """Put `new` in the place of the directory `target`, and remove the latter."""
    old = _sibling(target, "old")
    target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        old.rename(target)
        raise
    fsync_path(target.parent)
    _remove(old)
