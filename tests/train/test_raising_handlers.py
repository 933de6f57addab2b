# SPDX-License-Identifier: MIT
"""A signal's handler that raises anywhere in a training takes no part of a step with it.

The run goes on in the same process, or from the checkpoint that the error left, to the same bits.
"""

from __future__ import annotations

import copy
import inspect
import json
import random
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, nn, optim, train
from pyggml.backend.scopes import in_turn
from pyggml.backend.undivided import Undivided
from pyggml.models import build
from pyggml.train.checkpoints.restore import optimizer_state

from .tiny import SEQ_LEN, SIZES, VOCAB, tokens

pytestmark = [
    # Python itself drops what a handler raises in a `__del__`.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # A handler may raise after the last step.
    pytest.mark.filterwarnings("ignore:Trainer.fit. nothing is left to train"),
]
PACKAGE = str(Path(pg.__file__).parent)
STEPS = 24
# Of half a step of the tiny model, about.
MOST_CALLS = 3000

Numbers = dict[str, bytes]


class Alarm(Exception):
    """What the handler raises."""


class Signals(train.Callback):
    """Signals where a function of the package begins or returns, after a number of them, once.

    There Python looks for signals. It does not at the lines that begin and end a `with`, nor at a
    `yield`.

    Args:
        later: how many after a first step.
        again: how many after one that Python has dropped, which ends the tracing, too.
    """

    def __init__(self, later: int = 0, again: int = 0) -> None:
        self.left = 0
        self._later, self._again = later, again

    def on_step(self, trainer: Any, metrics: Any) -> None:
        if self._later:
            self.left, self._later = self._later, 0
        elif not self.left and self._again:
            self.left = self._again
            sys.settrace(self)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE):
            return None
        frame.f_trace_lines = False
        yields = event == "return" and frame.f_code.co_flags & inspect.CO_GENERATOR
        if event in ("call", "return") and self.left > 0 and not yields:
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGUSR1)
        return self


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    def fail(signum: int, frame: FrameType | None) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, fail)
    yield
    signal.signal(signal.SIGUSR1, before)


OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda model: optim.AdamW(model, lr=1e-2),
    "fused": lambda model: optim.AdamW(model, lr=1e-2, fused_update=True),
    "adafactor": lambda model: optim.Adafactor(model, lr=1e-2),
    "muon": lambda model: optim.Muon(optim.muon_groups(model), lr=1e-2),
    "rounded": lambda model: optim.SGD(model, lr=1e-1, momentum=0.9),
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "average": ("adamw", {"ema": 0.9, "prefetch": 0}),
    "accumulating": ("adamw", {"ema": 0.5, "accumulate": 3}),
    "f16": ("adamw", {"precision": "f16", "clip": 0.5}),
    "fused": ("fused", {"clip": 0.0}),
    "adafactor": ("adafactor", {"clip_value": 1e-3, "prefetch": 0}),
    "muon": ("muon", {"accumulate": 2, "ema": 0.9}),
    "rounded": ("rounded", {"clip": 0.1}),
}


def make(variant: str, folder: Path | None, *callbacks: train.Callback) -> train.Trainer:
    """A tiny trainer with dropout, a schedule that follows the loss, and noise on the targets."""
    name, options = VARIANTS[variant]
    pg.seed(7)
    model = build("gpt2", {**SIZES["gpt2"], "n_layer": 1, "dropout": 0.1}, vocab_size=VOCAB)
    rows, rest = data.TokenDataset(tokens(200), SEQ_LEN).split(0.2)
    optimizer = OPTIMIZERS[name](model)
    if name == "rounded":
        types = {"*": "f32", "mlp.c_proj.weight": "q8_0"}
        train.quantization_aware(model, optimizer, "Q8_0", every=2, types=types)
    trainer = train.Trainer(
        model, rows, rest, optimizer, checkpoint_dir=folder, callbacks=list(callbacks),
        steps=STEPS, batch_size=2, seed=1, eval_every=4, save_every=0 if folder is None else 7,
        schedule="plateau", schedule_options={"patience": 0, "threshold": 0.9}, patience=99,
        **options,
    )  # fmt: skip
    if trainer.scaler is not None:
        trainer.scaler.scale, trainer.scaler.growth_interval = 2.0**40, 2  # overflows now and then
    return trainer


def numbers(trainer: train.Trainer) -> Numbers:
    """All that a checkpoint has of a step, bit by bit."""
    state: dict[str, Any] = {
        "tokens": trainer.tokens,
        "best": repr(sorted((trainer.best or {}).items())),
    }
    state |= {f"model.{name}": value for name, value in trainer.model.state_dict().items()}
    state |= {f"optimizer.{name}": value for name, value in optimizer_state(trainer).items()}
    state["optimizer.ema"] = repr(state.pop("optimizer.ema", None))
    if trainer.ema is not None:
        state |= {f"ema.{name}": value for name, value in trainer.ema.state_dict().items()}
    state["scaler"] = repr(trainer.scaler and trainer.scaler.state_dict())
    state["schedule"] = repr(trainer.schedule.state_dict())  # type: ignore[attr-defined]
    return {name: np.asarray(value).tobytes() for name, value in state.items()}


