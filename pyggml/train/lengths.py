# SPDX-License-Identifier: MIT
"""How long a run is, how often it stops to look, and its rates on the way."""

from __future__ import annotations

from collections.abc import Callable

from ..optim.schedules import warmup_cosine
from .config import ConfigError, TrainConfig

__all__ = ["DEFAULT_STEPS", "default_schedule", "interval"]

DEFAULT_STEPS = 1000


def default_schedule(config: TrainConfig, total_steps: int) -> Callable[[int], float]:
    """Linear warm-up, then a cosine down to the lowest rate.

    Args:
        config: rates, and the length of the warm-up.
        total_steps: steps of the whole run.

    Raises:
        ConfigError: the warm-up is longer than the run.
    """
    if config.warmup is not None and config.warmup > total_steps:
        raise ConfigError(
            f"--warmup must not exceed the run's {total_steps} steps; got {config.warmup}: "
            "lower it, or give more --steps"
        )
    warmup = min(100, total_steps // 20) if config.warmup is None else config.warmup
    min_lr = config.lr / 10 if config.min_lr is None else config.min_lr
    return warmup_cosine(config.lr, warmup, total_steps, min_lr)


def interval(value: int | None, total_steps: int, parts: int) -> int:
    """An interval in steps: as given, or so that the run has so many parts.

    Args:
        value: as given.
        total_steps: of the run.
        parts: how many.

    Example:
        >>> interval(None, 100, 5), interval(7, 100, 5)
        (20, 7)
    """
    return max(1, total_steps // parts) if value is None else value
