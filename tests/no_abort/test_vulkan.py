# SPDX-License-Identifier: MIT
"""What ended the process on a Vulkan device; see docs/internals/gpu.md for a build that has one."""

from __future__ import annotations

import pytest

import pyggml as pg

from .programs import script

pytestmark = pytest.mark.skipif(
    not any(d.name.startswith("vulkan") for d in pg.devices()), reason="no Vulkan device is here"
)


def test_models_come_and_go() -> None:
    """Lavapipe followed descriptors of freed buffers: in the first of them, or in the second."""
    script("""
import gc
from pyggml import nn, optim
pg.set_default_device("vulkan")
for seed in range(2):
    pg.seed(seed)
    model = nn.Sequential(nn.Linear(20 + seed, 50), nn.ReLU(), nn.Linear(50, 7))
    x = pg.tensor(np.random.default_rng(0).random((33, 20 + seed), np.float32))
    y = pg.tensor(np.random.default_rng(1).random((33, 7), np.float32))
    opt = optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    del model, opt, x, y, loss
    gc.collect()
""")


def test_threads_start_the_device() -> None:
    """A second thread was given a device that was not made yet."""
    script("""
done = []

def work():
    for _ in range(5):
        t = pg.tensor(big, device="vulkan")
        done.append(np.allclose((t * 2.0).numpy(), big * 2.0))

pg.devices()
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert done == [True] * 20, done
""")
