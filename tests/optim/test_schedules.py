# SPDX-License-Identifier: MIT
import math

import pytest

from pyggml.optim import schedules


def nano_gpt(step, peak, warmup, total, end):
    """get_lr of nanoGPT's train.py, written out."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if step > total:
        return end
    ratio = (step - warmup) / (total - warmup)
    return end + 0.5 * (1 + math.cos(math.pi * ratio)) * (peak - end)


@pytest.mark.parametrize(
    ("peak", "warmup", "total", "end"),
    [(1e-3, 100, 2000, 1e-4), (1.0, 0, 10, 0.0), (1.0, 1, 3, 0.5), (0.5, 7, 8, 0.1)],
)
def test_warmup_cosine_is_nano_gpts(peak, warmup, total, end):
    schedule = schedules.warmup_cosine(peak, warmup, total, end)
    for step in range(total + 5):
        assert schedule(step) == pytest.approx(nano_gpt(step, peak, warmup, total, end))


def test_a_warmup_as_long_as_the_run_only_rises():
    schedule = schedules.warmup_cosine(1.0, 4, 4)
    assert [schedule(step) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])


def test_values():
    assert schedules.constant(0.5)(10**9) == 0.5
    assert [schedules.linear(1.0, 0.0, 2)(s) for s in (-1, 0, 1, 2, 3)] == [1, 1, 0.5, 0, 0]
    cosine = schedules.cosine(2.0, 4, 1.0)
    assert [cosine(s) for s in (0, 2, 4, 99)] == pytest.approx([2.0, 1.5, 1.0, 1.0])
    joined = schedules.join(
        [schedules.constant(3.0), schedules.linear(0.0, 1.0, 2), schedules.constant(7.0)], [2, 5]
    )
    assert [joined(s) for s in range(7)] == [3.0, 3.0, 0.0, 0.5, 1.0, 7.0, 7.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedules.linear(0, 1, 0), "linear: steps must be an integer >= 1; got 0"),
        (lambda: schedules.cosine(1, 2.5), "cosine: steps must be an integer >= 1; got 2.5"),
        (lambda: schedules.warmup_cosine(1, -1, 5), "warmup_steps must be an integer >= 0"),
        (lambda: schedules.warmup_cosine(1, 1, 0), "total_steps must be an integer >= 1"),
        (lambda: schedules.join([schedules.constant(1)], [3]), "one fewer"),
        (lambda: schedules.join([schedules.constant(1)] * 3, [5, 2]), "must rise"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
