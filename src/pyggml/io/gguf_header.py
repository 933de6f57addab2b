# SPDX-License-Identifier: MIT
"""Headers of GGUF files: ggml's parser reads them, and every field is checked again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..backend.dtypes import DType, dtype_of_type
from ..backend.library import capture_log, ffi, lib, pass_interrupt
from ..errors import FormatError

__all__ = ["Header", "TensorInfo", "gguf_error", "read_header"]

# NumPy's type and the getter of each scalar type of GGUF.
_SCALARS: dict[int, tuple[Any, Any]] = {
    lib.GGUF_TYPE_UINT8: (np.uint8, lib.gguf_get_val_u8),
    lib.GGUF_TYPE_INT8: (np.int8, lib.gguf_get_val_i8),
    lib.GGUF_TYPE_UINT16: (np.uint16, lib.gguf_get_val_u16),
    lib.GGUF_TYPE_INT16: (np.int16, lib.gguf_get_val_i16),
    lib.GGUF_TYPE_UINT32: (np.uint32, lib.gguf_get_val_u32),
    lib.GGUF_TYPE_INT32: (np.int32, lib.gguf_get_val_i32),
    lib.GGUF_TYPE_UINT64: (np.uint64, lib.gguf_get_val_u64),
    lib.GGUF_TYPE_INT64: (np.int64, lib.gguf_get_val_i64),
    lib.GGUF_TYPE_FLOAT32: (np.float32, lib.gguf_get_val_f32),
    lib.GGUF_TYPE_FLOAT64: (np.float64, lib.gguf_get_val_f64),
    lib.GGUF_TYPE_BOOL: (np.bool_, lib.gguf_get_val_bool),
}


@dataclass(frozen=True)
class TensorInfo:
    """Type, shape and place of a tensor in a GGUF file.

    Attributes:
        name: the tensor's name.
        dtype: ggml's name of the element type, such as "f32" or "q8_0".
        shape: in Python order. ggml keeps no leading extents of 1, and no scalars: both come
            back with the fewest axes that are possible, at least one.
        offset: first byte of the data, from the start of the file.
        size_bytes: bytes of the data.
        part: which file of a split set holds the data, from 0.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int
    part: int = 0


@dataclass(frozen=True)
class Header:
    """Contents of the header of a GGUF file.

    Attributes:
        metadata: values by key: int, float, bool, str, a list of str, or a NumPy array.
        types: NumPy's type of each scalar by key.
        tensors: `TensorInfo` by name, in the order of the file.
    """

    metadata: dict[str, Any]
    types: dict[str, Any]
    tensors: dict[str, TensorInfo]


# What ggml's parser says of a header that goes beyond the end of the file.
_ENDS_EARLY = ("failed to read", "exceeds remaining file size")


def gguf_error(path: Path, reason: str) -> FormatError:
    """Make the error of a file."""
    return FormatError(f"read_gguf: {path}: {reason}")


def read_header(path: Path, size: int, parse: Callable[[Any], Any]) -> Header:
    """Read the header of a file by ggml's parser.

    Args:
        path: names the file in errors.
        size: bytes of the file.
        parse: calls the parser with its parameters; returns ggml's context, or NULL.

    Raises:
        FormatError: the file is truncated, foreign or inconsistent; names file, field and cause.
    """
    params = ffi.new("struct gguf_init_params *", {"no_alloc": True})[0]
    with capture_log() as messages:
        context = parse(params)
    pass_interrupt()
    if context == ffi.NULL:
        raise gguf_error(path, _refusal([text.split(": ", 1)[-1] for text in messages], size))
    try:
        reader = _Reader(path, context)
        metadata, types = reader.metadata()
        return Header(metadata, types, reader.tensors(size))
    finally:
        lib.gguf_free(context)


def _refusal(said: list[str], size: int) -> str:
    """Return the reason for which the parser refused a file, and the cure."""
    reason = "; ".join(said)
    if "magic" in reason:
        return f"it is no GGUF file, which begins with GGUF ({reason}); give a .gguf file"
    if not said or any(text in said[0] for text in _ENDS_EARLY):
        return (
            f"the file is truncated or damaged: it has {size:,} bytes, and its header needs"
            f" more ({reason or 'it ends too early'}); fetch or write it again"
        )
    return f"the file is damaged: {reason}; fetch or write it again"


