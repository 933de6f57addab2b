# SPDX-License-Identifier: MIT
"""Build ggml's Metal backend for the CPU: its kernels and its host code, on an emulated device.

The result is a library that ggml loads as a backend: `GGML_BACKEND_PATH=it` adds a device "metal"
to any program that uses ggml, pyggml and test-backend-ops included.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyggml import _ggml

from ..build import Builder as CudaBuilder
from ..build import default_cache

__all__ = ["KERNEL_FILES", "build", "build_harness", "build_traced", "ggml_tree"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# Kernel files of the patches, and upstream's that a training step needs beside them.
OURS = (
    "act_back",
    "norm_back",
    "rows_back",
    "sum",
    "dropout",
    "loss",
    "out_prod",
    "fa_back",
    "image_back",
)
UPSTREAM = (
    "unary",
    "binbcast",
    "norm",
    "softmax",
    "reduce",
    "rope",
    "pool",
    "upscale",
    "conv",
    "quantize",
    "mul_mv",
    "mul_mv_mma",
    "mul_mm",
    "misc",
    "argsort",
    "tri",
    "solve_tri",
    "fa_aux",
    "fa_f32",
    "fa_vec_f32",
)
# Upstream's attention has a kernel for each size of a head and kind of weights: these are used.
ATTENTION = re.compile(r"kernel_flash_attn_ext_(vec_)?f32_dk32_dv32")
KERNEL_FILES = OURS + UPSTREAM
# These run each time, the others with the slow tests: matmuls and attention take long to compile.
FAST = ("act_back", "norm_back", "rows_back", "sum", "dropout", "loss", "image_back")

# Files whose kernels a trace counts, and those of them that no step of f32 sources needs.
COUNTED = ("out_prod", "mul_mm", "fa_back", "rows_back", "sum")
NOT_COUNTED = re.compile(
    r'host_name\("kernel_(mul_mm(_id)?|out_prod|mul_mat_id_back_b|fa_back_[a-z]+)_(?!f32|id|sum)'
)

HOST_FILES = (
    "ggml-metal.cpp",
    "ggml-metal-common.cpp",
    "ggml-metal-device.cpp",
    "ggml-metal-fusion.cpp",
    "ggml-metal-ops.cpp",
    "ggml-metal-train.cpp",
    "ggml-metal-tuning.cpp",
)

FLAGS = ("-std=c++17", "-fPIC", "-fno-strict-aliasing", "-Wno-attributes", "-Wno-unknown-pragmas")

# A literal without a suffix is float in Metal; a constant array may be passed for one that is not.
# alignment: ../common/alignment.cpp takes the reports.
KERNEL_FLAGS = (
    "-O1",
    "-w",
    "-fsingle-precision-constant",
    "-fpermissive",
    "-fsanitize=alignment",
)

# What counts.cpp takes: a call before each access to memory.
COUNTED_FLAGS = (
    "-fsanitize=kernel-address",
    *(
        word
        for name in ("instrumentation-with-call-threshold", "stack", "globals")
        for word in ("--param", f"asan-{name}=0")
    ),
)

# what the backend defines for its devices
DEFINED = ("GGML_METAL_HAS_BF16",)

# thread's position → how a wrapper writes it; "vector" ones may be asked for as one number
VECTORS = {
    "threadgroup_position_in_grid": "l.group",
    "thread_position_in_threadgroup": "l.thread",
    "threads_per_threadgroup": "l.threads",
    "threadgroups_per_grid": "l.groups",
    "thread_position_in_grid": "emu::position_in_grid(l)",
}
SCALARS = {
    "thread_index_in_threadgroup": "l.index",
    "simdgroup_index_in_threadgroup": "l.index/32",
    "thread_index_in_simdgroup": "l.index%32",
    "simdgroups_per_threadgroup": "(l.threads.x*l.threads.y*l.threads.z + 31)/32",
    "threads_per_simdgroup": "32",
}


def ggml_tree() -> Path:
    """The patched tree: `PYGGML_GGML_TREE`, or the vendored one."""
    return Path(os.environ.get("PYGGML_GGML_TREE", ROOT / "vendor" / "ggml")).resolve()


@dataclass
class Kernel:
    """A kernel of a file: its name for the host, how C++ calls it, and its parameters' texts."""

    host_name: str
    call: str
    parameters: list[str]


