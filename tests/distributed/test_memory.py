# SPDX-License-Identifier: MIT
"""Ranks that divide state, gradients and parameters take as much memory as is planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .ranks import run

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
PROGRAM = Path(__file__).parents[2] / "benchmarks" / "distributed.py"


def test_ranks_take_the_memory_that_is_planned() -> None:
    planned: dict[int, float] = {}
    for zero in (2, 3):
        options = ("--large", "--batch", "1", "--memory", "--worker", "--zero", str(zero))
        done = run(2, PROGRAM, *options)  # GPT-2 124M
        assert done.returncode == 0, done.stderr
        for total, _, most in json.loads(done.stdout.splitlines()[-1]):
            assert most == pytest.approx(total, rel=0.05)
            planned[zero] = planned.get(zero, 0.0) + total
    assert planned[3] < planned[2] - 200
