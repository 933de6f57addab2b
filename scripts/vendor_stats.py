# SPDX-License-Identifier: MIT
"""Count what the series of patches touches; see vendor.py."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from vendor_tree import Project

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass
class Stats:
    """What a series touches.

    Args:
        hunks: of each file of ggml; files that the series makes are left out.
        patches: those that touch such a file.
        made: files that the series makes.
        deleted: lines that are deleted, of whatever origin.
        undone: lines of an earlier patch that a later one deletes, by both names.
    """

    hunks: Counter[str] = field(default_factory=Counter)
    patches: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    made: set[str] = field(default_factory=set)
    deleted: int = 0
    undone: Counter[tuple[str, str]] = field(default_factory=Counter)


def count(patches: list[Path]) -> Stats:
    """Return what a series touches, which must be as `vendor.py export` writes it."""
    stats = Stats()
    # Who wrote each line of a file so far: "" is ggml, also beyond the end of a list.
    owners: dict[str, list[str]] = defaultdict(list)
    for patch in patches:
        old = file = ""
        at = left = 0
        lines = patch.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
        for line in lines:
            hunk = _HUNK.match(line)
            if line.startswith("diff --git "):
                left = 0
            elif not left and line.startswith("--- "):
                old = line[4:].rstrip("\t")
            elif not left and line.startswith("+++ "):
                new = line[4:].rstrip("\t")
                file = (old if new == "/dev/null" else new)[2:]
                if old == "/dev/null":
                    stats.made.add(file)
            elif hunk and file:
                left, at = 1, max(0, int(hunk[1]) - 1)
                if file not in stats.made:
                    stats.hunks[file] += 1
                    if patch.name not in stats.patches[file]:
                        stats.patches[file].append(patch.name)
            elif left and line[:1] in ("+", "-", " "):
                own = owners[file]
                own += [""] * (at + 1 - len(own))
                if line[0] == "+":
                    own.insert(at, patch.name)
                elif line[0] == "-":
                    stats.deleted += 1
                    if own[at]:
                        stats.undone[own[at], patch.name] += 1
                    del own[at]
                at += line[0] != "-"
    return stats


def stats(project: Project) -> None:
    """Print hunks by file, and which patches delete lines of earlier ones."""
    series = project.series()
    found = count(series)
    print(f"{'hunks':>6} {'patches':>8}  file of ggml")
    for file, hunks in found.hunks.most_common():
        print(f"{hunks:6} {len(found.patches[file]):8}  {file}")
    print(f"{'lines':>6}  of a patch that another one deletes")
    for (first, second), lines in found.undone.most_common():
        print(f"{lines:6}  {first[:4]} by {second[:4]}")
    print(
        f"vendor: {len(series)} patches; {found.hunks.total()} hunks in "
        f"{len(found.hunks)} files of ggml; {len(found.made)} files made; {found.deleted} lines "
        f"deleted, {found.undone.total()} of them of earlier patches"
    )
