# SPDX-License-Identifier: MIT
"""What a trainer does besides steps: sets, patience, the best checkpoint, samples, its machine."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyggml.backend.device import device
from pyggml.models import GPT2, GPT2Config
from pyggml.train import (
    Callback,
    CheckpointError,
    MetricsWriter,
    Sampler,
    TrainingError,
    list_checkpoints,
    load_checkpoint,
    read_metrics,
)
from pyggml.train.checkpoints.best import keep_best
from pyggml.train.metrics.efficiency import flops_per_token, memory_in_use

from .test_checkpoint import disk_full
from .test_trainer import At, Diary
from .tiny import make_trainer, same, tokens


def with_sets(tmp_path=None, callbacks=(), sets=None, **options):
    """The tiny trainer with sets by name."""
    sets = sets or {"near": tokens(60, seed=1), "far": tokens(60, seed=2)[::-1]}
    return make_trainer(tmp_path, callbacks, val=sets, **options)


def test_sets_by_name(tmp_path):
    file = tmp_path / "m.jsonl"
    trainer = with_sets(
        callbacks=[MetricsWriter(file)], steps=4, eval_every=2, metrics=("accuracy",)
    )
    result = trainer.fit()
    lines = read_metrics(file)
    for name in ("near", "far"):
        own = [line for line in lines if line["kind"] == name]
        assert [line["step"] for line in own] == [2, 4]
        assert own[-1]["loss"] == trainer.evaluations[name].loss
        assert 0 <= own[-1]["accuracy"] <= 1
    assert result.validation == trainer.evaluations["near"]
    assert trainer.best["loss"] == min(e["loss"] for e in lines if e["kind"] == "near")
    assert set(trainer.summary()["evaluations"]) == {"near", "far"}


@pytest.mark.parametrize("name", ["train", "", 3])
def test_bad_names_of_sets(name):
    with pytest.raises(ValueError, match="must be text, and not train"):
        with_sets(sets={name: tokens(50)})


def test_evaluations_are_those_of_the_averaged_weights(tmp_path):
    trainer = make_trainer(tmp_path, steps=6, ema=0.5, eval_every=0)
    result = trainer.fit()
    own, averages = trainer.model.state_dict(), trainer.ema.state_dict()
    name, value = next(iter(own.items()))
    assert not np.array_equal(averages[f"average.{name}"], value)
    plain = trainer.evaluate()
    assert plain.loss == result.validation.loss
    assert same(trainer.model.state_dict(), own)
    trainer.ema = None
    assert trainer.evaluate().loss != result.validation.loss
    # The checkpoint has both; a run without the average leaves it alone, one that begins to keep
    # it begins with the weights.
    path = trainer.last_checkpoint
    without = make_trainer(tmp_path / "without", steps=6)
    assert without.resume(path) == 6
    assert same(without.model.state_dict(), own)
    later = make_trainer(tmp_path / "later", steps=6, ema=0.5)
    assert later.resume(without.save()) == 6
    assert later.ema.averages[name].numpy().tobytes() == own[name].tobytes()
    assert later.ema.steps == 0
    again = make_trainer(tmp_path, steps=6, ema=0.5)
    again.resume(path)
    assert same(again.ema.state_dict(), averages)
    plan = again.plan()
    assert plan.optimizer == 3 * plan.parameters


class Scripted(Callback):
    """Evaluations with losses of one's choosing."""

    def __init__(self, monkeypatch, losses):
        self.left = list(losses)
        import pyggml.train.evaluation.evaluator as module

        real = module.evaluate

        def evaluate(*args):
            metrics = real(*args)
            object.__setattr__(metrics, "loss", self.left.pop(0))
            return metrics

        monkeypatch.setattr(module, "evaluate", evaluate)


def test_patience_ends_the_run(tmp_path, monkeypatch):
    Scripted(monkeypatch, [3.0, 2.0, 2.1, 1.95, 2.0, *[1.0] * 9])
    options = {"steps": 20, "eval_every": 2, "save_every": 6, "patience": 3, "min_delta": 0.1}
    trainer = make_trainer(tmp_path, **options)
    result = trainer.fit()
    assert result.stopped_early
    assert result.step == trainer.step == 10
    assert trainer.best == {"step": 4, "loss": 2.0, "stale": 3}
    assert result.checkpoint.name == "step-000010"
    again = make_trainer(tmp_path, **options)
    assert again.resume() == 10
    assert again.best_checkpoint == trainer.best_checkpoint
    assert again.fit().step == 10  # still without progress
    more = make_trainer(tmp_path, **{**options, "patience": 4})
    assert more.resume() == 10
    assert more.fit().step > 10


def test_a_validation_loss_that_is_no_number_is_never_the_best(tmp_path, monkeypatch):
    Scripted(monkeypatch, [float("nan"), float("inf"), 2.0, float("nan")])
    trainer = make_trainer(tmp_path, steps=4, eval_every=1, patience=5)
    result = trainer.fit()
    assert trainer.best == {"step": 3, "loss": 2.0, "stale": 1}
    assert load_checkpoint(result.best_checkpoint).state.step == 3


