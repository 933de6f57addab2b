# SPDX-License-Identifier: MIT
"""The device of a configuration, and whether the model fits it."""

from __future__ import annotations

from ..backend.device import Device, set_default_device, set_threads
from ..backend.device import device as find_device
from ..train.checks import ConfigError
from ..train.config import TrainConfig
from ..train.memory import OutOfMemoryError, format_bytes

__all__ = ["check_estimate", "choose_device"]

# At the least: weights, Adam's two moments and, unless each is used at once, gradients.
_BYTES_PER_WEIGHT = 4
_BYTES_OF_STATE = {"adam": 8, "adamw": 8}
_BYTES_PER_GRADIENT = 4


def choose_device(config: TrainConfig) -> Device:
    """Make the run's device and threads the default ones."""
    where = find_device(config.device)
    set_default_device(where)
    if config.threads is not None:
        try:
            set_threads(config.threads)
        except ValueError as error:
            raise ConfigError(f"--threads: {error}") from error
    return where


def check_estimate(config: TrainConfig, parameters: int, cache: int, where: Device) -> None:
    """Refuse a model whose weights or context alone do not fit, before any is made.

    Args:
        config: of the run.
        parameters: how many the model has.
        cache: bytes of the keys and values of a whole context.
        where: the run's device.

    Raises:
        OutOfMemoryError: names the numbers and the ways out.
    """
    needed = _BYTES_PER_WEIGHT + _BYTES_OF_STATE.get(config.optimizer, 0)
    needed = parameters * (needed + _BYTES_PER_GRADIENT * (not config.fused_update))
    free = where.memory_free
    if free and needed > free:
        raise OutOfMemoryError(
            f"train: {parameters:,} parameters need {format_bytes(needed)} with gradients and "
            f"optimizer state, but {where.name} has {format_bytes(free)} free: choose a smaller "
            "--preset, or fewer --layers or a smaller --embd"
        )
    if free and cache > free:
        raise OutOfMemoryError(
            f"train: the keys and values of a whole context need {format_bytes(cache)}, but "
            f"{where.name} has {format_bytes(free)} free: choose a shorter --context"
        )
