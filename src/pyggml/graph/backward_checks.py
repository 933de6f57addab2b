# SPDX-License-Identifier: MIT
"""The ops that ggml differentiates, and the checks that keep its backward from aborting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..backend.headers import memory_of, op_kind, op_name, unary_name
from ..backend.library import ffi, lib
from ..errors import DTypeError, GradientError, ShapeError
from ..tensors.gradient_stops import is_detached, stop_gradients, stopped_by
from ..tensors.node import Node
from ..tensors.tensor import Tensor
from .pullbacks import PULLBACKS
from .walk import is_placeholder, walk

__all__ = [
    "backward_headers",
    "check_path",
    "check_reached",
    "check_request",
    "check_unread",
    "end_gradients",
]

# Ops whose gradient ggml_compute_backward builds; the rest would abort there.
_OPS = """
    DUP ADD ADD_ID ADD1 ACC SUB MUL DIV SQR SQRT LOG SIN COS SUM SUM_SQR SUM_ROWS CUMSUM MEAN REPEAT
    REPEAT_BACK CONCAT NORM RMS_NORM GROUP_NORM L2_NORM MUL_MAT MUL_MAT_ID OUT_PROD SCALE SET CPY
    CONT RESHAPE VIEW PERMUTE TRANSPOSE GET_ROWS SET_ROWS DIAG DIAG_MASK_INF DIAG_MASK_ZERO
    SOFT_MAX ROPE CLAMP CONV_TRANSPOSE_1D IM2COL IM2COL_3D CONV_2D CONV_2D_DW CONV_TRANSPOSE_2D
    POOL_1D POOL_2D UPSCALE PAD ROLL LEAKY_RELU TRI FILL FLASH_ATTN_EXT WIN_PART WIN_UNPART GLU
    SOLVE_TRI DROPOUT CROSS_ENTROPY_LOSS CROSS_ENTROPY_ROWS
""".split()
_UNARY = """
    ABS SGN NEG STEP TANH ELU RELU SIGMOID GELU GELU_QUICK SILU HARDSWISH HARDSIGMOID EXP EXPM1
    SOFTPLUS GELU_ERF XIELU FLOOR CEIL ROUND TRUNC
""".split()
# Piecewise constant: ggml does not look for parameters behind them.
_FLAT = "SGN STEP FLOOR CEIL ROUND TRUNC".split()
# Sources that an op reads for their shape or as row numbers: ggml looks for no parameter there.
_IGNORED = {
    "IM2COL": 0,
    "IM2COL_3D": 0,
    "FILL": 0,
    "CPY": 1,
    "GET_ROWS": 1,
    "ROPE": 1,
    "CROSS_ENTROPY_ROWS": 1,
}
# Sources that would need a gradient which ggml asserts it does not have.
_CONSTANT = {
    "SOFT_MAX": (1, "mask"),
    "FLASH_ATTN_EXT": (3, "mask"),
    "ROPE": (2, "freq_factors"),
    "CROSS_ENTROPY_LOSS": (1, "labels"),
}
# Ops whose result may be f16 or bf16 on the way to the loss: their gradient is f32 all the same.
_HALF = "DUP CPY CONT RESHAPE VIEW PERMUTE TRANSPOSE CONCAT REPEAT ADD SUB".split()
# Headers that the gradient of one op may make; ggml runs over a context that is too small.
_HEADERS = {"CONV_2D": 32, "CONV_TRANSPOSE_1D": 32, "PAD": 48}
_HEADERS_OTHERS = 16
_FLOATS = (lib.GGML_TYPE_F32, lib.GGML_TYPE_F16, lib.GGML_TYPE_BF16)
# ggml keeps the offset and the strides of a view's gradient in 32-bit integers.
_VIEW_OFFSET_END = 2**30
_VIEW_STRIDE_END = 2**31
# Where an op keeps that its padding is circular.
_PAD_CIRCULAR = 8


def check_request(
    loss: Tensor | None, grads: Mapping[Tensor, Tensor], seed: Tensor | None
) -> dict[int, tuple[Node, Tensor]]:
    """Check the arguments of a backward; return parameter and gradient by the node's id."""
    if loss is None:
        if grads:
            raise ValueError("graph: grads need a loss; pass loss=")
        return {}
    if loss.numel() != 1:
        raise ShapeError(
            "backward: the loss must be a tensor of one element;"
            f" got {loss.describe()}; reduce it with .sum() or .mean()"
        )
    if loss.dtype.name != "f32":
        raise DTypeError(
            f"backward: the loss must be f32; got {loss.describe()}; use .astype('f32')"
        )
    stop = stopped_by(loss.node)
    if stop is not None:
        raise GradientError(
            "backward: the loss must lead to its parameters through ops; got a loss made from"
            f" {stop}"
        )
    if loss.is_stored:
        raise GradientError(
            f"backward: the loss must be what an op returned; got {loss!r}, whose numbers are"
            " stored and lead to no parameter: it was made from numbers, detached, or computed"
            " from nothing that requires a gradient"
        )
    if not grads:
        raise GradientError("backward: no parameter given; set requires_grad=True on one")
    if seed is not None and (seed.numel() != 1 or not seed.is_stored or seed.dtype.name != "f32"):
        raise ShapeError(f"backward: loss_grad must be a stored f32 scalar; got {seed!r}")
    for param, grad in grads.items():
        if not (isinstance(param, Tensor) and isinstance(grad, Tensor)):
            raise TypeError(
                "backward: grads must map Tensors to Tensors;"
                f" got {type(param).__name__} and {type(grad).__name__}"
            )
        if not param.is_stored or param.dtype.name != "f32":
            raise DTypeError(f"backward: parameters must be stored f32 tensors; got {param!r}")
        if grad.node is param.node:
            raise ValueError("backward: a parameter cannot be its own gradient")
        made = grad.is_stored or is_placeholder(grad.node)
        if not made or grad.dtype.name != "f32" or grad.shape != param.shape:
            raise ShapeError(
                f"backward: the gradient of {param!r} must be stored, f32 and of its shape;"
                f" got {grad!r}"
            )
    transient = [id(g.node) for g in grads.values() if is_placeholder(g.node)]
    if len(set(transient)) < len(transient):
        raise ValueError("backward: each parameter needs a grad_of its own; one is given twice")
    return {id(p.node): (p.node, g) for p, g in grads.items()}


