# SPDX-License-Identifier: MIT
"""Checks of token ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import checks

__all__ = ["ids_in_range", "text_to_change", "token_ids", "token_stream"]

_ID_MAX = 2**31 - 1


def token_stream(ids: Any, who: str) -> np.ndarray:
    """Return a vector of token ids; a memory map stays one."""
    array: np.ndarray = np.asanyarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{who}: ids must be a one-dimensional integer array; got shape {array.shape},"
            f" dtype {array.dtype}; concatenate the documents' tokens first"
        )
    # A memory map is looked at where it is read, not all at once.
    return array if isinstance(array, np.memmap) else ids_in_range(array, who)


def ids_in_range(ids: np.ndarray, who: str) -> np.ndarray:
    """Return ids; raise on one that is negative or that int32 does not hold."""
    if ids.size and (ids.min() < 0 or ids.max() > _ID_MAX):
        raise ValueError(
            f"{who}: ids must lie between 0 and {_ID_MAX}; got {ids.min()} to {ids.max()};"
            " give token ids as a tokenizer makes them"
        )
    return ids


def text_to_change(who: str, ids: Any, rng: Any) -> np.ndarray:
    """Return the tokens of a text that a transform is given, after checks of its arguments."""
    checks.instance(who, "rng", rng, np.random.Generator, "use np.random.default_rng(0)")
    stream = token_stream(checks.array(who, "ids", ids, kinds=None), who)
    return ids_in_range(stream, who).astype(np.int32)


def token_ids(who: str, name: str, values: Any) -> tuple[int, ...]:
    """Return token ids as a tuple of ints >= 0."""
    return tuple(checks.whole(who, name, n, 0) for n in checks.items(who, name, values))
