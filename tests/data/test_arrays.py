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
        ArrayDataset(["a", "b"], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"x must be finite; got nan at \(1, 0\)"):
        ArrayDataset([[1.0], [np.nan]], [0, 1])
    with pytest.raises(ValueError, match="y must fit into int32"):
        ArrayDataset([1.0, 2.0], [0, 2**40])
    with pytest.raises(ValueError, match=r"at least two rows; got 0\.5 of 1"):
        ArrayDataset([1.0], [0]).split(0.5)
    with pytest.raises(ValueError, match=r"fraction must be > 0 and < 1.*got 1"):
        ArrayDataset([1.0, 2.0], [0, 1]).split(1)


@pytest.mark.parametrize(
    ("y", "task", "found", "outputs", "labels"),
    [
        ([2, 0, 1], None, "classification", 3, None),
        (["b", "a", "b"], None, "classification", 2, ("a", "b")),
        ([0.5, 1.0, 2.0], None, "regression", 1, None),
        ([1, 2, 3], "regression", "regression", 1, None),
        ([[True, False]] * 3, None, "multi_label", 2, None),
        ([[1, 0]] * 3, "multi_label", "multi_label", 2, None),
    ],
)
def test_targets_tell_the_task(y, task, found, outputs, labels) -> None:
    table = ArrayDataset(np.ones((3, 2)), np.asarray(y), task)
    assert (table.task, table.outputs, table.labels) == (found, outputs, labels)
    assert table.y.dtype == (np.int32 if found == "classification" else np.float32)
    assert table.split(0.4)[1].labels == labels


@pytest.mark.parametrize(
    ("y", "given", "names"),
    [
        (["a", None], {}, "row 1"),
        (["a", "b"], {"labels": ["a", "c"]}, "labels"),
        ([0, 3], {"labels": ["a", "b"]}, "labels"),
        ([[0, 2], [1, 0]], {"task": "multi_label"}, "y of several labels"),
        ([0, 1], {"task": "ranking"}, "task"),
    ],
)
def test_targets_of_another_task_are_named(y, given, names) -> None:
    with pytest.raises(ValueError, match=names):
        ArrayDataset([[1.0], [2.0]], np.asarray(y, object if None in y else None), **given)
