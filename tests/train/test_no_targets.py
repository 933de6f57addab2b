# SPDX-License-Identifier: MIT
"""Runs some of whose steps have no target that counts."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from pyggml.cli.training.live import PlainReporter
from pyggml.data import IGNORE_INDEX, Loader
from pyggml.optim import SGD
from pyggml.recipes.report.report import summary
from pyggml.train import Callback, MetricsWriter, find_lr, read_metrics

from .test_step import batch
from .tiny import make_model, make_trainer, same


class Masked(Loader):
    """Takes the targets of some batches away, by their number."""

    def __init__(self, loader, empty):
        super().__init__(loader.dataset, loader.batch_size, seed=loader.seed)
        self.empty = empty

    def __next__(self):
        number = self.epoch * len(self) + self.position
        x, y = super().__next__()
        return x, np.full_like(y, IGNORE_INDEX) if self.empty(number) else y


class Weights(Callback):
    """The weights and their average after each step."""

    def __init__(self):
        self.seen = []

    def on_step(self, trainer, metrics):
        averages = {name: a.numpy() for name, a in trainer.ema.averages.items()}
        self.seen.append((trainer.model.state_dict(), averages))


def masked_trainer(folder, empty, callbacks=(), **options):
    writer = MetricsWriter(folder / "metrics.jsonl")
    trainer = make_trainer(folder, [writer, *callbacks], prefetch=0, **options)
    trainer.loader = Masked(trainer.loader, empty)
    return trainer


def train_lines(folder):
    return [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == "train"]


def test_a_step_without_targets_is_skipped_and_told(tmp_path, capsys):
    weights = Weights()
    trainer = masked_trainer(
        tmp_path, lambda n: n in (2, 5), [weights, PlainReporter()], steps=6, ema=0.9
    )
    result = trainer.fit()
    lines = train_lines(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["loss"] is None for line in lines] == [False, False, True, False, False, True]
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()
    counted = np.diff([0, *(line["tokens"] for line in lines)])
    assert [bool(n) for n in counted] == [True, True, False, True, True, False]
    moved = [
        not all(same(a, b) for a, b in zip(before, after, strict=True))
        for before, after in zip(weights.seen, weights.seen[1:], strict=False)
    ]
    assert moved == [True, False, True, True, False]
    assert math.isnan(result.loss)
    assert result.validation is not None
    assert summary({}, read_metrics(tmp_path / "metrics.jsonl"))["steps without a target"] == 2
    said = capsys.readouterr().out
    assert "step 6/6  loss none, as no target counts" in said
    PlainReporter.finished(trainer.callbacks[-1], result)
    said = capsys.readouterr().out
    assert "2 steps skipped, as none of their targets counts" in said
    assert "nan" not in said


def test_resuming_goes_over_such_steps_as_the_whole_run_did(tmp_path):
    whole = masked_trainer(tmp_path / "a", lambda n: n % 4 == 3, steps=10, save_every=4, keep=9)
    whole.fit()
    again = masked_trainer(tmp_path / "b", lambda n: n % 4 == 3, steps=10, save_every=4)
    assert again.resume(tmp_path / "a" / "checkpoints" / "step-000004") == 4
    again.fit()
    assert same(again.model.state_dict(), whole.model.state_dict())
    assert same(again.optimizer.state_dict(), whole.optimizer.state_dict())


def test_batches_without_targets_add_nothing_where_several_make_a_step(tmp_path):
    trainer = masked_trainer(tmp_path, lambda n: n % 2, steps=3, accumulate=2)
    trainer.fit()
    assert [line["loss"] is None for line in train_lines(tmp_path)] == [False] * 3


def test_a_run_that_has_nothing_to_learn_from_any_more_ends(tmp_path):
    trainer = masked_trainer(tmp_path, lambda n: n >= 5, steps=200, eval_every=0)
    with pytest.raises(ValueError, match="100 steps in a row"):
        trainer.fit()
    assert trainer.last_checkpoint is not None
    assert trainer.step == 104


def test_the_range_test_goes_on_to_the_next_batch():
    batches = [batch(4, seed) for seed in range(6)]
    nothing = batches[0][0], np.full_like(batches[0][1], IGNORE_INDEX)
    gaps = [given for each in batches for given in (nothing, each)]
    model = make_model()
    found = [
        find_lr(model, SGD(model.parameters(), lr=0.1), given, end=1e-2, steps=6)
        for given in (batches, gaps)
    ]
    assert found[0] == found[1]
    with pytest.raises(ValueError, match=re.escape("needs 7 batches; got 6 with a target")):
        find_lr(model, SGD(model.parameters(), lr=0.1), gaps, end=1e-2, steps=7)
