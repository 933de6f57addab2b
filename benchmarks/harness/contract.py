# SPDX-License-Identifier: MIT
"""Who competes, and what the process of a contender and its owner say to each other."""

from __future__ import annotations

OK = "ok"
NOT_INSTALLED = "not installed"

# Contender -> the library that it needs.
LIBRARIES = {
    "pyggml": "pyggml",
    "pyggml.trainer": "pyggml",
    "pyggml.graph": "pyggml",
    "pyggml.loop": "pyggml",
    "torch": "torch",
    "torch.compile": "torch",
    "jax": "jax",
    "numpy": "numpy",
    "llama.cpp": "ctypes",
    "xllamacpp": "xllamacpp",
}


class NotSupportedError(Exception):
    """The contender does not do what was asked of it."""


def module(peer: str, task: str) -> str:
    """The module in `peers` that does a task for a contender."""
    return f"harness.peers.{peer.replace('.', '_')}_{task}"
