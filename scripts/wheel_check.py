# SPDX-License-Identifier: MIT
"""Build the wheel with CPU variants, install it in a new environment, and run it on emulated CPUs.

On each CPU, under qemu's emulation, and with each variant that this CPU has: the variant that is
loaded, matrix products larger than a tile against float64, all rows of `python -m pyggml.grad0`
(--rows), ggml's test-packed-gemm with the wheel's own library (--packed), and two short runs of
train-llm, whose losses must have the same bits. Across variants the losses must agree to rounding.
Then damaged installs, other settings of the environment, sizes and import times. Exit
status 1 where one fails.

qemu's user emulation has no AVX-512: those variants run where this CPU has it. Linux on x86-64.

Another machine's wheel is checked by `--python COMMAND`, a Python that has it and its extra cli
installed, under an emulator that takes {cpu}. Then nothing is built, installed or damaged; --packed
needs a compiler for that machine (--cxx).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import zipfile
from pathlib import Path

from wheel_faults import check_faults

ROOT = Path(__file__).resolve().parent.parent
PROBE = ROOT / "scripts" / "wheel_probe.py"
GGML = ROOT / "vendor" / "ggml"  # the build makes it
# qemu's name of a CPU, and the variant that it must get.
CPUS = {
    "Nehalem": "x64",
    "SandyBridge": "sandybridge",
    "Opteron_G5": "sandybridge",
    "Haswell": "haswell",
    "Skylake-Client": "haswell",
    "EPYC-Rome": "haswell",
    "Skylake-Server": "haswell",  # the emulation leaves AVX-512 out
    "SapphireRapids": "haswell",  # and AMX; qemu 8 and newer know it
}
AARCH64 = {"cortex-a53": "armv8.0_1", "neoverse-n1": "armv8.2_2", "max": "armv8.6_1"}
TRAIN = (
    "--tokenizer chars --batch-size 4 --seq-len 32 --layers 2 --heads 2 --embd 32 --threads 1"
    " --no-report --sample-tokens 0 --overwrite"
)
ROUNDING = 1e-3  # of losses, relative, after the steps
IMPORT = """
import time
wall, user = time.perf_counter(), time.process_time()
import pyggml
print(time.perf_counter() - wall, time.process_time() - user)
"""
VARIANTS = """
from pyggml.backend.cpu_sets import built_for, present
print(*sorted(name for name, sets in built_for().items() if name and sets <= present()))
"""


def call(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """The output of a command, which must succeed."""
    texts = [str(part) for part in command]
    try:
        done = subprocess.run(
            texts, check=False, capture_output=True, text=True, env={**os.environ, **(env or {})}
        )
    except OSError as error:
        raise SystemExit(f"wheel_check: {texts[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        last = (done.stdout + done.stderr)[-3000:]
        raise SystemExit(f"wheel_check: {' '.join(texts)} exited {done.returncode}\n{last}")
    return done.stdout


def build(folder: Path) -> Path:
    """Build the wheel as cibuildwheel does; returns its path."""
    call(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, ROOT,
        "-C", f"build-dir={folder / 'objects'}", env={"CIBUILDWHEEL": "1"},
    )  # fmt: skip
    return max(folder.glob("pyggml-*.whl"), key=lambda path: path.stat().st_mtime)


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel in a new environment; returns its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    call(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    call(python, "-m", "pip", "install", "-q", f"{wheel}[cli]")
    return python


def train(start: list[str | Path], text: Path, out: Path, steps: int) -> list[float]:
    """The losses of a short run of train-llm."""
    call(
        *start, "-m", "pyggml", "train-llm", "--text", text, "--artifact-dir", out, *TRAIN.split(),
        "--steps", str(steps), env={"SOURCE_DATE_EPOCH": "0"},
    )  # fmt: skip
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["loss"] for row in map(json.loads, lines) if "loss" in row]


def packed(start: list[str | Path], variant: str, args: argparse.Namespace) -> str:
    """Link test-packed-gemm with the variant's library, and run it; returns what it counted."""
    place = call(*start, "-c", "import pyggml; print(pyggml.__path__[0])").strip()
    lib, program = Path(place) / "lib", args.work / f"test-packed-gemm-{variant}"
    call(
        *shlex.split(args.cxx), "-O2", "-std=c++17", "-pthread", "-I", GGML / "include",
        GGML / "tests" / "test-packed-gemm.cpp", lib / f"libpyggml-cpu-{variant}.so",
        lib / "libpyggml-base.so", f"-Wl,-rpath,{lib}", "-o", program,
    )  # fmt: skip
    *before, _ = start  # the emulator, without Python
    return call(*before, program).splitlines()[-1]


