# SPDX-License-Identifier: MIT
"""GGUF files: their metadata and tensors, of one file or of a split set."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks
from ..backend.dtypes import as_dtype, decode
from ..backend.library import ffi, lib
from ..errors import DTypeError, FormatError, shown
from .gguf_header import TensorInfo, gguf_error, read_header
from .gguf_write import part_names, write_gguf
from .regular import open_regular

__all__ = ["GGUFFile", "TensorInfo", "read_gguf", "write_gguf"]

_MOST_PARTS = 65535  # which split.count, an u16, can hold


class _Held:
    """The bytes of a file in memory."""

    def __init__(self, data: np.ndarray) -> None:
        self._data = data

    def read(self, offset: int, size: int) -> np.ndarray:
        """Return some of them."""
        return self._data[offset : offset + size]


class _Stored:
    """The bytes of a file, read when they are asked for."""

    def __init__(self, handle: int, path: Path) -> None:
        self._handle, self._path = os.dup(handle), path
        weakref.finalize(self, os.close, self._handle)

    def read(self, offset: int, size: int) -> np.ndarray:
        """Return some of them."""
        data: Any = np.empty(size, np.uint8)
        done = 0
        while done < size:
            try:
                count = os.preadv(self._handle, [data[done:]], offset + done)
            except OSError as error:
                reason = error.strerror or str(error)
                raise FormatError(f"read_gguf: {self._path}: cannot be read: {reason}") from error
            if count == 0:
                raise FormatError(
                    f"read_gguf: {self._path}: the file was cut short after it had been opened; it"
                    f" ends at byte {offset + done}; fetch it again"
                )
            done += count
        data.setflags(write=False)
        array: np.ndarray = data
        return array


class GGUFFile:
    """A GGUF file; metadata is read at once, tensors on request.

    Arrays live on after `close`.

    Attributes:
        path: the file.
        metadata: values by key: int, float, bool, str, a list of str, or a NumPy array.
        tensors: `TensorInfo` by name, in the order of the file.

    Example:
        >>> _ = pg.io.write_gguf("w.gguf", {"general.architecture": "own"}, {"w": np.ones((2, 3))})
        >>> with GGUFFile.open("w.gguf") as file:
        ...     file.metadata["general.architecture"], file.array("w").shape
        ('own', (2, 3))
    """

    def __init__(self, data: Any, path: str | os.PathLike[str] = "<memory>") -> None:
        """Parse bytes that are a whole GGUF file; `path` names them in errors."""
        try:
            held = np.frombuffer(data, np.uint8)
        except TypeError:
            raise TypeError(
                f"GGUFFile: data must be the bytes of a file; got {shown(data)}; open a file with "
                "GGUFFile.open(path)"
            ) from None
        except (BufferError, ValueError) as error:
            raise ValueError(
                f"GGUFFile: data must be contiguous bytes ({error}); copy them: bytes(data)"
            ) from None
        held.setflags(write=False)
        # from_buffer keeps the memory; the parser copies what it needs.
        source = ffi.from_buffer("char[]", held)
        parse = partial(lib.gguf_init_from_buffer, source, held.size)
        self._take(checks.path("GGUFFile", "path", path), held.size, parse)
        self._parts: list[_Held | _Stored] | None = [_Held(held)]

    def _take(self, path: Path, size: int, parse: Callable[[Any], Any]) -> None:
        """Read the header of a file of some bytes by ggml's parser."""
        header = read_header(path, size, parse)
        self.path = path
        self.metadata, self._types, self.tensors = header.metadata, header.types, header.tensors

    @classmethod
    def open(cls, path: str | os.PathLike[str], private: bool = False) -> GGUFFile:
        """Open a file, or with one part all of a split set; see `read_gguf`.

        Args:
            path: the file.
            private: arrays are the mapped file, without a copy, which must not be cut short while
                they live. What is written to this memory goes to a copy of the page.
        """
        path = checks.path("read_gguf", "path", path)
        private = checks.flag("read_gguf", "private", private)
        access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
        first = cls._open_one(path, access)
        count, own = (first.metadata.get(f"split.{key}", n) for key, n in (("count", 1), ("no", 0)))
        if type(count) is not int or not 1 <= count <= _MOST_PARTS:
            raise first._error(f"split.count: must be 1 to {_MOST_PARTS}; got {shown(count)}")
        if count == 1:
            return first
        names = part_names(path, count)
        if names is None or type(own) is not int or path.name not in names[own : own + 1]:
            raise first._error(
                f"split.count is {count} and split.no {shown(own)}, so its name must end in"
                f" -00001-of-{count:05d}.gguf with its number; give the parts their names again"
            )
        files = []
        for number, name in enumerate(names):
            if number != own and not path.with_name(name).exists():
                raise first._error(f"part {number + 1} of {count} is missing: {name}; fetch it")
            part = first if number == own else cls._open_one(path.with_name(name), access)
            part._check_part(number, first)
            files.append(part)
        return files[0]._joined(files)

    @classmethod
    def _open_one(cls, file: Path, access: int) -> GGUFFile:
        try:
            with open_regular(file) as handle:
                number = handle.fileno()
                size = os.fstat(number).st_size
                if size == 0:
                    raise FormatError(
                        f"read_gguf: {file}: the file is empty; write or fetch it again"
                    )
                # Reading tells of a file that was cut short; in a mapping it ends the process.
                made = cls.__new__(cls)
                made._take(file, size, partial(lib.gguf_init_from_file_ptr, handle))
                if access == mmap.ACCESS_READ and hasattr(os, "preadv"):
                    made._parts = [_Stored(number, file)]
                else:
                    held = np.frombuffer(mmap.mmap(number, size, access=access), np.uint8)
                    held.setflags(write=False)
                    made._parts = [_Held(held)]
                return made
        except ValueError as error:  # of mmap: the file has become shorter than size
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"read_gguf: {file}: cannot be read: {error}") from error
        except OSError as error:
            reason = error.strerror or str(error)
            if file.is_dir():
                reason = "it is a folder; give the file in it, such as model.gguf"
            raise FormatError(f"read_gguf: {file}: cannot be read: {reason}") from error

    def _check_part(self, number: int, first: GGUFFile) -> None:
        """Raise unless this file is a part of the set that another is of."""
        wanted = {**first.metadata, "split.no": number}
        for key in ("split.no", "split.count", "split.tensors.count"):
            got = self.metadata.get(key)
            if isinstance(got, (list, np.ndarray)) or got != wanted.get(key):
                raise self._error(
                    f"{key}: must be {wanted.get(key)!r}, as in {first.path.name}; got"
                    f" {shown(got)}: it is a part of another set"
                )
        arch, known = (f.metadata.get("general.architecture") for f in (self, first))
        if isinstance(arch, str) and isinstance(known, str) and arch != known:
            raise self._error(f"general.architecture: must be {known!r}; got {arch!r}")

    def _joined(self, files: list[GGUFFile]) -> GGUFFile:
        """Take over the tensors of the other parts."""
        parts: list[_Held | _Stored] = []
        for number, file in enumerate(files):
            assert file._parts is not None
            parts += file._parts
            for name, info in file.tensors.items() if number else ():
                if name in self.tensors:
                    raise file._error(f"tensor {name!r}: another part of the set has it too")
                self.tensors[name] = replace(info, part=number)
        count = self.metadata["split.tensors.count"]
        if len(self.tensors) != count:
            raise self._error(
                f"split.tensors.count: must be the number of tensors of all parts,"
                f" {len(self.tensors)}; got {shown(count)}"
            )
        self._parts = parts
        return self

    def close(self) -> None:
        """Close the file; arrays already taken stay valid."""
        self._parts = None

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"GGUFFile({str(self.path)!r}, {len(self.metadata)} keys, {len(self.tensors)} tensors)"
        )

    @property
    def typed_metadata(self) -> dict[str, Any]:
        """The metadata with scalars of NumPy types, as `write_gguf` takes it.

        `general.alignment` and `split.*` are left out: they tell of this file's layout, not of the
        next one's.
        """
        return {
            key: self._types[key](value) if key in self._types else value
            for key, value in self.metadata.items()
            if key != "general.alignment" and not key.startswith("split.")
        }

    def info(self, name: str) -> TensorInfo:
        """Look up a tensor.

        Raises:
            FormatError: the file has no such tensor.
        """
        if checks.text("GGUFFile.info", "name", name) not in self.tensors:
            raise self._error(f"tensor {name!r}: the file has none of this name")
        return self.tensors[name]

    def array(self, name: str, dequantise: bool = False, rows: int | None = None) -> np.ndarray:
        """Read a tensor's data; it cannot be written to.

        Args:
            name: the tensor.
            dequantise: whether f16, bf16, f64 and quantised types become float32. Otherwise
                bf16 comes as its bits (uint16), and quantised types as their bytes.
            rows: read so many along the first axis at most; None reads all.

        Shape:
            the tensor's; quantised bytes: (..., bytes of a row) uint8

        Raises:
            FormatError: the file has no such tensor, was cut short after it had been opened, or
                ggml cannot read its type.
            ValueError: the file is closed.
        """
        info = self.info(name)
        if self._parts is None:
            raise ValueError(f"GGUFFile.array: {self.path} is closed; open it again")
        shape, size = info.shape, info.size_bytes
        if rows is not None and len(shape) > 1:
            shape = (min(rows, shape[0]), *shape[1:])
            size = size // info.shape[0] * shape[0] if info.shape[0] else 0
        raw = self._parts[info.part].read(info.offset, size)
        dtype = as_dtype(info.dtype)
        if dtype.numpy is not None:
            array: np.ndarray = raw.view(dtype.numpy).reshape(shape)
            if dequantise and dtype.numpy.kind == "f":
                return array.astype(np.float32, copy=False)
            return array
        if not dequantise:
            if dtype.name == "bf16":
                return raw.view(np.uint16).reshape(shape)
            return raw.reshape((*shape[:-1], dtype.row_bytes(shape[-1])))
        # An alignment below the block's own is legal in GGUF, but not in C.
        aligned = raw if raw.ctypes.data % 16 == 0 else raw.copy()
        try:
            return decode(aligned, dtype, shape)
        except DTypeError as error:
            raise self._error(f"tensor {name!r}: {error}") from error

    def _error(self, reason: str) -> FormatError:
        return gguf_error(self.path, reason)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)


def read_gguf(path: str | os.PathLike[str], private: bool = False) -> GGUFFile:
    """Open a GGUF file and check everything that its header says.

    Args:
        path: the file. A part of a split set, named `…-00001-of-00003.gguf`, opens all of it.
        private: see `GGUFFile.open`.

    Returns:
        The file with its metadata; tensors are read when asked for.

    Raises:
        FormatError: the file is missing, empty, truncated, foreign or inconsistent, or the set
            lacks a part or has one of another; the message names file, field and cause.

    Source: gguf.h of ggml; versions 2 and 3 of the format.

    Example:
        >>> _ = pg.io.write_gguf("w.gguf", {"general.architecture": "own"}, {})
        >>> with read_gguf("w.gguf") as file:
        ...     file.metadata["general.architecture"]
        'own'
    """
    return GGUFFile.open(path, checks.flag("read_gguf", "private", private))
