# SPDX-License-Identifier: MIT
"""IDX files: whole ones are read, damaged ones refused with file, field and cause."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from pyggml import FormatError
from pyggml.data import digits_images, idx_images, read_idx

IMAGES = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)


def idx(array: np.ndarray, kind: int = 0x08) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
    return head + array.astype({0x08: ">u1", 0x0C: ">i4", 0x0D: ">f4"}[kind]).tobytes()


def mnist(folder: Path, labels: list[int], prefix: str = "train", images: int = 5) -> Path:
    folder.mkdir(exist_ok=True)
    pictures = gzip.compress(idx(IMAGES[:images]))
    (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(pictures)
    (folder / f"{prefix}-labels.idx1-ubyte").write_bytes(idx(np.array(labels)))
    return folder


@pytest.mark.parametrize("kind", [0x08, 0x0C, 0x0D])
def test_arrays_come_back(kind: int, tmp_path: Path) -> None:
    for name, data in (
        ("plain", idx(IMAGES, kind)),
        ("packed.gz", gzip.compress(idx(IMAGES, kind))),
    ):
        (tmp_path / name).write_bytes(data)
        got = read_idx(tmp_path / name)
        np.testing.assert_array_equal(got, IMAGES)
        assert got.dtype.isnative


DAMAGED = {
    "empty": (b"", "magic .* an empty file"),
    "text": (b"no such thing", "magic must be two zero bytes"),
    "type": (b"\0\0\x07\x01\0\0\0\0", "type must be one of 0x08.* got 0x07"),
    "axes": (b"\0\0\x08\x09", "axes must be 1 to 4; got 9"),
    "header": (idx(IMAGES)[:9], "extents must be 3 numbers .* after 5 bytes"),
    "short": (idx(IMAGES)[:-7], r"data must be 60 bytes, as the extents \(5, 4, 3\) say; got 53"),
    "long": (idx(IMAGES) + b"x", "data must be 60 bytes.* got more"),
    "huge": (b"\0\0\x08\x04" + b"\xff" * 16, "data must be 3.*; got 0"),
    "none of many": (
        b"\0\0\x08\x04\0\0\0\0" + b"\xff" * 12,
        r"extents must be those of an array; got \(0, 4294967295",
    ),
    "gzip cut": (gzip.compress(idx(IMAGES))[:-9], "the gzip stream is damaged"),
    "gzip bytes": (gzip.compress(idx(IMAGES))[:14] + b"zzzzzzzzzzzz", "the gzip stream is damaged"),
    "gzip sum": (gzip.compress(idx(IMAGES))[:-8] + b"\0" * 8, "the gzip stream is damaged"),
}


def test_a_label_far_from_the_others_makes_no_classes(tmp_path: Path) -> None:
    for labels, message in (
        ([0, 1, 4, 1, 0], "got 4 at 2, and no image of 2, 3: the file is damaged, or give c"),
        ([0, 255, 1, 1, 0], "got 255 at 1, and no image of 2, 3, 4, 5, 6, …"),
    ):
        mnist(tmp_path, labels)
        with pytest.raises(FormatError, match=message):
            idx_images(tmp_path)
    assert len(idx_images(tmp_path, classes=256).classes) == 256
    assert len(idx_images(mnist(tmp_path, [1, 2, 1, 2, 3])).classes) == 4  # from 1, as EMNIST's


def test_the_test_has_the_classes_of_the_training(tmp_path: Path) -> None:
    mnist(tmp_path, [0, 1, 0, 1, 0], "t10k")
    assert len(idx_images(tmp_path, "test").classes) == 2  # there is nothing else to go by
    mnist(tmp_path, [0, 1, 2, 1, 0])
    assert len(idx_images(tmp_path, "test").classes) == 3
    mnist(tmp_path, [0, 1, 0, 12, 0], "t10k")
    with pytest.raises(FormatError, match=r"labels must .*12 at 3"):
        idx_images(tmp_path, "test")


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(name: str, tmp_path: Path) -> None:
    data, message = DAMAGED[name]
    path = tmp_path / "damaged"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=rf"read_idx: .*damaged: {message}"):
        read_idx(path)


def test_any_cut_and_any_changed_byte_of_the_header_is_an_array_or_a_refusal(
    tmp_path: Path,
) -> None:
    whole = idx(IMAGES)
    path = tmp_path / "file"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(FormatError):
            read_idx(path)
    for at in range(16):
        for value in (0, 1, 0x0D, 0xFF):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                read_idx(path)
            except FormatError:
                continue


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "No such file"), (tmp_path, "directory")):
        with pytest.raises(FormatError, match=message):
            read_idx(path)


def test_images_and_labels_of_a_folder(tmp_path: Path) -> None:
    folder = mnist(tmp_path / "mnist", [0, 2, 1, 2, 0])
    source = idx_images(folder)
    assert (len(source), source.classes) == (5, ["0", "1", "2"])
    np.testing.assert_allclose(source.image(1)[:, :, 0] * 255, IMAGES[1], rtol=1e-6)
    mnist(folder, [1, 3], "t10k", images=2)
    with pytest.raises(FormatError, match=r"labels must .*3 at 1"):
        idx_images(folder, "test", classes=3)
    mnist(folder, [1, 2, 0], images=5)
    with pytest.raises(FormatError, match=r"labels must be \(5,\) of u8, .* got \(3,\)"):
        idx_images(folder)
    (folder / "train-labels.idx1-ubyte").unlink()
    with pytest.raises(FormatError, match="train-labels-idx1-ubyte"):
        idx_images(folder)
    with pytest.raises(ValueError, match="classes"):
        idx_images(folder, classes=0)
    with pytest.raises(ValueError, match="part must be one of train, test"):
        idx_images(folder, "valid")


def test_digits() -> None:
    pytest.importorskip("sklearn")
    digits = digits_images()
    assert len(digits) == 1797
    assert np.bincount(digits.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.image(0).shape == (8, 8, 1)
    assert digits.images.max() == 255
