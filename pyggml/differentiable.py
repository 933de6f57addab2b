# SPDX-License-Identifier: MIT
"""What ggml can differentiate, and the checks that keep its backward from aborting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ._lib import ffi, lib
from .errors import DTypeError, GradientError, ShapeError
from .node import Node
from .tensor import Tensor

__all__ = ["check_path", "check_request", "op_name", "walk"]

# Ops whose gradient ggml_compute_backward builds; the rest would abort there.
_OPS = """
    DUP ADD ADD1 ACC SUB MUL DIV SQR SQRT LOG SIN COS SUM SUM_ROWS MEAN REPEAT REPEAT_BACK NORM
    RMS_NORM MUL_MAT SCALE SET CPY CONT RESHAPE VIEW PERMUTE TRANSPOSE GET_ROWS DIAG_MASK_INF
    DIAG_MASK_ZERO SOFT_MAX ROPE IM2COL POOL_2D CROSS_ENTROPY_LOSS CROSS_ENTROPY_ROWS
""".split()
_UNARY = "ABS SGN NEG STEP RELU SILU EXP EXPM1 SOFTPLUS GELU GELU_QUICK GELU_ERF".split()
_GLU = ["SWIGLU"]


def op_name(ptr: Any) -> str:
    """ggml's name of a node's op, such as MUL_MAT or GELU."""
    return str(ffi.string(lib.ggml_op_desc(ptr)).decode())


def walk(roots: Iterable[Node], done: set[int]) -> list[Node]:
    """Nodes below `roots` that are not in `done`, sources first; without recursion."""
    order: list[Node] = []
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
            elif id(node) not in done:
                done.add(id(node))
                stack.append((node, True))
                stack.extend((s, False) for s in reversed(node.srcs) if id(s) not in done)
    return order


def check_request(
    loss: Tensor | None, grads: Mapping[Tensor, Tensor], seed: Tensor | None
) -> dict[int, tuple[Node, Tensor]]:
    """Check what a backward is asked for; returns parameter and gradient by the node's id."""
    if loss is None:
        if grads:
            raise ValueError("graph: grads need a loss; pass loss=")
        return {}
    if loss.size != 1 or loss.dtype.name != "f32" or loss.is_stored:
        raise ShapeError(
            "backward: the loss must be a recorded f32 tensor of one element;"
            f" got {loss!r}; reduce it with .sum() or .mean()"
        )
    if not grads:
        raise GradientError("backward: no parameter given; set requires_grad=True on one")
    if seed is not None and (seed.size != 1 or not seed.is_stored or seed.dtype.name != "f32"):
        raise ShapeError(f"backward: loss_grad must be a stored f32 scalar; got {seed!r}")
    for param, grad in grads.items():
        if not param.is_stored or param.dtype.name != "f32":
            raise DTypeError(f"backward: parameters must be stored f32 tensors; got {param!r}")
        if grad.node is param.node:
            raise ValueError("backward: a parameter cannot be its own gradient")
        if not grad.is_stored or grad.dtype.name != "f32" or grad.shape != param.shape:
            raise ShapeError(
                f"backward: the gradient of {param!r} must be stored, f32 and of its shape;"
                f" got {grad!r}"
            )
    return {id(p.node): (p.node, g) for p, g in grads.items()}


def _differentiable(ptr: Any) -> bool:
    if ptr.op == lib.GGML_OP_UNARY:
        name = ffi.string(lib.ggml_unary_op_name(lib.ggml_get_unary_op(ptr))).decode()
        return name in _UNARY
    if ptr.op == lib.GGML_OP_GLU:
        name = ffi.string(lib.ggml_glu_op_name(lib.ggml_get_glu_op(ptr))).decode()
        return name in _GLU and ptr.src[1] != ffi.NULL
    return ffi.string(lib.ggml_op_name(ptr.op)).decode() in _OPS


def check_path(forward: list[Node], loss: Node, params: set[int]) -> None:
    """Refuse what ggml_build_backward_expand would abort on."""
    needed: set[int] = set()
    for node in forward:
        leads = id(node) in params or any(id(s) in needed for s in node.srcs)
        if leads and node.ptr.type != lib.GGML_TYPE_I32:
            needed.add(id(node))
    if id(loss) not in needed:
        raise GradientError("backward: no parameter leads to the loss")
    for node in walk([loss], set()):
        if id(node) not in needed or node.buffer is not None:
            continue
        if not _differentiable(node.ptr):
            raise GradientError(
                f"backward: {op_name(node.ptr)} of shape {node.shape}, recorded at {node.where},"
                " has no gradient; detach its input, or compute the loss another way"
            )
        if node.ptr.type != lib.GGML_TYPE_F32:
            name = ffi.string(lib.ggml_type_name(node.ptr.type)).decode()
            raise GradientError(
                f"backward: gradients flow through f32 only; {op_name(node.ptr)}, recorded at"
                f" {node.where}, makes {name}"
            )
