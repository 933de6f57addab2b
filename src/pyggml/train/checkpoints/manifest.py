# SPDX-License-Identifier: MIT
"""The manifest of a checkpoint: `state.json`, with the hash of every file and of itself."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import FormatError, printable
from ...io import clean_stale
from ...io.sealed import check_hash, read_sealed, seal
from .folders import BEST, CHECKPOINTS, FILES, STATE, list_checkpoints, read_best, step_of
from .state import check_record, typed

__all__ = [
    "condition",
    "cure",
    "is_whole",
    "offering",
    "read_manifest",
    "whole_before",
    "write_manifest",
]


def write_manifest(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the manifest of a checkpoint, as its last file.

    Args:
        folder: the checkpoint's, while it is made.
        record: the state of the run, and under `files` size and hash of every file.
    """
    (folder / STATE).write_bytes(seal(record))


def read_manifest(path: Path, files: Collection[str] = FILES) -> dict[str, Any]:
    """Return the manifest of a checkpoint, after checking it and the files.

    Args:
        path: directory of the checkpoint.
        files: those whose content is checked; of all, the names are.

    Raises:
        FormatError: a file is missing, damaged or not of the checkpoint; names it and the cause.
    """
    state = path / STATE
    if not os.path.lexists(path):
        clean_stale(path.parent)  # a killed process may have been about to replace it
    try:
        record = read_sealed(state)
    except FileNotFoundError:
        inside = _newest_inside(path)
        if inside is not None:
            raise FormatError(
                f"{path}: is no checkpoint, but there are some in it: give one, such as {inside}"
            ) from None
        raise FormatError(
            f"{state}: the file is missing, so this is no complete checkpoint"
        ) from None
    except NotADirectoryError:
        raise FormatError(
            f"{path}: is a file, and a checkpoint is a directory such as step-000100"
        ) from None
    except OSError as error:
        raise FormatError(f"{state}: cannot be read ({error.strerror or error})") from error
    check_record(record, state)
    if step_of(path) not in (None, record["step"]):
        raise FormatError(
            f"{state}: step must be that of the directory's name; got {record['step']}"
        )
    # Hidden files are those of file managers and network file systems.
    names = {file.name for file in path.iterdir() if not file.name.startswith(".")}
    for name in sorted(names - {STATE, *FILES}):
        raise FormatError(
            f"{printable(str(path / name))}: is not a file of this checkpoint: move it away"
        )
    for name in files:
        check_hash(path / name, typed(record["files"], name, dict, state, "files."), STATE)
    return record


def _newest_inside(path: Path) -> Path | None:
    """Return the newest whole checkpoint of a run's folder, or of its folder of checkpoints."""
    return whole_before(path)[0] or whole_before(path / CHECKPOINTS)[0]


def is_whole(path: Path) -> bool:
    """Return True for a checkpoint whose files are all as they were written; reads all of it.

    Args:
        path: its directory.
    """
    try:
        read_manifest(path)
    except (FormatError, OSError):
        return False
    return True


def condition(path: Path | None) -> str:
    """Return the clause of a message that says what is left of a checkpoint; reads all of it.

    Args:
        path: its directory; None where there is none.
    """
    if path is None:
        return "there is no whole checkpoint"
    return f"{path} is whole" if is_whole(path) else f"{path} is gone or damaged"


def cure(error: OSError) -> str:
    """Return the sentence of a message that says what to do about a failed write of a run.

    Args:
        error: of the write.
    """
    if isinstance(error, FileNotFoundError):
        return (
            "Was the folder moved or removed? Give its new place, and continue with `resume`; what"
            " is in the old place now was written since"
        )
    return "Make room or repair the folder, then continue with `resume`"


def whole_before(directory: Path, path: Path | None = None) -> tuple[Path | None, list[Path]]:
    """Return the newest whole checkpoint, and the damaged ones that are newer.

    Args:
        directory: folder of the run's checkpoints.
        path: only others, of no later step than this one, count; None takes all.
    """
    found = [(step_of(other) or 0, other) for other in list_checkpoints(directory)]
    best = read_best(directory)
    if best is not None:
        found.append((best["step"], directory / BEST))
    last = None if path is None else step_of(path)
    damaged: list[Path] = []
    # Of the best and another of one step, the other.
    for step, other in sorted(found, key=lambda each: (-each[0], each[1].name == BEST)):
        if other == path or (last is not None and step > last):
            continue
        if is_whole(other):
            return other, damaged
        damaged.append(other)
    return None, damaged


@contextmanager
def offering(path: Path) -> Iterator[None]:
    """Add to the error of a damaged checkpoint which one before it is whole.

    Args:
        path: directory of the checkpoint that is read in the block.

    Raises:
        FormatError: as it came, with the advice.
    """
    try:
        yield
    except FormatError as error:
        if not os.path.lexists(path / STATE) and _newest_inside(path) is not None:
            raise
        other, damaged = whole_before(path.parent, path)
        if other is None:
            advice = "no other is whole: restore it from a copy, or start anew"
        else:
            away = " and ".join(map(str, [path, *damaged]))
            advice = (
                f'{other} is whole: resume("{other}") continues from there, and so does `resume`'
                f" once {away} {'is' if not damaged else 'are'} moved away"
            )
        raise FormatError(f"{error}; {advice}") from error
