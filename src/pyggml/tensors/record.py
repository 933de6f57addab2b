# SPDX-License-Identifier: MIT
"""Recording an op, and detaching a tensor from its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..backend.library import ffi, lib
from ..errors import BackendError, ShapeError
from .node import Node, recorder
from .operators import register
from .storage import check_size
from .tensor import Tensor

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
    who = who or fn.__name__.removeprefix("ggml_")
    check_size(who, shape)
    sources = [a for a in args if isinstance(a, Tensor)]
    where = sources[0].device
    for source in sources:
        if source.device is not where:
            names = ", ".join(s.device.name for s in sources)
            raise BackendError(f"{who}: tensors must be on one device; got {names}")
    arena = recorder.room()
    try:
        ptr = fn(arena.ctx, *[a.ptr if isinstance(a, Tensor) else a for a in args])
    except OverflowError as error:
        raise ShapeError(f"{who}: a number is too large for ggml: {error}") from None
    node = Node(
        ptr,
        arena,
        where,
        shape,
        tuple(s.node for s in sources),
        requires_grad=differentiable and any(s.requires_grad for s in sources),
    )
    return Tensor(node)


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
    return cut


register("without_gradient", without_gradient)
