# SPDX-License-Identifier: MIT
"""What ggml's backward would abort on is refused before, with op and line."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import GradientError, ops
from pyggml.tensors import record


def weight(*shape: int) -> pg.Tensor:
    return pg.tensor(np.random.default_rng(0).normal(size=shape), requires_grad=True)


def mirrored(x: pg.Tensor) -> pg.Tensor:
    """An op that has no gradient, and no function in pyggml.ops."""
    return record(pg.lib.ggml_pad_reflect_1d, [x, 1, 1], (x.numel() + 2,))


def test_an_op_without_gradient_is_named_with_its_line() -> None:
    y = mirrored(weight(4))
    with pytest.raises(GradientError, match=r"PAD_REFLECT_1D.*test_differentiable\.py:\d+"):
        y.sum().backward()


def test_half_products_have_no_gradient_but_half_sums_have() -> None:
    w = weight(3)
    half = w.astype("f16")
    with pytest.raises(GradientError, match=r"MUL .*makes f16"):
        (half * half).astype("f32").sum().backward()
    (half + half).astype("f32").sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("fn", [ops.floor, ops.ceil, ops.round, ops.trunc, ops.sgn, ops.step])
def test_a_piecewise_constant_function_has_a_gradient_of_zero(fn: object) -> None:
    w = weight(5)
    mirrored(fn(w)).sum().backward()  # type: ignore[operator]
    assert w.grad is not None
    assert w.grad.tolist() == [0] * 5


def test_row_numbers_of_a_parameter_carry_no_gradient() -> None:
    w, table = weight(3, 4), weight(4, 2)
    ops.get_rows(table, ops.argmax(w, -1)).sum().backward()
    assert table.grad is not None
    assert float(table.grad.numpy().sum()) == 6


@pytest.mark.parametrize(
    ("op", "whole"),
    [
        ("ARGMAX", ops.argmax),
        ("ARGSORT", lambda w: ops.top_k(w, 2)),
        ("ARGSORT", lambda w: ops.reshape(ops.top_k(w, 2), (2, 3))[0]),
        ("CPY", lambda w: w.astype("i32")),
    ],
)
def test_whole_numbers_cast_to_floats_carry_no_gradient(op: str, whole: object) -> None:
    w = weight(3, 4)
    floats = whole(w).astype("f32").sum()  # type: ignore[operator]
    for loss in (floats, floats * w.sum()):
        with pytest.raises(GradientError, match=rf"{op} .*test_differentiable\.py:\d+.*detach"):
            loss.backward()
    (whole(w.detach()).astype("f32").sum() + w.sum()).backward()  # type: ignore[operator]
    assert w.grad is not None
    assert w.grad.tolist() == [[1.0] * 4] * 3


def test_masks_and_factors_get_no_gradient_by_another_way() -> None:
    mask = pg.ones((3, 3))
    loss = (ops.soft_max(weight(2, 3, 3), mask) * ops.sqr(weight(2, 3, 3))).sum()
    with pytest.raises(GradientError, match=r"SOFT_MAX.*no gradient for its mask"):
        pg.Graph([loss], loss=loss, grads={mask: pg.zeros((3, 3))})
    factors = pg.ones((2,))
    rotated = ops.rope(weight(3, 2, 4), pg.tensor([0, 1, 2]), freq_factors=factors)
    total = rotated.sum()
    with pytest.raises(GradientError, match=r"ROPE.*no gradient for its freq_factors"):
        pg.Graph([total], loss=total, grads={factors: pg.zeros((2,))})


def test_a_view_far_into_a_large_tensor_is_refused_without_making_it() -> None:
    w = weight(1, 1)
    large = ops.broadcast_to(w, (2**15, 2**14))
    with pytest.raises(GradientError, match=r"VIEW.*1 GiB or more"):
        large[2**14 :].sum().backward()


def test_a_circular_padding_of_a_gigabyte_is_refused_without_making_it() -> None:
    large = ops.broadcast_to(weight(1, 1), (2**14, 2**14))
    with pytest.raises(GradientError, match=r"PAD.*1 GiB"):
        ops.pad(large, [(1, 0)], "circular").sum().backward()


CHAINS = {
    "conv_2d": (ops.conv_2d_direct, (1, 1, 3, 3), (1, 1, 1, 1)),
    "conv_transpose_1d": (ops.conv_transpose_1d, (1, 5), (1, 1, 1)),
    "conv_transpose_2d": (ops.conv_transpose_2d, (1, 1, 3, 3), (1, 1, 1, 1)),
    "mul_mat": (lambda y, w: ops.mul_mat(w, y), (2, 2, 3, 1), (1, 2, 1, 1)),
    "sinks": (lambda y, w: ops.soft_max(y, sinks=w), (3, 3), (1,)),
    "solve_tri": (lambda y, w: ops.solve_tri(w, y), (1, 2), (1, 1)),
    "group_norm": (lambda y, w: ops.group_norm(y, 1) * w, (2, 3, 3), (1,)),
    "pad": (
        lambda y, w: (ops.pad(y, [(1, 1)] * 4, "circular") * w)[1:-1, 1:-1, 1:-1, 1:-1],
        (1, 2, 3, 4),
        (1,),
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_long_chains_have_room_for_their_gradients(name: str) -> None:
    op, shape, kernel = CHAINS[name]
    x, w = pg.tensor(np.ones(shape), requires_grad=True), pg.tensor(np.ones(kernel))
    w.requires_grad = True
    y = x
    for _ in range(300):
        y = op(y, w)  # type: ignore[operator]
    y.sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    assert np.isfinite(x.grad.numpy()).all()
