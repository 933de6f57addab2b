# SPDX-License-Identifier: MIT
"""Recording an op, and detaching a tensor from its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..backend.library import ffi, lib
from ..errors import BackendError, ShapeError
from .live import hold, is_operand
from .node import Node, expanding, recorder
from .operators import register
from .storage import MAX_ELEMENTS, check_size
from .tensor import Tensor
from .tracing import is_tracing
from .truth import as_mask_of, note_result

__all__ = ["record", "without_gradient"]


def record(
    fn: Callable[..., Any],
    args: Sequence[Any],
    shape: tuple[int, ...],
    differentiable: bool = True,
    who: str | None = None,
) -> Tensor:
    """Record one ggml op.

    Args:
        fn: builder of ggml that takes a context and then `args`.
        args: tensors, passed as `ggml_tensor *`, and plain C values.
        shape: Python shape of the result.
        differentiable: False when no gradient can come back through it.
        who: the function that the user called, for messages; None is the builder's name.

    Raises:
        BackendError: the tensors are on different devices.
    """
    if math.prod(shape) >= MAX_ELEMENTS:
        check_size(who or _name(fn), shape)
    nodes: list[Node] = []
    values: list[Any] = []
    trained = False
    for a in args:
        if isinstance(a, Tensor):
            node = a.node
            nodes.append(node)
            values.append(node.ptr)
            trained = trained or node.requires_grad
        else:
            values.append(a)
    where = nodes[0].device
    for node in nodes:
        if node.device is not where:
            names = ", ".join(n.device.name for n in nodes)
            raise BackendError(f"{who or _name(fn)}: tensors must be on one device; got {names}")
    arena = recorder.room()
    try:
        ptr = fn(arena.ctx, *values)
    except OverflowError as error:
        raise ShapeError(f"{who or _name(fn)}: a number is too large for ggml: {error}") from None
    node = Node(ptr, arena, where, shape, tuple(nodes), None, differentiable and trained)
    note_result(node, nodes)
    made = Tensor(node)
    # A trace's ops have the numbers of each run; those of a call are its own to hold.
    if not expanding.entries and not is_tracing() and not node.layout.views_stored:
        hold(made, filter(is_operand, nodes))
    return made


def _name(fn: Callable[..., Any]) -> str:
    return fn.__name__.removeprefix("ggml_")


def without_gradient(t: Tensor) -> Tensor:
    """Return a view of a tensor through which no gradient flows.

    Unlike `Tensor.detach` this computes nothing now.
    """
    # What shares memory may get its own when the graph is made: a copy stays the same.
    alone = t.is_stored or t.ptr.view_src == ffi.NULL
    source = t if alone else record(lib.ggml_cont, [t], t.shape)
    cut = record(lib.ggml_view_tensor, [source], t.shape, False)
    # A view that names no operand: ggml looks for no parameter behind it.
    cut.ptr.op = lib.GGML_OP_VIEW
    as_mask_of(source.node, cut.node)
    return cut


register("without_gradient", without_gradient)