def _without_comments(source: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.S)


def _compiled(source: str) -> str:
    """The text without what #ifdef leaves out: the kernels of newer devices' tensor units."""
    out, keep = [], [True]
    for line in re.sub(r"#\s*if defined\((\w+)\)[ \t]*$", r"#ifdef \1", source, flags=re.M).split(
        "\n"
    ):
        if match := re.match(r"\s*#\s*(ifdef|ifndef|if)\b\s*(\S*)", line):
            word, name = match.groups()
            keep.append(
                word != "ifdef" or name in DEFINED if word != "ifndef" else name not in DEFINED
            )
        elif re.match(r"\s*#\s*else\b", line):
            keep[-1] = not keep[-1]
        elif re.match(r"\s*#\s*endif\b", line):
            keep.pop()
        elif all(keep):
            out.append(line)
    return "\n".join(out)


def _closing(text: str, start: int) -> int:
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise ValueError("unbalanced parentheses")


def _split(parameters: str) -> list[str]:
    parts, depth, last = [], 0, 0
    for i, c in enumerate(parameters):
        depth += (c in "<([") - (c in ">)]")
        if c == "," and depth == 0:
            parts.append(parameters[last:i])
            last = i + 1
    return [p.strip() for p in [*parts, parameters[last:]]]


def _expanded(text: str) -> str:
    """The text with what its macros with arguments declare: kernels of several types."""
    text = text.replace("\\\n", " ")
    for name, parameters, body in re.findall(r"#define (\w+)\(([^)]*)\) (.*host_name.*)", text):
        names = _split(parameters)

        def use(match: re.Match[str], names: list[str] = names, body: str = body) -> str:
            given = dict(zip(names, _split(match.group(1)), strict=True))
            return re.sub(r"\w+", lambda word: given.get(word.group(), word.group()), body)

        text = re.sub(rf"^{name}\((.*)\)$", use, text, flags=re.M)
    return re.sub(r'"\s*"', "", text)


def kernels_of(source: str) -> list[Kernel]:
    """The kernels that the host can name, in the order of the file."""
    text = _expanded(_compiled(_without_comments(source)))
    functions: dict[str, list[str]] = {}
    found = []
    for match in re.finditer(r"(template\s*<[^;{}]*>\s*)?kernel\s+void\s+(\w+)\s*\(", text):
        end = _closing(text, match.end() - 1)
        name = match.group(2)
        functions[name] = _split(text[match.end() : end])
        if not match.group(1):
            found.append(Kernel(name, name, functions[name]))
    # "kernel type_t name<arguments>;" or "kernel void name<arguments>(parameters);"
    host = r'template\s*\[\[host_name\("([^"]+)"\s*\)\]\]\s*kernel\s+'
    pattern = host + r"(?:[^;()]*?\b(\w+)\s*<([^;]*)>\s*;|void\s+(\w+)\s*<([^;()]*)>\s*\()"
    for match in re.finditer(pattern, text):
        host_name, name, arguments = (group for group in match.groups() if group is not None)
        if name in functions:
            found.append(Kernel(host_name, f"{name}<{arguments}>", functions[name]))
    return found


