# SPDX-License-Identifier: MIT
"""llama.cpp's ggml and ours in one process, in either order: both train and generate."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs the xllamacpp wheel"
)

# Prints the losses before and after llama.cpp runs, and the tokens that each of both generates.
SCRIPT = """
import importlib, json, sys
for name in sys.argv[1].split():
    importlib.import_module(name)
sys.path.insert(0, sys.argv[2])
import numpy as np
import pyggml as pg
from pyggml.data import Tokenizer
from pyggml.models import Llama, LlamaConfig, generate
from pyggml.optim import AdamW
from pyggml.train import TrainStep
import llamacpp

text = "one two three four five six seven eight nine ten. " * 40
tokenizer = Tokenizer.train_bpe([text], 280)
ids = np.asarray(tokenizer.encode(text))
pg.seed(0)
pg.set_threads(1)  # others may keep the cores busy
config = LlamaConfig(
    vocab_size=tokenizer.vocab_size, context=64, n_embd=32, n_layer=1, n_head=2, n_kv_head=2
)
model = Llama(config)
optimizer = AdamW(model, lr=1e-2)
step = TrainStep(model, optimizer)
def train(steps):
    for k in range(steps):
        rows = np.stack([ids[(k + i) % 40 :][:33] for i in range(4)])
        result = step([(rows[:, :-1], rows[:, 1:])])
    return result.loss
losses = [train(1), train(60)]
model.save(sys.argv[3], tokenizer)
ours = [int(i) for i in generate(model, ids[:8], 12, temperature=0.0)][-12:]
theirs = llamacpp.post(llamacpp.serve(sys.argv[3]), *llamacpp.complete(ids[:8], 12))["tokens"]
losses.append(train(1))
again = llamacpp.post(llamacpp.serve(sys.argv[3]), *llamacpp.complete(ids[:8], 12))["tokens"]
print("FOUND " + json.dumps([losses, ours, theirs, again]), flush=True)
"""


def run(order: str, folder: Path) -> list:
    """What the script finds with the two packages imported in this order."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, order, str(Path(__file__).parent), str(folder / "m.gguf")],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, f"exit {done.returncode}\n{done.stderr[-3000:]}"
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("FOUND "))


def test_both_orders_give_the_same(tmp_path: Path) -> None:
    found = [run(order, tmp_path) for order in ("pyggml xllamacpp", "xllamacpp pyggml")]
    assert found[0] == found[1]
    losses, ours, theirs, again = found[0]
    assert losses[1] < losses[0] / 2
    assert ours == theirs == again
