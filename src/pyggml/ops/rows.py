# SPDX-License-Identifier: MIT
"""Reading and writing rows by number, and copying into stored tensors."""

from __future__ import annotations

from ..backend.library import ffi, lib
from ..errors import DTypeError, ShapeError, fitting
from ..tensors.node import Node
from ..tensors.on_demand import on_demand
from ..tensors.record import record
from ..tensors.row_limits import check_rows, is_below, limit_rows, note_look, row_limit
from ..tensors.storage import read
from ..tensors.tensor import Tensor
from ..tensors.tracing import is_input, outer
from ..tensors.truth import change_truth, is_mask
from .operands import apart, contiguous, need_dtype, need_ndim, need_tensor
from .shape import reshape

__all__ = [
    "check_row_numbers",
    "compute_wholes",
    "cpy",
    "get_rows",
    "set_rows",
    "stored_source",
]

_JOINS = (lib.GGML_OP_CONCAT, lib.GGML_OP_REPEAT)
_VIEWS = (lib.GGML_OP_RESHAPE, lib.GGML_OP_VIEW, lib.GGML_OP_PERMUTE, lib.GGML_OP_CONT)


def stored_source(node: Node) -> Node:
    """Return the stored node that views and reordered copies come from."""
    while node.buffer is None and node.ptr.op in _VIEWS:
        node = node.srcs[0]
    return node


def check_row_numbers(who: str, name: str, rows: Tensor, limit: int) -> None:
    """Raise unless row numbers are below `limit`, now and whenever they are written.

    What a graph computes from other than row numbers is computed now; in a function that is being
    recorded it raises.
    """
    if not all(_has_limit(node, limit) for node in _joined(rows.node)):
        if outer() is not None:
            raise ShapeError(
                f"{who}: {name}, row numbers, must be stored, or come from argmax over at most"
                f" {limit} columns, while {outer()} records a function; got {rows.describe()}:"
                " make them an argument of the function, or compute them outside of it"
            )
        compute_wholes(rows)
    for node in _joined(rows.node):
        if node.buffer is not None and not is_below(node, limit):
            check_rows(who, read(node), limit, f"{name}, row numbers,")
            limit_rows(node, limit)
            note_look(node)


def _has_limit(node: Node, limit: int) -> bool:
    """Return True for what is stored, and for numbers that are known to be below `limit`."""
    known = row_limit(node)
    return node.buffer is not None or (known is not None and known <= limit)


def _joined(node: Node) -> list[Node]:
    """Return the nodes that have all numbers of a node: stored ones where it is no result."""
    found: list[Node] = []
    todo = [node]
    while todo:
        at = stored_source(todo.pop())
        if at.buffer is None and at.ptr.op in _JOINS:
            todo += at.srcs
        elif at not in found:
            found.append(at)
    return found


def compute_wholes(x: Tensor) -> None:
    """Compute whole numbers that a graph would compute, unless a function is being recorded."""
    if outer() is None and stored_source(x.node).buffer is None:
        x.numpy()


