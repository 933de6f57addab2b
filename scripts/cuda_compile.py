# SPDX-License-Identifier: MIT
"""Compiles CUDA files of the patched ggml for several GPUs, one file at a time.

    python scripts/cuda_compile.py                  what the patches add or change
    python scripts/cuda_compile.py norm-back ...    these
    python scripts/cuda_compile.py --quick          for one GPU, without the host's object code
    python scripts/cuda_compile.py --quick --usage  and what each kernel takes of a multiprocessor
    python scripts/cuda_compile.py --table          the same as a table, for every GPU
    python scripts/cuda_compile.py --all            the whole backend; an hour on two cores
    python scripts/cuda_compile.py --fetch          the headers of cuBLAS, into build/cublas

Needs nvcc; cuBLAS' headers from --cublas DIR, the toolkit, the package nvidia-cublas, or what
--fetch has left.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FETCHED = ROOT / "build" / "cublas"
# T4 and RTX 20; A100; RTX 30; RTX 40; H100 and H200; B200; RTX 50
GPUS = (75, 80, 86, 89, 90, 100, 120)
QUICK = (90,)

# Registers of a multiprocessor: as many as a block can have at most, on every GPU since Maxwell.
REGISTERS = 65536
# A block's threads where a kernel has no launch bounds: no launch may have more.
THREADS_MAX = 1024
# A block's threads of kernels of ggml's that have no launch bounds and more than 64 registers:
# CUDA_QUANTIZE_BLOCK_SIZE_MMQ of quantize.cuh.
LAUNCHED = {"quantize_mmq_nvfp4": 128}

# as ggml's CMake passes them; every warning of ours is an error
FLAGS = (
    "-std=c++17",
    "-O3",
    "-use_fast_math",
    "-extended-lambda",
    "-DGGML_CUDA_USE_GRAPHS",
    "-DNDEBUG",
    "-Werror=all-warnings",
)


def patched(patches: Path) -> list[str]:
    """The names of the .cu files that a patch touches."""
    names = set()
    for patch in sorted(patches.glob("*.patch")):
        names.update(re.findall(r"^\+\+\+ b/src/ggml-cuda/([\w-]+)\.cu$", patch.read_text(), re.M))
    return sorted(names)


def added(patches: Path) -> list[str]:
    """The names of the .cu files that are the series' own."""
    names = set()
    for patch in sorted(patches.glob("*.patch")):
        text = patch.read_text()
        names.update(
            re.findall(r"^--- /dev/null\n\+\+\+ b/src/ggml-cuda/([\w-]+)\.cu$", text, re.M)
        )
    return sorted(names)


def cublas_headers(given: Path | None) -> list[Path]:
    """Folders with cublas_v2.h besides the toolkit's: the one given, or all that are found."""
    if given:
        return [given]
    spec = importlib.util.find_spec("nvidia")
    found = []
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found += [path.parent for path in sorted(Path(folder).glob("*/include/cublas_v2.h"))]
    if (FETCHED / "cublas_v2.h").is_file():
        found.append(FETCHED)
    return found


def has_cublas(nvcc: str | None, given: Path | None = None) -> bool:
    """Whether `nvcc` finds cublas_v2.h."""
    if nvcc is None:
        return False
    source = "#include <cublas_v2.h>\n"
    command = [nvcc, "-E", "-x", "cu", "-", *(f"-I{p}" for p in cublas_headers(given))]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.returncode == 0


def cublas_package(version: str) -> str:
    """What to ask a package index for, by what `nvcc --version` says."""
    found = re.search(r"release (\d+)\.(\d+)", version)
    if found is None:
        raise ValueError(f"nvcc --version must name its release; got {version!r}")
    major, minor = found.groups()
    # from 13 on the name has no number
    return f"nvidia-cublas=={major}.{minor}.*" if int(major) > 12 else f"nvidia-cublas-cu{major}"


def unpack_headers(wheel: Path, into: Path) -> int:
    """Write the headers of a wheel of cuBLAS; how many they are."""
    with zipfile.ZipFile(wheel) as stored:
        names = [n for n in stored.namelist() if re.search(r"/include/[\w.-]+\.h$", n)]
        into.mkdir(parents=True, exist_ok=True)
        for name in sorted(names, key=lambda n: n.endswith("/cublas_v2.h")):  # that it is whole
            (into / Path(name).name).write_bytes(stored.read(name))
    return len(names)


