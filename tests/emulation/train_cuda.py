# SPDX-License-Identifier: MIT
"""Train small models on the CPU and on the emulated CUDA device; print what was found as JSON.

python -m tests.emulation.train_cuda LIBRARY
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import numpy as np

STEPS = 3
SIZES: dict[str, Any] = {"vocab_size": 65, "context": 16, "n_embd": 64, "n_layer": 1}


def train(model: Any, precision: str | None) -> tuple[list[float], list[str]]:
    """The losses of the first steps, and the ops that the device left to the CPU."""
    from pyggml import optim
    from pyggml.train.step import TrainStep

    rng = np.random.default_rng(0)
    step = TrainStep(model, optim.AdamW(model.parameters(), lr=1e-2), clip=0.5, precision=precision)
    losses = []
    for _ in range(STEPS):
        ids = rng.integers(0, 65, (2, 17)).astype(np.int32)
        losses.append(float(step([(ids[:, :-1].copy(), ids[:, 1:].copy())]).loss))
    return losses, sorted(step.fallbacks)


def moved(make: Any) -> dict[str, Any]:
    """A model that was made and trained on the CPU, goes on on the device, and comes back."""
    import pyggml as pg

    pg.set_default_device("cpu")
    pg.seed(1)
    model = make()
    before = model.state_dict()
    model.to("cuda:0")
    there = {p.device.name for p in model.parameters()}
    same = all(np.array_equal(a, before[name]) for name, a in model.state_dict().items())
    losses, _ = train(model, None)
    after = model.state_dict()
    model.to("cpu")
    same = same and all(np.array_equal(a, after[name]) for name, a in model.state_dict().items())
    return {"devices": sorted(there), "same": same, "losses": losses}


def main() -> int:
    import pyggml as pg
    from pyggml import lib
    from pyggml.models import GPT2, GPT2Config, Llama, LlamaConfig
    from pyggml.ops.attention import computes_flash_attn
    from pyggml.train import step_fallbacks

    if lib.ggml_backend_load(sys.argv[1].encode()) == pg.ffi.NULL:
        print(f"{sys.argv[1]} could not be loaded", file=sys.stderr)
        return 1
    pg.set_threads(1)
    models = {}
    for attention in ("plain", "flash"):
        gpt2 = GPT2Config(**SIZES, n_head=2, attention=attention, dropout=0.1)
        llama = LlamaConfig(**SIZES, n_head=4, n_kv_head=2, attention=attention)
        models[f"gpt2 {attention}"] = lambda config=gpt2: GPT2(config)
        models[f"llama {attention}"] = lambda config=llama: Llama(config)
    found = {}
    for name, make in models.items():
        found[name] = {}
        for device, precision in (("cpu", None), ("cuda:0", None), ("cuda:0", "bf16")):
            pg.set_default_device(device)
            pg.seed(1)
            found[name][precision or device], left = train(make(), precision)
        found[name]["fallbacks"] = left
    # after a first run and one that is captured, the graphs of a step are launched as they are
    captured, launched = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL(sys.argv[1]).emu_graph_counts(ctypes.byref(captured), ctypes.byref(launched))
    graphs = {"captured": captured.value, "launched": launched.value}
    steps = step_fallbacks("cuda:0")
    same = moved(models["gpt2 plain"])
    flash = {width: computes_flash_attn(pg.device("cuda:0"), width) for width in (8, 64, 256, 288)}
    told = {"models": found, "moved": same, "steps": steps, "graphs": graphs, "flash": flash}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
