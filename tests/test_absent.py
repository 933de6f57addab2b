# SPDX-License-Identifier: MIT
"""Names of PyTorch's that a module lacks: the error says what to use, and that is there."""

from __future__ import annotations

import re
from importlib import import_module

import numpy as np
import pytest

import pyggml as pg
from pyggml.absent import INSTEAD

NAMES = [(module, name) for module, names in INSTEAD.items() for name in names]
SHORT = {"nn": pg.nn, "F": pg.nn.functional, "optim": pg.optim, "pg": pg, "np": np}


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_the_cure_is_told_and_is_there(module, name):
    with pytest.raises(AttributeError, match="; use ") as caught:
        getattr(import_module(module), name)
    cure = str(caught.value).partition("; use ")[2]
    for start, path in re.findall(r"\b(pg|nn|F|optim|np)((?:\.\w+)+)", cure):
        found = SHORT[start]
        for part in path.strip(".").split("."):
            found = getattr(found, part)
    for method in re.findall(r"\bx\.(\w+)\(", cure):
        assert hasattr(pg.Tensor, method), method


def test_the_nearest_name_is_told():
    with pytest.raises(AttributeError, match=r"did you mean cross_entropy\?"):
        pg.nn.functional.cross_entropi  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute .xyz.$"):
        pg.xyz  # noqa: B018
    assert not hasattr(pg, "__wrapped__")
