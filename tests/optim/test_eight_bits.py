# SPDX-License-Identifier: MIT
"""AdamW8bit: what the blocks keep, and that it trains as AdamW does."""

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data.text.files import embedded_text
from pyggml.models import GPT2, GPT2Config
from pyggml.optim import AdamW, AdamW8bit, param_groups, schedules
from pyggml.train import TrainStep

UNIT = 2.0**12


def moments(optimizer):
    """The moments that the blocks hold, in float64."""
    (kinds,) = optimizer.state
    m, v, rest = (kinds[k].numpy().astype(np.float64) for k in ("m", "v", "v_rest"))
    return m * np.abs(m) / UNIT**2, ((v + rest) / UNIT) ** 4


def levels(root):
    """The step from one number to the next in each element's block of 32."""
    blocks = np.abs(root).reshape(-1, 32)
    return np.repeat(blocks.max(1) / 127, 32).reshape(root.shape)


def test_each_step_is_adamws_on_what_the_blocks_hold():
    rng = np.random.default_rng(0)
    w = nn.Parameter(rng.standard_normal((48, 64)).astype(np.float32))
    optimizer = AdamW8bit([w], lr=0.01, weight_decay=0.1, min_8bit_size=0)
    assert optimizer.state[0]["m"].dtype.name == "q8_0"
    sizes = np.exp(rng.standard_normal((48, 64)) * 3)
    for t in range(1, 21):
        g = (rng.standard_normal((48, 64)) * sizes).astype(np.float32)
        m, v = moments(optimizer)
        width = m.shape
        m = 0.9 * m + 0.1 * g.reshape(width)
        v = 0.999 * v + 0.001 * g.reshape(width).astype(np.float64) ** 2
        slower, faster = np.sqrt(1 - 0.999**t), 1 - 0.9**t
        # Rounded moments are held to what Cauchy and Schwarz allow exact ones.
        most = 0.1 / np.sqrt(0.001 * (1 - 0.81 / 0.999))
        step = np.clip(m / (np.sqrt(v) + 1e-8 * slower), -most, most) * slower / faster
        want = w.numpy().astype(np.float64) * (1 - 0.01 * 0.1) - 0.01 * step.reshape(48, 64)
        optimizer.grads[w].copy_(g)
        optimizer.step()
        np.testing.assert_allclose(w.numpy(), want, rtol=1e-5, atol=1e-5)
        # Half a level, and the rounding of the scale to f16's 11 bits.
        kinds = optimizer.state[0]
        root = np.sign(m) * np.sqrt(np.abs(m)) * UNIT
        error = np.abs(kinds["m"].numpy() - root)
        assert (error <= levels(root) * 0.501 + np.abs(root) * 2.0**-11).all()
        root = np.sqrt(np.sqrt(v)) * UNIT
        error = np.abs(kinds["v"].numpy() + kinds["v_rest"].numpy() - root)
        assert (error <= levels(root) / 127).all()


def test_a_second_moment_falls_as_it_should():
    """Eight bits alone would not see a thousandth less in each step."""
    w = nn.Parameter(np.zeros((1, 32), np.float32))
    optimizer = AdamW8bit([w], lr=0.0, min_8bit_size=0)
    optimizer.grads[w].copy_(np.linspace(0.1, 1.0, 32, dtype=np.float32)[None])
    optimizer.step()
    start = moments(optimizer)[1]
    optimizer.zero_grad(set_to_none=False)
    for _ in range(1000):
        optimizer.step()
    np.testing.assert_allclose(moments(optimizer)[1] / start, 0.999**1000, rtol=0.02)


@pytest.mark.parametrize("size", [1e-10, 1e-4, 1.0, 1e5, 1e9])
def test_gradients_of_any_size(size):
    """Where the scales' f16 ends, moments are held at its ends and nothing becomes infinite."""
    w = nn.Parameter(np.zeros((32, 32), np.float32))
    optimizer = AdamW8bit([w], lr=0.01, weight_decay=0.0, eps=1e-30, min_8bit_size=0)
    for t in range(1, 6):
        before = w.numpy()
        optimizer.grads[w].copy_(np.full((32, 32), size, np.float32))
        optimizer.step()
        moved = before - w.numpy()
        assert np.isfinite(moved).all()
        if size < 1e6:
            np.testing.assert_allclose(moved, 0.01, rtol=0.02)
        else:
            assert (moved > 0).all(), t


