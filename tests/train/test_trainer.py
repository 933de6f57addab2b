# SPDX-License-Identifier: MIT
from __future__ import annotations

import signal

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Loader, Prefetch, TokenDataset
from pyggml.errors import ConfigError, FormatError
from pyggml.optim import AdamW, ReduceOnPlateau
from pyggml.train import (
    Callback,
    CheckpointError,
    MetricsWriter,
    Trainer,
    TrainerOptions,
    TrainingError,
    TrainingInterrupted,
    list_checkpoints,
    read_metrics,
)

from .test_checkpoint import disk_full
from .tiny import SEQ_LEN, edit_state, make_model, make_trainer, same, tokens


class At(Callback):
    """Does something after a step."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step(self, trainer, metrics):
        if metrics.step == self.step:
            self.action(trainer)


class Diary(Callback):
    """Notes what it hears."""

    def __init__(self):
        self.events = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda *details: self.events.append(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("arch", ["llama", "gpt2"])
def test_overfits_a_few_sequences(arch):
    ids = np.tile(tokens(41, seed=5), 3)
    trainer = make_trainer(arch=arch, ids=ids, steps=150, lr=2e-2, weight_decay=0.0, eval_every=0)
    first = trainer.evaluate()
    result = trainer.fit()
    assert first.loss == pytest.approx(np.log(17), rel=0.1)
    assert result.loss < 0.3
    assert result.step == 150
    assert result.validation.step == 150


def test_events_metrics_and_intervals(tmp_path):
    diary = Diary()
    file = tmp_path / "metrics.jsonl"
    trainer = make_trainer(
        tmp_path, [MetricsWriter(file), diary], steps=6, eval_every=3, save_every=2, keep=2
    )
    result = trainer.fit()
    assert diary.events[0] == "on_start"
    assert diary.events[-1] == "on_end"
    assert diary.events.count("on_step") == 6
    assert diary.events.count("on_evaluation") == 2
    assert diary.events.count("on_checkpoint") == 3
    assert [p.name for p in list_checkpoints(trainer.checkpoint_dir)] == [
        "step-000004",
        "step-000006",
    ]
    assert result.checkpoint.name == "step-000006"
    lines = read_metrics(file)
    assert [line["step"] for line in lines if line["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if line["kind"] == "validation"] == [3, 6]
    assert lines[0]["tokens"] == 4 * 8
    rates = [line["lr"] for line in lines if line["kind"] == "train"]
    assert rates[0] == pytest.approx(1e-2)
    assert rates == sorted(rates, reverse=True)


def test_no_intervals_means_the_end_only(tmp_path):
    diary = Diary()
    make_trainer(tmp_path, [diary], steps=5, eval_every=0, save_every=0).fit()
    assert diary.events.count("on_evaluation") == 1
    assert diary.events.count("on_checkpoint") == 1


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"generator": 3},
        {"generator": {"bit_generator": "x"}},
        {"generator": {"bit_generator": "PCG64", "state": None}},
    ],
)
def test_a_damaged_generator_state_is_refused(tmp_path, state):
    trainer = make_trainer(tmp_path, steps=2)
    path = trainer.save()
    edit_state(path, rng=state)
    with pytest.raises(FormatError, match=r"state\.json: field 'rng'"):
        make_trainer(tmp_path, steps=2).resume()


@pytest.mark.parametrize("stop", [1, 7])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, stop):
    whole = make_trainer(tmp_path / "a", steps=12, accumulate=2)
    whole.fit()
    first = make_trainer(
        tmp_path / "b",
        [At(stop, lambda trainer: signal.raise_signal(signal.SIGINT))],
        steps=12,
        accumulate=2,
    )
    with pytest.raises(TrainingInterrupted) as caught:
        first.fit()
    assert caught.value.step == stop
    assert caught.value.checkpoint.name == f"step-{stop:06d}"
    second = make_trainer(tmp_path / "b", steps=12, accumulate=2, seed=3)
    # Whatever the weights were, the checkpoint's replace them.
    for parameter in second.model.parameters():
        parameter.copy_(np.full(parameter.shape, 7.0, np.float32))
    assert second.resume() == stop
    assert second.tokens == stop * 2 * 4 * 8
    second.fit()
    assert same(second.model.state_dict(), whole.model.state_dict())
    assert same(second.optimizer.state_dict(), whole.optimizer.state_dict())
    files = [list_checkpoints(t.checkpoint_dir)[-1] for t in (whole, second)]
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (files[0] / name).read_bytes() == (files[1] / name).read_bytes()


@pytest.mark.parametrize(
    ("folder", "twice", "number"),
    [("kept", False, 6), ("kept", True, 6), *((None, True, number) for number in (5, 6, 7, 8))],
)
def test_a_notebook_goes_on_after_an_interruption(tmp_path, monkeypatch, folder, twice, number):
    """Ctrl-C in the middle of a step, once or twice, and the cell with fit() is run again."""
    whole = make_trainer(steps=8, accumulate=2)
    whole.fit()
    trainer = make_trainer(folder and tmp_path / folder, steps=8, accumulate=2)
    run, calls = pg.Graph.run, []

    def interrupted(each, *args, **options):
        result = run(each, *args, **options)
        calls.append(None)
        if len(calls) == number:  # Python hears of a signal when the call in C returns
            signal.raise_signal(signal.SIGINT)
            if twice:
                signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(pg.Graph, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    stopped = trainer.step
    assert 0 < stopped < 8
    trainer.fit()
    assert len(calls) > 8
    assert trainer.step == 8
    assert same(trainer.model.state_dict(), whole.model.state_dict())
    assert same(trainer.optimizer.state_dict(), whole.optimizer.state_dict())
    assert list(trainer.history["step"]) == list(range(1, 9))
    assert trainer.tokens == whole.tokens


def test_the_same_seed_gives_the_same_bits():
    a, b, c = make_trainer(steps=3), make_trainer(steps=3), make_trainer(steps=3, seed=4)
    for trainer in (a, b, c):
        trainer.fit()
    assert same(a.model.state_dict(), b.model.state_dict())
    assert not same(a.model.state_dict(), c.model.state_dict())


def test_interruption_during_evaluation_still_saves(tmp_path):
    class Interrupt(Callback):
        def on_evaluation_start(self, trainer):
            signal.raise_signal(signal.SIGINT)

    trainer = make_trainer(tmp_path, [Interrupt()], steps=4, eval_every=2)
    with pytest.raises(TrainingInterrupted) as caught:
        trainer.fit()
    assert caught.value.checkpoint.name == "step-000002"


def test_a_second_interruption_acts_at_once(tmp_path):
    def twice(trainer):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    trainer = make_trainer(tmp_path, [At(2, twice)], steps=4)
    with pytest.raises(KeyboardInterrupt) as caught:
        trainer.fit()
    assert not isinstance(caught.value, TrainingInterrupted)


def test_divergence_names_the_last_checkpoint(tmp_path):
    def ruin(trainer):
        trainer.save()
        weight = trainer.model.parameters()[0]
        weight.copy_(np.full(weight.shape, np.inf, np.float32))

    trainer = make_trainer(tmp_path, [At(3, ruin)], steps=9, save_every=0, eval_every=0)
    with pytest.raises(TrainingError) as caught:
        trainer.fit()
    for word in ("finite", "step 4", "those of step 3", "step-000003", "`lr`"):
        assert word in str(caught.value)
    assert trainer.step == 3


def test_divergence_without_a_checkpoint(tmp_path):
    trainer = make_trainer(tmp_path, steps=9)
    weight = trainer.model.parameters()[0]
    weight.copy_(np.full(weight.shape, np.nan, np.float32))
    with pytest.raises(TrainingError, match="no checkpoint yet"):
        trainer.fit()


def test_a_full_disk_ends_the_run_with_the_earlier_checkpoint(tmp_path, monkeypatch):
    def fill(trainer):
        monkeypatch.setattr("pyggml.train.checkpoints.checkpoint.write_safetensors", disk_full)

    trainer = make_trainer(tmp_path, [At(3, fill)], steps=6, save_every=2)
    with pytest.raises(CheckpointError, match="step-000002 is whole"):
        trainer.fit()
    monkeypatch.undo()
    again = make_trainer(tmp_path, steps=6, save_every=2)
    assert again.resume() == 2
    again.fit()


def test_resuming_without_a_checkpoint_starts_at_zero(tmp_path):
    assert make_trainer(tmp_path).resume() == 0
    with pytest.raises(ValueError, match="checkpoint_dir"):
        make_trainer().resume()
    with pytest.raises(ValueError, match="checkpoint_dir"):
        make_trainer().save()


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    trainer = make_trainer(tmp_path, steps=2)
    trainer.fit()
    path = trainer.last_checkpoint
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        make_trainer(arch="gpt2").resume(path)
    with pytest.raises(FormatError, match=r"loader.*batch_size"):
        make_trainer(batch_size=2).resume(path)
    with pytest.raises(FormatError, match="beyond the run's 1 steps"):
        make_trainer(steps=1).resume(path)
    other = make_trainer()
    other.data, trainer.data = {"tokens": 1, "crc32": 2}, {"tokens": 1, "crc32": 3}
    with pytest.raises(FormatError, match="trained on has changed"):
        other.resume(trainer.save())


def test_a_finished_run_can_be_extended(tmp_path):
    make_trainer(tmp_path, steps=4).fit()
    more = make_trainer(tmp_path, steps=6)
    assert more.resume() == 4
    assert more.fit().step == 6
    done = make_trainer(tmp_path, steps=6)
    assert done.resume() == 6
    result = done.fit()
    assert result.loss is None
    assert result.validation.step == 6


def test_plan_counts_every_kind(tmp_path):
    trainer = make_trainer()
    plan = trainer.plan()
    weights = sum(p.nbytes for p in trainer.model.parameters())
    assert plan.parameters == plan.gradients == weights
    assert plan.optimizer == 2 * weights
    assert plan.activations > 0
    assert plan.total == sum(size for _, size in plan.rows()[:-1])
    plan.check()


def test_a_dataset_or_a_loader_of_it_trains_the_same():
    found = []
    for is_loader in (False, True):
        model = make_model()
        data = TokenDataset(tokens(), SEQ_LEN)
        train = Loader(data, 4, seed=3) if is_loader else data
        trainer = Trainer(model, train, batch_size=4, seed=3, steps=3, checkpointing=2)
        trainer.fit()
        found.append(model.state_dict())
        assert isinstance(trainer.optimizer, AdamW)
        assert model.checkpointing == 2
    assert same(*found)


def test_the_rate_is_the_optimizers_unless_given():
    model, data = make_model(), TokenDataset(tokens(), SEQ_LEN)
    for given, want in (({}, 0.5), ({"lr": 0.25}, 0.25)):
        optimizer = AdamW(model, lr=0.5)
        trainer = Trainer(model, data, None, optimizer, schedule="constant", warmup=0, **given)
        assert trainer.schedule(0) == want


def test_options_by_name_replace_those_of_the_object():
    model, data = make_model(), TokenDataset(tokens(), SEQ_LEN)
    trainer = Trainer(model, data, options=TrainerOptions(steps=5, clip=2.0), steps=7)
    assert (trainer.total_steps, trainer.options.clip) == (7, 2.0)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"stepz": 3}, ConfigError, "steps"),
        ({"batch_size": 8}, ValueError, "batch_size"),
        ({"optimizer": "adamw"}, TypeError, "optimizer"),
        ({"options": {"steps": 3}}, TypeError, "TrainerOptions"),
        ({"schedule": 0.1}, TypeError, "schedule"),
        ({"patience": 3, "eval_every": 0}, ConfigError, "eval_every"),
        ({"schedule": "plateau", "eval_every": 0}, ConfigError, "eval_every"),
        ({"schedule": ReduceOnPlateau(lambda step: 0.1), "eval_every": 0}, ConfigError, "schedule"),
        ({"checkpointing": 3}, ConfigError, "checkpointing"),
        ({"token_bytes": 3}, TypeError, "token_bytes"),
        ({"loss": lambda model, x, y: 3}, TypeError, "loss"),
    ],
)
def test_wrong_arguments(options, error, word):
    loader = Loader(TokenDataset(tokens(), SEQ_LEN), 4)
    with pytest.raises(error, match=word):
        Trainer(make_model(), loader, tokens(40), **options).check()


def with_set(validation, **options):
    """The tiny trainer with another validation set."""
    return make_trainer(val=validation, **options)


def test_without_validation_there_is_no_evaluation():
    trainer = with_set(None, steps=2)
    assert trainer.fit().validation is None
    with pytest.raises(ValueError, match="validation set"):
        trainer.evaluate()


def test_an_evaluation_on_a_loader_leaves_nothing_out():
    """Though the loader drops incomplete batches when it trains."""
    rows = Loader(TokenDataset(tokens(10 * SEQ_LEN + 1, seed=5), SEQ_LEN), 4)
    whole = with_set(rows).evaluate()
    assert whole.tokens == 10 * SEQ_LEN
    one_by_one = Loader(rows.dataset, 1, shuffle=False)
    assert with_set(one_by_one).evaluate().loss == pytest.approx(whole.loss, rel=1e-6)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_batches_made_ahead_change_nothing(tmp_path, prefetch):
    import threading

    others = set(threading.enumerate())
    plain, ahead = (make_trainer(steps=7, prefetch=n) for n in (0, prefetch))
    inner = getattr(ahead.loader, "loader", ahead.loader)
    assert isinstance(ahead.loader, Prefetch) == bool(prefetch)
    assert plain.fit().loss == ahead.fit().loss
    assert same(plain.model.state_dict(), ahead.model.state_dict())
    # The thread has ended, and the loader stands where the training stopped reading.
    assert inner.state_dict() == plain.loader.state_dict() == ahead.loader.state_dict()
    left = set(threading.enumerate()) - others
    assert not [t for t in left if t.name == "pyggml-prefetch"]


def test_loaders_of_ones_own_are_left_alone():
    trainer = make_trainer(steps=2)

    class Own:
        """Not one of pyggml.data: nothing is known of what it does in a thread."""

        dataset, batch_size = trainer.loader.dataset, 4

        def __len__(self):
            return 3

        def __iter__(self):
            return iter(trainer.loader)

        def state_dict(self):
            return {}

    own = Own()
    other = Trainer(trainer.model, own, None, trainer.optimizer, steps=2)
    assert other.loader is own
    assert other.fit().step == 2
