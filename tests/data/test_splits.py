# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyggml import FormatError
from pyggml.data import (
    ArrayImages,
    ImageFolder,
    ImageSubset,
    cache_images,
    read_image,
    split_images,
)


def source(labels: list[int]) -> ArrayImages:
    return ArrayImages(
        np.arange(len(labels), dtype=np.uint8)[:, None, None] + np.zeros((1, 4, 4), np.uint8),
        labels,
    )


def test_the_same_share_of_each_class_is_held_back() -> None:
    labels = [0] * 20 + [1] * 5 + [2] * 2 + [3]
    train, validation = split_images(source(labels), 0.2, seed=3)
    assert np.bincount(validation.labels, minlength=4).tolist() == [4, 1, 1, 0]
    assert np.bincount(train.labels).tolist() == [16, 4, 1, 1]
    assert sorted([*train.items, *validation.items]) == list(range(28))
    assert split_images(source(labels), 0.2, seed=3)[1].items.tolist() == validation.items.tolist()
    assert split_images(source(labels), 0.2, seed=4)[1].items.tolist() != validation.items.tolist()


def test_a_subset_has_its_own_images() -> None:
    part = ImageSubset(source([0, 1, 1]), [2, 0])
    assert [round(float(part.image(i).max()) * 255) for i in range(2)] == [2, 0]
    for wrong in ([], [3], [-1], [0.5]):
        with pytest.raises(ValueError, match="items must be numbers from 0 to 2"):
            ImageSubset(source([0, 1, 1]), wrong)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="fraction must be > 0 and < 1; got 1"):
        split_images(source([0, 1]), 1)
    with pytest.raises(ValueError, match="a class must have two images"):
        split_images(source([0, 1]), 0.5)


def test_the_cache_has_what_could_be_read(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number, size in enumerate(((9, 12), (30, 10))):
            image.new("RGB", size, (50, 100, 200)).save(tmp_path / name / f"{number}.png")
    whole = (tmp_path / "a" / "0.png").read_bytes()
    image.effect_noise((40, 40), 90).save(tmp_path / "b" / "2.jpg")
    noise = (tmp_path / "b" / "2.jpg").read_bytes()
    (tmp_path / "b" / "2.jpg").write_bytes(noise[: len(noise) // 2])
    files = ImageFolder(tmp_path)
    cached = cache_images(files, 8)
    assert cached.images.shape == (4, 8, 8, 3)
    assert cached.labels.tolist() == [0, 0, 1, 1]
    assert [path.name for path, _ in files.skipped] == ["2.jpg"]
    np.testing.assert_array_equal(cached.images, np.broadcast_to([50, 100, 200], (4, 8, 8, 3)))
    assert read_image(tmp_path / "a" / "0.png", 1).shape == (12, 9, 1)
    (tmp_path / "cut.png").write_bytes(whole[:40])
    for path, message in ((tmp_path / "cut.png", "cannot be read"), (tmp_path / "x", "no such")):
        with pytest.raises(FormatError, match=message):
            read_image(path)
