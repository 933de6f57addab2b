# SPDX-License-Identifier: MIT
"""What a traced step launches: bytes, operations and the part of the step, launch by launch.

Bytes are those that a kernel must move at least: each tensor or scratch buffer that an argument
points to, once. Nothing is taken off for what a cache still holds. On Metal what a threadgroup of
some kernels does is counted, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

# Matmuls of T x T by the heads' width in each kernel of attention.
MATMULS = {
    "fattn_bf16<": 2,
    "fattn_f32<": 2,
    "fattn_back_kv": 4,
    "fattn_back_q": 3,
    "kernel_flash_attn_ext_f32_dk": 2,
    "kernel_fa_back_q": 4,
    "kernel_fa_back_kv": 4,
}
# Kernels of a matmul on Metal.
PRODUCTS = ("kernel_mul_mm_f", "kernel_out_prod_f")
SIZES = {"f32": 4, "bf16": 2, "f16": 2}
VECTOR_BYTES = 16  # the widest access of a thread
VIEWS = ("NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE")  # what costs nothing


@dataclass(frozen=True)
class Launch:
    """A kernel, a product of cuBLAS, or a copy or fill of the runtime.

    Args:
        kernel: its name in the source; that of the op where the source has a pointer.
        op: what it computes, with the ops that are fused into it: "NORM+MUL+ADD".
        part: of the step.
        unit: what computes: "f32", "tf32", "bf16" or "f16".
        kind: "product", "unaligned product", "tiles" of attention, or by what a thread moves:
            "vector" from 16 bytes on, else "scalar".
        blocks: of its grid; 0 where the source does not tell.
        bytes: read and written.
        converted: those of `bytes` that only change their type.
        operations: multiplications and additions of matmuls; 0 for what memory decides.
        products: of 8 x 8 matrices on Metal, of all threadgroups, where they are counted.
        accesses: clocks of a core for what all threadgroups load and store, likewise.
    """

    kernel: str
    op: str
    part: str
    unit: str
    kind: str
    blocks: int
    bytes: int
    converted: int
    operations: int
    products: int = 0
    accesses: int = 0


class _Group:
    """The events of a node: its tensors, and what was launched for it."""

    def __init__(self, event: dict[str, Any]):
        self.nodes = [event]
        self.events: list[dict[str, Any]] = []

    @property
    def op(self) -> str:
        names = [name for name in map(_name, self.nodes) if name not in VIEWS]
        return "+".join(name for name, _ in groupby(names)) or "NONE"

    def tensors(self, nodes: int | None = None) -> Iterator[dict[str, Any]]:
        for node in self.nodes[:nodes]:
            yield node["result"]
            yield from node["sources"]


class _Memory:
    """The bytes behind an address: a tensor of the op, or scratch memory."""

    def __init__(self) -> None:
        self._scratch: dict[int, int] = {}

    def take(self, event: dict[str, Any]) -> None:
        end = event["at"] + event["scratch"]
        # A pool is a stack: what lay here is gone.
        self._scratch = {
            at: n for at, n in self._scratch.items() if at + n <= event["at"] or at >= end
        }
        self._scratch[event["at"]] = event["scratch"]

    def behind(self, at: int, group: _Group) -> int:
        """Return the bytes of the tensor or of the scratch memory from an address on."""
        # What is computed in place is two tensors in one place. A fused op may write another one
        # over a source of the first.
        for tensors in (group.tensors(1), group.tensors()):
            found = [int(t["bytes"]) for t in tensors if t["at"] == at]
            if found:
                return max(found)
        every = [*group.tensors()]
        places = [*self._scratch.items()]
        places += [(t["at"] + t["bytes"], t["behind"]) for t in every if "behind" in t]
        places += [(t["at"], t["bytes"]) for t in every]
        for start, n in places:
            if start <= at < start + n:
                return int(start + n - at)
        raise ValueError(f"gpu_model: {group.op} has an argument at {at}, where no tensor lies")


def launches(events: Sequence[dict[str, Any]], vocab: int) -> list[Launch]:
    """Return what a step launches, in order.

    Args:
        events: of a step; see harness.traced_step.
        vocab: the extent by which the head's products are known.
    """
    memory = _Memory()
    found: list[Launch] = []
    for group in _groups(events):
        for event in group.events:
            if "scratch" in event:
                memory.take(event)
            elif "kernel" in event:
                found.append(_kernel(event, group, memory, vocab))
            elif "product" in event:
                found.append(_product(event, group, vocab))
            elif "copy" in event or "fill" in event:
                name = "copy" if "copy" in event else "fill"
                n = event[name] * (2 if name == "copy" else 1)
                part = _part(group, vocab)
                found.append(Launch(name, group.op, part, "f32", "vector", 0, n, 0, 0))
    return found


def graphs(events: Sequence[dict[str, Any]]) -> int:
    """Return how many captured graphs the step launches, or command buffers on Metal."""
    return sum("graph launch" in event or "command buffer" in event for event in events)


def _groups(events: Sequence[dict[str, Any]]) -> list[_Group]:
    groups = [_Group({"node": "NONE", "result": _NOTHING, "sources": []})]
    for event in events:
        if "node" in event:
            groups.append(_Group(event))
        elif "fused" in event:
            groups[-1].nodes.append(event)
        else:
            groups[-1].events.append(event)
    return groups


def _name(node: dict[str, Any]) -> str:
    return str(node.get("node") or node["fused"])


_NOTHING = {"at": 0, "bytes": 0, "type": "f32", "ne": [0, 0, 0, 0], "op": "NONE"}


def _part(group: _Group, vocab: int) -> str:
    if _is_conversion(group.nodes[0]) and "+" not in group.op:
        return "conversions"
    ops = group.op.split("+")
    if ops[0].startswith(("FLASH_ATTN", "SOFT_MAX")):
        return "attention"
    if ops[0].startswith("GET_ROWS"):
        return "embedding"
    if ops[0].startswith(("OPT_STEP", "SUM_SQR")):
        return "optimizer"
    if any(vocab in t["ne"][:2] for t in group.tensors()) or ops[0].startswith("CROSS_ENTROPY"):
        return "head"
    if ops[0] in ("MUL_MAT", "OUT_PROD"):
        return "products"
    if any(op.startswith(("NORM", "RMS_NORM")) for op in ops):
        return "norms"
    return "elementwise"


def _kernel(event: dict[str, Any], group: _Group, memory: _Memory, vocab: int) -> Launch:
    node = group.nodes[0]
    name = event["kernel"]
    if name == "kernel":  # where the source has a pointer to one of several
        name = "fattn_bf16_round" if node["node"].startswith("FLASH") else node["node"].lower()
    operands = event["operands"]
    sizes = [_touched(memory.behind(at, group), node) for at, _ in operands]
    gradients = _gradients(name, node, [written for _, written in operands])
    sizes = [gradients.get(i, n) for i, n in enumerate(sizes)]
    total = sum(sizes)
    if node["node"].startswith("OPT_STEP"):  # weights and moments change where they are
        total += sum(n for n, (_, written) in zip(sizes, operands, strict=True) if written)
    elif node["node"] == "ACC":
        total += node["sources"][1]["bytes"]
    if name.startswith("opt_steps"):  # many parameters, in a structure
        sizes = [t["bytes"] for each in group.nodes for t in each["sources"]]
        total = sum(map(_step_bytes, group.nodes))
    operations, unit = _attention(name, node)
    is_product = name.startswith(PRODUCTS)
    if is_product:
        operations = _operations(node)
    if operations and unit == "bf16":  # what was rounded comes in a structure
        rounded = node["sources"][: 3 if node["node"] == "FLASH_ATTN_EXT" else 4]
        if _is_log_sums(name, node):
            rounded = node["sources"][1:3]
        total += sum(t["bytes"] // SIZES[t["type"]] * SIZES["bf16"] for t in rounded)
    threads = _count(event["grid"]) * _count(event["block"])
    wide = max(sizes, default=0) >= VECTOR_BYTES * threads
    kind = "tiles" if operations else "vector" if wide else "scalar"
    counts = event.get("counts", {})
    return Launch(
        name,
        group.op,
        _part(group, vocab),
        unit,
        "product" if is_product else kind,
        _count(event["grid"]),
        total,
        _converted(name, group, total, operands, gradients),
        operations,
        counts.get("products", 0),
        counts.get("banks", 0) + counts.get("segments", 0),
    )


def _step_bytes(node: dict[str, Any]) -> int:
    """Return what a step of AdamW moves: its sources, of which the gradient is only read."""
    if not _name(node).startswith("OPT_STEP"):
        return 0
    weights, gradient, *moments, parameters = (int(t["bytes"]) for t in node["sources"])
    return 2 * (weights + sum(moments)) + gradient + parameters


def _count(extents: Sequence[int]) -> int:
    return extents[0] * extents[1] * extents[2]


def _touched(n: int, node: dict[str, Any]) -> int:
    """Return how much of an argument's n bytes an op reads that takes part of a tensor only."""
    if node["node"] == "GET_ROWS":
        return min(n, node["result"]["bytes"])
    if node["node"] == "GET_ROWS_BACK":
        return min(n, node["sources"][0]["bytes"])
    if node["node"] == "ACC":
        return min(n, node["sources"][1]["bytes"])
    return n


