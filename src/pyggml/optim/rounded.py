# SPDX-License-Identifier: MIT
"""RoundedWeights: parameters that hold what a quantised type rounds them to, and their masters."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from .. import checks
from ..backend.device import alone
from ..backend.dtypes import as_dtype, decode, encode
from ..backend.not_copied import NotCopied
from ..backend.quantize import quantize_rows
from ..backend.threads import map_in_threads
from ..errors import DTypeError, ShapeError
from ..tensors import Tensor, empty, tensor
from ..tensors.node import Node
from ..tensors.storage import write

__all__ = ["RoundedWeights"]

_CHUNK = 1 << 16  # numbers that one thread rounds at a time


class RoundedWeights(NotCopied):
    """Let parameters hold rounded numbers, of which gradients are taken, and update their masters.

    While an optimizer that has these updates, its parameters hold the masters, in f32; afterwards
    they hold what ggml's quantiser makes of them. The gradient of the rounding counts as one
    (straight-through).

    Args:
        params: parameters, f32, by name.
        types: the type of each, such as "q4_0".
        every: updates between two roundings; meanwhile the parameters keep the older ones.
        importance: weight of the squared error of each column, by name.

    Attributes:
        masters: f32 numbers of each parameter, by name.
        rounded: the tensors of the types, which hold the bytes that a file gets.

    Raises:
        DTypeError: ggml cannot write a type, or not without importance.
        ShapeError: a parameter is a vector, or its rows are no whole blocks of the type.
        ValueError: every is below 1.

    Source: Bengio et al. 2013, arXiv:1308.3432; ggml_quantize_chunk.
    """

    instead = "make another one for the copied parameters"

    def __init__(
        self,
        params: Mapping[str, Tensor],
        types: Mapping[str, str],
        every: int = 1,
        importance: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        who = "RoundedWeights"
        self.every = checks.whole(who, "every", every, 1)
        own = checks.mapping(who, "params", params)
        self.params = {
            name: checks.instance(who, f"params[{name!r}]", own.get(name), Tensor)
            for name in checks.mapping(who, "types", types)
        }
        given = {} if importance is None else checks.mapping(who, "importance", importance)
        self._importance = dict(given)
        for name, param in self.params.items():
            if param.dtype.name != "f32":
                raise DTypeError(f"{who}: {name} must be f32; got {param.dtype.name}")
            dtype = as_dtype(types[name])
            if param.ndim < 2 or param.shape[-1] % dtype.block_size:
                raise ShapeError(
                    f"{who}: {name} must be a matrix whose rows are multiples of "
                    f"{dtype.block_size} for {dtype.name}; got {param.shape}: choose another type"
                )
            rows = np.zeros((1, param.shape[-1]), np.float32)
            # Raises for what cannot be written, before anything changes.
            quantize_rows(rows, dtype, self._of(name, 0))
        self.rounded = {
            name: empty(param.shape, dtype=types[name], device=param.device)
            for name, param in self.params.items()
        }
        with alone():  # between two steps of a training
            self.masters = {n: tensor(p.numpy(), device=p.device) for n, p in self.params.items()}
            self.round()

    def round(self) -> None:
        """Round the masters, and give the parameters the result."""
        with alone():  # between two steps of a training
            for name, master in self.masters.items():
                write(self.rounded[name].node, self._bytes(name, master.numpy()))
            self.show()

    def settle(self, step: int) -> None:
        """Round the masters if the last update did not.

        Args:
            step: number of the last update.
        """
        if checks.whole("RoundedWeights.settle", "step", step, 0) % self.every:
            self.round()

    def current(self, step: int) -> dict[str, Tensor]:
        """Return what the masters round to, by name; the parameters stay as they are.

        Args:
            step: number of the last update.
        """
        if not checks.whole("RoundedWeights.current", "step", step, 0) % self.every:
            return self.rounded
        found = {n: empty(r.shape, dtype=r.dtype, device=r.device) for n, r in self.rounded.items()}
        with alone():  # between two steps of a training
            for name, value in found.items():
                write(value.node, self._bytes(name, self.masters[name].numpy()))
        return found

    def show(self) -> None:
        """Give the parameters the rounded numbers."""
        with alone():
            for name, param in self.params.items():
                param.copy_(self.rounded[name].numpy().astype(np.float32))

    def shown_with(self, writes: Mapping[Node, np.ndarray]) -> list[tuple[Node, np.ndarray]]:
        """Return what the parameters get where the rounded tensors get other bytes.

        Args:
            writes: the bytes that nodes get, as `dtypes.encode` makes them.
        """
        shown = []
        for name, param in self.params.items():
            own = self.rounded[name]
            raw = writes[own.node].reshape(-1).view(np.uint8)
            shown.append((param.node, decode(raw, own.dtype, own.shape).astype(np.float32)))
        return shown

    @contextmanager
    def updating(self, step: int) -> Iterator[None]:
        """Let the parameters hold the masters inside the block, which updates them.

        Args:
            step: number of the update; each `every`-th ends with a rounding.
        """
        try:
            for name, param in self.params.items():
                param.copy_(self.masters[name].numpy())
            yield
            for name, param in self.params.items():
                self.masters[name].copy_(param.numpy())
            if step % self.every == 0:
                self.round()
        finally:
            self.show()

    def tensors(self) -> dict[str, Tensor]:
        """Return masters and rounded tensors, by the names that a state has them under."""
        return {
            **{f"{name}.master": value for name, value in self.masters.items()},
            **{f"{name}.rounded": value for name, value in self.rounded.items()},
        }

    def _of(self, name: str, stack: int) -> np.ndarray | None:
        """The importance of the columns of one of a parameter's matrices."""
        given = self._importance.get(name)
        columns = self.params[name].shape[-1]
        return None if given is None else np.asarray(given).reshape(-1, columns)[stack]

    def _bytes(self, name: str, values: np.ndarray) -> np.ndarray:
        """Return the bytes of a parameter's numbers in its type."""
        dtype, columns = self.rounded[name].dtype, values.shape[-1]
        if not dtype.quantized:
            return encode(values, dtype).reshape(-1).view(np.uint8)
        stacks = values.reshape(values.shape[0] if values.ndim == 3 else 1, -1, columns)
        step = max(1, _CHUNK // columns)
        jobs = [
            (stack[row : row + step], self._of(name, i))
            for i, stack in enumerate(stacks)
            for row in range(0, len(stack), step)
        ]
        count = os.cpu_count() or 1
        parts = map_in_threads(lambda job: quantize_rows(job[0], dtype, job[1]), jobs, count)
        return np.concatenate([part.reshape(-1) for part in parts])
