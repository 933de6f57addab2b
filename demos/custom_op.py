# SPDX-License-Identifier: MIT
"""Define functions with a gradient of your own.

    python demos/custom_op.py [--plot loss.png]

The gradient of a composed function follows from its ops; `pyggml.custom_function` replaces it.
Forward and backward are both recorded as ops, so no Python runs in a step. The demo has three uses:
a gradient that is right where the composed one is NaN, a function that saves memory, and a gradient
for the sign function, whose own is zero, in a net that sends bits.
"""

import argparse
import sys
import time

import numpy as np

import pyggml as pg
from pyggml import nn, ops
from pyggml.data import ArrayDataset, Loader
from pyggml.optim import AdamW
from pyggml.recipes import plot_curves, script_options
from pyggml.train import TrainStep

parser = argparse.ArgumentParser(description="Functions with a gradient of one's own.")
options = script_options(parser)
pg.set_threads(1)  # so small a model that a second thread would only be waited for

# 1. A gradient that is finite where the chain rule is not. |x| = sqrt(x·x) has the slope x / |x|,
#    which is 0/0 at the origin; we say 0 there.
naive = pg.value_and_grad(lambda x: ops.sqrt(ops.sqr(x)).sum())
magnitude = pg.custom_function(lambda x: ops.sqrt(ops.sqr(x)), lambda grad, y, x: grad * ops.sgn(x))
safe = pg.value_and_grad(lambda x: magnitude(x).sum())
x = np.array([-2.0, 0.0, 3.0], np.float32)
print(f"d|x|/dx at {x.tolist()}: composed {naive(x)[1].tolist()}, own {safe(x)[1].tolist()}")
if safe(x)[1].tolist() != [-1.0, 0.0, 1.0]:
    sys.exit("FAILED: the gradient of |x| must be -1, 0, 1")

# 2. A gradient made from the result alone: tanh' = 1 - tanh². Differences agree, or check_grads
#    raises. It must never be left out: a wrong gradient trains, only worse.
own_tanh = pg.custom_function(ops.tanh, lambda grad, y, x: grad * (1.0 - y * y))
error = pg.check_grads(own_tanh, np.linspace(-2, 2, 12))
product = pg.custom_function(  # several arguments: as many gradients
    lambda a, b: a @ b, lambda grad, y, a, b: (grad @ b.T, a.T @ grad)
)
rng = np.random.default_rng(options.seed)
error = max(error, pg.check_grads(product, rng.normal(size=(3, 4)), rng.normal(size=(4, 2))))
print(f"tanh and a product against central differences: {error:.1e}")

# 3. No gradient at all: sign(x) is flat, and nothing below it would learn. The straight-through
#    estimator (Bengio et al. 2013, arXiv:1308.3432) lets the gradient pass as if the function were
#    x, but only where |x| < 1.
sign = pg.custom_function(
    lambda x: ops.sgn(x + 1e-8), lambda grad, y, x: grad * ops.step(1.0 - ops.sqr(x))
)


class Binary(nn.Module):
    """A net that sends eight bits from its encoder to its decoder."""

    def __init__(self, binarise: object) -> None:
        self.encoder = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 2))
        self.binarise = binarise

    def forward(self, x: pg.Tensor) -> pg.Tensor:
        return self.decoder(self.binarise(self.encoder(x)))


points = rng.uniform(-1, 1, (1000, 2))
ring = ArrayDataset(points, (np.abs(np.linalg.norm(points, axis=1) - 0.6) < 0.2).astype(np.int32))
curves, right = {}, {}
for name, binarise in (("flat sign", lambda x: ops.sgn(x + 1e-8)), ("straight-through", sign)):
    pg.seed(options.seed)
    model = Binary(binarise)
    step = TrainStep(model, AdamW(model.parameters()))
    loader = Loader(ring, 100, seed=options.seed)
    curves[name] = [step([next(loader)], lr=5e-3 * (1 - i / 600)).loss for i in range(600)]
    right[name] = float((step.logits((ring.x, ring.y)).argmax(axis=1) == ring.y).mean())
    shown = "  ".join(f"{np.mean(curves[name][i : i + 20]):.3f}" for i in range(0, 600, 116))
    print(f"{name:<17} loss {shown}  right {right[name]:.1%}")

if options.plot:
    plot_curves(options.plot, curves, title="eight bits between encoder and decoder", smoothed=True)
got = right["straight-through"]
took = time.process_time()  # seconds of CPU time
if not (got > 0.93 and got > right["flat sign"]):
    sys.exit(
        f"FAILED: with the gradient more than 93% must be right, and more than without; {right}"
    )
print(f"OK {got:.1%} right > 93%, {right['flat sign']:.1%} without the gradient, in {took:.1f} s")
