# SPDX-License-Identifier: MIT
"""The states in which a loss of power can leave a folder, from a log of what a program did to it.

What POSIX promises and no more: the content of a file is on the disk after its fsync, a change of a
directory after the directory's. Before that, each file that was written to may be as it was, as
it is, torn or zeros, and of the changes of directories any may be missing.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HEAD = struct.Struct("<ciqIII")
SOURCE = Path(__file__).with_name("record.c")


class Operation(NamedTuple):
    kind: str
    fd: int
    value: int
    path: str
    other: str
    data: bytes


class Inode:
    """A file or a directory: as programs see it, and as it is on the disk."""

    def __init__(self, is_dir: bool) -> None:
        self.is_dir = is_dir
        self.names: dict[str, Inode] = {}
        self.disk_names: dict[str, Inode] = {}
        self.data = b""
        self.disk_data = b""


# Names that get an inode, or lose one, at once: those of a rename are two.
Change = list[tuple[Inode, str, "Inode | None"]]
Tree = dict[str, "bytes | None"]


def record(program: str, root: Path, work: Path) -> list[Operation]:
    """Run a program, and return its operations on files below a folder."""
    library, log = work / "record.so", work / "log"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    environment = {
        **os.environ,
        **{"LD_PRELOAD": str(library), "POWER_ROOT": str(root), "POWER_LOG": str(log)},
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(parse(log.read_bytes()))


def parse(log: bytes) -> Iterator[Operation]:
    at = 0
    while at < len(log):
        kind, fd, value, *lengths = HEAD.unpack_from(log, at)
        at += HEAD.size
        parts = []
        for length in lengths:
            parts.append(log[at : at + length])
            at += length
        first, second = (os.path.normpath(os.fsdecode(part)) if part else "" for part in parts[:2])
        yield Operation(kind.decode(), fd, value, first, second, parts[2])


class Disk:
    """A folder, played from the operations on it."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.top = Inode(True)
        self.files: dict[int, list[Any]] = {}
        self.pending: list[Change] = []
        self.mark = 0

    def find(self, path: str) -> tuple[Inode, str, Inode | None]:
        """The directory of a path, its name there, and what has it."""
        parts = [part for part in os.path.relpath(path, self.root).split("/") if part != "."]
        assert ".." not in parts, path
        place, name = self.top, ""
        inode: Inode | None = self.top
        for part in parts:
            assert inode is not None, path
            place, name, inode = inode, part, inode.names.get(part)
        return place, name, inode

    def change(self, *changes: tuple[Inode, str, Inode | None]) -> None:
        for place, name, inode in changes:
            if inode is None:
                place.names.pop(name, None)
            else:
                place.names[name] = inode
        self.pending.append(list(changes))

    def play(self, op: Operation) -> None:
        assert op.kind in "owstfdurlM", f"the replay does not know {op}"
        if op.kind == "M":
            self.mark = op.value
        elif op.kind == "o":
            place, name, inode = self.find(op.path)
            if inode is None:
                inode = Inode(False)
                self.change((place, name, inode))
            elif op.value & os.O_TRUNC:
                inode.data = b""
            self.files[op.fd] = [inode, len(inode.data) if op.value & os.O_APPEND else 0]
        elif op.kind in "wst":
            file = self.files[op.fd]
            inode, at = file[0], file[1] if op.value < 0 else op.value
            if op.kind == "t":
                inode.data = inode.data[: op.value].ljust(op.value, b"\0")
            elif op.kind == "s":
                file[1] = op.value
            else:
                end = at + len(op.data)
                inode.data = inode.data[:at].ljust(at, b"\0") + op.data + inode.data[end:]
                file[1] = end if op.value < 0 else file[1]
        elif op.kind == "f":
            self.flush(self.files[op.fd][0])
        elif op.kind == "d":
            place, name, _ = self.find(op.path)
            self.change((place, name, Inode(True)))
        elif op.kind == "u":
            place, name, _ = self.find(op.path)
            self.change((place, name, None))
        else:
            place, name, inode = self.find(op.path)
            there, other, _ = self.find(op.other)
            gone = [(place, name, None)] if op.kind == "r" else []
            self.change(*gone, (there, other, inode))

    def flush(self, inode: Inode) -> None:
        inode.disk_data = inode.data
        mine = [c for c in self.pending if any(place is inode for place, _, _ in c)]
        self.pending = [c for c in self.pending if c not in mine]
        for each in mine:
            apply(each, lambda place: place.disk_names)

    def states(self, rng: random.Random, extra: int) -> Iterator[Tree]:
        """What may be on the disk if the power goes now."""
        count = len(self.pending)
        whole = range(count)
        chosen = [set(range(n)) for n in range(count + 1)]
        chosen += [{n} for n in whole] + [{*whole} - {n} for n in whole]
        chosen += [{n for n in whole if rng.random() < 0.5} for _ in range(extra)]
        for each in chosen:
            for kind in ("disk", "kept", "torn", "zeros", "mixed"):
                yield self.tree(each, kind, rng)

    def tree(self, chosen: set[int], kind: str, rng: random.Random) -> Tree:
        names: dict[Inode, dict[str, Inode]] = {}

        def of(place: Inode) -> dict[str, Inode]:
            return names.setdefault(place, dict(place.disk_names))

        for n in sorted(chosen):
            apply(self.pending[n], of)
        found: Tree = {}

        def walk(place: Inode, path: str) -> None:
            for name, inode in of(place).items():
                at = f"{path}/{name}"
                if inode.is_dir:
                    found[at] = None
                    walk(inode, at)
                else:
                    found[at] = content(inode, kind, rng)

        walk(self.top, "")
        return found


