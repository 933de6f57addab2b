# SPDX-License-Identifier: MIT
"""Build each prefix of the patch series and run the tests that its last patch names.

For patch N the tree has patches 1 to N and no other. The CPU backend and test-backend-ops are
built in build/patches, one folder for all, so that a prefix compiles only what its patch reaches;
then the commands of the patch's `Tests:` lines run with `-b CPU` (patches/README.md has their
form). A command must exit with 0, and each op that it names must have run at least one case.
Stops at the first patch that does not apply, build or pass, with exit status 1 and its name.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import vendor_tree
from vendor_fetch import VendorError, archive

ROOT = Path(__file__).resolve().parent.parent
_COMMAND = re.compile(
    r"test-backend-ops (test|grad) -o ([A-Z0-9_]+(?:,[A-Z0-9_]+)*)(?: -p '([^';]+)')?"
    r"|(test-packed-gemm|test-grad-graph)"
)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class PatchError(Exception):
    """What is wrong with one patch."""


@dataclass(frozen=True)
class Command:
    """One command of a `Tests:` line; programs other than test-backend-ops have no mode."""

    program: str
    mode: str = ""
    ops: tuple[str, ...] = ()
    params: str = ""

    def __str__(self) -> str:
        if not self.mode:
            return self.program
        params = f" -p '{self.params}'" if self.params else ""
        return f"{self.mode} -o {','.join(self.ops)}{params}"

    @property
    def arguments(self) -> list[str]:
        """What the program is called with."""
        if not self.mode:
            return []
        params = ["-p", self.params] if self.params else []
        return [self.mode, "-o", ",".join(self.ops), *params, "-b", "CPU"]


def commands(patch: Path) -> list[Command]:
    """The commands that a patch's message names.

    Raises:
        PatchError: there are none, or they have another form than patches/README.md says.
    """
    text = patch.read_text(encoding="utf-8", errors="surrogateescape")
    message = re.split(r"^(?:---|diff --git .*)$", text, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"^Tests: (.*(?:\n  .*)*)$", message, re.MULTILINE)
    if len(blocks) != 1:
        raise PatchError(f"{patch.name}: the message must have one `Tests: `; it has {len(blocks)}")
    found = []
    for part in re.split(r"; |;\n  ", blocks[0]):
        match = _COMMAND.fullmatch(part)
        if match is None:
            raise PatchError(
                f"{patch.name}: `Tests:` must name commands such as"
                f" `test-backend-ops grad -o NORM`, with `; ` between them; got {part!r}"
            )
        mode, ops, params, program = match.groups()
        if program:
            found.append(Command(program))
        else:
            found.append(Command("test-backend-ops", mode, tuple(ops.split(",")), params or ""))
    return found


def update(tree: Path, new: Path) -> None:
    """Make `tree` what `new` is; files of the same content keep their times."""
    fresh = {p.relative_to(new) for p in new.rglob("*") if p.is_file()}
    for path in [p for p in tree.rglob("*") if p.is_file()]:
        if path.relative_to(tree) not in fresh:
            path.unlink()
    for name in sorted(fresh):
        old = tree / name
        content = (new / name).read_bytes()
        if not old.is_file() or old.read_bytes() != content:
            old.parent.mkdir(parents=True, exist_ok=True)
            old.write_bytes(content)


# ggml as a part of a project, as in ours: alone it wants files that the source package leaves out.
_LISTS = """\
cmake_minimum_required(VERSION 3.26)
project(prefix LANGUAGES C CXX)
set(GIT_EXE "") # it would tell of the repository around
set(GGML_BUILD_COMMIT prefix)
set(BUILD_SHARED_LIBS ON)
add_subdirectory(tree EXCLUDE_FROM_ALL)
# The largest file: optimising it takes longer than its tests do.
target_compile_options(test-backend-ops PRIVATE -O0)
"""


def build(tree: Path, folder: Path, jobs: int, programs: Iterable[str]) -> Path:
    """Configure and build; returns the programs' folder."""
    lists = tree.parent / "CMakeLists.txt"
    if not lists.is_file() or lists.read_text(encoding="utf-8") != _LISTS:
        lists.write_text(_LISTS, encoding="utf-8")
    if not (folder / "build.ninja").is_file():
        launcher = shutil.which("ccache")
        configure = [
            "cmake", "-S", str(tree.parent), "-B", str(folder), "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DGGML_BUILD_TESTS=ON", "-DGGML_BUILD_EXAMPLES=OFF", "-DGGML_NATIVE=ON",
            "-DGGML_LLAMAFILE=ON", "-DGGML_CPU_REPACK=OFF", "-DGGML_CUDA=OFF", "-DGGML_METAL=OFF",
            "-DGGML_CCACHE=OFF",
        ]  # fmt: skip
        if launcher:
            configure += [f"-DCMAKE_{lang}_COMPILER_LAUNCHER={launcher}" for lang in ("C", "CXX")]
        _run(configure)
    _run(["cmake", "--build", str(folder), "--target", *programs, "--", f"-j{jobs}"])
    return folder / "bin"


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace",
    )  # fmt: skip
    if done.returncode:
        lines = _ESCAPES.sub("", done.stdout).splitlines()
        told = [line for line in lines if re.search(r"FAIL|[Ee]rror|ABORT|ASSERT", line)]
        short = "\n  ".join([*told[:20], *lines[-20:]])
        raise PatchError(f"exit status {done.returncode}: {' '.join(command)}\n  {short}")
    return _ESCAPES.sub("", done.stdout)


