# SPDX-License-Identifier: MIT
"""Tables: what is read of them, and errors that name row and column."""

from __future__ import annotations

import numpy as np
import pytest

from pyggml.data import read_table
from pyggml.errors import FormatError

ROWS = [{"a": 1.0, "b": 2, "kind": "x", "price": 1.5}, {"a": 3.0, "b": 4, "kind": "y", "price": 2}]


def test_columns_and_targets_of_each_kind(tmp_path):
    (tmp_path / "t.csv").write_text("a,kind,b\n1,2,3\n4,10,6\n")
    table = read_table(tmp_path / "t.csv", "kind", "classification")
    assert (table.x.tolist(), table.y.tolist()) == ([[1, 3], [4, 6]], [0, 1])
    assert (table.columns, table.labels) == (("a", "b"), ("2", "10"))
    table = read_table(ROWS, "price", columns=["b", "a"])
    assert (table.task, table.x.tolist(), table.y.tolist()) == (
        "regression",
        [[2, 1], [4, 3]],
        [1.5, 2],
    )
    both = read_table(ROWS, ["price", "b"], columns=["a"])
    assert (both.task, both.y.shape) == ("regression", (2, 2))


def test_a_data_frame():
    pandas = pytest.importorskip("pandas")
    table = read_table(pandas.DataFrame(ROWS), "kind", columns=["a", "b"])
    assert table.labels == ("x", "y")
    assert table.split(0.5)[0].columns == ("a", "b")


@pytest.mark.parametrize(
    ("change", "target", "names"),
    [
        ({"a": ""}, "kind", r"row 1: column 'a'"),
        ({"a": None}, "kind", r"row 1: column 'a'"),
        ({"a": float("nan")}, "kind", r"row 1: column 'a'"),
        ({"a": "three"}, "kind", r"row 1: column 'a'.*three"),
        ({"a": np.inf}, "kind", r"row 1: column 'a'"),
        ({"a": 1.0}, "kind", "column 'a' must vary"),
        ({"kind": "x"}, "kind", "column 'kind' must have two classes"),
        ({"kind": ""}, "kind", "row 1: column 'kind'"),
    ],
)
def test_bad_rows_are_named(change, target, names):
    with pytest.raises(FormatError, match=names):
        read_table([ROWS[0], {**ROWS[1], **change}], target, columns=["a", "b"])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="among 'a'"):
        read_table(ROWS, "nope")
    with pytest.raises(ValueError, match="task must be given"):
        read_table(ROWS, "b", columns=["a"])
    with pytest.raises(FormatError, match="needs at least one row"):
        read_table([], "a")
