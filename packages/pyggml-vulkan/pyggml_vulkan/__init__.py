# SPDX-License-Identifier: MIT
"""ggml's Vulkan backend, which pyggml loads where this package is installed."""

from pathlib import Path

__all__ = ["library"]


def library() -> Path:
    """Return the file of the backend's library."""
    return next(Path(__file__).parent.glob("*pyggml-vulkan.*"))
