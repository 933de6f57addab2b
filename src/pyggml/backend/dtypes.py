# SPDX-License-Identifier: MIT
"""ggml's element types, and their conversion from and to NumPy arrays."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import whole
from ..errors import DTypeError, ShapeError, shown
from .library import ffi, lib

__all__ = [
    "DTYPES",
    "DType",
    "as_dtype",
    "bf16",
    "decode",
    "dtype_of_type",
    "encode",
    "f16",
    "f32",
    "i32",
    "i64",
    "is_dtype",
]


@dataclass(frozen=True, eq=False)
class DType:
    """An element type of ggml; it equals its name: `x.dtype == "f32"`.

    Attributes:
        name: ggml's name, such as "f32" or "q8_0".
        ggml_type: value of `enum ggml_type`.
        block_size: elements in a block; 1 for plain types.
        type_size: bytes of a block.
        numpy: NumPy's type of the same layout, or None (bf16 and the quantised types).
        quantized: whether elements are stored in blocks with shared scales.
    """

    name: str
    ggml_type: int
    block_size: int
    type_size: int
    numpy: Any
    quantized: bool

    def __repr__(self) -> str:
        return f"pyggml.{self.name}"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, (DType, str)):
            return self.name == (other if isinstance(other, str) else other.name)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_float(self) -> bool:
        """True for f32, f16 and bf16, which arithmetic ops take."""
        return self.name in ("f32", "f16", "bf16")

    @property
    def is_readable(self) -> bool:
        """True if ggml converts it to f32; False for ggml's internal types, q8_1 and q8_K."""
        if self.name == "f32":
            return True
        return bool(lib.ggml_get_type_traits(self.ggml_type).to_float != ffi.NULL)

    def row_bytes(self, n: int) -> int:
        """Return the bytes of `n` consecutive elements, a multiple of the block size."""
        return whole("DType.row_bytes", "n", n, 0) // self.block_size * self.type_size


_NUMPY = {"f32": "f4", "f16": "f2", "f64": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}


def _table() -> dict[str, DType]:
    table = {}
    for value in range(lib.GGML_TYPE_COUNT):
        size = lib.ggml_type_size(value)
        if size == 0:  # a type that ggml has removed
            continue
        name = ffi.string(lib.ggml_type_name(value)).decode()
        numpy = np.dtype(_NUMPY[name]) if name in _NUMPY else None
        quantized = bool(lib.ggml_is_quantized(value))
        table[name] = DType(name, value, lib.ggml_blck_size(value), size, numpy, quantized)
    return table


DTYPES = _table()
_BY_TYPE = {d.ggml_type: d for d in DTYPES.values()}
f32, f16, bf16, i32, i64 = (DTYPES[n] for n in ("f32", "f16", "bf16", "i32", "i64"))


def dtype_of_type(ggml_type: int) -> DType:
    """Find the dtype of a value of `enum ggml_type`.

    Raises:
        DTypeError: ggml has no such type.
    """
    found = _BY_TYPE.get(ggml_type)
    if found is None:
        raise DTypeError(f"dtype: ggml has no type number {ggml_type}")
    return found


def is_dtype(name: Any) -> bool:
    """Return True for what names a dtype, and no device, if it names anything.

    Args:
        name: a name or a type.

    Example:
        >>> is_dtype("f16"), is_dtype(np.float32), is_dtype("float64"), is_dtype("cuda")
        (True, True, True, False)
    """
    if not isinstance(name, str):
        return isinstance(name, (DType, np.dtype, type))
    return name in DTYPES or name.startswith(("float", "bfloat", "int", "uint", "bool"))


def as_dtype(dtype: DType | str | Any) -> DType:
    """Find the ggml type of a name or a NumPy type.

    Raises:
        DTypeError: it is no name or NumPy type, or ggml has no such type.

    Example:
        >>> as_dtype("f32").type_size
        4
    """
    if isinstance(dtype, DType):
        return dtype
    if not isinstance(dtype, (str, np.dtype, type)):
        raise DTypeError(
            f'dtype: must be a name such as "f32", or a NumPy type; got {shown(dtype)}'
        )
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    with contextlib.suppress(TypeError, ValueError, DeprecationWarning):
        wanted = np.dtype(dtype)
        for known in DTYPES.values():
            if known.numpy is not None and known.numpy == wanted:
                return known
    raise DTypeError(f"dtype: no ggml type {shown(dtype)}; known are {', '.join(DTYPES)}")


