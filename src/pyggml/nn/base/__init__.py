# SPDX-License-Identifier: MIT
"""The base of all modules: their tree of tensors and children, hooks, and the loading of states."""

from .hooks import RemovableHandle
from .state import IncompatibleKeys, check_names, compare_names, load_state
from .tree import ModuleTree

__all__ = [
    "IncompatibleKeys",
    "ModuleTree",
    "RemovableHandle",
    "check_names",
    "compare_names",
    "load_state",
]