def check(programs: Path, command: Command) -> int:
    """Run one command; returns the number of cases that passed.

    Raises:
        PatchError: it fails, or an op that it names ran no case.
    """
    output = _run([str(programs / command.program), *command.arguments])
    if not command.mode:
        count = len(re.findall(r"^ok |: OK$", output, re.MULTILINE))
        if not count:
            raise PatchError(f"{command}: no case ran")
        return count
    passed = [
        match[1]
        for match in re.finditer(r"^\s*([A-Z0-9_]+)\(.*\):.*\bOK\s*$", output, re.MULTILINE)
    ]
    for op in command.ops:
        if op not in passed:
            raise PatchError(f"{command}: no case of {op} ran")
    return len(passed)


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="patches_check.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N")
    parser.add_argument(
        "--to", dest="last", type=int, metavar="N", help="the last patch, for runs side by side"
    )
    parser.add_argument("--only", type=int, metavar="N", help="patch N alone, on those before it")
    parser.add_argument("--jobs", type=int, default=2, help="of the build (default: 2)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "patches")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(argv)
    project = vendor_tree.Project(options.root)
    patches = project.patches()
    first = options.only or options.first
    last = options.only or options.last or len(patches)
    if not 1 <= first <= last <= len(patches):
        parser.error(f"patches are numbered from 1 to {len(patches)}; got {first} to {last}")
    tree, folder, series = (options.folder.resolve() / name for name in ("tree", "obj", "series"))
    tree.mkdir(parents=True, exist_ok=True)
    # A copy: the series may change while this runs.
    shutil.rmtree(series, ignore_errors=True)
    series.mkdir()
    patches = [Path(shutil.copy(path, series)) for path in patches]
    patch = patches[first - 1]
    print(f"{'patch':62} {'build':>6} {'tests':>6}  cases", flush=True)
    try:
        plan = [commands(patch) for patch in patches]
        with tempfile.TemporaryDirectory() as temporary:
            start = Path(temporary)
            pin = project.pin()
            vendor_tree.extract(pin, archive(pin, project.cache), start)
            vendor_tree.apply(start, patches[: first - 1])
            update(tree, start)
        for patch in patches[first - 1 : last]:
            vendor_tree.apply(tree, [patch])
            begin = time.monotonic()
            wanted = plan[patches.index(patch)]
            names = sorted({"test-backend-ops", *(command.program for command in wanted)})
            programs = build(tree, folder, options.jobs, names)
            built = time.monotonic()
            counts = [(command, check(programs, command)) for command in wanted]
            ended = time.monotonic()
            told = "; ".join(f"{command}: {count} OK" for command, count in counts)
            seconds = f"{built - begin:5.0f}s {ended - built:5.0f}s"
            print(f"{patch.name:62} {seconds}  {told}", flush=True)
    except (PatchError, VendorError, OSError) as error:
        print(f"patches-check: {patch.name}: {error}", file=sys.stderr)
        return 1
    print(f"patches-check: {last - first + 1} prefixes build and pass", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