def _to_integers(array: np.ndarray, dtype: DType, who: str) -> np.ndarray:
    if array.dtype == dtype.numpy:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "iu":
        raise DTypeError(f"{who}: {dtype.name} needs integers; got {array.dtype}; round them first")
    info = np.iinfo(dtype.numpy)
    if array.size and (int(array.min()) < info.min or int(array.max()) > info.max):
        raise DTypeError(
            f"{who}: values must fit {dtype.name}; got {array.min()} to {array.max()};"
            " use a wider dtype"
        )
    return np.ascontiguousarray(array, dtype=dtype.numpy)


def encode(array: np.ndarray, dtype: DType, who: str = "encode") -> np.ndarray:
    """Convert an array to the bytes that ggml stores.

    Args:
        array: real numbers; integers for the integer types.
        dtype: the type to store; quantised types use ggml's reference quantisers.
        who: name of the caller for error messages.

    Returns:
        A contiguous array whose bytes are the tensor's data.

    Raises:
        DTypeError: the values are not of a kind that `dtype` holds.
        ShapeError: rows are not whole blocks of a quantised type.

    Source: ggml_fp32_to_bf16_row, ggml_quantize_chunk.
    """
    array = np.asarray(array)
    if array.dtype.kind not in "fiu":
        raise DTypeError(
            f"{who}: expected real numbers; got {array.dtype}; convert the array first"
        )
    if dtype.numpy is not None and dtype.numpy.kind == "i":
        return _to_integers(array, dtype, who)
    if dtype.numpy is not None:
        with np.errstate(over="ignore"):  # f16: beyond its range is Inf, as in ggml
            return np.ascontiguousarray(array, dtype=dtype.numpy)
    source = np.ascontiguousarray(array, dtype=np.float32)
    if dtype.name == "bf16":
        out = np.empty(source.shape, np.uint16)
        lib.ggml_fp32_to_bf16_row(
            ffi.cast("float *", source.ctypes.data),
            ffi.cast("ggml_bf16_t *", out.ctypes.data),
            source.size,
        )
        return out
    return _quantize(source, dtype, who)


def _quantize(source: np.ndarray, dtype: DType, who: str) -> np.ndarray:
    columns = source.shape[-1] if source.ndim else 1
    if columns % dtype.block_size:
        raise ShapeError(
            f"{who}: rows of {dtype.name} must be multiples of {dtype.block_size};"
            f" got shape {source.shape}; pad the last axis or use another dtype"
        )
    if lib.ggml_quantize_requires_imatrix(dtype.ggml_type):
        raise DTypeError(f"{who}: {dtype.name} needs an importance matrix; use q8_0 or q4_K")
    if lib.ggml_get_type_traits(dtype.ggml_type).to_float == ffi.NULL:
        raise DTypeError(f"{who}: {dtype.name} is for ggml's own use; use q8_0")
    if not np.isfinite(source).all():
        raise DTypeError(f"{who}: {dtype.name} holds finite numbers only; got NaN or Inf")
    out = np.empty(dtype.row_bytes(source.size), np.uint8)
    rows = source.size // columns if columns else 0
    if rows:
        lib.ggml_quantize_chunk(
            dtype.ggml_type,
            ffi.cast("float *", source.ctypes.data),
            ffi.cast("void *", out.ctypes.data),
            0,
            rows,
            columns,
            ffi.NULL,
        )
    return out


def decode(raw: np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Read a tensor's bytes back; bf16 and quantised types come as float32.

    Args:
        raw: contiguous uint8 bytes of the whole tensor.
        dtype: how they are stored.
        shape: shape of the tensor in Python order.

    Raises:
        DTypeError: ggml cannot read the type back.

    Source: ggml_get_type_traits(type)->to_float.
    """
    if dtype.numpy is not None:
        plain: np.ndarray = raw.view(dtype.numpy).reshape(shape)
        return plain
    to_float = lib.ggml_get_type_traits(dtype.ggml_type).to_float
    if to_float == ffi.NULL:
        raise DTypeError(f"decode: ggml cannot convert {dtype.name} to f32")
    out = np.empty(shape, np.float32)
    if out.size:
        to_float(
            ffi.cast("void *", raw.ctypes.data), ffi.cast("float *", out.ctypes.data), out.size
        )
    return out
