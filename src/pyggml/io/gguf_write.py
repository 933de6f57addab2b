# SPDX-License-Identifier: MIT
"""Writing GGUF files: typed metadata, tensors one after another, all or nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks
from ..backend.dtypes import DTYPES, DType, as_dtype, encode
from ..backend.library import ffi, lib
from ..errors import DTypeError, ShapeError
from .atomic import atomic_write
from .flush import fsync_path

__all__ = [
    "Encoded",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "part_names",
    "u8",
    "u16",
    "u32",
    "u64",
    "write_gguf",
]

_ALIGNMENT = (
    32  # GGUF_DEFAULT_ALIGNMENT; ggml's writer lays tensors out with it whatever the key says
)
# The name of a part of a split set.
_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")
_BY_LOWER_NAME = {name.lower(): dtype for name, dtype in DTYPES.items()}
# GGUF's type and the setter for each of NumPy's types.
_KINDS: dict[np.dtype, tuple[int, Any]] = {
    np.dtype(np.uint8): (lib.GGUF_TYPE_UINT8, lib.gguf_set_val_u8),
    np.dtype(np.int8): (lib.GGUF_TYPE_INT8, lib.gguf_set_val_i8),
    np.dtype(np.uint16): (lib.GGUF_TYPE_UINT16, lib.gguf_set_val_u16),
    np.dtype(np.int16): (lib.GGUF_TYPE_INT16, lib.gguf_set_val_i16),
    np.dtype(np.uint32): (lib.GGUF_TYPE_UINT32, lib.gguf_set_val_u32),
    np.dtype(np.int32): (lib.GGUF_TYPE_INT32, lib.gguf_set_val_i32),
    np.dtype(np.uint64): (lib.GGUF_TYPE_UINT64, lib.gguf_set_val_u64),
    np.dtype(np.int64): (lib.GGUF_TYPE_INT64, lib.gguf_set_val_i64),
    np.dtype(np.float32): (lib.GGUF_TYPE_FLOAT32, lib.gguf_set_val_f32),
    np.dtype(np.float64): (lib.GGUF_TYPE_FLOAT64, lib.gguf_set_val_f64),
    np.dtype(np.bool_): (lib.GGUF_TYPE_BOOL, lib.gguf_set_val_bool),
}


def _integer(name: str, dtype: Any) -> Callable[[int], Any]:
    info = np.iinfo(dtype)

    def convert(value: int) -> Any:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise DTypeError(f"{name}: value must be an integer; got {value!r}")
        if not info.min <= int(value) <= info.max:
            raise ValueError(f"{name}: value must be in [{info.min}, {info.max}]; got {value}")
        return dtype(value)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"Mark a metadata value as {name}; llama.cpp is strict about the type."
    return convert


def _real(name: str, dtype: Any) -> Callable[[float], Any]:
    def convert(value: float) -> Any:
        if isinstance(value, (bool, np.bool_)) or not isinstance(
            value, (int, float, np.integer, np.floating)
        ):
            raise DTypeError(f"{name}: value must be a number; got {value!r}")
        return dtype(checks.number(name, "value", value, finite=False))

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"Mark a metadata value as {name}; llama.cpp is strict about the type."
    return convert


u8, i8 = _integer("u8", np.uint8), _integer("i8", np.int8)
u16, i16 = _integer("u16", np.uint16), _integer("i16", np.int16)
u32, i32 = _integer("u32", np.uint32), _integer("i32", np.int32)
u64, i64 = _integer("u64", np.uint64), _integer("i64", np.int64)
f32, f64 = _real("f32", np.float32), _real("f64", np.float64)


def _c_text(text: Any, what: str) -> bytes:
    """UTF-8 for a C string, which ends at its first NUL."""
    if not isinstance(text, str):
        raise DTypeError(f"write_gguf: {what}: must be a string; got {text!r}")
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"write_gguf: {what}: must be valid Unicode; got {text!r}") from error
    if 0 in raw:
        raise ValueError(f"write_gguf: {what}: must not hold NUL; got {text!r}")
    return raw


def _set_value(context: Any, key: str, value: Any) -> None:
    """Put one metadata value into ggml's context, or say why it cannot be."""
    what = f"metadata {key!r}"
    name = _c_text(key, "metadata key")
    if not name:
        raise ValueError("write_gguf: metadata key: must not be empty")
    if key == "general.alignment":
        raise ValueError(f"write_gguf: {what}: is {_ALIGNMENT} always; leave it out")
    if isinstance(value, bool):
        lib.gguf_set_val_bool(context, name, value)
    elif isinstance(value, str):
        lib.gguf_set_val_str(context, name, _c_text(value, what))
    elif isinstance(value, (list, tuple)):
        texts = [ffi.new("char[]", _c_text(item, f"{what}[{i}]")) for i, item in enumerate(value)]
        lib.gguf_set_arr_str(context, name, ffi.new("char *[]", texts), len(texts))
    elif isinstance(value, (np.generic, np.ndarray)) and value.dtype in _KINDS and value.ndim < 2:
        kind, setter = _KINDS[value.dtype]
        if value.ndim == 0:
            setter(context, name, value.item())
        else:
            flat = np.ascontiguousarray(value)
            lib.gguf_set_arr_data(context, name, kind, ffi.from_buffer(flat), flat.size)
    elif isinstance(value, (int, float)):
        raise DTypeError(
            f"write_gguf: {what}: a bare number has no type; got {value!r}; wrap it, as in"
            " u32(value) for counts and f32(value) for reals"
        )
    else:
        raise DTypeError(
            f"write_gguf: {what}: must be str, bool, a list of str, a NumPy scalar or a NumPy"
            f" vector of integers, f32, f64 or bool; got {value!r:.80}"
        )


