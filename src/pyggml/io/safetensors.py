# SPDX-License-Identifier: MIT
"""Reading weights from safetensors files, single or sharded, all at once or one by one."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks
from ..backend.sizes import format_bytes
from ..errors import FormatError, OutOfMemoryError, shown
from .regular import open_regular, read_regular

__all__ = [
    "INDEX_NAME",
    "SINGLE_NAME",
    "StoredArray",
    "load_safetensors",
    "open_safetensors",
    "safetensors_metadata",
]

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
# NumPy's types of the format's names; bf16, which NumPy has not, is widened.
_TYPES = {
    **{"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4"},
    **{"U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8"},
}


def _open(path: Path) -> Any:
    """Open one file with the safetensors library, which checks its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise FormatError(f"load_safetensors: {path}: the file is empty; fetch it again")
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise FormatError(
            f"load_safetensors: {path}: header: {error}; the file is truncated or not safetensors"
        ) from error
    except FileNotFoundError as error:
        raise FormatError(f"load_safetensors: {path}: no such file") from error
    except OSError as error:
        raise FormatError(f"load_safetensors: {path}: cannot be read: {error.strerror}") from error
    except MemoryError as error:  # the library maps all of the file
        size = format_bytes(path.stat().st_size)
        raise OutOfMemoryError(
            f"load_safetensors: {path}: the file of {size} cannot be mapped within the address"
            " space of the process: raise its limit (ulimit -v)"
        ) from error


@dataclass(frozen=True)
class StoredArray:
    """A tensor of a safetensors file, read whenever NumPy asks for its numbers.

    Attributes:
        path: the file.
        name: the tensor's name.
        dtype: the format's name of its type, such as "BF16"; bf16 comes as float32.
        shape: its extents.

    Example:
        >>> save_safetensors("w.safetensors", {"w": np.ones((2, 3), np.float32)})
        >>> stored = open_safetensors("w.safetensors")["w"]
        >>> stored.dtype, np.asarray(stored).sum()
        ('F32', np.float32(6.0))
    """

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    place: int = field(repr=False)
    nbytes: int = field(repr=False)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read the numbers."""
        kind = "<u2" if self.dtype == "BF16" else _TYPES[self.dtype]
        try:
            with open_regular(self.path) as file:
                file.seek(self.place)
                raw = np.fromfile(file, np.uint8, self.nbytes)
        except OSError as error:
            raise FormatError(
                f"load_safetensors: {self.path}: cannot be read: {error.strerror}"
            ) from error
        if raw.size != self.nbytes:
            raise FormatError(
                f"load_safetensors: {self.path}: tensor {self.name!r}: the file was cut short "
                "after it had been opened; fetch it again"
            )
        array: np.ndarray = raw.view(kind)
        if self.dtype == "BF16":
            array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        try:
            array = array.reshape(self.shape)
        except ValueError as error:  # too many axes, or an empty tensor with huge ones
            raise FormatError(
                f"load_safetensors: {self.path}: tensor {self.name!r}: shape must be one that NumPy"
                f" has; got {shown(self.shape)}: {error}"
            ) from error
        return array if dtype is None else array.astype(dtype, copy=False)


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a file that the library has accepted, and where its data starts."""
    with open_regular(path) as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    return header, 8 + size


def _open_file(path: Path) -> dict[str, StoredArray]:
    """Return the tensors of one file, unread."""
    with _open(path):  # the library checks the header
        header, start = _header(path)
    header.pop("__metadata__", None)
    arrays: dict[str, StoredArray] = {}
    for name, entry in header.items():
        dtype = entry["dtype"]
        if dtype not in _TYPES and dtype != "BF16":
            raise FormatError(
                f"load_safetensors: {path}: tensor {name!r}: dtype {dtype} is not supported;"
                f" convert it to one of {', '.join([*_TYPES, 'BF16'])}"
            )
        first, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        arrays[name] = StoredArray(path, name, dtype, shape, start + first, end - first)
    return arrays


def _weight_map(index: Path) -> dict[str, str]:
    """Read which shard holds which tensor, and check that shards lie beside the index."""
    try:
        content = json.loads(read_regular(index))
    except OSError as error:
        raise FormatError(f"load_safetensors: {index}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"load_safetensors: {index}: not JSON: {error}") from error
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not shards:
        raise FormatError(f"load_safetensors: {index}: weight_map: must be a non-empty object")
    for name, shard in shards.items():
        if not isinstance(shard, str) or Path(shard).name != shard or shard in ("", ".", ".."):
            raise FormatError(
                f"load_safetensors: {index}: weight_map[{name!r}]: must name a file in the same"
                f" folder; got {shard!r}"
            )
    return shards


def _open_sharded(index: Path) -> dict[str, StoredArray]:
    """Return the tensors of all shards, unread."""
    shards = _weight_map(index)
    loaded = {shard: _open_file(index.parent / shard) for shard in dict.fromkeys(shards.values())}
    arrays = {}
    for name, shard in shards.items():
        if name not in loaded[shard]:
            raise FormatError(
                f"load_safetensors: {index}: weight_map[{name!r}]: {shard} has no such tensor;"
                " the shards belong to another index"
            )
        arrays[name] = loaded[shard][name]
    return arrays


def _resolve(who: str, path: str | os.PathLike[str]) -> Path:
    """The file to read: the path itself, or the model in a folder."""
    path = checks.path(who, "path", path)
    if not path.is_dir():
        return path
    for name in (INDEX_NAME, SINGLE_NAME):
        if (path / name).exists():
            return path / name
    raise FormatError(f"load_safetensors: {path}: holds neither {SINGLE_NAME} nor {INDEX_NAME}")


def open_safetensors(path: str | os.PathLike[str]) -> dict[str, StoredArray]:
    """Open a safetensors file or a folder of shards; a tensor is read when NumPy asks for it.

    Args:
        path: as `load_safetensors` takes it.

    Returns:
        Tensors by name: `np.asarray` reads one.

    Raises:
        TypeError: path is not a path.
        FormatError: as `load_safetensors`; a file that changes later is told when it is read.

    Example:
        >>> save_safetensors("w.safetensors", {"w": np.ones((2, 3), np.float32)})
        >>> open_safetensors("w.safetensors")["w"].shape
        (2, 3)
    """
    file = _resolve("load_safetensors", path)
    return _open_sharded(file) if file.suffix == ".json" else _open_file(file)


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read all tensors of a safetensors file or of a folder of shards.

    Args:
        path: a file; an index file `*.index.json`; or a folder holding `model.safetensors` or
            `model.safetensors.index.json`.

    Returns:
        Arrays by name; bf16 comes as float32.

    Raises:
        TypeError: path is not a path.
        FormatError: a file is missing, truncated, foreign, inconsistent, or holds a dtype that
            NumPy has not; the message names file, field and cause.

    Source: huggingface/safetensors, format 1.

    Example:
        >>> save_safetensors("w.safetensors", {"w": np.ones((2, 3), np.float32)})
        >>> load_safetensors("w.safetensors")["w"].shape
        (2, 3)
    """
    return {name: np.asarray(stored) for name, stored in open_safetensors(path).items()}


def safetensors_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the free-text metadata of a safetensors file.

    Args:
        path: a file, or a folder holding `model.safetensors`.

    Raises:
        TypeError: path is not a path.
        FormatError: the file is missing, truncated or foreign.
    """
    with _open(_resolve("safetensors_metadata", path)) as file:
        return dict(file.metadata() or {})
