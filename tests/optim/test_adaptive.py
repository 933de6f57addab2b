# SPDX-License-Identifier: MIT
"""Schedules that hear of measures, as parts of others."""

from __future__ import annotations

import json

import pytest

from pyggml.optim import ReduceOnPlateau, schedules
from pyggml.optim.schedules.adaptive import is_adaptive, update_schedule


def plateau(value=1.0, **options):
    return ReduceOnPlateau(value, **{"factor": 0.5, "patience": 0, **options})


# Rows: a schedule with a plateau somewhere within, a step at which that is in force, and the value
# there before any measure.
NESTED = {
    "alone": (plateau, 9, 1.0),
    "after a warm-up": (lambda: schedules.warmup(plateau(), 5), 9, 1.0),
    "without a warm-up": (lambda: schedules.warmup(plateau(), 0), 0, 1.0),
    "around a warm-up": (lambda: plateau(schedules.warmup(schedules.constant(1.0), 5)), 9, 1.0),
    "joined": (lambda: schedules.join([schedules.constant(2.0), plateau()], [4]), 6, 1.0),
    "joined twice": (
        lambda: schedules.warmup(schedules.join([plateau(), plateau(3.0)], [4]), 2), 3, 1.0,
    ),
    "in another": (lambda: plateau(schedules.warmup(plateau(factor=0.25), 1), patience=9), 4, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("row", NESTED.values(), ids=NESTED)
def test_a_plateau_hears_wherever_it_is(row):
    make, step, value = row
    schedule = make()
    assert is_adaptive(schedule)
    assert schedule(step) == value
    assert not update_schedule(schedule, 3.0, step)
    assert update_schedule(schedule, 3.0, step)
    assert schedule(step) < value
    again = make()
    again.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    assert [again(n) for n in range(20)] == [schedule(n) for n in range(20)]
    for loss in (2.0, 2.0, 1.0, 1.0):
        assert update_schedule(schedule, loss, step) == update_schedule(again, loss, step)
    assert again.state_dict() == schedule.state_dict()


def test_only_the_part_in_force_hears():
    both = schedules.join([plateau(), plateau(3.0)], [10])
    for _ in range(3):
        both.update(1.0, step=4)
    assert (both(4), both(12)) == (0.25, 3.0)
    both.update(1.0, step=10)
    both.update(1.0, step=11)
    assert (both(4), both(12)) == (0.25, 1.5)
    assert both.update(1.0)  # who does not know the step tells all
    assert (both(4), both(12)) == (0.125, 0.75)


def test_parts_without_one_stay_plain_functions():
    plain = schedules.join([schedules.constant(1.0), schedules.constant(2.0)], [3])
    assert not is_adaptive(plain)
    assert not update_schedule(plain, 1.0, 2)


def test_the_same_part_twice_hears_once():
    one = plateau(patience=1)
    both = schedules.join([one, schedules.constant(1.0), one], [3, 6])
    both.update(1.0)
    both.update(1.0)
    assert one.scale == 1.0
    assert list(both.state_dict()) == ["0"]


def test_a_state_that_does_not_fit_changes_nothing():
    both = schedules.join([plateau(), plateau()], [3])
    both.update(1.0)
    both.update(1.0)
    before = both.state_dict()
    other = {"0": plateau().state_dict(), "1": {**plateau().state_dict(), "scale": "x"}}
    with pytest.raises(TypeError, match="scale must be"):
        both.load_state_dict(other)
    assert both.state_dict() == before
    with pytest.raises(KeyError, match=r"got \['0'\]"):
        both.load_state_dict({"0": plateau().state_dict()})
    with pytest.raises(TypeError):
        both.load_state_dict(3)


def test_one_of_ones_own_hears_too():
    class Own:
        heard = None

        def __call__(self, step):
            return 1.0

        def update(self, measure):
            self.heard = measure

        def state_dict(self):
            return {"heard": self.heard}

        def load_state_dict(self, state):
            self.heard = state["heard"]

    schedule = schedules.warmup(Own(), 2)
    schedule.update(7.0, step=2)
    assert schedule.state_dict() == {"1": {"heard": 7.0}}