@fitting
def get_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Look rows of a table up by number: an embedding.

    Args:
        table: f32, f16, bf16 or quantised, which comes as f32; or i32, which stays exact.
        ids: i32 row numbers. From here on, writing numbers that are no rows into a stored `ids`
            raises.

    Shape:
        table (V, C), ids (...) -> (..., C), ids with up to three axes; with a table for each
        batch: table (B, V, C), ids (B, M) -> (B, M, C), and with one more axis of both

    Raises:
        ShapeError: the leading extents differ, or a number is not a row of the table.
        DTypeError: ids are not i32.

    Source: ggml_get_rows.

    Example:
        >>> get_rows(ones((10, 4)), tensor([[1, 2, 3]])).shape
        (1, 3, 4)
    """
    need_tensor("get_rows", "table", table)
    need_tensor("get_rows", "ids", ids)
    need_ndim("get_rows", "table", table, 2, 3, 4)
    need_ndim("get_rows", "ids", ids, 0, 1, 2, 3)
    need_dtype("get_rows", "ids", ids, "i32")
    if not (table.dtype.is_float or table.dtype.quantized or table.dtype.name == "i32"):
        raise DTypeError(
            f"get_rows: table must be i32, or a float or quantised dtype; got {table.dtype}"
        )
    check_row_numbers("get_rows", "ids", ids, table.shape[-2])
    if table.ndim > 2 and ids.shape[:-1] != table.shape[:-2]:
        raise ShapeError(
            "get_rows: needs table (..., V, C) and ids (..., M) with equal leading extents;"
            f" got {table.shape} and {ids.shape}"
        )
    return _rows(table, ids)


@on_demand
def _rows(table: Tensor, ids: Tensor) -> Tensor:
    """Look rows up by numbers that have been checked."""
    if table.ndim > 2:
        args = [contiguous(table), contiguous(ids)]
        return record(lib.ggml_get_rows, args, (*ids.shape, table.shape[-1]))
    flat = contiguous(reshape(ids, (ids.numel(),)))
    rows = record(lib.ggml_get_rows, [contiguous(table), flat], (ids.numel(), table.shape[1]))
    return reshape(rows, (*ids.shape, table.shape[1]))


@fitting
def set_rows(dst: Tensor, src: Tensor, rows: Tensor) -> Tensor:
    """Write rows into a tensor when the graph runs.

    A stored `dst` that requires no gradient is written in place; another one, and an input of a
    function that is being recorded (`compile`, `value_and_grad`, …), is copied first, and gets the
    gradient of the rows that were not overwritten.

    Args:
        dst: f32; stored, also f16 or bf16.
        src: f32 rows to write; rows of dst are read before any is written.
        rows: where to write each, i32 or i64; no two equal.

    Shape:
        dst (..., N, C), src (..., M, C), rows (M,) or with src's leading extents -> as dst

    Returns:
        dst as it is after the write. Read from it, not from dst, to see the new rows.

    Raises:
        ShapeError: the extents do not fit, or a number is not a row of dst.
        DTypeError: a dtype is another.

    Source: ggml_set_rows.
    """
    for name, x in (("dst", dst), ("src", src), ("rows", rows)):
        need_tensor("set_rows", name, x)
    need_ndim("set_rows", "dst", dst, 2, 3, 4)
    need_dtype("set_rows", "src", src, "f32")
    in_place = dst.is_stored and not dst.requires_grad and not is_input(dst.node)
    need_dtype("set_rows", "dst", dst, *(("f32", "f16", "bf16") if in_place else ("f32",)))
    need_dtype("set_rows", "rows", rows, "i64", "i32")
    lead = dst.shape[:-2]
    fits = (
        rows.ndim > 0
        and src.shape == (*lead, rows.shape[-1], dst.shape[-1])
        and (rows.ndim == 1 or rows.shape[:-1] == lead)
    )
    if not fits:
        raise ShapeError(
            "set_rows: needs dst (..., N, C), src (..., M, C), rows (M,) or (..., M);"
            f" got {dst.shape}, {src.shape}, {rows.shape}"
        )
    check_row_numbers("set_rows", "rows", rows, dst.shape[-2])
    if in_place and not is_mask(src.node):
        change_truth(dst.node, False)
    # Rows of dst itself, as they were before any was written.
    src = apart(contiguous(src), dst) if in_place else contiguous(src)
    target = dst if in_place else record(lib.ggml_cont, [dst], dst.shape)
    return record(lib.ggml_set_rows, [target, src, contiguous(rows)], dst.shape)


@fitting
def cpy(src: Tensor, dst: Tensor) -> Tensor:
    """Copy into a stored tensor or a view of one, in place, when the graph runs.

    Args:
        src: what to write; where it shares memory with dst, all is read before any is written.
        dst: stored tensor or view of one.

    Shape:
        src as dst -> as dst

    Returns:
        dst as it is after the copy.

    Raises:
        ShapeError: the shapes differ.
        DTypeError: a dtype is not f32, f16 or bf16.
        ValueError: dst is not stored, nor a view of what is, or it requires a gradient, or it is
            an input of a function that is being recorded.

    Source: ggml_cpy.
    """
    need_tensor("cpy", "src", src)
    need_tensor("cpy", "dst", dst)
    if src.shape != dst.shape:
        raise ShapeError(
            f"cpy: the shapes of src and dst must be equal; got {src.shape} and {dst.shape}"
        )
    # Whole numbers may be row numbers, which are checked when `copy_` writes them.
    for name, x in (("src", src), ("dst", dst)):
        need_dtype("cpy", name, x, "f32", "f16", "bf16")
    if dst.requires_grad:
        raise ValueError("cpy: dst must not require a gradient; use dst.copy_(src)")
    root = dst.node
    while root.buffer is None and root.ptr.op in _VIEWS[:3] and root.ptr.src[0] != ffi.NULL:
        root = root.srcs[0]
    if root.buffer is None:
        raise ValueError("cpy: dst must be stored, or a view of a stored tensor; use t.copy_")
    if is_input(root):
        raise ValueError(
            "cpy: dst must not be an input of the function that is being recorded, which would be"
            f" overwritten; got shape {dst.shape}: use set_rows, or return src"
        )
    if not is_mask(src.node):
        change_truth(root, False)
    return record(lib.ggml_cpy, [apart(src, dst), dst], dst.shape, False)
