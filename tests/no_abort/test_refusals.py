# SPDX-License-Identifier: MIT
"""A wrong argument is refused by a check that names it, never by whatever happens to fail.

A refusal is one by accident when its innermost line is no `raise` of pyggml.
"""

from __future__ import annotations

import copy
import importlib
import linecache
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import TokenDataset, Tokenizer
from pyggml.io import save_safetensors, write_gguf
from pyggml.models import build, generate
from pyggml.nn import init
from pyggml.optim import EMA, SGD
from pyggml.train import TrainStep

FOLDER = str(Path(pg.__file__).parent)
NAN, INF = float("nan"), float("inf")
ODD: list[Any] = [
    *(-1, 0, 1, 3, -(2**31), 2**31, 2**63, 2**70, -0.5, 0.5, 1e-30, 1e39, 1e300, NAN, INF, -INF),
    *(None, True, False, "", "x", "f32", "\udce9", b"x", (), (1, 2), [0, 1], [], {}, {1: 2}),
    *(
        (1, "a"),
        ((1, 2), (3, 4)),
        (-1, -2),
        {"a": 1},
        {"a": None},
        {"": np.ones(2)},
        {"a": [[1], 2]},
    ),
    *(slice(None), Ellipsis, 1j, np.float32(2), np.int64(3), np.array([1, 2]), np.float32([NAN])),
    *(np.array([[0, NAN, 1]]), np.array([[0.0, 1.0]]), np.array([[INF]])),
    *(np.array(["a"]), np.array(None), object, object(), len, iter([1]), range(3), {1, 2}),
]


def by_accident(error: BaseException) -> str | None:
    """The line of an exception that no check raised, or None."""
    if isinstance(error, OSError):
        return None  # the operating system's word on a path
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    if last.filename.startswith(FOLDER) and line.startswith("raise"):
        return None
    return f"{last.filename}:{last.lineno}: {line}: {type(error).__name__}: {error}"


def ids() -> pg.Tensor:
    return pg.tensor(np.zeros((2, 3), np.int32))


def x() -> pg.Tensor:
    return pg.tensor(np.ones((2, 4), np.float32))


def first(block: Any) -> Callable[..., Any]:
    return lambda *arguments: block(*arguments).numpy()


def initialiser(make: Any) -> Callable[..., Any]:
    return lambda *arguments: make(*arguments[:-1])(arguments[-1])


def double() -> pg.Tensor:
    return x() * 2


def checkpoint(fn: Any) -> pg.Tensor:
    """What a function that can be called raises is its own matter."""
    return pg.checkpoint(double if callable(fn) else fn)


ROUTED: list[Any] = []
_ = nn.MixtureOfExperts(4, 8, experts=3, used=2)(x(), ROUTED)


def step(batches: Any) -> pg.Tensor:
    return pg.tensor(TrainStep(MODEL, SGD(MODEL, lr=0.1))(batches).loss)


MODEL = build("gpt2", {"n_layer": 1, "n_head": 1, "n_embd": 8, "context": 8}, vocab_size=7)
TOKENIZER = Tokenizer.chars(["ab"])
CALLS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "nn.balance_loss": (nn.balance_loss, [ROUTED]),
    "pg.checkpoint": (checkpoint, [double]),
    "zeros_group": (pg.zeros_group, [[((2, 3), "f32")], "cpu"]),
    "write_gguf": (write_gguf, ["a.gguf", {"general.architecture": "x"}, {"a": np.ones(3)}]),
    "save_safetensors": (save_safetensors, ["a.safetensors", {"a": np.ones(3)}, {"b": "c"}, 100]),
    "Embedding": (first(nn.Embedding(5, 8)), [ids()]),
    "model": (first(MODEL), [ids()]),
    "get_rows": (first(pg.ops.get_rows), [x(), pg.tensor(np.zeros(3, np.int32))]),
    "cross_entropy": (first(nn.functional.cross_entropy), [x(), pg.tensor(np.zeros(2, np.int32))]),
    "generate": (lambda given: generate(MODEL, given, 2), [[1, 2]]),
    "TrainStep": (lambda given: step([(given, given)]), [np.zeros((2, 3), np.int32)]),
    "TokenDataset": (TokenDataset, [np.arange(20), 4]),
    "decode": (TOKENIZER.decode, [[1, 2]]),
    "init.constant": (initialiser(init.constant), [0.5, (2, 3)]),
    "init.normal": (initialiser(init.normal), [0.1, 0.0, (2, 3)]),
    "init.uniform": (initialiser(init.uniform), [0.1, 0.5, (2, 3)]),
    "init.xavier_uniform": (initialiser(init.xavier_uniform), [1.0, (2, 3)]),
    "init.xavier_normal": (initialiser(init.xavier_normal), [1.0, (2, 3)]),
    "init.kaiming_uniform": (initialiser(init.kaiming_uniform), [1.0, (2, 3)]),
    "init.kaiming_normal": (initialiser(init.kaiming_normal), [1.0, (2, 3)]),
    "init.gpt2": (initialiser(init.gpt2), [3, True, (2, 3)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_refused_by_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    # Shapes of gigabytes count as too much.
    device = importlib.import_module("pyggml.backend.device")
    monkeypatch.setattr(device, "available_bytes", lambda: 2**26)
    call, arguments = CALLS[name]
    call(*arguments)
    wrong = []
    for place in range(len(arguments)):
        for odd in ODD:
            given = [odd if n == place else each for n, each in enumerate(arguments)]
            try:
                call(*given)
            except Exception as error:  # noqa: BLE001 (any kind, by accident or not)
                line = by_accident(error)
                if line is not None:
                    wrong.append((place, repr(odd)[:40], line))
    assert wrong == []


OWNERS: dict[str, Callable[[], Any]] = {
    "Graph": lambda: pg.Graph([x() * 2]),
    "Optimizer": lambda: SGD(nn.Linear(2, 2), lr=0.1),
    "EMA": lambda: EMA(nn.Linear(2, 2), 0.9),
    "Buffer": lambda: x().buffer,
    "Node": lambda: x().node,
}


@pytest.mark.parametrize("name", OWNERS)
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_has_no_copy_says_what_to_do(name: str, make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"; (make another|copy (the|its) tensor)") as caught:
        make(OWNERS[name]())
    assert by_accident(caught.value) is None


def test_devices_and_compiled_functions_are_copied() -> None:
    cpu = pg.device("cpu")
    assert copy.deepcopy(cpu) is cpu
    assert pickle.loads(pickle.dumps(cpu)) is cpu
    layer = nn.Linear(4, 2)
    compiled = pg.compile(layer)
    before = compiled(x()).numpy()
    other = copy.deepcopy(compiled)
    layer.weight.copy_(np.zeros((2, 4), np.float32))
    np.testing.assert_array_equal(other(x()).numpy(), before)
    assert not (compiled(x()).numpy() == before).all()
