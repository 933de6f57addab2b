# SPDX-License-Identifier: MIT
"""Dropout whose mask is computed from a seed and never stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy as np

from ..backend.device import Device
from ..backend.library import lib
from ..backend.scopes import Scope, Scopes
from ..checks import instance, number, whole
from ..errors import ShapeError, fitting, shown
from ..tensors.create import tensor
from ..tensors.random import random_generator, seeds
from ..tensors.record import record
from ..tensors.tensor import Tensor
from .matrices import rows_in_order
from .operands import need_dtype, need_float

__all__ = ["DropoutStream", "dropout"]

_WORD = 2**32


_streams = Scopes()


class DropoutStream(Scope):
    """The masks of the dropouts in a computation that runs many times.

    A dropout recorded inside `with stream:` without a seed of its own takes the stream's tensor
    (seed, offset) and the next index. `seek` says which masks the following runs have: nothing is
    recorded anew, and the same offset brings the same masks back.

    Args:
        seed: whole number from 0, of which 32 bits count; None draws one at the first use, and at
            the first `seek` after `pg.seed`, from which the masks are counted then.

    Example:
        >>> stream = DropoutStream(1)
        >>> with stream:
        ...     y = dropout(pg.ones(64), 0.5)
        >>> stream.seek(1)
    """

    def __init__(self, seed: int | None = None):
        super().__init__(_streams)
        self._seed = None if seed is None else whole("DropoutStream", "seed", seed, 0)
        self._draws = seed is None
        self._drawn = 0  # `seeds` when the seed was drawn
        self._first = 0  # the offset then, from which its masks are counted
        self._offset = 0
        self._written: int | None = 0  # the offset in all tensors; None while it is written
        self._index = 0
        self._tensors: dict[Device, Tensor] = {}

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        # The tensors belong to what was recorded with them; a copy has the same masks.
        state = {name: getattr(self, name) for name in ("_draws", "_drawn", "_first", "_offset")}
        return DropoutStream, (self._seed,), {**state, "_written": self._offset}

    def starts(self) -> Callable[[], Any]:
        """Return what enters; the indices begin at 0."""
        self._index = 0
        return super().starts()

    def _words(self) -> np.ndarray:
        if self._seed is None:
            self._drawn = seeds()
            self._seed = int(random_generator().integers(_WORD))
            self._first = self._offset
        offset = self._offset - self._first
        words = np.array([self._seed % _WORD, offset % _WORD], np.uint32)
        return words.view(np.int32)

    def take(self, device: Device) -> tuple[Tensor, int]:
        """Return the stream's seed on a device, and the next index of this recording."""
        instance("DropoutStream.take", "device", device, Device)
        if device not in self._tensors:
            self._tensors[device] = tensor(self._words(), device=device)
        self._index += 1
        return self._tensors[device], self._index - 1

    def seek(self, offset: int) -> None:
        """Set the number of the next mask, modulo 2^32."""
        offset = whole("DropoutStream.seek", "offset", offset)
        if self._draws and self._seed is not None and self._drawn != seeds():
            self._seed = self._written = None
        if offset == self._written:
            return
        self._offset, self._written = offset, None
        for seed in self._tensors.values():
            seed.copy_(self._words())
        self._written = offset


def _as_seed(seed: Any, x: Tensor) -> Tensor:
    if isinstance(seed, Tensor):
        need_dtype("dropout", "seed", seed, "i32")
        if seed.shape != (2,) or not seed.is_stored:
            raise ShapeError(
                "dropout: seed, if a tensor, must be stored and hold (seed, offset), shape (2,);"
                f" got {seed!r}"
            )
        return seed
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"dropout: seed must be a whole number or a tensor; got {shown(seed)}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"dropout: seed must be from 0 to 2^64 - 1; got {shown(seed)}")
    words = np.array([int(seed) & 0xFFFFFFFF, int(seed) >> 32], np.uint32)
    return tensor(words.view(np.int32), device=x.device)


@fitting
def dropout(x: Tensor, p: float, seed: Tensor | int | None = None, index: int = 0) -> Tensor:
    """Zeros with probability p, everything else divided by 1 - p.

    The same seed, offset and index drop the same elements, on any number of threads; the backward
    computes the mask again.

    Args:
        x: f32 tensor.
        p: probability, from 0 up to but not 1.
        seed: whole number; or a stored i32 tensor (seed, offset) that may be overwritten between
            the runs of a graph, for another mask each time. None takes seed and index from the
            `DropoutStream` that records: a compiled function or training step has one, and so a
            new mask at each run. Elsewhere None draws a seed, which stays with this tensor.
        index: i32 number that tells the dropouts of one model apart.

    Shape:
        x any, seed (2,) -> as x

    Raises:
        ValueError: p, seed or index is out of range.
        ShapeError: the seed tensor is not stored, or not (2,).

    Source: ggml_dropout (an op of this project's patches); Srivastava et al. 2014; Philox: Salmon
        et al. 2011.

    Example:
        >>> sorted({*dropout(pg.ones(64), 0.5, 1).tolist()})
        [0.0, 2.0]
    """
    need_float("dropout", "x", x)
    p = number("dropout", "p", p, finite=False)
    if not (0 <= p < 1 and np.float32(p) < 1):
        raise ValueError(f"dropout: p must be from 0 to below 1; got {p}")
    index = whole("dropout", "index", index, -(2**31), 2**31 - 1)
    stream: DropoutStream | None = _streams.innermost() if seed is None else None
    if stream is not None:
        seed, index = stream.take(x.device)
    elif seed is None:
        seed = int(random_generator().integers(2**63))
    args = [rows_in_order(x), p, _as_seed(seed, x), index]
    return record(lib.ggml_dropout, args, x.shape)
