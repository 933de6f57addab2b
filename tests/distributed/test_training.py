# SPDX-License-Identifier: MIT
"""Ranks that share batches train as one process does, with the same bits each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .ranks import run

pytestmark = pytest.mark.mpi
PROGRAM = Path(__file__).parent / "training.py"
# Losses are f32 numbers of about 3; f16 rounds operands that a loss scale of its own multiplied;
# gradients on the wire are rounded to 8 bits.
TOLERANCE = {"f16": 1e-4, "wire": 5e-4, "feedback": 5e-4}


def train(ranks: int, case: str, *more: str | Path) -> dict[str, Any]:
    done = run(ranks, PROGRAM, case, *(more or ("-",)))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(set(found["digests"])) == 1, "ranks have different weights"
    return found


SLOW = (
    *("bf16", "f16", "clip", "clip_value", "accumulate", "masks", "uneven", "lora"),
    *("zero1", "zero2", "zero1-muon", "zero2-adafactor", "wire", "feedback", "recompute"),
    *("zero3-adam+wide+masks+accumulate", "zero3+recompute"),
)


@pytest.mark.parametrize(
    "case",
    ["f32", "zero3", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)],
)
def test_ranks_train_as_one_does(case: str) -> None:
    alone = train(1, case)
    for ranks in {"f32": (2, 4), "masks": (2, 4), "zero3": (2,)}.get(case, (4,)):
        together = train(ranks, case)
        least = TOLERANCE.get(case, 1e-6)
        assert together["losses"] == pytest.approx(alone["losses"], rel=0, abs=least)
        assert together["norms"] == pytest.approx(alone["norms"], rel=10 * max(least, 1e-5))
        early, buckets = together["early"]
        if case != "lora":  # whose gradients fit into one
            assert buckets > 3
            assert 0 < early <= buckets
        assert together["tokens"] == alone["tokens"]
        assert together["validation"] == pytest.approx(alone["validation"], rel=0, abs=least)
        assert together["metrics"] == pytest.approx(alone["metrics"], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["masks", "zero2", "zero3", "feedback"])
def test_the_same_ranks_give_the_same_bits(case: str) -> None:
    first, second = train(4, case), train(4, case)
    assert first == second


@pytest.mark.slow
def test_buckets_that_leave_early_have_the_bits_of_those_that_leave_late() -> None:
    early, late = train(4, "f32"), train(4, "f32+after")
    assert late["early"][0] == 0
    assert early["early"][0] > 0
    assert early["losses"] == late["losses"]
    assert early["state"] == late["state"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["zero1", "zero2"])
def test_parameters_that_arrive_in_the_forward_have_the_bits_of_those_that_came_before(
    case: str,
) -> None:
    early, late = train(2, f"{case}+read"), train(2, f"{case}+read+after")
    assert len(set(early["seen"])) == 50
    for part in ("losses", "norms", "seen", "digests", "state", "validation"):
        assert early[part] == late[part]


@pytest.mark.slow
def test_ranks_keep_less_where_they_divide_more() -> None:
    whole, state, both = (train(2, case)["sizes"] for case in ("f32", "zero1", "zero2"))
    assert state == pytest.approx((whole[0], whole[1] / 2), rel=0.05)
    assert both == pytest.approx((whole[0] / 2, whole[1] / 2), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["zero1", "zero2-adamw8bit", "zero3", "feedback"])
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, case: str) -> None:
    whole = train(2, case, tmp_path / "whole")
    train(2, case, tmp_path / "part", "20")
    rest = train(2, case, tmp_path / "part")
    assert rest["losses"] == whole["losses"][20:]
    for part in ("digests", "state", "wire"):
        assert rest[part] == whole[part]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["f32", "zero1", "zero2", "zero3"])
def test_other_ranks_resume_with_the_same_order(tmp_path: Path, case: str) -> None:
    whole = train(1, case)
    for before, after in ((2, 4), (4, 1), (1, 2)):
        folder = tmp_path / f"{before}-{after}"
        train(before, case, folder, "20")
        rest = train(after, case, folder)
        assert len(rest["losses"]) == 30
        assert rest["losses"] == pytest.approx(whole["losses"][20:], rel=0, abs=1e-6)
        assert rest["validation"] == pytest.approx(whole["validation"], rel=0, abs=1e-6)


@pytest.mark.slow
def test_parts_of_parameters_have_the_bits_of_all() -> None:
    parts, whole = train(2, "zero3"), train(2, "zero2+wide")
    for what in ("losses", "norms", "digests", "state", "validation"):
        assert parts[what] == whole[what]


@pytest.mark.slow
def test_parts_of_parameters_are_not_read_between_steps() -> None:
    done = run(2, PROGRAM, "zero3+read", "-")
    assert done.returncode != 0
    assert done.stderr.count("DistributedError: ") == 1, done.stderr
    assert "between steps" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("case", ["zero1", "zero3"])
def test_weights_that_are_not_finite_end_the_job_with_one_message(case: str) -> None:
    done = run(2, PROGRAM, f"{case}+bad", "-")
    assert done.returncode != 0
    assert done.stderr.count("TrainingError: ") == 1, done.stderr
    assert "must be finite" in done.stderr
