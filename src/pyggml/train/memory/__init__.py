# SPDX-License-Identifier: MIT
"""The memory of a training: its plan by kind, and its limit."""

from .plan import MemoryPlan, OutOfMemoryError, format_bytes, parse_bytes

__all__ = [
    "MemoryPlan",
    "OutOfMemoryError",
    "format_bytes",
    "parse_bytes",
]
