# SPDX-License-Identifier: MIT
"""Moves of whole numbers: what f32 would round comes out as it went in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.nn import functional as F

_ODD = 2**24 + 1  # f32 has no such number
X = np.array([[_ODD, -_ODD, 2**31 - 1], [-(2**31), 5, _ODD + 2], [7, 2**30 + 1, -3]], np.int32)
IDS = np.array([[0, 2], [1, 1], [2, 0]])

# Of a tensor, and of an array.
MOVES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "number": (lambda t: t[1], lambda x: x[1]),
    "slice": (lambda t: t[:, 1:], lambda x: x[:, 1:]),
    "steps": (lambda t: t[::2], lambda x: x[::2]),
    "steps of columns": (lambda t: t[:, ::-2], lambda x: x[:, ::-2]),
    "list": (lambda t: t[[2, 0]], lambda x: x[[2, 0]]),
    "list of columns": (lambda t: t[:, [2, 0]], lambda x: x[:, [2, 0]]),
    "lists": (lambda t: t[[0, 1], [2, 0]], lambda x: x[[0, 1], [2, 0]]),
    "mask": (lambda t: t[X > 6], lambda x: x[X > 6]),
    "tensor": (lambda t: t[pg.tensor([1, 1])], lambda x: x[[1, 1]]),
    "flip": (lambda t: pg.flip(t, [0, 1]), lambda x: x[::-1, ::-1]),
    "index_select": (lambda t: pg.index_select(t, 1, [0, 0]), lambda x: x[:, [0, 0]]),
    "gather": (lambda t: pg.gather(t, 1, IDS), lambda x: np.take_along_axis(x, IDS, 1)),
    "gather rows": (lambda t: pg.gather(t, 0, IDS.T), lambda x: np.take_along_axis(x, IDS.T, 0)),
    "embedding": (lambda t: F.embedding(pg.tensor([[2], [0]]), t), lambda x: x[[[2], [0]]]),
    "transpose": (lambda t: t.T.reshape(9), lambda x: x.T.reshape(9)),
    "cat": (lambda t: pg.cat([t, t], 1), lambda x: np.concatenate([x, x], 1)),
    "repeat": (lambda t: t.repeat(2, 1), lambda x: np.tile(x, (2, 1))),
}


@pytest.mark.parametrize(("move", "reference"), MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("made", ["stored", "computed", "compiled"])
def test_no_number_is_rounded(
    move: Callable[..., Any], reference: Callable[..., Any], made: str
) -> None:
    if made == "stored":
        got = move(pg.tensor(X))
    elif made == "computed":
        got = move(pg.cat([pg.tensor(X[:1]), pg.tensor(X[1:])]))
    else:
        got = pg.compile(move)(X)
    assert got.dtype.name == "i32"
    np.testing.assert_array_equal(got.numpy(), reference(X))
