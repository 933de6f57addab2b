# SPDX-License-Identifier: MIT
"""value_and_grad, check_grads, hooks, and the search for NaN."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import AnomalyError, DTypeError, GradientError, RecordingError, ShapeError, ops
from pyggml.optim import SGD
from pyggml.tensors import record


def test_value_and_grad_of_one_and_of_several() -> None:
    fn = pg.value_and_grad(lambda x, y: (x * x * y).sum())
    value, grad = fn([1.0, 2.0], [3.0, 4.0])
    assert value.item() == 19
    assert grad.tolist() == [6, 16]
    _, grads = pg.value_and_grad(lambda x, y: (x * x * y).sum(), (0, 1))([1.0, 2.0], [3.0, 4.0])
    assert [g.tolist() for g in grads] == [[6, 16], [1, 4]]


def test_value_and_grad_does_not_accumulate_and_records_once_per_shape() -> None:
    calls = []

    def fn(x: pg.Tensor) -> pg.Tensor:
        calls.append(x.shape)
        return (x * x).sum()

    both = pg.value_and_grad(fn)
    for n in (2, 3, 2):
        _, grad = both(np.ones(n))
        assert grad.tolist() == [2.0] * n
    assert calls == [(2,), (3,)]


def test_value_and_grad_refuses() -> None:
    with pytest.raises(ShapeError, match="one element"):
        pg.value_and_grad(lambda x: x * 2)([1.0, 2.0])
    with pytest.raises(IndexError, match="no argument 3"):
        pg.value_and_grad(lambda x: x.sum(), 3)([1.0])
    with pytest.raises(DTypeError, match="must be f32"):
        pg.value_and_grad(lambda x: x)([1])


def test_check_grads_passes_what_is_right() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    assert pg.check_grads(lambda a, b: ops.gelu(ops.linear(a, b)), x, w) < 1e-2
    ids = np.array([1, 0, 2], np.int32)
    assert pg.check_grads(lambda a, i: ops.get_rows(a, i) * 2, w, ids) < 1e-2


def test_check_grads_names_what_is_wrong() -> None:
    # At its kink relu's gradient is 0, its differences give 1/2.
    with pytest.raises(GradientError, match=r"input 0: relative .* at \(1,\) the gradient is"):
        pg.check_grads(ops.relu, [0.5, 0.0])


def test_hooks_see_and_may_change_gradients() -> None:
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    remove = w.register_hook(lambda g: seen.append(g.tolist()))
    (w * 3.0).sum().backward()
    assert seen == [[3, 3]]
    remove()
    remove()
    optimizer = SGD([w], lr=1.0)
    w.register_hook(lambda g: g.copy_(np.zeros(2)))
    optimizer.grads[w].copy_([5.0, 5.0])
    assert optimizer.step() == 0
    assert w.tolist() == [1, 2]
    assert seen == [[3, 3]]
    with pytest.raises(ValueError, match="require a gradient"):
        pg.ones((2,)).register_hook(print)


def test_frozen_parameters_get_no_gradient() -> None:
    w = pg.tensor([1.0], requires_grad=True)
    b = pg.tensor([1.0], requires_grad=True)
    b.requires_grad = False
    (w * 2.0 + b).sum().backward()
    assert w.grad is not None
    assert b.grad is None


def test_no_gradient_names_op_and_line() -> None:
    w = pg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"PAD_REFLECT_1D.*test_gradients\.py:\d+"):
        record(pg.lib.ggml_pad_reflect_1d, [w, 1, 1], (5,)).sum().backward()


@pytest.mark.parametrize("name", ["eps", "tolerance"])
@pytest.mark.parametrize("wrong", [None, "1", True])
def test_check_grads_wants_numbers(name, wrong) -> None:
    with pytest.raises(TypeError, match=f"check_grads: {name} must be a number"):
        pg.check_grads(lambda x: x * x, [1.0], **{name: wrong})


def test_anomaly_in_the_forward() -> None:
    x = pg.tensor([0.0, 1.0])
    y = ops.log(x)  # the line to be named
    with pg.detect_anomaly(), pytest.raises(AnomalyError, match=r"LOG made inf.*test_gradients"):
        y.sum().numpy()
    assert np.isneginf(y.sum().numpy())


def test_anomaly_in_the_backward() -> None:
    w = pg.tensor([0.0], requires_grad=True)
    root = ops.sqrt(w * 1.0)
    with pg.detect_anomaly(), pytest.raises(AnomalyError, match=r"DIV made inf.*in the backward"):
        root.sum().backward()


def test_a_mask_is_no_anomaly() -> None:
    mask = pg.tensor([[0.0, -np.inf], [0.0, 0.0]])
    with pg.detect_anomaly():
        y = ops.soft_max(pg.ones((2, 2)), mask)
        np.testing.assert_allclose(y.numpy(), [[1, 0], [0.5, 0.5]])
        assert np.isneginf((mask * 2.0).numpy()).sum() == 1


def test_nan_in_a_parameter_is_found() -> None:
    w = pg.tensor([np.nan, 1.0], requires_grad=True)
    told = r"SCALE read NaN from a stored tensor \(2,\), made at .*test_gradients\.py:\d+, and has"
    with pg.detect_anomaly(), pytest.raises(AnomalyError, match=told):
        (w * 2.0).sum().backward()
    with pg.detect_anomaly(), pytest.raises(AnomalyError, match="CONT read NaN from a stored"):
        ops.cont(pg.tensor([[np.nan, 1.0]]).T).numpy()
    zero = pg.tensor([0.0])
    with pg.detect_anomaly(), pytest.raises(AnomalyError, match="DIV made NaN"):
        (zero / zero).numpy()


def square_and_detached(x: pg.Tensor) -> pg.Tensor:
    return (x * x.detach() + (x * 3.0).T.detach().T * x).sum()


def test_detach_cuts_what_is_recorded_and_is_computed_anew() -> None:
    both = pg.value_and_grad(square_and_detached)
    for x in (np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])):
        value, grad = both(x)
        assert value.item() == 4 * (x * x).sum()
        np.testing.assert_array_equal(grad.numpy(), 4 * x)
    compiled = pg.compile(lambda x: (x * 1.0).detach() * x)
    for wanted in (False, True):
        for x in (np.array([1.0, 2.0]), np.array([3.0, 4.0])):
            got = compiled(pg.tensor(x, requires_grad=wanted))
            np.testing.assert_array_equal(got.numpy(), x * x)


def test_detach_of_everything_and_under_checkpoint() -> None:
    _, grad = pg.value_and_grad(lambda x: x.detach().sum())([1.0, 2.0])
    assert grad.tolist() == [0, 0]
    fn = pg.value_and_grad(
        lambda x: pg.checkpoint(lambda h: (ops.exp(h).detach() * h).sum(), x * 2.0)
    )
    for x in (np.array([0.5, 1.0]), np.array([0.25, 0.75])):
        np.testing.assert_allclose(fn(x)[1].numpy(), 2 * np.exp(2 * x), rtol=1e-5)


def test_detach_of_a_parameter_that_a_recorded_function_reads() -> None:
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    compiled = pg.compile(lambda x: x * w.detach())
    assert compiled([1.0, 1.0]).tolist() == [1, 2]
    w.copy_([3.0, 4.0])
    assert compiled([1.0, 1.0]).tolist() == [3, 4]


READS = {
    "numpy": lambda x: (x * 2.0).numpy(),
    "input": lambda x: x.numpy(),
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "if": lambda x: 1 if x.sum() else 0,
    "array": np.asarray,
    "copy": lambda x: pg.tensor(x * 2.0),
    "pickle": lambda x: x.__reduce__(),
    "detached": lambda x: x.detach().tolist(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("how", [pg.value_and_grad, pg.compile], ids=["value_and_grad", "compile"])
def test_a_recorded_function_does_not_read_what_depends_on_its_inputs(how, read) -> None:
    def fn(x: pg.Tensor) -> pg.Tensor:
        read(x)
        return (x * x).sum()

    with pytest.raises(RecordingError, match=rf"{how.__name__}: .* at .*test_gradients\.py:\d+"):
        how(fn)([1.0, 2.0])
    x = pg.tensor([1.0, 2.0])  # elsewhere all can be read
    read(x)


def test_check_grads_does_not_let_its_function_read() -> None:
    with pytest.raises(RecordingError, match="read it after the call"):
        pg.check_grads(lambda x: x * float(x.sum()), [1.0, 2.0])


def test_a_recorded_function_may_read_constants() -> None:
    w = pg.tensor([3.0], requires_grad=True)
    h = pg.tensor([2.0]) * 2.0
    fn = pg.value_and_grad(lambda x: (x * w.item() * h.item()).sum())
    assert fn([1.0, 2.0])[1].tolist() == [12, 12]


def test_a_recorded_function_does_not_write_its_inputs() -> None:
    for write in (lambda x: x.copy_([0.0]), lambda x: x.zero_()):
        with pytest.raises(RecordingError, match="must not write its inputs"):
            pg.compile(lambda x, write=write: write(x) * 1.0)([1.0])
    with pytest.raises(ValueError, match="cpy: dst must not be an input"):
        pg.compile(lambda x: ops.cpy(x * 2.0, x[0:1]))([[1.0, 2.0]])


@pytest.mark.parametrize("wanted", [False, True])
def test_set_rows_copies_the_input_of_a_recorded_function(wanted) -> None:
    d, s = np.arange(1.0, 7.0).reshape(3, 2), np.array([[9.0, 10.0]])
    ids = pg.tensor([1])
    new = d.copy()
    new[1] = s

    def fn(d: pg.Tensor, s: pg.Tensor) -> pg.Tensor:
        return (ops.set_rows(d, s, ids) * d).sum()

    given = pg.tensor(d, requires_grad=wanted)
    for _ in range(2):
        value, grads = pg.value_and_grad(fn, [0, 1])(given, s)
        assert value.item() == pg.compile(fn)(given, s).item() == (new * d).sum()
        np.testing.assert_array_equal(grads[0].numpy(), new + d * (np.arange(3) != 1)[:, None])
        np.testing.assert_array_equal(grads[1].numpy(), d[1:2])
    np.testing.assert_array_equal(given.numpy(), d)


def test_no_gradient_is_dropped_behind_a_compiled_function() -> None:
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    of_argument = pg.compile(lambda x: x * x)
    of_captured = pg.compile(lambda x: [x * w, ops.argmax((x * w).reshape(1, 2))])
    for out in (of_argument(w), of_argument(w * 2.0), of_captured([1.0, 1.0])[0]):
        read = out * 2.0
        read.numpy()
        for loss in (out.sum() + (w * w).sum(), read.sum() + (w * w).sum(), out.sum()):
            with pytest.raises(GradientError, match="what compile returned"):
                loss.backward()
            with pytest.raises(GradientError, match="what compile returned"):
                pg.Graph([loss], loss=loss, grads={w: pg.zeros((2,))})
        assert w.grad is None or not w.grad.numpy().any()
        w.grad = None
        (out.detach() * w).sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), out.numpy())
        w.grad = None
    index = of_captured([1.0, 1.0])[1]
    ops.get_rows(w.reshape(2, 1), index).sum().backward()  # numbers of rows have no gradient
    assert w.grad.tolist() == [0, 1]
    w.grad = None
    ((of_argument([1.0, 2.0]) + of_argument(w.detach())) * w).sum().backward()
    assert w.grad.tolist() == [2, 8]


def test_a_compiled_function_in_a_recorded_one_is_a_part_of_it() -> None:
    square = pg.compile(lambda x: x * x)
    both = pg.value_and_grad(lambda x: (square(x) * x).sum())
    outer = pg.compile(lambda x: square(x) + square(pg.tensor([2.0, 2.0])))
    for x in (np.array([1.0, 2.0]), np.array([3.0, 4.0])):
        np.testing.assert_array_equal(both(x)[1].numpy(), 3 * x * x)
        np.testing.assert_array_equal(outer(x).numpy(), x * x + 4)
    with pytest.raises(TypeError, match="must return a Tensor"):
        pg.compile(pg.compile(lambda y: {"y": y}))([1.0])


def test_no_gradient_of_a_gradient() -> None:
    inner = pg.value_and_grad(lambda y: (y * y * y).sum())
    for how in (pg.value_and_grad, pg.compile):
        with pytest.raises(GradientError, match=f"{how.__name__} records must not call it"):
            how(lambda x: (inner(x)[1] * x).sum())([1.0, 2.0])
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    value, grad = inner(w)
    for part in (value, grad.sum()):
        with pytest.raises(GradientError, match="what value_and_grad returned"):
            (part + w.sum()).backward()
    w.grad = grad
    assert w.grad.tolist() == [3, 12]
    with pytest.raises(GradientError, match="compile records must not call it"):
        pg.compile(lambda x: ((x * w).sum().backward(), x * 2.0)[1])([1.0, 2.0])


def test_recorded_functions_are_recorded_anew_for_another_precision() -> None:
    calls = []

    def fn(x: pg.Tensor) -> pg.Tensor:
        calls.append(1)
        return ops.mul_mat(x, x).sum()

    both, compiled = pg.value_and_grad(fn), pg.compile(fn)
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    exact = both(x)[1].numpy(), compiled(x).numpy()
    with pg.autocast("bf16"):
        fresh = pg.value_and_grad(fn)(x)[1].numpy(), pg.compile(fn)(x).numpy()
        rounded = both(x)[1].numpy(), compiled(x).numpy()
    assert len(calls) == 6
    for new, want in zip(rounded, fresh, strict=True):
        np.testing.assert_array_equal(new, want)
    again = both(x)[1].numpy(), compiled(x).numpy()
    for new, want in zip(again, exact, strict=True):
        np.testing.assert_array_equal(new, want)
    assert len(calls) == 6


def test_detached_parameters_and_inputs_are_not_written() -> None:
    p = pg.tensor([5.0], requires_grad=True)
    with pytest.raises(ValueError, match="cpy: dst must be stored"):
        pg.compile(lambda x: ops.cpy(x, p.detach()))([2.0])
    assert p.tolist() == [5]
    hyper = pg.tensor([0.1, 0.0])
    with pytest.raises(ValueError, match="must not be inputs of the function"):
        pg.compile(lambda w, g: ops.opt_step_sgd(w, g, hyper))([1.0], [1.0])
    w = pg.tensor([1.0])
    step = pg.compile(lambda g: ops.opt_step_sgd(w, g, hyper))
    step([1.0])
    np.testing.assert_allclose(step([1.0]).numpy(), [0.8], rtol=1e-6)
    np.testing.assert_allclose(w.numpy(), [0.8], rtol=1e-6)


def test_check_grads_refuses_what_is_detached() -> None:
    with pytest.raises(GradientError, match=r"relative difference 5\.00e-01"):
        pg.check_grads(lambda x: x * x.detach(), [1.0, 1.0])


def test_backward_of_stored_numbers_says_that_nothing_leads_back() -> None:
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    for loss in (pg.compile(lambda x: x.sum())([1.0]), pg.tensor(1.0), (w * w).sum().detach()):
        with pytest.raises(pg.GradientError, match="stored"):
            loss.backward()
    with pytest.raises(pg.GradientError, match="compile"):
        pg.compile(lambda x: (x * w).sum())([3.0, 4.0]).backward()
    with pytest.raises(pg.ShapeError, match="sum"):
        (w * w).backward()
