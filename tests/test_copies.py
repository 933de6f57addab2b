# SPDX-License-Identifier: MIT
"""Copies and pickles of exceptions and of context managers."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyggml as pg
from pyggml.graph.observers import LossError
from pyggml.tensors.autocast import rounds_operands
from pyggml.train import InterruptGuard, StoppedAtOnce, TrainingInterrupted
from pyggml.train.finite import NonFiniteError

# The arguments of those that are made of more than a message.
ARGUMENTS: dict[type[BaseException], tuple[Any, ...]] = {
    TrainingInterrupted: (3, Path("a"), 15),
    StoppedAtOnce: (2,),
    LossError: (1.0, True),
    NonFiniteError: ("no", True, "inputs"),
}
WAYS: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    *(lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
]


def exceptions() -> Iterator[type[BaseException]]:
    """All exceptions of the package, public or not."""
    seen = set()
    for module in pkgutil.walk_packages(pg.__path__, "pyggml."):
        parts = module.name.split(".")
        # Scripts of their own, and what needs a package that may be missing.
        if "demos" in parts or "__main__" in parts or "cli" in parts or parts[-1] == "worker":
            continue
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and issubclass(each, BaseException) and each not in seen:
                seen.add(each)
                if each.__module__.startswith("pyggml."):
                    yield each


@pytest.mark.parametrize("kind", sorted(exceptions(), key=lambda kind: kind.__name__))
def test_an_exception_survives_a_copy_and_a_pickle(kind: type[BaseException]) -> None:
    own = "__init__" in vars(kind)
    assert own == (kind in ARGUMENTS), "name its arguments above"
    error = kind(*ARGUMENTS.get(kind, ("a message",)))
    error.args = (f"lead: {error}",)  # as `errors.lead` does
    for way in WAYS:
        made = way(error)
        assert type(made) is kind
        assert (str(made), made.args, vars(made)) == (str(error), error.args, vars(error))


def test_a_dropout_stream_survives() -> None:
    stream = pg.DropoutStream(3)
    stream.seek(2)
    with stream:
        wanted = pg.nn.functional.dropout(pg.ones(64), 0.5).numpy()
    for way in WAYS[1:]:
        with way(stream):
            assert (pg.nn.functional.dropout(pg.ones(64), 0.5).numpy() == wanted).all()


def test_an_autocast_survives() -> None:
    for way in WAYS:
        with way(pg.autocast("f16")):
            assert rounds_operands()
    assert not rounds_operands()


def test_a_guard_is_not_copied_deeply() -> None:
    for way in WAYS[1:]:
        with pytest.raises(TypeError, match=r"InterruptGuard: .*; make another one there"):
            way(InterruptGuard())