def _argument(parameter: str, counters: dict[str, int]) -> str:
    attribute = re.search(r"\[\[\s*(\w+)\s*(?:\(([^)]*)\))?\s*\]\]", parameter)
    kind = attribute.group(1) if attribute else "buffer"
    declared = parameter.split("[[", maxsplit=1)[0].split()
    if kind in ("buffer", "threadgroup"):
        given = attribute.group(2) if attribute else None
        index = int(given) if given is not None else counters[kind]
        counters[kind] = index + 1
        what = "reference" if "&" in parameter else "pointer"
        return f"emu::{what}_argument{{ l.{kind}[{index}] }}"
    if kind in SCALARS:
        return f"({declared[0]}) ({SCALARS[kind]})"
    if kind not in VECTORS:
        raise ValueError(f"no such attribute here: {parameter!r}")
    value = VECTORS[kind]
    size = declared[0][-1]
    if not size.isdigit():
        return f"({declared[0]}) {value}.x"
    return f"{declared[0]}({', '.join(f'{value}.{c}' for c in 'xyz'[: int(size)])})"


def as_cpp(source: str) -> str:
    """A kernel file's text for g++: what is no C++ is put in other words, and all else stays.

    - the attribute [[threadgroup(n)]]: the word is a macro here;
    - literals of half, and initialisers by ranges of indices.
    """
    source = re.sub(r"\[\[\s*threadgroup\(\d+\)\s*\]\]", "", source)
    source = re.sub(r"(?<![\w.])(\d+\.\d*|\.\d+)h\b", r"((half) \1f)", source)
    return re.sub(r"=\s*\{\s*\[\s*0\s*\.\.\.[^\]]*\]\s*=\s*([^};]*?)\s*\}", r"= {\1}", source)


def _with_includes(path: Path, text: str | None = None) -> str:
    """A kernel file's text with those of the kernel files that it includes: their signatures."""

    def included(match: re.Match[str]) -> str:
        other = path.parent / match.group(1)
        return _with_includes(other) if other.suffix == ".metal" else match.group(0)

    return re.sub(r'#include "([^"]+)"', included, path.read_text() if text is None else text)


def _some_attention(source: str) -> str:
    """Without the kernels for other sizes; the macros of the types stay for the wrappers."""
    source = re.sub(r"#undef FA_TYPES\w*", "", source)
    return _without(source, lambda line: not ATTENTION.search(line))


def _without(source: str, left_out: Callable[[str], object]) -> str:
    """Without the kernels whose line of a name and types is left out."""
    lines = source.split("\n")
    return "\n".join("" if "[[host_name(" in x and left_out(x) else x for x in lines)


def wrapper_source(path: Path, changed: str | None = None, counted: bool = False) -> str:
    """C++ of a kernel file, or of another text of it, and the registration of its kernels."""
    text = path.read_text() if changed is None else changed
    if counted:
        text = _without(text, NOT_COUNTED.search)
    source = _with_includes(path, text)
    if path.stem.startswith(("fa_f", "fa_vec")):
        text, source = _some_attention(text), _some_attention(source)
    text = as_cpp(text)
    space = f"k_{path.stem}"
    lines = [
        '#include "emulated.h"',
        "#include <metal_stdlib>",
        "#define double the_hardware_has_no_double",
        *(f"#define {name} 1" for name in DEFINED),
        "#define __METAL_VERSION__ 310",
        "#define __embed_ggml-common.h__",
        f"namespace {space} {{",
        f'#line 1 "{path}"',
        text,
        *(
            f"#undef {word}"
            for word in ("kernel", "device", "constant", "threadgroup", "thread", "double")
        ),
        "static void set_constants(const std::vector<emu::constant_value> & values) {",
        "    for (const emu::constant_value & v : values) {",
    ]
    pattern = r"constant\s+(\w+)\s+(\w+)\s*\[\[function_constant\(([^)]*)\)\]\]\s*;"
    for kind, name, index in re.findall(pattern, _compiled(_without_comments(source))):
        lines.append(f"        if (v.index == ({index})) {{ {name} = ({kind}) v.value; }}")
    lines += ["    }", "}", ""]
    kernels = kernels_of(source)
    for i, kernel in enumerate(kernels):
        counters = {"buffer": 0, "threadgroup": 0}
        arguments = ", ".join(_argument(p, counters) for p in kernel.parameters)
        lines.append(
            f"static void invoke_{i}(const emu::launch & l) {{ {kernel.call}({arguments}); }}"
        )
    lines += ["", "static const bool added = [] {"]
    for i, kernel in enumerate(kernels):
        lines.append(f'    emu::add_kernel({{ "{kernel.host_name}", invoke_{i}, set_constants }});')
    lines += ["    return true;", "}();", f"}} // namespace {space}", ""]
    return "\n".join(lines)


