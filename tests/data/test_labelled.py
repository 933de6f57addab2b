# SPDX-License-Identifier: MIT
"""Texts with labels: what rows may hold, how they are divided, and batches."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyggml.data import Documents, LabelledDataset, read_labelled
from pyggml.errors import FormatError


def rows(*labels):
    return [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("labels", "numbers", "names"),
    [
        (["good", "bad", "good"], [1, 0, 1], ("bad", "good")),
        ([1, 0, 2.0], [1, 0, 2], None),
        (["1", "0", "1"], [1, 0, 1], None),
        ([10, 9, 10], [1, 0, 1], ("9", "10")),
        ([True, False], [1, 0], ("false", "true")),
    ],
)
def test_labels_are_numbered(labels, numbers, names):
    found = read_labelled(rows(*labels))
    assert (found.labels, found.names) == (numbers, names)


def test_files_of_each_kind(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\n"one, two",x\nthree,y\n')
    (tmp_path / "b.jsonl").write_text('{"text": "four", "label": "z"}\n')
    found = read_labelled([tmp_path / "a.csv", tmp_path / "b.jsonl"], ["z", "y", "x"])
    assert (found.texts, found.labels) == (["one, two", "three", "four"], [2, 1, 0])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"text": "b"}, "label"),
        ({"label": "x"}, "text"),
        ({"text": " ", "label": "x"}, "text"),
        ({"text": "b", "label": "nope"}, "nope"),
        ({"text": "b", "label": 1.5}, "1.5"),
        ({"text": "b", "label": ["x"]}, "label"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(tmp_path, line, said):
    file = tmp_path / "rows.jsonl"
    lines = [{"text": "a", "label": "x"}, line, {"text": "c", "label": "y"}]
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    with pytest.raises(FormatError, match=said) as caught:
        read_labelled(file, ["x", "y"])
    assert f"{file}:2" in str(caught.value)
    found = read_labelled(file, ["x", "y"], skip_bad=True)
    assert (len(found), found.bad) == (2, 1)


def test_one_class_is_none():
    with pytest.raises(FormatError, match="two classes"):
        read_labelled(rows("x", "x"))
    with pytest.raises(FormatError, match="none"):
        read_labelled([])


def test_parts_have_the_same_shares_and_no_text_twice():
    given = rows(*["a"] * 20, *["b"] * 10)
    found = read_labelled([*given, *given[:5]])
    first, second = found.split(0.2, seed=3)
    assert not set(first.texts) & set(second.texts)
    assert len(first) + len(second) == 35
    counts = [len({t for t, n in zip(second.texts, second.labels, strict=True) if n == label})
              for label in (0, 1)]  # fmt: skip
    assert counts == [4, 2]
    assert len(read_labelled(rows("a", "a", "b")).split(0.1)[1]) == 1
    with pytest.raises(ValueError, match="each class"):
        read_labelled(rows("a", "b")).split(0.9)


def test_batches_are_filled_up():
    documents = Documents.of([[1, 2, 3], [4], [5] * 9])
    dataset = LabelledDataset(documents, [0, 1, 1], seq_len=12)
    batch = dataset.batch(np.array([2, 1]))
    assert batch.x.shape == (2, 12)
    assert batch.inputs["attention_mask"].sum(axis=1).tolist() == [9, 1]
    assert batch.y.tolist() == [1, 1]
    assert dataset.fingerprint() != LabelledDataset(documents, [0, 1, 0], 12).fingerprint()
    with pytest.raises(ValueError, match="seq_len"):
        LabelledDataset(documents, [0, 1, 1], seq_len=8)
    with pytest.raises(ValueError, match="labels"):
        LabelledDataset(documents, [0, 1])