def test_small_and_odd_parameters_keep_f32():
    tensors = [nn.Parameter(np.ones(s, np.float32)) for s in ((64, 64), (63, 65), (64,))]
    optimizer = AdamW8bit(tensors)
    kinds = [sorted((k, v.dtype.name) for k, v in each.items()) for each in optimizer.state]
    assert kinds[0] == [("m", "q8_0"), ("v", "q8_0"), ("v_rest", "q8_0")]
    assert kinds[1] == kinds[2] == [("m", "f32"), ("v", "f32")]
    assert optimizer.nbytes == 3 * 64 * 64 * 34 // 32 + 2 * 4 * (63 * 65 + 64)


def test_blocks_are_restored_to_the_bit_and_checked():
    rng = np.random.default_rng(3)
    steps = [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(6)]
    start = rng.standard_normal((64, 64)).astype(np.float32)

    def run(optimizer, w, grads):
        for g in grads:
            optimizer.grads[w].copy_(g)
            optimizer.step()

    one = nn.Parameter(start)
    straight = AdamW8bit([one], lr=0.1)
    run(straight, one, steps[:3])
    two = nn.Parameter(one.numpy())
    resumed = AdamW8bit([two])
    state = straight.state_dict()
    assert state["0.v"].dtype == np.uint8
    resumed.load_state_dict(state)
    run(straight, one, steps[3:])
    run(resumed, two, steps[3:])
    np.testing.assert_array_equal(one.numpy(), two.numpy())
    for key, value in straight.state_dict().items():
        np.testing.assert_array_equal(value, resumed.state_dict()[key])
    with pytest.raises(pg.ShapeError, match=r"0\.m must have the shape \(4352,\)"):
        resumed.load_state_dict({**state, "0.m": state["0.m"][1:]})
    with pytest.raises(pg.DTypeError, match=r"0\.m must be uint8, blocks of q8_0"):
        resumed.load_state_dict({**state, "0.m": state["0.m"].astype(np.int16)})


def train(kind, steps, seed=0, **options):
    """A regression through two layers on fresh data; the mean loss of the last tenth."""
    pg.seed(seed)
    rng = np.random.default_rng(seed)
    teacher = rng.standard_normal((64, 32)).astype(np.float32) / 8
    model = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32))
    optimizer = kind(model.parameters(), lr=3e-3, **options)
    x, y = pg.zeros((64, 64)), pg.zeros((64, 32))
    wrong = model(x) - y
    loss = (wrong * wrong).mean()
    graph = pg.Graph([loss], loss=loss, grads=optimizer.grads)
    losses = []
    for _ in range(steps):
        data = rng.standard_normal((64, 64)).astype(np.float32)
        x.copy_(data)
        y.copy_(np.tanh(data @ teacher * 2))
        optimizer.zero_grad()
        graph.run()
        losses.append(float(graph.read(loss)))
        optimizer.step(clip=1.0)
    return float(np.mean(losses[-steps // 10 :]))


def test_it_trains_as_adamw_does():
    other = train(AdamW, 600)
    eight = train(AdamW8bit, 600, min_8bit_size=0)
    assert other < 0.12  # it begins at 0.53
    assert eight == pytest.approx(other, rel=0.005)


@pytest.mark.slow
def test_it_trains_a_language_model_as_adamw_does():
    """Bytes of the embedded text; docs/guide/loop.md names the losses."""
    data = np.frombuffer(" ".join(embedded_text()).encode(), np.uint8).astype(np.int32)

    def last_losses(kind, steps=400):
        pg.seed(0)
        model = GPT2(GPT2Config(256, context=64, n_embd=64, n_layer=2, n_head=4))
        step = TrainStep(model, kind(param_groups(model, 0.1)), clip=1.0)
        rate, rng = schedules.warmup_cosine(3e-3, 20, steps, 3e-4), np.random.default_rng(0)
        losses = []
        for i in range(steps):
            rows = np.stack([data[at : at + 65] for at in rng.integers(0, len(data) - 65, 8)])
            losses.append(step([(rows[:, :-1], rows[:, 1:])], lr=rate(i)).loss)
        return float(np.mean(losses[-steps // 10 :]))

    other, eight = last_losses(AdamW), last_losses(AdamW8bit)
    assert other < 2.5
    assert eight == pytest.approx(other, rel=0.01)
