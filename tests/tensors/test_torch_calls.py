# SPDX-License-Identifier: MIT
"""PyTorch's calls give PyTorch's numbers and gradients, which lie in torch_numbers.npz."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.nn import functional

from .calls import ALIKE, MODULES, OF_MODULES, STEPS
from .theirs import NUMBERS, TRUTH, WHOLE, all_answers, all_numbers, known, read, weights_of

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "pytorch.md"


@pytest.mark.parametrize("call", ALIKE)
def test_the_same_call_gives_the_same(call: str) -> None:
    ours: dict[str, Any] = {k: pg.tensor(v, "f32", requires_grad=True) for k, v in NUMBERS.items()}
    whole = {k: pg.tensor(v) for k, v in (WHOLE | TRUTH).items()}
    got = eval(call, {"T": pg, "F": functional, **ours, **whole})
    want = dict(known("call", call))
    value = want.pop("value")
    assert got.shape == value.shape
    np.testing.assert_allclose(got.numpy(), value, rtol=2e-5, atol=2e-6)
    if not want:  # PyTorch has no gradient: of comparisons, places and what is not made of a leaf
        assert not got.requires_grad
        return
    (got * pg.tensor(weights_of(got.shape))).sum().backward()
    for name, grad in want.items():
        assert ours[name].grad is not None, name
        np.testing.assert_allclose(
            ours[name].grad.numpy(), grad, rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_the_numbers_are_pytorchs() -> None:
    pytest.importorskip("torch")
    numbers, answers = read()
    computed = all_numbers()
    assert list(numbers) == list(computed), "run scripts/gen_torch_numbers.py"
    for call, found in computed.items():
        for name, array in found.items():
            np.testing.assert_allclose(numbers[call][name], array, 1e-6, 1e-7, err_msg=call)
    assert answers == json.loads(json.dumps(all_answers()))


def test_the_page_tells_how_many() -> None:
    assert len(ALIKE) == len(set(ALIKE))
    assert len(MODULES) == len(set(MODULES))
    text = PAGE.read_text("utf-8")
    found = re.search(
        r"(\d+) calls, (\d+) layers, (\d+) calls of methods .* (\d+) optimizers", text
    )
    assert found is not None
    assert [int(n) for n in found.groups()] == [len(t) for t in (ALIKE, MODULES, OF_MODULES, STEPS)]
