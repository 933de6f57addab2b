# SPDX-License-Identifier: MIT
"""Compiles CUDA files of the patched ggml for several GPUs, one file at a time.

    python scripts/cuda_compile.py                  what the patches add or change
    python scripts/cuda_compile.py norm-back ...    these
    python scripts/cuda_compile.py --all            the whole backend; an hour on two cores

Needs nvcc; cuBLAS' headers from the toolkit, the package nvidia-cublas, or --cublas DIR.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GPUS = (80, 90, 100)  # A100; H100 and H200; B200

# as ggml's CMake passes them; every warning of ours is an error
FLAGS = (
    "-std=c++17",
    "-O3",
    "-use_fast_math",
    "-extended-lambda",
    "-DGGML_CUDA_NO_VMM",
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


def cublas_headers(given: Path | None) -> list[Path]:
    """Folders with cublas_v2.h: the one given, those of the package, none if the toolkit has it."""
    if given:
        return [given]
    spec = importlib.util.find_spec("nvidia")
    found = []
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found += [path.parent for path in sorted(Path(folder).glob("*/include/cublas_v2.h"))]
    return found


def has_cublas(nvcc: str | None) -> bool:
    """Whether cublas_v2.h is in the toolkit of `nvcc` or in a package."""
    if nvcc is None:
        return False
    source = "#include <cublas_v2.h>\n"
    command = [nvcc, "-E", "-x", "cu", "-", *(f"-I{p}" for p in cublas_headers(None))]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.returncode == 0


def compile_one(nvcc: str, source: Path, includes: list[Path], gpus: list[int]) -> tuple[bool, str]:
    """Compile `source` and drop the object; True and "" or False and what nvcc said."""
    codes = [f"-gencode=arch=compute_{gpu},code=sm_{gpu}" for gpu in gpus]
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *FLAGS, *codes, *(f"-I{path}" for path in includes)]
        command += ["-c", str(source), "-o", os.path.join(folder, "out.o")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="files of src/ggml-cuda without .cu")
    parser.add_argument("--all", action="store_true", help="every file but template instances")
    parser.add_argument("--tree", type=Path, default=ROOT / "vendor" / "ggml")
    parser.add_argument("--cublas", type=Path, help="the folder that holds cublas_v2.h")
    parser.add_argument("--gpu", type=int, action="append", help="90 for sm_90; may be repeated")
    args = parser.parse_args()

    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("cuda_compile: no nvcc on the PATH; install the CUDA toolkit", file=sys.stderr)
        return 2

    cuda = args.tree / "src" / "ggml-cuda"
    names = args.names or patched(ROOT / "patches")
    if args.all:
        names = sorted(path.stem for path in cuda.glob("*.cu"))
    includes = [cuda, args.tree / "src", args.tree / "include", *cublas_headers(args.cublas)]

    failed = 0
    for name in names:
        start = time.monotonic()
        ok, said = compile_one(nvcc, cuda / f"{name}.cu", includes, args.gpu or list(GPUS))
        print(f"{'ok  ' if ok else 'FAIL'} {name}.cu {time.monotonic() - start:.1f} s", flush=True)
        if not ok:
            failed += 1
            print(said, flush=True)
    print(
        f"{len(names) - failed} of {len(names)} compile for "
        + ", ".join(f"sm_{g}" for g in args.gpu or GPUS)
    )
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
