# SPDX-License-Identifier: MIT
"""The numbers and gradients that PyTorch computes for the calls of `calls.py`.

They lie in torch_numbers.npz, so that the comparisons run without PyTorch;
scripts/gen_torch_numbers.py writes the file.
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pyggml import nn

from .calls import ALIKE, MODULES, OF_MODULES, STEPS

__all__ = [
    "FILE",
    "MODEL",
    "NUMBERS",
    "TRUTH",
    "WHOLE",
    "all_answers",
    "all_numbers",
    "first",
    "known",
    "read",
    "same_weights",
    "weights_of",
    "write",
]

FILE = Path(__file__).with_name("torch_numbers.npz")
MODEL = "nn.Sequential(nn.Linear(4,8),nn.ReLU(),nn.Linear(8,2))"
SHAPES = {
    "x": (2, 3, 4), "y": (2, 3, 4), "p": (2, 3, 4), "m": (3, 4), "n": (4, 5), "v": (4,), "u": (3,),
    "b": (2, 4, 5), "images": (2, 3, 6, 6), "filters": (3, 3, 3, 3), "kernel": (3, 3, 2),
    "heads": (2, 2, 5, 4),
}  # fmt: skip
TRUTH = {"hidden": np.array([[False, False, True], [False, False, False]])}
WHOLE = {"ids": np.array([1, 0, 2]), "places": np.array([[[0, 3]] * 3] * 2)}
# Exact in PyTorch's own f32 comparison of x with itself, so the numbers are apart from whole ones.
_RNG = np.random.default_rng(4)
NUMBERS = {
    name: _RNG.uniform(0.3, 2.5, shape) * (1 if name == "p" else _RNG.choice([-1, 1], shape))
    for name, shape in SHAPES.items()
}
NAMES = {"OrderedDict": OrderedDict}


def weights_of(shape: tuple[int, ...]) -> np.ndarray:
    """Return the gradient of a result."""
    return np.random.default_rng(5).uniform(0.5, 1.5, shape).astype(np.float32)


def same_weights(layer: Any) -> dict[str, np.ndarray]:
    """Return the state that both libraries' layers have, by the names of ours."""
    rng = np.random.default_rng(6)
    state = {name: rng.uniform(0.2, 0.8, a.shape) for name, a in layer.state_dict().items()}
    return {name: array.astype(np.float32) for name, array in state.items()}


def first(value: Any) -> Any:
    """Return the first result of a layer with several."""
    return value[0] if isinstance(value, tuple) else value


def _inputs(torch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    leaves = {
        k: torch.tensor(v.astype(np.float32).astype(np.float64), requires_grad=True)
        for k, v in NUMBERS.items()
    }
    return leaves, {k: torch.tensor(v) for k, v in (WHOLE | TRUTH).items()}


def _with_gradients(torch: Any, value: Any, leaves: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return a value, and the gradients of the leaves that it depends on."""
    found = {"value": value.detach().numpy()}
    if value.requires_grad:
        given = torch.tensor(weights_of(tuple(value.shape)).astype(np.float64))
        (value * given).sum().backward()
        found |= {k: leaf.grad.numpy() for k, leaf in leaves.items() if leaf.grad is not None}
    return found


def _layer(torch: Any, call: str) -> tuple[Any, Any]:
    """Return the layer of pyggml and of PyTorch, with the same weights."""
    ours, theirs = eval(call, {"nn": nn, **NAMES}), eval(call, {"nn": torch.nn, **NAMES}).double()
    state = same_weights(ours)
    tensors = {name: torch.tensor(array.astype(np.float64)) for name, array in state.items()}
    missing = theirs.load_state_dict(tensors, strict=False)
    assert not missing.unexpected_keys
    assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys)
    return ours, theirs


def _of_call(torch: Any, call: str) -> dict[str, np.ndarray]:
    leaves, whole = _inputs(torch)
    value = eval(call, {"T": torch, "F": torch.nn.functional, **leaves, **whole})
    return _with_gradients(torch, value, leaves)


def _of_layer(torch: Any, call: str, given: str) -> dict[str, np.ndarray]:
    leaves, whole = _inputs(torch)
    _, layer = _layer(torch, call)
    value = first(eval(f"layer({given})", {"layer": layer, **leaves, **whole}))
    return _with_gradients(torch, value, leaves | dict(layer.named_parameters()))


def _of_steps(torch: Any, call: str) -> dict[str, np.ndarray]:
    _, model = _layer(torch, MODEL)
    optimizer = eval(call, {"optim": torch.optim, "model": model})
    x = torch.tensor(NUMBERS["x"].astype(np.float32).astype(np.float64))
    for _ in range(3):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


def all_numbers() -> dict[str, dict[str, np.ndarray]]:
    """Compute the numbers with PyTorch, by the kind of the call and its text, and their names."""
    import torch

    found: dict[str, dict[str, np.ndarray]] = {f"call {c}": _of_call(torch, c) for c in ALIKE}
    found |= {f"layer {c} {given}": _of_layer(torch, c, given) for c, given in MODULES}
    found |= {f"steps {call}": _of_steps(torch, call) for call in STEPS}
    return found


def all_answers() -> dict[str, Any]:
    """Call the methods of modules of PyTorch's."""
    import torch

    return {call: eval(call, {"model": _layer(torch, MODEL)[1]}) for call in OF_MODULES}


def write() -> None:
    """Write the file: one array of all numbers, and where each lies in it, as JSON."""
    index: dict[str, dict[str, list[int]]] = {}
    parts = []
    for call, numbers in all_numbers().items():
        index[call] = {name: list(a.shape) for name, a in numbers.items()}
        parts += [np.ravel(a).astype(np.float32) for a in numbers.values()]
    text = json.dumps({"numbers": index, "answers": all_answers()})
    np.savez_compressed(FILE, numbers=np.concatenate(parts), index=np.array(text))


@lru_cache(maxsize=1)
def read() -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Return the numbers by call and name, and the answers of methods by call."""
    with np.load(FILE) as file:
        left, index = file["numbers"], json.loads(str(file["index"]))
    found: dict[str, dict[str, np.ndarray]] = {}
    for call, shapes in index["numbers"].items():
        found[call] = {}
        for name, shape in shapes.items():
            size = math.prod(shape)
            found[call][name], left = left[:size].reshape(shape), left[size:]
    return found, index["answers"]


def known(kind: str, call: str) -> dict[str, np.ndarray]:
    """Return PyTorch's numbers of a call: `value`, and gradients by name.

    Args:
        kind: "call", "layer" or "steps".
        call: its text.
    """
    return read()[0][f"{kind} {call}"]
