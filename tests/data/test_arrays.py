# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyggml import ShapeError
from pyggml.data import ArrayDataset, Loader


def test_batches_are_rows_that_belong_together() -> None:
    table = ArrayDataset(np.arange(20.0).reshape(10, 2), np.arange(10))
    for x, y in Loader(table, 5, seed=1).once():
        assert x.dtype == np.float32
        assert y.dtype == np.int32
        np.testing.assert_array_equal(x[:, 0], 2 * y)


def test_the_parts_of_a_split_are_all_rows_once_and_the_same_for_a_seed() -> None:
    table = ArrayDataset(np.arange(10), np.arange(10))
    train, validation = table.split(0.3, seed=4)
    assert (len(train), len(validation)) == (7, 3)
    assert sorted([*train.y, *validation.y]) == list(range(10))
    assert train.split(1e-9)[1].y.size == 1
    np.testing.assert_array_equal(table.split(0.3, seed=4)[1].y, validation.y)
    assert not np.array_equal(table.split(0.3, seed=5)[1].y, validation.y)


def test_a_memory_map_is_not_read() -> None:
    path = Path("rows.f32")
    np.arange(8, dtype=np.float32).tofile(path)
    mapped = np.memmap(path, np.float32, "r", shape=(4, 2))
    assert isinstance(ArrayDataset(mapped, np.arange(4)).x, np.memmap)


def test_refusals() -> None:
    with pytest.raises(ShapeError, match=r"as many rows.*\(3,\) and \(2,\)"):
        ArrayDataset([1.0, 2.0, 3.0], [0, 1])
    with pytest.raises(ShapeError, match="at least one"):
        ArrayDataset(np.zeros((0, 2)), [])
    with pytest.raises(ValueError, match=r"np\.unique"):
        ArrayDataset([1.0, 2.0], ["a", "b"])
    with pytest.raises(ValueError, match=r"x must be finite; got nan at \(1, 0\)"):
        ArrayDataset([[1.0], [np.nan]], [0, 1])
    with pytest.raises(ValueError, match="y must fit into int32"):
        ArrayDataset([1.0, 2.0], [0, 2**40])
    with pytest.raises(ValueError, match=r"at least two rows; got 0\.5 of 1"):
        ArrayDataset([1.0], [0]).split(0.5)
    with pytest.raises(ValueError, match=r"fraction must be > 0 and < 1.*got 1"):
        ArrayDataset([1.0, 2.0], [0, 1]).split(1)