def try_cpu(
    cpu: str, expected: str, start: list[str | Path], args: argparse.Namespace
) -> list[float]:
    """Print a row of the table; returns the losses. A variant is expected, if any."""
    out = args.work
    rows = ["--rows"] if args.rows else []
    told = call(*start, PROBE, *rows, env={"OMP_NUM_THREADS": "1"})
    try:
        found = json.loads(told)
    except ValueError:
        raise SystemExit(
            f"{cpu}: {PROBE.name} prints JSON; got {told[:80]!r}; --python must start a Python"
        ) from None
    runs = [train(start, ROOT / "CONTRIBUTING.md", out / f"{cpu}-{i}", args.steps) for i in (0, 1)]
    if not runs[0]:
        raise SystemExit(f"{cpu}: train-llm wrote no loss")
    errors = "  ".join(f"{name} {error:.0e}" for name, error in found["products"].items())
    print(
        f"{cpu:15} {found['variant']:12} {found['rows']:4} rows, {len(found['failed'])} failed;"
        f" {errors};  {len(runs[0])} losses, {runs[0][0]:.6f} to {runs[0][-1]:.6f},"
        f" {'the same bits twice' if runs[0] == runs[1] else 'OTHER BITS the second time'}",
        flush=True,
    )
    if args.packed:
        told = packed(start, found["variant"], args)
        print(f"{'':15} test-packed-gemm: {told}", flush=True)
        if not re.fullmatch(r"0 of [1-9]\d* failed", told):
            raise SystemExit(f"{cpu}: test-packed-gemm: {told}")
    if expected and found["variant"] != expected:
        raise SystemExit(f"{cpu}: loads {found['variant']}, not {expected}")
    if found["failed"] or (args.rows and not found["rows"]):
        raise SystemExit(f"{cpu}: {found['rows']} rows passed, {found['failed']} failed")
    args.passed = args.passed or found["rows"]  # of the first CPU
    if found["rows"] != args.passed:
        raise SystemExit(f"{cpu}: {found['rows']} rows passed; the first CPU has {args.passed}")
    if runs[0] != runs[1]:
        raise SystemExit(f"{cpu}: the second training has other losses")
    limits = {"f32": 1e-11, "bf16": 1e-4}
    for name, error in found["products"].items():
        if not error < limits.get(name, 1e-3):
            raise SystemExit(f"{cpu}: the product of {name} is off by {error}")
    return runs[0]


def known_to(qemu: str, cpus: list[str]) -> list[str]:
    """Those of the CPUs that this qemu knows; tells which it does not."""
    # Its exit status is 1 after this, too.
    told = subprocess.run([qemu, "-cpu", "help"], check=False, capture_output=True, text=True)
    names = set(told.stdout.split())
    if unknown := [cpu for cpu in cpus if cpu not in names]:
        print(f"not run, as {qemu} does not know it: {', '.join(unknown)}")
    return [cpu for cpu in cpus if cpu in names]


def tell_sizes(wheel: Path, python: Path) -> None:
    """Print the sizes and the import times."""
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.infolist()
    installed = Path(call(python, "-c", "import pyggml; print(pyggml.__path__[0])").strip())
    files = [path for path in installed.rglob("*") if path.is_file()]
    total = sum(path.stat().st_size for path in files)
    own = sum(path.stat().st_size for path in files if path.suffix != ".pyc")
    print(
        f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB; installed {own / 1e6:.2f} MB,"
        f" {total / 1e6:.2f} MB with bytecode"
    )
    for entry in sorted(entries, key=lambda entry: entry.filename):
        if re.search(r"\.(so|dylib|dll|pyd)$", entry.filename):
            print(f"  {entry.file_size / 1e6:5.2f} MB  {entry.filename}")
    runs = [call(python, "-c", IMPORT).split() for _ in range(9)]
    for name, times in zip(("wall", "CPU"), zip(*runs, strict=True), strict=True):
        found = sorted(map(float, times))
        print(f"import, {name}: {found[0]:.3f} s at best, {statistics.median(found):.3f} s median")


