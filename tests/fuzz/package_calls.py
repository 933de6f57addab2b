# SPDX-License-Identifier: MIT
"""Random calls of the other packages by their signatures, with one wrong argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from draw import ODD, Draw

import pyggml as pg
from pyggml import data, debug, distributed, io, models, nn, optim, recipes, train

# Not called: they train, measure, wait for other processes, or change the process or a folder.
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
_TOKENIZER = data.Tokenizer.chars(["hello world ab cd x"])


def _linear() -> nn.Module:
    return nn.Linear(4, 4)


def _rows() -> data.ArrayDataset:
    return data.ArrayDataset(np.ones((5, 4), np.float32), np.zeros(5, np.int32))


def _gpt2() -> models.GPT2:
    sizes = {"vocab_size": 8, "context": 4, "n_layer": 1, "n_head": 1, "n_embd": 4}
    return models.GPT2(models.GPT2Config(**sizes))


_OWNERS: dict[type, Callable[[], Any]] = {
    pg.Graph: lambda: pg.Graph([pg.ones((3, 4)) * 2]),
    nn.Linear: _linear,
    nn.Sequential: lambda: nn.Sequential(_linear(), nn.ReLU()),
    nn.ModuleDict: lambda: nn.ModuleDict({"a": _linear()}),
    optim.AdamW: lambda: optim.AdamW(_linear(), lr=0.1),
    optim.EMA: lambda: optim.EMA(_linear(), decay=0.5),
    optim.ReduceOnPlateau: lambda: optim.ReduceOnPlateau(optim.schedules.constant(0.1)),
    data.Tokenizer: lambda: _TOKENIZER,
    data.ArrayDataset: _rows,
    data.Loader: lambda: data.Loader(_rows(), 2),
    data.ArrayImages: lambda: data.ArrayImages(np.zeros((3, 8, 8), np.uint8), [0, 1, 0]),
    models.GPT2: _gpt2,
    train.GradScaler: train.GradScaler,
}
# What fits an argument of a name, or of a type.
_BY_NAME: dict[str, Callable[[Draw], Any]] = {
    **dict.fromkeys(("model", "module"), lambda d: _linear()),
    **dict.fromkeys(("params", "parameters"), lambda d: list(_linear().parameters())),
    **dict.fromkeys(("targets", "labels", "ids", "tokens", "items"), lambda d: np.arange(3)),
    **dict.fromkeys(("path", "folder", "file"), lambda d: "none.bin"),
    "optimizer": lambda d: optim.SGD(_linear(), lr=0.1),
    "tokenizer": lambda d: _TOKENIZER,
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


def _called() -> list[tuple[str, Any, type | None]]:
    """Return the functions, classes and methods with their names and owners."""
    found: list[tuple[str, Any, type | None]] = []
    for package in (data, debug, distributed, io, models, nn, optim, recipes, train, pg):
        for name in package.__all__:
            each = getattr(package, name)
            is_error = inspect.isclass(each) and issubclass(each, BaseException)
            if name not in _LEFT and callable(each) and not is_error:
                found.append((f"{package.__name__}.{name}", each, None))
    for owner in _OWNERS:
        methods = inspect.getmembers(owner, inspect.isfunction)
        names = [name for name, _ in methods if not name.startswith("_")]
        found += [(f"{owner.__name__}.{name}", getattr(owner, name), owner) for name in names]
    return [(name, fn, owner) for name, fn, owner in found if _signature(fn) is not None]


def _signature(fn: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


_CALLED = _called()


def _fitting(d: Draw, p: inspect.Parameter) -> Any:
    """Return what mostly fits an argument."""
    if p.default is not p.empty and p.default is not None:
        return p.default
    kind = str(p.annotation)
    by_type = next((make for name, make in _BY_TYPE.items() if name in kind), _BY_TYPE["Tensor"])
    return _BY_NAME.get(p.name, by_type)(d)


def package_call(d: Draw) -> tuple[str, Callable[[], Any], Callable[..., Any]]:
    """A function, class or method with arguments that mostly fit, one of which is wrong."""
    name, fn, owner = d.pick(*_CALLED)
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
        own = [] if owner is None else [_OWNERS[owner]()]
        try:
            result = fn(*own, *placed, **named)
        except (OSError, ImportError):
            result = None  # a file that is not there, a package that is left out
        return result if isinstance(result, pg.Tensor) else pg.zeros(1)

    return f"{name} {placed!r:.200} {named!r:.400}", run, lambda got: None
