# SPDX-License-Identifier: MIT
"""Dynamic loss scaling, which keeps small gradients within the range of f16."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .. import checks
from ..backend.device import alone
from ..backend.undivided import Undivided, settle

__all__ = ["GradScaler"]

_F32_MAX = float(2**128 - 2**104)


class GradScaler:
    """The factor on the loss: halved when gradients overflow, doubled after many good steps.

    Gradients below 6e-8 vanish in f16, and those above 65504 become infinite. Multiplying the
    loss multiplies all gradients; the update divides by the same factor. Powers of two change no
    bit of what is in range.

    Args:
        init_scale: first factor, > 0.
        growth_factor: what it grows by, > 1.
        backoff_factor: what it shrinks by, between 0 and 1.
        growth_interval: steps without an overflow until it grows, >= 1.
        min_scale: factor below which it does not shrink: gradients that overflow there are
            infinite for another reason.

    Attributes:
        scale: the factor of the next step.
        skipped: steps that overflowed, and changed nothing.
        good_steps: steps since the last change of the factor.

    Raises:
        TypeError: an argument is no number.
        ValueError: a number is out of range.

    Source: torch.amp.GradScaler; Micikevicius et al. 2018, arXiv:1710.03740.

    Example:
        >>> scaler = GradScaler(init_scale=8.0, growth_interval=1)
        >>> scaler.update(overflow=True), scaler.scale, scaler.skipped
        (True, 4.0, 1)
        >>> scaler.update(overflow=False), scaler.scale
        (True, 8.0)
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        min_scale: float = 1.0,
    ) -> None:
        given = {"init_scale": init_scale, "growth_factor": growth_factor, "min_scale": min_scale}
        for name, number in (*given.items(), ("backoff_factor", backoff_factor)):
            checks.number("GradScaler", name, number, finite=False)
        whole = isinstance(growth_interval, int) and not isinstance(growth_interval, bool)
        for name, value, good, wanted in (
            ("init_scale", init_scale, 0 < init_scale <= _F32_MAX, "finite in f32 and > 0"),
            ("growth_factor", growth_factor, 1 < growth_factor < math.inf, "finite and > 1"),
            ("backoff_factor", backoff_factor, 0 < backoff_factor < 1, "between 0 and 1"),
            ("growth_interval", growth_interval, whole and growth_interval >= 1, "an integer >= 1"),
            ("min_scale", min_scale, 0 < min_scale <= init_scale, "> 0, at most init_scale"),
        ):
            if not good:
                raise ValueError(f"GradScaler: {name} must be {wanted}; got {value!r}")
        self.scale = float(init_scale)
        self.growth_factor = float(growth_factor)
        self.backoff_factor = float(backoff_factor)
        self.growth_interval = growth_interval
        self.min_scale = float(min_scale)
        self.skipped = 0
        self.good_steps = 0

    def update(self, overflow: bool) -> bool:
        """Adapt the factor after a step.

        Args:
            overflow: whether a gradient of the step was not finite.

        Returns:
            Whether a smaller factor may help: False when an overflow came at `min_scale`.
        """
        overflow = checks.flag("GradScaler.update", "overflow", overflow)
        with alone(), Undivided():  # other threads, and handlers, see a whole update, or none
            settle()
            at_end = overflow and self.scale <= self.min_scale
            self.good_steps = 0 if overflow else self.good_steps + 1
            if overflow:
                self.scale = max(self.scale * self.backoff_factor, self.min_scale)
                self.skipped += 1
            elif self.good_steps >= self.growth_interval:
                self.scale = min(self.scale * self.growth_factor, _F32_MAX)
                self.good_steps = 0
        return not at_end

    def state_dict(self) -> dict[str, Any]:
        """Return the state for `load_state_dict`, JSON-ready."""
        with alone():  # between two steps of a training
            return {"scale": self.scale, "good_steps": self.good_steps, "skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned.

        Args:
            state: what it returned.

        Raises:
            TypeError: it is no mapping.
            ValueError: an entry is missing or out of range; nothing has changed then.
        """
        if not isinstance(state, Mapping):
            raise TypeError(
                f"GradScaler.load_state_dict: state must be a mapping; got {type(state).__name__}"
            )
        scale = state.get("scale")
        number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
        if not number or not 0 < (scale or 0) <= _F32_MAX:
            raise ValueError(
                f"GradScaler.load_state_dict: scale must be finite in f32 and > 0; got {scale!r}"
            )
        for name in ("good_steps", "skipped"):
            value = state.get(name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(
                    f"GradScaler.load_state_dict: {name} must be an integer >= 0; got {value!r}"
                )
        with alone(), Undivided():
            settle()
            self.scale = float(scale or 0)
            self.good_steps, self.skipped = state["good_steps"], state["skipped"]

    def __repr__(self) -> str:
        return f"GradScaler(scale={self.scale:g}, skipped={self.skipped})"
