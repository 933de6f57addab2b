# SPDX-License-Identifier: MIT
"""Warnings of a slow rank and of ranks on other processors."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from pyggml.distributed import Group
from pyggml.distributed.pace import Pace

from .ranks import run_code

FOLDER = Path(__file__).parent


class Three(Group):
    """Rank 0 and two others, whose seconds a step are known."""

    size = 3

    def __init__(self, *others: float) -> None:
        super().__init__()
        self.others = others

    def reduce(self, arrays: list[np.ndarray], op: str = "sum") -> None:
        """Add what the others noted."""
        arrays[0] += [0.0, *self.others]

    def gather(self, value: object) -> list[object]:
        """Return the names of hosts."""
        return [f"host-{rank}" for rank in range(3)]


def test_a_slow_rank_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    group = Three(0.1, 0.2)
    pace = Pace(group)
    with caplog.at_level(logging.WARNING, "pyggml.train"):
        for _ in range(60):
            group.waited_s += 0.1
            pace.note(0.2)  # half of it spent waiting
    [told] = caplog.messages
    assert "rank 2 on host-2 computes 2.0 times as long" in told


def test_ranks_of_like_speed_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    pace = Pace(Three(0.1, 0.14))
    with caplog.at_level(logging.WARNING, "pyggml.train"):
        for _ in range(60):
            pace.note(0.1)
    assert not caplog.messages


@pytest.mark.slow
def test_other_processors_are_told_once(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
from pyggml import distributed
from pyggml.train import ranks
if distributed.init("auto").rank == 1:
    ranks.cpu_features = lambda: ["neon"]
import training
trainer, _ = training.make("f32", None, 3)
trainer.fit()
"""
    done = run_code(2, tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ranks compute on other processors, so bits may differ") == 1
    assert "neon" in done.stderr
