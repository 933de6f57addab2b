# SPDX-License-Identifier: MIT
"""Runs that begin again, go back or end at a bad moment lose nothing."""

from __future__ import annotations

import os
import shutil
import signal

import numpy as np
import pytest

from pyggml import nn, zeros
from pyggml.data import Loader
from pyggml.errors import FormatError
from pyggml.optim import SGD
from pyggml.train import (
    Callback,
    CheckpointError,
    TrainingError,
    TrainingInterrupted,
    TrainStep,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    top_k_accuracy,
)
from pyggml.train.checkpoints import checkpoint
from pyggml.train.checkpoints.folders import read_best

from .test_trainer import At
from .tiny import edit_state, make_trainer, read_state, same, tokens


def make(folder, **options):
    """The tiny trainer, which evaluates and saves."""
    options = {"steps": 12, "eval_every": 4, "save_every": 2, "keep": 2} | options
    return make_trainer(folder=folder, val=tokens(60, seed=1), **options)


def test_a_run_from_the_start_does_not_take_another_ones_folder(tmp_path):
    make(tmp_path).fit()
    before = list_checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match=r"holds step-000012 of another run.*resume\(\)"):
        make(tmp_path).fit()
    assert list_checkpoints(tmp_path) == before


def test_a_run_that_goes_back_keeps_what_it_writes(tmp_path):
    whole = make(tmp_path, keep=6)
    whole.fit()
    weights = load_checkpoint(tmp_path / "step-000012").model
    back = make(tmp_path)
    assert back.resume(tmp_path / "step-000004") == 4
    back.callbacks.append(At(8, lambda trainer: trainer.save()))
    result = back.fit()
    assert result.checkpoint == latest_checkpoint(tmp_path) == tmp_path / "step-000012"
    assert same(load_checkpoint(result.checkpoint).model, weights)
    left = load_checkpoint_left(tmp_path / "step-000012.left", tmp_path / "moved" / "step-000012")
    assert same(left.model, weights)


def load_checkpoint_left(path, target):
    """What was put aside, read under its first name."""
    shutil.copytree(path, target)
    return load_checkpoint(target)


def interrupted(folder, step, **options):
    """Train with a signal in a step; then go on to the end in a new trainer."""
    stop = At(step, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(TrainingInterrupted):
        make(folder, callbacks=[stop], **options).fit()
    again = make(folder, **options)
    assert again.resume() == step
    return again, again.fit()


@pytest.mark.parametrize("step", [4, 8, 12])
@pytest.mark.parametrize("schedule", ["cosine", "plateau"])
def test_a_signal_at_an_evaluation_only_puts_it_off(tmp_path, step, schedule):
    options = {"schedule": schedule, "lr": 0.5}
    whole = make(tmp_path / "whole", **options)
    result = whole.fit()
    again, resumed = interrupted(tmp_path / "cut", step, **options)
    assert same(again.model.state_dict(), whole.model.state_dict())
    assert again.best == whole.best
    assert resumed.validation.loss == result.validation.loss
    best = load_checkpoint(tmp_path / "cut" / "best").state.step
    assert best == load_checkpoint(tmp_path / "whole" / "best").state.step == whole.best["step"]


class Killed(Exception):
    """Stands for a kill."""


class Kill(Callback):
    def on_checkpoint(self, trainer, path):
        if trainer.best is not None and trainer.best["step"] == trainer.step == 8:
            raise Killed


def test_a_kill_before_the_best_is_kept_loses_it_not(tmp_path):
    with pytest.raises(Killed):
        make(tmp_path, callbacks=[Kill()], lr=0.01).fit()
    assert load_checkpoint(tmp_path / "best").state.step == 4
    again = make(tmp_path, lr=0.01)
    assert again.resume() == 8
    assert load_checkpoint(tmp_path / "best").state.step == 8
    assert again.best_checkpoint == tmp_path / "best"


@pytest.mark.parametrize("named", [False, True])
def test_a_kill_before_the_old_ones_are_removed(tmp_path, monkeypatch, named):
    """Whether `latest` names the last one already or not: a resumed run does what is left."""
    options = {"keep": 1, "eval_every": 0}
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "prune", lambda *_: None)
        make(tmp_path, **options).fit()
    assert len(list_checkpoints(tmp_path)) == 6
    if not named:
        (tmp_path / "latest").write_text("step-000010\n")
    again = make(tmp_path, **options)
    assert again.resume() == 12
    again.fit()
    assert (tmp_path / "latest").read_text() == "step-000012\n"
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000012"]


class Gone(BaseException):
    """Stands for a kill -9: nothing is saved on the way out."""


class Die(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, trainer, metrics):
        if metrics.step == self.step:
            raise Gone


def killed(folder, step, **options):
    with pytest.raises(Gone):
        make(folder, callbacks=[Die(step)], **options).fit()


def test_a_kill_after_the_best_and_before_a_save_goes_on_from_the_best(tmp_path):
    whole = make(tmp_path / "whole", save_every=0)
    result = whole.fit()
    folder = tmp_path / "cut"
    killed(folder, 6, save_every=0)
    assert sorted(path.name for path in folder.iterdir()) == ["best", "latest"]
    assert (folder / "latest").read_text() == "best\n"
    assert latest_checkpoint(folder) == folder / "best"
    assert list_checkpoints(folder) == []
    with pytest.raises(CheckpointError, match="holds best of another run"):
        make(folder, save_every=0).fit()
    again = make(folder, save_every=0)
    assert again.resume() == 4
    assert again.last_checkpoint == again.best_checkpoint == folder / "best"
    assert again.fit().validation.loss == result.validation.loss
    assert same(again.model.state_dict(), whole.model.state_dict())
    assert again.best == whole.best
    assert (
        load_checkpoint(folder / "best").state.best
        == load_checkpoint(tmp_path / "whole" / "best").state.best
    )


