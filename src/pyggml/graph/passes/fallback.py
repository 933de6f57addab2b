# SPDX-License-Identifier: MIT
"""The pass that counts the ops that a device leaves to the CPU; it raises where none takes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ...backend.device import Device
from ...backend.device import device as find_device
from ...backend.headers import MOVES, op_name
from ...backend.library import ffi, lib
from ...errors import BackendError
from ..plan import Plan

__all__ = ["count_fallbacks", "fallbacks"]


def count_fallbacks(plan: Plan) -> None:
    """Count what the CPU computes for the device."""
    plan.fallbacks = fallbacks(plan.order, plan.device)


def fallbacks(nodes: Iterable[Any], where: Device) -> dict[str, int]:
    """Count the ops that a device does not compute itself.

    ggml's scheduler hands such an op to the CPU, and copies its operands there and its result back.

    Args:
        nodes: `ggml_tensor *` of a graph.
        where: the device that it is for.

    Returns:
        Names of ops and how many of each the CPU computes, the most frequent first.

    Raises:
        BackendError: the CPU does not compute it either, or the op writes into a tensor that the
            device stores, which ggml cannot move and would abort for.

    Source:
        `ggml_backend_sched_backend_id_from_cur`.
    """
    cpu = find_device("cpu")
    found: Counter[str] = Counter()
    for node in nodes:
        if node.op in MOVES or where.supports(node):
            continue
        if not cpu.supports(node):
            raise BackendError(
                f"graph: {where.name} cannot compute {op_name(node)} of {_types(node)};"
                " cast the operands to f32"
            )
        if _is_held(node):
            raise BackendError(
                f"graph: {where.name} cannot compute {op_name(node)} of {_types(node)}, and the"
                f" CPU cannot write into a tensor that {where.name} stores; let the op make a new"
                " tensor (an op without an underscore or inplace=True), or keep the tensor on"
                ' device="cpu"'
            )
        found[op_name(node)] += 1
    return dict(found.most_common())


def _is_held(node: Any) -> bool:
    """Return True if an op writes into memory that is there before its graph is planned."""
    root = node if node.view_src == ffi.NULL else node.view_src
    return bool(root.buffer != ffi.NULL)


def _types(node: Any) -> str:
    operands = (node.src[k] for k in range(lib.GGML_MAX_SRC) if node.src[k] != ffi.NULL)
    return ", ".join(ffi.string(lib.ggml_type_name(t.type)).decode() for t in operands)
