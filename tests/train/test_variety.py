# SPDX-License-Identifier: MIT
"""Rows that nothing can be learnt from, given to a trainer as arrays."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pyggml import nn
from pyggml.data import (
    ArrayDataset,
    Loader,
    TextClassificationDataset,
    Tokenizer,
    read_table,
)
from pyggml.errors import FormatError
from pyggml.models import MLP, MLPConfig
from pyggml.train import Trainer

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 3)).astype(np.float32)
CLASSES = np.arange(30) % 3


def trainer(x, y, task=None, labels=None, loader=False):
    data = ArrayDataset(x, y, task, labels)
    model = nn.Linear(data.x.shape[-1], data.outputs)
    if loader:
        return Trainer(model, Loader(data, 4), steps=1, task=data.task)
    return Trainer(model, data, batch_size=4, steps=1, task=data.task)


def with_constant(*columns: int) -> np.ndarray:
    x = X.copy()
    x[:, columns] = 7.0
    return x


@pytest.mark.parametrize("loader", [False, True])
def test_rows_that_vary_pass(loader: bool) -> None:
    for y, task in ((CLASSES, None), (X[:, 0], None), (X > 0, None), (X, "regression")):
        trainer(X, y, task, loader=loader).fit(progress=False)


@pytest.mark.parametrize("loader", [False, True])
def test_constant_columns_are_named(loader: bool) -> None:
    with pytest.warns(UserWarning, match=r"columns of x that are constant, \[1\]") as seen:
        trainer(with_constant(1), CLASSES, loader=loader)
    assert seen[0].filename == __file__
    with pytest.raises(ValueError, match=r"train must have inputs x that vary.* all 30 rows"):
        trainer(with_constant(0, 1, 2), CLASSES, loader=loader)


def test_a_column_that_varies_late_is_none_of_them() -> None:
    x = np.ones((5000, 2), np.float32)
    x[:, 0] = np.arange(5000)
    x[-1, 1] = 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(x, np.arange(5000) % 2)


def test_images_may_have_a_constant_border() -> None:
    images = np.zeros((6, 1, 4, 4), np.float32)
    images[:, 0, 1:3, 1:3] = RNG.random((6, 2, 2))
    data = ArrayDataset(images, np.arange(6) % 2)
    Trainer(MLP(MLPConfig(inputs=16, hidden=(4,), classes=2)), data, batch_size=2, steps=1)


@pytest.mark.parametrize(
    ("y", "task"), [(np.zeros(30, int), None), (np.full(30, 2.5), None), (np.full((30, 2), 1.0),
     "multi_label"), (np.full(30, 4), None), (["cat"] * 30, None)],
)  # fmt: skip
def test_targets_that_are_all_the_same(y, task) -> None:
    with pytest.raises(ValueError, match="train must have targets y"):
        trainer(X, y, task)


def test_one_of_several_targets_that_is_constant() -> None:
    y = X > 0
    y[:, 1] = True
    with pytest.warns(UserWarning, match=r"targets y that are constant, \('wet',\)|'wet'"):
        trainer(X, y, labels=["dry", "wet", "hot"])
    with pytest.warns(UserWarning, match=r"targets y that are constant, \[0\]"):
        trainer(X, with_constant(0))


def test_classes_that_do_not_begin_at_0() -> None:
    with pytest.raises(ValueError, match=r"number the classes from 0; got -1: give y\.astype"):
        ArrayDataset(X, np.where(CLASSES > 0, 1, -1))
    with pytest.raises(ValueError, match=r"classes y from 0; got 1 to 3: give y\.astype\(str\)"):
        trainer(X, CLASSES + 1)
    with pytest.raises(ValueError, match="0 where not; got shape"):
        ArrayDataset(X, np.where(X > 0, 1, -1), "multi_label")
    named = ArrayDataset(X, (CLASSES + 1).astype(str))
    config = MLPConfig.of(named, hidden=(4,))
    assert config.labels == ("1", "2", "3")
    Trainer(MLP(config), named, batch_size=4, steps=1).fit(progress=False)
    assert ArrayDataset(X, np.where(CLASSES > 0, 1, -100)).outputs == 2  # -100 does not count


def test_a_class_without_a_row() -> None:
    with pytest.warns(UserWarning, match=r"classes y from 0 to 2, but no row of \[1\]"):
        trainer(X, np.where(CLASSES == 1, 2, CLASSES))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(X, np.where(CLASSES == 1, 2, CLASSES), labels=["a", "b", "c"])


def test_tables_are_checked_when_they_are_read() -> None:
    rows = [{"a": 1.0, "b": float(i), "y": i * 0.5} for i in range(4)]
    with pytest.raises(FormatError, match="column 'a' must vary"):
        read_table(rows, "y")
    same = [{"b": float(i), "y": 0.5} for i in range(4)]
    with pytest.raises(ValueError, match=r"targets y that vary; got 0\.5"):
        trainer(*(getattr(read_table(same, "y"), name) for name in ("x", "y")))


def test_arrays_are_no_dataset() -> None:
    with pytest.raises(TypeError, match=r"data\.ArrayDataset\(x, y\)"):
        Trainer(nn.Linear(3, 3), X, CLASSES, steps=1)


@pytest.mark.parametrize("loader", [False, True])
def test_a_validation_set_with_classes_of_other_numbers_is_refused(loader: bool) -> None:
    """Names without "a" would be 0 for "b": an accuracy of other classes."""
    names = np.array(["a", "b", "c"])[CLASSES]
    train = ArrayDataset(X, names)
    model = nn.Linear(3, 3)

    def run(val: ArrayDataset) -> None:
        given = Loader(val, 4, shuffle=False) if loader else val
        Trainer(model, train, given, batch_size=4, steps=1, task="classification").fit(
            progress=False
        )

    rows = names != "a"
    with pytest.raises(ValueError, match=r"got \('b', 'c'\): make it with labels=train\.labels"):
        run(ArrayDataset(X[rows], names[rows]))
    run(ArrayDataset(X[rows], names[rows], labels=train.labels))
    run(ArrayDataset(X[names != "c"], names[names != "c"]))  # the same numbers


def test_texts_for_validation_with_classes_of_other_numbers_are_refused() -> None:
    rows = [{"text": f"day {n} was {word}", "label": word} for n in range(4) for word in "abc"]
    tokenizer = Tokenizer.chars(["day was bc0123456789"])
    train = TextClassificationDataset(rows, tokenizer)
    val = TextClassificationDataset([row for row in rows if row["label"] != "a"], tokenizer)
    model = nn.Sequential(nn.Embedding(tokenizer.vocab_size, 3))
    with pytest.raises(ValueError, match=r"names=train\.names"):
        Trainer(model, train, val, batch_size=4, steps=1, task="classification")


def test_a_model_goes_on_with_the_numbers_of_its_own_labels() -> None:
    names = np.array(["a", "b", "c"])[CLASSES]
    model = MLP(MLPConfig.of(ArrayDataset(X, names), hidden=(4,)))
    rows = names != "a"
    with pytest.raises(ValueError, match=r"labels=model\.config\.labels"):
        Trainer(model, ArrayDataset(X[rows], names[rows]), batch_size=4, steps=1)
    labels = model.config.labels
    Trainer(model, ArrayDataset(X[rows], names[rows], labels=labels), batch_size=4, steps=1)
