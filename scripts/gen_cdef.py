# SPDX-License-Identifier: MIT
"""Write src/pyggml/backend/_cdef.h, the declarations that cffi binds, from vendor/ggml's headers.

`--check` writes nothing and exits 1 when the committed file is not what the headers say.
Needs a C compiler for its preprocessor ($CC, else cc).
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ("ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "ggml-opt.h", "gguf.h")
# cffi knows the types of these; their text would only be in the way.
SYSTEM = ("stdbool.h", "stddef.h", "stdint.h", "stdio.h")
# Declared in a header, defined nowhere: name -> reason.
UNDEFINED: dict[str, str] = {}

STRUCT = re.compile(r"((?:typedef )?(?:struct|union) ?\w* ?)\{(.*)\}( \w+)?")


def preprocess(include: Path, *options: str) -> str:
    """The six headers through the C preprocessor, as a compiler without extensions sees them."""
    with tempfile.TemporaryDirectory() as temporary:
        for name in SYSTEM:
            (Path(temporary) / name).touch()
        source = "".join(f'#include "{name}"\n' for name in HEADERS)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        command = [*compiler, "-E", "-P", "-nostdinc", "-U__GNUC__", "-DNDEBUG", *options,
                   "-I", temporary, "-I", str(include), "-x", "c", "-"]  # fmt: skip
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"gen_cdef: {shlex.join(command)} failed:\n{done.stderr}")
    return done.stdout


def constants(include: Path) -> list[str]:
    """One line for each macro that is a number or a string."""
    lines = []
    for match in re.finditer(
        r"^#define (GG(?:ML|UF)_\w+) (.+)$", preprocess(include, "-dM"), re.MULTILINE
    ):
        name, value = match.groups()
        if re.fullmatch(r"\(?-?(?:0x[0-9a-fA-F]+|\d+)\)?", value):
            lines.append(f"#define {name} ...")
        elif value.startswith('"'):
            lines.append(f"static const char * const {name};")
    return sorted(lines)


def split(text: str) -> list[str]:
    """The top-level declarations, one line each, without the semicolon."""
    found, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == ";" and depth == 0:
            found.append(" ".join(text[start:at].split()).replace("( ", "("))
            start = at + 1
    rest = text[start:].strip()
    if rest or depth:
        sys.exit(f"gen_cdef: the headers end within a declaration: {rest[:200]!r}")
    return [declaration for declaration in found if declaration]


def _enum(match: re.Match[str]) -> str:
    """Only the names: the compiler knows the values."""
    items = [item.split("=")[0].strip() for item in match[2].split(",")]
    return f"{match[1]}{{\n    " + ",\n    ".join([*filter(None, items), "..."]) + "\n}"


def _struct(match: re.Match[str], indent: str = "") -> str:
    """One field a line; lengths that are expressions are left to the compiler."""
    inner = indent + "    "
    lines = []
    for field in split(match[2]):
        if nested := STRUCT.fullmatch(field):
            text = _struct(nested, inner)
        else:
            text = re.sub(r"\[(?!\d+\])[^\]]+\]", "[...]", field)
        lines.append(f"{inner}{text};\n")
    return f"{match[1]}{{\n{''.join(lines)}{indent}}}{match[3] or ''}"


def rewrite(declaration: str) -> str:
    """A C declaration as cffi takes it."""
    text = re.sub(r"\b(?:_Noreturn|restrict)\b ?", "", declaration)
    text = re.sub(r"^extern ", "", text.strip())
    text = re.sub(r"^(static const [^=]+?) = .*$", r"\1", text)
    text = re.sub(r"(\benum \w* ?)\{([^}]*)\}", _enum, text)
    if match := STRUCT.fullmatch(text):
        text = _struct(match)
    return text + ";"


def function_name(declaration: str) -> str | None:
    """The name that a function declaration declares; None for anything else."""
    if re.match(r"(?:typedef|enum \w+ \{|struct \w+ \{|static)", declaration):
        return None
    match = re.match(r"[\w\s*]*?\b(\w+) ?\(", declaration)
    return match[1] if match else None


def generate(include: Path) -> str:
    """The text of _cdef.h."""
    kept = []
    for declaration in split(preprocess(include)):
        line = rewrite(declaration)
        if (name := function_name(line)) and name in UNDEFINED:
            continue
        if line not in kept:  # ggml repeats typedefs, which cffi takes for a mistake
            kept.append(line)
    head = "/* Made by scripts/gen_cdef.py from ggml's headers; do not edit. */\n"
    return head + "\n".join([*constants(include), *kept]) + "\n"


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--include", type=Path, default=ROOT / "vendor" / "ggml" / "include")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "src" / "pyggml" / "backend" / "_cdef.h"
    )
    args = parser.parse_args()
    text = generate(args.include)
    same = args.output.is_file() and args.output.read_text(encoding="utf-8") == text
    if args.check:
        if not same:
            print(f"gen_cdef: {args.output} is not what the headers say; run `just cdef`")
        return 0 if same else 1
    if not same:
        args.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
