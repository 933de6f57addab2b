# SPDX-License-Identifier: MIT
"""The line of the program that a recorded op names, in modules of one's own and of the package."""

import threading
from pathlib import Path

import pytest

import pyggml as pg
from pyggml import nn
from pyggml.tensors.node import Node, listen

LINES = Path(__file__).read_text().splitlines()


class Inner(nn.Module):
    def __init__(self) -> None:
        self.first, self.second = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.GELU())

    def forward(self, x: pg.Tensor) -> pg.Tensor:
        x = self.first(x)  # line: first
        x = self.second(x)  # line: second
        return x + x  # line: sum


class Outer(nn.Module):
    def __init__(self) -> None:
        self.inner, self.last = Inner(), nn.Linear(2, 1)

    def forward(self, x: pg.Tensor) -> pg.Tensor:
        x = self.inner(x)
        return self.last(x)  # line: last


def lines_of(model: nn.Module) -> list[str]:
    """Return the names of the lines that record, each once, in their order."""
    found: list[Node] = []
    with listen(found.append):
        model(pg.ones((3, 2)))  # line: call
    names = [LINES[n.origin[1] - 1].rpartition("line: ")[2] for n in found if n.buffer is None]
    assert all(n.origin[0] == __file__ for n in found)
    return list(dict.fromkeys(names))


def test_lines_of_modules() -> None:
    assert lines_of(Outer()) == ["first", "second", "sum", "last"]


def test_lines_of_the_packages_modules_are_the_callers() -> None:
    assert lines_of(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))) == ["call"]


def test_a_forward_that_raises_leaves_no_line() -> None:
    model = Outer()
    model.inner.second = nn.Linear(3, 3)
    with pytest.raises(pg.ShapeError):
        model(pg.ones((3, 2)))
    assert lines_of(nn.Linear(2, 2)) == ["call"]


def test_lines_in_another_thread() -> None:
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(lines_of(Outer())))
    thread.start()
    thread.join()
    assert found == [["first", "second", "sum", "last"]]
