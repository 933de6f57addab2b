# SPDX-License-Identifier: MIT
"""Tables: what is read of them, and errors that name row and column."""

from __future__ import annotations

import numpy as np
import pytest

from pyggml.data import ArrayDataset, read_table
from pyggml.errors import FormatError
from pyggml.models import MLPConfig

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


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ("1,000", r"thousands=','.*for decimals .*decimal=','"),
        ("1,234,567", r"thousands=','\)$"),
        ("-1,234.5", r"thousands=','\)$"),
        ("1,5", r"decimal=','\)$"),
        ("red", r"pandas\.get_dummies"),
        ("inf", "mend the row, or leave the column out of columns$"),
    ],
)
def test_text_that_is_no_number_has_its_own_cure(value, cure):
    with pytest.raises(FormatError, match=rf"row 1: column 'a'.*{cure}") as raised:
        read_table([ROWS[0], {**ROWS[1], "a": value}], "kind", columns=["a", "b"])
    assert ("get_dummies" in str(raised.value)) == (value == "red")


def test_truth_values_are_1_and_0(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,kind\nTrue,1,True\nfalse,2,False\n")
    table = read_table(tmp_path / "t.csv", "kind")
    assert table.x.tolist() == [[1, 1], [0, 2]]
    assert (table.labels, table.y.tolist()) == (("False", "True"), [1, 0])


def test_long_numbers_are_not_called_constant():
    rows = [{"id": 10**12 + n, "a": n % 3, "price": 0.5 + n} for n in range(9)]
    with pytest.warns(UserWarning, match=r"column 'id' goes from 1000000000000 to .*08.*65536"):
        table = read_table(rows, "price")
    assert table.columns == ("id", "a")
    with pytest.raises(FormatError, match="column 'id' must vary"):
        read_table([{**row, "id": 10**12} for row in rows], "price")


def test_columns_that_f32_rounds_are_named():
    rng = np.random.default_rng(0)
    seconds = 1_700_000_000 + rng.integers(0, 365 * 86_400, 200)
    x = np.column_stack([rng.normal(size=200), seconds])
    with pytest.warns(UserWarning, match=r"column 1 of x .* steps of 128: subtract its mean"):
        ArrayDataset(x, x[:, 0])
    with pytest.warns(UserWarning, match="column 0 of x"):
        ArrayDataset(seconds[:, None], x[:, 0])
    with pytest.warns(UserWarning, match="column 0 of y"):
        ArrayDataset(x[:, :1], seconds.astype(float))
    with pytest.warns(UserWarning, match="column 0 of x"):  # decimals
        ArrayDataset(1e5 + rng.normal(size=(200, 1)), x[:, 0])
    cured = ArrayDataset(x - x.mean(axis=0), x[:, 0])  # warnings are errors here
    np.testing.assert_allclose(np.diff(cured.x[:, 1]), np.diff(seconds), atol=4)
    plain = [seconds[:, None] // 86_400, rng.integers(0, 2**31 - 1, (200, 1)), 1e-30 * x[:, :1]]
    for column in (*plain, 1013.25 + x[:, :1], 1e12 * x[:, :1]):
        ArrayDataset(column, x[:, 0])


def test_classes_may_be_whole_decimals():
    x = np.zeros((4, 1)) + np.arange(4)[:, None]
    for y in (np.array([0.0, 2.0, 1.0, 0.0]), np.array([[0.0], [2.0], [1.0], [0.0]])):
        data = ArrayDataset(x, y, "classification")
        assert (data.y.dtype, data.y.tolist(), data.outputs) == (np.int32, [0, 2, 1, 0], 3)
    with pytest.raises(ValueError, match=r"y must number the classes.*got 0.5.*regression"):
        ArrayDataset(x, [0.0, 0.5, 1.0, 0.0], "classification")
    shares = np.full((4, 2), 0.5)
    assert ArrayDataset(x, shares, "classification").y.tolist() == shares.tolist()


def test_a_model_for_decimal_classes_asks_for_the_task():
    x = np.random.default_rng(0).normal(size=(12, 2))
    numbers = np.arange(12) % 3
    for y in (numbers.astype(float), (numbers > 0)[:, None].astype(np.float32)):
        with pytest.raises(ValueError, match=r"task must be given.*task='classification'"):
            MLPConfig.of(ArrayDataset(x, y))
        with pytest.raises(ValueError, match="task must be given"):
            MLPConfig.of(ArrayDataset(x, y).split(0.1)[0])
        assert MLPConfig.of(ArrayDataset(x, y, "classification")).classes == y.max() + 1
        assert MLPConfig.of(ArrayDataset(x, y, "regression")).task == "regression"
    one_hot = np.eye(3)[numbers]
    with pytest.raises(ValueError, match=r"y.argmax\(1\)"):
        MLPConfig.of(ArrayDataset(x, one_hot))
    assert MLPConfig.of(ArrayDataset(x, one_hot.argmax(1))).classes == 3
    with pytest.raises(ValueError, match="task='multi_label'"):
        MLPConfig.of(ArrayDataset(x, 1 - one_hot))
    for y in (x[:, 0], np.arange(12.0), numbers + 1.0, numbers * 2.0):
        assert MLPConfig.of(ArrayDataset(x, y)).task == "regression"
