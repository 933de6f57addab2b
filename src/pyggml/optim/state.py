# SPDX-License-Identifier: MIT
"""An optimizer's state as arrays: copied out, and checked before it is restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..backend.device import alone
from ..backend.dtypes import encode
from ..errors import DTypeError, ShapeError
from ..tensors import Tensor
from ..tensors.node import Node
from ..tensors.storage import read_bytes

__all__ = ["check_entries", "load_arrays", "one", "read_skipped", "read_steps", "save_arrays"]


def save_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Copy the tensors out, all between two steps of a training in another thread.

    Args:
        tensors: stored tensors by name; quantised ones come as the bytes of their blocks, which
            are exact.
    """
    with alone():
        return {
            name: read_bytes(t.node) if t.dtype.quantized else t.numpy()
            for name, t in tensors.items()
        }


def check_entries(who: str, state: Mapping[str, ArrayLike], expected: set[str]) -> None:
    """Raise a KeyError unless `state` holds the expected entries and no others."""
    checks.mapping(f"{who}.load_state_dict", "state", state)
    missing, unexpected = expected - set(state), set(state) - expected
    if missing or unexpected:
        raise KeyError(
            f"{who}.load_state_dict: the entries must be this optimizer's own; missing "
            f"{sorted(missing)[:8]}, unexpected {sorted(map(str, unexpected))[:8]}"
        )


def load_arrays(
    who: str, tensors: Mapping[str, Tensor], state: Mapping[str, ArrayLike]
) -> list[tuple[Node, np.ndarray]]:
    """Check what `save_arrays` gave; return the nodes with their bytes, for `write_all`.

    Raises:
        ShapeError: an entry is of another shape than its tensor.
        DTypeError: an entry is of another kind.
    """
    ready: list[tuple[Node, np.ndarray]] = []
    for name, own in tensors.items():
        array, where = np.asarray(state[name]), f"{who}.load_state_dict: {name}"
        shape = (own.nbytes,) if own.dtype.quantized else own.shape
        if array.shape != shape:
            raise ShapeError(f"{where} must have the shape {shape}; got {array.shape}")
        if not own.dtype.quantized:
            array = encode(array, own.dtype, where)
        elif array.dtype != np.uint8:
            raise DTypeError(
                f"{where} must be uint8, blocks of {own.dtype.name}; got {array.dtype}"
            )
        ready.append((own.node, np.ascontiguousarray(array)))
    return ready


def read_steps(who: str, state: Mapping[str, ArrayLike]) -> tuple[int, float]:
    """Return the entries "steps" and "lr", checked.

    Raises:
        ValueError: one is out of range.
    """
    where = f"{who}.load_state_dict"
    return (
        checks.whole(where, "steps", one(state["steps"]), 0),
        checks.f32(where, "lr", one(state["lr"]), 0.0),
    )


def read_skipped(who: str, state: Mapping[str, ArrayLike], count: int, steps: int) -> list[int]:
    """Return the entry "skipped", checked; zeros where there is none.

    Raises:
        ValueError: it is no whole number from 0 to the steps for each parameter.
    """
    found = np.asarray(state.get("skipped", np.zeros(count, np.int64)))
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ValueError(
            f"{who}.load_state_dict: skipped must be a whole number for each of {count} parameters;"
            f" got {found.dtype} of shape {found.shape}"
        )
    if found.min() < 0 or found.max() > steps:
        raise ValueError(f"{who}.load_state_dict: skipped must be from 0 to {steps}; got {found}")
    return [int(number) for number in found]


def one(value: ArrayLike) -> Any:
    """Return the number in an array of one element, and anything else as it is."""
    array = np.asarray(value)
    return array.reshape(()).item() if array.size == 1 else value
