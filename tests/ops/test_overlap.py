# SPDX-License-Identifier: MIT
"""What writes in place reads all of a source that shares its memory first, as NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.backend.headers import address, memory_of
from pyggml.ops.operands import overlap

View = Callable[[Any], Any]


def rows(*numbers: int) -> pg.Tensor:
    return pg.tensor(np.int32(numbers))


def turned(a: Any, *axes: int) -> Any:
    return a.permute(*axes) if isinstance(a, pg.Tensor) else a.transpose(axes)


# Source and destination of one array of a shape; both callables take tensors and arrays.
COPIES: dict[str, tuple[tuple[int, ...], View, View]] = {
    "square transposed onto itself": ((2, 2), lambda a: turned(a, 1, 0), lambda a: a),
    "permuted": ((3, 4, 3), lambda a: turned(a, 2, 1, 0), lambda a: a),
    "shifted left": ((8,), lambda a: a[2:8], lambda a: a[0:6]),
    "shifted right": ((8,), lambda a: a[0:6], lambda a: a[2:8]),
    "rows down": ((5, 3), lambda a: a[0:4], lambda a: a[1:5]),
    "columns right": ((3, 5), lambda a: a[:, 0:4], lambda a: a[:, 1:5]),
    "a reshaped view": ((4, 3), lambda a: turned(a.reshape(3, 4), 1, 0), lambda a: a),
    "itself": ((3, 4), lambda a: a, lambda a: a),
    "large": ((300, 300), lambda a: turned(a, 1, 0), lambda a: a),
    "no element in common": ((6,), lambda a: a[3:6], lambda a: a[0:3]),
}


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", COPIES)
def test_cpy_within_one_tensor(name: str, dtype: str) -> None:
    shape, source, target = COPIES[name]
    want = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 2000
    t = pg.tensor(want, dtype)
    copied = ops.cpy(source(t), target(t))
    target(want)[...] = source(want).copy()
    np.testing.assert_array_equal(copied.numpy(), target(want))
    np.testing.assert_array_equal(t.numpy(), want)


def test_a_copy_is_made_only_where_memory_is_shared() -> None:
    t, other = pg.zeros((6,)), pg.zeros((6,))
    for src, dst, copies in [
        (t[0:3], t[3:6], False),
        (t[0:3], t[2:5], True),
        (other, t, False),
        (t * 1.0, t, False),
    ]:
        written = ops.cpy(src, dst)
        assert (address(written.ptr.src[0]) != address(src.ptr)) is copies


def test_an_address_is_of_its_buffer() -> None:
    """Vulkan counts the addresses of every buffer from the same number."""
    a, b = pg.zeros((6,)), pg.zeros((6,))
    own = b.ptr.data
    b.ptr.data = a.ptr.data
    try:
        assert not overlap(a, b)
        assert overlap(a, a[2:4])
        assert memory_of(a.ptr) == memory_of(a[2:4].ptr) != memory_of(b.ptr)
    finally:
        b.ptr.data = own


def test_cpy_of_what_was_just_written() -> None:
    t = pg.tensor(np.arange(4.0).reshape(2, 2))
    written = ops.cpy(pg.tensor([[1.0, 2.0], [3.0, 4.0]]), t)
    ops.cpy(written.permute(1, 0), t).numpy()
    assert t.tolist() == [[1, 3], [2, 4]]


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_set_rows_of_rows_of_its_own(dtype: str) -> None:
    t = pg.tensor(np.arange(3.0).reshape(3, 1))
    at = pg.tensor(np.array([1, 2]), dtype)
    assert ops.set_rows(t, t[0:2], at).tolist() == [[0], [0], [1]]
    assert t.tolist() == [[0], [0], [1]]
    t = pg.tensor(np.arange(600.0).reshape(200, 3))
    order = np.random.default_rng(0).permutation(200)
    ops.set_rows(t, t, rows(*order)).numpy()
    want = np.empty((200, 3))
    want[order] = np.arange(600.0).reshape(200, 3)
    np.testing.assert_array_equal(t.numpy(), want)


def test_set_rows_of_a_tensor_that_is_not_written_in_place() -> None:
    t = pg.tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    ops.set_rows(t, t[0:2], rows(1, 2)).sum().backward()
    assert t.grad is not None
    assert t.grad.tolist() == [[2, 2], [1, 1], [0, 0]]
    assert ops.set_rows(t, t[0:2], rows(1, 2)).tolist() == [[0, 1], [0, 1], [2, 3]]


def test_copy_of_a_view_of_itself() -> None:
    t = pg.tensor(np.arange(4.0).reshape(2, 2))
    assert t.copy_(t.permute(1, 0)).tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize("fn", [ops.acc, ops.set])
def test_acc_and_set_of_a_part_of_the_same(fn: Callable[..., pg.Tensor]) -> None:
    values = np.arange(6.0)
    want = values.copy()
    want[2:6] = values[0:4] + (values[2:6] if fn is ops.acc else 0)
    for t in (pg.tensor(values), pg.tensor(values) * 1.0):
        np.testing.assert_array_equal(fn(t, t[0:4], (2,)).numpy(), want)


HYPER = [0.1, 0.9, 0.99, 1e-8, 0.1, 10.0, 100.0]


def test_optimizer_states_that_share_memory_are_refused() -> None:
    p, g, m, v = (pg.ones((3, 4)) for _ in range(4))
    h = pg.tensor(HYPER)
    for args, names in [
        ((p, g, m, m), "m and v"),
        ((p, p, p, p), "param and m"),
        ((p, g, p, v), "param and m"),
        ((p, g, m, p), "param and v"),
        ((p, g, m, m.reshape(4, 3).reshape(3, 4)), "m and v"),
    ]:
        with pytest.raises(ValueError, match=f"{names} "):
            ops.opt_step_adamw(*args, h)
    ops.opt_step_adamw(p, g, m * 1.0, m, h).numpy()  # a copy has memory of its own


def test_a_moment_that_would_be_updated_in_a_copy_is_refused() -> None:
    p, g, v = (pg.ones((3, 4)) for _ in range(3))
    turned, cut = pg.zeros((4, 3)).permute(1, 0), pg.zeros((3, 5))[:, :4]
    for m in (turned, cut):
        with pytest.raises(ValueError, match="opt_step_adamw: m "):
            ops.opt_step_adamw(p, g, m, v, pg.tensor(HYPER))
    whole = pg.zeros((2, 3, 4))
    ops.opt_step_adamw(p, g, whole[1], v, pg.tensor(HYPER)).numpy()
    np.testing.assert_allclose(whole.numpy()[1], 0.1 * np.ones((3, 4)), rtol=1e-6)


def test_a_gradient_and_numbers_out_of_the_parameter_itself() -> None:
    w = np.random.default_rng(0).uniform(0.1, 0.9, (7, 7)).astype(np.float32)
    lr, wd = 0.5, 0.1
    for turned in (False, True):
        p = pg.tensor(w)
        grad = p.permute(1, 0) if turned else p
        ops.opt_step_sgd(p, grad, pg.tensor([lr, wd])).numpy()
        want = w * (1 - lr * wd) - lr * (w.T if turned else w)
        np.testing.assert_allclose(p.numpy(), want, rtol=1e-6, atol=1e-7)
    p = pg.tensor([0.25, 0.5])
    ops.opt_step_sgd(p, pg.ones((2,)), p).numpy()
    want = np.float32([0.25, 0.5]) * (1 - 0.25 * 0.5) - 0.25
    np.testing.assert_allclose(p.numpy(), want, rtol=1e-6)
    p, m, v, h = pg.tensor(HYPER), pg.zeros((7,)), pg.zeros((7,)), np.float64(HYPER)
    ops.opt_step_adamw(p, p, m, v, p).numpy()
    want = h * (1 - 0.1 * 0.1) - 0.1 * h * 0.1 * 10 / (np.sqrt(h * h * 0.01 * 100) + 1e-8)
    np.testing.assert_allclose(p.numpy(), want, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(m.numpy(), 0.1 * h, rtol=1e-5)
