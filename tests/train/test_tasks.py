# SPDX-License-Identifier: MIT
"""Tasks: loss, metrics and predictions by the kind of the targets."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import ArrayDataset
from pyggml.errors import ConfigError, DTypeError, ShapeError
from pyggml.models import MLP, MLPConfig
from pyggml.train import (
    TASKS,
    Trainer,
    TrainStep,
    label_f1_score,
    mae,
    predict,
    r2_score,
    rmse,
    subset_accuracy,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 3)).astype(np.float32)
PLAN = {"batch_size": 16, "steps": 4, "eval_every": 0}


def test_metrics_are_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    found, wanted = RNG.standard_normal((2, 40, 3))
    assert r2_score(found, wanted) == pytest.approx(metrics.r2_score(wanted, found))
    assert mae(found, wanted) == pytest.approx(metrics.mean_absolute_error(wanted, found))
    assert rmse(found, wanted) ** 2 == pytest.approx(metrics.mean_squared_error(wanted, found))
    rows = found > 0.5, wanted > 0
    assert subset_accuracy(*rows) == metrics.accuracy_score(rows[1], rows[0])
    for average in ("macro", "weighted", "micro"):
        expected = metrics.f1_score(rows[1], rows[0], average=average)
        assert label_f1_score(*rows, average) == pytest.approx(expected)


def test_edges_of_r2():
    assert r2_score([2.0, 2.0], [2.0, 2.0]) == 1
    assert r2_score([2.0, 3.0], [2.0, 2.0]) == 0
    with pytest.raises(ShapeError):
        r2_score([1.0], [1.0, 2.0])


def test_metrics_of_nan():
    """NaN is neither right nor the mean of the targets."""
    for spoiled in ([[np.nan, 1.0], [2.0, 1.0]], [[2.0, 1.0], [np.nan, 1.0]]):
        assert all(np.isnan(metric(*spoiled)) for metric in (r2_score, rmse, mae))
    # a label is wrong, whatever the target
    assert subset_accuracy([[np.nan, 1], [0, 1]], [[0, 1], [0, 1]]) == 0.5
    assert label_f1_score([[np.nan], [1]], [[0], [1]]) == pytest.approx(2 / 3)
    assert label_f1_score([[np.nan], [np.nan]], [[0], [1]]) == 0
    with pytest.raises(ValueError, match="targets"):
        subset_accuracy([[1.0]], [[np.nan]])


def test_regression_learns_standardised_targets():
    y = 5e4 + 1e3 * X @ np.array([1.0, -2.0, 0.5])
    train, test = ArrayDataset(X, y).split(0.2)
    pg.seed(0)
    model = MLP(MLPConfig.of(train, hidden=()))
    loss, count = TASKS["regression"].loss(model)(model, pg.tensor(train.x), pg.tensor(train.y))
    error = (predict(model, train) - train.y) / np.std(train.y)
    assert loss.item() / count((train.x, train.y)) == pytest.approx((error**2).mean(), rel=1e-3)
    trainer = Trainer(model, train, test, lr=0.05, batch_size=16, steps=120, eval_every=0)
    found = trainer.fit().validation
    assert found.metrics["r2"] > 0.99
    assert found.metrics["rmse"] == pytest.approx(rmse(predict(model, test.x), test.y), rel=1e-4)
    assert found.perplexity is None
    assert set(found.metrics) == {"r2", "rmse", "mae"}
    model.save("m.gguf")
    again, _ = pg.load("m.gguf")
    np.testing.assert_array_equal(predict(again, test.x), predict(model, test.x, batch_size=3))


def test_a_module_of_ones_own_takes_the_task_by_name():
    y = X[:, :1] * 2
    model = nn.Sequential(nn.Linear(3, 1))
    trainer = Trainer(model, ArrayDataset(X, y), ArrayDataset(X, y), task="regression", **PLAN)
    assert "rmse" in trainer.fit().validation.metrics
    assert predict(model, X, task="regression").shape == (50,)
    assert predict(model, X).shape == (50, 1)


def test_names_of_classes_are_in_the_file_and_in_predictions():
    data = ArrayDataset(X, np.where(X[:, 0] > 0, "up", "down"))
    model = MLP(MLPConfig.of(data, hidden=()))
    found = Trainer(model, data, data, **PLAN).fit().validation
    assert found.perplexity is None
    model.save("m.gguf")
    again, _ = pg.load("m.gguf")
    assert set(predict(again, X)) <= {"up", "down"}
    right = (predict(again, X, labels=False) == data.y).mean()
    assert found.metrics["accuracy"] == pytest.approx(right)


def test_functions_are_metrics():
    def errors(y_true, y_pred):
        return (y_true != y_pred).sum() + 100 * len(y_true)

    def first(predicted, targets):
        return targets[0] - 0.5

    data = ArrayDataset(X, X > 0)
    model = MLP(MLPConfig.of(data, hidden=()))
    found = Trainer(model, data, data, metrics=["f1", errors, first], **PLAN)
    with pytest.raises(TypeError):
        found.fit()  # `first` returns several numbers
    found = Trainer(model, data, data, metrics=["f1", errors], **PLAN).fit().validation.metrics
    wrong = (predict(model, X) != data.y).sum()
    assert list(found) == ["f1", "errors"]
    assert found["errors"] == 5000 + wrong


def test_what_does_not_fit_a_task_is_named():
    data = ArrayDataset(X, X[:, 0])
    model = MLP(MLPConfig.of(data, hidden=()))
    with pytest.raises(ValueError, match="r2, rmse, mae"):
        Trainer(model, data, data, metrics=["accuracy"], **PLAN)
    with pytest.raises(ValueError, match="task"):
        Trainer(model, data, data, task="ranking", **PLAN)
    with pytest.raises(ConfigError, match="label_smoothing"):
        Trainer(model, data, data, label_smoothing=0.1, **PLAN)
    wide = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="outputs"):
        Trainer(wide, data, data, task="regression", **PLAN).fit()
    with pytest.raises(ValueError, match="target_mean"):
        MLPConfig(inputs=3, classes=1, target_mean=(1.0,), target_std=(1.0,))
    assert TrainStep(model, None).logits((X, data.y)).shape == (50, 1)


def test_tokens_have_classes():
    x = RNG.integers(0, 9, (40, 6)).astype(np.int32)
    y = np.where(np.arange(6) < 4, x % 3, -100).astype(np.int32)
    data = ArrayDataset(x, y)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 3))
    how = {"lr": 0.1, "batch_size": 16, "steps": 40, "eval_every": 0}
    found = Trainer(model, data, data, task="token_classification", **how).fit().validation
    assert found.metrics == {"accuracy": 1.0, "f1": 1.0}
    guesses = predict(model, data, task="token_classification")
    assert (guesses[:, :4] == y[:, :4]).all()


def test_pictures_name_the_unit_of_the_task():
    pytest.importorskip("matplotlib")
    from pyggml.recipes.report.training_curves import loss_svg

    steps = [{"kind": "train", "step": n, "loss": 1.0 / n} for n in (1, 2, 3)]
    last = {"kind": "validation", "step": 3, "loss": 0.3}
    assert "R² 0.700" in loss_svg([*steps, {**last, "r2": 0.7}])
    assert "accuracy 90.0%" in loss_svg([*steps, {**last, "accuracy": 0.9}])
    assert "per token" in loss_svg([*steps, {**last, "perplexity": 2.0}])
    assert "per token" not in loss_svg([*steps, {**last, "r2": 0.7}])


def test_whole_numbers_are_inputs_and_bad_rows_are_named():
    data = ArrayDataset(RNG.integers(0, 9, (20, 3)), np.arange(20) % 2)
    model = MLP(MLPConfig.of(data, hidden=()))
    Trainer(model, data, **{**PLAN, "eval_every": None}).fit()
    np.testing.assert_array_equal(predict(model, data), predict(model, data.x.astype(np.float32)))
    for rows in ([], 3, [["a", "b", "c"]], np.full((2, 3), np.nan), np.ones((2, 4))):
        with pytest.raises(ValueError, match=r"predict: data|MLP: x"):
            predict(model, rows)


def test_whole_numbers_are_no_labels_by_themselves():
    x = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
    labels = (x[:, :3] > 0).astype(np.int32)
    given = {"task": "multi_label", "steps": 1, "batch_size": 4}
    with pytest.raises(DTypeError, match=r'ArrayDataset\(x, y, task="multi_label"\)'):
        Trainer(nn.Linear(4, 3), _Rows(x, labels), **given).fit()
    Trainer(nn.Linear(4, 3), ArrayDataset(x, labels, task="multi_label"), **given).fit()


class _Rows:
    """A dataset that converts nothing."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def order(self, rng):
        return np.arange(len(self.x))

    def batch(self, items):
        return self.x[items], self.y[items]
