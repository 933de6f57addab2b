# SPDX-License-Identifier: MIT
"""What would abort in ggml is refused, with a message that says what came and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import DTypeError, ShapeError, ops


def t(*shape: int, dtype: str = "f32") -> pg.Tensor:
    return pg.ones(shape, dtype=dtype)


def trained(*shape: int) -> pg.Tensor:
    return pg.tensor(np.ones(shape), requires_grad=True)


q, kv = (2, 4, 5, 8), (2, 2, 7, 8)
flash = ops.flash_attn_ext
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: flash(t(4, 5, 8), t(*kv), t(*kv)), ShapeError, "q must have 4 axes"),
    (lambda: flash(t(2, 3, 5, 8), t(*kv), t(*kv)), ShapeError, "H a multiple of G"),
    (lambda: flash(t(*q), t(3, 2, 7, 8), t(3, 2, 7, 8)), ShapeError, "needs q"),
    (lambda: flash(t(*q), t(*kv), t(2, 1, 7, 8)), ShapeError, "needs q"),
    (lambda: flash(t(*q), t(*kv), t(*kv, dtype="f16")), DTypeError, "v must be f32"),
    (lambda: flash(t(*q, dtype="f16"), t(*kv), t(*kv)), DTypeError, "q must be f32"),
    (lambda: flash(t(*q), t(*kv), t(*kv), t(5, 6)), ShapeError, r"mask must be .*\(5, 7\)"),
    (lambda: flash(t(*q), t(*kv), t(*kv), t(3, 5, 7)), ShapeError, "extents dividing"),
    (lambda: flash(t(*q), t(*kv), t(*kv), trained(5, 7)), ValueError, "mask cannot require"),
    (lambda: flash(t(*q), t(*kv), t(*kv), max_bias=8), ValueError, "give a mask"),
    (lambda: flash(t(*q), t(*kv), t(*kv), softcap=-1), ValueError, "softcap"),
    (lambda: flash(t(*q), t(*kv), t(*kv), scale=np.nan), ValueError, "scale"),
    (lambda: flash(t(*q), t(*kv), t(*kv), sinks=t(3)), ShapeError, "sinks must be"),
    (lambda: ops.soft_max(t(4), t(4, 4)), ShapeError, "a mask needs x"),
    (lambda: ops.soft_max(t(2, 3, 4), max_bias=1.0), ValueError, "give a mask"),
    (lambda: ops.soft_max(t(2, 3, 4), sinks=t(3)), ShapeError, r"sinks must be \(H,\) = \(2,\)"),
    (lambda: ops.soft_max(t(2, 3, 4), t(3, 4, dtype="bf16")), DTypeError, "mask must be f32 or"),
    (lambda: ops.solve_tri(t(3, 4), t(3, 2)), ShapeError, "solve_tri: needs"),
    (lambda: ops.solve_tri(t(2, 3, 3), t(3, 2)), ShapeError, "solve_tri: needs"),
    (lambda: ops.xielu(t(3), beta=np.inf), ValueError, "beta"),
    (lambda: ops.swiglu_oai(t(2, 3)), ShapeError, "both halves"),
    (lambda: ops.swiglu_oai(t(2, 4), t(2, 3)), ShapeError, "one shape"),
    (lambda: ops.swiglu_oai(t(2, 4), limit=0), ValueError, "limit above 0"),
    (lambda: ops.acc(t(4, 5), t(2, 3), (3, 0)), ShapeError, "within x"),
    (lambda: ops.set(t(4, 5), t(2, 3), (0, -1)), ShapeError, "within x"),
    (lambda: ops.set(t(4, 5), t(3), (0, 0)), ShapeError, "within x"),
    (lambda: ops.acc(t(4), t(2), (0.5,)), TypeError, "whole numbers"),  # type: ignore[arg-type]
    (lambda: ops.add1(t(4), t(2)), ShapeError, "one element"),
    (lambda: ops.diag_mask_inf(t(4, 4), -1), ValueError, "n_past must be"),
    (lambda: ops.diag_mask_zero(t(4)), ShapeError, "x must have"),
    (lambda: ops.repeat_back(t(4, 6), (3, 6)), ShapeError, "must divide"),
    (lambda: ops.repeat_back(t(6), (2, 3)), ShapeError, "must divide"),
    (lambda: ops.win_part(t(4, 4, 2), 0), ValueError, "w must be"),
    (lambda: ops.win_unpart(t(3, 2, 2, 1), 4, 4), ShapeError, "win_unpart: x must be"),
    (lambda: ops.win_unpart(t(4, 2, 3, 1), 4, 4), ShapeError, "win_unpart: x must be"),
    (lambda: ops.interpolate(t(4, 4), (2,)), ShapeError, "rows and columns"),  # type: ignore[arg-type]
    (lambda: ops.interpolate(t(4, 4), (2, 2), "cubic"), ValueError, "mode must be one of"),
    (lambda: ops.interpolate(t(4, 4), (2, 2), "bicubic", False, True), ValueError, "antialias"),
    (lambda: ops.interpolate(t(4, 4), (2, 2), "nearest", True), ValueError, "align_corners"),
    (lambda: ops.im2col_3d(t(5, 4, 4, 4), 2, 2), ShapeError, "C=2"),
    (lambda: ops.im2col_3d(t(4, 1, 4, 4), 2, 2), ShapeError, "at least as large"),
    (lambda: ops.im2col_3d(t(4, 4, 4, 4), 2, (2, 2)), ValueError, "one or three integers"),
    (lambda: ops.conv_3d(t(4, 4, 4, 4), t(3, 2, 2, 2), 2), ShapeError, "O·C"),
    (lambda: ops.cross_entropy_loss(t(2, 3), t(2, 4)), ShapeError, "one shape"),
    (lambda: ops.cross_entropy_loss(t(2, 3), trained(2, 3)), ValueError, "labels cannot"),
    (lambda: ops.get_rows(t(2, 4, 3), pg.tensor([0, 1])), ShapeError, "equal leading extents"),
    (lambda: ops.get_rows(t(2, 4, 3), pg.tensor([[0], [4]])), ShapeError, "from 0 to 3"),
    (lambda: ops.set_rows(t(2, 4, 3), t(2, 1, 3), pg.tensor([[0]])), ShapeError, "set_rows: needs"),
    (lambda: ops.set_rows(t(4, 3), t(1, 3), pg.tensor([4])), ShapeError, "from 0 to 3"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_sizes_beyond_ggmls_integers_are_refused_without_memory() -> None:
    large = ops.broadcast_to(t(1, 1), (2**15, 2**16))
    with pytest.raises(ShapeError, match="32-bit offsets"):
        ops.acc(large, t(1, 1), (2**14, 0))
    with pytest.raises(ShapeError, match="32-bit counts"):
        ops.diag_mask_inf(ops.broadcast_to(t(1, 1, 1), (2**15, 2**15, 1)))


def test_a_mask_of_f32_and_of_f16_are_one() -> None:
    rng = np.random.default_rng(0)
    a, b = pg.tensor(rng.normal(size=q)), pg.tensor(rng.normal(size=kv))
    mask = np.triu(np.full((5, 7), -np.inf), 3)
    got = flash(a, b, b, pg.tensor(mask)).numpy()
    np.testing.assert_array_equal(flash(a, b, b, pg.tensor(mask, "f16")).numpy(), got)
