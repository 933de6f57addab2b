# SPDX-License-Identifier: MIT
"""`Tensor`'s methods, which call the functions of `pyggml.ops`."""

from .arithmetic import Methods

__all__ = ["Methods"]
