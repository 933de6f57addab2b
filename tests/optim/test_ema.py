# SPDX-License-Identifier: MIT
import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.optim import EMA


def model(seed=0):
    pg.seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def walk(net, rng):
    """A step of some optimizer."""
    for p in net.parameters():
        p.copy_(p.numpy() + rng.standard_normal(p.shape).astype(np.float32))


@pytest.mark.parametrize("warmup", [True, False])
def test_updates_are_the_formula(warmup):
    net, rng = model(), np.random.default_rng(0)
    ema = EMA(net, 0.6, warmup)
    want = {name: p.numpy().astype(np.float64) for name, p in net.named_parameters()}
    for n in range(12):
        walk(net, rng)
        d = min(0.6, (1 + n) / (10 + n)) if warmup else 0.6
        ema.update()
        for name, p in net.named_parameters():
            want[name] = d * want[name] + (1 - d) * p.numpy()
            np.testing.assert_allclose(ema.averages[name].numpy(), want[name], rtol=1e-5, atol=1e-6)
    assert ema.steps == 12
    assert ema.nbytes == 4 * net.num_parameters()


def test_the_averages_are_lent_and_the_weights_come_back_to_the_bit():
    net, rng = model(), np.random.default_rng(0)
    ema = EMA(net, 0.9)
    for _ in range(3):
        walk(net, rng)
        ema.update()
    net[0].bias.copy_(np.asarray([-0.0, np.inf, 1e-40, -1.0], np.float32))
    own, averages = net.state_dict(), {n: t.numpy() for n, t in ema.averages.items()}

    def evaluate():
        with ema.applied():
            for name, value in net.state_dict().items():
                np.testing.assert_array_equal(value, averages[name])
            for call in (ema.update, ema.state_dict, lambda: ema.load_state_dict({})):
                with pytest.raises(RuntimeError, match="leave the `applied` block first"):
                    call()
            raise KeyError("an evaluation that fails")

    with pytest.raises(KeyError, match="an evaluation"):
        evaluate()
    for name, value in net.state_dict().items():
        assert value.tobytes() == own[name].tobytes()
    for name, value in ema.averages.items():
        np.testing.assert_array_equal(value.numpy(), averages[name])


def test_a_restored_state_continues_with_the_same_bits():
    nets, rngs = [model(), model()], [np.random.default_rng(0), np.random.default_rng(0)]
    straight = EMA(nets[0], 0.9)
    resumed = EMA(nets[1], 0.9)
    for _ in range(3):
        walk(nets[0], rngs[0])
        walk(nets[1], rngs[1])
        straight.update()
    resumed.load_state_dict(straight.state_dict())
    for _ in range(3):
        for net, rng, ema in zip(nets, rngs, (straight, resumed), strict=True):
            walk(net, rng)
            ema.update()
    for key, value in straight.state_dict().items():
        np.testing.assert_array_equal(value, resumed.state_dict()[key])


def test_frozen_parameters_are_left_out_and_bad_arguments_named():
    net = model()
    net[0].freeze()
    ema = EMA(net)
    assert set(ema.averages) == {"1.weight", "1.bias"}
    state = ema.state_dict()
    with pytest.raises(KeyError, match=r"average\.1\.bias"):
        ema.load_state_dict({k: v for k, v in state.items() if k != "average.1.bias"})
    with pytest.raises(pg.ShapeError, match=r"average\.1\.bias must have the shape"):
        ema.load_state_dict({**state, "average.1.bias": np.zeros(7)})
    with pytest.raises(ValueError, match="steps must be"):
        ema.load_state_dict({**state, "steps": -1})
    with pytest.raises(ValueError, match="decay must be"):
        EMA(net, 1.0)
    net.freeze()
    with pytest.raises(ValueError, match="must have a parameter that is trained"):
        EMA(net)
