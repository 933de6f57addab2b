# SPDX-License-Identifier: MIT
"""Graphs of recorded operations: gradients, memory and runs."""

from .compile import Compiled, compile
from .custom_function import custom_function
from .gradients import check_grads, value_and_grad
from .graph import Graph
from .passes.recompute import checkpoint, postpone, recompute

__all__ = [
    "Compiled",
    "Graph",
    "check_grads",
    "checkpoint",
    "compile",
    "custom_function",
    "postpone",
    "recompute",
    "value_and_grad",
]
