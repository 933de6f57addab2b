# SPDX-License-Identifier: MIT
"""A baby Llama learns to continue waves: Adam and L-BFGS side by side, then a new wave by LoRA.

    python demos/baby_llama.py [--plot waves.png]

Each value from -1 to 1 becomes one of 32 tokens, so a sine wave becomes a text. From half a period,
the model draws the rest, token by token. Adam takes many cheap steps in small batches. L-BFGS takes
few steps, always on the same data; each is a line search in a direction that uses an estimate of
the curvature. Then the weights are frozen, and small matrices beside them learn another wave:
low-rank adaptation (Hu et al. 2021, arXiv:2106.09685).
"""

import argparse
import sys
import time

import numpy as np

import pyggml as pg
from pyggml import nn
from pyggml.models import Llama, LlamaConfig, generate
from pyggml.optim import LBFGS, AdamW, Optimizer
from pyggml.recipes import plot_curves, script_options
from pyggml.train import TrainStep

parser = argparse.ArgumentParser(description="A baby Llama learns waves.")
options = script_options(parser, plot="the waves")
LEVELS, LENGTH, PERIOD, RANK = 32, 48, 24, 2
WORK, ERROR = 180, 0.1  # passes forth and back; the bar
pg.set_threads(1)  # so small a model that a second thread would only be waited for


def sine(t: np.ndarray) -> np.ndarray:
    return np.sin(2 * np.pi * t / PERIOD)


def saw(t: np.ndarray) -> np.ndarray:
    return 2 * ((t / PERIOD) % 1.0) - 1


def tokens(values: np.ndarray) -> np.ndarray:
    return np.rint((values + 1) / 2 * (LEVELS - 1)).astype(np.int32)


def batch(wave: object, seed: int, count: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Windows of a wave from random phases, and each token's successor."""
    start = np.random.default_rng(seed).uniform(0, PERIOD, (count, 1))
    ids = tokens(wave(start + np.arange(LENGTH + 1)))
    return ids[:, :-1], ids[:, 1:]


def train(model: Llama, optimizer: Optimizer, wave: object, lr: float) -> list[float]:
    """Losses, one for each forward and backward pass that was spent."""
    step, losses = TrainStep(model, optimizer), []
    searches = isinstance(optimizer, LBFGS)  # and compares losses: always of the same data
    while len(losses) < WORK:
        before = optimizer.evaluations if searches else 0
        loss = step([batch(wave, 0 if searches else len(losses))], lr=lr).loss
        losses += [loss] * (optimizer.evaluations - before if searches else 1)
    return losses[:WORK]


def draw(model: Llama, wave: object) -> tuple[np.ndarray, np.ndarray, float]:
    """A wave, what the model makes of its first half period, and the mean distance."""
    t = np.arange(2 * PERIOD)
    given = PERIOD // 2
    added = generate(model, tokens(wave(t[:given])), len(t) - given, temperature=0)
    drawn = np.concatenate([tokens(wave(t[:given])), added]) / (LEVELS - 1) * 2 - 1
    return wave(t), drawn, float(np.abs(drawn - wave(t))[given:].mean())


class LoRA(nn.Module):
    """A frozen linear layer, and a low-rank product beside it that begins at zero."""

    def __init__(self, base: nn.Linear) -> None:
        self.base = base
        out, inputs = base.weight.shape
        self.down = nn.Parameter(
            np.random.default_rng(options.seed).normal(0, inputs**-0.5, (RANK, inputs))
        )
        self.up = nn.Parameter(np.zeros((out, RANK)))

    def forward(self, x: pg.Tensor) -> pg.Tensor:
        return self.base(x) + pg.ops.linear(pg.ops.linear(x, self.down), self.up)


curves, models, errors = {}, {}, {}
for name, kind, lr in (("Adam", AdamW, 4e-3), ("L-BFGS", LBFGS, 1.0)):
    pg.seed(options.seed)  # the same weights to begin with
    models[name] = Llama(LlamaConfig(LEVELS, 96, n_embd=32, n_layer=2, n_head=2, n_ffn=64))
    curves[name] = train(models[name], kind(models[name].parameters()), sine, lr)
    *_, errors[name] = draw(models[name], sine)
    shown = "  ".join(f"{curves[name][i]:.3f}" for i in range(0, WORK, WORK // 6))
    print(
        f"{name:<7} loss {shown}  {curves[name][-1]:.3f}  distance of its wave {errors[name]:.3f}"
    )

model = models["Adam"].freeze()
*_, before = draw(model, saw)
for _, module in list(model.named_modules()):
    for child, layer in list(module.named_children()):
        if isinstance(layer, nn.Linear):
            setattr(module, child, LoRA(layer))
trained, every = model.num_parameters(trainable_only=True), model.num_parameters()
train(model, AdamW([p for p in model.parameters() if p.requires_grad]), saw, lr=1e-2)
truth, drawn, errors["LoRA"] = draw(model, saw)
print(
    f"LoRA    trains {trained:,} of {every:,}: distance {before:.3f} before, {errors['LoRA']:.3f}"
)

if options.plot:
    true, waved, _ = draw(models["L-BFGS"], sine)
    pictures = {"sine": true, "drawn": waved, "saw": truth + 3, "drawn after LoRA": drawn + 3}
    points, title = ["drawn", "drawn after LoRA"], "a baby Llama's waves"
    plot_curves(options.plot, pictures, title=title, x="time", y="value", points=points)
took = time.process_time()  # seconds of CPU time
if not max(errors.values()) < min(ERROR, before / 2):
    sys.exit(f"FAILED: all waves within {ERROR}, LoRA's of {before:.3f} halved; got {errors}")
print(f"OK waves within {max(errors.values()):.3f} < {ERROR} on average in {took:.1f} s")
