# SPDX-License-Identifier: MIT
"""Batches from a dataset, in an order that a resumed run continues exactly."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from .batch import as_batch, pad_rows
from .dataset import Dataset

__all__ = ["Epochs", "Loader", "Part", "endless"]


def endless(batches: Iterable[Any]) -> Iterator[Any]:
    """Return the batches of a loader, epoch after epoch; those of another object as they are.

    Args:
        batches: a loader, whose `iter` ends with the epoch, or anything else that is iterable.

    Example:
        >>> loader = Loader(TokenDataset(np.arange(101), seq_len=10), batch_size=4)
        >>> batches = endless(loader)
        >>> len([next(batches) for _ in range(5)]), len(list(loader))
        (5, 2)
    """
    return batches if isinstance(batches, Iterator) else iter(batches)


class Part(NamedTuple):
    """The part of every batch that a rank takes.

    Args:
        rank: number of the rank.
        size: number of ranks.

    Example:
        >>> [Part(rank, 3).of(5) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """

    rank: int = 0
    size: int = 1

    def of(self, rows: int) -> slice:
        """Return the rank's rows; the first ranks have one more where they don't divide evenly.

        Args:
            rows: of the whole batch.
        """
        each, more = divmod(rows, self.size)
        start = self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))


class Epochs:
    """Batches, epoch after epoch, each in an order of its own.

    Each `iter`, so each `for` loop, goes through an epoch of its own, the next one, also where the
    last loop was left by a `break`; the first after `load_state_dict` goes on with the very next
    batch. `next` of the loader goes on without end.

    A subclass has `__len__`, `_make_order`, `_batch` and `_least_rows`. The order follows from
    `seed` and the epoch's number alone, so that the state is two numbers.

    Args:
        seed: start of the random orders, >= 0.
        shuffle: whether each epoch has a random order.
        fixed: numbers that must be as they were when a state is loaded.
        data: an object whose `fingerprint()` must be as it was, too; None compares nothing.

    Attributes:
        epoch: number of the epoch of the newest iteration.
        position: batches of it already given out.
        wait_s: seconds that were spent making batches, for which a step waited; `Prefetch` makes
            them beforehand.
    """

    def __init__(self, seed: int, shuffle: bool, fixed: dict[str, int], data: Any = None) -> None:
        who = type(self).__name__
        self.shuffle = checks.flag(who, "shuffle", shuffle)
        self.seed = checks.whole(who, "seed", seed, 0)
        self._data = data if hasattr(data, "fingerprint") else None
        self._fixed = {"seed": self.seed, **fixed}
        self.epoch = 0
        self.position = 0
        self.wait_s = 0.0
        self._order: tuple[int, Any] | None = None
        self._part = Part()
        self._is_fresh = True  # the next `iter` takes the place as it is
        self._newest: object = None  # the iterator that moves the place

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        raise NotImplementedError

    def _make_order(self, rng: np.random.Generator | None) -> Any:
        """Return the order of an epoch's items; the natural one without a generator."""
        raise NotImplementedError

    def _batch(self, order: Any, position: int, part: Part) -> Any:
        """Return a part of a batch of an epoch."""
        raise NotImplementedError

    def _least_rows(self) -> int:
        """Return the rows of the smallest batch."""
        raise NotImplementedError

    def shard(self, rank: int, size: int) -> None:
        """Give out one rank's rows of every batch from now on.

        The order, the number of batches and the states are those of the whole batches, however many
        ranks there are; `once` gives whole batches.

        Args:
            rank: number of the rank, from 0.
            size: number of ranks.

        Raises:
            TypeError: a number is not whole.
            ValueError: there is no such rank, or a batch has fewer rows than there are ranks.

        Example:
            >>> loader = Loader(TokenDataset(np.arange(101), seq_len=10), batch_size=5)
            >>> loader.shard(1, 2)
            >>> next(loader)[0].shape
            (2, 10)
        """
        who = f"{type(self).__name__}.shard"
        size = checks.whole(who, "size", size, 1)
        rank = checks.whole(who, "rank", rank, 0, size - 1)
        if self._least_rows() < size:
            raise ValueError(
                f"{who}: batch_size must be at least {size}, a row for each rank; got a batch of "
                f"{self._least_rows()}: give a larger one or more data, or start fewer ranks"
            )
        self._part = Part(rank, size)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, or go on with that of a state that was loaded."""
        if not self._is_fresh:
            self.epoch, self.position = self.epoch + 1, 0
        self._is_fresh = False
        self._newest = walk = object()
        return self._walk(walk, self.epoch, self.position)

    def _walk(self, walk: object, epoch: int, position: int) -> Iterator[Any]:
        """Go through an epoch, and move the loader while no other iteration has begun."""
        for at, batch in enumerate(self.rest_of(epoch, position), position):
            if self._newest is walk:
                self._move_behind(epoch, at)
            yield batch

    def __next__(self) -> Any:
        began = time.perf_counter()
        if self._order is None or self._order[0] != self.epoch:
            self._order = (self.epoch, self._epoch_order(self.epoch))
        batch = self._batch(self._order[1], self.position, self._part)
        self.wait_s += time.perf_counter() - began
        self._newest = None
        self._move_behind(self.epoch, self.position)
        return batch

    def _move_behind(self, epoch: int, position: int) -> None:
        """Stand behind a batch."""
        self.epoch, self.position = epoch, position + 1
        self._is_fresh = self.position == len(self)
        if self._is_fresh:
            self.epoch, self.position = epoch + 1, 0

    def rest_of(self, epoch: int, position: int = 0) -> Iterator[Any]:
        """Go through an epoch from a batch on, without moving the loader.

        Args:
            epoch: number of the epoch.
            position: the first batch.

        Raises:
            TypeError: a number is not whole.
            ValueError: a number is below 0.

        Example:
            >>> loader = Loader(TokenDataset(np.arange(101), seq_len=10), batch_size=4)
            >>> len(list(loader.rest_of(3, position=1))), loader.epoch
            (1, 0)
        """
        who = f"{type(self).__name__}.rest_of"
        epoch, position = (
            checks.whole(who, "epoch", epoch, 0),
            checks.whole(who, "position", position, 0),
        )
        return self._rest_of(epoch, position)

    def _rest_of(self, epoch: int, position: int) -> Iterator[Any]:
        order = None
        for at in range(position, len(self)):
            began = time.perf_counter()
            if order is None:
                order = self._epoch_order(epoch)
            batch = self._batch(order, at, self._part)
            self.wait_s += time.perf_counter() - began
            yield batch

    def once(self) -> Iterator[Any]:
        """Go through one epoch, the first, without moving the loader; for evaluation."""
        order = self._epoch_order(0)
        for position in range(len(self)):
            yield self._batch(order, position, Part())

    def state_dict(self) -> dict[str, int]:
        """Return the place of the newest iteration, for `load_state_dict`."""
        if self._data is not None:
            # Not before it is needed: loaders for evaluation are made anew each time.
            self._fixed["data"] = int(self._data.fingerprint())
            self._data = None
        return {"epoch": self.epoch, "position": self.position, **self._fixed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the place that `state_dict` returned: the next batch is the very next one.

        Args:
            state: what `state_dict` returned.

        Raises:
            TypeError: the state is no mapping of integers.
            ValueError: the state is incomplete or out of range, or belongs to another dataset,
                seed or batch size. The loader is then as it was.
        """
        own, who = self.state_dict(), f"{type(self).__name__}.load_state_dict"
        missing = [key for key in own if key not in checks.mapping(who, "state", state)]
        if missing:
            raise ValueError(f"{who}: the state must have {', '.join(missing)}; got {list(state)}")
        known = {key: checks.whole(who, key, state.get(key), 0) for key in own}
        if known.get("data") != own.get("data"):
            raise ValueError(
                f"{who}: the data must be as when the state was saved; got other data of the same"
                " size; use the same data and options"
            )
        for key, value in known.items():
            if key not in ("epoch", "position") and value != own[key]:
                raise ValueError(
                    f"{who}: {key} must be as when the state was saved; got"
                    f" {own[key]} here, {value} in the state; use the same data and options"
                )
        if known["position"] >= len(self):
            raise ValueError(
                f"{who}: position must be below {len(self)} batches; got {known['position']}"
            )
        self.epoch, self.position = known["epoch"], known["position"]
        self._is_fresh, self._newest = True, None

    def _epoch_order(self, epoch: int) -> Any:
        if not self.shuffle:
            return self._make_order(None)
        # Philox is counter-based: neighbouring seeds and epochs give unrelated streams.
        bits = np.random.Philox(np.random.SeedSequence([self.seed, epoch]))
        return self._make_order(np.random.Generator(bits))


class Loader(Epochs):
    """Batches, epoch after epoch, each in an order of its own.

    Each `for` loop goes through an epoch of its own, as with PyTorch's `DataLoader`: also after a
    `break`, beside another iterator (`zip`, nested loops), and after a look at the first batch,
    `next(iter(loader))`. `next(loader)` goes on without end. The order follows from `seed` and the
    epoch's number alone, so `state_dict` is two numbers, those of the newest iteration, and the
    first loop after `load_state_dict` goes on with the very next batch. `once` leaves nothing out,
    whatever `drop_last`.

    Args:
        dataset: what to read; see `Dataset`. A `fingerprint()`, which it may have, is a number
            that other data does not have: states then belong to these data.
        batch_size: items in a batch, B >= 1.
        shuffle: whether each epoch has a random order.
        seed: start of the random orders, >= 0.
        drop_last: whether an incomplete batch at the end of an epoch is left out (PyTorch's
            default is False). Otherwise it comes short, or filled up with `pad_last`.
        pad_last: whether an incomplete last batch is filled up to B items with input 0, so that
            every batch has one shape; nothing is dropped. Targets of it are ones that the loss
            ignores, but for decimal ones, which have no such value: these are 0, and the batch's
            `rows` tells how many items count.

    Attributes:
        wait_s: seconds that were spent making batches; see `Epochs`.

    Shape:
        batch: x (B, T), y (B, T), both int32

    Raises:
        ValueError: the batch is larger than the dataset while incomplete ones are dropped, or a
            number is out of range.
        TypeError: the dataset is of another kind.

    Example:
        >>> loader = Loader(TokenDataset(np.arange(101), seq_len=10), batch_size=4)
        >>> x, y = next(loader)
        >>> x.shape, len(loader)
        ((4, 10), 2)
        >>> [len(list(loader)) for _ in range(3)]
        [2, 2, 2]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        pad_last: bool = False,
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise TypeError(
                "Loader: dataset must have __len__, order and batch, as TokenDataset has; got"
                f" {type(dataset).__name__}"
            )
        self.batch_size = checks.whole("Loader", "batch_size", batch_size, 1)
        self.dataset = dataset
        fixed = {"batch_size": self.batch_size, "items": len(dataset)}
        super().__init__(seed, shuffle, fixed, dataset)
        self.pad_last = checks.flag("Loader", "pad_last", pad_last)
        self.drop_last = checks.flag("Loader", "drop_last", drop_last) and not self.pad_last
        if len(self) == 0:
            raise ValueError(
                f"Loader: the dataset must hold at least one batch; got {len(dataset)} items,"
                f" batch_size={batch_size}; use a smaller batch, shorter sequences or more text"
            )

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        items = len(self.dataset)
        return items // self.batch_size if self.drop_last else -(-items // self.batch_size)

    def once(self) -> Iterator[Any]:
        """Go through one epoch, the first, without moving the loader; for evaluation.

        Every item comes: the last batch is short, or filled up with `pad_last`.
        """
        order = self._epoch_order(0)
        for position in range(-(-len(self.dataset) // self.batch_size)):
            yield self._batch(order, position, Part())

    def _make_order(self, rng: np.random.Generator | None) -> np.ndarray:
        return self.dataset.order(rng)

    def _least_rows(self) -> int:
        left = len(self.dataset) % self.batch_size
        return left if left and not self.drop_last else self.batch_size

    def _batch(self, order: np.ndarray, position: int, part: Part) -> tuple[np.ndarray, np.ndarray]:
        start = position * self.batch_size
        items = order[start : start + self.batch_size]
        batch = self.dataset.batch(items[part.of(len(items))])
        rows = len(range(self.batch_size)[part.of(self.batch_size)])
        return pad_rows(as_batch(batch), rows) if self.pad_last else batch
