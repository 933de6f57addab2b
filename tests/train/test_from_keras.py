# SPDX-License-Identifier: MIT
"""What a user of Keras writes: it works as there, or says what to write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import ArrayDataset
from pyggml.errors import ConfigError
from pyggml.train import Callback, Trainer

X = np.random.default_rng(0).normal(size=(24, 4))
Y = np.arange(24) % 3


def model() -> nn.Module:
    pg.seed(1)
    return nn.Linear(4, 3)


def trainer(train: Any = None, val: Any = None, **given: Any) -> Trainer:
    plan = {"batch_size": 8, "steps": 2, "task": "classification", **given}
    return Trainer(model(), ArrayDataset(X, Y) if train is None else train, val, **plan)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("on_epoch_end", r"use on_step, where .*len\(trainer.loader\)"),
        ("on_train_batch_end", "use on_step;"),
        ("on_train_begin", "use on_start;"),
        ("on_validation_end", "use on_evaluation;"),
        ("on_stpe", "use on_step;"),
        ("on_checkpoints", "use on_checkpoint;"),
        ("on_zzz", "another name"),
    ],
)
def test_a_method_that_is_never_called_raises(name: str, cure: str) -> None:
    own = type("Own", (Callback,), {name: lambda self, trainer: None})()
    with pytest.raises(ValueError, match=rf"Own\.{name}: .*{cure}") as raised:
        trainer(callbacks=[own])
    assert all(each in str(raised.value) for each in vars(Callback) if each.startswith("on_"))


def test_attributes_that_are_no_methods_may_have_any_name() -> None:
    class Own(Callback):
        on_gpu = False

        def on_step(self, trainer: Any, metrics: Any) -> None:
            self.last = metrics.step

    own = Own()
    trainer(callbacks=[own]).fit(progress=False)
    assert own.last == 2


def test_a_second_fit_says_that_nothing_is_left() -> None:
    first = trainer()
    assert first.fit(progress=False).loss is not None
    with pytest.warns(UserWarning, match=r"nothing is left.*step 2 of 2.*another Trainer"):
        assert first.fit(progress=False).loss is None
    before = first.model.state_dict()["weight"]
    more = Trainer(
        first.model,
        ArrayDataset(X, Y),
        None,
        first.optimizer,
        batch_size=8,
        steps=3,
        task="classification",
    )
    assert more.fit(progress=False).step == 3
    assert (more.model.state_dict()["weight"] != before).any()


def test_a_second_fit_after_the_patience_says_so() -> None:
    rows = ArrayDataset(X, Y)
    ended = trainer(rows, rows, steps=50, eval_every=1, patience=1, lr=10.0)
    assert ended.fit(progress=False).stopped_early
    with pytest.warns(UserWarning, match=r"nothing is left.*`patience` ended it"):
        ended.fit(progress=False)


def test_a_finished_run_that_is_resumed_does_not_warn(tmp_path: Any) -> None:
    trainer(checkpoint_dir=tmp_path).fit(progress=False)
    again = trainer(checkpoint_dir=tmp_path)
    assert again.resume() == 2
    assert again.fit(progress=False).loss is None


def test_pairs_of_arrays_are_data_sets() -> None:
    rows = ArrayDataset(X, Y)
    want = trainer(rows, rows).fit(progress=False)
    for pair in ((X, Y), (pg.tensor(X), Y), (X.astype(np.float32), pg.tensor(Y))):
        found = trainer(pair, pair).fit(progress=False)
        assert found.loss == want.loss
        assert found.validation
        assert want.validation
        assert found.validation.loss == want.validation.loss
    several = trainer((X, Y), {"one": (X[:8], Y[:8]), "two": rows})
    several.fit(progress=False)
    assert list(several.evaluations) == ["one", "two"]


def test_names_of_a_validation_pair_are_numbered_as_in_training() -> None:
    names = np.array(["a", "b", "c"])[Y]
    made = trainer((X, names), (X[1:3], names[1:3]))
    assert made.loader.dataset.labels == ("a", "b", "c")
    (batch,) = made.sets["validation"].batches()
    assert batch[1].tolist()[:2] == [1, 2]
    with pytest.raises(ValueError, match="labels"):
        trainer((X, names), (X[:1], np.array(["d"])))


def test_a_pair_that_does_not_fit_says_why() -> None:
    with pytest.raises(ValueError, match=r"ArrayDataset: x and y.*\(24, 4\) and \(20,\)"):
        trainer((X, Y[:20]))
    with pytest.raises(ConfigError, match=r"validation_split.*split\(0.2\)"):
        trainer(validation_split=0.2)
