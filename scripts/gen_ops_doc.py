# SPDX-License-Identifier: MIT
"""Write docs/reference/ops.md: the ops of the pinned ggml, their functions, gradients and backends.

Functions, gradients and types come from the rows of pyggml.testing, recorded and asked of the CPU
backend; backends from the `supports_op` functions in vendor/ggml. `--check` compares and writes
nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generated_page import ROOT, write_or_check

import pyggml as pg
from pyggml import ops
from pyggml.backend.headers import op_name
from pyggml.errors import BackendError, DTypeError
from pyggml.graph.walk import walk
from pyggml.tensors import Tensor
from pyggml.testing import CASES, Case
from pyggml.testing.cases_composed import CASES as COMPOSED
from pyggml.testing.check import HALF_GRADIENTS
from pyggml.testing.reasons import NO_FUNCTION, NO_GRADIENT, NO_ROW

PAGE = ROOT / "docs" / "reference" / "ops.md"
SOURCES = ROOT / "vendor" / "ggml" / "src"
TYPES = ("f32", "f16", "bf16")

# How to record what the table leaves to tests with stored state.
STATEFUL: dict[str, Callable[[str], Tensor]] = {
    "cpy": lambda t: ops.cpy(pg.zeros((2, 3), dtype=t), pg.zeros((2, 3))),
    "opt_step_adamw": lambda t: ops.opt_step_adamw(
        pg.zeros(4, dtype=t), pg.zeros(4), pg.zeros(4), pg.zeros(4), pg.ones(7)
    ),
    "opt_step_sgd": lambda t: ops.opt_step_sgd(pg.zeros(4, dtype=t), pg.zeros(4), pg.ones(2)),
}


@dataclass
class Op:
    """What the rows tell of one op: functions to the number of ops that they record with it."""

    functions: dict[str, int] = field(default_factory=dict)
    gradients: dict[str, int] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)


def nearest(functions: dict[str, int]) -> list[str]:
    """Those that record the fewest other ops beside this one."""
    least = min(functions.values(), default=0)
    return sorted(name for name, count in functions.items() if count == least)


def enum() -> dict[str, list[str]]:
    """The ops of the ggml that is loaded, by kind, in the order of its enums."""
    lib, text = pg.lib, pg.ffi.string
    kinds = {
        "op": [text(lib.ggml_op_name(i)).decode() for i in range(lib.GGML_OP_COUNT)],
        "unary": [text(lib.ggml_unary_op_name(i)).decode() for i in range(lib.GGML_UNARY_OP_COUNT)],
        "glu": [text(lib.ggml_glu_op_name(i)).decode() for i in range(lib.GGML_GLU_OP_COUNT)],
    }
    kinds["op"] = [name for name in kinds["op"] if name not in ("UNARY", "GLU")]
    return kinds


def _recordings(case: Case) -> Iterator[tuple[Tensor, set[int]]]:
    """The row's result and its differentiated operands, for each type that pyggml.ops takes."""
    arrays = case.operands(1)
    wanted = range(len(arrays)) if case.grad is None else case.grad
    for dtype in TYPES:
        # As in grad0: all operands in that type, or else those that the row names.
        for cast in (range(len(arrays)), case.half):
            operands = [pg.tensor(x, dtype if i in cast else "f32") for i, x in enumerate(arrays)]
            try:
                result = case.run(*operands)
            except (DTypeError, BackendError):
                continue
            trained = {id(t.node) for i, t in enumerate(operands) if i in wanted}
            yield result, trained
            break


def _float_types(ptr: Any) -> set[str]:
    """The float types of a header's sources."""
    names = {
        pg.ffi.string(pg.lib.ggml_type_name(src.type)).decode()
        for src in ptr.src
        if src != pg.ffi.NULL
    }
    return names & set(TYPES)


def rows() -> dict[str, Op]:
    """What the rows of the table record and differentiate, by ggml's name of the op."""
    found: dict[str, Op] = {}
    cpu = pg.device("cpu")

    def enter(name: str, result: Tensor, trained: set[int]) -> None:
        needed = set(trained)
        nodes = [node for node in walk([result.node], set()) if node.buffer is None]
        count = len({op_name(node.ptr) for node in nodes})
        for node in nodes:
            if not pg.lib.ggml_backend_dev_supports_op(cpu._handle, node.ptr):
                continue
            op = found.setdefault(op_name(node.ptr), Op())
            op.functions[name] = min(count, op.functions.get(name, count))
            op.types |= _float_types(node.ptr)
            if any(id(src) in needed for src in node.srcs):
                needed.add(id(node))
                op.gradients[name] = min(count, op.gradients.get(name, count))

    composed = {id(case) for case in COMPOSED}  # each records several ops
    for case in CASES:
        if id(case) in composed:
            continue
        for result, trained in _recordings(case):
            enter(case.name, result, trained)
    for name, record in STATEFUL.items():
        for dtype in TYPES:
            try:
                enter(name, record(dtype), set())
            except DTypeError:
                continue
    return found


# ---- what the backends' sources say