def test_the_newest_is_taken_of_the_best_and_the_others(tmp_path):
    trainer = make(tmp_path, save_every=5, eval_every=3, steps=6)
    killed(tmp_path, 6, save_every=5, eval_every=3)
    assert latest_checkpoint(tmp_path).name == "step-000005"
    assert trainer.resume() == 5
    trainer.fit()
    assert read_best(tmp_path)["step"] == 6  # which has a checkpoint of its own, too
    assert latest_checkpoint(tmp_path).name == "step-000006"
    shutil.rmtree(tmp_path / "step-000006")
    assert latest_checkpoint(tmp_path).name == "best"


def test_who_goes_back_before_the_best_leaves_it_whole(tmp_path):
    make(tmp_path, keep=9, lr=0.01).fit()
    before = load_checkpoint(tmp_path / "best").model
    assert read_best(tmp_path)["step"] > 4
    back = make(tmp_path, keep=9, lr=0.01)
    assert back.resume(tmp_path / "step-000004") == 4
    assert same(load_checkpoint(tmp_path / "best").model, before)
    back.fit()
    assert same(load_checkpoint(tmp_path / "best.left").model, before)
    assert back.best["step"] == read_best(tmp_path)["step"]


def test_a_worse_one_never_replaces_the_best(tmp_path):
    make(tmp_path, steps=8).fit()
    record = read_state(tmp_path / "best")
    assert record["step"] == 8
    # As if the checkpoint that the run goes on from came from before the best.
    edit_state(tmp_path / "best", best={"step": 8, "loss": 1e-3, "stale": 0})
    again = make(tmp_path, steps=12)
    assert again.resume() == 8
    assert again.best == {"step": 8, "loss": 1e-3, "stale": 0}
    again.fit()
    assert again.best["step"] == read_best(tmp_path)["step"] == 8


def test_who_goes_on_in_another_folder_takes_the_best_along(tmp_path):
    there = tmp_path / "there"
    killed(there, 6, save_every=5)
    best = load_checkpoint(there / "best")
    assert best.state.step == 4
    again = make(tmp_path / "here")
    assert again.resume(there / "step-000005") == 5
    assert again.best_checkpoint == tmp_path / "here" / "best"
    kept = load_checkpoint(again.best_checkpoint)
    assert kept.state == best.state
    assert same(kept.model, best.model)
    make(tmp_path / "none", keep_best=False).resume(there / "step-000005")
    assert not (tmp_path / "none").exists()
    # One that is not the best that the run knows of is not its best.
    shutil.rmtree(there / "best")
    shutil.copytree(there / "step-000005", there / "best")
    edit_state(there / "best", step=3, best={**kept.state.best, "step": 3})
    other = make(tmp_path / "other")
    assert other.resume(there / "step-000005") == 5
    assert other.best_checkpoint is None


def test_a_best_that_is_damaged_is_told(tmp_path):
    killed(tmp_path, 6, save_every=0)
    (tmp_path / "best" / "state.json").write_text("{")
    with pytest.raises(FormatError, match=r"best/state\.json: .*is damaged"):
        make(tmp_path).resume()
    make(tmp_path / "more", save_every=2, steps=6).fit()
    shutil.move(tmp_path / "more" / "step-000006", tmp_path / "step-000006")
    assert latest_checkpoint(tmp_path).name == "step-000006"
    with pytest.raises(FormatError, match=r"step-000006 is whole: resume"):
        load_checkpoint(tmp_path / "best")


def test_a_loader_that_ends_is_told(tmp_path):
    trainer = make(tmp_path, prefetch=0)

    class Short(Loader):
        def __next__(self):
            if trainer.step == 3:
                raise StopIteration
            return super().__next__()

    trainer.loader.__class__ = Short
    with pytest.raises(TrainingError, match="the loader ended after step 3 of 12"):
        trainer.fit()


def test_who_knows_nothing_scores_nothing():
    targets = np.arange(10)
    assert top_k_accuracy(np.zeros((10, 10)), targets) == 0.0
    assert top_k_accuracy(np.full((10, 10), np.nan), targets, 5) == 0.0
    assert top_k_accuracy(np.eye(10), targets) == 1.0


def test_a_classifier_learns_from_probabilities():
    head = nn.Linear(3, 2)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    y = np.array([[1, 0], [0.25, 0.75], [0.5, 0.5], [0, 1]], np.float32)
    step = TrainStep(head, SGD(head.parameters(), lr=0.1))
    logits = head(zeros((4, 3)) + x).numpy()
    shifted = logits - logits.max(-1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    assert step([(x, y)]).loss == pytest.approx(-(y * log).sum(-1).mean(), rel=1e-5)


def test_graphs_of_old_shapes_are_dropped(monkeypatch):
    monkeypatch.setattr("pyggml.train.step.graphs._MOST_GRAPHS", 3)
    trainer = make_trainer(steps=1)
    step = TrainStep(trainer.model, trainer.optimizer)

    def stepping():
        for length in (2, 3, 4, 5, 3, 6):
            ids = np.zeros((1, length), np.int32)
            step([(ids, ids)])

    with pytest.warns(RuntimeWarning, match="TrainStep") as told:
        stepping()
    assert len(told) == 1
    assert [each.inputs[0].shape[1] for each in step._graphs._recorded] == [5, 3, 6]
