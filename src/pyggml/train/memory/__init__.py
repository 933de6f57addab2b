# SPDX-License-Identifier: MIT
"""The memory of a training: its plan by kind, and its limit."""

from ...backend.sizes import format_bytes, parse_bytes
from .plan import MemoryPlan, OutOfMemoryError

__all__ = [
    "MemoryPlan",
    "OutOfMemoryError",
    "format_bytes",
    "parse_bytes",
]
