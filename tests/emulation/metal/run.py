# SPDX-License-Identifier: MIT
"""What test_metal.py runs in processes of its own, on the device that GGML_BACKEND_PATH adds.

`cases OP...` prints a line of JSON for each row of the table of ops; `train MODEL...` one for each
model: its losses on the CPU and on the device, and the ops of its step that the device lacks;
`kill` one for each step, and for the error that ends the run;
`add` one for each device, with a gradient that was added to a stored one;
`steps` one for each kind of model of `pyggml devices --ops`, and for steps with other optimizers,
precisions and attention, with what the CPU would compute.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

import pyggml as pg
from pyggml.backend.device import device
from pyggml.backend.library import ffi, lib
from pyggml.data import Batch, TokenDataset
from pyggml.graph import Graph
from pyggml.ops import linear
from pyggml.ops.attention import computes_flash_attn
from pyggml.optim import AdamW, optimizers
from pyggml.train import Callback, StepMetrics, Trainer, step_fallbacks
from pyggml.train.step import TrainStep

VOCAB, SEQ_LEN, STEPS = 33, 40, 2


def cases(names: list[str]) -> None:
    """Forward and gradient of the ops of these names, of f32, against float64."""
    # Masks of the table are made for the default device.
    pg.set_default_device("metal")
    from pyggml.testing.cases import CASES
    from pyggml.testing.check import run_case

    where = device("metal")
    for case in CASES:
        if case.name in names:
            r = run_case(case, "f32", where)
            line = {"case": case.id, "verdict": r.verdict, "forward": r.forward}
            print(json.dumps({**line, "backward": r.backward, "reason": r.reason}), flush=True)


def _lacking(where: Any, seen: set[str]) -> Any:
    """Record which ops of each graph the device lacks, and the scheduler computes elsewhere."""
    before = Graph.__init__

    def init(self: Graph, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        for node in self.headers:
            if not where.supports(node):
                seen.add(ffi.string(lib.ggml_op_desc(node)).decode())

    Graph.__init__ = init  # type: ignore[method-assign]
    return before


def _image_model() -> tuple[Any, Any, Any]:
    from pyggml import nn, ops

    rng = np.random.default_rng(1)

    def weight(*shape: int) -> nn.Parameter:
        return nn.Parameter(pg.tensor((rng.standard_normal(shape) * 0.1).astype(np.float32)))

    class Images(nn.Module):
        def __init__(self) -> None:
            self.first, self.bias = weight(8, 1, 3, 3), weight(1, 8, 1, 1)
            self.second, self.gain = weight(12, 8, 3, 3), weight(1, 12, 1, 1)
            self.head = nn.Linear(48, 10)

        def __call__(self, x: Any) -> Any:
            h = ops.relu(ops.conv_2d(x, self.first, padding=1) + self.bias)
            h = ops.pool_2d(h, 2, kind="max")
            h = ops.silu(ops.group_norm(ops.conv_2d(h, self.second, padding=1), 4) * self.gain)
            h = ops.pool_2d(h, 2, kind="avg")
            return self.head(h.reshape(x.shape[0], 48))

    x = rng.standard_normal((4, 1, 8, 8)).astype(np.float32)
    return Images(), x, rng.integers(0, 10, 4).astype(np.int32)


def _language_model(arch: str, **options: Any) -> tuple[Any, Any, Any]:
    from pyggml.models import build

    ids = np.random.default_rng(0).integers(0, VOCAB, (2, SEQ_LEN)).astype(np.int32)
    size = {"n_layer": 1, "n_head": 2, "n_embd": 64, "context": SEQ_LEN}
    return build(arch, {**size, **options}, vocab_size=VOCAB), ids, ids


MODELS = {
    "gpt2": lambda: _language_model("gpt2", attention="plain", dropout=0.1),
    "gpt2-flash": lambda: _language_model("gpt2", attention="flash"),
    "llama": lambda: _language_model("llama", n_kv_head=1, attention="plain"),
    "llama-flash": lambda: _language_model("llama", n_kv_head=1, attention="flash"),
    "llama-experts": lambda: _language_model("llama", n_expert=4),
    "images": _image_model,
}


def steps(_: list[str]) -> None:
    """What `pyggml devices --ops` tells of this device: its own supports_op is asked."""
    for model, left in step_fallbacks("metal").items():
        print(json.dumps({"model": model, "left": left}), flush=True)
    for name, (arch, options, optimizer, step_options) in _variants().items():
        pg.set_default_device("metal")
        model, x, y = _image_model() if arch == "images" else _language_model(arch, **options)
        step = TrainStep(model, optimizer(model.parameters()), **step_options)
        step.record(Batch(x, y))
        print(json.dumps({"model": name, "left": step.fallbacks}), flush=True)
    for width in (16, 32, 64):
        flash = computes_flash_attn(device("metal"), width)
        print(json.dumps({"width": width, "flash": flash}), flush=True)


def _variants() -> dict[str, tuple[str, dict[str, Any], Any, dict[str, Any]]]:
    """What a step may have besides AdamW in f32: architecture, options, optimizer, the step's."""
    found = {}
    for name, optimizer in optimizers().items():
        clip = {} if name == "lbfgs" else {"clip": 1.0}
        found[f"gpt2, {name}"] = ("gpt2", {"dropout": 0.1}, optimizer, clip)
        found[f"images, {name}"] = ("images", {}, optimizer, clip)
    for precision in ("bf16", "f16"):
        for attention in ("plain", "flash"):
            options = {"attention": attention, "n_kv_head": 1}
            step = {"precision": precision, "clip": 1.0}
            found[f"llama, {precision}, {attention}"] = ("llama", options, AdamW, step)
    return found


