# SPDX-License-Identifier: MIT
"""EMA: a running average of a model's weights, to evaluate and to save."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, ops
from ..backend.buffers import last_write
from ..backend.device import alone
from ..backend.not_copied import NotCopied
from ..backend.undivided import Undivided, Undone
from ..graph import Graph
from ..tensors import Tensor, tensor, zeros_group
from ..tensors.storage import write_all
from .groups import need_model
from .inplace import assign, copied
from .state import check_entries, load_arrays, one, save_arrays

__all__ = ["EMA"]

_log = logging.getLogger("pyggml.optim")
_WRITTEN = (
    "EMA.applied: the weights must stay the same inside the block; they were written meanwhile, as"
    " by a training step: the model has its own weights again, without that step, and the average"
    " holds what was written; train outside of the block, or on a copy of the model,"
    " copy.deepcopy(model)"
)

T = TypeVar("T")


class _Model(Protocol):
    def named_parameters(self) -> Iterator[tuple[str, Tensor]]: ...


class EMA(NotCopied):
    """Keep a running average of the trainable parameters, on their device.

    a = d * a + (1 - d) * w, with d = min(decay, (1 + n) / (10 + n)) at update n

    Call `update` after each step of the optimizer. `with ema.applied():` lends the model the
    averages, to evaluate or to save it, and gives it its own weights back; a training in another
    thread waits meanwhile.

    Args:
        model: whose parameters; those that are frozen now are left out, for good.
        decay: what is kept of the average, in [0, 1).
        warmup: let the first updates weigh more, as above; False has d = decay from the start.

    Attributes:
        averages: the average of each parameter, by its name.
        steps: updates done.

    Raises:
        ValueError: decay is out of range, or no parameter is trainable.
        TypeError: the model is no module.

    Source: Polyak and Juditsky 1992; tf.train.ExponentialMovingAverage, whose warm-up it is.

    Example:
        >>> model = Linear(1, 1, bias=False)
        >>> ema = EMA(model, decay=0.5, warmup=False)
        >>> before = model.weight.item()
        >>> _ = model.weight.copy_([[before + 2.0]])
        >>> ema.update()
        >>> with ema.applied():
        ...     round(model.weight.item() - before, 4)
        1.0
        >>> round(model.weight.item() - before, 4)
        2.0
    """

    instead = "make another one for the copied model, and give it state_dict()"

    def __init__(self, model: _Model, decay: float = 0.999, warmup: bool = True) -> None:
        self.decay = checks.f32("EMA", "decay", decay, 0.0, below=1.0)
        self.warmup = checks.flag("EMA", "warmup", warmup)
        self.steps = 0
        named = need_model("EMA", model).named_parameters()
        self._params = {name: p for name, p in named if p.requires_grad}
        if not self._params:
            raise ValueError(
                "EMA: the model must have a parameter that is trained; got none; unfreeze one"
            )
        self._device = next(iter(self._params.values())).device
        specs: list[Any] = [(p.shape, "f32") for p in self._params.values()]
        made = zeros_group(specs, self._device)
        self.averages = dict(zip(self._params, made, strict=True))
        self._rate = tensor(np.zeros((2,), np.float32), device=self._device)
        # 1 while the model holds the averages; the graph that swaps them changes it, too.
        self._lent = tensor(np.zeros((), np.float32), device=self._device)
        self._graphs: dict[str, Graph] = {}
        Graph([], effects=[assign(a, p) for a, p in self._pairs()], device=self._device).run()

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each average and its parameter."""
        return [(self.averages[name], p) for name, p in self._params.items()]

    def _run(self, name: str) -> None:
        """Run a graph, recorded at its first use."""
        if name not in self._graphs:
            effects = [] if name == "update" else [assign(self._lent, 1.0 - self._lent)]
            for average, param in self._pairs():
                if name == "update":
                    difference = ops.sub(average, param)
                    effects.append(ops.opt_step_sgd(average, difference, self._rate))
                else:
                    own = copied(param)
                    effects += [own, assign(param, average), assign(average, own)]
            self._graphs[name] = Graph([], effects=effects, device=self._device)
        self._graphs[name].run()

    def update(self) -> None:
        """Update the average with the current parameters.

        Raises:
            RuntimeError: the model holds the averages, inside `applied`.
        """
        with alone(), Undivided():  # other threads, and handlers, see a whole update, or none
            self._at_home("update")
            decay = self.decay
            if self.warmup:
                decay = min(decay, (1 + self.steps) / (10 + self.steps))
            self._rate.copy_(np.asarray([1.0 - decay, 0.0], np.float32))
            self._run("update")
            self.steps += 1

    def applied(self) -> AbstractContextManager[None]:
        """Let the model use the averages inside the block; its own weights come back bit for bit.

        Other threads, such as one that trains the model, wait until the block ends, as with
        `pyggml.alone`: the block must not wait for them.

        Raises:
            RuntimeError: they are lent already, or the block wrote the model's weights; where it
                ends by an exception or in an `except`, a warning is logged of the latter.
        """
        return _Lent(None, partial(self._at_home, "applied"), self._lend, alone())

    def lent(self, lock: Any, value: T) -> AbstractContextManager[T]:
        """Like `applied`, but let other threads compute meanwhile if a lock is free.

        Args:
            lock: held inside the block then.
            value: what `as` names.

        Raises:
            RuntimeError: they are lent already; or the weights were written meanwhile. The model's
                own come back all the same; the average holds what was written.
        """
        return _Lent(value, partial(self._at_home, "applied"), self._lend, lock, alone())

    def _written(self) -> int:
        """The number of the last write into a parameter."""
        return last_write(p.buffer for p in self._params.values())

    def _lend(self, lent: bool) -> int:
        """Let the model hold the averages, or its own weights; the last write while they are."""
        with alone(), Undivided():
            written = self._written()
            if bool(self._lent.item()) != lent:
                self._run("swap")
            return self._written() if lent else written

    def _at_home(self, method: str) -> None:
        """Raise while the model holds the averages."""
        if self._lent.item():
            raise RuntimeError(
                f"EMA.{method}: the model holds the averages; leave the `applied` block first, or"
                " wait for the thread that is in one, as for an evaluation of the Trainer"
            )

    def _tensors(self) -> dict[str, Tensor]:
        return {f"average.{name}": value for name, value in self.averages.items()}

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the state: "steps", and "average.NAME" for every parameter.

        Raises:
            RuntimeError: the model holds the averages, inside `applied`.
        """
        with alone():  # between two updates
            self._at_home("state_dict")
            return {"steps": np.asarray(self.steps, np.int64), **save_arrays(self._tensors())}

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Restore the state that `state_dict` returned; on an error nothing changes.

        Raises:
            KeyError: entries are missing or unexpected.
            ShapeError: an entry is of another shape than its parameter.
            ValueError: steps is out of range.
            RuntimeError: the model holds the averages, inside `applied`.
        """
        self._at_home("load_state_dict")
        own = self._tensors()
        check_entries("EMA", state, {"steps", *own})
        writes = load_arrays("EMA", own, state)
        steps = checks.whole("EMA.load_state_dict", "steps", one(state["steps"]), 0)
        with alone(), Undivided():  # the next update is of all of it
            self._at_home("load_state_dict")
            write_all(writes)
            self.steps = steps

    @property
    def nbytes(self) -> int:
        """Bytes of the averages."""
        return sum(value.nbytes for value in self.averages.values())

    def __repr__(self) -> str:
        return f"EMA({len(self.averages)} parameters, decay={self.decay}, steps={self.steps})"


class _Lent(Undone, Generic[T]):
    """A block in which the model of an EMA has the averages.

    Args:
        value: what `as` names.
        check: raises where they are lent.
        lend: lends them, or gives them back, and returns the number of the last write between.
        locks: as of `Undone`.
    """

    def __init__(
        self, value: T, check: Callable[[], None], lend: Callable[[bool], int], *locks: Any
    ):
        super().__init__(*locks)
        self._value, self._check, self._lend = value, check, lend
        self._is_mine = False
        self._last: int | None = None  # write when the block began
        self._has_written = False

    def enter(self) -> T:
        """Lend the averages."""
        with alone():
            self._check()
            self._is_mine = True
            self._last = self._lend(True)
        return self._value

    def undo(self) -> None:
        """Give the model its own weights."""
        if self._is_mine:
            self._has_written = self._last not in (None, self._lend(False))
            self._is_mine = False

    def left(self) -> None:
        """Raise where the block has written weights; where it may have raised itself, warn."""
        if self._has_written and not self.has_failed:
            raise RuntimeError(_WRITTEN)
        if self._has_written:
            _log.warning("%s", _WRITTEN)
