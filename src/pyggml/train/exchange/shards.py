# SPDX-License-Identifier: MIT
"""An optimizer's state that is divided between ranks, as one whole for a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...distributed import Group
from ...errors import DistributedError
from ...io.lazy import LazyArray
from ...optim.state import save_arrays
from .exchange import Exchange

__all__ = ["WIRE_STATE", "Shards"]

# Where a state has what rounding the gradients has lost; names of parameters' states have a dot.
WIRE_STATE = "wire"
_SHARED = ("steps", "lr")
# What rank 0 asks for.
_PARAMETERS, _STATE, _WIRE = "parameters", "state", "wire"
_T = TypeVar("_T")
_RANKS = "ranks"


class Shards:
    """The state of an optimizer of which each rank has a part, and of the gradients' rounding.

    Rank 0 writes and reads checkpoints of the whole state: it asks the other ranks for one array
    after another while it writes, and sends them their parts after it has read. So a checkpoint
    does not depend on the number of ranks, but for what rounding has lost: each rank resumes with
    its own; another number of ranks resumes with their sum, on rank 0.

    Args:
        group: the ranks.
        optimizer: of which each rank has a part, or all.
        exchange: divides it; None where one process trains.
    """

    def __init__(self, group: Group, optimizer: Any, exchange: Exchange | None):
        self._group, self._optimizer, self._exchange = group, optimizer, exchange
        self._divided = exchange is not None and exchange.zero > 0
        self._specs: list[dict[str, tuple[tuple[int, ...], str]]] = []
        # On rank 0: what others own, until they have it.
        self._others: dict[str, np.ndarray] = {}
        self._wire: dict[str, Any] = {}
        self._lends = False
        if self._divided and exchange is not None:
            arrays = ((key, self._own(key)) for key in optimizer.named_state())
            self._specs = group.gather({k: (array.shape, array.dtype.str) for k, array in arrays})
            own = {*_SHARED, *self._specs[group.rank]}
            self._others = {k: v for k, v in exchange.before.items() if k not in own}
            exchange.before.clear()

    @property
    def _residuals(self) -> dict[str, np.ndarray]:
        """The losses of rounding on this rank, by parameter."""
        exchange, found = self._exchange, dict[str, np.ndarray]()
        if exchange is None:
            return found
        params, names = self._optimizer.params, self._optimizer.names
        for bucket, residual in zip(exchange.buckets, exchange.residuals, strict=False):
            for i, place in zip(bucket.members, bucket.places, strict=True):
                part = residual[place : place + params[i].numel()]
                found[names[i]] = part.reshape(params[i].shape)
        return found

    def lend(self, function: Callable[[], _T]) -> _T:
        """Call a function on rank 0 that reads all parts; the other ranks send theirs meanwhile.

        Args:
            function: may use `state_dict` and `weights`, whose arrays come when they are read.

        Returns:
            What the function returned, on every rank.

        Raises:
            Exception: what it raised on rank 0, on every rank.
        """
        group, exchange = self._group, self._exchange

        def call() -> _T:
            self._lends = True
            try:
                return function()
            finally:
                self._lends = False
                group.share(None)

        wanted: Any = None
        while not group.is_first and (wanted := group.share(wanted)) is not None:
            kind, key, rank = wanted
            if kind != _PARAMETERS:
                self._send(kind, key, rank)
            elif exchange is not None and exchange.delivery.windows is not None:
                exchange.delivery.windows.bring()
        return group.first(call)

    def _ask(self, kind: str, key: str, rank: int) -> np.ndarray:
        """Return an array of another rank, on rank 0 while the others lend theirs."""
        if not self._lends:
            raise DistributedError(
                "Trainer: a state that ranks divide must be written by all of them; got one rank:"
                " call Trainer.save() on every rank"
            )
        self._group.share((kind, key, rank))
        found: np.ndarray = self._send(kind, key, rank)
        return found

    def _send(self, kind: str, key: str, rank: int) -> Any:
        """Bring an array to rank 0."""
        value = None
        if rank == self._group.rank:
            value = self._own(key) if kind == _STATE else self._residuals[key]
        return self._group.share(value, rank)

    def _own(self, key: str) -> np.ndarray:
        """Return an array of this rank's part of the state."""
        found = save_arrays({key: self._optimizer.named_state()[key]})
        return found[key]

    def weights(self, weights: Any) -> dict[str, np.ndarray]:
        """Return a model's arrays by name; while it copies them, rank 0 holds all parameters.

        Args:
            weights: the model, or the part of it that checkpoints hold.
        """
        windows = None if self._exchange is None else self._exchange.delivery.windows
        brings = windows is not None and not windows.is_whole and self._lends
        if brings and windows is not None:
            self._group.share((_PARAMETERS, "", 0))
            windows.bring()
        found: dict[str, np.ndarray] = weights.state_dict()
        if brings and windows is not None:
            windows.drop()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state; the arrays that ranks divide come when they are read.

        Raises:
            DistributedError: it is divided, and the ranks do not lend their parts.
        """
        optimizer, residuals = self._optimizer, self._residuals
        if (self._divided or residuals) and not self._lends:
            raise DistributedError(
                "Trainer: a state that ranks divide must be written by all of them; got one rank:"
                " call Trainer.save() on every rank"
            )
        if self._divided:
            state: dict[str, Any] = {
                "steps": np.asarray(optimizer.steps, np.int64),
                "lr": np.asarray(optimizer.lr, np.float64),
            }
            for rank, specs in enumerate(self._specs):
                for key, (shape, dtype) in specs.items():
                    own = partial(self._own, key)
                    read = partial(self._ask, _STATE, key, rank) if rank else own
                    state[key] = LazyArray(shape, np.dtype(dtype), read)
        else:
            state = optimizer.state_dict()
        places = {name: i for i, name in enumerate(optimizer.names)}
        keys = sorted(state, key=lambda key: places.get(key.rpartition(".")[0], -1))
        whole = {key: state[key] for key in keys}
        if not residuals:
            return whole
        wire: dict[str, Any] = {_RANKS: self._group.size}
        for rank in range(self._group.size):
            for name, array in residuals.items():
                read = partial(self._ask, _WIRE, name, rank)
                wire[f"{name}.{rank}"] = LazyArray(array.shape, array.dtype, read)
        return {**whole, WIRE_STATE: wire}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore this rank's part of a state; on rank 0 keep the others' for `spread`.

        Args:
            state: what `state_dict` returned, with any number of ranks; or this rank's part.

        Raises:
            KeyError: entries are missing or unexpected.
            ValueError: as `Optimizer.load_state_dict`.
        """
        state = dict(state)
        wire = state.pop(WIRE_STATE, None) or {}
        others: dict[str, Any] = {}
        if self._divided:
            elsewhere = {k for i, ks in enumerate(self._specs) if i != self._group.rank for k in ks}
            others = {k: state.pop(k) for k in sorted(elsewhere & set(state))}
            if others and elsewhere - set(others):
                missing = sorted(elsewhere - set(others))[:8]
                raise KeyError(f"the entries must be this optimizer's own; missing {missing}")
        self._optimizer.load_state_dict(state)
        self._others = others if self._group.is_first else {}
        self._wire = dict(wire)
        if self._group.size == 1 or not self._group.is_first:
            self._take_residuals()

    def spread(self) -> dict[str, Any]:
        """Return this rank's part of rank 0's state; all ranks call it, and each loads its own."""
        group, own = self._group, dict[str, Any](self._optimizer.state_dict())
        whole = {**own, **self._others} if group.is_first else {}
        keys = group.share([*_SHARED, *self._others] if self._divided else list(whole))
        for key in keys:
            value = group.share(whole.get(key))
            if key in own:
                own[key] = value
        wire = group.share({k: v for k, v in self._wire.items() if k == _RANKS})
        for key in group.share([key for key in self._wire if key != _RANKS]):
            value = group.share(self._wire.get(key))
            if wire[_RANKS] != group.size or key.endswith(f".{group.rank}"):
                wire[key] = value
        self._others = {}
        if group.is_first:
            self._wire = wire
            self._take_residuals()
        return {**own, WIRE_STATE: wire} if wire else own

    def _take_residuals(self) -> None:
        """Let this rank go on with what rounding had lost."""
        wire, rank = self._wire, self._group.rank
        self._wire = {}
        if not wire:
            return
        same = wire[_RANKS] == self._group.size
        for name, residual in self._residuals.items():
            residual[...] = 0
            for was in range(wire[_RANKS]):
                if was == rank if same else rank == 0:
                    np.add(residual, wire.get(f"{name}.{was}", np.float32(0)), out=residual)
