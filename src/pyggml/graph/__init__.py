# SPDX-License-Identifier: MIT
"""Graphs of recorded operations: gradients, memory and runs."""

from .attached_updates import attach_update
from .compile import Compiled, compile
from .custom_function import custom_function
from .gradients import check_grads, value_and_grad
from .graph import Graph, grad_of, most_fallbacks, tensor_like
from .memory_plan import Activations
from .observers import LossError
from .passes.defer import postpone
from .passes.recompute import checkpoint, recompute
from .spare import bytes_for_speed, spare_memory

__all__ = [
    "Activations",
    "Compiled",
    "Graph",
    "LossError",
    "attach_update",
    "bytes_for_speed",
    "check_grads",
    "checkpoint",
    "compile",
    "custom_function",
    "grad_of",
    "most_fallbacks",
    "postpone",
    "recompute",
    "spare_memory",
    "tensor_like",
    "value_and_grad",
]