def check_unread(
    accumulate: Mapping[int, tuple[Node, Tensor]], nodes: Iterable[Node], seed: Tensor | None
) -> None:
    """Raise if a gradient would overwrite memory that the same graph reads.

    Args:
        accumulate: as `check_request` returns it.
        nodes: what the graph computes from.
        seed: what the backward starts from.
    """
    read = {memory_of(node.ptr) for node in nodes if node.buffer is not None}
    if seed is not None:
        read.add(memory_of(seed.node.ptr))
    for node, grad in accumulate.values():
        if grad.is_stored and memory_of(grad.node.ptr) in read:
            raise ValueError(
                f"graph: with overwrite=True the gradient of the parameter of shape {node.shape} is"
                " written over a tensor that the graph reads; give it a tensor of its own, or leave"
                " overwrite out"
            )


def backward_headers(forward: Iterable[Node]) -> int:
    """Return how many tensors the backward of these nodes may make."""
    return sum(_HEADERS.get(op_kind(node.ptr), _HEADERS_OTHERS) for node in forward)


def _differentiable(ptr: Any) -> bool:
    return unary_name(ptr) in _UNARY if ptr.op == lib.GGML_OP_UNARY else op_kind(ptr) in _OPS


def _source(node: Node, i: int) -> Node | None:
    """Return the recorded node behind src[i] of a header."""
    src = node.ptr.src[i]
    return next((s for s in node.srcs if s.ptr == src), None) if src != ffi.NULL else None


def _ignored(node: Node) -> Node | None:
    """Return the source whose parameters ggml does not look for."""
    if is_detached(node):
        return node.srcs[0]
    if node.ptr.op == lib.GGML_OP_UNARY:
        return node.srcs[0] if unary_name(node.ptr) in _FLAT else None
    which = _IGNORED.get(op_kind(node.ptr))
    return None if which is None else _source(node, which)


def _error(node: Node, why: str, cure: str) -> GradientError:
    return GradientError(
        f"backward: {op_name(node.ptr)} of shape {node.shape}, recorded at {node.where}, {why};"
        f" {cure}"
    )


def end_gradients(who: str, results: Iterable[Tensor], below: Iterable[Node]) -> None:
    """Mark copied results, so that a backward which would drop their gradients raises."""
    if any(node.requires_grad or stopped_by(node) for node in below):
        what = (
            f"what {who} returned, which is numbers alone; call the plain function, take"
            " pg.value_and_grad of a function that computes the whole loss, or .detach() the"
            " numbers to train only what follows them"
        )
        for result in results:
            if result.dtype.is_float:
                stop_gradients(what, result.node)


