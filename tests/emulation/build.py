# SPDX-License-Identifier: MIT
"""Builds the emulated CUDA backend: the kernels' own source files, compiled for the CPU.

The objects are kept in a cache folder under the hash of what they are made of, so a second run builds what changed.

    python -m tests.emulation.build [--tree DIR] [--cache DIR] [--all] [-- arguments of the harness]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .cuda.translate import translate

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]

# the kernels of the series, and those of ggml that it changes; ggml-cuda.cu dispatches to them
KERNELS = (
    "ggml-cuda",
    "conv2d-dw-back",
    "cross-entropy-loss",
    "cross-entropy-rows",
    "cumsum-back",
    "dropout",
    "fattn-back",
    "gelu-back",
    "get-rows-back",
    "getrows",
    "glu-back",
    "im2col-back",
    "l2-norm-back",
    "mul-mat-id-back",
    "norm-back",
    "opt-step-adamw",
    "opt-step-sgd",
    "out-prod",
    "pool-back",
    "sum-sqr",
    "unary-back",
    "upscale-back",
)

# what cannot be run here: inline PTX of tensor cores, or libraries of device code
NOT_EMULATED = ("allreduce", "argsort", "lightning-indexer", "softmax", "solve_tri", "top-k")

_CXX = ("-std=c++17", "-O1", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off")
# __CUDA_ARCH__: device code without tensor cores, whose instructions are inline PTX
_CUDA = ("-x", "c++", "-w", "-D__CUDA_ARCH__=600", "-DGGML_CUDA_NO_VMM")


class BuildError(RuntimeError):
    """The compiler or the linker refused; holds what it said."""


def default_tree() -> Path:
    """vendor/ggml, or the tree that PYGGML_GGML_TREE names."""
    return Path(os.environ.get("PYGGML_GGML_TREE", REPOSITORY / "vendor" / "ggml"))


def compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _digest(paths: Iterable[Path], *more: str) -> str:
    h = hashlib.sha256("\0".join(more).encode())
    for path in sorted(paths):
        h.update(path.name.encode() + b"\0" + path.read_bytes())
    return h.hexdigest()[:24]


class Builder:
    """Compiles into `cache`; `tree` is a ggml source tree, `libs` the folder of the built CPU backend."""

    def __init__(self, tree: Path, cache: Path, libs: Path | None = None) -> None:
        self.tree, self.cache = tree, cache
        self.libs = libs or REPOSITORY / "pyggml" / "lib"
        self.cxx = compiler() or "g++"
        self.src = cache / "src"
        (cache / "obj").mkdir(parents=True, exist_ok=True)
        self.includes = [
            f"-I{p}" for p in (HERE / "cuda" / "include", self.src, tree / "include", tree / "src")
        ]

    def translate(self) -> None:
        """The CUDA sources of the tree as C++, into the cache; files that did not change keep their times."""
        origin = self.tree / "src" / "ggml-cuda"
        for path in [
            *origin.glob("*.cu"),
            *origin.glob("*.cuh"),
            *(origin / "vendors").glob("*.h"),
        ]:
            out = self.src / "ggml-cuda" / path.relative_to(origin)
            out.parent.mkdir(parents=True, exist_ok=True)
            try:
                text = translate(path.read_text(), path.name)
            except (ValueError, AttributeError):
                if path.stem not in NOT_EMULATED:
                    raise
                continue
            if not out.exists() or out.read_text() != text:
                out.write_text(text)
        headers = [
            *(self.src / "ggml-cuda").rglob("*.cuh"),
            *(self.src / "ggml-cuda" / "vendors").glob("*.h"),
        ]
        for folder in (
            HERE / "common",
            HERE / "cuda",
            HERE / "cuda" / "include",
            self.tree / "include",
            self.tree / "src",
        ):
            headers += [*folder.glob("*.h"), *folder.glob("*.hpp")]
        self.headers = _digest(headers)

    def _object(self, source: Path, flags: tuple[str, ...]) -> Path:
        key = _digest([source], self.headers, self.cxx, *_CXX, *flags)
        out = self.cache / "obj" / f"{source.stem}-{key}.o"
        if not out.exists():
            with tempfile.TemporaryDirectory(dir=self.cache) as folder:
                part = Path(folder) / "part.o"
                done = _run(
                    [self.cxx, *_CXX, *flags, *self.includes, "-c", str(source), "-o", str(part)]
                )
                if done.returncode:
                    raise BuildError(f"{source.name}\n{done.stderr[-6000:]}")
                for stale in out.parent.glob(f"{source.stem}-{'?' * 24}.o"):
                    stale.unlink()
                part.replace(out)
        return out

    def kernel(self, name: str) -> Path:
        return self._object(self.src / "ggml-cuda" / f"{name}.cu", _CUDA)

    def harness(self, kernels: Iterable[str]) -> Path:
        """The program that runs the case table; a kernel that it lacks is a failing case, not a failing link."""
        own = sorted((HERE / "common").glob("*.cpp")) + sorted((HERE / "cuda").glob("*.cpp"))
        objects = [self._object(path, ("-Wall", "-Wextra")) for path in own]
        objects += [
            self.kernel(name)
            for name in kernels
            if (self.src / "ggml-cuda" / f"{name}.cu").exists()
        ]

        out = self.cache / "harness"
        lib = [
            f"-L{self.libs}",
            "-lpyggml-base",
            "-lpyggml-cpu",
            "-lpyggml",
            f"-Wl,-rpath,{self.libs}",
        ]
        link = [self.cxx, "-o", str(out), *map(str, objects), *lib, "-Wl,--no-demangle"]
        done = _run(link)
        missing = sorted(set(re.findall(r"undefined reference to `(\w+)'", done.stderr)))
        if missing:
            stubs = self.cache / "missing.cpp"
            lines = ['extern "C" [[noreturn]] void emu_missing(const char * symbol);\n']
            for i, symbol in enumerate(missing):
                lines.append(
                    f'extern "C" void missing_{i}() __asm__("{symbol}");\n'
                    f'extern "C" void missing_{i}() {{ emu_missing("{symbol}"); }}\n'
                )
            stubs.write_text("".join(lines))
            done = _run([*link, str(self._object(stubs, ()))])
        if done.returncode:
            raise BuildError(done.stderr[-6000:])
        return out


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--tree", type=Path, default=default_tree(), help="a patched ggml source tree"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=REPOSITORY / "build" / "emulation",
        help="where objects are kept",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="every kernel of the backend, not only those of the series",
    )
    parser.add_argument(
        "arguments", nargs="*", help="of the harness: --list, --all, names of ops or cases"
    )
    args = parser.parse_args()

    builder = Builder(args.tree.resolve(), args.cache.resolve())
    builder.translate()
    kernels: Iterable[str] = KERNELS
    if args.all:
        kernels = [
            p.stem
            for p in sorted((builder.src / "ggml-cuda").glob("*.cu"))
            if p.stem not in NOT_EMULATED
        ]
    program = builder.harness(kernels)
    return subprocess.run([program, *args.arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