def _plain(path: Path) -> str:
    """A C source without comments and preprocessor lines; both branches of an #if stay."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    return re.sub(r"^[ \t]*#.*?$", "", text, flags=re.MULTILINE)


def _block(text: str, start: int) -> tuple[int, int]:
    """Where the block in braces that begins at or after `start` begins and ends."""
    begin = text.index("{", start)
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return begin + 1, at
    raise ValueError(f"gen_ops_doc: no end of the block at {start}")


def _cases(text: str) -> dict[str, str]:
    """Label to statements of a switch's block; `default` is a label."""
    marks = []
    depth = 0
    for match in re.finditer(r"[{}]|\bcase\s+(\w+)\s*:(?!:)|\bdefault\s*:", text):
        if match[0] in "{}":
            depth += 1 if match[0] == "{" else -1
        elif depth == 0:
            marks.append(match)
    found: dict[str, str] = {}
    labels: list[str] = []
    body = ""
    for match, following in zip(marks, [*marks[1:], None], strict=True):
        labels.append(match[1] or "default")
        body = text[match.end() : following.start() if following else len(text)].strip()
        if body:
            found |= dict.fromkeys(labels, body)
            labels = []
    return found


def _verdict(body: str) -> str:
    """yes, partly or no, by what the statements return; what Apple's GPUs all have is true."""
    values = [
        re.sub(r"\bhas_\w+", "true", v).strip() for v in re.findall(r"\breturn\b([^;]*);", body)
    ]
    if not values:
        raise ValueError(f"gen_ops_doc: nothing is returned by {body!r}")
    if set(values) <= {"true", "true && true"}:
        return "yes"
    return "no" if set(values) == {"false"} else "partly"


def supported(path: Path, function: str) -> dict[str, str]:
    """Verdict by op of a backend's supports_op; "default" for those that it does not name."""
    text = _plain(path)
    start = re.search(rf"\b{function}\([^;{{]*\)\s*\{{", text)
    if start is None:
        raise ValueError(f"gen_ops_doc: {path.name} has no {function}")
    begin, end = _block(text, start.end() - 1)
    body = text[begin:end]
    inner = re.search(r"switch \(op->op\)\s*\{", body)
    if inner is None:
        raise ValueError(f"gen_ops_doc: {function} has no switch over op->op")
    begin, end = _block(body, inner.end() - 1)
    found: dict[str, str] = {}
    for label, statements in _cases(body[begin:end]).items():
        nested = re.match(r"\{?\s*switch \(ggml_get_(unary|glu)_op\(op\)\)\s*\{", statements)
        if nested is None:
            found[label] = _verdict(statements)
            continue
        first, last = _block(statements, nested.end() - 1)
        for name, what in _cases(statements[first:last]).items():
            key = name if name != "default" else f"default_{nested[1]}"
            found[key] = _verdict(what)
    return found


def differentiated() -> set[str]:
    """The ops with a rule that passes a gradient on, in ggml_compute_backward or of the patches."""
    bodies = []
    for name, function in (
        ("ggml.c", r"static void ggml_compute_backward\("),
        ("ggml-train-backward.h", r"static bool ggml_backward_\w+\("),
    ):
        text = _plain(SOURCES / name) if (SOURCES / name).is_file() else ""
        for start in re.finditer(function, text):
            begin, end = _block(text, start.start())
            bodies.append(text[begin:end])
    found = set()
    for body in bodies:
        switch = re.search(r"switch \((?:done \? GGML_OP_NONE : )?tensor->op\)", body)
        if switch is None:
            raise ValueError("gen_ops_doc: a function of the backward has no switch over the op")
        begin, end = _block(body, switch.start())
        for label, statements in _cases(body[begin:end]).items():
            if label == "GGML_OP_UNARY":
                first, last = _block(statements, statements.index("switch ("))
                inner = _cases(statements[first:last])
                found |= {name for name, what in inner.items() if "grad" in what}
            elif label == "GGML_OP_GLU":
                found |= {f"GGML_GLU_OP_{name}" for name in enum()["glu"]}
            elif "grad" in statements:
                found.add(label)
    return {re.sub(r"^GGML_(?:UNARY_|GLU_)?OP_", "", name) for name in found}


def backends() -> dict[str, dict[str, str]]:
    """supports_op of the CPU, CUDA and Metal, as `supported` tells it."""
    metal = supported(SOURCES / "ggml-metal/ggml-metal-device.m", "ggml_metal_device_supports_op")
    training = SOURCES / "ggml-metal/ggml-metal-train.cpp"
    if training.is_file():  # what the patches add, which the function above asks by default
        metal |= supported(training, "ggml_metal_train_supports_op")
    found = {}
    for name, file, training in (
        ("cpu", "ggml-cpu/ggml-cpu.cpp", "ggml-cpu/train/train.cpp"),
        ("cuda", "ggml-cuda/ggml-cuda.cu", "ggml-cuda/train.cu"),
    ):
        found[name] = supported(SOURCES / file, f"ggml_backend_{name}_device_supports_op")
        if (SOURCES / training).is_file():  # what the patches answer before the function above
            answers = supported(SOURCES / training, f"ggml_{name}_train_supports_op")
            found[name] |= {label: told for label, told in answers.items() if label != "default"}
    return {
        "CPU": found["cpu"],
        "CUDA": found["cuda"],
        "Metal": metal,
    }


