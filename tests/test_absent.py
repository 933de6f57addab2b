# SPDX-License-Identifier: MIT
"""A name of PyTorch's that is not there says what to use instead."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import pyggml as pg
from pyggml import data, nn, optim
from pyggml.absent import INSTEAD
from pyggml.nn import functional, init

PLACES: dict[str, Any] = {
    "x": pg.ones(2), "pg": pg, "nn": nn, "F": functional, "optim": optim, "init": init,
    "data": data, "module": nn.Linear(2, 2),
    "optimizer": optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_every_cure_is_given_and_needed(place: str) -> None:
    for name, cure in INSTEAD[place].items():
        with pytest.raises(AttributeError) as error:
            getattr(PLACES[place], name)
        assert str(error.value) == f"{place}: there is no {place}.{name}; use {cure}"


@pytest.mark.parametrize(
    ("place", "name", "other"),
    [
        ("x", "atan", "tan"),
        ("pg", "acos", "cos"),
        ("x", "fmax", "max"),
        ("nn", "SELU", "ELU"),
        ("nn", "GLU", "GELU"),
        ("optim", "Rprop", "RMSprop"),
    ],
)
def test_no_cure_is_another_function(place: str, name: str, other: str) -> None:
    """A name that is written alike is the cure of a typo, not of another function."""
    with pytest.raises(AttributeError) as error:
        getattr(PLACES[place], name)
    assert f"{place}.{other}" not in str(error.value)


@pytest.mark.parametrize(
    ("place", "name", "cure"),
    [
        ("pg", "argmx", "pg.argmax"),
        ("pg", "softplus", "F.softplus"),
        ("pg", "sort", "x.topk"),
        ("pg", "contiguous", r"x\.contiguous"),
        ("nn", "Liner", "nn.Linear"),
        ("nn", "LSTM", "slow"),
        ("F", "dot", "pg.dot"),
        ("optim", "Adamw", "optim.AdamW"),
        ("module", "train_", "module.train"),
        ("x", "argmx", "x.argmax"),
        ("x", "add_", "copy_"),
        ("pg", "wholly_unknown", r"dir\(pg\)"),
    ],
)
def test_a_name_nearby_or_elsewhere_is_named(place: str, name: str, cure: str) -> None:
    with pytest.raises(AttributeError, match=f"there is no {place}.{name}; use .*{cure}"):
        getattr(PLACES[place], name)


def test_there_are_the_names_that_cures_begin_with() -> None:
    roots = {**PLACES, "ops": pg.ops}
    for place in INSTEAD.values():
        for cure in place.values():
            root, dot, rest = cure.partition(".")
            if root in roots and dot:
                name = "".join(c if c.isalnum() or c == "_" else " " for c in rest).split()[0]
                assert hasattr(roots[root], name), cure


def test_a_property_of_a_module_raises_its_own_error() -> None:
    class Broken(nn.Module):
        @property
        def width(self) -> int:
            return self.inner.size

    with pytest.raises(AttributeError, match=r"module\.inner"):
        _ = Broken().width


def test_asking_whether_a_name_is_there_imports_nothing() -> None:
    code = (
        "import sys, pyggml; hasattr(pyggml, 'Linear'); hasattr(pyggml, '_x');"
        "print('pyggml.nn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
