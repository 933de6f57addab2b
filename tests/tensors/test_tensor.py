# SPDX-License-Identifier: MIT
"""Tensors: storing, reading, views, operators, and what they refuse."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import pyggml as pg
from pyggml import BackendError, DTypeError, ShapeError


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (1, 1, 4), (2, 3, 4, 5), (1, 1, 1, 1)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "i64"])
def test_what_is_stored_is_read_back(shape, dtype) -> None:
    values = np.random.default_rng(0).integers(-100, 100, shape)
    t = pg.tensor(values, dtype)
    assert t.shape == shape
    assert t.dtype.name == dtype
    assert t.is_stored
    np.testing.assert_array_equal(t.numpy(), values)


def test_natural_dtypes() -> None:
    assert pg.tensor([1, 2]).dtype.name == "i32"
    assert pg.tensor([1.0, 2]).dtype.name == "f32"
    assert pg.tensor(np.float16([1])).dtype.name == "f16"
    assert pg.tensor(np.arange(3)).dtype.name == "i32"


def test_quantised_storage_is_close() -> None:
    x = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    assert np.abs(pg.tensor(x, "q8_0").numpy() - x).max() < 0.02
    with pytest.raises(ShapeError, match="multiples of 32"):
        pg.tensor(np.ones((2, 33)), "q8_0")
    for internal in ("q8_1", "q8_K"):
        with pytest.raises(DTypeError, match="own use"):
            pg.tensor(np.ones((1, 256)), internal)
    with pytest.raises(DTypeError, match="finite"):
        pg.tensor(np.full((1, 32), np.nan), "q8_0")


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (np.zeros((1, 1, 1, 1, 1)), ShapeError, "at most 4 axes"),
        (np.zeros((2, 0)), ShapeError, "at least 1"),
        ([[1, 2], [3]], ShapeError, "ragged"),
        (["a"], DTypeError, "integers or floats"),
        ([1j], DTypeError, "integers or floats"),
        (np.array([2**40]), DTypeError, "must fit i32"),
    ],
)
def test_what_tensor_refuses(values, error, words) -> None:
    with pytest.raises(error, match=words):
        pg.tensor(values)


def test_floats_are_not_rounded_in_silence() -> None:
    with pytest.raises(DTypeError, match="needs integers"):
        pg.tensor([1.5], "i32")
    with pytest.raises(DTypeError, match="no ggml type"):
        pg.tensor([1.5], "float8")


def test_copy_checks_shape_and_state() -> None:
    t = pg.zeros((2, 3))
    t.copy_(np.arange(6).reshape(2, 3))
    assert t.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ShapeError, match=r"\(2, 3\); got \(3, 2\)"):
        t.copy_(np.zeros((3, 2)))
    with pytest.raises(BackendError, match="recorded op"):
        (t + 1).copy_(np.zeros((2, 3)))
    assert t.zero_().numpy().sum() == 0


def test_a_group_shares_one_buffer() -> None:
    a, b = pg.zeros_group([((2, 3), "f32"), ((5,), "i32")])
    a.copy_(np.ones((2, 3)))
    b.copy_(np.arange(5))
    assert a.buffer is b.buffer
    assert b.tolist() == [0, 1, 2, 3, 4]
    a.buffer.clear()
    assert a.numpy().sum() == 0
    assert b.numpy().sum() == 0


def test_results_outlive_their_operands() -> None:
    def chain() -> pg.Tensor:
        x = pg.tensor(np.arange(6.0).reshape(2, 3))
        return ((x * 2).reshape(3, 2).T + 1).contiguous()

    results = [chain() for _ in range(300)]
    gc.collect()
    for r in results:
        np.testing.assert_array_equal(r.numpy(), (np.arange(6.0) * 2).reshape(3, 2).T + 1)


def test_long_chains_do_not_recurse() -> None:
    t = pg.tensor([0.0])
    for _ in range(20_000):
        t = t + 1.0
    assert t.item() == 20_000
    del t
    gc.collect()


def test_evaluating_keeps_the_way_back() -> None:
    w = pg.tensor([2.0], requires_grad=True)
    loss = (w * w).sum()
    assert loss.item() == 4
    loss.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [4]
    (w * 3.0).sum().backward()
    assert w.grad.tolist() == [7]  # gradients add up until cleared


def test_numbers_and_arrays_mix_with_tensors() -> None:
    t = pg.tensor([[1.0, 2.0]])
    assert (1 - t).tolist() == [[0, -1]]
    assert (2 / t).tolist() == [[2, 1]]
    assert (np.array([[10.0, 20.0]]) + t).tolist() == [[11, 22]]
    assert (t**2).tolist() == [[1, 4]]
    assert (t @ [[1.0], [1.0]]).tolist() == [[3]]
    assert np.asarray(t).tolist() == [[1, 2]]
    assert float(t.sum()) == 3
    assert len(t) == 1
    assert bool(pg.tensor([1.0]))


def test_iteration_ends() -> None:
    assert [row.tolist() for row in pg.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda t: t + pg.ones((2, 3)), ShapeError, r"broadcast.*got a \(4, 5\) and b \(2, 3\)"),
        (lambda t: t @ pg.ones((4, 5)), ShapeError, "matmul: a.shape"),
        (lambda t: t.reshape(3, 7), ShapeError, "must stay 20"),
        (lambda t: t.reshape(-1, 3), ShapeError, "do not fill"),
        (lambda t: t.permute(0, 0), ShapeError, "each of x's 2 axes once"),
        (lambda t: t[4], IndexError, "out of range"),
        (lambda t: t[0, 0, 0], IndexError, "at most 2 parts"),
        (lambda t: t[2:2], ShapeError, "takes no element"),
        (lambda t: t[[0, 4]], IndexError, "index must be from -4 to 3"),
        (lambda t: t[[0.5]], IndexError, "index must be whole numbers"),
        (lambda t: t[t > 0], IndexError, "must be i32 numbers"),
        (lambda t: t[np.ones((4, 4), bool)], IndexError, "mask"),
        (lambda t: t[np.zeros((4, 5), bool)], ShapeError, "takes no element"),
        (lambda t: t[None, None, None], ShapeError, "at most 4 axes"),
        (lambda t: t.sum(2), ShapeError, "dim must be from"),
        (lambda t: t.item(), ShapeError, "one element"),
        (lambda t: t + "x", TypeError, "expected a Tensor"),
        (lambda t: t + pg.ones((4, 5), dtype="f16"), DTypeError, "f32 and f16"),
        (lambda t: pg.ops.gelu(t.astype("f16")), DTypeError, "must be f32; got f16"),
        (lambda t: t.astype("q8_0"), DTypeError, "choose f32, f16, bf16 or i32"),
        (lambda t: pg.ops.soft_max(t, pg.ones((3, 5))), ShapeError, "mask"),
        (lambda t: pg.ops.rope(t, pg.tensor([0])), ShapeError, "3 or 4 axes"),
        (lambda t: pg.ops.get_rows(t, pg.tensor([4])), ShapeError, "from 0 to 3"),
        (lambda t: pg.ops.get_rows(t, pg.tensor([-1])), ShapeError, "from 0 to 3"),
        (lambda t: pg.ops.concat([t, pg.ones((4, 4))]), ShapeError, "agree but for axis 0"),
        (lambda t: pg.ops.norm(t, -1.0), ValueError, "eps must be"),
        (lambda t: pg.ops.clamp(t, 1, 0), ValueError, "must not exceed"),
        (lambda t: pg.ops.mul_mat(t, pg.ones((2, 4))), ShapeError, "must share K"),
        (lambda t: pg.ops.linear(pg.ones((2, 4)), t), ShapeError, "linear: x.shape"),
        (lambda t: pg.ops.cross_entropy(t, pg.tensor([1])), ShapeError, "targets must have"),
        (lambda t: pg.ops.swiglu(t, pg.ones((4, 4))), ShapeError, "one shape"),
        (lambda t: pg.ops.broadcast_to(t, (4, 6)), ShapeError, "broadcast"),
        (lambda t: pg.ops.repeat(t, (6, 5)), ShapeError, "multiple"),
        (lambda t: pg.ops.cpy(t, pg.ones((4, 4))), ShapeError, "must be equal"),
    ],
)
def test_mistakes_are_python_errors(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call(pg.ones((4, 5)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: pg.ops.pad(pg.ones((2, 2)), [(0, 2**31 - 2), (0, 2**31 - 2)]),
        lambda: pg.ops.pad(pg.ones((1, 1, 1, 1)), [(0, 2**30)] * 4),
        lambda: pg.ops.conv_transpose_2d(
            pg.ones((1, 1, 3000, 3000)), pg.ones((1, 1, 2, 2)), stride=2**20
        ),
        lambda: pg.ops.upscale(pg.ops.upscale(pg.ones((2, 2)), 2**15), 2**15),
        lambda: pg.ops.broadcast_to(pg.ones((1,)), (2**30, 2**30)),
        lambda: pg.zeros((2**31, 2**31)),
    ],
)
def test_results_beyond_any_memory_are_refused_before_they_are_made(call) -> None:
    with pytest.raises(ShapeError, match="too many elements"):
        call()


@pytest.mark.parametrize("shape", ["12", (2.7,), [None], 1.5, ((1,),)])
def test_shapes_are_integers(shape) -> None:
    with pytest.raises(TypeError, match="must be whole numbers"):
        pg.zeros(shape)


def test_in_place_ops_write_only_where_they_may() -> None:
    rows = pg.tensor([0])
    stored = pg.tensor(np.ones((3, 4)), requires_grad=True)
    for dst in (pg.ones((4, 3)).T, stored + 0.0, stored):
        written = pg.ops.set_rows(dst, pg.zeros((1, 4)), rows)
        np.testing.assert_array_equal(written.numpy().sum(1), [0, 4, 4])
        np.testing.assert_array_equal(dst.numpy(), np.ones((3, 4)))
    with pytest.raises(DTypeError, match="set_rows: dst must be f32"):
        pg.ops.set_rows(stored.astype("f16"), pg.zeros((1, 4)), rows)
    ids = pg.tensor([0, 1])
    with pytest.raises(DTypeError, match="must be f32 or f16"):
        pg.ops.cpy(pg.tensor([99, 99]), ids)
    with pytest.raises(ValueError, match="dst must be stored, or a view"):
        pg.ops.cpy(pg.ones((2,)), pg.ones((2,)) * 2.0)


def test_a_scalar_has_no_elements_to_iterate() -> None:
    with pytest.raises(TypeError, match="a scalar has no length"):
        list(pg.tensor(1.0))


def test_a_parameter_is_not_its_own_gradient() -> None:
    w = pg.tensor([1.0], requires_grad=True)
    with pytest.raises(ValueError, match="own gradient"):
        w.grad = w
    loss = (w * w).sum()
    with pytest.raises(ValueError, match="own gradient"):
        pg.Graph([], loss=loss, grads={w: w})


@pytest.mark.parametrize(
    "call",
    [
        lambda t: pg.ops.pad(t, [(0.5, 1)]),
        lambda t: pg.ops.pad(t, [3]),
        lambda t: pg.ops.roll(t, [1.5]),
        lambda t: pg.ops.pad_reflect(t, 0.5, 1),
        lambda t: pg.ops.rope(t, pg.tensor([0, 1]), n_dims="4"),
        lambda t: pg.ops.rope(pg.ones((2, 3, 7)), pg.tensor([0, 1]), 6),
        lambda t: pg.ops.cross_entropy(pg.ones((2, 3)), pg.tensor([0, 1]), ignore_index=0.5),
    ],
)
def test_settings_are_not_cut_to_integers(call) -> None:
    with pytest.raises((TypeError, ValueError), match=r"whole number|even"):
        call(pg.ones((2, 3, 4)))


def test_ids_written_later_are_checked_too() -> None:
    ids = pg.tensor([0, 1])
    rows = pg.ops.get_rows(pg.ones((3, 2)), ids)
    with pytest.raises(ShapeError, match="from 0 to 2; got 1 to 3"):
        ids.copy_([1, 3])
    assert rows.shape == (2, 2)


def test_threads_record_and_compute_at_once() -> None:
    errors = []

    def work(k: float) -> None:
        try:
            for _ in range(50):
                t = pg.tensor(np.full((8, 8), k))
                if not np.allclose(((t @ t) + k).numpy(), 8 * k * k + k):
                    errors.append(k)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in (1.0, 2.0, 3.0, 4.0)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("shape", (2, 2), r"x\.reshape\(\(2, 2\)\)"),
        ("dtype", "f16", r"x\.astype\('f16'\)"),
        ("device", "cpu", "."),
        ("ndim", 2, "."),
        ("size", 9, "."),
        ("nbytes", 9, "."),
        ("node", None, "."),
        ("ptr", None, "."),
        ("buffer", None, "."),
        ("is_stored", False, "."),
    ],
)
def test_what_a_tensor_is_cannot_be_assigned(name, value, cure) -> None:
    x = pg.ones((4,))
    for t in (x, x * 2.0):
        with pytest.raises(AttributeError, match=cure):
            setattr(t, name, value)
        assert t.shape == (4,)
        assert t.dtype.name == "f32"


@pytest.mark.parametrize("dtype", [None, "f32", "i32"])
def test_none_is_no_tensor(dtype) -> None:
    with pytest.raises(DTypeError, match=r"tensor: expected numbers.*got None"):
        pg.tensor(None, dtype)


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("other", ["1", "x", "y", "np.array([1.0, 3.0])"])
def test_comparisons_are_masks(sign, other) -> None:
    x, y = np.array([1.0, 2.0], np.float32), np.array([2.0, 2.0], np.float32)
    want = eval(f"x {sign} {other}", {"x": x, "y": y, "np": np})
    tensors = {"x": pg.tensor(x), "y": pg.tensor(y), "np": np}
    assert eval(f"x {sign} {other}", tensors).tolist() == (want * 1.0).tolist()


def test_comparison_with_none_and_as_keys() -> None:
    x, y = pg.ones(2), pg.ones(2)
    assert (x == None) is False  # noqa: E711
    assert {x: 1, y: 2}[y] == 2
    with pytest.raises(ShapeError, match="one element"):
        bool(x == y)


def test_text_shows_the_numbers() -> None:
    x = pg.tensor([[1.0, 2.5]])
    assert repr(x) == "tensor([[1. , 2.5]], dtype=f32, device='cpu')"
    assert repr(x * 2) == "tensor([[2., 5.]], dtype=f32, device='cpu')"
    assert "requires_grad=True" in repr(pg.tensor([1.0], requires_grad=True) * 2)
    assert "..., 0., 0., 0.], shape=(3000,)" in repr(pg.zeros(3000))
    assert repr(pg.zeros(3000) * 2) == (pg.zeros(3000) * 2).describe()  # not computed
    seen = []
    pg.compile(lambda t: seen.append(repr(t + 1)) or t)(x)
    assert seen == ["Tensor(shape=(1, 2), dtype=f32, device='cpu', recorded)"]


def test_a_message_computes_nothing() -> None:
    x = pg.ones(2) * 2
    with pytest.raises(TypeError, match=r"got Tensor\(shape=\(2,\), .*recorded\)"):
        pg.ops.clamp(pg.ones(2), x, 1.0)
    assert not x.is_stored


@pytest.mark.parametrize("make", [pg.zeros, pg.ones, pg.empty])
def test_extents_are_given_one_by_one_or_as_a_tuple(make) -> None:
    for shape in ((2, 3), (4,), (1, 2, 3, 4)):
        assert make(*shape).shape == make(shape).shape == make(list(shape)).shape == shape
        assert make(*shape).dtype.name == "f32"
    assert make(2, 3, dtype="i32").dtype.name == "i32"
    assert make((2, 3), "i32").dtype.name == "i32"


def test_numbers_are_no_dtypes() -> None:
    for call in (
        lambda: pg.zeros(2, 3, dtype=3),
        lambda: pg.tensor([1.0], 3),
        lambda: pg.as_dtype(0),
        lambda: pg.as_dtype(np.int64(3)),
        lambda: pg.as_dtype(None),
    ):
        with pytest.raises(DTypeError, match="dtype: must be a name"):
            call()
    assert pg.as_dtype(np.float32) == pg.as_dtype(np.dtype("f4")) == pg.as_dtype("f32")


def test_a_tensor_of_one_element_is_formatted():
    loss = pg.tensor([1.5, 2.5]).mean()
    assert f"{loss:.3f}" == "2.000"
    assert f"{pg.tensor([3]):d}" == "3"
    assert f"{pg.tensor([1.0])}" == str(pg.tensor([1.0]))
    with pytest.raises(TypeError, match=r"one element for '\.2f'; got \(2,\)"):
        f"{pg.tensor([1.0, 2.0]):.2f}"


def test_cures_name_what_there_is():
    x = pg.tensor([1.0])
    with pytest.raises(AttributeError, match=r"use y = x\.exp\(…\)"):
        x.exp_()
    with pytest.raises(AttributeError, match=r"use nn\.init\.uniform_\(x\)"):
        x.uniform_()


def test_dtypes_and_devices_go_to_the_same_method() -> None:
    x, whole = pg.ones(2), pg.tensor([1, 2])
    for dtype in ("i32", "int32", np.int32, np.dtype("int32"), whole.dtype, whole):
        assert x.to(dtype).dtype == "i32"
    assert whole.to("cpu", "f32").dtype == whole.to(dtype=np.float32).dtype == "f32"
    assert x.to("cpu", non_blocking=True) is x.to(device="cpu") is x
    for wrong in ("float31", bytes):
        with pytest.raises(DTypeError, match=r"^to: .*known are f32, f16"):
            x.to(wrong)
    with pytest.raises(pg.BackendError, match="there are auto, cpu"):
        x.to("gpu9")


@pytest.mark.parametrize(
    ("values", "cure"),
    [
        (np.array(["a"]), r"np\.unique"),
        (["a", "b"], r"np\.unique"),
        (np.array([1, None]), "one kind of numbers"),
        (np.array([1j]), r"\.real"),
        (np.array(["2026-01-01"], "M8[D]"), "timedelta64"),
    ],
)
def test_what_is_no_number_has_a_cure_of_its_own(values: object, cure: str) -> None:
    with pytest.raises(DTypeError, match=f"^tensor: .*{cure}"):
        pg.tensor(values)


def test_a_dtype_equals_its_name() -> None:
    x = pg.ones(2)
    assert x.dtype == "f32"
    assert x.dtype != "f16"
    assert x.dtype in ("f16", "f32")
    assert {x.dtype: 1}["f32"] == 1
    assert x.dtype == pg.zeros(3).dtype != pg.arange(2).dtype
    assert x.dtype != np.float32


def test_randint_takes_an_end_and_a_shape_as_pytorch_does() -> None:
    for shape in ((100,), [10, 10]):
        numbers = pg.randint(3, shape)
        assert numbers.shape == tuple(shape)
        assert {*numbers.flatten().tolist()} == {0, 1, 2}


def test_t_reverses_all_axes() -> None:
    array = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    x = pg.tensor(array)
    np.testing.assert_array_equal(x.T.numpy(), array.T)
    np.testing.assert_array_equal(x[None].T.numpy(), array[None].T)
    np.testing.assert_array_equal(x.mT.numpy(), array.swapaxes(1, 2))
    np.testing.assert_array_equal(x[0].t().numpy(), array[0].T)
    assert pg.ones(3).T.shape == pg.ones(3).t().shape == (3,)
    with pytest.raises(pg.ShapeError, match=r"t: .*x\.mT"):
        x.t()