def add(_: list[str]) -> None:
    """A gradient of long sums, which the device splits, added twice to a stored one."""
    for where in ("cpu", "metal"):
        pg.set_default_device(where)
        rng = np.random.default_rng(0)
        w = pg.tensor(rng.standard_normal((65, 288)).astype(np.float32), requires_grad=True)
        x = pg.tensor(rng.standard_normal((1153, 288)).astype(np.float32))
        loss, grad = (linear(x, w) ** 2).sum(), pg.zeros((65, 288))
        graph = Graph([loss], loss=loss, grads={w: grad})
        graph.run()
        graph.run()
        print(json.dumps({"device": where, "grad": grad.numpy().ravel().tolist()}), flush=True)


def kill(arguments: list[str]) -> None:
    """A run whose third step ends halfway, as the system ends what keeps a display waiting.

    Arguments: the folder of checkpoints, the graph of the step that ends, whether it has but one.
    """
    folder, n, fused = arguments
    pg.set_default_device("metal")
    pg.seed(0)
    ids = np.random.default_rng(0).integers(0, VOCAB, 400).astype(np.int32)
    fused_update = fused == "fused"
    clip = 0.0 if fused_update else 1.0

    class Kill(Callback):
        def on_step(self, trainer: Trainer, metrics: StepMetrics) -> None:
            print(json.dumps({"step": metrics.step, "loss": metrics.loss}), flush=True)
            if metrics.step == 2:
                # the checkpoint of this step is written after it, and computes nothing
                os.environ["PYGGML_EMULATED_KILL"] = n

    model = _language_model("gpt2", attention="plain")[0]
    optimizer = AdamW(model.parameters(), lr=2e-3, fused_update=fused_update)
    trainer = Trainer(
        model, TokenDataset(ids, SEQ_LEN), None, optimizer, checkpoint_dir=folder,
        callbacks=[Kill()], steps=4, batch_size=2, save_every=1, clip=clip,
    )  # fmt: skip
    for _ in range(2):  # the device is not used again
        try:
            trainer.fit()
        except pg.BackendError as error:
            print(json.dumps({"error": str(error), "last": str(trainer.last_checkpoint)}))


def train(names: list[str]) -> None:
    """Losses of a few steps of AdamW with clipping, from the same seed on both devices."""
    for name in names:
        line: dict[str, Any] = {"model": name}
        for where in ("cpu", "metal"):
            pg.set_default_device(where)
            pg.seed(0)
            lacking: set[str] = set()
            before = _lacking(device(where), lacking)
            model, x, y = MODELS[name]()
            step = TrainStep(model, AdamW(model.parameters(), lr=1e-2), clip=1.0)
            line[where] = [step([(x, y)]).loss for _ in range(STEPS)]
            line["lacking"] = sorted(lacking)
            Graph.__init__ = before  # type: ignore[method-assign]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    programs = {"cases": cases, "train": train, "steps": steps, "add": add, "kill": kill}
    programs[sys.argv[1]](sys.argv[2:])
