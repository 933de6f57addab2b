# SPDX-License-Identifier: MIT
"""Whole steps: where a run goes back to, and whether an error has left a part of a step."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...backend.buffers import Buffer, last_write
from ...tensors import Tensor
from ...tensors.random import random_generator
from ...tensors.storage import read_bytes, write
from ..run import Run

__all__ = ["WholeSteps"]


class WholeSteps:
    """The place of the last whole step of a run.

    An error may come anywhere in a step. Where it has changed no parameter, and nothing of the
    optimizer, the run goes back, and the step's batches come again: statistics that the forward
    pass has written are put back. After a part of a step neither a checkpoint nor the next step
    would be right: the run then refuses both.

    Args:
        run: the run.
        saves: whether a state of the loader is needed, also of one that has none.

    Attributes:
        has_state: whether the loader has one.
        position: its state after the last whole step of a training that goes on, or that an error
            ended; None where the loader is.
    """

    def __init__(self, run: Run, saves: bool):
        self.position: Any = None
        self._run = run
        loader = run.loader
        methods = [getattr(loader, name, None) for name in ("state_dict", "load_state_dict")]
        self.has_state = saves or all(map(callable, methods))
        self._memory: list[Buffer] = []  # of the parameters
        self._statistics: list[Tensor] = []  # of normalisations, which a forward pass writes
        self._kept: list[tuple[Tensor, np.ndarray]] = []  # what they were before the step
        self._generator: Mapping[str, Any] | None = None  # while it may be ahead, or the loader
        self._noted: tuple[Any, ...] | None = None  # while a step changes the run

    def loader_state(self) -> Any:
        """Return the loader's state, in which it may go on itself; None where it has none."""
        return copy.deepcopy(self._run.loader.state_dict()) if self.has_state else None

    def enter(self) -> None:
        """Begin a training at the last whole step."""
        self.leave()  # again, where a signal has ended it
        model = self._run.model
        memory = {id(t.buffer): t.buffer for t in model.parameters()}
        buffers = {id(t): t for t in getattr(model, "buffers", list)()}.values()
        self._statistics = [t for t in buffers if id(t.buffer) not in memory]
        self._memory = list(memory.values())
        self.position = self.loader_state()

    def leave(self) -> None:
        """End a training at the last whole step, unless an error has left a part of the next."""
        if self.is_whole:
            self.go_back()
            self.forget()

    def draw(self) -> None:
        """Tell that the loader, or the random generator, may be ahead from now on."""
        self._generator = random_generator().bit_generator.state

    def drew(self) -> None:
        """Tell that a step's batches are there; those of a loader without a state stay."""
        if not self.has_state:
            self.draw()

    def keep(self) -> None:
        """Tell that what was drawn counts."""
        self._generator, self._kept = None, []

    def go_back(self) -> None:
        """Bring loader, random generator and statistics to where `draw` was called."""
        if self._generator is None:
            return
        self.put_back()
        if self.has_state:
            self._run.drawn = []
            self._run.loader.load_state_dict(copy.deepcopy(self.position))
        random_generator().bit_generator.state = self._generator
        self.keep()

    def generator_state(self) -> Mapping[str, Any]:
        """Return the random generator's state after the last whole step."""
        return self._generator or random_generator().bit_generator.state

    def put_back(self) -> None:
        """Give statistics the numbers that they had before a step which failed."""
        for t, raw in self._kept:
            write(t.node, raw)

    def begin(self) -> None:
        """Tell that a step changes the run from now on."""
        self._kept = [(t, read_bytes(t.node)) for t in self._statistics]
        self._noted = self._now()

    def end(self, position: Any) -> None:
        """Tell that a step is whole.

        Args:
            position: state of the loader after its batches.
        """
        self.position, self._noted = position, None
        self.keep()

    @property
    def is_whole(self) -> bool:
        """True unless an error has left a part of a step."""
        return self._noted is None or self._noted == self._now()

    def need(self, method: str) -> None:
        """Raise where an error has left a part of a step.

        Args:
            method: the trainer's, for the message.

        Raises:
            RuntimeError: it has.
        """
        if not self.is_whole:
            raise RuntimeError(
                f"Trainer.{method}: the run must be at the end of a step; an error ended step"
                f" {self._run.step + 1} when a part of the run had changed: resume() goes back to"
                " the last checkpoint; another Trainer of the model trains on from its weights as"
                " they are"
            )

    def forget(self) -> None:
        """Tell that the run is at a whole step, and the loader there."""
        self.position = self._noted = None
        self.keep()

    def _now(self) -> tuple[Any, ...]:
        """Return the numbers that a step changes."""
        run = self._run
        scaler = {} if run.scaler is None else run.scaler.state_dict()
        ema = 0 if run.ema is None else run.ema.steps
        return last_write(self._memory), run.step, run.optimizer.steps, ema, *scaler.values()