def _attention(name: str, node: dict[str, Any]) -> tuple[int, str]:
    """Return the operations of a kernel of attention, and the unit; 0 for other kernels."""
    matmuls = next((n for start, n in MATMULS.items() if name.startswith(start)), 0)
    if name.startswith("fattn_back_mma_grad"):
        matmuls = 4 if name.endswith("true>") else 3
    if _is_log_sums(name, node):
        matmuls = 1
    if not matmuls:
        return 0, "f32"
    # Metal's 8 x 8 matrices have one rate for all types
    unit = "bf16" if "mma" in name or name.startswith("fattn_bf16") else "f32"
    return matmuls * _matmul(node), unit


def _gradients(name: str, node: dict[str, Any], written: Sequence[bool]) -> dict[int, int]:
    """Return the bytes of the operands that a kernel of attention writes gradients to.

    They are parts of one tensor, or of the tensor that they are rounded to.
    """
    if name.startswith("fattn_back_kv") or name.endswith("cols, true>"):
        sources = node["sources"][2:4]
    elif name.startswith(("fattn_back_q", "fattn_back_mma_grad")):
        sources = node["sources"][1:2]
    else:
        return {}
    elements = [int(t["bytes"]) // SIZES[t["type"]] for t in sources]
    sizes = [n * SIZES[dtype] for dtype in ("f32", "bf16") for n in elements]
    return dict(zip((i for i, each in enumerate(written) if each), sizes, strict=False))


def _is_log_sums(name: str, node: dict[str, Any]) -> bool:
    """Return True for the forward's kernel in the gradient, which computes scores alone."""
    return name.startswith(("fattn_bf16<", "fattn_f32<")) and bool(node["node"].endswith("_BACK"))


def _operations(node: dict[str, Any]) -> int:
    """Return the operations of MUL_MAT or OUT_PROD."""
    k = node["sources"][0]["ne"][0 if node["node"] == "MUL_MAT" else 1]
    return 2 * int(k) * math.prod(node["result"]["ne"])


def _matmul(node: dict[str, Any]) -> int:
    """Return the operations of one matmul of attention.

    The mask of these steps is causal, and tiles that it hides are skipped.
    """
    # the gradient of the result comes first
    q, k = node["sources"][1:3] if node["node"].endswith("_BACK") else node["sources"][:2]
    width, rows, heads, batch = q["ne"]
    columns = k["ne"][1]
    whole: int = 2 * width * rows * columns * heads * batch
    return whole * (columns + 1) // (2 * columns)


def _converted(
    name: str,
    group: _Group,
    total: int,
    operands: Sequence[Sequence[int]],
    gradients: dict[int, int],
) -> int:
    node = group.nodes[0]
    if gradients:  # those in f32 come first
        rounded = any(map(_is_conversion, group.nodes))
        return sum([*gradients.values()][len(gradients) // 2 :]) if rounded else 0
    if name.startswith(("convert_unary", "fattn_bf16_round")):
        return total
    if name.startswith("fattn_back_dots") and name.endswith(" true>"):
        return int(node["sources"][0]["bytes"]) // SIZES["f32"] * SIZES["bf16"]
    copies = [n for n in group.nodes if _is_conversion(n)]
    if copies and "+" not in group.op:
        return total
    written = {copy["result"]["at"]: copy["result"]["bytes"] for copy in copies}
    if node["node"] == "CROSS_ENTROPY_ROWS_BACK" and node["result"]["type"] != "f32":
        written[node["result"]["at"]] = node["result"]["bytes"]
    return sum(written.get(at, 0) for at, _ in operands)


def _is_conversion(node: dict[str, Any]) -> bool:
    return (
        _name(node) in ("CPY", "CONT", "DUP")
        and node["result"]["type"] != node["sources"][0]["type"]
    )


def _product(event: dict[str, Any], group: _Group, vocab: int) -> Launch:
    m, n, k, batch = (event[key] for key in ("m", "n", "k", "batch"))
    size, result = SIZES[event["type"]], SIZES[event["type_result"]]
    added = event["adds"]
    total = batch * (size * (m * k + k * n) + result * m * n * (2 if added else 1))
    unit = "tf32" if event["tf32"] and event["type"] == "f32" else event["type"]
    # Only tensor cores need whole vectors.
    kind = "product" if event["aligned"] or unit == "f32" else "unaligned product"
    name = f"{event['product']} {event['type']}"
    operations = 2 * m * n * k * batch
    return Launch(name, group.op, _part(group, vocab), unit, kind, 0, total, 0, operations)
