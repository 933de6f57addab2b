# SPDX-License-Identifier: MIT
"""Builds the emulated CUDA backend: the kernels' own source files, compiled for the CPU.

Objects are kept in a cache folder under the hash of what they are made of, so that a second run
builds what changed.

    python -m tests.emulation.build [--tree DIR] [--cache DIR] [--all | --backend] [NAME ...]
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyggml import _ggml

from .cuda.translate import translate

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]

# The kernels of the series, those of ggml that it changes or a step needs besides, and what
# dispatches to them.
KERNELS = (
    "ggml-cuda",
    "acc",
    "argmax",
    "binbcast",
    "clamp",
    "concat",
    "conv2d-dw-back",
    "convert",
    "cpy",
    "cross-entropy-loss",
    "cross-entropy-rows",
    "cumsum-back",
    "dropout",
    "fattn-back",
    "fattn-back-mma",
    "fattn-f32",
    "fill",
    "fuse-attn",
    "fuse-sums",
    "fuse-train",
    "gelu-back",
    "get-rows-back",
    "getrows",
    "glu-back",
    "im2col",
    "im2col-back",
    "l2-norm-back",
    "mean",
    "mul-mat-id-back",
    "norm",
    "norm-back",
    "opt-step-adamw",
    "opt-step-factor",
    "opt-step-sgd",
    "out-prod",
    "pad",
    "pool-back",
    "pool1d",
    "pool2d",
    "quantize",
    "radix-sort",
    "repeat-back",
    "rope",
    "scale",
    "set",
    "softcap",
    "softmax",
    "sum",
    "sum-sqr",
    "sumrows",
    "train",
    "unary",
    "unary-back",
    "upscale-back",
)

# What compiles in a second or two each; their ops run each time, the others with the slow tests.
FAST = (
    "ggml-cuda",
    "acc",
    "binbcast",
    "conv2d-dw-back",
    "cpy",
    "cross-entropy-loss",
    "cross-entropy-rows",
    "cumsum-back",
    "dropout",
    "fuse-sums",
    "fuse-train",
    "gelu-back",
    "get-rows-back",
    "glu-back",
    "im2col-back",
    "l2-norm-back",
    "mean",
    "norm",
    "norm-back",
    "opt-step-adamw",
    "opt-step-factor",
    "opt-step-sgd",
    "pool-back",
    "radix-sort",
    "repeat-back",
    "softmax",
    "sum",
    "sum-sqr",
    "sumrows",
    "train",
    "unary-back",
    "upscale-back",
)
FAST_OPS = (
    "ACC",
    "CONV_2D_DW_BACK",
    "CROSS_ENTROPY_LOSS_BACK",
    "CROSS_ENTROPY_ROWS",
    "CROSS_ENTROPY_ROWS_BACK",
    "CUMSUM_BACK",
    "DROPOUT",
    "GELU_BACK",
    "GET_ROWS_BACK",
    "GLU_BACK",
    "GROUP_NORM",
    "IM2COL_3D_BACK",
    "IM2COL_BACK",
    "L2_NORM_BACK",
    "MEAN",
    "NORM",
    "NORM_BACK",
    "OPT_STEP_ADAMW",
    "OPT_STEP_SGD",
    "POOL_1D_BACK",
    "POOL_2D_BACK",
    "REPEAT_BACK",
    "RMS_NORM",
    "RMS_NORM_BACK",
    "SOFT_MAX",
    "SOFT_MAX_BACK",
    "SUM",
    "SUM_ROWS",
    "SUM_SQR",
    "UNARY_BACK",
    "UPSCALE_BACK",
)

# With these, whole training steps and random programs run on the emulated device; what else a graph
# asks for fails.
TRAINING = (
    *KERNELS,
    "add-id",
    "conv2d",
    "conv2d-dw",
    "conv2d-transpose",
    "cumsum",
    "diag",
    "diagmask",
    "mmvf",
    "pad_reflect_1d",
    "roll",
    "set-rows",
    "solve_tri",
    "tri",
    "upscale",
)

# Several GPUs, which share host memory; a launch inside of a #define, which is not translated.
NOT_EMULATED = ("allreduce", "lightning-indexer")

# What a trace of the launches is told of ggml's files: the tensors of a launch, and scratch memory.
_NOTED = {
    "ggml-cuda.cu": (
        "int nodes_to_skip = ggml_cuda_try_fuse(cuda_ctx, cgraph, i);",
        "::emu::at_node(cgraph, i); int nodes_to_skip = ggml_cuda_try_fuse(cuda_ctx, cgraph, i);"
        " ::emu::and_nodes(cgraph, i, nodes_to_skip);",
    ),
    "common.cuh": (
        "ptr = (T *) pool->alloc(size * sizeof(T), &this->actual_size);",
        "ptr = (T *) pool->alloc(size * sizeof(T), &this->actual_size);"
        " ::emu::note_scratch(ptr, size * sizeof(T));",
    ),
}

# Fused sums and products of four to eight tensors: a minute's compilation that no case needs.
_SUMS_OF_MANY = re.compile(r"ggml_cuda_op_fused_binbcast_impl<op_\w+, [4-8]>\(ctx, dst\);")

_CXX = ("-std=c++17", "-O1", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off")
# what ggml's CUDA headers are read with: some of its structures have members for graphs
_LAYOUT = ("-DGGML_CUDA_USE_GRAPHS",)
_OWN = ("-Wall", "-Wextra", *_LAYOUT)
# what each kernel file includes first, read once
_COMMON = "common.cuh"
# 600: device code without tensor cores, whose instructions are inline PTX; cuda/ptx.cpp has some
# alignment: common/alignment.cpp takes the reports
_CUDA = ("-x", "c++", "-w", *_LAYOUT, "-fsanitize=alignment")
_ARCH = {"fattn-back-mma": 800, "fattn-f32": 800}
_KV_TYPES = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
_DEFINED = {
    # none of ggml's attention kernels for a pair of types; which ops it takes is asked
    "fattn": tuple(f"-DGGML_CUDA_FA_{k}_{v}=false" for k in _KV_TYPES for v in _KV_TYPES),
    # so small that the table's products take several turns
    "out-prod": ("-DOUT_PROD_TILE_BYTES=2048",),
}


# What cuda/clocks.cpp takes: a call before each access to memory.
_COUNTED = (
    "-fsanitize=kernel-address",
    "-fno-tree-sra",  # a vector is one access
    *(
        word
        for name in ("instrumentation-with-call-threshold", "stack", "globals")
        for word in ("--param", f"asan-{name}=0")
    ),
)


def _flags(name: str) -> tuple[str, ...]:
    return (*_CUDA, f"-D__CUDA_ARCH__={_ARCH.get(name, 600)}", *_DEFINED.get(name, ()))


# what runs kernels, and the table of cases
_RUNTIME = (
    "common/alignment",
    "common/fibers",
    "common/guard",
    "common/nodes",
    "cuda/ptx",
    "cuda/runtime",
    "cuda/trace",
    "cuda/vmm",
)
_CASES = tuple(
    f"common/{name}"
    for name in (
        "cases",
        "activations",
        "products",
        "tf32",
        "pictures",
        "attention",
        "attention_parts",
        "steps",
        "chains",
        "vectors",
        "scratch",
        "nonfinite",
    )
)
_TABLE = (*_CASES, "common/run")

# what every op's dispatch needs
_ALWAYS = (
    *("ggml-cuda", "convert", "fuse-attn", "fuse-sums", "fuse-train", "norm-back"),
    *("repeat-back", "train"),
)
# what a kernel file needs of others to be run
_WITH = {
    "convert": ("out-prod",),
    "cross-entropy-rows": ("out-prod",),
    "fattn-back": ("acc", "binbcast", "cpy", "fattn-back-mma", "fattn-f32", "fill"),
    "fattn-back-mma": ("acc", "cpy", "fattn-back", "fattn-f32", "fill"),
    "fattn-f32": ("binbcast", "cpy", "fattn", "fattn-back", "fattn-back-mma"),
    "fuse-attn": ("acc", "cpy", "fattn-back", "fattn-back-mma", "fattn-f32", "fill"),
    "fuse-sums": ("binbcast", "cpy", "gelu-back"),
    "fuse-train": ("binbcast", "cpy", "opt-step-adamw", "opt-step-factor"),
    "get-rows-back": ("radix-sort",),
    "mul-mat-id-back": ("radix-sort",),
    "norm-back": ("binbcast",),
    "radix-sort": ("get-rows-back",),
    "repeat-back": ("binbcast", "cpy", "gelu-back"),
    "train": ("fattn", "fattn-back", "fattn-back-mma", "fattn-f32"),
    "unary-back": ("unary",),
}


def _with_notes(text: str, name: str) -> str:
    line, noted = _NOTED[name]
    if text.count(line) != 1:
        raise BuildError(f"{name}: expected {line!r} once, got {text.count(line)}: change _NOTED")
    return text.replace(line, noted)


class BuildError(RuntimeError):
    """The compiler or the linker refused; holds what it said."""


def default_tree() -> Path:
    """vendor/ggml, or the tree that PYGGML_GGML_TREE names."""
    return Path(os.environ.get("PYGGML_GGML_TREE", REPOSITORY / "vendor" / "ggml"))


def ops_of_table() -> list[str]:
    """The ops of the table's cases, in the order of its files."""
    text = "".join((HERE / f"{name}.cpp").read_text() for name in _CASES)
    return list(
        dict.fromkeys(re.findall(r'(?:t\.add\(|(?:back_cases|arithmetic)\(t, )"(\w+)"', text))
    )


