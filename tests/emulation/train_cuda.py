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
# What of the device says that there is no memory; see emu::memory.
OF_MALLOCS, OF_CUBLAS = 1, 2
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


def adapted(kept: bool = True, dtype: str = "q4_K", words: int = 65) -> Any:
    """A Llama whose matrices are frozen, with adapters on all of them that matter from the start.

    Args:
        kept: else they are what those stand for, in f32.
        dtype: of the matrices.
        words: that it knows.
    """
    import pyggml as pg
    from pyggml import nn
    from pyggml.models import Llama, LlamaConfig

    sizes = {**SIZES, "n_embd": 256, "n_ffn": 256, "n_head": 4, "n_kv_head": 2}
    sizes["vocab_size"] = words
    with nn.init.empty_weights(dtype):
        model = Llama(LlamaConfig(**sizes, attention="flash"))
    rng = np.random.default_rng(2)
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(rng.standard_normal(p.shape).astype(np.float32) * 0.06)
            if not kept:
                model.replace_tensor(p, pg.tensor(p.numpy(), requires_grad=True))
    nn.apply_lora(model, rank=4, targets="all-linear")
    for layer in nn.lora.adapters_of(model).values():
        b = layer.lora_B.weight
        b.copy_(rng.standard_normal(b.shape).astype(np.float32) * 0.05)
    return model


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


def left_to_the_cpu() -> dict[str, Any]:
    """A graph with an op that the device lacks, measured first, as large ones are."""
    import pyggml as pg
    from pyggml import ops
    from pyggml.graph import memory_plan as activations

    rng = np.random.default_rng(3)
    x = rng.standard_normal((8, 8)).astype(np.float32)
    results, large = {}, activations.LARGE_BYTES
    activations.LARGE_BYTES = 0
    try:
        for device in ("cpu", "cuda:0"):
            last = ops.gelu(ops.diag_mask_zero(pg.tensor(x, device=device) * 2.0, 0))
            graph = pg.Graph([last])
            runs = []
            for _ in range(2):
                graph.run()
                runs.append(graph.read(last).tolist())
            results[device] = runs
    finally:
        activations.LARGE_BYTES = large
    return {"ops": graph.fallbacks, "runs": results}


def out_of_memory(refuse: Any) -> dict[str, Any]:
    """Steps for which the device has no memory, and those after them; the first of a process."""
    import pyggml as pg
    from pyggml import optim
    from pyggml.models import GPT2, GPT2Config
    from pyggml.train.step import TrainStep

    ids = np.random.default_rng(0).integers(0, 65, (2, 17)).astype(np.int32)
    batch = (ids[:, :-1].copy(), ids[:, 1:].copy())
    errors, losses = [], {}
    for short in (True, False):
        pg.set_default_device("cuda:0")
        pg.seed(1)
        model = GPT2(GPT2Config(**SIZES, n_head=2))
        step = TrainStep(model, optim.AdamW(model.parameters(), lr=1e-2), precision="bf16")
        found = []
        for number in range(5):
            for kind in (OF_CUBLAS, OF_MALLOCS) if short and number == 0 else ():
                refuse(kind)
                try:
                    step([batch])
                except pg.BackendError as error:
                    errors.append(str(error))
                finally:
                    refuse(0)
            found.append(float(step([batch]).loss))
        losses[short] = found
    pg.set_default_device("cpu")
    return {"errors": errors, "losses": losses[True], "expected": losses[False]}


def main() -> int:
    import pyggml as pg
    from pyggml import lib
    from pyggml.models import GPT2, GPT2Config, Llama, LlamaConfig
    from pyggml.nn.raw_bytes import blocks_of
    from pyggml.ops.attention import computes_flash_attn
    from pyggml.train import step_fallbacks

    if lib.ggml_backend_load(sys.argv[1].encode()) == pg.ffi.NULL:
        print(f"{sys.argv[1]} could not be loaded", file=sys.stderr)
        return 1
    pg.set_threads(1)
    short = out_of_memory(ctypes.CDLL(sys.argv[1]).emu_refuse)
    models = {}
    for attention in ("plain", "flash"):
        gpt2 = GPT2Config(**SIZES, n_head=2, attention=attention, dropout=0.1)
        llama = LlamaConfig(**SIZES, n_head=4, n_kv_head=2, attention=attention)
        models[f"gpt2 {attention}"] = lambda config=gpt2: GPT2(config)
        models[f"llama {attention}"] = lambda config=llama: Llama(config)
    # its logits are large enough for the passes of a GPU
    long = GPT2Config(**{**SIZES, "vocab_size": 1100, "n_layer": 2}, n_head=2, attention="flash")
    many = "gpt2 with many words"
    models[many] = lambda: GPT2(long)
    models["adapters on q4_K"] = adapted
    models["adapters on f16 with many words"] = lambda: adapted(dtype="f16", words=1100)
    found = {}
    for name, make in models.items():
        found[name] = {}
        tf32 = (("cuda:0", "tf32"),) if name == many else ()
        for device, precision in (("cpu", None), ("cuda:0", None), ("cuda:0", "bf16"), *tf32):
            pg.set_default_device(device)
            pg.seed(1)
            found[name][precision or device], left = train(make(), precision)
        found[name]["fallbacks"] = left
    pg.set_default_device("cpu")
    pg.seed(1)
    exact, _ = train(adapted(kept=False), None)
    # after a first run and one that is captured, the graphs of a step are launched as they are
    captured, launched = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL(sys.argv[1]).emu_graph_counts(ctypes.byref(captured), ctypes.byref(launched))
    graphs = {"captured": captured.value, "launched": launched.value}
    steps = step_fallbacks("cuda:0")
    same = moved(models["gpt2 plain"])
    same_adapters = moved(adapted)
    kept = pg.tensor(np.random.default_rng(0).standard_normal((2, 256)), "q4_K", "cpu")
    there_and_back = kept.to("cuda:0").to("cpu")
    flash = {width: computes_flash_attn(pg.device("cuda:0"), width) for width in (8, 64, 256, 288)}
    told = {"models": found, "moved": same, "steps": steps, "graphs": graphs, "flash": flash}
    told |= {"exact": exact, "moved adapters": same_adapters}
    told["left"] = left_to_the_cpu()
    told["short"] = short
    told["copied"] = blocks_of(kept).tolist() == blocks_of(there_and_back).tolist()
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