@dataclass(frozen=True)
class Encoded:
    """A tensor's bytes, which `write_gguf` stores as they are.

    Args:
        dtype: ggml's name of the element type, such as "q4_K".
        data: the bytes by rows, as `GGUFFile.array` gives them.

    Shape:
        data (..., bytes of a row) uint8
    """

    dtype: str
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        dtype = as_dtype(self.dtype)
        return (*self.data.shape[:-1], self.data.shape[-1] // dtype.type_size * dtype.block_size)


def _check_encoded(what: str, value: Encoded) -> tuple[DType, np.ndarray]:
    """The type to store, and for its shape an array that takes no memory."""
    dtype, data = as_dtype(value.dtype), value.data
    whole = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim > 0
    if not whole or not data.size or data.shape[-1] % dtype.type_size:
        came = f"{data.shape} of {data.dtype}" if isinstance(data, np.ndarray) else repr(data)
        raise ShapeError(
            f"{what}: the bytes of {dtype.name} must be uint8 and rows of whole blocks of"
            f" {dtype.type_size}; got {came:.80}"
        )
    return dtype, np.broadcast_to(np.float32(0.0), value.shape)


def _tensor_dtype(name: str, value: Any) -> tuple[DType, np.ndarray]:
    """The type to store and the array; checked, so that ggml's asserts cannot fire."""
    what = f"write_gguf: tensor {name!r}"
    if isinstance(value, Encoded):
        return _check_encoded(what, value)
    wanted = None
    if isinstance(value, tuple):
        if len(value) != 2:
            raise DTypeError(f"{what}: must be an array or (dtype, array); got a tuple")
        wanted, value = value
    array = checks.array("write_gguf", f"tensor {name!r}", value, kinds=None)
    if array.dtype.kind not in "fiu":
        raise DTypeError(f"{what}: must hold real numbers; got {array.dtype}")
    lowered = _BY_LOWER_NAME.get(wanted.lower()) if isinstance(wanted, str) else None
    dtype = lowered or as_dtype(array.dtype if wanted is None else wanted)
    if dtype.quantized and lib.ggml_get_type_traits(dtype.ggml_type).to_float == ffi.NULL:
        raise DTypeError(f"{what}: {dtype.name} is for ggml's own use; store q8_0 instead")
    if array.ndim > lib.GGML_MAX_DIMS:
        raise ShapeError(f"{what}: must have at most {lib.GGML_MAX_DIMS} axes; got {array.shape}")
    if array.size == 0:
        raise ShapeError(f"{what}: must not be empty; got shape {array.shape}")
    if (array.shape or (1,))[-1] % dtype.block_size:
        raise ShapeError(
            f"{what}: rows of {dtype.name} must be multiples of {dtype.block_size}; got shape"
            f" {array.shape}; pad the last axis or use another dtype"
        )
    return dtype, array


def _describe(name: str, dtype: DType, shape: tuple[int, ...]) -> Any:
    """A ggml_tensor that carries name, type and shape for the file's header."""
    raw = _c_text(name, "tensor name")
    if not 0 < len(raw) < lib.GGML_MAX_NAME:
        raise ValueError(
            f"write_gguf: tensor name: must have 1 to {lib.GGML_MAX_NAME - 1} bytes;"
            f" got {len(raw)}: {name!r}"
        )
    extents = [*reversed(shape), 1, 1, 1, 1][: lib.GGML_MAX_DIMS]
    strides = [dtype.type_size, dtype.row_bytes(extents[0])]
    for extent in extents[1:-1]:
        strides.append(strides[-1] * extent)
    return ffi.new(
        "struct ggml_tensor *",
        {"type": dtype.ggml_type, "ne": extents, "nb": strides, "name": raw},
    )


def _data(name: str, dtype: DType, array: np.ndarray) -> np.ndarray:
    """A tensor's bytes."""
    data = encode(array, dtype, f"write_gguf: tensor {name!r}")
    if dtype.name == "f16" and np.isinf(data).any() and not np.isinf(array).any():
        raise ValueError(
            f"write_gguf: tensor {name!r}: values must fit f16 (65504 at most); got"
            f" {float(np.abs(array).max()):g}; use bf16 or f32"
        )
    return data.reshape(-1).view(np.uint8)


def _header(
    metadata: Mapping[str, Any], tensors: Mapping[str, Any]
) -> tuple[bytes, dict[str, int], dict[str, DType]]:
    """The file's bytes up to the data, and each tensor's offset in the data and type."""
    context = lib.gguf_init_empty()
    try:
        for key, value in metadata.items():
            _set_value(context, key, value)
        dtypes: dict[str, DType] = {}
        for name, value in tensors.items():
            dtypes[name], array = _tensor_dtype(name, value)
            lib.gguf_add_tensor(context, _describe(name, dtypes[name], array.shape))
        header = bytearray(lib.gguf_get_meta_size(context))
        lib.gguf_get_meta_data(context, ffi.from_buffer(header))
        offsets = {
            name: int(lib.gguf_get_tensor_offset(context, number))
            for number, name in enumerate(dtypes)
        }
        return bytes(header), offsets, dtypes
    finally:
        lib.gguf_free(context)


def part_names(path: Path, count: int) -> list[str] | None:
    """Return the names of the parts of a split set, as llama.cpp has them.

    Args:
        path: the name of the set, `model.gguf`, or of a part.
        count: parts of the set.

    Returns:
        The names; None for a part of a set with another number of them.
    """
    found = _PART.fullmatch(path.name)
    if found and int(found[2]) != count:
        return None
    stem = found[1] if found else path.name.removesuffix(".gguf")
    return [f"{stem}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]


def _size(value: Any) -> int:
    """The bytes of a tensor in the file."""
    if isinstance(value, Encoded):
        return int(value.data.size)
    dtype, array = _tensor_dtype("", value)
    return dtype.row_bytes(array.size)


def _shares(tensors: Mapping[str, Any], limit: int) -> list[list[str]]:
    """The names of tensors by part; one that is larger than the limit gets a part of its own."""
    parts: list[list[str]] = [[]]
    used = 0
    for name in tensors:
        size = _size(tensors[name])
        if parts[-1] and used + size > limit:
            parts.append([])
            used = 0
        parts[-1].append(name)
        used += size
    return parts


def _write_parts(
    target: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Any], limit: int
) -> list[Path]:
    """Write each part under a temporary name, then rename all of them, the first at last.

    The first of an earlier set is removed before: parts of two sets are no set.
    """
    shares = _shares(tensors, limit)
    names = part_names(target, len(shares))
    if names is None:
        raise ValueError(
            f"write_gguf: path must be the name of the set, such as model.gguf; got {target.name},"
            " which is a part's"
        )
    with ExitStack() as stack:
        for number, share in enumerate(shares):
            keys = {
                **(metadata if number == 0 else {}),
                "split.no": u16(number),
                "split.count": u16(len(shares)),
                "split.tensors.count": i32(len(tensors)),
            }
            file = stack.enter_context(atomic_write(target.with_name(names[number])))
            _write(file, keys, {name: tensors[name] for name in share})
            file.flush()
            os.fsync(file.fileno())
        target.with_name(names[0]).unlink(missing_ok=True)
        fsync_path(target.parent)
    return [target.with_name(name) for name in names]


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Any],
    max_part_bytes: int | None = None,
) -> list[Path]:
    """Write a GGUF file, tensor by tensor, and put it in place when it is whole.

    Args:
        path: the file; an existing one is replaced at the very end.
        metadata: values by key: str, bool, lists of str, NumPy scalars and vectors. Numbers need
            a type, as llama.cpp insists on it: `u32(12)`, `f32(1e-5)`.
        tensors: by name, an array, stored as it is, `(dtype, array)` with one of ggml's type
            names such as "f16", "bf16" or "q8_0", or `Encoded` bytes. A mapping may make its
            arrays when asked: each is asked for twice, first for its shape.
        max_part_bytes: most bytes of tensors in a file, > 0: with more there are several, named
            `model-00001-of-00003.gguf` as llama.cpp has them; None writes one.

    Returns:
        The files.

    Raises:
        DTypeError: a value or tensor has a type that GGUF has not.
        ShapeError: a tensor is empty, has more than four axes, or has rows that are no whole
            blocks of its type.
        ValueError: a key or name is empty, too long or not text, values do not fit, or a set is
            named as a part.
        OSError: the file cannot be written, for instance because the disk is full; what was there
            before is then still whole. Of a set that takes the place of another the parts are
            renamed one by one: a kill meanwhile leaves a set without its first part.

    Source: gguf.h of ggml; version 3 of the format.

    Example:
        >>> metadata = {"general.architecture": "llama", "llama.block_count": u32(1)}
        >>> tensors = {"token_embd.weight": ("q8_0", np.zeros((10, 32), np.float32))}
        >>> [path.name for path in write_gguf("tiny.gguf", metadata, tensors)]
        ['tiny.gguf']
    """
    target = checks.path("write_gguf", "path", path)
    checks.mapping("write_gguf", "metadata", metadata)
    checks.mapping("write_gguf", "tensors", tensors)
    if max_part_bytes is not None:
        limit = checks.whole("write_gguf", "max_part_bytes", max_part_bytes, 1)
        _header(metadata, tensors)  # which checks all of them before a file is made
        if len(_shares(tensors, limit)) > 1:
            return _write_parts(target, metadata, tensors, limit)
    with atomic_write(target) as file:
        _write(file, metadata, tensors)
    return [target]


def _write(file: Any, metadata: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Write one file's content."""
    header, offsets, dtypes = _header(metadata, tensors)
    file.write(header)
    written = 0
    for name, offset in offsets.items():
        file.write(bytes(offset - written))
        value = tensors[name]
        if isinstance(value, Encoded):
            data = np.ascontiguousarray(value.data).reshape(-1)
        else:
            array = np.asarray(value[1] if isinstance(value, tuple) else value)
            data = _data(name, dtypes[name], array)
        file.write(data)
        written = offset + data.size
    # llama.cpp wants the last tensor padded as well.
    file.write(bytes(-written % _ALIGNMENT))
