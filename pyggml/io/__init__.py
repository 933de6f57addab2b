# SPDX-License-Identifier: MIT
"""Files: GGUF, safetensors, and writing that is all or nothing."""

from .atomic import atomic_dir, atomic_path, atomic_write, clean_stale, fsync_tree
from .safetensors import load_safetensors, safetensors_metadata, save_safetensors

__all__ = [
    "atomic_dir",
    "atomic_path",
    "atomic_write",
    "clean_stale",
    "fsync_tree",
    "load_safetensors",
    "safetensors_metadata",
    "save_safetensors",
]
