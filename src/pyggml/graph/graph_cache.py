# SPDX-License-Identifier: MIT
"""The graphs of a function that is recorded once for each shape of its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

from ..backend.lru import LRUCache
from ..checks import whole
from ..tensors.node import caller

__all__ = ["MAX_BYTES", "MAX_GRAPHS", "graph_cache"]

_T = TypeVar("_T")

MAX_GRAPHS = 64
MAX_BYTES = 2**30


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
