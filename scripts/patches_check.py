# SPDX-License-Identifier: MIT
"""Build each prefix of the patch series and run the tests that its last patch names.

For patch N the tree has patches 1 to N and no other. The CPU backend and test-backend-ops are
built in build/patches, one folder for all, so that a prefix compiles only what its patch reaches;
then the commands of the patch's `Tests:` lines run with `-b CPU` (patches/README.md has their
form), while the next prefix is built. A command must exit with 0, and each op that it names must
have run at least one case. Of a patch for Metal the C++ files of the backend are compiled as well,
without their Objective-C; kernels of CUDA and Metal are not.

A command that passed is noted in build/patches/passed.json under the hash of the sources that are
compiled for it. A run that was interrupted, or comes after a change of some patches, skips what is
noted; `--again` runs it too. Stops at the first patch that does not apply, build or pass, with
exit status 1 and its name.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
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


# ggml as a part of a project, as in ours: alone it wants files that the source package leaves out.
_LISTS = """\
cmake_minimum_required(VERSION 3.26)
project(prefix LANGUAGES C CXX)
set(GIT_EXE "") # it would tell of the repository around
set(GGML_BUILD_COMMIT prefix)
set(BUILD_SHARED_LIBS ON)
# The programs find their libraries beside them, also in a copy of the folder.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
add_subdirectory(tree EXCLUDE_FROM_ALL)
# The largest file: optimising it takes longer than its tests do.
target_compile_options(test-backend-ops PRIVATE -O0)
"""


def _is_compiled(name: str) -> bool:
    """Whether a file of ggml may be a part of the build: other backends' folders are not."""
    parts = name.split("/")
    return parts[0] != "src" or len(parts) == 2 or parts[1] == "ggml-cpu"


def digest(tree: Path) -> str:
    """The hash of what a tree is built from here."""
    files = {k: v for k, v in vendor_tree.hashes(tree).items() if _is_compiled(k)}
    return hashlib.sha256(json.dumps([_LISTS, files], sort_keys=True).encode()).hexdigest()


class Passed:
    """The commands that passed, with their cases, by the hash of what they ran on; in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        text = file.read_text(encoding="utf-8") if file.is_file() else "{}"
        self._cases: dict[str, int] = json.loads(text)

    def cases(self, built: str, command: Command) -> int | None:
        """The number of cases that passed, or None if the command has to run."""
        return self._cases.get(f"{built} {command}")

    def note(self, built: str, command: Command, cases: int) -> None:
        """Add a command that passed."""
        with self._lock:
            self._cases[f"{built} {command}"] = cases
            fresh = self._file.with_suffix(".new")
            fresh.write_text(json.dumps(self._cases, indent=1), encoding="utf-8")
            fresh.replace(self._file)

    def forget(self, built: str) -> None:
        """Drop what passed on these sources, as far as this run knows."""
        with self._lock:
            self._cases = {k: v for k, v in self._cases.items() if k.split(" ")[0] != built}


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


def build(tree: Path, folder: Path, jobs: int, programs: Iterable[str]) -> Path:
    """Configure and build; returns the programs' folder."""
    lists = tree.parent / "CMakeLists.txt"
    if not lists.is_file() or lists.read_text(encoding="utf-8") != _LISTS:
        lists.write_text(_LISTS, encoding="utf-8")
    # Each time: a patch may add files, which CMake finds by their names.
    configure = [
        "cmake", "-S", str(tree.parent), "-B", str(folder), "-G", "Ninja",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DGGML_BUILD_TESTS=ON", "-DGGML_BUILD_EXAMPLES=OFF", "-DGGML_NATIVE=ON",
        "-DGGML_LLAMAFILE=ON", "-DGGML_CPU_REPACK=OFF", "-DGGML_CUDA=OFF", "-DGGML_METAL=OFF",
        "-DGGML_CCACHE=OFF",
    ]  # fmt: skip
    launcher = shutil.which("ccache")
    if launcher:
        configure += [f"-DCMAKE_{lang}_COMPILER_LAUNCHER={launcher}" for lang in ("C", "CXX")]
    _run(configure)
    _run(["cmake", "--build", str(folder), "--target", *programs, "--", f"-j{jobs}"])
    return folder / "bin"


def compile_metal(tree: Path) -> None:
    """Let the compiler read Metal's C++ files, which include nothing of Apple's.

    Raises:
        PatchError: one does not compile.
    """
    includes = [f"-I{tree / name}" for name in ("include", "src", "src/ggml-metal")]
    # libc++ brings std::unique_ptr with what upstream's files include, libstdc++ does not.
    command = ["c++", "-std=c++17", "-fsyntax-only", "-include", "memory", *includes]
    for file in sorted((tree / "src" / "ggml-metal").glob("*.cpp")):
        _run([*command, str(file)])


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace",
    )  # fmt: skip
    if done.returncode:
        lines = _ESCAPES.sub("", done.stdout).splitlines()
        told = [line for line in lines if re.search(r"FAIL|[Ee]rror|ABORT|ASSERT", line)]
        short = "\n  ".join([*told[:20], *lines[-20:]])
        raise PatchError(f"exit status {done.returncode}: {shlex.join(command)}\n  {short}")
    return _ESCAPES.sub("", done.stdout)