class Look(train.Callback):
    """Keeps the numbers after each step, or compares them with those of another run."""

    def __init__(self, wanted: dict[int, Numbers] | None = None):
        self.found: dict[int, Numbers] = {}
        self.heard: list[Any] = []
        self._wanted = wanted

    def on_evaluation(self, trainer: Any, metrics: Any) -> None:
        self.heard.append(metrics)

    def on_step(self, trainer: Any, metrics: Any) -> None:
        self.heard.append(metrics.step)
        self.found[trainer.step] = numbers(trainer)
        if self._wanted is not None:
            check(self.found[trainer.step], self._wanted[trainer.step], trainer.step)


def check(found: Numbers, wanted: Numbers, where: object) -> None:
    """All numbers have the same bits."""
    differ = [name for name in wanted if found.get(name) != wanted[name]]
    assert found.keys() == wanted.keys(), where
    assert not differ, (where, differ)


def disturbed(trainer: train.Trainer, draw: random.Random, once: bool = False) -> int:
    """Train to the end, with a handler that raises again and again; return how often it did.

    Once leaves the run where the first one has ended it, some steps after its first.
    """
    calls = draw.randrange(1, 4 * MOST_CALLS)
    signals = Signals(calls if once else 0, calls)
    raised, before = 0, sys.gettrace()
    most, place = MOST_CALLS, (0, None)
    trainer.callbacks.append(signals)
    while True:
        signals.left = draw.randrange(1, most) * (not once)
        sys.settrace(signals)
        try:
            trainer.fit(progress=False)
            return raised
        except Alarm:
            raised += 1
        finally:
            sys.settrace(before)
        # A graph that is recorded anew takes more.
        if once:
            return raised
        now = trainer.step, trainer.evaluated
        most, place = 2 * most if now == place else MOST_CALLS, now


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 30))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_goes_on_to_the_same_bits(variant: str, seed: int) -> None:
    whole = make(variant, None, look := Look())
    whole.fit(progress=False)
    trainer = make(variant, None, callback := Look(look.found))
    assert disturbed(trainer, random.Random(seed)) > 3
    check(numbers(trainer), numbers(whole), "end")
    # Each callback hears of each step and each evaluation once.
    assert list(look.heard) == list(callback.heard)
    assert trainer.history.evaluations == whole.history.evaluations


@pytest.mark.skipif(sys.platform == "win32", reason="nothing waits")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_signal_just_before_a_block(
    variant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python runs its handler in the block, which nothing there may be divided by."""
    import ctypes

    sends = partial(ctypes.CDLL(None)["raise"], signal.SIGUSR1)
    inner, left = Undivided.starts, [0]

    def starts(block: Undivided) -> Any:
        left[0] -= 1
        enters = inner(block)
        return enters if left[0] else in_turn([sends, enters])

    whole = make(variant, None, look := Look())
    whole.fit(progress=False)
    monkeypatch.setattr(Undivided, "starts", starts)
    trainer = make(variant, None, callback := Look(look.found))
    trainer.callbacks.append(writer := train.MetricsWriter(tmp_path / "metrics.jsonl"))
    draw, raised = random.Random(0), 0
    while True:
        left[0] = draw.randrange(1, 40)
        try:
            trainer.fit(progress=False)
            break
        except Alarm:
            raised += 1
    left[0] = 0
    assert raised > 3
    check(numbers(trainer), numbers(whole), "end")
    for name in ("step", "loss", "elapsed_s"):
        assert np.isfinite(trainer.history[name]).all(), name
    assert list(trainer.history["loss"]) == list(whole.history["loss"])
    found = [json.loads(line) for line in writer.file.path.read_text().splitlines()]
    assert [each["step"] for each in found if "lr" in each] == list(range(1, STEPS + 1))
    assert len([step for step in callback.heard if isinstance(step, int)]) <= STEPS


FEW = ("average", "fused", "rounded")
SLOWLY = [v if v in FEW else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variant", SLOWLY)
def test_what_an_error_leaves_on_the_disk_is_whole(variant: str, seed: int, tmp_path: Path) -> None:
    """Each time another process goes on, from the newest checkpoint."""
    whole = make(variant, None, look := Look())
    whole.fit(progress=False)
    draw, raised = random.Random(seed), 0
    while True:
        trainer = make(variant, tmp_path, Look(look.found))
        trainer.resume()
        found = disturbed(trainer, draw, once=True)
        raised += found
        if not found:
            break
    assert raised > 1
    check(numbers(trainer), numbers(whole), "end")


def test_a_range_test_puts_back_all() -> None:
    """Of a model with running statistics, its optimizer and a loader, wherever a handler raises."""
    rows = data.ArrayDataset(np.eye(8, 4, dtype=np.float32), np.arange(8) % 3)

    def look(signals: Signals) -> bool:
        pg.seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        parts = [model, optim.AdamW(model), data.Loader(rows, 4, seed=1)]
        before, tracing = copy.deepcopy([part.state_dict() for part in parts]), sys.gettrace()
        sys.settrace(signals)
        try:
            train.find_lr(*parts, start=1e-3, end=0.1, steps=6)
        except Alarm:
            return True
        finally:
            sys.settrace(tracing)
            np.testing.assert_equal([part.state_dict() for part in parts], before)
        return False

    signals = Signals()
    signals.left = most = 10**9
    assert not look(signals)
    calls, raised = most - signals.left, 0
    for left in range(calls // 2, calls, calls // 99):
        signals.left = left
        raised += look(signals)
    assert raised > 40