def default_cache() -> Path:
    """build/emulation, or the folder that PYGGML_EMULATION_CACHE names."""
    return Path(os.environ.get("PYGGML_EMULATION_CACHE", REPOSITORY / "build" / "emulation"))


def compiler() -> str | None:
    """The system's C++ compiler."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _digest(paths: Iterable[Path], *more: str) -> str:
    h = hashlib.sha256("\0".join(more).encode())
    for path in sorted(paths):
        h.update(path.name.encode() + b"\0" + path.read_bytes())
    return h.hexdigest()[:24]


class Builder:
    """Compiles the CUDA sources of a ggml tree into a cache folder.

    Args:
        tree: a patched ggml source tree.
        cache: where sources, objects and programs are kept.
        libs: the folder of the built CPU backend; None takes that of the installed package.
    """

    def __init__(self, tree: Path, cache: Path, libs: Path | None = None) -> None:
        self.tree, self.cache = tree, cache
        self.libs = libs or Path(_ggml.__file__).parent / "lib"
        self.cxx = compiler() or "g++"
        self.src = cache / "src"
        for folder in ("obj", "locks"):
            (cache / folder).mkdir(parents=True, exist_ok=True)
        include = HERE / "cuda" / "include"
        self.includes = [f"-I{p}" for p in (include, self.src, tree / "include", tree / "src")]
        with self.lock("sources"):
            self._translate()

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Keep other processes from building what has this name in this cache."""
        with open(self.cache / "locks" / name, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _translate(self) -> None:
        origin = self.tree / "src" / "ggml-cuda"
        target = self.src / "ggml-cuda"
        sources = [*origin.glob("*.cu"), *origin.glob("*.cuh"), *origin.glob("vendors/*.h")]
        for path in sources:
            out = target / path.relative_to(origin)
            out.parent.mkdir(parents=True, exist_ok=True)
            if path.stem in NOT_EMULATED and path.suffix == ".cu":
                continue
            text = translate(path.read_text(), path.name)
            if path.name == "binbcast.cu":
                text = _SUMS_OF_MANY.sub('GGML_ABORT("not emulated");', text)
            if path.name in _NOTED:
                text = _with_notes(text, path.name)
            if not out.exists() or out.read_text() != text:
                out.write_text(text)
        for path in target.glob("*.cu*"):
            if not (origin / path.name).exists():
                path.unlink()
        headers = [*target.glob("*.cuh"), *target.glob("vendors/*.h")]
        headers += (HERE / "cuda" / "include").rglob("*.h")
        for folder in ("include", "src"):
            headers += (self.tree / folder).glob("*.h")
        self.headers = _digest(headers)
        self.own_headers = _digest([*HERE.rglob("*.h"), *HERE.rglob("*.hpp")])

    def _object(self, source: Path, flags: tuple[str, ...], kind: str = "") -> Path:
        own = self.own_headers if source.is_relative_to(HERE) else ""
        key = _digest([source], self.headers, own, self.cxx, *_CXX, *flags)
        out = self.cache / "obj" / f"{source.stem}{kind}-{key}.o"
        with self.lock(source.stem + kind):
            if out.exists():
                return out
            if flags[: len(_CUDA)] == _CUDA:
                flags = (*flags, "-include", str(self._precompiled()))
            self._compile(source, flags, out)
            for stale in out.parent.glob(f"{source.stem}{kind}-{'?' * 24}.o"):
                if stale != out:
                    stale.unlink()
        return out

    def _compile(self, source: Path, flags: tuple[str, ...], out: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self.cache) as folder:
            part = Path(folder) / "part.o"
            command = [self.cxx, *_CXX, *flags, *self.includes, "-c", str(source)]
            done = _run([*command, "-o", str(part)])
            if done.returncode:
                raise BuildError(f"{source.name}\n{done.stderr[-6000:]}")
            part.replace(out)

    def _precompiled(self) -> Path:
        """The header to include first; compilers take the .gch beside it if the flags are its."""
        key = _digest([], self.headers, self.cxx, *_CXX, *_flags(""))
        header = self.cache / "precompiled" / key / _COMMON
        gch = header.with_name(f"{_COMMON}.gch")
        with self.lock(_COMMON):
            if not gch.exists():
                shutil.rmtree(header.parent.parent, ignore_errors=True)
                header.parent.mkdir(parents=True)
                header.write_text(f'#include "ggml-cuda/{_COMMON}"\n')
                self._compile(header, (*_flags(""), "-x", "c++-header"), gch)
        return header

    def _kernel(self, name: str) -> Path:
        return self._object(self.src / "ggml-cuda" / f"{name}.cu", _flags(name))

    def _own(self, *names: str) -> list[Path]:
        return [self._object(HERE / f"{name}.cpp", _OWN) for name in names]

    def _link(self, out: Path, objects: list[Path], *flags: str) -> Path:
        """Link; what nothing defines becomes a function that fails and tells its name."""
        with self.lock(out.name):
            return self._link_alone(out, objects, *flags)

    def _link_alone(self, out: Path, objects: list[Path], *flags: str) -> Path:
        part = out.with_suffix(".part")
        link = [self.cxx, *flags, "-o", str(part), *map(str, objects), f"-L{self.libs}"]
        link += ["-lpyggml-base", "-lpyggml-cpu", "-lpyggml", f"-Wl,-rpath,{self.libs}"]
        link += ["-Wl,--no-demangle", "-Wl,-z,defs"]
        done = _run(link)
        missing = sorted(set(re.findall(r"undefined reference to `(\w+)'", done.stderr)))
        if missing:
            stubs = self.cache / f"missing-{out.stem}.cpp"
            lines = ['extern "C" [[noreturn]] void emu_missing(const char * symbol);\n']
            for i, symbol in enumerate(missing):
                # whether a kernel should be used: one that is not here should not
                asked = re.search(r"should_use|use_fwht|attn_ext_supported", symbol)
                kind, body = (
                    ("bool", "return false;") if asked else ("void", f'emu_missing("{symbol}");')
                )
                lines.append(
                    f'extern "C" {kind} missing_{i}() __asm__("{symbol}");\n'
                    f'extern "C" {kind} missing_{i}() {{ {body} }}\n'
                )
            stubs.write_text("".join(lines))
            done = _run([*link, str(self._object(stubs, ()))])
        if done.returncode:
            raise BuildError(done.stderr[-6000:])
        part.replace(out)
        return out

    def harness(self, kernels: Iterable[str] = KERNELS, name: str = "harness") -> Path:
        """The program that runs the case table; a kernel that it lacks fails its cases only."""
        objects = self._harness() + [self._kernel(kernel) for kernel in kernels]
        return self._link(self.cache / name, objects)

    def changed(self, name: str, text: str, what: str, folder: Path) -> Path:
        """A harness with another text of one kernel file, and with no other kernel.

        Args:
            name: the kernel file.
            text: what it says instead.
            what: names this change; its object is kept, as others are.
            folder: for the program.
        """
        source = self.cache / "changed" / (re.sub(r"\W+", "-", what) + ".cu")
        source.parent.mkdir(exist_ok=True)
        source.write_text(translate(text, f"{name}.cu"))
        include = f"-I{self.src / 'ggml-cuda'}"
        others = {*_ALWAYS, *_WITH.get(name, ())} - {name}
        objects = self._harness() + [self._kernel(other) for other in sorted(others)]
        objects.append(self._object(source, (*_flags(name), include)))
        return self._link(folder / "changed", objects)

    def counted(self, texts: dict[str, str], what: str = "as it is") -> Path:
        """A harness that says how long shared memory takes for each kernel.

        Args:
            texts: of the only kernel files that it has, by name.
            what: names them, as in `changed`.
        """
        others = {*_ALWAYS, *(more for name in texts for more in _WITH.get(name, ()))} - {*texts}
        objects = [*self._harness(), *self._own("cuda/clocks")]
        objects += [self._kernel(other) for other in sorted(others)]
        folder = self.cache / "changed"
        folder.mkdir(exist_ok=True)
        stem = re.sub(r"\W+", "-", what)
        for name, text in texts.items():
            source = folder / f"{name}-{stem}.cu"
            source.write_text(translate(text, f"{name}.cu"))
            flags = (*_flags(name), *_COUNTED, f"-I{self.src / 'ggml-cuda'}")
            objects.append(self._object(source, flags))
        return self._link(self.cache / f"counted-{stem}", objects)

    def graphs(self, text: str | None = None, out: Path | None = None) -> Path:
        """The program that runs CUDA graphs; text: of another ggml-cuda.cu, linked as `out`."""
        objects = self._own(*_RUNTIME, "cuda/graphs")
        objects += [self._kernel("convert"), self._kernel("fuse-train"), self._kernel("sum-sqr")]
        objects += [self._kernel("repeat-back"), self._kernel("train")]
        if text is None or out is None:
            return self._link(self.cache / "graphs", [*objects, self._kernel("ggml-cuda")])
        source = out.with_suffix(".cu")
        source.write_text(translate(text, "ggml-cuda.cu"))
        return self._link(out, [*objects, self._object(source, _flags("ggml-cuda"))])

    def rounding(self) -> Path:
        """The program that rounds activations as a product with quantised weights does."""
        objects = [*self._own(*_RUNTIME, "cuda/rounding"), self._kernel("quantize")]
        return self._link(self.cache / "rounding", objects)

    def table(self) -> list[Path]:
        """The table of cases and what runs and watches one, for the harness of any device."""
        return self._own(*_TABLE, "common/fibers", "common/guard")

    def _harness(self) -> list[Path]:
        others = [name for name in _RUNTIME if name not in ("common/fibers", "common/guard")]
        return [*self.table(), *self._own(*others, "cuda/harness")]

    def all_kernels(self) -> list[str]:
        """Every kernel file that can be built here."""
        return [path.stem for path in sorted((self.src / "ggml-cuda").glob("*.cu"))]

    def backend(self, kernels: Iterable[str] = TRAINING, tiles: bool = True) -> Path:
        """The backend as a library for ggml_backend_load: a device CUDA0 on the CPU.

        Args:
            kernels: the kernel files in it.
            tiles: make the products' tiles small, as in the table; else as large as on a device.
        """
        flags = (
            *_flags("ggml-cuda"),
            "-DGGML_BACKEND_DL",
            "-DGGML_BACKEND_SHARED",
            "-DGGML_BACKEND_BUILD",
        )
        objects = self._own(*_RUNTIME)
        objects += [self._kernel(name) for name in kernels if name not in ("ggml-cuda", "out-prod")]
        objects.append(self._object(self.src / "ggml-cuda" / "ggml-cuda.cu", flags, "-dl"))
        if tiles:
            objects.append(self._kernel("out-prod"))
            return self._link(self.cache / "libemulated-cuda.so", objects, "-shared")
        source = self.src / "ggml-cuda" / "out-prod.cu"
        objects.append(self._object(source, _flags("convert"), "-whole"))
        return self._link(self.cache / "libtraced-cuda.so", objects, "-shared")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tree", type=Path, default=default_tree(), help="a patched ggml tree")
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--all", action="store_true", help="all kernels and the slow cases")
    parser.add_argument("--backend", action="store_true", help="build the library, run nothing")
    parser.add_argument("names", nargs="*", help="of ops or cases; --all takes the slow ones too")
    args = parser.parse_args()

    builder = Builder(args.tree.resolve(), args.cache.resolve())
    if args.backend:
        print(builder.backend(builder.all_kernels() if args.all else TRAINING))
        return 0
    program = builder.harness(builder.all_kernels() if args.all else KERNELS)
    more = ["--all"] if args.all else []
    return subprocess.run([program, *more, *args.names], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
