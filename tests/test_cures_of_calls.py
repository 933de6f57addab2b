# SPDX-License-Identifier: MIT
"""Calls that people who come from PyTorch and Keras write: the error says what to do instead."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, nn, optim, train
from pyggml.nn import functional as F
from pyggml.nn.losses.base import Loss

LOGITS, CLASSES = pg.randn(4, 3), pg.tensor([0, 1, 2, 0])
X = np.random.default_rng(0).standard_normal((16, 3)).astype(np.float32)
ROWS = data.ArrayDataset(X, (X[:, 0] > 0).astype(np.int32))
# What PyTorch's tensors look like from here.
FOREIGN = type("Tensor", (), {"__array__": lambda _: X, "__module__": "torch"})()
LOSSES = [loss for loss in vars(nn).values() if isinstance(loss, type) and issubclass(loss, Loss)]
GIVEN: dict[str, Any] = {
    "pg": pg, "nn": nn, "F": F, "optim": optim, "data": data, "train": train, "np": np,
    "logits": LOGITS, "y": CLASSES, "images": pg.randn(1, 4, 6, 6), "foreign": FOREIGN,
    "rows": ROWS,
}  # fmt: skip


def trainer(**given: Any) -> train.Trainer:
    return train.Trainer(nn.Linear(3, 2), ROWS, batch_size=8, steps=2, **given)


def message(call: str) -> str:
    with pytest.raises((TypeError, ValueError, AttributeError)) as error:
        eval(call, {**GIVEN, "trainer": trainer})
    return str(error.value)


def test_all_losses_are_found() -> None:
    assert len(LOSSES) >= 19
    assert nn.CrossEntropyLoss in LOSSES
    assert nn.BCELoss in LOSSES


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_a_loss_that_is_made_of_what_it_compares_says_how_it_is_called(loss: type) -> None:
    call = [
        each.name for each in list(inspect.signature(loss.forward).parameters.values())[1:]
        if each.default is each.empty
    ]  # fmt: skip
    want = rf"{loss.__name__}: .*make the loss first, {loss.__name__}\(\)\({', '.join(call)}\)"
    for tensors in ([LOGITS] * len(call), [X] * len(call)):
        with pytest.raises(TypeError, match=want):
            loss(*tensors)
    if len(call) > 1:
        with pytest.raises(TypeError, match=want):
            loss(input=LOGITS, target=LOGITS)
    assert loss().reduction == "mean"
    assert list(inspect.signature(loss).parameters) != ["args", "kwargs"]


def test_a_loss_takes_weights_by_place() -> None:
    weight = pg.ones(3)
    assert nn.CrossEntropyLoss(weight).weight is weight
    assert nn.BCEWithLogitsLoss(weight, "sum", weight).pos_weight is weight

    class Own(nn.CrossEntropyLoss):
        def __init__(self, first: pg.Tensor, second: pg.Tensor):
            super().__init__(first + second)

    assert Own(weight, weight).weight is not None


@pytest.mark.parametrize(
    "call",
    [
        "F.cross_entropy(y, logits)",
        "nn.CrossEntropyLoss()(y, logits)",
        "F.nll_loss(y, logits)",
        "nn.NLLLoss()(y, logits)",
        "F.binary_cross_entropy_with_logits(y, logits[:, 0])",
        "F.binary_cross_entropy(y, logits[:, 0])",
        "F.kl_div(y, logits)",
    ],
)
def test_targets_in_the_place_of_predictions(call: str) -> None:
    assert "must come first, the predictions, and then target" in message(call)
    assert "i32" in message(call)
    assert message(call).endswith("swap them")


@pytest.mark.parametrize(
    ("call", "cure"),
    [
        ("logits.median(dim=1)", "along an axis x.sort(dim).values.select(dim, (x.size(dim) - 1)"),
        ("pg.GradScaler()", "pg.autocast('bf16') needs no scaler"),
        ("pg.ParameterDict()", "nn.Parameter(values)"),
        ("pg.LSTM(2, 2)", "nn.MultiheadAttention"),
        ("setattr(logits, 'data', logits)", "use x.copy_(values)"),
        ("logits.data", "x.copy_(values), which writes; x.detach() reads"),
        ("logits * logits.grad", "None, as a tensor's grad is before loss.backward()"),
        ("F.max_pool2d(images, 2, dilation=2)", "ops.im2col"),
        ("nn.MaxPool2d(2, return_indices=True)", "the values alone"),
        ("F.conv_transpose2d(images, images, groups=2)", "x.chunk(groups, 1)"),
        ("nn.Conv2d(3, 4, 3, padding_mode='reflect')", "F.pad(x, widths, mode)"),
        ("nn.Conv2d(3, 4, 3, groups=2)", "groups must divide the channels"),
        ("nn.Embedding(3, 4, max_norm=1.0)", "weight.copy_(rows)"),
        ("F.embedding(y, logits, padding_idx=4)", "padding_idx"),
        ("nn.InstanceNorm2d(3, track_running_stats=True, x=1)", "it takes (num_features"),
        ("nn.InstanceNorm2d(3, track_running_stats=0)", "nn.BatchNorm2d"),
        ("logits.sort(stable=True)", "np.argsort(x.numpy(), dim, kind='stable')"),
        ("F.pad(images, (-3, -3))", "an element of each axis must be left"),
        ("nn.Sequential([nn.ReLU()])", "Sequential(*modules)"),
        ("nn.Sequential(nn.ReLU)", "got the class ReLU at 0: give an object of it, ReLU()"),
        ("nn.ModuleList([nn.ReLU])", "give an object of it, ReLU()"),
        ("nn.ModuleList(nn.ReLU())", "got ReLU: give [module]"),
        ("F.cross_entropy(logits.argmax(1), y)", "leave out argmax"),
        ("F.cross_entropy(logits, y[:, None])", "use targets.reshape(4,)"),
        ("F.cross_entropy(logits, y.float())", "use targets.astype('i32')"),
        ("F.mse_loss(logits[:, :1], y.float())", "use target.reshape(4, 1)"),
        ("nn.Sequential(F.relu)", "make a Module whose forward calls it"),
        ("logits + foreign", "got a torch.Tensor: use pg.tensor(b)"),
        ("foreign * logits", "got a torch.Tensor: use pg.tensor(a)"),
        ("F.mse_loss(logits, foreign)", "got torch.Tensor; use pg.tensor(target)"),
    ],
)
def test_calls_of_pytorch(call: str, cure: str) -> None:
    assert cure in message(call)


@pytest.mark.parametrize(
    ("call", "cure"),
    [
        ("trainer().fit(epochs=3)", "use Trainer(…, epochs=…).fit()"),
        ("trainer().fit(rows)", "use Trainer(model, train, val, epochs=…).fit()"),
        ("trainer().fit(x=1, y=2)", "use Trainer(model, train, val, …)"),
        ("trainer().fit(verbose=0)", "use progress=False"),
        ("trainer().fit(validation_split=0.2)", "train, val = dataset.split(0.2)"),
        ("trainer().fit(class_weight={})", "loss=lambda model, x, y: F.cross_entropy"),
        ("trainer().evaluate(rows)", "Trainer(…, val=dataset).evaluate()"),
        ("trainer().evaluate(logits, y)", "Trainer(…, val=data.ArrayDataset(x, y)).evaluate()"),
        ("trainer().evaluate(verbose=0)", "it takes (stop=None): use nothing"),
        ("trainer().predict(logits)", "use train.predict(trainer.model, x)"),
        ("trainer(loss='mse')", "loss=lambda model, x, y: F.mse_loss(model(x), y)"),
        ("trainer(loss='sparse_categorical_crossentropy')", "F.cross_entropy(model(x), y)"),
        ("trainer(loss=nn.MSELoss())", "loss=lambda model, x, y: nn.MSELoss()(model(x), y)"),
        ("trainer(loss=nn.MSELoss)", "loss=lambda model, x, y: nn.MSELoss()(model(x), y)"),
        ("trainer(loss=F.cross_entropy)", "loss=lambda model, x, y: F.cross_entropy(model(x), y)"),
        ("trainer(optimizer='adam')", "use optim.Adam(model) for 'adam'"),
        ("trainer(optimizer=optim.Adam)", "got the class Adam; give an object of it, Adam(model)"),
        ("trainer(validation_split=0.2)", "train, val = dataset.split(0.2)"),
        ("trainer(class_weight={0: 1.0})", "F.cross_entropy(model(x), y, weight)"),
        ("trainer(early_stopping=3)", "patience="),
        ("trainer(shuffle=False)", "data.Loader(dataset, batch_size, shuffle=False)"),
    ],
)
def test_calls_of_keras(call: str, cure: str) -> None:
    text = message(call)
    assert text.startswith(("Trainer", "trainer"))
    assert cure in text


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_one_hot_targets_of_a_classification(dtype: type) -> None:
    one_hot = data.ArrayDataset(X, np.eye(2, dtype=dtype)[ROWS.y])
    with pytest.raises(ValueError, match=r"give (y|targets)\.argmax\(-1\), the classes of one-hot"):
        train.Trainer(nn.Linear(3, 2), one_hot, one_hot, task="classification", steps=2).fit()


@pytest.mark.parametrize(
    ("call", "loss"),
    [("'mse'", "mse_loss"), (nn.L1Loss, "l1_loss"), (F.huber_loss, "huber_loss")],
)
def test_the_cure_of_a_loss_trains(call: Any, loss: str) -> None:
    with pytest.raises(TypeError) as error:
        trainer(loss=call.strip("'") if isinstance(call, str) else call)
    cure = str(error.value).partition("use loss=")[2].partition(", or leave it out")[0]
    rows = data.ArrayDataset(X, X[:, :2])
    chosen = eval(cure, {"F": F, "nn": nn})
    run = train.Trainer(nn.Linear(3, 2), rows, batch_size=16, steps=1, loss=chosen)
    model = nn.Linear(3, 2)
    model.load_state_dict(run.model.state_dict())
    want = getattr(F, loss)(model(pg.tensor(X)), pg.tensor(X[:, :2].copy())).item()
    assert run.fit(progress=False).loss == pytest.approx(want, rel=1e-5)


def test_the_cure_of_a_median_along_an_axis() -> None:
    cure = message("logits.median(dim=1)").partition("along an axis ")[2]
    x = pg.tensor([[3.0, 1.0, 2.0, 9.0], [0.0, 5.0, 4.0, 8.0]])
    assert eval(cure, {"x": x, "dim": 1}).tolist() == [2.0, 4.0]  # PyTorch's: the lower one
    assert eval(cure, {"x": x, "dim": 0}).tolist() == [0.0, 1.0, 2.0, 8.0]


def test_the_gradient_of_a_computed_tensor_warns_and_its_cure_trains() -> None:
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward()
    computed = w - 0.1 * w.grad
    with pytest.warns(UserWarning, match=r"w\.copy_\(w - lr \* w\.grad\)"):
        assert computed.grad is None
    w.copy_(w - 0.1 * w.grad)
    assert w.is_stored
    assert w.requires_grad
    assert w.grad is not None
    np.testing.assert_allclose(w.numpy(), [0.8, 1.6], rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_a_gradient_that_is_not_there_yet_is_none_without_a_warning() -> None:
    assert pg.ones(2, requires_grad=True).grad is None
    assert pg.ones(2).grad is None
    assert (pg.ones(2) * 2).grad is None
    assert not hasattr(pg.ones(2), "data")


def test_arguments_that_change_nothing_are_taken() -> None:
    x = SimpleNamespace(images=pg.randn(1, 4, 6, 6))
    assert nn.Conv2d(4, 2, 3, padding_mode="zeros", device=None, dtype=None).weight.shape[0] == 2
    assert nn.Embedding(3, 4, max_norm=None, sparse=False).weight.shape == (3, 4)
    assert nn.BatchNorm2d(4, track_running_stats=True)(x.images).shape == x.images.shape
    assert nn.MaxPool2d(2, dilation=1, return_indices=False)(x.images).shape == (1, 4, 3, 3)
    assert pg.randn(3).sort(stable=False).values.shape == (3,)
