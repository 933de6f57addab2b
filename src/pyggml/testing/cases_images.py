# SPDX-License-Identifier: MIT
"""Rows of convolution, pooling, padding and resizing."""

from __future__ import annotations

from typing import Any

from .. import ops
from . import references as r
from . import references_images as im
from .case import Case

__all__ = ["CASES"]


_RESIZED: list[tuple[str, Any, tuple[int, int], tuple[Any, ...]]] = [
    ("nearest", im.resize_nearest, (6, 3), ("nearest",)),
    ("bilinear", im.resize_bilinear, (7, 3), ("bilinear",)),
    ("bilinear-align-corners", im.resize_bilinear, (7, 3), ("bilinear", True)),
    ("bilinear-antialias", im.resize_antialias, (3, 2), ("bilinear", False, True)),
    ("bicubic", im.resize_bicubic, (7, 3), ("bicubic",)),
    ("bicubic-align-corners", im.resize_bicubic, (7, 3), ("bicubic", True)),
]

CASES: list[Case] = [
    Case("pad", ops.pad, r.pad, ((2, 3, 4),), extra=([(1, 0), (2, 3)], "zeros")),
    Case("pad", ops.pad, r.pad, ((2, 3, 4, 2),), extra=([(0, 1), (1, 0), (2, 3), (0, 2)], "zeros")),
    Case(
        "pad",
        ops.pad,
        r.pad,
        ((2, 3, 4),),
        extra=([(1, 2), (3, 1)], "circular"),
        variant="circular",
    ),
    Case("pad_reflect", ops.pad_reflect, r.reflect, ((2, 3, 6),), extra=(3, 2)),
    Case("pad_reflect", ops.pad_reflect, r.reflect, ((5, 3, 4, 2),), extra=(1, 0)),
    Case("pad_reflect", ops.pad_reflect, r.reflect, ((4, 1, 5),), extra=(0, 3), view=(1, 2, 0)),
    Case("pad_reflect", ops.pad_reflect, r.reflect, ((7,),), extra=(6, 6)),
    Case("pad", ops.pad, r.pad, ((4, 3, 2),), extra=([(1, 2), (0, 1)], "zeros"), view=(1, 2, 0)),
    Case("roll", ops.roll, r.roll, ((5, 1, 4),), extra=([2, 0, 1],), view=(2, 1, 0)),
    Case("roll", ops.roll, r.roll, ((4, 3, 5),), extra=([1, -2],)),
    Case("roll", ops.roll, r.roll, ((2, 4, 3, 5),), extra=([1, 3, 0, 7],)),
    Case("upscale", ops.upscale, r.nearest, ((2, 3, 4, 5),), extra=(3,), variant="nearest"),
    Case(
        "upscale",
        ops.upscale,
        r.bilinear,
        ((2, 3, 4, 5),),
        extra=(2, "bilinear"),
        variant="bilinear",
    ),
    Case("upscale", ops.upscale, im.bicubic, ((2, 3, 4),), extra=(2, "bicubic"), variant="bicubic"),
    Case(
        "upscale",
        ops.upscale,
        r.bilinear,
        ((5, 1, 4),),
        extra=(3, "bilinear"),
        view=(1, 2, 0),
        variant="bilinear",
    ),
    *(
        Case(
            "interpolate", ops.interpolate, ref, ((2, 3, 4, 5),), extra=(size, *more), variant=name
        )
        for name, ref, size, more in _RESIZED
    ),
    *(
        Case(name, getattr(ops, name), ref, shapes, extra=extra)
        for name, ref in [("conv_2d", r.conv_2d), ("conv_2d_direct", r.conv_2d)]
        for shapes, extra in [
            (((2, 3, 6, 5), (4, 3, 3, 2)), ()),
            (((2, 3, 7, 8), (4, 3, 3, 3)), ((2, 1), (1, 2), (1, 2))),
            (((1, 1, 4, 4), (1, 1, 1, 1)), ()),
        ]
    ),
    Case("conv_2d_dw", ops.conv_2d_dw, r.conv_2d_dw, ((2, 3, 6, 5), (3, 1, 3, 2)), extra=(2, 1)),
    Case(
        "conv_2d_dw",
        ops.conv_2d_dw,
        r.conv_2d_dw,
        ((6, 5, 3, 2), (3, 1, 3, 3)),
        extra=(1, (2, 1)),
        view=(3, 2, 1, 0),
    ),
    Case("conv_2d_dw", ops.conv_2d_dw, r.conv_2d_dw, ((1, 1, 4, 4), (1, 1, 1, 1)), extra=(1, 0)),
    Case(
        "conv_transpose_2d",
        ops.conv_transpose_2d,
        r.conv_transpose_2d,
        ((2, 3, 4, 5), (3, 2, 3, 2)),
        extra=(2,),
    ),
    Case(
        "conv_transpose_2d",
        ops.conv_transpose_2d,
        r.conv_transpose_2d,
        ((5, 4, 1, 2), (2, 3, 1, 2)),
        extra=(1,),
        view=(2, 3, 1, 0),
    ),
    Case("conv_1d", ops.conv_1d, r.conv_1d, ((2, 3, 9), (4, 3, 3)), extra=(2, 1)),
    Case(
        "conv_transpose_1d",
        ops.conv_transpose_1d,
        r.conv_transpose_1d,
        ((3, 5), (3, 2, 4)),
        extra=(3,),
    ),
    Case("im2col", lambda x: ops.im2col(x, 2, 1, 1), r.im2col, ((2, 3, 4, 5),)),
    *(
        Case("pool_2d", ops.pool_2d, r.pool_2d, ((2, 3, 6, 7),), extra=extra, variant=extra[3])
        for extra in [(2, None, 0, "max"), ((3, 2), (1, 2), 1, "max"), ((3, 2), 2, 1, "avg")]
    ),
    *(
        Case("pool_1d", ops.pool_1d, r.pool_1d, ((2, 3, 9),), extra=extra, variant=extra[3])
        for extra in [(2, None, 0, "max"), (3, 2, 1, "max"), (3, 2, 1, "avg")]
    ),
    Case("conv_1d", ops.conv_1d, r.conv_1d, ((9, 3, 1), (2, 3, 1)), extra=(1, 0), view=(2, 1, 0)),
    Case(
        "conv_transpose_1d",
        ops.conv_transpose_1d,
        r.conv_transpose_1d,
        ((5, 1), (1, 3, 2)),
        extra=(1,),
        view=(1, 0),
    ),
    Case(
        "im2col_3d",
        ops.im2col_3d,
        im.im2col_3d,
        ((6, 4, 3, 5),),
        extra=(3, (2, 1, 3), (2, 1, 1), (1, 0, 1)),
    ),
    Case("im2col_3d", ops.im2col_3d, im.im2col_3d, ((2, 5, 4, 6),), extra=(1, 2, 1, 0, (2, 1, 3))),
    Case("conv_3d", ops.conv_3d, im.conv_3d, ((4, 4, 3, 5), (6, 2, 1, 3)), extra=(2, (2, 1, 1), 1)),
    Case(
        "pool_1d",
        ops.pool_1d,
        r.pool_1d,
        ((9, 1, 2),),
        extra=(3, 1, 0, "avg"),
        view=(2, 1, 0),
        variant="avg",
    ),
    Case("win_part", ops.win_part, im.win_part, ((5, 7, 3),), extra=(3,)),
    Case("win_part", ops.win_part, im.win_part, ((3, 4, 4),), extra=(2,), view=(2, 1, 0)),
    Case("win_unpart", ops.win_unpart, im.win_unpart, ((6, 3, 3, 2),), extra=(5, 7)),
]
