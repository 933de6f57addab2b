# SPDX-License-Identifier: MIT
"""ggml behind cffi: the library, devices, memory, dtypes and logging."""

from .device import (
    Device,
    default_device,
    device,
    devices,
    get_threads,
    set_default_device,
    set_threads,
)
from .dtypes import DType, as_dtype
from .library import ffi, ggml_version, lib, patch_count

__all__ = [
    "DType",
    "Device",
    "as_dtype",
    "default_device",
    "device",
    "devices",
    "ffi",
    "get_threads",
    "ggml_version",
    "lib",
    "patch_count",
    "set_default_device",
    "set_threads",
]