def check_here(args: argparse.Namespace) -> dict[str, list[float]]:
    """Build and install the wheel, damage copies, and run what this CPU has; returns the losses."""
    wheel = args.wheel or build(args.work)
    python = install(wheel, args.work / "env")
    tell_sizes(wheel, python)
    args.qemu = args.qemu or shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64") or ""
    check_faults(python, args.work, args.qemu)
    losses = {"this CPU": try_cpu("this CPU", "", [python], args)}
    for variant in call(python, "-c", VARIANTS).split():
        start: list[str | Path] = ["env", f"PYGGML_CPU={variant}", python]
        losses[variant] = try_cpu(f"as {variant}", variant, start, args)
    if not args.qemu:
        if args.cpus:
            raise SystemExit("wheel_check: --cpus needs qemu-x86_64-static, or --qemu FILE")
        print("no qemu: not run on other CPUs")
        args.cpus = ""
    return losses


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The options; one that cannot be ends the program with a line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--wheel", type=Path, help="check this one; by default one is built")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "wheel-check")
    parser.add_argument("--qemu", help="qemu-x86_64-static (default: of the PATH)")
    parser.add_argument("--python", help="a command, of aarch64 under qemu: `qemu -cpu {cpu} …`")
    parser.add_argument("--cpus", help="of qemu, with commas between (default: all that are known)")
    parser.add_argument("--steps", type=int, default=50, help="of train-llm (default: 50)")
    parser.add_argument("--rows", action="store_true", help="also grad0's rows: minutes")
    parser.add_argument("--packed", action="store_true", help="also test-packed-gemm: minutes")
    parser.add_argument("--cxx", default="c++", help="the compiler of --packed (default: c++)")
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error(f"--steps must be 1 or more; got {args.steps}")
    for option, text, names in (("--python", args.python, {"cpu": ""}), ("--cxx", args.cxx, None)):
        try:
            good = text is None or shlex.split(text.format(**names) if names else text)
        except (ValueError, LookupError, AttributeError):
            good = False
        if not good:
            parser.error(
                f"{option} must be a command, with {{cpu}} at most in braces; got {text!r}"
            )
    if args.qemu and not shutil.which(args.qemu):
        parser.error(f"--qemu must be a program; got {args.qemu}")
    args.work = args.work.absolute()  # the faults run in folders of their own
    try:
        args.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--work must be a folder; got {args.work}: {error.strerror}")
    args.passed = 0
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    known = AARCH64 if args.python else CPUS
    losses = {} if args.python else check_here(args)
    cpus = list(known) if args.cpus is None else [cpu for cpu in args.cpus.split(",") if cpu]
    if cpus and not args.python:
        there = known_to(args.qemu, cpus)
        if args.cpus and there != cpus:
            return 1
        cpus = there
    for cpu in cpus:
        # NumPy's OpenBLAS takes an emulated Nehalem for a newer CPU: a kernel that all have.
        here = f"env OPENBLAS_CORETYPE=Nehalem {args.qemu} -cpu {{cpu}} {args.work}/env/bin/python"
        command = args.python or here
        start: list[str | Path] = [*shlex.split(command.format(cpu=cpu))]
        losses[cpu] = try_cpu(cpu, (CPUS | AARCH64).get(cpu, ""), start, args)
    name, first = next(iter(losses.items()))
    off = {
        other: max(abs(a - b) / abs(b) for a, b in zip(found, first, strict=True))
        for other, found in losses.items()
    }
    print(
        f"losses, relative to those of {name}: " + ", ".join(f"{k} {v:.1e}" for k, v in off.items())
    )
    return 1 if max(off.values()) > ROUNDING else 0


if __name__ == "__main__":
    sys.exit(main())
