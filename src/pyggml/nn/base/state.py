# SPDX-License-Identifier: MIT
"""Loading of state dicts into modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...backend.dtypes import encode
from ...backend.undivided import Undivided, settle
from ...errors import ShapeError
from ...tensors import Tensor
from ...tensors.node import Node
from ...tensors.row_limits import check_written
from ...tensors.storage import write_all
from ...tensors.tracing import check_write
from ...tensors.truth import change_truth, is_mask, stays_mask
from ..raw_bytes import blocks_shape

__all__ = ["IncompatibleKeys", "check_names", "compare_names", "load_state"]


class IncompatibleKeys(NamedTuple):
    """The names in which a state and a module differ; as `torch.nn.Module.load_state_dict` has it.

    Args:
        missing_keys: names of the module that the state does not have.
        unexpected_keys: names of the state that the module does not have.
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


def load_state(
    who: str, own: Mapping[str, Tensor], state: Mapping[str, ArrayLike], strict: bool
) -> IncompatibleKeys:
    """Overwrite tensors with the arrays of a state, all or, on an error, none.

    Args:
        who: leads the errors.
        own: the tensors by name.
        state: the arrays by name.
        strict: raise on missing and unexpected names.

    Raises:
        TypeError: state is no mapping, or strict not True or False.
        KeyError: names are missing or unexpected.
        ShapeError: an array has another shape than its tensor.
        DTypeError: an array does not hold numbers that its tensor takes.
    """
    checks.mapping(who, "state", state)
    keys = compare_names(own, state)
    if checks.flag(who, "strict", strict):
        check_names(who, own, state)
    writes: list[tuple[Node, np.ndarray]] = []
    truths: list[tuple[Node, bool]] = []
    for name, value in own.items():
        if name not in state:
            continue
        given, where = state[name], f"{who}: {name}"
        array = np.asarray(given)
        of_truth = not value.requires_grad and (array.dtype == bool or _is_mask(given))
        data = _encoded(where, value, array.astype(np.uint8) if of_truth else array)
        check_write(who, value.node)
        if value.dtype.numpy is not None:
            check_written(where, value.node, data)
        writes.append((value.node, data))
        truths.append((value.node, of_truth or stays_mask(value.node, data)))
    with Undivided():
        settle()
        write_all(writes)
        for node, of_truth in truths:
            change_truth(node, of_truth)
    return keys


def _is_mask(given: Any) -> bool:
    return isinstance(given, Tensor) and is_mask(given.node)


def _encoded(what: str, value: Tensor, array: np.ndarray) -> np.ndarray:
    """Return an array as its tensor stores it."""
    cure = "the file is of another configuration"
    if value.dtype.quantized and array.dtype == np.uint8:
        if array.shape != blocks_shape(value):
            raise ShapeError(
                f"{what} must be the bytes of {value.dtype.name}, {blocks_shape(value)}; "
                f"got {array.shape}: {cure}"
            )
        return np.ascontiguousarray(array)
    if array.shape != value.shape:
        raise ShapeError(f"{what} must have the shape {value.shape}; got {array.shape}: {cure}")
    return encode(array, value.dtype, what)


def compare_names(own: Mapping[str, Any], given: Mapping[str, Any]) -> IncompatibleKeys:
    """Return the names missing from and unexpected in `given`."""
    return IncompatibleKeys(
        [name for name in own if name not in given], [name for name in given if name not in own]
    )


def check_names(where: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise a KeyError that lists the names missing from and unexpected in `given`."""
    missing, unexpected = compare_names(own, checks.mapping(where, "state", given))
    if missing or unexpected:
        raise KeyError(
            f"{where}: the names must be the model's own; missing {_some(missing)}, "
            f"unexpected {_some(unexpected)}; strict=False takes what fits"
        )


def _some(names: list[str]) -> str:
    """Show a list of names, shortened."""
    if not names:
        return "none"
    listed = ", ".join(map(str, names[:8]))
    return listed + (f" and {len(names) - 8} more" if len(names) > 8 else "")
