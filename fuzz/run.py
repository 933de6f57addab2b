# SPDX-License-Identifier: MIT
"""Build and run the fuzzers.

python fuzz/run.py build             the C targets, into build/fuzz; needs clang 14 or newer
python fuzz/run.py run MINUTES       all targets in turn, MINUTES altogether; 1 at a finding
python fuzz/run.py replay            the regressions, and what the corpora hold, of all targets
python fuzz/run.py coverage          lines that seeds, regressions and corpora reach; 1 below 90%
                                     of ggml's reader and writer of GGUF (clang's source coverage)

The corpora grow in build/fuzz/corpus/TARGET; seeds.py writes what they start from. A finding lies
in build/fuzz/found. Made small (`build/fuzz/fuzz-TARGET -minimize_crash=1 FILE`) it belongs into
fuzz/regressions/TARGET. The tests replay those of `gguf` and of the Python readers; those of
`product` and `graph` need the C targets, so `replay` alone does.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
CORPUS, FOUND = BUILD / "corpus", BUILD / "found"
REGRESSIONS = ROOT / "fuzz" / "regressions"
NATIVE = ("gguf", "product", "graph")
# Longest input, and the memory that one input may ask for at once.
LENGTHS = {"gguf": 8192, "product": 64, "graph": 512}
LIMITS = ("-timeout=60", "-malloc_limit_mb=256", "-rss_limit_mb=2048")
# Share of the lines of a file of ggml that a target must reach.
ENOUGH = {"gguf": 0.9}
READERS = (
    "gguf", "safetensors", "tokenizer", "state", "toml", "image", "text", "gzip", "csv", "pairs",
    "chats", "idx", "adapter", "imatrix",
)  # fmt: skip


def tool(name: str) -> str:
    """Return the path of an LLVM tool, the newest there is."""
    for version in ("", *(f"-{n}" for n in range(25, 13, -1))):
        found = shutil.which(name + version)
        if found:
            return found
    raise SystemExit(f"fuzz: {name} is not here; install LLVM 14 or newer")


def environment() -> dict[str, str]:
    """Return the environment of the C targets."""
    # Out of memory is an answer of the allocator, as it is without a sanitizer.
    options = "allocator_may_return_null=1:detect_stack_use_after_return=1"
    return {**os.environ, "ASAN_OPTIONS": options, "LLVM_PROFILE_FILE": os.devnull}


def build() -> None:
    """Configure and build the C targets."""
    compilers = (f"-DCMAKE_C_COMPILER={tool('clang')}", f"-DCMAKE_CXX_COMPILER={tool('clang++')}")
    configure = ["cmake", "-S", str(ROOT / "fuzz"), "-B", str(BUILD), "-G", "Ninja", *compilers]
    subprocess.run(configure, check=True)
    subprocess.run(["cmake", "--build", str(BUILD)], check=True)


def seeds() -> None:
    """Write the seeds; an older corpus lacks what was added to them."""
    subprocess.run([sys.executable, str(ROOT / "fuzz" / "seeds.py"), str(CORPUS)], check=True)


def native(target: str, seconds: int) -> bool:
    """Run a C target; True without a finding."""
    FOUND.mkdir(parents=True, exist_ok=True)
    folders = [CORPUS / target, REGRESSIONS / target]
    command = [
        str(BUILD / f"fuzz-{target}"),
        f"-max_total_time={seconds}",
        f"-max_len={LENGTHS[target]}",
        f"-artifact_prefix={FOUND / target}-",
        *("-print_final_stats=1", *LIMITS),
        *(str(folder) for folder in folders if folder.exists()),
    ]
    return subprocess.run(command, check=False, env=environment()).returncode == 0


def reader(name: str, seconds: int) -> bool:
    """Run the fuzzer of a Python reader; True without a finding."""
    script = str(ROOT / "fuzz" / "guided.py")
    command = [sys.executable, script, name, str(CORPUS), str(FOUND), str(seconds)]
    return subprocess.run(command, check=False).returncode == 0


def replay(targets: list[str]) -> bool:
    """Run each regression and each file of the corpora of some targets once."""
    good = True
    for target in targets:
        own = target if target in NATIVE else f"python-{target}"
        folders = [f for f in (REGRESSIONS / own, CORPUS / own) if f.exists()]
        files = [str(path) for folder in folders for path in sorted(folder.iterdir())]
        command = [str(BUILD / f"fuzz-{target}"), *LIMITS]
        if target not in NATIVE:
            command = [sys.executable, str(ROOT / "fuzz" / "readers.py"), target, str(CORPUS)]
        for start in range(0, len(files), 500):
            part = [*command, *files[start : start + 500]]
            done = subprocess.run(part, check=False, env=environment(), capture_output=True)
            if done.returncode:
                sys.stderr.buffer.write(done.stderr[-4000:])
                good = False
    return good


def coverage() -> bool:
    """Print which lines of ggml are reached, and not; True if enough of gguf.cpp are."""
    good = True
    raw, merged = BUILD / "coverage.profraw", BUILD / "coverage.profdata"
    env = {**environment(), "LLVM_PROFILE_FILE": str(raw)}
    reports = {"gguf": "gguf.cpp", "product": "ggml-cpu/train/packed-gemm.cpp"}
    for target, source in reports.items():
        program = str(BUILD / f"fuzz-{target}")
        folders = [str(f) for f in (REGRESSIONS / target, CORPUS / target) if f.exists()]
        subprocess.run([program, "-runs=0", *LIMITS, *folders], check=True, env=env,
                       capture_output=True)  # fmt: skip
        profile = [tool("llvm-profdata"), "merge", "-sparse", str(raw), "-o", str(merged)]
        subprocess.run(profile, check=True)
        path = str(ROOT / "vendor" / "ggml" / "src" / source)
        cover = [tool("llvm-cov"), "report", program, f"-instr-profile={merged}", path]
        subprocess.run(cover, check=True)
        show = [tool("llvm-cov"), "show", program, f"-instr-profile={merged}", path]
        shown = subprocess.run(show, check=True, capture_output=True, text=True).stdout
        lines = [line.split("|", 2) for line in shown.splitlines() if line.count("|") >= 2]
        # A template's line stands there once for each type that it is made for.
        counts: dict[int, tuple[bool, str]] = {}
        for number, count, text in lines:
            if number.strip().isdigit() and count.strip():
                at, seen = int(number), count.strip() != "0"
                counts[at] = (seen or counts.get(at, (False, ""))[0], text)
        missed = [f"{at}: {text}" for at, (seen, text) in sorted(counts.items()) if not seen]
        share = 1 - len(missed) / len(counts)
        reached = f"{len(counts) - len(missed)} of {len(counts)} lines, {share:.1%}"
        print(f"{source}: {reached}; not reached:")
        print("\n".join(missed))
        good = good and share >= ENOUGH.get(target, 0.0)
    return good


def main() -> int:
    """Carry out the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run", "replay", "coverage"))
    parser.add_argument("minutes", type=float, nargs="?", default=10.0)
    parser.add_argument("--only", nargs="*", default=[*NATIVE, *READERS], help="of the targets")
    options = parser.parse_args()
    if options.what == "build":
        build()
        return 0
    seeds()
    if options.what != "run":
        good = replay(options.only) if options.what == "replay" else coverage()
        return 0 if good else 1
    chosen = [(native, t) for t in NATIVE if t in options.only]
    wanted = [(reader, t) for t in READERS if t in options.only]
    if importlib.util.find_spec("atheris"):
        chosen += wanted
    elif wanted:
        print(f"fuzz: {len(wanted)} readers of files are left out: pip install atheris")
    if not chosen:
        return 1
    seconds = max(1, int(options.minutes * 60 / len(chosen)))
    bad = [target for run, target in chosen if not run(target, seconds)]
    print(f"fuzz: {len(chosen)} targets, {seconds} s each; findings: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
