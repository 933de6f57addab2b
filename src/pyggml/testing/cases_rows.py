# SPDX-License-Identifier: MIT
"""Rows of reading and writing parts, experts, and ops that only move elements."""

from __future__ import annotations

import numpy as np

from .. import ops
from ..tensors.create import tensor
from ..tensors.tensor import Tensor
from . import references as r
from .case import Case

__all__ = ["BATCHED", "CASES"]


def mul_mat_id_op(experts: Tensor, x: Tensor) -> Tensor:
    return ops.mul_mat_id(experts, x, tensor(r.EXPERTS))


def concat_op(*tensors: Tensor) -> Tensor:
    return ops.concat(tensors, -1)


BATCHED = np.array([[[4, 0], [2, 2], [1, 3]], [[0, 4], [3, 1], [1, 1]]], np.int32)

CASES: list[Case] = [
    Case("mul_mat_id", mul_mat_id_op, r.mul_mat_id, ((4, 5, 6), (3, 1, 6))),
    Case("mul_mat_id", mul_mat_id_op, r.mul_mat_id, ((4, 5, 6), (3, 2, 6))),
    Case(
        "add_id",
        lambda x, b: ops.add_id(x, b, tensor(r.EXPERTS)),
        lambda x, b: x + b[r.EXPERTS],
        ((3, 2, 6), (4, 6)),
    ),
    Case("get_rows", lambda t: ops.get_rows(t, tensor(r.IDS)), lambda t: t[r.IDS], ((5, 6),)),
    Case(
        "get_rows",
        lambda t: ops.get_rows(t, tensor(BATCHED)),
        lambda t: np.take_along_axis(t, BATCHED[..., None], -2),
        ((2, 3, 5, 6),),
        variant="batched",
    ),
    Case(
        "get_rows",
        lambda t: ops.get_rows(t, tensor(BATCHED[0])),
        lambda t: np.take_along_axis(t, BATCHED[0][..., None], -2),
        ((4, 5, 3),),
        view=(2, 1, 0),
        variant="batched",
    ),
    *(
        Case(
            "set_rows",
            lambda d, s, at=at: ops.set_rows(d, s, tensor(at)),
            lambda d, s, at=at: r.set_rows(d, s, at),
            shapes,
            view=view,
            variant=variant,
        )
        for variant, at, shapes, view in [
            ("", np.array([4, 1], np.int64), ((5, 3), (2, 3)), None),
            ("", np.array([0], np.int32), ((1, 1), (1, 1)), None),
            ("", np.array([2, 0], np.int32), ((3, 4, 2), (2, 2, 3)), (2, 1, 0)),
            ("batched", np.array([[3, 0], [1, 2], [0, 4]]), ((3, 5, 6), (3, 2, 6)), None),
        ]
    ),
    Case("broadcast_to", ops.broadcast_to, np.broadcast_to, ((3, 1),), extra=((2, 3, 4),)),
    Case("repeat", ops.repeat, lambda x, s: np.tile(x, (2, 3)), ((2, 5),), extra=((4, 15),)),
    Case(
        "concat",
        lambda a, b: ops.concat([a, b], 1),
        lambda a, b: np.concatenate([a, b], 1),
        ((2, 3, 4), (2, 5, 4)),
    ),
    Case("cont", ops.cont, lambda x: x, ((4, 5, 3),), view=(1, 0, 2)),
    Case("cast", lambda x: ops.cast(x, "f16"), lambda x: x, ((4, 5),)),
    Case("cast", lambda x: ops.cast(ops.cast(x, "bf16"), "f32"), lambda x: x, ((1,),), low=2),
    Case("reshape", ops.reshape, np.reshape, ((4, 5, 3),), extra=((2, -1),)),
    Case("reshape", ops.reshape, np.reshape, ((4, 5, 3),), extra=((2, 30),), view=(2, 1, 0)),
    Case("permute", ops.permute, np.transpose, ((2, 3, 4, 5),), extra=((3, 1, 0, 2),)),
    Case("permute", ops.permute, np.transpose, ((2, 3, 4),), extra=((2, 0, 1),)),
    Case("transpose", ops.transpose, lambda x: x.swapaxes(-1, -2), ((2, 3, 4),)),
    *(
        Case("getitem", lambda x, i: x[i], lambda x, i: x[i], ((4, 5, 6),), extra=(index,), view=v)
        for index, v in [
            (np.s_[1:3], None),
            (np.s_[:, 2], None),
            (np.s_[..., 1:4], None),
            (np.s_[-1, :, 2], None),
            (np.s_[2, 3, 4], None),
            (np.s_[:, 1:, 2:3], (2, 0, 1)),
        ]
    ),
    Case(
        "repeat", ops.repeat, lambda x, s: np.tile(x, (2, 1, 3)), ((2, 1, 5),), extra=((4, 1, 15),)
    ),
    Case(
        "repeat",
        ops.repeat,
        lambda x, s: np.tile(x, (3, 2)),
        ((5, 2),),
        extra=((6, 10),),
        view=(1, 0),
    ),
    Case("repeat_back", ops.repeat_back, r.repeat_back, ((4, 6, 3, 10),), extra=((2, 1, 3, 5),)),
    Case("repeat_back", ops.repeat_back, r.repeat_back, ((4, 6),), extra=((3, 2),), view=(1, 0)),
    Case("repeat_back", ops.repeat_back, r.repeat_back, ((3, 5, 8),), extra=((1, 1, 8),)),
    Case("acc", ops.acc, r.acc, ((4, 5, 6), (2, 3, 4)), extra=((1, 0, 2),)),
    Case("acc", ops.acc, r.acc, ((5, 4), (1, 3)), extra=((2, 1),), view=(1, 0)),
    Case("set", ops.set, r.put, ((4, 5, 6), (2, 3, 4)), extra=((1, 0, 2),)),
    Case("set", ops.set, r.put, ((5, 4), (1, 3)), extra=((2, 1),), view=(1, 0)),
    Case("add1", ops.add1, np.add, ((3, 5, 2), (1,))),
    Case("add1", ops.add1, np.add, ((3, 5), ()), view=(1, 0)),
    Case("fill", ops.fill, np.full_like, ((3, 4),), extra=(1.5,)),
    Case("concat", concat_op, r.concat, ((2, 3, 4), (2, 3, 1), (2, 3, 6))),
    Case("concat", concat_op, r.concat, ((4, 3), (3, 2)), view=(1, 0)),
]
