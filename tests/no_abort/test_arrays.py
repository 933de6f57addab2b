# SPDX-License-Identifier: MIT
"""Arrays of every layout, gradients of every stride, and things that are neither."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import models, nn, ops

from .programs import script


@pytest.mark.parametrize(
    "values",
    [
        np.array([None, 1], object),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
        np.ma.masked_array([1.0, 2.0], [False, True]),
        np.array([1j]),
        np.array(["1"]),
        np.array(["2020-01-01"], "M8[D]"),
        "1.0",
        b"1.0",
        {1: 2},
        {1.0},
        None,
        object(),
        2**100,
        [2**100],
        [2**40],
        (x for x in [1.0]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_number_is_refused(values: Any) -> None:
    with pytest.raises((pg.DTypeError, pg.ShapeError)):
        pg.tensor(values)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(6, dtype=">i4"),
        np.arange(6.0)[::-2],
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.broadcast_to(np.float32(2), (3, 4)),
        np.float64(3),
        np.array(7),
        np.arange(6, dtype=np.uint8),
        np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(8, dtype=np.float16),
        np.longdouble([1, 2]),
    ],
    ids=lambda a: f"{a.dtype.str}-{a.shape}",
)
def test_arrays_of_every_layout(array: Any) -> None:
    t = pg.tensor(array)
    assert np.array_equal(t.numpy(), np.asarray(array).astype(t.numpy().dtype))
    t.numpy()[...] = 9  # a copy: nobody else's numbers
    assert np.array_equal(t.numpy(), np.asarray(array).astype(t.numpy().dtype))


@pytest.mark.parametrize("rows", [1, 2, 32])
def test_gradients_that_are_part_of_another(rows: int) -> None:
    text = f"""
from pyggml import ops
x = pg.tensor(np.ones(({rows}, 3)), requires_grad=True)
for fn in [
    lambda y: ops.concat([y, y], 0),
    lambda y: ops.concat([y, y], 1),
    lambda y: ops.pad(y, [(1, 1), (0, 0)]),
    lambda y: ops.mul_mat(pg.ones((4, 3)), y.reshape({rows}, 1, 1, 3).permute(0, 2, 1, 3)),
    lambda y: y.reshape(1, {rows}, 3).permute(1, 0, 2) @ pg.ones((3, 2)),
    lambda y: y[:1],
]:
    for before in (lambda a: a * 2.0, lambda a: a + 1.0, ops.relu, ops.silu, ops.sqr):
        fn(before(x)).sum().backward()
print(np.isfinite(x.grad.numpy()).all())
"""
    assert script(text) == "True\n"


def test_what_is_no_tensor_or_function() -> None:
    x = pg.tensor([1.0], requires_grad=True)
    for fn in [
        lambda: pg.Graph([None]),  # type: ignore[list-item]
        lambda: pg.Graph("ab"),  # type: ignore[arg-type]
        lambda: pg.Graph([], effects=[1]),  # type: ignore[list-item]
        lambda: pg.Graph([], loss=1.0),  # type: ignore[arg-type]
        lambda: pg.Graph([], loss=(x * 2.0).sum(), grads={x: None}),  # type: ignore[dict-item]
        lambda: setattr(x, "grad", 3),
        lambda: x.register_hook(None),  # type: ignore[arg-type]
        lambda: pg.compile(None),  # type: ignore[arg-type]
        lambda: pg.compile(lambda x: {"x": x})([1.0]),
        lambda: pg.compile(lambda x: None)([1.0]),
        lambda: pg.value_and_grad(None),  # type: ignore[arg-type]
        lambda: pg.value_and_grad(lambda x: x, "x"),  # type: ignore[arg-type]
        lambda: pg.value_and_grad(lambda x: x, [0, 0]),
        lambda: pg.value_and_grad(lambda x, y: x, [0, -2])([1.0], [2.0]),
        lambda: pg.value_and_grad(lambda x: x, True),
        lambda: pg.check_grads(lambda x: None, [1.0]),  # type: ignore[arg-type,return-value]
        lambda: pg.check_grads(None, [1.0]),  # type: ignore[arg-type]
        lambda: ops.linear(pg.ones((2, 3)), pg.ones((4, 3)), 1.0),  # type: ignore[arg-type]
        lambda: nn.CausalSelfAttention(8, 2, rope=1),  # type: ignore[arg-type]
        lambda: models.GPT2(3),  # type: ignore[arg-type]
    ]:
        with pytest.raises(TypeError):
            fn()


def test_lengths_that_no_memory_holds() -> None:
    config = models.GPT2Config(vocab_size=9, context=8, n_embd=8, n_layer=2**40, n_head=2)
    for fn in [
        lambda: nn.causal_mask(2**23),
        lambda: nn.position_ids(2**46),
        lambda: models.GPT2(config),
    ]:
        with pytest.raises(pg.BackendError, match="more than is free"):
            fn()
    for length in (0, -1, 2**47):
        with pytest.raises(pg.ShapeError, match=r"at least 1|too many"):
            nn.causal_mask(length)
    with pytest.raises(TypeError, match="whole numbers"):
        nn.causal_mask(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("eps", [0.0, -1.0, np.nan, 1e-30])
def test_a_step_that_does_not_move(eps: float) -> None:
    with pytest.raises(ValueError, match="eps must"):
        pg.check_grads(lambda x: x * x, [1.0], eps=eps)
