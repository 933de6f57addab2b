# SPDX-License-Identifier: MIT
"""Batches made in a thread of their own, so that a step need not wait for them."""

from __future__ import annotations

import contextlib
import copy
import queue
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from .. import checks
from ..backend.threads import start_thread
from ..backend.undivided import Undivided
from .loader import Epochs

__all__ = ["Prefetch"]

# How often the reader looks whether the thread is alive.
_LOOK_S = 0.05

# A batch, the state after it, and what was raised in its place.
_Made = tuple[Any, Any, BaseException | None]
_Queue = queue.SimpleQueue[_Made]


class _Done(Exception):
    """The loader has ended."""


class Prefetch:
    """A loader whose next batches are made while the current one is used.

    The batches, their order and the states are those of the loader: a run may be resumed with or
    without prefetching. What the loader raises is raised by the step that would have used the
    batch. The thread ends with `close`, at the end of a `with` block, or with the object. Where no
    thread can start, as at the exit of the program, each batch is made when it is asked for.

    Args:
        loader: makes batches; nobody else may use it in the meantime.
        depth: batches kept ready, >= 1.

    Attributes:
        loader: the loader.
        wait_s: seconds that were spent waiting for batches.

    Raises:
        ValueError: depth is not a positive integer.
        TypeError: the loader is of another kind.

    Warns:
        RuntimeWarning: no thread can be started.

    Example:
        >>> dataset = TokenDataset(np.arange(101), seq_len=10)
        >>> with Prefetch(Loader(dataset, batch_size=4)) as batches:
        ...     x, y = next(batches)
        >>> x.shape
        (4, 10)
    """

    def __init__(self, loader: Any, depth: int = 2) -> None:
        self.depth = checks.whole("Prefetch", "depth", depth, 1)
        wanted = ("__next__", "state_dict", "load_state_dict")
        if isinstance(loader, type) or not all(hasattr(loader, name) for name in wanted):
            raise TypeError(
                "Prefetch: loader must give batches and have state_dict and load_state_dict, as"
                f" Loader has; got {type(loader).__name__}"
            )
        self.loader = loader
        self.wait_s = 0.0
        # What was given out last, and its state: one call of C takes both from the thread.
        self._last: deque[_Made] = deque(maxlen=1)
        self._stand()
        self._thread: _Thread | _NoThread | None = None
        self._end: weakref.finalize[..., Any] | None = None
        self._is_fresh = True  # as in Epochs
        self._newest: object = None

    @property
    def _state(self) -> Any:
        """The state of the reader, usually of names and numbers."""
        return self._last[-1][1]

    def _stand(self) -> None:
        """Let the reader stand where the loader does."""
        self._last.append((None, _state_of(self.loader), None))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has, whose loader stands where the reader does."""
        self._rewind()
        return self.__dict__.copy()

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of the loader, such as `batch_size`."""
        if name.startswith("_") or name == "loader":
            raise AttributeError(name)
        state = self._state
        if isinstance(state, Mapping) and name in state:
            return state[name]  # the loader's own are ahead
        return getattr(self.loader, name)

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch, as the loader's `iter`; or go through all of a loader without epochs."""
        if not isinstance(self.loader, Epochs):
            return self._rest()
        if not self._is_fresh:
            state = self._state
            self.load_state_dict({**state, "epoch": state["epoch"] + 1, "position": 0})
        self._is_fresh = False
        self._newest = walk = object()
        return self._walk(walk, self._state["epoch"], self._state["position"])

    def _walk(self, walk: object, epoch: int, position: int) -> Iterator[Any]:
        """Go through an epoch of the thread's batches, until another iteration takes these."""
        while position < len(self):
            if self._newest is not walk:
                rest = self.loader.rest_of(epoch, position)
                for _ in range(position, len(self)):
                    self._rewind()  # nobody else may use the loader meanwhile
                    yield next(rest)
                return
            batch = self._take()
            position += 1
            yield batch

    def _rest(self) -> Iterator[Any]:
        """Go through the rest of an epoch, or through all that a loader without epochs has."""
        epoch = self._epoch()
        while self._epoch() == epoch:
            try:
                batch = next(self)
            except StopIteration:
                return
            yield batch

    def _epoch(self) -> Any:
        """Return the number of the epoch, or None where the loader has none."""
        state = self._state
        return state.get("epoch") if isinstance(state, Mapping) else None

    def __next__(self) -> Any:
        self._newest = None
        return self._take()

    def _take(self) -> Any:
        """Return the thread's next batch."""
        thread = self._thread
        if thread is not None and (thread.ended or self._last[-1][2] is not None):
            self._rewind()  # the exit of the program has ended it, or an error
        if self._thread is None:
            with Undivided():  # or a thread would go on that nobody knows of
                self._thread = _start(self.loader, self.depth, self._state)
                # At the exit of the interpreter nothing can be finalized, and no thread starts.
                if isinstance(self._thread, _Thread):
                    self._end = weakref.finalize(self, self._thread.end)
        began = time.perf_counter()
        try:
            self._thread.get(self._last)
        finally:
            self.wait_s += time.perf_counter() - began
        batch, state, error = self._last[-1]
        if error is not None:
            self._rewind()
            if isinstance(error, _Done):
                raise StopIteration
            raise error
        self._last.append((None, state, None))  # nobody else keeps the batch
        self._is_fresh = isinstance(self.loader, Epochs) and not state["position"]
        return batch

    def once(self) -> Iterator[Any]:
        """Go through one epoch, the first, without moving the loader; for evaluation."""
        self._rewind()
        result: Iterator[Any] = self.loader.once()
        return result

    def state_dict(self) -> Any:
        """Return the position of the reader; batches made ahead do not count."""
        return copy.deepcopy(self._state)

    def load_state_dict(self, state: Any) -> None:
        """Restore the position that `state_dict` returned.

        Args:
            state: what `state_dict` returned, of this or of the loader itself.

        Raises:
            ValueError: the state does not fit the loader; all is then as it was.
        """
        self._rewind()
        with Undivided():  # the reader and the loader stand at the same place
            self.loader.load_state_dict(state)
            self._stand()
            self._is_fresh, self._newest = True, None

    def close(self) -> None:
        """End the thread; the loader then stands where the reader stood. May be called twice."""
        self._rewind()

    def __enter__(self) -> Prefetch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _rewind(self) -> None:
        """End the thread and forget what it made; where a signal divides this, do it again."""
        if self._thread is None:
            return
        self._thread.end()
        if self._end is not None:
            self._end.detach()
        self.loader.load_state_dict(copy.deepcopy(self._state))
        self._last.append((None, self._state, None))
        self._thread = self._end = None


