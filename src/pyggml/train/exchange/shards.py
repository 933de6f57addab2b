# SPDX-License-Identifier: MIT
"""An optimizer's state that is divided between ranks, as one whole for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from ...distributed import Group
from ...errors import DistributedError
from .exchange import Exchange

__all__ = ["WIRE_STATE", "Shards"]

# Where a state has what rounding the gradients has lost; names of parameters' states have a dot.
WIRE_STATE = "wire"
_SHARED = ("steps", "lr")
_RANKS = "ranks"


class Shards:
    """The state of an optimizer of which each rank has a part, and of the gradients' rounding.

    Rank 0 writes and reads checkpoints of the whole state: the ranks' parts come to it before, and
    leave it afterwards, one tensor after another. So a checkpoint does not depend on the number of
    ranks, but for what rounding has lost: each rank resumes with its own; another number of ranks
    resumes with their sum, on rank 0.

    Args:
        group: the ranks.
        optimizer: of which each rank has a part, or all.
        exchange: divides it; None where one process trains.
    """

    def __init__(self, group: Group, optimizer: Any, exchange: Exchange | None):
        self._group, self._optimizer, self._exchange = group, optimizer, exchange
        self._divided = exchange is not None and exchange.zero > 0
        self._keys: list[list[str]] = []
        # On rank 0: what others own, for as long as a checkpoint needs it, or until they have it.
        self._others: dict[str, np.ndarray] = {}
        self._wire: dict[str, Any] = {}
        self._is_whole = not self._divided and not self._residuals
        if self._divided and exchange is not None:
            self._keys = group.gather(list(optimizer.state_dict()))
            own = self._keys[group.rank]
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
                part = residual[place : place + params[i].size]
                found[names[i]] = part.reshape(params[i].shape)
        return found

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Let rank 0 have all state and parameters inside the block; all ranks call it."""
        exchange = self._exchange
        whole = nullcontext() if exchange is None else exchange.delivery.gathered()
        with whole, self._gathered_state():
            yield

    @contextmanager
    def _gathered_state(self) -> Iterator[None]:
        """Let `state_dict` return the whole state on rank 0 inside the block."""
        if self._is_whole:
            yield
            return
        group = self._group
        own = self._optimizer.state_dict() if self._divided else {}
        for rank, keys in enumerate(self._keys):
            for key in keys if rank else ():
                value = group.share(own.get(key), rank)
                if group.is_first and key not in _SHARED and value is not None:
                    self._others[key] = value
        residuals = self._residuals
        self._wire = {_RANKS: group.size} if residuals else {}
        for rank in range(group.size):
            for name, residual in residuals.items():
                value = group.share(residual, rank)
                if group.is_first:
                    self._wire[f"{name}.{rank}"] = np.array(value)
        self._is_whole = True
        try:
            yield
        finally:
            self._is_whole, self._others, self._wire = False, {}, {}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state.

        Raises:
            DistributedError: it is divided, and the ranks have not gathered it.
        """
        if not self._is_whole:
            raise DistributedError(
                "Trainer: a state that ranks divide must be gathered by all of them; got one rank:"
                " call Trainer.save() on every rank"
            )
        places = {name: i for i, name in enumerate(self._optimizer.names)}
        state: dict[str, Any] = {**self._optimizer.state_dict(), **self._others}
        keys = sorted(state, key=lambda key: places.get(key.rpartition(".")[0], -1))
        whole = {key: state[key] for key in keys}
        return {**whole, WIRE_STATE: self._wire} if self._wire else whole

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
            elsewhere = {k for i, ks in enumerate(self._keys) if i != self._group.rank for k in ks}
            elsewhere -= set(_SHARED)
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
