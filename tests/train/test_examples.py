# SPDX-License-Identifier: MIT
"""The examples in docstrings that need no model and no file."""

from __future__ import annotations

import doctest
import importlib
import math

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, models, optim, train

MODULES = (
    *("checks", "curves", "efficiency", "lengths", "limit", "metrics", "plan", "plot"),
    *("scaler", "scores"),
)
NAMES = {"np": np, "math": math, "tensor": pg.tensor}
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
