# SPDX-License-Identifier: MIT
"""Rewards of completions, which Python functions give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import checks
from ...errors import shown

__all__ = ["Reward", "check_rewards", "score"]

Reward = Callable[..., Sequence[float]]


def check_rewards(who: str, rewards: Any) -> list[Reward]:
    """Return reward functions as a list.

    Args:
        who: the function that takes them.
        rewards: a function, or several.

    Raises:
        TypeError: one is no function.
        ValueError: there is none.
    """
    found = [rewards] if callable(rewards) else list(checks.items(who, "rewards", rewards))
    if not found:
        raise ValueError(f"{who}: rewards must hold at least one function; got none")
    hint = "(prompts, completions, **columns) -> numbers"
    return [checks.function(who, "each of rewards", each, hint) for each in found]


def score(
    rewards: Sequence[Reward],
    prompts: Sequence[Any],
    completions: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
) -> np.ndarray:
    """Return what each function gives each completion.

    Args:
        rewards: called with `prompts`, `completions` and the columns, all by name.
        prompts: as they were given.
        completions: texts.
        columns: further values of each prompt's row, by name.

    Shape:
        -> (functions, completions) f64

    Raises:
        TypeError: a function returns no numbers.
        ValueError: it returns another number of them, or one that is not finite in f32.

    Example:
        >>> score([lambda completions, **rest: [len(c) for c in completions]], ["a"], ["bc"], {})
        array([[2.]])
    """
    found = np.zeros((len(rewards), len(completions)))
    for row, reward in enumerate(rewards):
        name = getattr(reward, "__name__", type(reward).__name__)
        given = reward(prompts=list(prompts), completions=list(completions), **columns)
        try:
            values = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise TypeError(
                f"Rollouts: the reward {name} must return numbers; got {shown(given)}"
            ) from None
        if values.shape != (len(completions),):
            raise ValueError(
                f"Rollouts: the reward {name} must return a number for each of "
                f"{len(completions)} completions; got shape {values.shape}"
            )
        good = np.abs(values) <= checks.F32_MAX
        if not good.all():
            bad = int(np.flatnonzero(~good)[0])
            raise ValueError(
                f"Rollouts: the reward {name} must return numbers that are finite in f32; got "
                f"{values[bad]:g} for {shown(completions[bad])}"
            )
        found[row] = values
    return found
