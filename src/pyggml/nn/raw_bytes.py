# SPDX-License-Identifier: MIT
"""Raw bytes of quantised weights, read and written without rounding."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from ..backend.device import Device
from ..backend.dtypes import DType
from ..tensors import Tensor, empty
from ..tensors.storage import place, read_bytes, write

__all__ = ["blocks_of", "blocks_shape", "checksum", "from_blocks", "over_blocks"]


def blocks_shape(value: Tensor) -> tuple[int, ...]:
    """Shape of a tensor's bytes by rows: (..., bytes of a row)."""
    return (*value.shape[:-1], value.dtype.row_bytes(value.shape[-1]))


def blocks_of(value: Tensor) -> np.ndarray:
    """Copy a stored tensor's bytes out, by rows."""
    return read_bytes(value.node).reshape(blocks_shape(value))


def checksum(module: Any) -> int:
    """Return a checksum of a module's weights and buffers, in the types that they have."""
    found = 0
    for name, value in module.named_state():
        found = zlib.crc32(name.encode(), found)
        found = zlib.crc32(blocks_of(value).data, found)
    return found


def over_blocks(
    data: np.ndarray, dtype: DType, shape: tuple[int, ...], device: Device
) -> Tensor | None:
    """Make a tensor of bytes where they lie, without a copy; None where that cannot be."""
    node = place(data, dtype, shape, device)
    return None if node is None else Tensor(node)


def from_blocks(data: np.ndarray, dtype: DType, shape: tuple[int, ...], device: Device) -> Tensor:
    """Store bytes as a tensor of a dtype, on a device."""
    value = empty(shape, dtype=dtype, device=device)
    assert data.nbytes == value.nbytes
    write(value.node, np.ascontiguousarray(data))
    return value
