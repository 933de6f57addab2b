# SPDX-License-Identifier: MIT
"""Weights in safetensors files, single or sharded, to and from NumPy."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import checks
from ..errors import DTypeError, FormatError
from .atomic import atomic_write, make_dirs
from .regular import open_regular, read_regular

__all__ = ["load_safetensors", "safetensors_metadata", "save_safetensors", "write_safetensors"]

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
# The format's names of NumPy's types that are written.
_NAMES = {
    **{"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16"},
    **{"uint32": "U32", "int32": "I32", "uint64": "U64", "int64": "I64"},
    **{"float16": "F16", "float32": "F32", "float64": "F64"},
}
# The library reads no longer header.
_HEADER_MOST_BYTES = 100_000_000
_READABLE = ["BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "F64"]


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


def _bfloat16(path: Path, header: dict[str, Any], name: str) -> np.ndarray:
    """Read a bf16 tensor as f32; the library hands NumPy no bf16."""
    start, end = header[name]["data_offsets"]
    place = header["__start__"] + start
    data = np.memmap(path, np.uint8, mode="r", offset=place, shape=end - start)
    wide: np.ndarray = np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)
    narrow: np.ndarray = wide.view(np.float32).reshape(header[name]["shape"])
    return narrow


def _header(path: Path) -> dict[str, Any]:
    """The header of a file that the library has accepted, and where its data starts."""
    with open_regular(path) as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    header["__start__"] = 8 + size
    return header


def _load_file(path: Path) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    header: dict[str, Any] | None = None
    with _open(path) as file:
        for name in file.keys():  # noqa: SIM118 (the handle is no mapping)
            part = file.get_slice(name)
            dtype = part.get_dtype()
            if dtype == "BF16" and 0 not in part.get_shape():
                header = header or _header(path)
                arrays[name] = _bfloat16(path, header, name)
            elif dtype == "BF16":
                arrays[name] = np.zeros(part.get_shape(), np.float32)
            elif dtype in _READABLE:
                arrays[name] = file.get_tensor(name)
            else:
                raise FormatError(
                    f"load_safetensors: {path}: tensor {name!r}: dtype {dtype} is not supported;"
                    f" convert it to one of {', '.join([*_READABLE, 'BF16'])}"
                )
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


def _load_sharded(index: Path) -> dict[str, np.ndarray]:
    shards = _weight_map(index)
    loaded = {shard: _load_file(index.parent / shard) for shard in dict.fromkeys(shards.values())}
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
    file = _resolve("load_safetensors", path)
    return _load_sharded(file) if file.suffix == ".json" else _load_file(file)


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


def _as_array(name: Any, value: Any) -> np.ndarray:
    if not isinstance(name, str) or not name or name == "__metadata__":
        raise ValueError(f"save_safetensors: a name must be a non-empty string; got {name!r}")
    _check_unicode(name)
    array = checks.array("save_safetensors", name, value, kinds=None)
    if array.dtype.name not in _NAMES:
        raise DTypeError(
            f"save_safetensors: {name}: dtype must be bool, an integer or f16/f32/f64;"
            f" got {array.dtype}; convert it first"
        )
    # ascontiguousarray makes scalars one-dimensional.
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)


def _check_unicode(text: str) -> None:
    """Raise on what JSON readers of other languages do not take."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"save_safetensors: text must be valid Unicode; got {text!r}") from error


def _texts(metadata: Any) -> dict[str, str]:
    """The metadata of a file, checked."""
    texts = {"format": "pt"}
    if metadata is not None:
        texts |= checks.mapping("save_safetensors", "metadata", metadata)
    for key, text in texts.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ValueError(
                f"save_safetensors: metadata must be text by name; got {key!r}: {text!r}; use str()"
            )
        _check_unicode(key + text)
    return texts


class _Writable(Protocol):
    def write(self, data: Any, /) -> Any: ...


