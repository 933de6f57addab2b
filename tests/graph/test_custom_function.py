# SPDX-License-Identifier: MIT
"""Functions with a gradient of one's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pyggml as pg
from pyggml import DTypeError, GradientError, RecordingError, ShapeError, nn, ops
from pyggml.optim import SGD
from pyggml.train import TrainStep

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 5))


def swish_grad(grad: pg.Tensor, y: pg.Tensor, x: pg.Tensor) -> pg.Tensor:
    s = ops.sigmoid(x)
    return grad * (s * (1.0 + x * (1.0 - s)))


swish = pg.custom_function(lambda x: x * ops.sigmoid(x), swish_grad)
product = pg.custom_function(
    ops.matmul, lambda grad, y, a, b: (ops.matmul(grad, b.T), ops.matmul(a.T, grad))
)
# The backward of the first result takes the second instead of computing it again.
root = pg.custom_function(
    lambda x: (ops.sqrt(ops.sqr(x) + 1.0), ops.sqr(x)),
    lambda grad, y, x: grad[0] * x / y[0] + grad[1] * 2.0 * x,
)
same = pg.custom_function(lambda x: x, lambda grad, y, x: grad)
power = pg.custom_function(lambda x, n: x**n, lambda grad, y, x, n: (grad * n * x ** (n - 1), None))
total = pg.custom_function(lambda x: ops.sqr(x).sum(), lambda grad, y, x: grad * 2.0 * x)


@pytest.mark.parametrize(
    "fn",
    [
        swish,
        lambda x: swish(swish(x * 2.0) + x),
        lambda x: swish(x.T).T * 3.0,
        lambda x: swish(x[1:, :2]),
        lambda x: product(swish(x), ops.sin(x).T),
        lambda x: root(x)[0],
        lambda x: root(x)[1] * 3.0,
        lambda x: root(x)[0] * root(x)[1],
        lambda x: sum(y * y for y in root(x)),
        same,
        lambda x: same(same(x).T).T * x,
        lambda x: power(x, 3),
        total,
        lambda x: total(x) * total(swish(x)),
        lambda x: pg.checkpoint(lambda t: ops.tanh(swish(t)) * t, x),
        lambda x: pg.recompute(swish(x)) * 2.0,
        pg.custom_function(lambda x: swish(x) * 2.0, lambda g, y, x: swish_grad(g, y, x) * 2.0),
        lambda x: ops.repeat(swish(x), (6, 4)),
    ],
)
def test_gradients_are_those_of_differences(fn: Callable[[pg.Tensor], pg.Tensor]) -> None:
    assert pg.check_grads(fn, X) < 1e-3


def test_several_arguments() -> None:
    assert pg.check_grads(product, X, W) < 1e-3
    assert pg.check_grads(lambda a, b: product(a, swish(b)) * product(a, b), X, W) < 1e-3
    shared = pg.custom_function(ops.add, lambda grad, y, a, b: (grad, grad))
    assert pg.check_grads(lambda a, b: shared(a, b) * a, X, X[::-1].copy()) < 1e-3


def test_the_gradient_is_what_the_backward_says() -> None:
    reverse = pg.custom_function(lambda x: x, lambda grad, y, x: -grad)
    clipped = pg.custom_function(lambda x: x, lambda grad, y, x: ops.clamp(grad, -1.0, 1.0))
    straight = pg.custom_function(ops.round, lambda grad, y, x: grad)
    w = pg.tensor([0.4, 1.6], requires_grad=True)
    for fn, factor, want in ((reverse, 3, -3), (clipped, 3, 1), (straight, 3, 3)):
        w.grad = None
        (fn(w) * factor).sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [want, want]
    assert straight(w).tolist() == [0, 2]
    with pytest.raises(GradientError, match="relative difference"):
        pg.check_grads(reverse, [1.0, 2.0])


def test_gradients_add_up_with_those_of_other_ways() -> None:
    w = pg.tensor(X, requires_grad=True)
    for _ in range(2):
        (swish(w).sum() + (w * 2.0).sum()).backward()
    _, want = pg.value_and_grad(lambda x: (ops.silu(x) + x * 2.0).sum())(X)
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 2 * want.numpy(), rtol=1e-5)


def test_python_runs_once_per_shape() -> None:
    calls = []

    def forward(x: pg.Tensor) -> pg.Tensor:
        calls.append("forward")
        return x * x

    def backward(grad: pg.Tensor, y: pg.Tensor, x: pg.Tensor) -> pg.Tensor:
        calls.append("backward")
        return grad * 2.0 * x

    square = pg.custom_function(forward, backward)
    both = pg.value_and_grad(lambda x: square(x).sum())
    for n in (2, 2, 3, 2):
        assert both(np.full(n, 3.0))[1].tolist() == [6.0] * n
    assert calls == ["forward", "backward"] * 2
    assert pg.compile(square)([1.0, 2.0]).tolist() == [1.0, 4.0]


def test_a_result_that_is_not_used_costs_nothing() -> None:
    w = pg.tensor(X, requires_grad=True)
    nodes = []
    for forward in (lambda x: (x * 2.0, ops.exp(x)), lambda x: (x * 2.0,)):
        loss = pg.custom_function(forward, lambda grad, y, x: grad[0] * 2.0)(w)[0].sum()
        nodes.append(pg.Graph([loss], loss=loss, grads={w: pg.zeros(w.shape)}).n_nodes)
    assert nodes[0] == nodes[1]


class Net(nn.Module):
    def __init__(self, activation: Callable[[pg.Tensor], pg.Tensor]) -> None:
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        self.activation = activation

    def forward(self, x: pg.Tensor) -> pg.Tensor:
        return self.second(self.activation(self.first(x)))


@pytest.mark.parametrize("fused", [False, True])
def test_training_is_that_of_the_built_in_op(fused: bool) -> None:
    losses = []
    for activation in (ops.silu, swish, lambda x: pg.checkpoint(swish, x)):
        pg.seed(0)
        model = Net(activation)
        step = TrainStep(model, SGD(model.parameters(), lr=0.5, fused_update=fused))
        batch = (X.astype(np.float32), np.array([0, 2, 1], np.int32))
        losses.append([step([batch]).loss for _ in range(5)])
    assert losses[0][-1] < 0.8 * losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[2] == losses[1]


def test_row_numbers_pass_through_and_are_checked() -> None:
    pick = pg.custom_function(
        ops.get_rows,
        lambda grad, y, table, rows: (ops.set_rows(table * 0.0, grad, rows), None),
    )
    assert pg.check_grads(pick, X, np.array([2, 0], np.int32)) < 1e-3
    with pytest.raises(ShapeError, match="from 0 to 2"):
        pick(pg.tensor(X), pg.tensor([3]))


def refused(forward: object, backward: object, *args: object) -> None:
    pg.custom_function(forward, backward)(*args or [pg.tensor(X)])  # type: ignore[arg-type]


def test_mistakes_are_named_at_the_call() -> None:
    def ok(grad: pg.Tensor, y: pg.Tensor, x: pg.Tensor) -> pg.Tensor:
        return grad

    with pytest.raises(TypeError, match="backward must be a function"):
        refused(ops.exp, None)
    with pytest.raises(TypeError, match=r"argument .*float"):
        refused(ops.exp, ok, 1.0)
    with pytest.raises(TypeError, match=r"forward .*int"):
        refused(lambda x: 3, ok)
    with pytest.raises(TypeError, match="float for argument 0"):
        refused(ops.exp, lambda g, y, x: 1.0)
    with pytest.raises(TypeError, match=r"backward .*got 2"):
        refused(ops.exp, lambda g, y, x: (g, g))
    with pytest.raises(ShapeError, match=r"argument 0 .*\(3, 4\)"):
        refused(ops.exp, lambda g, y, x: g.sum())
    with pytest.raises(DTypeError, match="argument 1, int"):
        refused(lambda x, n: x, lambda g, y, x, n: (g, g), pg.tensor(X), 3)
    with pytest.raises(RecordingError, match="backward"):
        refused(ops.exp, lambda g, y, x: g * float(g.sum()))


def test_a_result_of_whole_numbers_has_no_gradient() -> None:
    square = pg.custom_function(
        lambda x: (x * x, ops.argmax(x, -1)), lambda grads, results, x: grads[0] * x * 2.0
    )
    w = pg.tensor(X, requires_grad=True)
    y, at = square(w)
    y.sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 2 * X, rtol=1e-6)
    np.testing.assert_array_equal(at.numpy(), X.argmax(-1))


def test_what_is_no_argument_gets_no_gradient_and_is_refused() -> None:
    w = pg.tensor(X, requires_grad=True)
    hidden = pg.custom_function(lambda x: x * w, lambda g, y, x: g * w)
    with pytest.raises(GradientError, match="through its arguments"):
        hidden(pg.tensor(X))
    # What value_and_grad differentiates by does not tell before the graph is made.
    with pytest.raises(GradientError, match="parameters besides its arguments"):
        pg.value_and_grad(
            lambda a, b: pg.custom_function(lambda x: x * b, lambda g, y, x: g * b)(a).sum(), (0, 1)
        )(X, X)


def test_an_argument_without_gradient_has_none() -> None:
    w = pg.tensor(X, requires_grad=True)
    stop = pg.custom_function(ops.exp, lambda grad, y, x: None)
    assert not stop(w).requires_grad
    half = pg.custom_function(lambda a, b: a * b, lambda grad, y, a, b: (None, grad * a))
    half(w, w).sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), X, rtol=1e-6)


def test_results_that_were_copied_out_give_no_gradient_silently() -> None:
    w = pg.tensor(X, requires_grad=True)
    with pytest.raises(GradientError, match="compile"):
        (pg.compile(swish)(w) * pg.compile(lambda: swish(w))()).sum().backward()
