# SPDX-License-Identifier: MIT
"""Threads that cannot start: of a system without one left, and at the exit of the interpreter."""

import subprocess
import sys
import threading
from typing import Any

import pytest

from pyggml.backend.threads import map_in_threads

_LAST = """
import numpy as np
from pyggml import data, models, optim, train
from pyggml.backend.threads import map_in_threads

batches = data.Loader(data.TokenDataset(np.arange(200) % 11, 8), batch_size=2, shuffle=False)
begun = data.Prefetch(batches)
first = next(begun)[0]
model = models.GPT2(models.GPT2Config(vocab_size=11, context=8, n_embd=8, n_layer=1, n_head=2))
windows = data.RandomWindows(np.arange(200) % 11, 8)
trainer = train.Trainer(
    model, windows, optimizer=optim.AdamW(model, lr=1e-3), batch_size=2, steps=2
)

class Last:
    def __del__(self, work=map_in_threads):
        print(next(begun)[0][0].tolist(), flush=True)
        try:
            trainer.fit()
        except RuntimeError as error:
            print(f"[{error}]", flush=True)
        print(work(abs, [-1, 2], 2), flush=True)

keep = Last()
"""


def test_the_exit_starts_no_thread() -> None:
    """A `__del__` at the interpreter's exit takes batches without a thread; a training raises."""
    ran = subprocess.run(
        [sys.executable, "-c", _LAST], capture_output=True, text=True, timeout=60, check=False
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("[")]
    second = [n % 11 for n in range(16, 24)]
    assert lines[::2] == [str(second), "[1, 2]"], ran.stdout + ran.stderr
    assert lines[1].startswith("[Trainer.fit: must run before the interpreter exits")
    assert "Warning" not in ran.stderr
    assert "Error" not in ran.stderr


@pytest.mark.parametrize("most", [1, 3, 8])
def test_map_in_threads(most: int) -> None:
    assert map_in_threads(lambda n: n * n, range(100), most) == [n * n for n in range(100)]
    assert map_in_threads(abs, [], most) == []


def test_an_error_ends_the_work() -> None:
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda n: 1 // n, [1, 0, 2], 2)


def test_without_a_thread_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert map_in_threads(abs, [-1, -2], 4) == [1, 2]
