# SPDX-License-Identifier: MIT
"""Random calls of `pyggml.nn.lora`, with NumPy beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from draw import Draw, close, rough

import pyggml as pg
from pyggml import nn

NAMES = (
    *("LoRALinear", "apply_lora", "merge_lora", "remove_lora"),
    *("lora_state_dict", "load_lora_state_dict"),
)
TYPES = ("f32", "f32", "f16", "bf16", "q8_0", "q4_K")


def adapter_call(d: Draw) -> tuple[str, Callable[[], Any], Callable[[np.ndarray], bool | None]]:
    """Adapters put beside layers, used, copied, merged or removed; some arguments are odd."""
    dim, wide = d.pick(2, 32, 256), d.pick(1, 3, 32)
    kind, then = d.pick(*TYPES), d.pick(*NAMES)
    given: dict[str, Any] = {"rank": d.pick(1, 2, 5), "alpha": d.pick(1.0, 16), "dropout": 0.0}
    given["targets"] = d.pick("all-linear", ("0",), ["0", "1"], "*")
    given["use_rslora"], given["use_dora"] = d.chance(0.5), d.chance(0.3)
    given["init_lora_weights"] = d.pick(True, False, "gaussian", "pissa", "loftq")
    for name in given:
        if d.chance(0.06):
            given[name] = d.odd()
    text = f"{then} {kind} dim={dim} wide={wide} {given!r}"
    x, values = d.tensor((d.pick(1, 7), dim), "f32")
    kept: dict[str, Any] = {}

    def run() -> Any:
        model = nn.Sequential(nn.Linear(dim, wide), nn.Linear(wide, 4))
        if kind != "f32":
            model[0].weight = pg.tensor(model[0].weight.numpy(), kind)
        if then == "LoRALinear":
            others = ("targets", "init_lora_weights")
            options = {name: value for name, value in given.items() if name not in others}
            first = nn.LoRALinear(d.odd() if d.chance(0.1) else model[0], **options)
            model = nn.Sequential(first, model[1])
        else:
            nn.apply_lora(d.odd() if d.chance(0.05) else model, **given)
        rng = np.random.default_rng(0)
        for layer in nn.lora.adapters_of(model).values():
            b = layer.lora_B.weight
            b.copy_(rng.standard_normal(b.shape).astype(np.float32))
        kept["y"] = expected(model, values)
        if then == "merge_lora":
            nn.merge_lora(model, d.pick(None, "f32", "f32", "q8_0", d.odd()))
        elif then == "remove_lora":
            nn.remove_lora(model)
            kept["y"] = expected(model, values)
        elif then in ("lora_state_dict", "load_lora_state_dict"):
            state: Any = nn.lora_state_dict(model)
            if d.chance(0.3):
                state[d.pick(*state)] = d.odd()
            nn.load_lora_state_dict(model, d.odd() if d.chance(0.1) else state)
        return model(x)

    def check(got: np.ndarray) -> bool | None:
        exact = then in ("LoRALinear", "apply_lora", "remove_lora")
        if kind != "f32" or not exact or given["dropout"] != 0.0 or rough(values):
            return None
        return close(got, kept["y"], True)

    return text, run, check


def expected(model: Any, x: np.ndarray) -> np.ndarray:
    """What layers give, in float64; adapters are in their effective weights."""
    for layer in model:
        weight = layer.weight.numpy().astype(np.float64)
        if isinstance(layer, nn.LoRALinear):
            weight = weight + layer.delta()
        with np.errstate(all="ignore"):
            x = x.astype(np.float64) @ weight.T + layer.bias.numpy()
    return x


CALLS = (adapter_call,)
