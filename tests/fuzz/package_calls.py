# SPDX-License-Identifier: MIT
"""Random calls of the other packages by their signatures, with one wrong argument.

owners.py makes the objects whose methods are called. It leaves out interfaces, what the trainer
calls, and what reads a folder. Records have no methods: users read what the package made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from draw import ODD, Draw
from owners import MADE, PACKAGES, RNG, TOKENIZER, linear, methods

import pyggml as pg
from pyggml import nn, optim

# Not called: they train, measure, wait for other processes, or change the process or a folder. The
# options of those that train are drawn by tests/recipes/test_odd_options.py, with bases and data.
_LEFT = set(
    "barrier atomic_dir clean_stale finetune fsync_tree grpo init is_launched make_dirs "
    "measure_peaks seed set_threads train_image train_llm".split()
)
_WRONG = (
    *ODD,
    *(range(3), {"a": 1}, {1, 2}, "a\0b", "\ud800", nn, memoryview(b"ab"), iter([1])),
    *(np.array(3), np.zeros((0, 4), "f4"), np.ones((3, 4), "f4"), np.array(["a", "b"])),
    *(np.array([1j]), np.array([1, 2], "M8[s]"), np.array([object(), 1], object)),
)
# What fits an argument of a name, or of a type.
_BY_NAME: dict[str, Callable[[Draw], Any]] = {
    **dict.fromkeys(("model", "module"), lambda d: linear()),
    **dict.fromkeys(("params", "parameters"), lambda d: list(linear().parameters())),
    **dict.fromkeys(("targets", "labels", "ids", "tokens", "items"), lambda d: np.arange(3)),
    **dict.fromkeys(("path", "folder", "file"), lambda d: "none.bin"),
    "optimizer": lambda d: optim.SGD(linear(), lr=0.1),
    "tokenizer": lambda d: TOKENIZER,
    "rng": lambda d: RNG,
    "texts": lambda d: ["ab cd"],
}
_BY_TYPE: dict[str, Callable[[Draw], Any]] = {
    "Tensor": lambda d: pg.tensor(d.array((3, 4))),
    "ndarray": lambda d: d.array((3, 4)),
    "Array": lambda d: d.array((3, 4)),
    "bool": lambda d: d.chance(0.5),
    "int": lambda d: 2,
    "float": lambda d: 0.5,
    "Path": lambda d: "none.bin",
    "str": lambda d: "x",
    "Callable": lambda d: lambda *args: args[0] if args else None,
    "Mapping": lambda d: {},
    "dict": lambda d: {},
}


def _functions() -> list[tuple[str, Any]]:
    """Return the functions and classes with their names."""
    found = []
    for package in PACKAGES:
        for name in package.__all__:
            each = getattr(package, name)
            is_error = inspect.isclass(each) and issubclass(each, BaseException)
            if name not in _LEFT and callable(each) and not is_error:
                found.append((f"{package.__name__}.{name}", each))
    return [(name, fn) for name, fn in found if _signature(fn) is not None]


def _signature(fn: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


_FUNCTIONS, _OWNERS = _functions(), list(MADE)


def _fitting(d: Draw, p: inspect.Parameter) -> Any:
    """Return what mostly fits an argument."""
    if p.default is not p.empty and p.default is not None:
        return p.default
    kind = str(p.annotation)
    by_type = next((make for name, make in _BY_TYPE.items() if name in kind), _BY_TYPE["Tensor"])
    return _BY_NAME.get(p.name, by_type)(d)


def package_call(d: Draw) -> tuple[str, Callable[[], Any], Callable[..., Any]]:
    """A function, class or method with arguments that mostly fit, one of which is wrong."""
    owner = d.pick(*_OWNERS) if d.chance(0.6) else None
    if owner is None:
        name, fn = d.pick(*_FUNCTIONS)
    else:
        method, fn = d.pick(*methods(owner).items())
        name = f"{owner.__name__}.{method}"
    signature = _signature(fn)
    assert signature is not None
    wanted = [p for p in signature.parameters.values() if p.name != "self"]
    wanted = [p for p in wanted if p.default is p.empty or d.chance(0.35)]
    wrong = d.int(0, len(wanted) - 1) if wanted else None
    placed: list[Any] = []
    named: dict[str, Any] = {}
    for i, p in enumerate(wanted):
        value = d.pick(*_WRONG) if i == wrong else _fitting(d, p)
        if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
            placed.append(value)
        elif p.kind != p.VAR_KEYWORD:
            named[p.name] = value

    def run() -> Any:
        called = fn if owner is None else getattr(MADE[owner](), method)
        result = called(*placed, **named)
        if inspect.isgenerator(result):
            result = next(result, None)
        return result if isinstance(result, pg.Tensor) else pg.zeros(1)

    return f"{name} {placed!r:.200} {named!r:.400}", run, lambda got: None
