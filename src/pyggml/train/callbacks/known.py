# SPDX-License-Identifier: MIT
"""Checks of callbacks: every method that looks like an event's is one's."""

from __future__ import annotations

from difflib import get_close_matches

from .writers import Callback

__all__ = ["check_events"]

# Parts of the names that Keras, Lightning and transformers have, and what is told of it here.
_ELSEWHERE = (
    ("on_epoch", "on_step, where trainer.step % len(trainer.loader) is 0"),
    ("on_train_epoch", "on_step, where trainer.step % len(trainer.loader) is 0"),
    ("on_train_batch", "on_step"),
    ("on_batch", "on_step"),
    ("on_log", "on_step"),
    ("on_step", "on_step"),
    ("on_train_begin", "on_start"),
    ("on_train_start", "on_start"),
    ("on_fit_start", "on_start"),
    ("on_train_end", "on_end"),
    ("on_fit_end", "on_end"),
    ("on_save", "on_checkpoint"),
    ("on_evaluat", "on_evaluation"),
    ("on_test_begin", "on_evaluation_start"),
    ("on_test", "on_evaluation"),
    ("on_validation_epoch", "on_evaluation"),
    ("on_validation_start", "on_evaluation_start"),
    ("on_validation", "on_evaluation"),
    ("on_exception", "on_end"),
)


def check_events(who: str, callback: Callback) -> None:
    """Raise if a callback has a method that would never be called.

    Args:
        who: the function that takes it.
        callback: the callback.

    Raises:
        ValueError: names the method, the closest one and all that there are.
    """
    known = [name for name in dir(Callback) if name.startswith("on_")]
    kind = type(callback)
    for name in dir(callback):
        if name.startswith("on_") and name not in known and callable(getattr(callback, name)):
            raise ValueError(
                f"{who}: a method of a callback that begins with on_ must be one that is called; "
                f"got {kind.__name__}.{name}: {_cure(name, known)}; there are {', '.join(known)}"
            )


def _cure(name: str, known: list[str]) -> str:
    """Say what takes a method's place."""
    told = next((use for start, use in _ELSEWHERE if name.startswith(start)), None)
    near = get_close_matches(name, known, 1, 0.85) or ([told] if told else [])
    near = near or get_close_matches(name, known, 1)
    return f"use {near[0]}" if near else "give it another name"