def write_safetensors(
    file: _Writable, arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays in the safetensors format to an open file.

    Args:
        file: open for writing bytes.
        arrays: arrays by name.
        metadata: free text by name; see `save_safetensors`.

    Raises:
        DTypeError: an array is neither bool, nor integer, nor f16, f32 or f64.
        ValueError: a name is empty, metadata is not text, or names and shapes take 100 MB.
    """
    given = checks.mapping("save_safetensors", "arrays", arrays)
    ready = {name: _as_array(name, value) for name, value in given.items()}
    header: dict[str, Any] = {"__metadata__": _texts(metadata)}
    # The widest first, so that each array is aligned, as the library lays them out.
    order = sorted(ready, key=lambda name: (-ready[name].itemsize, name))
    end = 0
    for name in order:
        array = ready[name]
        place = [end, end := end + array.nbytes]
        dtype = _NAMES[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": place}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _HEADER_MOST_BYTES:
        raise ValueError(
            f"save_safetensors: names and shapes must take at most {_HEADER_MOST_BYTES:,} bytes;"
            f" got {len(text):,}"
        )
    file.write(struct.pack("<Q", len(text)) + text)
    for name in order:
        file.write(ready[name].reshape(-1).view(np.uint8))


def _split(arrays: dict[str, np.ndarray], limit: int) -> list[dict[str, np.ndarray]]:
    """Fill shards in order; a tensor larger than the limit gets a shard of its own."""
    shards: list[dict[str, np.ndarray]] = [{}]
    used = 0
    for name, array in arrays.items():
        if shards[-1] and used + array.nbytes > limit:
            shards.append({})
            used = 0
        shards[-1][name] = array
        used += array.nbytes
    return shards


def save_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int | None = None,
) -> None:
    """Write arrays as one safetensors file, or as a folder of shards; all or nothing.

    Args:
        path: the file; with `max_shard_bytes`, the folder, which is made when missing.
        arrays: arrays by name.
        metadata: free text by name. "format" is set to "pt" unless given: `transformers` wants it.
        max_shard_bytes: largest shard of a folder, > 0; None writes one file.

    Raises:
        DTypeError: an array is neither bool, nor integer, nor f16, f32 or f64.
        ValueError: a name is empty, metadata is not text, or the shard size is not positive.
        OSError: it cannot be written, for instance because the disk is full; what was there
            before is then still whole.

    Source: huggingface/safetensors, format 1; shard names as in `transformers`.

    Example:
        >>> save_safetensors("w.safetensors", {"w": np.ones((2, 3), np.float32)})
    """
    target = checks.path("save_safetensors", "path", path)
    if max_shard_bytes is None:
        with atomic_write(target) as file:
            write_safetensors(file, arrays, metadata)
        return
    limit = checks.whole("save_safetensors", "max_shard_bytes", max_shard_bytes, 1)
    given = checks.mapping("save_safetensors", "arrays", arrays)
    ready = {name: _as_array(name, value) for name, value in given.items()}
    _save_sharded(target, _split(ready, limit), _texts(metadata))


def _save_sharded(
    folder: Path, shards: list[dict[str, np.ndarray]], metadata: dict[str, str]
) -> None:
    """Write every shard under a temporary name, then rename all of them, then the index."""
    make_dirs(folder)
    weight_map: dict[str, str] = {}
    with ExitStack() as stack:
        for number, shard in enumerate(shards, 1):
            name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            file = stack.enter_context(atomic_write(folder / name))
            write_safetensors(file, shard, metadata)
            file.flush()
            weight_map.update(dict.fromkeys(shard, name))
    total = sum(array.nbytes for shard in shards for array in shard.values())
    with atomic_write(folder / INDEX_NAME, "w") as file:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        json.dump(index, file, indent=2, sort_keys=True)
        file.write("\n")
    # A single file of an earlier save would shadow nothing, but would be another model.
    (folder / SINGLE_NAME).unlink(missing_ok=True)
