# SPDX-License-Identifier: MIT
"""A signal at any instant of a step leaves a checkpoint of the last step that was done."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import pyggml.train
from pyggml.train import Callback, Sampler, TrainingInterrupted, latest_checkpoint, load_checkpoint

from .tiny import make_trainer, same

FOLDER = Path(pyggml.train.__file__).parent
# What happens between two steps; a fit of the tiny trainer visits each of their lines.
FILES = {"loop", "keeper", "evaluator", "best", "checkpoint", "folders"}


class Lines:
    """Looks at the lines of these files that run after the first step, and may signal at one."""

    def __init__(self, wanted=None, signum=signal.SIGTERM):
        self.seen, self.wanted, self.signum = {}, wanted, signum
        self.trainer = None

    def watch(self, trainer):
        self.trainer = trainer
        sys.settrace(self._call)

    def _call(self, frame, event, argument):
        path = Path(frame.f_code.co_filename)
        return self._line if path.is_relative_to(FOLDER) and path.stem in FILES else None

    def _line(self, frame, event, argument):
        if event == "line":
            place = (frame.f_code.co_filename, frame.f_lineno)
            if place not in self.seen:
                self.seen[place] = self.trainer.step
                if place == self.wanted:
                    signal.raise_signal(self.signum)
        return self._line


class Start(Callback):
    def __init__(self, lines):
        self.lines = lines

    def on_step(self, trainer, metrics):
        if metrics.step == 1:
            self.lines.watch(trainer)

    def on_end(self, trainer):
        sys.settrace(None)


def fit(folder, lines, callbacks=()):
    """Train a little; returns the trainer and how it was interrupted."""
    settings = {
        "steps": 4, "eval_every": 2, "save_every": 3, "keep": 2, "ema": 0.9, "prefetch": 0,
        "schedule": "plateau", "lr": 3e-2,
    }  # fmt: skip
    watch = [] if lines is None else [Start(lines)]
    callbacks = [*watch, Sampler(2, lambda: "a text"), *callbacks]
    trainer = make_trainer(folder, callbacks, **settings)
    try:
        trainer.fit()
    except TrainingInterrupted as error:
        return trainer, error
    finally:
        sys.settrace(None)
    return trainer, None


def check(folder, trainer, error, least, where):
    """There is a checkpoint of the last step, which is no earlier than the signal's."""
    assert error is not None, where
    newest = latest_checkpoint(folder / "checkpoints")
    assert error.step == trainer.step >= least, where
    assert newest == error.checkpoint, where
    assert load_checkpoint(newest).state.step == error.step, where
    assert same(load_checkpoint(newest).model, trainer.model.state_dict()), where


@pytest.mark.parametrize("each", [40, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_at_every_line_between_steps(tmp_path, each):
    lines = Lines()
    _, error = fit(tmp_path / "whole", lines)
    assert error is None
    assert {Path(file).stem for file, _ in lines.seen} == FILES
    for n, place in enumerate(list(lines.seen)[::each]):
        trainer, error = fit(tmp_path / str(n), Lines(place))
        check(tmp_path / str(n), trainer, error, lines.seen[place], place)


EVENTS = [name for name in vars(Callback) if name.startswith("on_")]


@pytest.mark.parametrize("event", sorted({*EVENTS} - {"on_start", "on_end", "on_interrupt"}))
def test_in_every_callback(tmp_path, event):
    class Ask(Callback):
        def __init__(self):
            setattr(self, event, self.ask)

        def ask(self, trainer, *details):
            if trainer.step >= 2:
                signal.raise_signal(signal.SIGINT)
                setattr(self, event, lambda *details: None)

    trainer, error = fit(tmp_path, None, callbacks=[Ask()])
    check(tmp_path, trainer, error, 2, event)


@pytest.mark.parametrize("what", ["best", "checkpoint"])
def test_within_a_file_that_is_written(tmp_path, monkeypatch, what):
    real = pyggml.train.checkpoints.checkpoint.hashed

    def save(path):
        if f".{'best' if what == 'best' else 'step'}" in str(path.parent.name):
            signal.raise_signal(signal.SIGTERM)
            monkeypatch.undo()
        return real(path)

    monkeypatch.setattr("pyggml.train.checkpoints.checkpoint.hashed", save)
    trainer, error = fit(tmp_path, None)
    check(tmp_path, trainer, error, 2, what)
    assert error.signum == signal.SIGTERM


def test_a_callback_that_fails_at_a_signal_spoils_no_save(tmp_path, monkeypatch, caplog):
    class Fails(Callback):
        def on_checkpoint(self, trainer, path):
            signal.raise_signal(signal.SIGINT)

        def on_interrupt(self, trainer, signum):
            raise BrokenPipeError("whoever read the messages is gone")

    trainer, error = fit(tmp_path, None, callbacks=[Fails()])
    check(tmp_path, trainer, error, 3, "on_interrupt")
    assert "on_interrupt failed" in caplog.text
