# SPDX-License-Identifier: MIT
"""Build the patched CPU backend and the binding with sanitizers, and run the table of ops.

address   AddressSanitizer and UndefinedBehaviorSanitizer
thread    ThreadSanitizer, on several threads; without OpenMP, whose runtime (libgomp) is not
          instrumented: what it synchronises would look like a race. ggml's own thread pool runs.

Each has a build folder of its own, build/sanitize-NAME; the installed package is left alone. What
runs is the whole table of `python -m pyggml.testing`, training steps (sanitize_steps.py) and tests:
tests/ops with `address`, those of several threads of Python with `thread`; or what stands behind
`--`: arguments of python. Exit status 1 when a run fails or a sanitizer reports anything; passed
over are only leaks of memory that neither ggml nor the binding asked for. Linux, GCC.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Kind:
    """How one sanitizer is built and run."""

    flags: str
    runtimes: tuple[str, ...]
    cmake: tuple[str, ...]
    options: dict[str, str]
    threads: int
    tests: tuple[str, ...]


KINDS = {
    "address": Kind(
        # "undefined" leaves out division of floats by zero, which IEEE 754 defines.
        flags="-fsanitize=address,undefined -fsanitize-recover=address",
        runtimes=("libasan.so", "libubsan.so"),
        cmake=(),
        options={
            # Leaks are looked for by sanitize_leaks.py, before CPython ends.
            "ASAN_OPTIONS": "detect_leaks=1:leak_check_at_exit=0:halt_on_error=0"
            ":detect_stack_use_after_return=1:check_initialization_order=1:strict_init_order=1",
            "LSAN_OPTIONS": "print_suppressions=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
        threads=2,
        tests=("ops",),
    ),
    "thread": Kind(
        flags="-fsanitize=thread",
        runtimes=("libtsan.so",),
        cmake=("-DGGML_OPENMP=OFF",),
        options={"TSAN_OPTIONS": "halt_on_error=0:second_deadlock_stack=1:history_size=4"},
        threads=4,
        # Threads of Python: the lock of the interpreter is given back while ggml computes.
        tests=(
            "data/test_prefetch.py",
            "graph/test_graph_cache.py",
            "no_abort/test_threads.py",
            "train/test_threads.py",
        ),
    ),
}


def runtime(name: str, compiler: str) -> Path:
    """The compiler's own library of that name."""
    done = subprocess.run(
        [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
    )
    path = Path(done.stdout.strip())
    if not path.is_absolute():
        raise SystemExit(f"sanitize: {compiler} has no {name}; install the compiler's sanitizers")
    return path


def build(kind: str, folder: Path, jobs: int) -> Path:
    """Configure, build and stage; returns the folder that holds the package `pyggml`."""
    how = KINDS[kind]
    # -O1 keeps the stacks of reports true; no NDEBUG, so that ggml's assert()s count too.
    flags = f"-O1 -g1 -fno-omit-frame-pointer {how.flags}"
    configure = [
        "cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DCMAKE_C_FLAGS_RELWITHDEBINFO=", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=",
        f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}",
        "-DGGML_CUDA=OFF", "-DGGML_METAL=OFF", "-DGGML_BLAS=OFF",
        f"-DPython_EXECUTABLE={sys.executable}", *how.cmake,
    ]  # fmt: skip
    _quietly(configure)
    _quietly(["cmake", "--build", str(folder), "--", f"-j{jobs}"])
    site = folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__", "lib", "_ggml*.so", "_cdef.h")
    shutil.copytree(ROOT / "src" / "pyggml", site / "pyggml", ignore=ignore)
    install = ["cmake", "--install", str(folder), "--component", "pyggml", "--prefix", str(site)]
    _quietly(install)
    return site


def _quietly(command: list[str]) -> None:
    """Run a step of the build; what it says (GCC warns within its own headers) only if it fails."""
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()


def environment(kind: str, site: Path, reports: Path, compiler: str) -> dict[str, str]:
    """What a python needs to run the sanitized package."""
    how = KINDS[kind]
    env = {k: v for k, v in os.environ.items() if not k.endswith("SAN_OPTIONS")}
    for name, options in how.options.items():
        tool = name.partition("_")[0].lower()
        env[name] = f"{options}:log_path={reports / tool}"
    paths = sysconfig.get_paths()
    # Python runs with -S: the finder of an editable install would lead to the other build.
    env["PYTHONPATH"] = os.pathsep.join([str(site), paths["purelib"], paths["platlib"]])
    env["LD_PRELOAD"] = " ".join(str(runtime(name, compiler)) for name in how.runtimes)
    env["PYTHONMALLOC"] = "malloc"  # arrays of CPython's own pools have no red zones
    return env


