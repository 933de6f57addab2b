# SPDX-License-Identifier: MIT
"""Rows of attention, masks, dropout and losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..tensors.create import tensor
from ..tensors.tensor import Tensor
from . import references as r
from . import references_attention as a
from .case import Case

__all__ = ["CASES"]


def rope_op(x: Tensor, mode: str, base: float, dims: int) -> Tensor:
    positions = tensor(np.arange(x.shape[-3], dtype=np.int32))
    return ops.rope(x, positions, dims, mode, base)


def flash_op(q: Tensor, k: Tensor, v: Tensor, *rest: Tensor, **more: Any) -> Tensor:
    return ops.flash_attn_ext(q, k, v, sinks=rest[0] if rest else None, **more)


def _mask_on_device(more: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The arguments of a row; its mask becomes a tensor of the device of the moment."""
    return {**more, "mask": tensor(more["mask"], dtype)} if "mask" in more else more


def _flash(variant: str, *shapes: tuple[int, ...], view: Any = None, **more: Any) -> Case:
    def ref(q: r.Array, k: r.Array, v: r.Array, *rest: r.Array) -> r.Array:
        return a.attention(q, k, v, **more, **({"sinks": rest[0]} if rest else {}))

    def fn(*operands: Tensor) -> Tensor:
        return flash_op(*operands, **_mask_on_device(more, "f16"))

    return Case("flash_attn_ext", fn, ref, shapes, view=view, half=(1, 2), variant=variant)


def _soft_max(variant: str, *shapes: tuple[int, ...], view: Any = None, **more: Any) -> Case:
    def fn(x: Tensor, *rest: Tensor) -> Tensor:
        return ops.soft_max(x, sinks=rest[0] if rest else None, **_mask_on_device(more, "f32"))

    def ref(x: r.Array, *rest: r.Array) -> r.Array:
        return a.scores_softmax(x, **more, **({"sinks": rest[0]} if rest else {}))

    return Case("soft_max", fn, ref, shapes, view=view, variant=variant)


q, kv, v3 = (2, 6, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)

CASES: list[Case] = [
    _soft_max("plain", (4, 3, 5, 7)),
    _soft_max("plain", (1,)),
    _soft_max("plain", (5, 4, 3), view=(2, 1, 0)),
    _soft_max("mask", (4, 3, 5, 5), mask=r.MASK, scale=0.3),
    _soft_max("mask", (2, 6, 5, 7), mask=np.stack([a.DISTANCES, a.DISTANCES / 2])),
    _soft_max("alibi", (2, 6, 5, 7), mask=a.DISTANCES, max_bias=8.0, scale=0.5),
    _soft_max("sinks", (2, 3, 5, 7), (3,)),
    _soft_max("sinks", (5, 4, 1), (1,), view=(2, 1, 0)),
    _soft_max("mask-alibi-sinks", (2, 6, 5, 7), (6,), mask=a.DISTANCES, max_bias=4.0, scale=0.3),
    _flash("plain", q, kv, v3),
    _flash("plain", (1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
    _flash("plain", (2, 5, 6, 8), kv, v3, view=(0, 2, 1, 3)),
    _flash("mask", q, kv, v3, mask=a.DISTANCES),
    _flash("mask", (1, 2, 66, 4), (1, 1, 67, 4), (1, 1, 67, 4), mask=a.causal(66, 67)),
    _flash("alibi", q, kv, v3, mask=a.DISTANCES, max_bias=8.0),
    _flash("softcap", q, kv, v3, softcap=2.0),
    _flash("sinks", q, kv, v3, (6,)),
    _flash(
        "mask-alibi-softcap-sinks", q, kv, v3, (6,), mask=a.DISTANCES, max_bias=4.0, softcap=3.0
    ),
    _flash("wide-batch-mask", q, kv, v3, mask=np.stack([a.DISTANCES, a.DISTANCES * 2])[:, None]),
    *(
        Case("rope", rope_op, r.rope, shape, extra=extra, view=view, variant=extra[0])
        for shape, extra, view in [
            (((2, 7, 3, 8),), ("neox", 10000.0, 8), None),
            (((2, 7, 3, 8),), ("normal", 500.0, 8), None),
            (((7, 3, 10),), ("neox", 10000.0, 6), None),
            (((3, 7, 2, 8),), ("neox", 10000.0, 8), (2, 1, 0, 3)),
        ]
    ),
    *(
        Case(name, getattr(ops, name), ref, shape, extra=extra, view=view)
        for name, ref in [("diag_mask_zero", r.diag_mask_zero)]
        for shape, extra, view in [
            (((2, 3, 5, 7),), (2,), None),
            (((4, 5, 3),), (0,), (2, 0, 1)),
        ]
    ),
    Case(
        "diag_mask_inf",
        lambda x: ops.soft_max(ops.diag_mask_inf(x, 1)),
        lambda x: a.scores_softmax(x, a.causal(5, 6)),
        ((2, 3, 5, 6),),
    ),
    Case("dropout", ops.dropout, a.dropout, ((5, 3, 7, 2),), extra=(0.3, 2**40 + 7, 3)),
    Case("dropout", ops.dropout, a.dropout, ((3, 70, 4),), extra=(0.5, 1, 0), view=(2, 0, 1)),
    Case("dropout", ops.dropout, a.dropout, ((1,),), extra=(0.0, 5, 0)),
    Case(
        "cross_entropy_rows",
        lambda x: ops.cross_entropy_rows(x, tensor(r.TARGETS)),
        r.cross_entropy_rows,
        ((5, 7),),
        low=-9,
        high=9,
    ),
    Case(
        "cross_entropy",
        lambda x: ops.cross_entropy(x, tensor(r.TARGETS)),
        lambda x: r.cross_entropy_rows(x).sum() / 4,
        ((5, 7),),
    ),
    Case(
        "cross_entropy_loss",
        lambda x: ops.cross_entropy_loss(x, tensor(a.LABELS)),
        a.cross_entropy_loss,
        ((4, 6),),
        low=-9,
        high=9,
    ),
]
