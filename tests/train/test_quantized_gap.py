# SPDX-License-Identifier: MIT
"""How much of what rounding costs is left after quantisation-aware training, on real text."""

from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml.models import build
from pyggml.optim import AdamW
from pyggml.train import TrainStep, quantization_aware

TEXT = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare.txt"
CONTEXT = 32
# Width, blocks, batch, steps in f32, and then with rounded weights.
RUNS = {"q4_0": (64, 2, 16, 800, 300), "tq2_0": (256, 1, 8, 250, 120)}


@pytest.fixture(scope="module")
def ids():
    text = np.frombuffer(TEXT.read_bytes(), np.uint8)
    return np.unique(text, return_inverse=True)[1].astype(np.int32)


@pytest.fixture
def one_thread():
    before = pg.get_threads()
    pg.set_threads(1)
    yield
    pg.set_threads(before)


@pytest.mark.slow
@pytest.mark.skipif(not TEXT.exists(), reason="needs ../shared/data/tinyshakespeare.txt")
@pytest.mark.parametrize("mix", RUNS)
def test_at_most_half_of_the_gap_is_left(mix, ids, one_thread):
    """Against the same steps in f32, rounded afterwards; on text that was not trained on."""
    width, blocks, batch, first, then = RUNS[mix]
    train, rest = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    sizes = {"vocab_size": int(ids.max()) + 1, "context": CONTEXT, "n_embd": width}
    sizes |= {"n_layer": blocks, "n_head": 2, "n_ffn": 2 * width}

    def rows(text, count, seed):
        at = np.random.default_rng(seed).integers(0, len(text) - CONTEXT - 1, count)
        found = np.stack([text[a : a + CONTEXT + 1] for a in at])
        return found[:, :-1].copy(), found[:, 1:].copy()

    held = [rows(rest, 64, 10_000 + i) for i in range(12)]

    def loss(model):
        step = TrainStep(model, None)
        return sum(step.loss_sum(each)[0] for each in held) / sum(y.size for _, y in held)

    def learn(model, optimizer, start, stop, rate):
        step = TrainStep(model, optimizer, clip=1.0)
        for i in range(start, stop):
            step([rows(train, batch, i)], lr=rate(i))

    def made(state):
        model = build("llama", sizes)
        model.load_state_dict(state)
        return model, AdamW(model, lr=1e-3)

    pg.seed(0)
    model = build("llama", sizes)
    most = 4e-3 if width < 100 else 2e-3
    learn(
        model, AdamW(model), 0, first, lambda i: most * min(1, (i + 1) / 50) * (1 - 0.7 * i / first)
    )
    base, end = model.state_dict(), first + then

    def slowing(i):
        return 1e-3 * (end - i) / then

    whole, optimizer = made(base)
    learn(whole, optimizer, first, end, slowing)
    exact = loss(whole)
    plain, optimizer = made(whole.state_dict())
    quantization_aware(plain, optimizer, mix, pure=mix == "q4_0")
    gap = loss(plain) - exact
    aware, optimizer = made(base)
    quantization_aware(aware, optimizer, mix, pure=mix == "q4_0")
    learn(aware, optimizer, first, end, slowing)
    left = loss(aware) - exact
    print(f"{mix}: {exact:.4f} in f32, {gap:.4f} more when rounded, {left:.4f} after training")
    assert gap > 0.005
    assert left <= 0.5 * gap
