# SPDX-License-Identifier: MIT
"""After an error a run is at the end of a step, or says that it is not."""

from __future__ import annotations

import logging
import random
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, nn, optim, train
from pyggml.train import diagnose, loop

from .tiny import SEQ_LEN, VOCAB, make_model, make_trainer, same, tokens

PART = r"the run must be at the end of a step; an error ended step 6 when a part of the run had"


def once(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, at: int, after: bool) -> None:
    """Let the `at`-th call of a method raise, before it does anything or after."""
    inner, left = getattr(owner, name), [at]

    def call(*given: Any, **options: Any) -> Any:
        left[0] -= 1
        if not left[0] and not after:
            raise ValueError("once")
        result = inner(*given, **options)
        if not left[0]:
            raise ValueError("once")
        return result

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("after", [False, True])
def test_a_part_of_a_step_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, after: bool
) -> None:
    """The weights have the step, the average has not, or nobody has counted it."""
    options: dict[str, Any] = {"ema": 0.9, "eval_every": 0}
    whole = make_trainer(**options)
    whole.fit()
    once(optim.EMA, "update", monkeypatch, 6, after)
    trainer = make_trainer(tmp_path, save_every=4, **options)
    with pytest.raises(ValueError, match="once"), caplog.at_level(logging.WARNING):
        trainer.fit()
    last = tmp_path / "checkpoints" / "step-000004"
    assert f"ended step 6 in the middle: no checkpoint was written; the last is {last}" in (
        caplog.text
    )
    assert train.latest_checkpoint(last.parent) == last
    for method in (trainer.save, trainer.fit):
        with pytest.raises(RuntimeError, match=PART):
            method()
    assert trainer.resume() == 4
    trainer.fit()
    assert same(trainer.model.state_dict(), whole.model.state_dict())
    assert same(trainer.ema.state_dict(), whole.ema.state_dict())


def rows(folder: Path | None = None, **options: Any) -> train.Trainer:
    """A trainer of a classifier with running statistics."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((96, 4)).astype(np.float32), rng.integers(0, 3, 96)
    pg.seed(2)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    return train.Trainer(
        model, data.ArrayDataset(x[:64], y[:64]), data.ArrayDataset(x[64:], y[64:]),
        optimizer=optim.AdamW(model, lr=1e-2), batch_size=8, seed=1, checkpoint_dir=folder,
        **{"steps": 9, **options},
    )  # fmt: skip


def test_running_statistics_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two batches has moved them; the second one raises."""
    (whole := rows(accumulate=2)).fit(progress=False)
    trainer = rows(accumulate=2)
    once(train.TrainStep, "_run_one", monkeypatch, 12, after=False)
    with pytest.raises(ValueError, match="once"):
        trainer.fit(progress=False)
    trainer.fit(progress=False)
    assert same(trainer.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"precision": "f16"}])
