# SPDX-License-Identifier: MIT
"""The examples in docstrings that need no model and no file."""

from __future__ import annotations

import doctest
import importlib
import math
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, models, optim, train

MODULES = (
    *("best", "checks", "curves", "efficiency", "finite", "folders", "lengths", "limit", "metrics"),
    *("need", "plan", "plot", "scaler", "scores", "texts"),
)
NAMES = {"np": np, "math": math, "tensor": pg.tensor, "Path": Path}
for package in (data, models, optim, train):
    NAMES |= {name: getattr(package, name) for name in package.__all__}


@pytest.mark.parametrize("name", [*(f"train.{name}" for name in MODULES), "optim.clip"])
def test_examples(name):
    module = importlib.import_module(f"pyggml.{name}")
    names = {**NAMES, **vars(module)}
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for each in found:
        runner.run(each)
    assert runner.tries > 0
    assert runner.failures == 0
