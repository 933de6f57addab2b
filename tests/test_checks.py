# SPDX-License-Identifier: MIT
"""The one place where the wording of a refused argument is pinned: a row for each check."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from pyggml import checks
from pyggml.errors import ShapeError

ACCEPTED = [
    (checks.number, (0.5, 0.0, 1.0), 0.5),
    (checks.number, (np.float32(2), None, None), 2.0),
    (checks.f32, (3e38, 0.0), 3e38),
    (checks.whole, (np.int8(3), 0), 3),
    (checks.flag, (np.True_,), True),
    (checks.choice, ("sum", ("mean", "sum")), "sum"),
    (checks.text, ("a",), "a"),
    (checks.names, ("a",), ("a",)),
    (checks.names, (["a", "b"],), ("a", "b")),
    (checks.path, (Path("a/b"),), Path("a/b")),
    (checks.instance, (3, int), 3),
    (checks.having, (3, "a number", "real"), 3),
    (checks.mapping, ({"a": 1},), {"a": 1}),
    (checks.items, (iter([1, 2]), 2), (1, 2)),
]
REFUSED = [
    (checks.number, ("1",), TypeError, "f: x must be a number; got '1'"),
    (checks.number, (True,), TypeError, "f: x must be a number; got True"),
    (checks.number, (math.nan,), ValueError, "f: x must be a finite number; got nan"),
    (checks.number, (10**400, 0), ValueError, "must be a finite number >= 0; got 1000"),
    (checks.number, (2, 0, 1), ValueError, "f: x must be a finite number >= 0 and <= 1; got 2"),
    (checks.f32, (-1, 0.0), ValueError, "f: x must be a finite number >= 0; got -1"),
    (checks.f32, (1e39, 0.0), ValueError, "f: x must be finite in f32; got 1e+39"),
    (checks.whole, (1.0,), TypeError, "f: x must be a whole number; got 1.0"),
    (checks.whole, (0, 1), ValueError, "f: x must be a whole number >= 1; got 0"),
    (checks.whole, (2**63, 1), ValueError, f"f: x must be a whole number >= 1 and <= {2**63 - 1}"),
    (checks.flag, (1,), TypeError, "f: x must be True or False; got 1"),
    (
        checks.choice,
        ("max", ("mean", "sum")),
        ValueError,
        "f: x must be one of mean, sum; got 'max'",
    ),
    (checks.choice, (1, ("mean", "sum")), TypeError, "f: x must be one of mean, sum; got 1"),
    (checks.text, (b"a",), TypeError, "f: x must be a str; got b'a'"),
    (checks.names, (["a", 1],), TypeError, "f: x must be a list of str; got ['a', 1]"),
    (checks.path, (1,), TypeError, "f: x must be a path; got 1"),
    (checks.path, ("a\0b",), ValueError, "f: x must name a file or a folder; got 'a\\x00b'"),
    (checks.path, ("",), ValueError, "f: x must name a file or a folder; got ''"),
    (checks.function, (1, "a -> b"), TypeError, "f: x must be a function (a -> b); got 1"),
    (checks.instance, ("a", int, "cure"), TypeError, "f: x must be a int; got str; cure"),
    (checks.having, ("a", "a number", "real"), TypeError, "f: x must be a number; got 'a'"),
    (checks.having, (int, "a number", "real"), TypeError, "must be a number; got <class 'int'>"),
    (checks.mapping, ([],), TypeError, "f: x must be a dict; got []"),
    (checks.items, ("ab",), TypeError, "f: x must be a list; got 'ab'"),
    (checks.items, (0.9, 2), TypeError, "f: x must be a list or tuple of 2 items; got 0.9"),
    (checks.items, ([1], 2), ValueError, "f: x must have 2 items; got [1]"),
    (checks.array, (["a"],), TypeError, "f: x must hold integers or floats; got <U1 (['a'])"),
    (checks.array, ([[1], [1, 2]],), ShapeError, "f: x must be an array; got ragged lists"),
    (checks.array, ([1], 0), ShapeError, "f: x must be one number; got shape (1,)"),
    (checks.array, ([1], 2), ShapeError, "f: x must have 2 axes; got shape (1,)"),
]


@pytest.mark.parametrize(("check", "arguments", "expected"), ACCEPTED)
def test_good_values_come_back(check, arguments, expected):
    result = check("f", "x", *arguments)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(("check", "arguments", "kind", "message"), REFUSED)
def test_bad_values_raise(check, arguments, kind, message):
    with pytest.raises(kind) as caught:
        check("f", "x", *arguments)
    assert message in str(caught.value)


def test_open_bounds():
    assert checks.number("f", "x", 0.5, above=0.0, below=1.0) == 0.5
    for value in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"f: x must be a finite number > 0 and < 1; got"):
            checks.number("f", "x", value, above=0.0, below=1.0)
    assert checks.number("f", "x", math.inf, finite=False) == math.inf
    for value in (10**400, -(10**400)):
        with pytest.raises(ValueError, match=r"f: x must be a finite number; got"):
            checks.number("f", "x", value, finite=False)


def test_a_completeness_check_names_every_helper():
    tested = {row[0].__name__ for row in ACCEPTED + REFUSED} | {"array", "function"}
    assert tested | {"F32_MAX", "is_iterable", "is_real"} == set(checks.__all__)
