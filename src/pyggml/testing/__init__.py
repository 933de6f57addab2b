# SPDX-License-Identifier: MIT
"""Every op and every gradient against float64: `python -m pyggml.grad0`."""

from .case import Case
from .cases import CASES, ELSEWHERE
from .check import TOLERANCES, Result, run_case
from .nonfinite import INDICES, INFINITE, run_nonfinite

__all__ = [
    "CASES",
    "ELSEWHERE",
    "INDICES",
    "INFINITE",
    "TOLERANCES",
    "Case",
    "Result",
    "run_case",
    "run_nonfinite",
]
