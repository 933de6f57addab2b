# SPDX-License-Identifier: MIT
"""Train small models on the CPU and on the emulated CUDA device; print losses and fallbacks, JSON.

python -m tests.emulation.train_cuda LIBRARY
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

STEPS = 3
SIZES: dict[str, Any] = {"vocab_size": 65, "context": 16, "n_embd": 64, "n_layer": 1}


def fallbacks(graph_class: Any, device: Any) -> set[str]:
    """Ops that `device` refuses in graphs made from now on; views don't count."""
    from pyggml import ffi, lib
    from pyggml.order import MOVES

    refused: set[str] = set()
    check = graph_class._check_supported

    def spy(graph: Any) -> None:
        for i in range(lib.ggml_graph_n_nodes(graph._cgraph)):
            node = lib.ggml_graph_node(graph._cgraph, i)
            if node.op not in MOVES and not device.supports(node):
                refused.add(ffi.string(lib.ggml_op_desc(node)).decode())
        check(graph)

    graph_class._check_supported = spy
    return refused


def train(model: Any, precision: str | None) -> list[float]:
    from pyggml import optim
    from pyggml.train.step import TrainStep

    rng = np.random.default_rng(0)
    step = TrainStep(model, optim.AdamW(model.parameters(), lr=1e-2), clip=0.5, precision=precision)
    losses = []
    for _ in range(STEPS):
        ids = rng.integers(0, 65, (2, 17)).astype(np.int32)
        losses.append(float(step([(ids[:, :-1].copy(), ids[:, 1:].copy())]).loss))
    return losses


def main() -> int:
    import pyggml as pg
    from pyggml import graph, lib
    from pyggml.models import GPT2, GPT2Config, Llama, LlamaConfig

    if lib.ggml_backend_load(sys.argv[1].encode()) == pg.ffi.NULL:
        print(f"{sys.argv[1]} could not be loaded", file=sys.stderr)
        return 1
    pg.set_threads(1)
    models = {
        "gpt2": lambda: GPT2(GPT2Config(**SIZES, n_head=2, attention="plain", dropout=0.1)),
        "llama": lambda: Llama(LlamaConfig(**SIZES, n_head=4, n_kv_head=2, attention="plain")),
    }
    found = {}
    refused = fallbacks(graph.Graph, pg.device("cuda:0"))
    for name, make in models.items():
        found[name] = {}
        for device in ("cpu", "cuda:0"):
            refused.clear()
            pg.set_default_device(device)
            pg.seed(1)
            found[name][device] = train(make(), None)
        found[name]["fallbacks"] = sorted(refused)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