def test_a_batch_of_nan_leaves_running_statistics(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    (whole := rows(**options)).fit(progress=False)
    inner, left = data.ArrayDataset.batch, [6]

    def batch(dataset: Any, items: np.ndarray) -> Any:
        x, y = inner(dataset, items)
        left[0] -= len(dataset) == 64  # of the training
        return (x * np.float32(np.nan) if left[0] == 0 else x), y

    monkeypatch.setattr(data.ArrayDataset, "batch", batch)
    trainer = rows(prefetch=0, **options)
    with pytest.raises(train.TrainingError, match=r"x\[0, 0\] is nan"):
        trainer.fit(progress=False)
    trainer.fit(progress=False)
    assert same(trainer.model.state_dict(), whole.model.state_dict())


@pytest.mark.parametrize("step", range(1, 8))
def test_a_round_of_local_steps_goes_on(step: int, tmp_path: Path) -> None:
    """The average is taken from where all ranks were, not from where an error came."""
    options: dict[str, Any] = {"sync_every": 4, "steps": 8, "eval_every": 0, "save_every": 0}
    (whole := rows(**options)).fit(progress=False)
    trainer = rows(tmp_path, **options)
    trainer.callbacks.append(fail := Fail(OSError("once")))
    fail.at = step
    with pytest.raises(OSError, match="once"):
        trainer.fit(progress=False)
    assert train.list_checkpoints(tmp_path) == ([] if step % 4 else [trainer.last_checkpoint])
    if step % 4:
        with pytest.raises(RuntimeError, match="must be at an average of the ranks' weights"):
            trainer.save()
    trainer.fit(progress=False)
    assert same(trainer.model.state_dict(), whole.model.state_dict())
    assert trainer.tokens == whole.tokens


@pytest.mark.parametrize("method", ["fit", "resume", "evaluate", "save", "plan"])
@pytest.mark.parametrize("event", ["on_step", "on_evaluation_start", "on_checkpoint", "on_end"])
def test_what_a_callback_may_call(method: str, event: str, tmp_path: Path) -> None:
    calls: list[Any] = []

    def call(trainer: train.Trainer, *_: Any) -> None:
        if not calls:
            calls.append(method)
            getattr(trainer, method)()

    trainer = rows(tmp_path, eval_every=2, save_every=2, loss=None)
    (whole := rows(eval_every=2)).fit(progress=False)
    callback = train.Callback()
    setattr(callback, event, call)
    trainer.callbacks.append(callback)
    if method in ("fit", "resume"):
        with pytest.raises(RuntimeError, match=rf"{method}: a callback, .* inside of fit\(\)"):
            trainer.fit(progress=False)
    trainer.fit(progress=False)
    assert calls
    assert same(trainer.model.state_dict(), whole.model.state_dict())
    assert list(trainer.history["step"]) == list(range(1, 10))


def noisy(model: Any, x: pg.Tensor, y: pg.Tensor) -> pg.Tensor:
    """A loss that draws numbers for each batch."""
    logits = model(x)
    return nn.functional.cross_entropy(logits + pg.randn_like(logits), y)


def test_numbers_that_a_step_has_drawn_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> train.Trainer:
        model = make_model()
        ids = data.TokenDataset(tokens(), SEQ_LEN)
        return train.Trainer(
            model, ids, optimizer=optim.AdamW(model), loss=noisy, steps=8, accumulate=3,
            batch_size=2, seed=1,
        )  # fmt: skip

    pg.seed(5)
    (whole := make()).fit(progress=False)
    pg.seed(5)
    trainer = make()
    once(train.TrainStep, "_run_one", monkeypatch, 17, after=True)
    with pytest.raises(ValueError, match="once"):
        trainer.fit(progress=False)
    assert trainer.step == 5
    trainer.fit(progress=False)
    assert same(trainer.model.state_dict(), whole.model.state_dict())


def test_a_loss_that_is_not_finite_leaves_no_part() -> None:
    """Also where one graph computes it and updates: it ends before it has written anything."""
    model = make_model()
    optimizer = optim.SGD(model, lr=0.1, fused_update=True)
    ids = data.TokenDataset(tokens(), SEQ_LEN)
    factor = pg.tensor([1.0])

    def loss(model: Any, x: pg.Tensor, y: pg.Tensor) -> pg.Tensor:
        return model.loss(x, y) * factor.sum()

    trainer = train.Trainer(
        model, ids, optimizer=optimizer, loss=loss, steps=9, batch_size=2, clip=0.0,
        callbacks=[spoil := Spoil(factor)],
    )  # fmt: skip
    for _ in range(2):
        with pytest.raises(train.TrainingError, match="loss must be finite"):
            trainer.fit(progress=False)
        assert trainer.step == optimizer.steps == 4
    factor.copy_([1.0])
    spoil.at = None
    trainer.fit(progress=False)
    assert trainer.step == optimizer.steps == 9


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("at", [5, 7, 9, 11])
def test_numbers_that_an_evaluation_has_drawn_come_again(
    stops: bool, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss may draw some; another process then evaluates again, or the same one."""
    options: dict[str, Any] = {"loss": noisy, "eval_every": 3}
    (whole := rows(**options)).fit(progress=False)
    trainer, inner, left = rows(tmp_path / "one", **options), train.TrainStep.evaluated, [at]

    def evaluated(step: Any, batch: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and stops:
            signal.raise_signal(signal.SIGTERM)
        elif left[0] == 0:
            raise ValueError("once")
        return inner(step, batch)

    monkeypatch.setattr(train.TrainStep, "evaluated", evaluated)
    with pytest.raises(train.TrainingInterrupted if stops else ValueError):
        trainer.fit(progress=False)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    step = trainer.step
    trainer.fit(progress=False)
    again = rows(tmp_path / "other", **options)
    assert again.resume() == step
    again.fit(progress=False)
    for each in (trainer, again):
        assert same(each.model.state_dict(), whole.model.state_dict())
        assert each.last_evaluation == whole.last_evaluation


class Noise:
    """A loader, or a validation set, that draws its numbers; others may look in meanwhile."""

    batch_size = 8

    def __init__(self, look: Any = None) -> None:
        self.look, self.number = look, 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        x = pg.randn((8, 4)).numpy()
        if self.look is not None:
            self.look()
        self.number += 1
        return x, (x.sum(axis=1) > 0).astype(np.int64)

    def once(self) -> Iterator[Any]:
        yield from (next(self), next(self))

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["number"]


class Stream(Noise):
    """The numbers of a loader without a state, which may raise before it draws."""

    state_dict = load_state_dict = None  # type: ignore[assignment]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("fails", ["loader", "optimizer", "callback"])
def test_batches_of_a_stream_are_drawn_once(
    fails: str, accumulate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*callbacks: train.Callback) -> train.Trainer:
        pg.seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3))
        return train.Trainer(
            model, Stream(), optimizer=optim.AdamW(model, lr=1e-2), steps=8, loss=noisy,
            accumulate=accumulate, callbacks=list(callbacks),
        )  # fmt: skip

    (whole := make()).fit(progress=False)
    trainer = make(*[Fail(ValueError("once"))] * (fails == "callback"))
    if fails == "loader":
        once(Stream, "__next__", monkeypatch, 4, after=False)
    if fails == "optimizer":
        once(optim.AdamW, "step", monkeypatch, 3, after=False)
    with pytest.raises(ValueError, match="once"):
        trainer.fit(progress=False)
    trainer.fit(progress=False)
    assert same(trainer.model.state_dict(), whole.model.state_dict())


def test_a_look_ahead_draws_from_a_copy() -> None:
    """Also beside a thread that draws for itself."""
    model, found = rows().model, list[float]()
    pg.seed(1)
    wanted = [pg.random_generator().random() for _ in range(4)]
    pg.seed(1)

    def draw() -> None:
        found.append(pg.random_generator().random())

    def look() -> None:
        thread = threading.Thread(target=draw)
        thread.start()
        thread.join()

    draw()
    trainer = train.Trainer(model, Noise(), Noise(look), optimizer=optim.AdamW(model), steps=1)
    trainer.check()
    draw()
    assert 2 < len(found) <= len(wanted)
    assert found == wanted[: len(found)]


class Beside:
    """Saves in another thread, once, when a trainer has come to a step."""

    def __init__(self, at: int):
        self.trainer: train.Trainer | None = None
        self.saved: list[Path] = []
        self._at = at

    def __call__(self) -> None:
        trainer = self.trainer
        if trainer is not None and trainer.step == self._at and not self.saved:
            thread = threading.Thread(target=lambda: self.saved.append(trainer.save()))
            thread.start()
            thread.join()


@pytest.mark.parametrize("draws", ["batch", "evaluation"])
def test_what_another_thread_saves_while_numbers_are_drawn(draws: str, tmp_path: Path) -> None:
    def make(name: str, look: Any = None) -> train.Trainer:
        pg.seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3))
        batches, val = (Noise(look if draws == each else None) for each in ("batch", "evaluation"))
        return train.Trainer(
            model, batches, val, optimizer=optim.AdamW(model, lr=1e-2), steps=9, eval_every=4,
            save_every=0, keep_best=False, checkpoint_dir=tmp_path / name,
        )  # fmt: skip

    (whole := make("whole")).fit(progress=False)
    trainer = make("one", beside := Beside(4))
    beside.trainer = trainer
    trainer.fit(progress=False)
    assert same(trainer.model.state_dict(), whole.model.state_dict())
    again = make("other")
    assert again.resume(beside.saved[0]) == 4
    again.fit(progress=False)
    assert same(again.model.state_dict(), whole.model.state_dict())


def test_what_another_thread_saves_while_a_step_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step has failed, and has moved the statistics, which are not put back yet."""
    nan, trainer = {6}, rows(tmp_path, prefetch=0, save_every=0)
    inner, beside = data.ArrayDataset.batch, Beside(5)
    beside.trainer = trainer

    def batch(dataset: Any, items: np.ndarray) -> Any:
        x, y = inner(dataset, items)
        return (x * np.float32(np.nan) if trainer.step + 1 in nan and len(dataset) == 64 else x), y

    def explain(*given: Any) -> str:
        text = diagnose.explain(*given)
        beside()
        return text

    monkeypatch.setattr(data.ArrayDataset, "batch", batch)
    monkeypatch.setattr(loop, "explain", explain)
    with pytest.raises(train.TrainingError, match="is nan"):
        trainer.fit(progress=False)
    nan.clear()
    again = rows()
    assert again.resume(beside.saved[0]) == 5
    assert same(again.model.state_dict(), trainer.model.state_dict())
    assert all(np.isfinite(value).all() for value in again.model.state_dict().values())


def test_a_second_signal_ends_a_step_at_once() -> None:
    """Also when the callbacks were told of the first one in the same step."""
    (whole := rows(steps=3)).fit(progress=False)
    trainer, came = rows(steps=3), list[int]()

    def hook(gradient: Any) -> None:
        while trainer.step == 1 and len(came) < 3:
            signal.raise_signal(signal.SIGINT)
            came.append(trainer.step)

    trainer.model[0].weight.register_hook(hook)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(progress=False)
    assert (came, trainer.step) == ([1], 1)
    came.extend((0, 0))
    trainer.fit(progress=False)
    assert same(trainer.model.state_dict(), whole.model.state_dict())


def test_a_run_is_not_between_averages_where_it_was_resumed(tmp_path: Path) -> None:
    rows(tmp_path, sync_every=4, steps=4, eval_every=0, save_every=4).fit(progress=False)
    trainer = rows(tmp_path, sync_every=3, steps=9, eval_every=0, save_every=0)
    assert trainer.resume() == 4
    assert trainer.save().name == "step-000004"


class Spoil(train.Callback):
    """Makes a factor of the loss infinite after a step."""

    def __init__(self, factor: pg.Tensor):
        self.factor, self.at = factor, 4

    def on_step(self, trainer: Any, metrics: Any) -> None:
        if metrics.step == self.at:
            self.factor.copy_([np.inf])


class Batches:
    """Batches without a state, of which one raises or ends, once."""

    batch_size = 2

    def __init__(self, error: BaseException | None = None, at: int = 18):
        self.error, self.at, self.number = error, at, 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.number == self.at and self.error is not None:
            error, self.error = self.error, None
            raise error
        self.number += 1
        ids = np.random.default_rng(self.number).integers(0, VOCAB, (2, SEQ_LEN + 1))
        return ids[:, :-1].astype(np.int32), ids[:, 1:].astype(np.int32)


class Early(Batches):
    """Batches with a state, which count a batch before they read it."""

    def __next__(self) -> Any:
        self.number += 1
        if self.number == self.at and self.error is not None:
            error, self.error = self.error, None
            raise error
        self.number -= 1
        return super().__next__()

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["number"]


class Shuffled(Early):
    """Batches whose state is what goes on: a list that each epoch shuffles in place."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.order = list(range(7))

    def __next__(self) -> Any:
        if self.number % 7 == 0:
            random.Random(self.number).shuffle(self.order)
        x, y = super().__next__()
        return (x + self.order[self.number % 7]) % VOCAB, y

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number, "order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.order = state["order"]


class Fail(train.Callback):
    """Raises after a step, once."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.at, self._error = 5, error or KeyboardInterrupt()

    def on_step(self, trainer: Any, metrics: Any) -> None:
        if metrics.step == self.at:
            self.at = 0
            raise self._error


def fitted(batches: Any, *callbacks: train.Callback) -> train.Trainer:
    """Train, again where an error ends it, to the end."""
    model = make_model()
    trainer = train.Trainer(
        model, batches, optimizer=optim.AdamW(model), steps=9, accumulate=4,
        callbacks=list(callbacks),
    )  # fmt: skip
    while trainer.step < 9:
        try:
            trainer.fit(progress=False)
        except (OSError, KeyboardInterrupt, train.TrainingError):
            assert trainer.step < 9
    return trainer


@pytest.mark.parametrize("kind", [Batches, Early, Shuffled])
@pytest.mark.parametrize("error", [OSError("once"), KeyboardInterrupt(), StopIteration()])
@pytest.mark.parametrize("at", [15, 18])
def test_batches_that_were_drawn_are_used(kind: Any, error: BaseException, at: int) -> None:
    wanted = fitted(kind()).model.state_dict()
    batches = kind(error, at)
    assert same(fitted(batches).model.state_dict(), wanted)
    assert batches.error is None
    if kind is not Batches:
        ahead = data.Prefetch(kind(OSError("once"), at))
        assert same(fitted(ahead).model.state_dict(), wanted)


def test_batches_without_a_state_go_on() -> None:
    """As those of a list or a generator, when fit() is called again."""
    batches = Batches()
    given = [next(batches) for _ in range(40)]
    wanted = fitted(Batches()).model.state_dict()
    for each in (given, (batch for batch in given)):
        assert same(fitted(each, Fail()).model.state_dict(), wanted)


class Alarm(BaseException):
    """What the handler of a signal raises."""


@pytest.fixture
def _alarm() -> Iterator[None]:
    def fail(signum: int, frame: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, fail)
    yield
    signal.signal(signal.SIGUSR1, before)


def signals(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let the `at`-th call of a method signal, after it has done its work."""
    inner, left = getattr(owner, name), [at]

    def call(*given: Any, **options: Any) -> Any:
        result = inner(*given, **options)
        left[0] -= 1
        if not left[0]:
            signal.raise_signal(signal.SIGUSR1)
        return result

    monkeypatch.setattr(owner, name, call)


class Note(train.Callback):
    """Notes the steps that it is told of."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_step(self, trainer: Any, metrics: Any) -> None:
        self.steps.append(metrics.step)


@pytest.mark.usefixtures("_alarm")
@pytest.mark.parametrize("step", [4, 8])
def test_what_follows_a_step_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The callbacks hear of the step, and its checkpoint is written, by the next fit()."""
    signals(optim.EMA, "update", monkeypatch, step)
    note = Note()
    trainer = make_trainer(tmp_path, [note], steps=8, save_every=4, eval_every=0, val=None, ema=0.9)
    with pytest.raises(Alarm):
        trainer.fit()
    assert trainer.step == step
    assert note.steps == list(range(1, step + 1))
    trainer.fit()
    assert note.steps == list(trainer.history["step"]) == list(range(1, 9))
    found = [path.name for path in train.list_checkpoints(tmp_path / "checkpoints")]
    assert found == ["step-000004", "step-000008"]


def test_a_callback_that_raises_keeps_no_other_from_hearing() -> None:
    first, last = Note(), Note()
    trainer = make_trainer(None, [first, Fail(), last], steps=9)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    assert first.steps == last.steps == [1, 2, 3, 4, 5]
    trainer.fit()
    assert first.steps == last.steps == list(range(1, 10))


@pytest.mark.usefixtures("_alarm")
def test_a_run_goes_back_whole_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal while a checkpoint is restored finds all parts of the run at one step."""
    options = {"steps": 8, "save_every": 2, "eval_every": 0, "keep": 9}
    folder = tmp_path / "checkpoints"
    trainer = make_trainer(tmp_path, **options)
    trainer.fit()
    signals(optim.AdamW, "load_state_dict", monkeypatch, 1)
    with pytest.raises(Alarm):
        trainer.resume(folder / "step-000004")
    assert trainer.step == 4
    assert trainer.last_checkpoint == folder / "step-000004"
    trainer.fit()
    assert trainer.last_checkpoint == folder / "step-000008"
    assert [path.name for path in train.list_checkpoints(folder)] == [
        f"step-00000{step}" for step in (2, 4, 6, 8)
    ]