def cases(output: str, mode: str) -> list[str]:
    """Return the op of each case that passed, by what test-backend-ops printed."""
    passed = []
    announced = None
    for match in re.finditer(r"^\s*(([A-Z0-9_]+)\(.*\)):(.*)$", output, re.MULTILINE):
        case, op, said = match.groups()
        is_ok = re.search(r"\bOK\s*$", said) is not None
        if mode == "grad":
            # A case is printed with OK before it runs, and again with what came of it; ggml's own
            # test, before patch 0002, names its loss then: a SUM.
            if announced is None or (case != announced.group(1) and op != "SUM"):
                announced = match if is_ok else None
                continue
            op, announced = announced.group(2), None
        if is_ok:
            passed.append(op)
    return passed


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
    passed = cases(output, command.mode)
    for op in command.ops:
        if op not in passed:
            raise PatchError(f"{command}: no case of {op} ran")
    return len(passed)


def run(programs: Path, built: str, wanted: list[Command], passed: Passed) -> float:
    """Run the commands that have not passed; returns the seconds that they took."""
    begin = time.monotonic()
    for command in wanted:
        if passed.cases(built, command) is None:
            passed.note(built, command, check(programs, command))
    return time.monotonic() - begin


@contextlib.contextmanager
def _named(patch: str) -> Iterator[None]:
    """Put the patch's name before the message of a PatchError."""
    try:
        yield
    except PatchError as error:
        raise PatchError(f"{patch}: {error}") from error


class Prefixes:
    """Builds the prefixes in their order, each while the tests of the one before run."""

    def __init__(self, project: vendor_tree.Project, folder: Path, jobs: int) -> None:
        self._folder, self._jobs, self._passed = folder, jobs, Passed(folder / "passed.json")
        self._tests: Callable[[], None] = lambda: None
        series, self._plain = folder / "series", folder / "plain"
        for fresh in (series, self._plain):
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
        # A copy: the series may change while this runs.
        self._patches = [Path(shutil.copy(path, series)) for path in project.patches()]
        pin = project.pin()
        vendor_tree.extract(pin, archive(pin, project.cache), self._plain)

    def check(self, first: int, last: int, again: bool) -> None:
        """Check the prefixes that end with the patches `first` to `last`, counted from 1.

        Raises:
            PatchError: a patch has no tests, or a prefix does not build or pass.
        """
        plan = [(patch, commands(patch)) for patch in self._patches]
        vendor_tree.apply(self._plain, self._patches[: first - 1])
        with ThreadPoolExecutor(1) as tester:
            for patch, wanted in plan[first - 1 : last]:
                vendor_tree.apply(self._plain, [patch])
                if "+++ b/src/ggml-metal/" in patch.read_text("utf-8", "surrogateescape"):
                    with _named(patch.name):
                        compile_metal(self._plain)
                self._prefix(patch.name, wanted, tester, again)
            self._tests()

    def _prefix(self, name: str, wanted: list[Command], tester: Executor, again: bool) -> None:
        """Build one prefix and start its tests, after those of the one before."""
        built = digest(self._plain)
        if again:
            self._passed.forget(built)
        begin = time.monotonic()
        todo = any(self._passed.cases(built, command) is None for command in wanted)
        if todo:
            update(self._folder / "tree", self._plain)
            programs = {"test-backend-ops", *(command.program for command in wanted)}
            with _named(name):
                made = build(
                    self._folder / "tree", self._folder / "obj", self._jobs, sorted(programs)
                )
        seconds = time.monotonic() - begin
        self._tests()
        copied = self._folder / "run"
        if todo:
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(made, copied, symlinks=True)
        future = tester.submit(run, copied, built, wanted, self._passed)

        def tests() -> None:
            with _named(name):
                tested = future.result()
            cases = [f"{each}: {self._passed.cases(built, each)} OK" for each in wanted]
            times = f"{seconds:5.0f}s {tested:5.0f}s" if todo else f"{'passed before':>13}"
            print(f"{name:62} {times}  {'; '.join(cases)}", flush=True)

        self._tests = tests


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="patches_check.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N")
    parser.add_argument("--to", dest="last", type=int, metavar="N", help="the last patch")
    parser.add_argument("--only", type=int, metavar="N", help="patch N alone, on those before it")
    parser.add_argument("--again", action="store_true", help="also what passed before")
    parser.add_argument("--jobs", type=int, default=2, help="of the build (default: 2)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "patches")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(argv)
    try:
        project = vendor_tree.Project(options.root)
        count = len(project.series())
    except VendorError as error:
        print(f"patches-check: {error}", file=sys.stderr)
        return 1
    first = options.only or options.first
    last = options.only or options.last or count
    if not 1 <= first <= last <= count:
        parser.error(f"patches are numbered from 1 to {count}; got {first} to {last}")
    if shutil.which("ccache") is None:
        print("patches-check: no ccache: the first run after a change takes longer; install it")
    print(f"{'patch':62} {'build':>6} {'tests':>6}  cases", flush=True)
    begin = time.monotonic()
    try:
        Prefixes(project, options.folder.resolve(), options.jobs).check(first, last, options.again)
    except (PatchError, VendorError, OSError) as error:
        print(f"patches-check: {error}", file=sys.stderr)
        return 1
    minutes = (time.monotonic() - begin) / 60
    print(f"patches-check: {last - first + 1} prefixes build and pass ({minutes:.0f} min)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
