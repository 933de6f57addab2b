# SPDX-License-Identifier: MIT
"""Find the devices of this machine, train the same net on each, and get the same result.

    python demos/gpu_neural.py [--plot loss.png]

The code that trains does not know where it runs: tensors are made on the default device, and
graphs run where their tensors are. On a machine without a GPU the CPU is compared with itself, on
one thread and on several. GPUs add in another order: losses agree to some digits, not to the bit.
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
from pyggml.train import TrainStep, format_bytes

parser = argparse.ArgumentParser(description="The same net on every device.")
options = script_options(parser)
STEPS, WIDTH, BATCH = 60, 128, 256
AGREE = 2e-3  # relative difference of the losses, which training makes grow


def table() -> ArrayDataset:
    """A function of eight numbers that a net can learn."""
    rng = np.random.default_rng(options.seed)
    x = rng.uniform(-1.0, 1.0, (4096, 8))
    return ArrayDataset(x, np.sin(3 * x[:, :1]) * x[:, 1:2] + x[:, 2:3] ** 2)


def train(where: str, data: ArrayDataset) -> tuple[list[float], float]:
    """Losses and milliseconds of a step."""
    pg.set_default_device(where)
    pg.seed(options.seed)
    model = nn.Sequential(
        nn.Linear(8, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1)
    )
    assert model.parameters()[0].device.name == where
    step = TrainStep(
        model,
        AdamW(model.parameters(), lr=3e-3),
        loss=lambda net, x, y: ops.sqr(net(x) - y).mean(),
    )
    loader = Loader(data, BATCH, seed=options.seed)
    losses = [step([next(loader)]).loss]  # the first records the graphs
    start = time.perf_counter()
    losses += [step([next(loader)]).loss for _ in range(STEPS - 1)]
    return losses, (time.perf_counter() - start) / (STEPS - 1) * 1e3


print("device     free        description")
for device in pg.devices():
    print(f"{device.name:<9}  {format_bytes(device.memory_free):<10}  {device.description}")
print(f"auto is {pg.device('auto').name}\n")

data = table()
runs = {}
threads = pg.get_threads()
for device in pg.devices():
    if device.kind == "accel":  # a library that helps the CPU; it has no memory of its own
        continue
    if device.kind == "cpu":
        pg.set_threads(1)
        runs["cpu, 1 thread"] = train("cpu", data)
        pg.set_threads(max(2, threads))
        runs[f"cpu, {max(2, threads)} threads"] = train("cpu", data)
    else:
        runs[device.name] = train(device.name, data)
pg.set_default_device("cpu")

reference = np.array(runs["cpu, 1 thread"][0])
worst = 0.0
for name, (losses, ms) in runs.items():
    apart = float(np.abs(np.array(losses) / reference - 1).max())
    worst = max(worst, apart)
    shown = "  ".join(f"{losses[i]:.4f}" for i in (0, 19, 39, STEPS - 1))
    print(f"{name:<15} loss {shown}   apart {apart:.1e}   {ms:.2f} ms/step")

# Tensors of two devices do not meet by accident; they are moved by hand.
other = next((d for d in pg.devices() if d.kind == "gpu"), None)
if other is not None:
    here, there = pg.tensor([1.0, 2.0], device="cpu"), pg.tensor([3.0, 4.0], device=other)
    try:
        here + there
    except pg.BackendError as error:
        print(f"raised: {error}")
    print(f"moved: {(here + pg.tensor(there, device='cpu')).tolist()}")

if options.plot:
    curves = {name: losses for name, (losses, _) in runs.items()}
    title = "the same training on each device"
    plot_curves(options.plot, curves, title=title, log="y", points=list(curves)[1:])
took = time.process_time()  # seconds of CPU time
if not reference[-1] < reference[0] / 3:
    sys.exit(
        f"FAILED: the loss must fall to a third; got {reference[0]:.4f} to {reference[-1]:.4f}"
    )
if not worst < AGREE:
    sys.exit(f"FAILED: the devices' losses must agree to {AGREE}; they are {worst:.1e} apart")
print(f"OK {len(runs)} runs agree to {worst:.1e} < {AGREE} in {took:.1f} s")