def _function(text: str, head: str) -> str:
    start = text.index(head)
    return text[start : text.index("\n}\n", start) + 3]


def supports_op_source(metal: Path) -> str:
    """ggml_metal_device_supports_op out of the Objective-C file, where it is plain C."""
    text = (metal / "ggml-metal-device.m").read_text()
    return "\n".join(
        [
            '#include "emulated-device.h"',
            '#include "ggml-impl.h"',
            '#include "ggml-metal-common.h"',
            '#include "ggml-metal-impl.h"',
            '#include "ggml-metal-train.h"' if (metal / "ggml-metal-train.h").exists() else "",
            _function(text, "static bool ggml_metal_supports_mul_mat_op("),
            _function(text, "bool ggml_metal_device_supports_op("),
        ]
    )


class Builder:
    """Compiles into a folder; what has not changed since is not compiled again."""

    def __init__(self, folder: Path, tree: Path):
        self.folder = folder
        self.tree = tree
        self.metal = tree / "src" / "ggml-metal"
        folder.mkdir(parents=True, exist_ok=True)
        headers = folder / "kernels"
        headers.mkdir(exist_ok=True)
        self.includes = [
            f"-I{p}"
            for p in (HERE, HERE / "include", headers, self.metal, tree / "src", tree / "include")
        ]
        for path in sorted((self.metal / "kernels").iterdir()):
            self.generate(f"kernels/{path.name}", as_cpp(path.read_text()))

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-8000:]}")

    def compile(self, source: Path, flags: tuple[str, ...]) -> Path:
        compiler = ["gcc"] if source.suffix == ".c" else ["g++", *FLAGS]
        command = [*compiler, *flags, "-fPIC", *self.includes, str(source)]
        # the preprocessed text names all that an object depends on
        text = subprocess.run([*command, "-E", "-P"], capture_output=True, check=False)
        if text.returncode != 0:
            raise RuntimeError(
                f"{' '.join(command)}\n{text.stderr.decode(errors='replace')[-8000:]}"
            )
        key = hashlib.sha256(" ".join(command).encode() + text.stdout).hexdigest()[:24]
        target = self.folder / f"{source.stem}-{key}.o"
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}.tmp")
            self._run([*command, "-c", "-o", str(partial)])
            partial.replace(target)
        return target

    def link(
        self,
        name: str,
        suffix: str,
        objects: list[Path],
        *flags: str,
        libraries: Path | None = None,
    ) -> Path:
        """Link, to a name with a digest of the objects' names, which tell what they are made of.

        And of where the libraries are: another environment has others.
        """
        libs = libraries or Path(_ggml.__file__).parent / "lib"
        key = hashlib.sha256(" ".join(map(str, [libs, *objects])).encode()).hexdigest()[:16]
        target = self.folder / f"{name}-{key}{suffix}"
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}.tmp")
            command = ["g++", "-o", str(partial), *map(str, objects), f"-L{libs}"]
            command += [*flags, "-lpyggml-base", f"-Wl,-rpath,{libs}"]
            self._run(command)
            partial.replace(target)
        return target

    def generate(self, name: str, text: str) -> Path:
        """Write a source; whole at once, as another process may be compiling or writing it."""
        path = self.folder / name
        if not path.exists() or path.read_text() != text:
            partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            partial.write_text(text)
            partial.replace(path)
        return path