def fetch(nvcc: str) -> None:
    """Get the headers through the package index that pip is configured for."""
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    package = cublas_package(told)
    with tempfile.TemporaryDirectory() as folder:
        get = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
        subprocess.run([*get, "--only-binary=:all:", package], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        count = unpack_headers(wheel, FETCHED)
    print(f"{count} headers of {wheel.name} in {FETCHED}")


@dataclass(frozen=True)
class Usage:
    """What ptxas gives a kernel: registers of a thread, and bytes.

    Attributes:
        gpu: the GPU, 90 for sm_90.
        threads: the launch bounds; 0 where it has none.
    """

    kernel: str
    registers: int
    shared: int
    spilled: int
    gpu: int = 0
    threads: int = 0

    def registers_of_block(self) -> int:
        """Return the registers of the largest block that may be launched.

        A warp is given them in units of 256: 8 of each thread.
        """
        launched = [n for name, n in LAUNCHED.items() if f"{len(name)}{name}" in self.kernel]
        threads = self.threads or max(launched, default=THREADS_MAX)
        return -(-self.registers // 8) * 8 * -(-threads // 32) * 32


@dataclass(frozen=True)
class Compiled:
    """Whether a file compiles, what nvcc said against it, and its kernels for each GPU."""

    ok: bool
    said: str
    usage: list[Usage]


def usage_of(told: str) -> list[Usage]:
    """What `ptxas -v` tells of the kernels."""
    found = []
    for part in told.split("Compiling entry function ")[1:]:
        # ptxas tells of functions that are not inlined, too; an entry's own properties come first
        registers, shared, spilled, gpu = [
            int(match[1]) if (match := re.search(pattern, part)) else 0
            for pattern in (
                r"Used (\d+) registers",
                r"(\d+) bytes smem",
                r"(\d+) bytes spill stores",
                r"for 'sm_(\d+)",
            )
        ]
        found.append(Usage(part.split("'")[1], registers, shared, spilled, gpu))
    return found


def bounds_in(ptx: str) -> dict[tuple[str, int], int]:
    """The launch bounds of the kernels of a PTX file that have some, by name and GPU."""
    target = re.search(r"^\.target sm_(\d+)", ptx, re.M)
    gpu = int(target[1]) if target else 0
    entries = re.finditer(r"\.entry (\w+)\((?:[^)]*)\)\s*((?:\.\w+ [\d, ]+\s*)*)", ptx)
    found = {}
    for entry in entries:
        if bound := re.search(r"\.maxntid (\d+)(?:, (\d+))?(?:, (\d+))?", entry[2]):
            sizes = [int(size) for size in bound.groups() if size]
            found[entry[1], gpu] = math.prod(sizes)
    return found


def complaints_in(told: str) -> str:
    """What nvcc said, without what `ptxas -v` counts."""
    counted = re.compile(r"ptxas info |\s+\d+ bytes stack frame, ")
    return "\n".join(line for line in told.splitlines() if not counted.match(line)).strip()


def compile_one(
    nvcc: str, source: Path, includes: list[Path], gpus: list[int], quick: bool = False
) -> Compiled:
    """Compile `source` and drop the result.

    Quick is the device's machine code alone, for one GPU: the host's code is read and checked but
    not compiled, which is more than half of the time.
    """
    codes = [f"-gencode=arch=compute_{gpu},code=sm_{gpu}" for gpu in gpus]
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *FLAGS, "-Xptxas=-v", *codes, *(f"-I{path}" for path in includes)]
        command += ["--keep", "--keep-dir", folder]  # the PTX, which has the launch bounds
        command += ["-cubin" if quick else "-c", str(source), "-o", os.path.join(folder, "out")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        bounds: dict[tuple[str, int], int] = {}
        for path in Path(folder).glob("*.ptx"):
            bounds.update(bounds_in(path.read_text()))
    usage = [
        replace(use, threads=bounds.get((use.kernel, use.gpu), 0)) for use in usage_of(done.stderr)
    ]
    return Compiled(done.returncode == 0, complaints_in(done.stderr), usage)


def readable(names: list[str]) -> list[str]:
    """Names of kernels as they are in the source, where c++filt is."""
    filt = shutil.which("c++filt")
    if filt is None or not names:
        return names
    told = subprocess.run([filt, *names], capture_output=True, text=True, check=True).stdout
    return [re.sub(r"^void |\(.*", "", line) for line in told.splitlines()]


def cannot_be_launched(usage: list[Usage]) -> list[str]:
    """The kernels whose largest block has more registers than a multiprocessor, in words."""
    return [
        f"sm_{use.gpu}: {readable([use.kernel])[0]} has {use.registers} registers and blocks of"
        f" {use.threads or 'any number of'} threads, {use.registers_of_block()} > {REGISTERS}:"
        " give it __launch_bounds__"
        for use in usage
        if use.registers_of_block() > REGISTERS
    ]


def table_of(usage: list[Usage]) -> list[str]:
    """Registers and spilled bytes of each kernel on each GPU, as a table in Markdown.

    Instances of a template are a row with what the largest of them takes.
    """
    gpus = sorted({use.gpu for use in usage})
    names = [re.sub(r"[<(].*", "", name) for name in readable([use.kernel for use in usage])]
    largest: dict[str, dict[int, tuple[int, int, int]]] = {}
    for name, use in zip(names, usage, strict=True):
        row = largest.setdefault(name, {})
        taken = (use.registers, use.spilled, use.shared)
        row[use.gpu] = max(row.get(use.gpu, taken), taken)
    threads = {
        name: max(u.threads for n, u in zip(names, usage, strict=True) if n == name)
        for name in largest
    }
    lines = ["| kernel | threads | shared | " + " | ".join(f"sm_{gpu}" for gpu in gpus) + " |"]
    lines.append("|---" * (3 + len(gpus)) + "|")
    for name, row in sorted(largest.items()):
        shared = max(taken[2] for taken in row.values())
        cells = [
            f"{row[g][0]}" + (f" +{row[g][1]}" if row[g][1] else "") if g in row else ""
            for g in gpus
        ]
        lines.append(f"| `{name}` | {threads[name] or ''} | {shared} | {' | '.join(cells)} |")
    return lines


def folders(tree: Path, cublas: Path | None) -> list[Path]:
    """Where the headers are."""
    return [tree / "src" / "ggml-cuda", tree / "src", tree / "include", *cublas_headers(cublas)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="files of src/ggml-cuda without .cu")
    parser.add_argument("--all", action="store_true", help="every file but template instances")
    parser.add_argument("--quick", action="store_true", help="for sm_90 only, the device's code")
    parser.add_argument("--usage", action="store_true", help="registers and memory of each kernel")
    parser.add_argument("--table", action="store_true", help="the same, a line for each kernel")
    parser.add_argument("--fetch", action="store_true", help="get cuBLAS' headers if none are here")
    parser.add_argument("--tree", type=Path, default=ROOT / "vendor" / "ggml")
    parser.add_argument("--cublas", type=Path, help="the folder that holds cublas_v2.h")
    parser.add_argument("--gpu", type=int, action="append", help="90 for sm_90; may be repeated")
    args = parser.parse_args()

    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("cuda_compile: no nvcc on the PATH; install the CUDA toolkit", file=sys.stderr)
        return 2
    if args.fetch:
        if has_cublas(nvcc, args.cublas):
            print("cuBLAS' headers are here")
        else:
            try:
                fetch(nvcc)
            except subprocess.CalledProcessError as error:
                print(
                    f"cuda_compile: cuBLAS' headers could not be fetched: {' '.join(error.cmd)}"
                    f" ended with status {error.returncode}; without a network name their folder"
                    " with --cublas",
                    file=sys.stderr,
                )
                return 1
        return 0
    gpus = args.gpu or list(QUICK if args.quick else GPUS)
    if args.quick and len(gpus) > 1:
        parser.error(f"--quick is for one GPU; got {', '.join(map(str, gpus))}")

    cuda = args.tree / "src" / "ggml-cuda"
    names = args.names or patched(ROOT / "patches")
    if args.all:
        names = sorted(path.stem for path in cuda.glob("*.cu"))
    includes = folders(args.tree, args.cublas)

    failed = 0
    usage: list[Usage] = []
    for name in names:
        start = time.monotonic()
        done = compile_one(nvcc, cuda / f"{name}.cu", includes, gpus, args.quick)
        took = time.monotonic() - start
        print(f"{'ok  ' if done.ok else 'FAIL'} {name}.cu {took:.1f} s", flush=True)
        unlaunchable = cannot_be_launched(done.usage)
        if not done.ok or unlaunchable:
            failed += 1
            print("\n".join([done.said, *unlaunchable]).strip(), flush=True)
        usage += done.usage
        if args.usage:
            for use, kernel in zip(
                done.usage, readable([u.kernel for u in done.usage]), strict=True
            ):
                spilled = f", {use.spilled} bytes spilled" if use.spilled else ""
                taken = f"{use.registers:5} registers, {use.shared:6} bytes shared{spilled}"
                bound = f"{use.threads:4}" if use.threads else "   -"
                print(f"    sm_{use.gpu:<3} {bound} threads {taken}  {kernel}", flush=True)
    if args.table:
        print("\n".join(table_of(usage)))
    print(
        f"{len(names) - failed} of {len(names)} compile for " + ", ".join(f"sm_{g}" for g in gpus)
    )
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