def check_path(forward: list[Node], loss: Node, params: Collection[int]) -> set[int]:
    """Raise for what ggml_build_backward_expand would abort on.

    Returns:
        The ids of the nodes that ggml will want a gradient of.
    """
    leads: set[int] = set()  # a parameter is below it
    needed: set[int] = set()  # and ggml will want its gradient
    # Whole numbers, and what is computed from them, by the op that made them of what has gradients.
    rounded: dict[int, Node] = {}
    for node in forward:
        own = id(node) in params
        if own or any(id(s) in leads for s in node.srcs):
            leads.add(id(node))
        ignored = _ignored(node) if node.buffer is None else None
        read = [s for s in node.srcs if s is not ignored]
        if node.ptr.type == lib.GGML_TYPE_I32:
            if any(id(s) in needed for s in read):
                rounded[id(node)] = node
        elif own or any(id(s) in needed for s in read):
            needed.add(id(node))
        for source in read:
            # As the numbers of rows and experts they change no gradient; as floats they would.
            if id(source) in rounded and (_is_float(source) or _converts(node)):
                rounded.setdefault(id(node), rounded[id(source)])
    if id(loss) not in leads:
        raise GradientError("backward: no parameter leads to the loss")
    if id(loss) in rounded:
        made = rounded[id(loss)]
        raise _error(made, "makes whole numbers, which have no gradient", "detach its input")
    for node in walk([loss], set()):
        if id(node) in needed and node.buffer is None:
            _check_node(node, needed)
    return needed


def check_reached(who: str, loss: Tensor, params: Iterable[Tensor]) -> None:
    """Raise where the gradient of a loss reaches none of the parameters.

    Args:
        who: the caller.
        loss: what the caller's user returned.
        params: the parameters that are trained.

    Raises:
        GradientError: names the line that detached the loss, or that recorded it.
    """
    wanted, seen = {id(p.node) for p in params}, set[int]()
    todo, detached = [loss.node], list[Node]()
    while todo:
        at = todo.pop()
        if id(at) in wanted:
            return
        if id(at) in seen or at.buffer is not None:
            continue
        seen.add(id(at))
        detached += [at] if is_detached(at) else []
        todo += at.srcs[1:] if is_detached(at) else at.srcs
    if loss.is_stored:
        return  # which the backward raises on
    last = detached[-1] if detached else loss.node
    raise GradientError(
        f"{who}: the loss must pass a gradient to a parameter that is trained; got one "
        f"{'detached' if detached else 'recorded'} at {last.where}, which passes none: compute it "
        "from what the model returned, without .detach()"
    )


def _is_float(node: Node) -> bool:
    return bool(node.ptr.type in _FLOATS)


def _converts(node: Node) -> bool:
    """Return True if an op of whole numbers passes them on, as whole numbers or as floats."""
    return bool(node.ptr.type == lib.GGML_TYPE_I32 or node.ptr.op == lib.GGML_OP_CPY)


def _check_node(node: Node, needed: set[int]) -> None:
    """Raise for a node whose own case in ggml_compute_backward would abort."""
    if node in PULLBACKS and id(node.srcs[0]) in needed:
        cure = "pass them as arguments, or .detach() them in it"
        raise _error(node, "is computed from parameters besides its arguments", cure)
    name = op_kind(node.ptr)
    if not _differentiable(node.ptr):
        cure = "detach its input, or compute the loss another way"
        raise _error(node, "has no gradient", cure)
    if node.ptr.type != lib.GGML_TYPE_F32 and not (name in _HALF and node.ptr.type in _FLOATS):
        made = ffi.string(lib.ggml_type_name(node.ptr.type)).decode()
        raise _error(node, f"makes {made}, for which it has no gradient", "cast to f32 before it")
    if name in _CONSTANT:
        which, what = _CONSTANT[name]
        source = _source(node, which)
        if source is not None and id(source) in needed:
            raise _error(node, f"has no gradient for its {what}", f"detach the {what}")
    if name == "VIEW" and id(node.srcs[0]) in needed:
        _check_view(node)
    # ggml adds the margins up with 32-bit offsets into a tensor that is not yet as small as x.
    circular = name == "PAD" and node.ptr.op_params[_PAD_CIRCULAR]
    if circular and lib.ggml_nbytes(node.ptr) >= _VIEW_OFFSET_END:
        raise _error(node, "pads circularly to 1 GiB or more", "pad smaller tensors")


def _check_view(node: Node) -> None:
    src, view = node.srcs[0].ptr, node.ptr
    if not lib.ggml_is_contiguous(src):
        raise _error(node, "views a tensor out of order", "make it contiguous() first")
    size = lib.ggml_type_size(src.type)
    offset = int(ffi.cast("size_t *", ffi.addressof(view, "op_params"))[0])
    widest = max(int(view.nb[i]) for i in (1, 2, 3)) // size * 4
    if offset // size * 4 >= _VIEW_OFFSET_END or widest >= _VIEW_STRIDE_END:
        raise _error(
            node,
            "begins 1 GiB or more into its source, or steps 2 GiB or more in it",
            "split the tensor before it grows so large",
        )