@functools.cache
def _host_objects(
    folder: Path, tree: Path, changed: tuple[tuple[str, str], ...] = ()
) -> tuple[Path, ...]:
    """What is no kernel; once a process, as a backend with a changed kernel has the same."""
    b = Builder(folder, tree)
    sources = {name: b.metal / name for name in HOST_FILES if (b.metal / name).exists()}
    for name, text in changed:
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        sources[name] = b.generate(f"{Path(name).stem}-{digest}.cpp", text)
    # Apple's C++ library brings these headers along
    brought = tuple(
        word for name in ("memory", "vector", "cinttypes", "cstring") for word in ("-include", name)
    )
    host = (
        "-O0",
        *brought,
        "-DGGML_BACKEND_DL",
        "-DGGML_BACKEND_SHARED",
        "-DGGML_BACKEND_BUILD",
        "-DGGML_SHARED",
    )
    objects = [b.compile(path, host) for path in sources.values()]
    objects.append(
        b.compile(b.generate("supports_op.c", supports_op_source(b.metal)), ("-O0", "-std=c11"))
    )
    objects += [
        b.compile(HERE / name, ("-O2", "-DGGML_SHARED"))
        for name in (
            "../common/alignment.cpp",
            "../common/nodes.cpp",
            "fibers.cpp",
            "counts.cpp",
            "trace.cpp",
            "device.cpp",
            "context.cpp",
        )
    ]
    return tuple(objects)


def build(
    folder: Path,
    kernel_files: tuple[str, ...] = KERNEL_FILES,
    library_dir: Path | None = None,
    changed: dict[str, str] | None = None,
) -> Path:
    """Build the backend with these kernel files, some files with another text; returns the library.

    Args:
        folder: where objects are kept.
        kernel_files: their names without .metal.
        library_dir: where ggml's libraries are.
        changed: texts of kernel files, by those names, and of host files, by theirs.
    """
    b = Builder(folder, ggml_tree())
    host = tuple(item for item in (changed or {}).items() if item[0] in HOST_FILES)
    objects = list(_host_objects(folder, b.tree, host))
    for name in kernel_files:
        other = (changed or {}).get(name)
        text = wrapper_source(b.metal / "kernels" / f"{name}.metal", other)
        # a file of its own: another process may be compiling the kernel as it is
        digest = f"-{hashlib.sha256(text.encode()).hexdigest()[:12]}" if other else ""
        objects.append(b.compile(b.generate(f"kernel_{name}{digest}.cpp", text), KERNEL_FLAGS))
    return b.link("libggml-metal-emulated", ".so", objects, "-shared", libraries=library_dir)


def build_traced(folder: Path) -> Path:
    """Build the backend that notes what it is asked for (trace.hpp), with kernels to count."""
    b = Builder(folder, ggml_tree())
    objects = list(_host_objects(folder, b.tree))
    for name in COUNTED:
        text = wrapper_source(b.metal / "kernels" / f"{name}.metal", counted=True)
        source = b.generate(f"counted_{name}.cpp", text)
        objects.append(b.compile(source, (*KERNEL_FLAGS, *COUNTED_FLAGS)))
    return b.link("libggml-metal-traced", ".so", objects, "-shared")


def build_counted(folder: Path) -> Path:
    """Build the program that has accesses counted that are known."""
    b = Builder(folder, ggml_tree())
    names = ("../common/alignment.cpp", "fibers.cpp", "counts.cpp")
    objects = [b.compile(HERE / name, ("-O2", "-DGGML_SHARED")) for name in names]
    objects.append(b.compile(HERE / "counted.cpp", (*KERNEL_FLAGS, *COUNTED_FLAGS)))
    return b.link("counted", "", objects)


def build_harness(folder: Path, library_dir: Path | None = None) -> Path:
    """Build the program that runs ../common/cases.cpp on GGML_BACKEND_PATH's backend."""
    b = Builder(folder, ggml_tree())
    table = CudaBuilder(b.tree, default_cache(), library_dir).table()
    objects = [*table, b.compile(HERE / "harness.cpp", ("-O1",))]
    flags = ("-lpyggml-cpu", "-lpyggml", "-ldl")
    return b.link("harness", "", objects, *flags, libraries=library_dir)


if __name__ == "__main__":
    files = tuple(sys.argv[2:]) or KERNEL_FILES
    print(build(Path(sys.argv[1]), files))
