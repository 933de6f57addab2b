# SPDX-License-Identifier: MIT
"""The peak rates of a machine, to compare a profile with."""

from __future__ import annotations

import time

import numpy as np

from .. import ops
from ..backend.device import Device
from ..backend.device import device as find_device
from ..graph.graph import Graph
from ..tensors.create import tensor
from .profiler import Peaks

__all__ = ["measure_peaks"]

_PRODUCT = 1024
_WORDS = 1 << 24
_RUNS = 5


def _fastest(graph: Graph) -> float:
    best = float("inf")
    for _ in range(_RUNS):
        began = time.perf_counter()
        graph.run()
        best = min(best, time.perf_counter() - began)
    return best


def measure_peaks(device: Device | str = "cpu") -> Peaks:
    """Time an f32 matmul of 1024 x 1024 matrices and a copy of 64 MiB, the best of five runs.

    Args:
        device: where; with the present number of threads.

    Returns:
        Peaks for `Profile.table`.

    Example:
        >>> measure_peaks().flop_s > 1e9
        True
    """
    where = find_device(device)
    square = tensor(np.ones((_PRODUCT, _PRODUCT), np.float32), device=where)
    product = _fastest(Graph([ops.mul_mat(square, square)]))
    x = tensor(np.ones((_WORDS,), np.float32), device=where)
    y = tensor(np.zeros((_WORDS,), np.float32), device=where)
    copy = _fastest(Graph([], effects=[ops.cpy(x, y)], device=where))
    return Peaks(2 * _PRODUCT**3 / product, 2 * x.nbytes / copy)