def problems(found: dict[str, Op]) -> list[str]:
    """Ops whose entry is missing, or contradicts the rows of the table."""
    wrong = []
    everything = [name for names in enum().values() for name in names]
    for name in everything:
        op = found.get(name, Op())
        if bool(op.gradients) == (name in NO_GRADIENT or name in NO_ROW):
            wrong.append(
                f"{name}: a row of the table differentiates it, so it has no place in"
                " NO_GRADIENT and NO_ROW; remove it there"
                if op.gradients
                else f"{name}: neither differentiated by a row of the table nor in NO_GRADIENT or"
                " NO_ROW; add a row to src/pyggml/testing/cases.py, or its reason to reasons.py"
            )
        if name in NO_GRADIENT and name in NO_ROW:
            wrong.append(f"{name}: in NO_GRADIENT and in NO_ROW; only one can be true")
        if bool(op.functions) == (name in NO_FUNCTION):
            wrong.append(
                f"{name}: recorded by {_list(sorted(op.functions))}; remove it from NO_FUNCTION"
                if op.functions
                else f"{name}: no function records it; add it to NO_FUNCTION in reasons.py"
            )
    for table in (NO_GRADIENT, NO_ROW, NO_FUNCTION):
        wrong += [f"{name}: no op of this ggml" for name in table if name not in everything]
    return wrong


# ---- the page

_HEAD = """\
<!-- Written by scripts/gen_ops_doc.py (`just ops-doc`); a test compares. Don't edit. -->
# The ops of ggml {version}

This page lists every op of the patched ggml: {total} ops, with each activation and each gated unit
counted as one.

- {gradients} ops have a gradient that `python -m pyggml.testing` checks by central differences.
- {ggml} more have a gradient in ggml, but no function of `pyggml.ops` records them.
- The others have no gradient. `backward()` through one raises `pyggml.GradientError` with the op's
  name and the line that recorded it.

The columns:

- **forward**: the functions of `pyggml.ops` that record the op, or the reason why there is none.
- **backward**: "yes" with the cases that check the gradient (`python -m pyggml.testing --op NAME`),
  or "no" with the reason. "Of f32 only": operands of other types have no gradient.
- **types**: the types of float operands that `pyggml.ops` accepts on the CPU. Row numbers are i32
  or i64.
- **CPU, CUDA, Metal**: the answer of each backend's `supports_op`, read from the patched source:
  "yes", "no", or "partly", which means for some types, shapes or layouts. Metal stands for Apple's
  GPUs since the M1. pyggml asks the device when it builds a graph. The CPU computes ops that the
  device lacks; an op that no device computes raises `pyggml.BackendError`.
"""
_TITLES = {"op": "Ops", "unary": "Activations (`UNARY`)", "glu": "Gated units (`GLU`)"}
_PREFIX = {"op": "GGML_OP_", "unary": "GGML_UNARY_OP_", "glu": "GGML_GLU_OP_"}


def _list(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _line(kind: str, name: str, op: Op, support: dict[str, dict[str, str]]) -> str:
    forward = _list(nearest(op.functions)) if op.functions else "none: " + NO_FUNCTION[name]
    if op.gradients:
        rows_with_it = nearest(op.gradients)
        backward = "yes: " + _list(rows_with_it)
        if op.types - {"f32"} and not HALF_GRADIENTS.intersection(rows_with_it):
            backward += "; of f32 only"
    elif name in NO_GRADIENT:
        backward = "no: " + NO_GRADIENT[name]
    else:
        backward = "in ggml only: " + NO_ROW[name]
    types = ", ".join(t for t in TYPES if t in op.types) or "–"
    default = "default" if kind == "op" else f"default_{kind}"
    answers = []
    for table in support.values():
        fallback = table.get(default, table["default"])
        answers.append(table.get(_PREFIX[kind] + name, fallback))
    return f"| {name} | {forward} | {backward} | {types} | {' | '.join(answers)} |"


def page() -> str:
    """The text of docs/reference/ops.md."""
    found, support, kinds = rows(), backends(), enum()
    wrong = problems(found)
    if wrong:
        raise ValueError("gen_ops_doc: " + "; ".join(wrong))
    everything = [name for names in kinds.values() for name in names]
    parts = [
        _HEAD.format(
            version=pg.ggml_version().partition("-")[0],
            total=len(everything),
            gradients=sum(bool(found.get(name, Op()).gradients) for name in everything),
            ggml=len(NO_ROW),
        )
    ]
    for kind, names in kinds.items():
        parts.append(f"\n## {_TITLES[kind]}\n\n")
        parts.append(f"| op | forward | backward | types | {' | '.join(support)} |\n")
        parts.append("|---|---|---|---|---|---|---|\n")
        parts += [_line(kind, name, found.get(name, Op()), support) + "\n" for name in names]
    return "".join(parts)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    return write_or_check(PAGE, page, "ops-doc", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