class _Thread:
    """The thread and its queues; knows nothing of the `Prefetch`, so that this can be dropped.

    The queues are of C: the handler of a signal that raises, such as that of Ctrl-C, would leave
    the lock of another one locked.
    """

    def __init__(self, loader: Any, depth: int, state: Any) -> None:
        self._made, self._depth = _Queue(), depth
        # An order is for one more batch; None ends the thread.
        self._orders: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self.ended: list[bool] = []
        self._thread = threading.Thread(
            target=_run,
            args=(loader, state, self._made, self._orders, self.ended),
            name="pyggml-prefetch",
            daemon=True,
        )
        start_thread(self._thread)  # the first batch is ordered where it is asked for

    def _order(self) -> None:
        """Let as many batches be ready, or ordered, as there should be."""
        for _ in range(self._depth - self._orders.qsize() - self._made.qsize()):
            self._orders.put(True)

    def get(self, last: deque[_Made]) -> None:
        """Put the next batch, the state after it, and the error of the thread, into `last`."""
        while True:
            self._order()
            with contextlib.suppress(queue.Empty):
                last.extend(map(self._made.get, (True,), (_LOOK_S,)))
                return self._order()
            if not self._thread.is_alive() and self._made.empty():
                raise RuntimeError(
                    "Prefetch: the thread that makes batches is gone; was the process forked?"
                    " Make the Prefetch after forking"
                )

    def end(self) -> None:
        """Let the thread end, and wait for it."""
        self.ended.append(True)
        self._orders.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()


class _NoThread:
    """Makes each batch when it is asked for."""

    ended = False

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def get(self, last: deque[_Made]) -> None:
        """Put the next batch, the state after it, and the error that it raised, into `last`."""
        last.append(_make(self._loader, last[-1][1]))

    def end(self) -> None:
        """Do nothing."""


def _start(loader: Any, depth: int, state: Any) -> _Thread | _NoThread:
    """Start the thread; go without where the system has none left."""
    try:
        return _Thread(loader, depth, state)
    except RuntimeError as error:
        if not sys.is_finalizing():
            warnings.warn(
                f"Prefetch: no thread could be started ({error}); each step waits for its batch:"
                " raise the limit of processes (ulimit -u), or give `prefetch`=0",
                RuntimeWarning,
                stacklevel=2,
            )
        return _NoThread(loader)


def _state_of(loader: Any) -> Any:
    """Return the state of a loader, which may go on in what it returns."""
    return copy.deepcopy(loader.state_dict())


def _make(loader: Any, state: Any) -> _Made:
    """Return the next batch and the state after it, or the state before it and what was raised."""
    try:
        return next(loader), _state_of(loader), None
    except StopIteration:
        return None, state, _Done()
    except BaseException as problem:  # noqa: BLE001 - whatever it is, the step shall raise it
        return None, state, problem


def _run(
    loader: Any,
    state: Any,
    made: _Queue,
    orders: queue.SimpleQueue[bool | None],
    ended: list[bool],
) -> None:
    """Make the batches that are ordered, until told to end, or until something goes wrong."""
    while orders.get() and not ended:
        batch, state, error = _make(loader, state)
        made.put((batch, state, error))
        del batch  # the reader alone keeps it
        if error is not None:
            return