def apply(change: Change, names_of: Callable[[Inode], dict[str, Inode]]) -> None:
    for place, name, inode in change:
        if inode is None:
            names_of(place).pop(name, None)
        else:
            names_of(place)[name] = inode


def content(inode: Inode, kind: str, rng: random.Random) -> bytes:
    if inode.data == inode.disk_data:
        return inode.data
    if kind == "mixed":
        kind = rng.choice(("disk", "kept", "torn", "zeros"))
    return {
        "disk": inode.disk_data,
        "kept": inode.data,
        "torn": inode.data[: len(inode.data) // 2],
        "zeros": bytes(len(inode.data)),
    }[kind]


def check_states(
    operations: list[Operation],
    root: Path,
    work: Path,
    check: Callable[[Path, int], None],
    extra: int = 4,
) -> int:
    """Check every state of the disk after every prefix of the operations.

    Args:
        operations: of a program.
        root: the folder that they are of.
        work: a folder for the states.
        check: takes a folder with a state and the last mark that the program had passed; raises.
        extra: random choices of changes at each prefix, besides all prefixes and all single ones.

    Returns:
        The number of different states.
    """
    disk, rng, seen = Disk(root), random.Random(0), set[int]()
    for number, operation in enumerate([None, *operations]):
        if operation is not None:
            disk.play(operation)
        for tree in disk.states(rng, extra):
            key = hash((disk.mark, *sorted(tree.items(), key=lambda item: item[0])))
            if key in seen:
                continue
            seen.add(key)
            folder = work / "state"
            folder.mkdir()
            for path, data in tree.items():
                if data is None:
                    (folder / path[1:]).mkdir()
                else:
                    (folder / path[1:]).write_bytes(data)
            try:
                check(folder, disk.mark)
            except Exception as error:
                lines = [f"{each.kind} {each.path} {each.other}" for each in operations[:number]]
                raise AssertionError(
                    f"after operation {number} ({lines[-1:]}), mark {disk.mark}: {error!r};"
                    f" the disk has { {p: d if d is None else len(d) for p, d in tree.items()} };"
                    f" before: {lines[-12:]}"
                ) from error
            shutil.rmtree(folder)
    return len(seen)
