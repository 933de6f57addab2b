# SPDX-License-Identifier: MIT
"""The graphs of a function that is recorded once for each shape of its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ..backend.lru import LRUCache
from ..checks import whole
from ..errors import lead
from ..tensors.node import caller
from ..tensors.tensor import Tensor

__all__ = ["MAX_BYTES", "MAX_GRAPHS", "copy_in", "graph_cache"]

_T = TypeVar("_T")

MAX_GRAPHS = 64
MAX_BYTES = 2**30


def copy_in(what: str, inputs: Sequence[Tensor], arrays: Sequence[np.ndarray]) -> None:
    """Overwrite the inputs of a graph.

    Args:
        what: leads the error of an array that does not fit, with its number.
        inputs: the tensors.
        arrays: one for each.
    """
    for i, (own, array) in enumerate(zip(inputs, arrays, strict=True)):
        try:
            own.copy_(array)
        except (TypeError, ValueError) as error:
            lead(f"{what}[{i}]", error)
            raise


def graph_cache(
    who: str,
    size: Callable[[_T], int],
    max_graphs: int,
    max_bytes: int,
    cure: str,
    least: int = 1,
) -> LRUCache[_T]:
    """Make a place for recorded graphs; a RuntimeWarning tells once when one is dropped.

    Args:
        who: what records, for messages.
        size: bytes that keeping a value takes.
        max_graphs: how many are kept, at least 1.
        max_bytes: what they may take in all, at least 1.
        cure: what to do against recording again and again.
        least: graphs that are kept however large they are.

    Raises:
        TypeError: a limit is no whole number.
        ValueError: a limit is below 1.
    """
    most = whole(who, "max_graphs", max_graphs, 1)
    most_bytes = whole(who, "max_bytes", max_bytes, 1)

    def dropping() -> None:
        file, line = caller()
        warnings.warn_explicit(
            f"{who}: the inputs have had more shapes than graphs are kept ({most:,} graphs,"
            f" {most_bytes:,} bytes): the one used longest ago is dropped, and recorded anew when"
            f" its shapes come again; {cure}",
            RuntimeWarning,
            file,
            line,
        )

    return LRUCache(most, most_bytes, size, dropping, least)