def table(threads: int) -> list[str]:
    """Arguments of python that run the table of ops on that many threads of ggml."""
    code = (
        "import sys, pyggml\n"
        f"pyggml.set_threads({threads})\n"
        "from pyggml.testing.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    return ["-c", code]


_LEAK = re.compile(r"^(?:Direct|Indirect) leak of .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_OURS = re.compile(r"\(\S*/(?:libpyggml\S*|_ggml\S*)\+0x|/(?:vendor/ggml|src/pyggml)/")


def leaks(text: str) -> dict[str, tuple[int, str]]:
    """The leaks of memory that ggml or the binding asked for: function to how often, and the first.

    CPython, NumPy and cffi lose some of their own; theirs have no frame of ours.
    """
    found: dict[str, tuple[int, str]] = {}
    for match in _LEAK.finditer(text):
        frames = [line for line in match[0].splitlines() if _OURS.search(line)]
        if frames:
            key = "LeakSanitizer: " + re.sub(r"^\s*#\d+ 0x\S+\s+(?:in )?", "", frames[0])
            count, first = found.get(key, (0, match[0]))
            found[key] = (count + 1, first)
    return found


_START = re.compile(
    r"^(?:WARNING: ThreadSanitizer|(?:==\d+==)?ERROR: (?!Leak)\w+Sanitizer|FATAL: \w+Sanitizer"
    r"|\S+:\d+:\d+: runtime error)",
    re.MULTILINE,
)


def distinct(text: str) -> dict[str, tuple[int, str]]:
    """The reports in what the sanitizers wrote: place to how often, and the first in full."""
    found: dict[str, tuple[int, str]] = {}
    starts = [match.start() for match in _START.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        part = "\n".join(text[start:end].strip().splitlines()[:80])
        summary = re.search(r"^SUMMARY: (.*)$", part, re.MULTILINE)
        key = summary[1] if summary else re.sub("0x[0-9a-f]+", "…", part.splitlines()[0])
        count, first = found.get(key, (0, part))
        found[key] = (count + 1, first)
    return found


def run(kind: str, site: Path, arguments: list[str]) -> bool:
    """Run python on the sanitized package; True when it succeeds and nothing is reported."""
    reports = site.parent / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    env = environment(kind, site, reports, os.environ.get("CC", "gcc"))
    # ThreadSanitizer's shadow memory needs the addresses that a fixed layout gives.
    fixed = ["setarch", "-R"] if kind == "thread" and shutil.which("setarch") else []
    search = [str(ROOT / "scripts" / "sanitize_leaks.py")] if kind == "address" else []
    command = [*fixed, sys.executable, "-S", *search, *arguments]
    # GCC's UndefinedBehaviorSanitizer knows no log_path beside AddressSanitizer's.
    errors = site.parent / "stderr.txt"
    with errors.open("wb") as file:
        done = subprocess.run(command, check=False, env=env, cwd=reports.parent, stderr=file)
    written = [path.read_text("utf-8", "replace") for path in [errors, *sorted(reports.iterdir())]]
    found = distinct("\n".join(written))
    found.update(leaks("\n".join(written)))
    if done.returncode and not found:
        print(written[0], file=sys.stderr)
    for key, (count, first) in found.items():
        print(f"\n{count} times: {key}\n{first}")
    print(f"sanitize: {kind}: exit status {done.returncode}, {len(found)} places reported")
    return done.returncode == 0 and not found


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="sanitize.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--jobs", type=int, default=2, help="of the build (default: 2)")
    parser.add_argument("--folder", type=Path, help="of the build (default: build/sanitize-KIND)")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("arguments", nargs="*", help="of python, instead of the table")
    options = parser.parse_args(argv)
    folder = (options.folder or ROOT / "build" / f"sanitize-{options.kind}").resolve()
    try:
        site = build(options.kind, folder, options.jobs)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"sanitize: the build failed: {error}", file=sys.stderr)
        return 1
    if options.build_only:
        return 0
    if options.arguments:
        runs = [options.arguments]
    else:
        threads = KINDS[options.kind].threads
        steps = [str(ROOT / "scripts" / "sanitize_steps.py"), "--threads", str(threads)]
        # --capture=sys: what the runtimes write is not swallowed with a passing test.
        pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys"]
        tests = [str(ROOT / "tests" / name) for name in KINDS[options.kind].tests]
        runs = [table(threads), steps, [*pytest, *tests]]
    good = [run(options.kind, site, arguments) for arguments in runs]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