def test_a_run_that_improves_does_not_end_early(tmp_path, monkeypatch):
    Scripted(monkeypatch, [3.0, 3.1, 2.0, 2.1, 1.0])
    result = make_trainer(tmp_path, steps=10, eval_every=2, patience=2).fit()
    assert not result.stopped_early
    assert result.step == 10


@pytest.mark.parametrize("save_every", [2, 7])
def test_the_best_is_kept_apart(tmp_path, monkeypatch, save_every):
    Scripted(monkeypatch, [3.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    seen = {}
    diary = Diary()
    trainer = make_trainer(
        tmp_path,
        [diary, At(4, lambda t: seen.update(t.model.state_dict()))],
        steps=12, eval_every=2, save_every=save_every, keep=1,
    )  # fmt: skip
    result = trainer.fit()
    assert [p.name for p in list_checkpoints(trainer.checkpoint_dir)] == ["step-000012"]
    assert result.best_checkpoint == trainer.checkpoint_dir / "best"
    best = load_checkpoint(result.best_checkpoint)
    assert best.state.step == 4
    assert best.state.best["loss"] == 1.0
    assert same(best.model, seen)
    assert diary.events.count("on_best") == 2
    # It is a checkpoint like any other.
    again = make_trainer(tmp_path, steps=12)
    assert again.resume(result.best_checkpoint) == 4
    assert same(again.optimizer.state_dict(), best.optimizer)


def test_the_best_may_be_left_out(tmp_path):
    trainer = make_trainer(tmp_path, steps=2, keep_best=False)
    assert trainer.fit().best_checkpoint is None
    assert not (trainer.checkpoint_dir / "best").exists()


def test_a_full_disk_leaves_the_best_before(tmp_path, monkeypatch):
    Scripted(monkeypatch, [3.0, 2.0])
    trainer = make_trainer(tmp_path, steps=4, eval_every=2, save_every=9)
    fill = At(
        3,
        lambda t: monkeypatch.setattr("pyggml.train.checkpoints.best.write_checkpoint", disk_full),
    )
    trainer.callbacks.append(fill)
    monkeypatch.setattr("pyggml.train.checkpoints.keeper.Checkpoints.save", lambda self: None)
    with pytest.raises(CheckpointError, match="and is as it was"):
        trainer.fit()
    assert load_checkpoint(trainer.checkpoint_dir / "best").state.step == 2


def test_a_best_that_is_gone_is_not_as_it_was(tmp_path):
    trainer = make_trainer(tmp_path, steps=1)
    trainer.fit()
    state = load_checkpoint(trainer.last_checkpoint).state
    with pytest.raises(CheckpointError) as caught:
        keep_best(tmp_path / "new", state, {}, {}, same=tmp_path / "gone")
    said = str(caught.value)
    assert "could not be written (No such file or directory); there is no whole" in said
    assert "Was the folder moved or removed? Give its new place" in said


def test_samples_on_the_way(tmp_path):
    file, diary = tmp_path / "samples.jsonl", Diary()
    trainer = make_trainer(tmp_path, [Sampler(2, lambda: "äh", file), diary], steps=5)
    trainer.fit()
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"step": 2, "text": "äh"}, {"step": 4, "text": "äh"}
    ]  # fmt: skip
    assert diary.events.count("on_sample") == 2
    file.write_text(file.read_text() + json.dumps({"step": 6, "text": "later"}) + "\n")
    Sampler(2, str, file).on_start(trainer)
    assert [line["step"] for line in read_metrics(file)] == [2, 4]
    with pytest.raises(ValueError, match="every must be"):
        Sampler(0, str)


def test_the_op_that_made_the_first_nan_is_named(tmp_path):
    def ruin(trainer):
        norm = trainer.model.model.norm.weight
        norm.copy_(np.full(norm.shape, np.nan, np.float32))

    trainer = make_trainer(tmp_path, [At(2, ruin)], steps=9, save_every=1, eval_every=0)
    with pytest.raises(TrainingError) as caught:
        trainer.fit()
    for words in (
        "the loss must be finite", "at step 3", "those of step 2", "step-000002", "the cause: ",
        "MUL read NaN from a stored tensor (16,)", "recorded at ", "`lr`",
    ):  # fmt: skip
        assert words in str(caught.value), words


def test_memory_and_the_share_of_the_peak(tmp_path):
    seen = []

    class Look(Callback):
        def on_step(self, trainer, metrics):
            seen.append(metrics)

    trainer = make_trainer(callbacks=[Look()], steps=2, mfu=True)
    trainer.fit()
    assert all(metrics.mfu > 0 for metrics in seen)
    peaks = [flops_per_token(trainer.model, 8) * m.tokens_per_s / m.mfu for m in seen]
    assert peaks[0] == pytest.approx(peaks[1])
    in_use = memory_in_use(device("cpu"))
    assert in_use is None or in_use > 10**7
    assert seen[-1].memory_bytes is None or seen[-1].memory_bytes > 10**7


@pytest.mark.parametrize("tie", [True, False])
def test_floating_point_operations_of_a_token(tie):
    config = GPT2Config(vocab_size=64, context=32, n_embd=16, n_layer=3, n_head=2, tie=tie)
    block = 12 * 16 * 16  # query, key, value; projection; two of the MLP
    want = 6 * (3 * block + 64 * 16) + 12 * 3 * 16 * 32
    assert flops_per_token(GPT2(config), 32) == want