class _Reader:
    """Takes what ggml's parser has read."""

    def __init__(self, path: Path, context: Any) -> None:
        self._path, self._context = path, context

    def _text(self, pointer: Any, what: str) -> str:
        raw = ffi.string(pointer)
        try:
            return str(raw.decode())
        except UnicodeDecodeError as error:
            raise gguf_error(
                self._path,
                f"{what}: must be UTF-8; got byte 0x{raw[error.start]:02x} at {error.start}",
            ) from error

    def metadata(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return values by key, and NumPy's types of scalars."""
        metadata: dict[str, Any] = {}
        types: dict[str, Any] = {}
        for number in range(lib.gguf_get_n_kv(self._context)):
            key = self._text(lib.gguf_get_key(self._context, number), f"key {number}")
            if key in metadata:
                raise gguf_error(self._path, f"key {key!r}: occurs twice")
            kind = lib.gguf_get_kv_type(self._context, number)
            if kind == lib.GGUF_TYPE_STRING:
                value = self._text(lib.gguf_get_val_str(self._context, number), f"value of {key!r}")
                metadata[key] = value
            elif kind == lib.GGUF_TYPE_ARRAY:
                metadata[key] = self._array(number, key)
            elif kind in _SCALARS:
                types[key], getter = _SCALARS[kind]
                metadata[key] = getter(self._context, number)
            else:
                raise gguf_error(self._path, f"value of {key!r}: unknown type {kind}")
        return metadata, types

    def _array(self, number: int, key: str) -> Any:
        count = lib.gguf_get_arr_n(self._context, number)
        kind = lib.gguf_get_arr_type(self._context, number)
        if kind == lib.GGUF_TYPE_STRING:
            get = lib.gguf_get_arr_str
            what = f"array {key!r}"
            return [self._text(get(self._context, number, item), what) for item in range(count)]
        if kind not in _SCALARS:
            raise gguf_error(self._path, f"array {key!r}: unknown type {kind}")
        dtype = np.dtype(_SCALARS[kind][0])
        if count == 0:
            return np.empty(0, dtype)
        data = ffi.buffer(lib.gguf_get_arr_data(self._context, number), count * dtype.itemsize)
        return np.frombuffer(data, dtype).copy()

    def tensors(self, file_bytes: int) -> dict[str, TensorInfo]:
        """Return the tensors by name."""
        tensors: dict[str, TensorInfo] = {}
        start = lib.gguf_get_data_offset(self._context)
        alignment = lib.gguf_get_alignment(self._context)
        expected, end, cut = 0, 0, ""
        for number in range(lib.gguf_get_n_tensors(self._context)):
            name = self._text(lib.gguf_get_tensor_name(self._context, number), f"tensor {number}")
            if name in tensors:
                raise gguf_error(self._path, f"tensor {name!r}: occurs twice")
            dtype = dtype_of_type(int(lib.gguf_get_tensor_type(self._context, number)))
            extents = [
                int(n) for n in lib.gguf_get_tensor_ne(self._context, number)[0 : lib.GGML_MAX_DIMS]
            ]
            # In Python's integers: ggml's own size of a quantised tensor can wrap around.
            size = _size_bytes(extents, dtype)
            offset = int(lib.gguf_get_tensor_offset(self._context, number))
            if offset != expected:
                raise gguf_error(
                    self._path, f"tensor {name!r}: offset must be {expected}; got {offset}"
                )
            end = start + offset + size
            cut = name if end > file_bytes and not cut else cut
            expected += -(-size // alignment) * alignment
            shape = _shape(extents)
            tensors[name] = TensorInfo(name, dtype.name, shape, start + offset, size)
        if cut:
            raise gguf_error(
                self._path,
                f"the file is truncated or damaged: it has {file_bytes:,} bytes, and its tensors"
                f" end at byte {end:,}; tensor {cut!r} and those behind it are not whole: fetch or"
                " write it again",
            )
        return tensors


def _size_bytes(extents: list[int], dtype: DType) -> int:
    return math.prod(extents) // dtype.block_size * dtype.type_size


def _shape(extents: list[int]) -> tuple[int, ...]:
    """ggml's extents in Python order, without the ones that only fill up."""
    while len(extents) > 1 and extents[-1] == 1:
        extents = extents[:-1]
    return tuple(reversed(extents))
