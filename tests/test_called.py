# SPDX-License-Identifier: MIT
"""An error names the layer, the method or the function that the user called, and its argument."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim, train
from pyggml.errors import DTypeError, composed, fitting, lead
from pyggml.nn import functional as F

from .tensors.calls import MODULES

LAYERS = {call.partition("(")[0]: call for call, _ in MODULES}
# Containers have a message of the layer inside of them that does not fit.
OF_OTHERS = {"nn.Sequential", "nn.ModuleList", "nn.ModuleDict"}
WRONG: dict[str, Any] = {
    "scalar": pg.tensor(1.0), "vector": pg.ones(7), "three": pg.ones(2, 7, 7),
    "four": pg.ones(1, 7, 7, 7), "i32": pg.tensor([[1, 2], [3, 4]]), "array": np.ones((2, 4)),
    "list": [1.0], "None": None, "f16": pg.ones(2, 3, 4, dtype="f16"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(LAYERS) - OF_OTHERS))
def test_a_layer_is_named(name: str) -> None:
    layer = eval(LAYERS[name], {"nn": nn, "OrderedDict": OrderedDict})
    own = type(layer).__name__
    needed = [p for p in inspect.signature(layer.forward).parameters.values()
              if p.default is p.empty]  # fmt: skip
    refused = {}
    for kind, x in WRONG.items():
        try:
            np.asarray(layer(*[x] * len(needed)))
        except (TypeError, ValueError, IndexError) as error:
            refused[kind] = str(error)
    head = f"{own}: "
    wrong = [each for each in refused.items() if not each[1].startswith(head)]
    assert not wrong
    assert refused or own == "Identity"


X = pg.ones(2, 3, 4)
METHODS: dict[str, list[tuple[Any, ...]]] = {
    "view": [(-1, -1), (5,), ("a",)], "reshape": [(-1, -1)], "norm": [(0,), ("a",), (2, 9)],
    "transpose": [(0, 9)], "t": [], "expand": [(5, 5, 5), ("a",)], "repeat": [(0,), ("a",)],
    "contiguous": [], "astype": [("zz",)], "to": [("zz",)], "clip": [(2, 1), ("a",)],
    "clamp_min": [("a",)], "clamp_max": [("a",)], "where": [([1], X)], "sum": [(9,)],
    "split": [(0,)], "gather": [(0, pg.tensor([9]))], "matmul": [(pg.ones(3, 3),)],
    "expand_as": [(3,)], "view_as": [(3,)], "type_as": [(3,)], "sort": [(9,)],
    "allclose": [(3,)], "isclose": [("a",)], "mm": [(pg.ones(3, 3),)], "topk": [(9,)],
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_named(name: str) -> None:
    method = getattr(X, name)
    calls = [lambda args=args: method(*args) for args in METHODS[name]]
    calls.append(lambda: method(no_such_argument=1))
    for call in calls:
        with pytest.raises((TypeError, ValueError, RuntimeError)) as error:
            call().numpy()
        assert str(error.value).startswith(f"{name}: "), str(error.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: nn.Linear(3, units=4), r"Linear: got .*'units'; it takes \(in_features, out_f"),
        (lambda: optim.AdamW([], learning_rate=1), r"AdamW: got .*'learning_rate'; it takes \("),
        (lambda: X.sum(over=1), r"sum: got an unexpected .* 'over'; it takes \(dim=None, keepdim"),
        (lambda: pg.softmax(X, dim=1, axes=2), "softmax: dim .* dim and axes.* leave out axes$"),
        (lambda: pg.softmax(X, dim=1, over=1), r"softmax: got .*'over'; it takes \(x, dim=-1\)"),
        (lambda: F.relu(X, inplace=True), r"relu: .*'inplace'; .*: use y = relu\(…\)"),
        (lambda: X.exp(out=X), r"exp: .*'out'; .*: use y = exp\(…\)"),
        (lambda: nn.Linear(2, 3, device="cpu"), r"Linear: .*'device'; .*: use module\.to"),
        (lambda: X.add(X, alpha=2), r"add: .*'alpha'; .*: use alpha \* b for b"),
        (lambda: X.numpy(force=True), r"numpy: .*'force'; it takes \(\): use nothing"),
        (X.backward, r"backward: .* got Tensor\(shape=.*; reduce it with \.sum\(\)"),
        (lambda: pg.mean(X, dtype="f16"), r"mean: .*'dtype'; .*: use x\.astype\(dtype\)"),
        (lambda: nn.Softmax(input=1), r"Softmax: got .*'input'; it takes \(dim"),
        (lambda: X.norm(0), "norm: p must be > 0"),
        (lambda: F.scaled_dot_product_attention(*[pg.ones(1, 2, 5, 4)] * 3, pg.ones(4, 4)),
         r"scaled_dot_product_attention: attn_mask must be \(T, S\) = \(5, 5\)"),
        (lambda: nn.MultiheadAttention(4, 2)(*[pg.ones(1, 5, 4)] * 3, pg.tensor([[1] * 5])),
         "MultiheadAttention: key_padding_mask must be a comparison .* got i32"),
        (lambda: nn.MultiheadAttention(4, 2)(*[pg.ones(1, 5, 4)] * 3, np.ones((1, 5), int)),
         "MultiheadAttention: key_padding_mask must be a comparison .* got int64"),
        (lambda: nn.MultiheadAttention(4, 2)(*[pg.ones(1, 5, 4)] * 3, np.ones((5, 5)) > 0),
         r"MultiheadAttention: key_padding_mask must be \(B, S\) = \(1, 5\)"),
        (lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2), 1)(
            pg.ones(1, 5, 4), pg.ones(1, 3, 4), memory_key_padding_mask=np.ones((1, 5)) > 0),
         r"TransformerDecoder: memory_key_padding_mask must be \(B, S\) = \(1, 3\)"),
        (lambda: nn.TransformerEncoderLayer(4, 2)(pg.ones(1, 5, 4), pg.ones(4, 4)),
         r"TransformerEncoderLayer: src_mask must be \(T, S\)"),
        (lambda: train.Trainer(nn.Linear(2, 2), np.ones((4, 2))),
         r"Trainer: train must .* of arrays give data\.ArrayDataset\(x, y\)"),
        (lambda: train.Trainer(nn.Linear(2, 2), [], progress=False),
         r"Trainer: no option is 'progress'; use trainer\.fit\(progress=False\)"),
        (lambda: train.Trainer(nn.Linear(2, 2), [], wholly=1),
         "Trainer: every option must be known; got 'wholly'; the options are "),
        (lambda: bool(X), r"bool: x must have one element; .* use x\.any\(\)"),
        (lambda: X.__setitem__(0, 1), r"x\[\.\.\.\] = value: .* use pg\.where"),
    ],
)  # fmt: skip
def test_the_argument_and_a_cure_are_named(call: Callable[[], Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{text}"):
        call()


def test_a_function_that_a_users_module_calls_keeps_its_name() -> None:
    class Own(nn.Module):
        def forward(self, x: pg.Tensor) -> pg.Tensor:
            return x.reshape(5)

    for module in (Own(), nn.Sequential(Own())):
        with pytest.raises(pg.ShapeError, match=r"^reshape: "):
            module(pg.ones(2))


def test_signatures_are_told_of_the_call_alone() -> None:
    @composed
    def outer(x: int) -> int:
        return inner(x, 1)  # type: ignore[call-arg]

    def inner(x: int) -> int:
        return x

    with pytest.raises(TypeError, match=r"^outer: .*inner\(\) takes 1 positional"):
        outer(1)
    with pytest.raises(TypeError, match=r"^outer: missing .*; it takes \(x\)$"):
        outer()
    with pytest.raises(TypeError, match=r"^Box: got .*; it takes \(x\)$"):
        fitting(inner, "Box")(y=1)
    error = ValueError("cont: x must be f32")
    lead("contiguous", error)
    assert str(error) == "contiguous: x must be f32"


def test_functions_of_numpy_have_the_numbers() -> None:
    x = pg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    array = np.arange(4.0, dtype=np.float32).reshape(2, 2)
    assert np.mean(x) == 2.5
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((2, 2), 2, 4)
    assert np.concatenate([x, array]).shape == (4, 2)
    np.testing.assert_allclose(np.exp(x), np.exp(x.numpy()))
    for got, want in ((array + x, array + x.numpy()), (array < x, array < x.numpy()),
                      (array @ x, array @ x.numpy()), (np.float32(3) - x, 3 - x.numpy()),
                      (array >= x, array >= x.numpy())):  # fmt: skip
        assert isinstance(got, pg.Tensor)
        np.testing.assert_allclose(got.numpy(), want)
    total = np.zeros((2, 2))
    total += x
    assert isinstance(total, np.ndarray)
    assert total.sum() == 10.0


def test_what_makes_tensors_takes_requires_grad() -> None:
    x = pg.ones(2, 3)
    for made in (
        pg.randn(2, 3, requires_grad=True), pg.rand(2, 3, requires_grad=True),
        pg.zeros(2, 3, requires_grad=True), pg.ones(2, 3, requires_grad=True),
        pg.full((2, 3), 1.0, requires_grad=True), pg.linspace(0, 1, 3, requires_grad=True),
        pg.zeros_like(x, requires_grad=True), pg.randn_like(x, requires_grad=True),
        pg.empty(2, 3, requires_grad=True),
    ):  # fmt: skip
        made.sum().backward()
        assert made.grad is not None
    with pytest.raises(TypeError, match="zeros: requires_grad must be True or False"):
        pg.zeros(2, requires_grad="yes")


def test_a_mask_of_keys_stretches_over_the_queries() -> None:
    q = pg.randn(2, 2, 5, 4)
    seen = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]]) > 0
    want = F.scaled_dot_product_attention(
        q, q, q, attn_mask=np.broadcast_to(seen[:, None, None], (2, 1, 5, 5))
    )
    for mask in (seen[:, None, None], pg.tensor(seen[:, None, None].astype(np.float32)) > 0):
        got = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_call_of_a_layer_that_does_not_fit_tells_the_signature() -> None:
    x = pg.ones(2, 2)
    with pytest.raises(TypeError, match=r"^Linear: got an .*'more'; it takes \(x\)"):
        nn.Linear(2, 2)(x, more=1)
    with pytest.raises(TypeError, match=r"^Linear: missing .* 'x'; it takes \(x\)"):
        nn.Linear(2, 2)()
    with pytest.raises(
        TypeError, match=r"^MultiheadAttention: .* it takes \(query, .*attn_mask=None"
    ):
        nn.MultiheadAttention(2, 1)(x, x, x, padding=x)
    with pytest.raises(TypeError, match=r"^BatchNorm1d: .* it takes \(num_features"):
        nn.BatchNorm1d(2, process_group=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("dtype", ["f64", "i64"])
def test_the_cure_of_a_dtype_that_ggml_does_not_compute_with(dtype: str) -> None:
    x = pg.tensor([1, 2], dtype=dtype)
    for fn, want in (
        (lambda: x + 1.0, "f32"),
        (x.float, "f32"),
        (x.int, "i32"),
    ):
        with pytest.raises(DTypeError, match=r"pg\.tensor\(") as error:
            fn()
        cure = str(error.value)[str(error.value).index("pg.tensor") :]
        assert eval(cure, {"pg": pg, "x": x, "a": x}).dtype.name == want


def test_padding_is_hidden_by_a_mask_of_each_row() -> None:
    layer, x = nn.MultiheadAttention(4, 2), pg.randn(2, 3, 4)
    hidden = np.array([[False, False, False], [False, False, True]])
    short = x[1:, :2]
    want = layer(x[1:], short, short)[0][0].numpy()
    rows = np.broadcast_to(hidden[:, None, None], (2, 1, 3, 3))
    for masks in ({"attn_mask": rows}, {"key_padding_mask": hidden},
                  {"key_padding_mask": pg.tensor(hidden)},
                  {"key_padding_mask": pg.tensor(hidden.astype("i4")) != 0},
                  {"key_padding_mask": np.where(hidden, -np.inf, 0.0)}):  # fmt: skip
        np.testing.assert_allclose(layer(x, x, x, **masks)[0][1].numpy(), want, 1e-5, 1e-6)


def functions() -> list[tuple[str, Any]]:
    """Return the public functions that take tensors or make them."""
    found = {}
    for place, module in (("pg", pg), ("F", F), ("ops", pg.ops)):
        for name in module.__all__:
            fn = getattr(module, name)
            if inspect.isfunction(fn) and "/graph/" not in inspect.getfile(inspect.unwrap(fn)):
                found[f"{place}.{name}"] = fn
    return list(found.items())


@pytest.mark.parametrize("name", ["pyggml.tensors", "pyggml.ops", "pyggml.nn"])
def test_each_function_tells_its_signature(name: str) -> None:
    mine = [(n, fn) for n, fn in functions() if inspect.unwrap(fn).__module__.startswith(name)]
    assert len(mine) > 20
    for where, fn in mine:
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(fn).parameters.values()):
            continue
        with pytest.raises(TypeError, match=r"^\w+: got .*'no_such'; it takes \(") as error:
            fn(no_such=1)
        assert str(error.value).startswith(where.partition(".")[2]), where


def test_names_of_arguments_are_renamed_for_functions_alone() -> None:
    class Own(nn.Module):
        def forward(self, x: pg.Tensor, dim: int = 0) -> pg.Tensor:
            return x.sum(dim)

    with pytest.raises(TypeError, match=r"'axis'"):
        Own()(X, axis=1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pg.mean(X, dim=1, axis=1),
         "mean: dim must be given once; got dim and axis, which are the same: leave out axis"),
        (lambda: pg.sum(X, axis=1, dim=1), "sum: dim .* got dim and axis, .*: leave out axis"),
        (lambda: X.sum(1, axis=1), "sum: dim .* got dim by place and axis, .*: leave out axis"),
        (lambda: X.sum(axis=1, axes=1), "sum: dim .* got axis and axes, .*: leave out axes"),
        (lambda: X.sum(1, keepdim=True, keepdims=True), "sum: keepdim .*: leave out keepdims"),
        (lambda: pg.add(X, X, other=X), "add: b .* got b by place and other, .*: leave out other"),
        (lambda: pg.full((2,), 1.0, fill_value=1.0), "full: value .*: leave out fill_value"),
        (lambda: F.cross_entropy(X, X, target=X), "cross_entropy: targets .*: leave out target"),
        (lambda: pg.flip(X, (1,), axis=1), "flip: dims .*: leave out axis"),
        (lambda: X.flip(0, axis=1), "flip: dims .* got dims by place and axis, .*"),
        (lambda: X.view(6, size=(6,)), "view: shape .* got shape by place and size, .*"),
        (lambda: pg.zeros(size=(2,), wrong=1), "zeros: got .* 'wrong'; it takes "),
        (lambda: pg.where(X > 0, X, X, input=X), "where: a .* got a by place and input, .*"),
        (lambda: pg.softmax(X, 1, other=X), r"softmax: got .*'other'; it takes \(x, dim=-1\)$"),
        (lambda: pg.sum(X, 1, False, 3, axis=1), "sum: dim .*: leave out axis"),
        (lambda: pg.sum(X, 1, dim=1), r"sum: got multiple values for argument 'dim'; it takes \("),
    ],
)  # fmt: skip
def test_an_argument_under_two_names_is_named(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError, match=f"^{text}"):
        call()


def test_python_compares_a_tensor_with_anything() -> None:
    for other in ("a", None, {}, object(), 1j):
        assert (X == other) is False  # noqa: SIM300
        assert (X != other) is True  # noqa: SIM300
    assert X in ["a", X]
    with pytest.raises(TypeError, match="lt: b must be a Tensor"):
        X < "a"  # noqa: B015
    assert (pg.tensor([1.0, 0.0]) == True).tolist() == [1.0, 0.0]  # noqa: E712


def test_an_option_that_is_switched_off_needs_nothing() -> None:
    rows = pg.data.ArrayDataset(np.arange(8.0).reshape(4, 2), np.arange(4.0))
    options = {"eval_every": 0, "save_every": 0, "keep_best": False, "steps": 1}
    trainer = train.Trainer(nn.Linear(2, 1), rows, task="regression", batch_size=2, **options)
    assert trainer.fit(progress=False).validation is None
