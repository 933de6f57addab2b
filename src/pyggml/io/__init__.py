# SPDX-License-Identifier: MIT
"""Files: GGUF, safetensors, and atomic writing."""

from .atomic import atomic_dir, atomic_path, atomic_write, clean_stale
from .flush import fsync_tree, make_dirs
from .gguf import GGUFFile, TensorInfo, read_gguf
from .gguf_write import Encoded, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, write_gguf
from .inspect import inspect_file
from .regular import open_regular, open_unpacked, read_regular
from .safetensors import (
    StoredArray,
    load_safetensors,
    open_safetensors,
    safetensors_metadata,
)
from .safetensors_write import save_safetensors

__all__ = [
    "Encoded",
    "GGUFFile",
    "StoredArray",
    "TensorInfo",
    "atomic_dir",
    "atomic_path",
    "atomic_write",
    "clean_stale",
    "f32",
    "f64",
    "fsync_tree",
    "i8",
    "i16",
    "i32",
    "i64",
    "inspect_file",
    "load_safetensors",
    "make_dirs",
    "open_regular",
    "open_safetensors",
    "open_unpacked",
    "read_gguf",
    "read_regular",
    "safetensors_metadata",
    "save_safetensors",
    "u8",
    "u16",
    "u32",
    "u64",
    "write_gguf",
]
