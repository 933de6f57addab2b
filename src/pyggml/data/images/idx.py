# SPDX-License-Identifier: MIT
"""IDX files, the format of MNIST, and the handwritten digits of scikit-learn."""

from __future__ import annotations

import gzip
import math
import os
from pathlib import Path
from typing import IO

import numpy as np

from ... import checks
from ...errors import FormatError
from ...io.regular import open_unpacked
from .images import ArrayImages

__all__ = ["digits_images", "idx_images", "read_idx"]

# The third byte of a file; all numbers are big-endian.
_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_AXES = 4
_CHUNK_BYTES = 1 << 20
# Names of the parts' files: those of MNIST, and those that some copies have.
_NAMES = {"train": "train", "test": "t10k"}


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an array from an IDX file, compressed by gzip or not.

    Args:
        path: the file.

    Raises:
        FormatError: the file is missing or damaged; the message names file, field and cause.

    Source: LeCun et al., "The MNIST database of handwritten digits".

    Example:
        >>> images = read_idx("train-images-idx3-ubyte.gz")  # doctest: +SKIP
        >>> images.shape, images.dtype  # doctest: +SKIP
        ((60000, 28, 28), dtype('uint8'))
    """
    path = checks.path("read_idx", "path", path)
    try:
        with open_unpacked(path) as file:
            return _read(path, file)
    except (EOFError, gzip.BadGzipFile) as error:
        raise FormatError(f"read_idx: {path}: the gzip stream is damaged: {error}") from error
    except OSError as error:
        cause = error.strerror or error
        raise FormatError(f"read_idx: {path}: cannot be read: {cause}") from error


def _read(path: Path, file: IO[bytes]) -> np.ndarray:
    """Header and numbers; no more memory is taken than the file has bytes for."""
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0":
        raise FormatError(
            f"read_idx: {path}: magic must be two zero bytes, a type and a number of axes; got"
            f" {head.hex(' ') or 'an empty file'}: it is no IDX file"
        )
    kind, axes = head[2], head[3]
    if kind not in _TYPES:
        known = ", ".join(f"0x{number:02x}" for number in _TYPES)
        raise FormatError(f"read_idx: {path}: type must be one of {known}; got 0x{kind:02x}")
    if not 1 <= axes <= _MOST_AXES:
        raise FormatError(f"read_idx: {path}: axes must be 1 to {_MOST_AXES}; got {axes}")
    extents = file.read(4 * axes)
    if len(extents) < 4 * axes:
        raise FormatError(
            f"read_idx: {path}: extents must be {axes} numbers of 4 bytes; the file ends after"
            f" {len(extents)} bytes of them"
        )
    shape = tuple(int(n) for n in np.frombuffer(extents, ">u4"))
    dtype = np.dtype(_TYPES[kind])
    size = math.prod(shape) * dtype.itemsize
    parts, got = list[bytes](), 0
    while got <= size and (part := file.read(min(_CHUNK_BYTES, size + 1 - got))):
        parts.append(part)
        got += len(part)
    if got != size:
        more = "more" if got > size else f"{got:,}"
        raise FormatError(
            f"read_idx: {path}: data must be {size:,} bytes, as the extents {shape} say; got {more}"
        )
    try:
        array = np.frombuffer(b"".join(parts), dtype).reshape(shape)
    except ValueError as error:  # an empty file with huge extents
        raise FormatError(
            f"read_idx: {path}: extents must be those of an array; got {shape}: {error}"
        ) from error
    return array.astype(dtype.newbyteorder("="))


def idx_images(
    folder: str | os.PathLike[str], part: str = "train", classes: int | None = None
) -> ArrayImages:
    """Images and labels of MNIST, Fashion-MNIST and the like.

    Args:
        folder: holds `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, or `t10k-...` for
            the test, each with `.gz` or without; also with a dot in the place of the last dash.
        part: "train" or "test".
        classes: how many there are, with images or not; None is the highest label of the training
            images plus one, each of which must have an image, but for 0 where labels begin at 1.

    Raises:
        FormatError: a file is missing or damaged, the two do not belong together, a label is
            beyond the classes, or classes between the labels have no image.
        ValueError: an unknown part, or classes is no positive integer.

    Example:
        >>> mnist = idx_images("mnist/")  # doctest: +SKIP
        >>> len(mnist), mnist.image(0).shape  # doctest: +SKIP
        (60000, (28, 28, 1))
    """
    part = checks.choice("idx_images", "part", part, _NAMES)
    if classes is not None:
        classes = checks.whole("idx_images", "classes", classes, 1)
    folder = checks.path("idx_images", "folder", folder)
    files = [_find(folder, _NAMES[part], what) for what in ("images-idx3", "labels-idx1")]
    images, labels = (read_idx(file) for file in files)
    if images.ndim != 3 or images.dtype != np.uint8 or not images.size:
        raise FormatError(
            f"idx_images: {files[0]}: images must be (N, H, W) of u8; got {images.shape} of"
            f" {images.dtype}"
        )
    if labels.shape != images.shape[:1] or labels.dtype != np.uint8:
        raise FormatError(
            f"idx_images: {files[1]}: labels must be ({len(images)},) of u8, as there are images;"
            f" got {labels.shape} of {labels.dtype}"
        )
    count = _count(files[1], part, labels) if classes is None else classes
    if int(labels.max()) >= count:
        row = int(np.argmax(labels >= count))
        raise FormatError(
            f"idx_images: {files[1]}: labels must be below the {count} classes; got {labels[row]}"
            f" at {row}"
        )
    return ArrayImages(images, labels.astype(np.int32), [str(n) for n in range(count)])


def _count(file: Path, part: str, labels: np.ndarray) -> int:
    """Number of classes, as the labels of the training images have them."""
    if part != "train":
        try:
            trained = _find(file.parent, _NAMES["train"], "labels-idx1")
        except FormatError:  # a test set alone
            return int(labels.max()) + 1
        learned = read_idx(trained)
        # What else is wrong with that file is told when it is read for itself.
        good = learned.dtype == np.uint8 and learned.size
        return int(learned.max() if good else labels.max()) + 1
    images = np.bincount(labels)
    # Some count from 1, as the letters of EMNIST.
    empty = [n for n in np.flatnonzero(images == 0).tolist() if n]
    if empty:
        highest = images.size - 1
        row = int(np.argmax(labels == highest))
        raise FormatError(
            f"idx_images: {file}: each class up to the highest label must have an image; got"
            f" {highest} at {row}, and no image of {', '.join(map(str, empty[:5]))}"
            f"{', …' if len(empty) > 5 else ''}: the file is damaged, or give classes"
        )
    return images.size


def has_idx(folder: Path) -> bool:
    """Return True for a folder that holds a training set in IDX files."""
    return any((folder / name).is_file() for name in _candidates("train", "images-idx3"))


def _candidates(prefix: str, what: str) -> list[str]:
    stems = (f"{prefix}-{what}-ubyte", f"{prefix}-{what.replace('-', '.')}-ubyte")
    return [stem + end for stem in stems for end in ("", ".gz")]


def _find(folder: Path, prefix: str, what: str) -> Path:
    names = _candidates(prefix, what)
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise FormatError(f"idx_images: {folder}: must hold {names[0]} or {names[1]}; neither is")
    return found


def digits_images() -> ArrayImages:
    """Return the 1797 handwritten digits of scikit-learn, 8 × 8 pixels each; no download.

    Raises:
        ImportError: scikit-learn is not there.

    Source: Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI.

    Example:
        >>> digits = digits_images()  # doctest: +SKIP
        >>> len(digits), digits.image(0).shape  # doctest: +SKIP
        (1797, (8, 8, 1))
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        cure = 'pip install "pyggml[demos]"'
        raise ImportError(f"digits_images: needs the package scikit-learn; {cure}") from error
    found = load_digits()
    return ArrayImages(np.rint(found.images * (255 / 16)).astype(np.uint8), found.target)
