# SPDX-License-Identifier: MIT
"""Find two matrices whose product is a given one: optimizers on a problem without data or model.

    python demos/test_opt.py [--plot loss.png]

Given c (M, N), look for a (M, K) and b (K, N) with a·b ≈ c. A matrix of rank K has many such
factors, so the loss can reach zero. A matrix of higher rank has no such factors. Its singular
values give the least possible loss (Eckart and Young 1936), and the optimizer must reach it.
"""

import argparse
import sys
import time

import numpy as np

import pyggml as pg
from pyggml.optim import SGD, AdamW, Lion
from pyggml.recipes import plot_curves, script_options

M, N, K = 24, 16, 4
pg.set_threads(1)  # so small a graph that a second thread would only be waited for
parser = argparse.ArgumentParser(description="Find a and b with a·b ≈ c.")
options = script_options(parser)
rng = np.random.default_rng(options.seed)


def search(c: np.ndarray, make: type, steps: int, lr: float) -> list[float]:
    """Squared errors, summed, at each step of an optimizer."""
    start = np.random.default_rng(1)  # the same beginning for each
    a = pg.tensor(start.normal(0, 0.3, (M, K)).astype(np.float32), requires_grad=True)
    b = pg.tensor(start.normal(0, 0.3, (K, N)).astype(np.float32), requires_grad=True)
    optimizer = make([a, b], lr=lr)
    error = a @ b - pg.tensor(c.astype(np.float32))
    loss = (error * error).sum()
    # The optimizer owns the gradients; the graph adds into them.
    graph = pg.Graph([loss], loss=loss, grads=optimizer.trained())
    found = []
    for i in range(steps):
        optimizer.zero_grad()
        graph.run()
        found.append(graph.read(loss).item())
        optimizer.step(lr=lr * (1.0 - i / steps))  # a rate that falls to nothing
    return found


exact = rng.normal(size=(M, K)) @ rng.normal(size=(K, N))
print(f"c ({M}, {N}) of rank {K}: the loss can be 0")
curves = {}
for make, steps, lr in ((SGD, 1500, 5e-3), (AdamW, 1500, 3e-2), (Lion, 1500, 1e-2)):
    losses = curves[make.__name__] = search(exact, make, steps, lr)
    shown = "  ".join(f"{losses[i]:9.3g}" for i in (0, 49, 199, 499, 999, steps - 1))
    print(f"{make.__name__:<6} lr {lr:g}: {shown}")

noisy = exact + rng.normal(0.0, 0.5, (M, N))
least = float((np.linalg.svd(noisy, compute_uv=False)[K:] ** 2).sum())
reached = search(noisy, AdamW, 1500, 3e-2)[-1]
print(f"with noise, rank {N}: reached {reached:.5f}, least possible {least:.5f}")

if options.plot:
    plot_curves(options.plot, curves, title="|a·b - c|², c of a·b's rank", log="y")
scale = float((exact**2).sum())
worst = max(losses[-1] for losses in curves.values()) / scale
took = time.process_time()  # seconds of CPU time
if not worst < 1e-4:
    sys.exit(f"FAILED: each loss must fall below 1e-4 of c's own square; got {worst:.2e}")
if not reached < 1.001 * least:
    sys.exit(f"FAILED: with noise the least is {least:.5f}; got {reached:.5f}")
print(f"OK loss {worst:.1e} < 1e-4 of c's square, and the least possible with noise, {took:.1f} s")
