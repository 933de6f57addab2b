# SPDX-License-Identifier: MIT
"""Writing weights into safetensors files, single or sharded."""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import checks
from ..backend.dtypes import DTYPES, encode
from ..errors import DTypeError
from .atomic import atomic_write
from .flush import make_dirs
from .lazy import LazyArray
from .safetensors import INDEX_NAME, SINGLE_NAME

__all__ = ["save_safetensors", "write_safetensors"]

# The format's names of NumPy's types that are written.
_NAMES = {
    **{"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16"},
    **{"uint32": "U32", "int32": "I32", "uint64": "U64", "int64": "I64"},
    **{"float16": "F16", "float32": "F32", "float64": "F64"},
}
# The library reads no longer header.
_HEADER_MOST_BYTES = 100_000_000


def _as_array(name: Any, value: Any) -> tuple[str, np.ndarray | LazyArray]:
    """Return the format's name of a type, and the array whose bytes are written."""
    if not isinstance(name, str) or not name or name == "__metadata__":
        raise ValueError(f"save_safetensors: a name must be a non-empty string; got {name!r}")
    _check_unicode(name)
    if isinstance(value, LazyArray) and value.dtype.name in _NAMES:
        return _NAMES[value.dtype.name], value
    kind = None
    if isinstance(value, tuple) and len(value) == 2:
        kind, value = value
        checks.choice("save_safetensors", f"{name}: dtype", kind, ("bf16",))
    array = checks.array("save_safetensors", name, value, kinds=None)
    if kind == "bf16":
        raw = encode(array, DTYPES["bf16"], f"save_safetensors: {name}")
        return "BF16", raw.view("<u2").reshape(array.shape)
    if array.dtype.name not in _NAMES:
        raise DTypeError(
            f"save_safetensors: {name}: dtype must be bool, an integer or f16/f32/f64;"
            f" got {array.dtype}; convert it first"
        )
    # ascontiguousarray makes scalars one-dimensional.
    raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    return _NAMES[array.dtype.name], raw


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
        arrays: arrays by name; see `save_safetensors`. A `LazyArray` is read when it is written.
        metadata: free text by name; see `save_safetensors`.

    Raises:
        DTypeError: an array is neither bool, nor integer, nor f16, f32 or f64.
        ValueError: a name is empty, metadata is not text, or names and shapes take 100 MB.
    """
    given = checks.mapping("save_safetensors", "arrays", arrays)
    _write(file, {name: _as_array(name, value) for name, value in given.items()}, metadata)


def _write(
    file: _Writable,
    ready: Mapping[str, tuple[str, np.ndarray | LazyArray]],
    metadata: Mapping[str, str] | None,
) -> None:
    """Write arrays that `_as_array` made ready."""
    header: dict[str, Any] = {"__metadata__": _texts(metadata)}
    # The widest first, so that each array is aligned, as the library lays them out.
    order = sorted(ready, key=lambda name: (-ready[name][1].itemsize, name))
    end = 0
    for name in order:
        dtype, array = ready[name]
        place = [end, end := end + array.nbytes]
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
        _, found = ready[name]
        array = _as_array(name, found.read())[1] if isinstance(found, LazyArray) else found
        file.write(array.reshape(-1).view(np.uint8))  # type: ignore[union-attr]


_Shard = dict[str, tuple[str, np.ndarray | LazyArray]]


def _split(arrays: _Shard, limit: int) -> list[_Shard]:
    """Fill shards in order; a tensor larger than the limit gets a shard of its own."""
    shards: list[_Shard] = [{}]
    used = 0
    for name, (dtype, array) in arrays.items():
        if shards[-1] and used + array.nbytes > limit:
            shards.append({})
            used = 0
        shards[-1][name] = dtype, array
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
        arrays: arrays by name; a pair `("bf16", array)` is rounded to bf16.
        metadata: free text by name. "format" is set to "pt" unless given: `transformers` wants it.
        max_shard_bytes: largest shard of a folder, > 0; None writes one file. Shards that take the
            place of others have names that end in `-2`, `-3`, …: the index names them.

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


_SHARD = re.compile(r"model-\d{5}-of-\d{5}(-\d+)?\.safetensors")


def _shard_names(folder: Path, count: int) -> list[str]:
    """Return names that no file has: an earlier save stays whole beside them."""
    for suffix in itertools.chain([""], (f"-{number}" for number in itertools.count(2))):
        names = [f"model-{i:05d}-of-{count:05d}{suffix}.safetensors" for i in range(1, count + 1)]
        if not any(os.path.lexists(folder / name) for name in names):
            break
    return names


def _save_sharded(folder: Path, shards: list[_Shard], metadata: dict[str, str]) -> None:
    """Write the shards under new names, then the index that names them; then drop the old ones."""
    make_dirs(folder)
    names = _shard_names(folder, len(shards))
    try:
        for name, shard in zip(names, shards, strict=True):
            with atomic_write(folder / name) as file:
                _write(file, shard, metadata)
    except BaseException:
        for name in names:
            (folder / name).unlink(missing_ok=True)
        raise
    total = sum(array.nbytes for shard in shards for _, array in shard.values())
    weight_map = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
    with atomic_write(folder / INDEX_NAME, "w") as file:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        json.dump(index, file, indent=2, sort_keys=True)
        file.write("\n")
    # Another model's, or those of a save that was killed.
    for path in folder.iterdir():
        if path.name == SINGLE_NAME or (_SHARD.fullmatch(path.name) and path.name not in names):
            path.unlink(missing_ok=True)
