# SPDX-License-Identifier: MIT
"""A teacher's most probable tokens for each token of a dataset, in a folder with checksums."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...backend.device import alone
from ...data import Dataset
from ...data.batch import as_batch
from ...data.fingerprint import fingerprint
from ...errors import FormatError, ShapeError
from ...io.atomic import atomic_dir
from ...io.sealed import check_hash, hashed, read_sealed, seal
from ...models import LanguageModel
from ...nn.weight_check import WeightCheck
from ..step import TrainStep

__all__ = ["TeacherCache", "cache_teacher"]

_FORMAT = "pyggml teacher"
_INFO, _IDS, _LOGPROBS, _ITEMS = "teacher.json", "ids.bin", "logprobs.bin", "items.bin"
_FILES = (_IDS, _LOGPROBS, _ITEMS)
_TYPES = {"f32": "<f4", "f16": "<f2"}
_COUNTS = ("items", "length", "top_k", "vocab_size", "teacher")


class TeacherCache:
    """A teacher's most probable tokens for each token of a dataset, read from a file.

    Args:
        path: its folder. The hash of every file is compared, and the arrays are then read from
            the disk as they are needed.

    Attributes:
        path: the folder.
        items: items of the dataset.
        length: tokens of an item.
        top_k: tokens that are kept of each.
        vocab_size: tokens that the teacher chose among.
        teacher: checksum of the teacher's weights.

    Raises:
        FormatError: the folder is none of `cache_teacher`, or is damaged: names the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = checks.path("TeacherCache", "path", path)
        info = _read_info(self.path)
        self.items, self.length, self.top_k, self.vocab_size, self.teacher = (
            int(info[name]) for name in _COUNTS
        )
        shape = self.items, self.length, self.top_k
        self._ids = self._open(_IDS, "<i4", shape)
        self._logprobs = self._open(_LOGPROBS, _TYPES[info["dtype"]], shape)
        self._crc = self._open(_ITEMS, "<u4", (self.items,))

    def _open(self, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        """Map a file whose size its manifest has told."""
        file = self.path / name
        wanted = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if file.stat().st_size != wanted:
            raise FormatError(f"{file}: must have {wanted:,} bytes; got {file.stat().st_size:,}")
        return np.memmap(file, dtype, "r", shape=shape)

    def read(
        self, items: np.ndarray, x: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return tokens and log-probabilities of items, whose inputs and targets are compared.

        Args:
            items: numbers of the items.
            x: their inputs.
            y: their targets.

        Shape:
            items (B,), x (B, T), y (B, T) -> (B, T, K) i32, (B, T, K) f32

        Raises:
            ValueError: a number is no item, or an item is another than the teacher read.
        """
        at = np.asarray(items)
        if at.size and not (int(at.min()) >= 0 and int(at.max()) < self.items):
            raise ValueError(
                f"TeacherCache: items must be below {self.items}; got {int(at.max())}: the dataset "
                "is another than the teacher read; cache it again"
            )
        for row, item in enumerate(at):
            if self._crc[item] != _crc(x[row], y[row]):
                raise ValueError(
                    f"TeacherCache: {self.path}: item {int(item)} must be as the teacher read it; "
                    "got other tokens: the dataset has changed since; cache it again"
                )
        return np.asarray(self._ids[at], np.int32), np.asarray(self._logprobs[at], np.float32)


def cache_teacher(
    teacher: LanguageModel,
    dataset: Dataset,
    path: str | os.PathLike[str],
    top_k: int = 64,
    batch_size: int = 8,
    dtype: str = "f32",
    vocab_size: int | None = None,
) -> TeacherCache:
    """Write a teacher's most probable tokens for each token of a dataset, or find them written.

    An item takes T * top_k * 8 bytes, or 6 with f16.

    Args:
        teacher: a language model, such as `pg.load(path, keep_types=True)[0]`; its tokens are the
            student's.
        dataset: fixed items of one length, such as a `TokenDataset` or packed rows.
        path: folder to write. If it holds these data and this teacher already, it is read.
        top_k: tokens that are kept of each, at most the vocabulary.
        batch_size: items that the teacher reads at a time.
        dtype: of the log-probabilities, "f32" or "f16".
        vocab_size: of the student, where the teacher's vocabulary is longer: the models of a family
            fill theirs up to different sizes. What is beyond counts as impossible.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: items have no fixed number or length, as random windows; a number is out of
            range; or the folder holds other data or another teacher.
        FormatError: the folder is damaged; or the teacher's logits are not finite.
        RuntimeError: another thread changed the teacher's weights meanwhile.
        OSError: a file cannot be written.

    Example:
        >>> from pyggml.data import TokenDataset
        >>> dataset = TokenDataset(np.arange(33) % 65, seq_len=8)
        >>> cache = cache_teacher(model, dataset, "teacher", top_k=4)
        >>> cache.items, cache.length, cache.top_k
        (4, 8, 4)
    """
    who = "cache_teacher"
    checks.instance(who, "teacher", teacher, LanguageModel)  # type: ignore[type-abstract]
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"{who}: dataset must have __len__, order and batch, as TokenDataset has; got "
            f"{type(dataset).__name__}"
        )
    vocabulary = int(teacher.target_classes)
    if vocab_size is not None:
        vocabulary = min(vocabulary, checks.whole(who, "vocab_size", vocab_size, 1))
    kept = checks.whole(who, "top_k", top_k, 1, vocabulary)
    size = checks.whole(who, "batch_size", batch_size, 1)
    checks.choice(who, "dtype", dtype, _TYPES)
    folder, count = checks.path(who, "path", path), len(dataset)
    if not np.array_equal(dataset.order(None), np.arange(count)) or not count:
        raise ValueError(
            f"{who}: dataset must have numbered items that stay the same, at least one; random "
            "windows have none: give a TokenDataset or packed rows"
        )
    weights = WeightCheck(who, teacher)
    with alone(), weights.unchanged():
        mark = fingerprint(*(value.numpy() for _, value in teacher.named_state()))
    if folder.exists():
        return _found(who, folder, dataset, mark, kept)
    step = TrainStep(teacher, None)
    length = as_batch(dataset.batch(np.arange(1))).x.shape[1]
    with atomic_dir(folder) as made:
        with (
            hashed(made / _IDS) as ids,
            hashed(made / _LOGPROBS) as logprobs,
            hashed(made / _ITEMS) as items,
        ):
            for start in range(0, count, size):
                batch = as_batch(dataset.batch(np.arange(start, min(start + size, count))))
                if batch.x.shape[1] != length:
                    raise ValueError(
                        f"{who}: dataset must have items of one length; got {length} and "
                        f"{batch.x.shape[1]}: pack them, or pad to seq_len"
                    )
                with alone(), weights.unchanged():
                    logits = step.logits(batch)[..., :vocabulary]
                    found = _most_probable(who, logits, kept)
                ids.write(np.ascontiguousarray(found[0], "<i4"))
                logprobs.write(np.ascontiguousarray(found[1], _TYPES[dtype]))
                pairs = zip(batch.x, batch.y, strict=True)
                items.write(np.asarray([_crc(x, y) for x, y in pairs], "<u4"))
        record = {
            "format": _FORMAT,
            "dtype": dtype,
            **dict(zip(_COUNTS, (count, length, kept, vocabulary, mark), strict=True)),
            "hashes": {
                _IDS: ids.record(),
                _LOGPROBS: logprobs.record(),
                _ITEMS: items.record(),
            },
        }
        (made / _INFO).write_bytes(seal(record))
    return TeacherCache(folder)


def _found(who: str, folder: Path, dataset: Dataset, weights: int, kept: int) -> TeacherCache:
    """Return the cache of a folder, if it is of these data and this teacher."""
    cache = TeacherCache(folder)
    cure = "choose another path, or remove it"
    if cache.teacher != weights:
        raise ValueError(f"{who}: path must not hold another teacher's; {folder} does: {cure}")
    if (cache.items, cache.top_k) != (len(dataset), kept):
        raise ValueError(
            f"{who}: path must not hold other data; {folder} has {cache.items} items and top_k="
            f"{cache.top_k}, not {len(dataset)} and {kept}: {cure}"
        )
    for item in range(cache.items):
        batch = as_batch(dataset.batch(np.array([item])))
        cache.read(np.array([item]), batch.x, batch.y)
    return cache


def _most_probable(who: str, logits: np.ndarray, kept: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers and log-probabilities of the most probable tokens, those first."""
    values = logits.astype(np.float64)
    if not np.isfinite(values).all():
        raise FormatError(f"{who}: the teacher's logits must be finite; got NaN or Inf")
    values -= values.max(axis=-1, keepdims=True)
    values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
    most = values.shape[-1] - kept
    ids = np.argpartition(values, most, axis=-1)[..., most:] if most else None
    if ids is None:
        ids = np.broadcast_to(np.arange(values.shape[-1]), values.shape)
    found = np.take_along_axis(values, ids, -1)
    order = np.argsort(-found, axis=-1, kind="stable")
    return np.take_along_axis(ids, order, -1), np.take_along_axis(found, order, -1)


def _crc(x: np.ndarray, y: np.ndarray) -> int:
    """Return a checksum of an item."""
    return zlib.crc32(np.asarray(y, "<i4").tobytes(), zlib.crc32(np.asarray(x, "<i4").tobytes()))


def _read_info(folder: Path) -> dict[str, Any]:
    """Read the manifest, and compare the files with it."""
    file = folder / _INFO
    try:
        info = read_sealed(file)
    except OSError as error:
        raise FormatError(
            f"{file}: cannot be read: {error.strerror or error}; cache_teacher makes it"
        ) from error
    hashes = info.get("hashes")
    sizes = [info.get(name) for name in _COUNTS]
    good = all(isinstance(n, int) and n >= 0 for n in sizes) and isinstance(hashes, dict)
    if info.get("format") != _FORMAT or info.get("dtype") not in _TYPES or not good:
        raise FormatError(f"{file}: must be a manifest of cache_teacher")
    if not 0 < info["top_k"] <= info["vocab_size"]:
        raise ShapeError(f"{file}: top_k must be from 1 to {info['vocab_size']}")
    for name in _FILES:
        check_hash(folder / name, dict(hashes or {}).get(name), _INFO)
    return info
