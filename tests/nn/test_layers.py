# SPDX-License-Identifier: MIT
import math

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn

RNG = np.random.default_rng(7)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def close(got, want):
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 5, 4), (1, 1, 4), (3, 2, 5, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias):
    layer, x = nn.Linear(4, 3, bias), draw(*shape)
    want = x @ layer.weight.numpy().T + (layer.bias.numpy() if bias else 0)
    y = layer(pg.tensor(x))
    assert y.shape == (*shape[:-1], 3)
    close(y, want)


def test_linear_names_the_widths():
    message = r"equal in_features .* got x.shape=\(2, 3, 5\), weight.shape=\(3, 4\)"
    with pytest.raises(pg.ShapeError, match=message):
        nn.Linear(4, 3)(pg.ones((2, 3, 5)))
    with pytest.raises(pg.ShapeError, match=r"bias must be .* \(3,\)"):
        nn.functional.linear(pg.ones((2, 4)), pg.ones((3, 4)), pg.ones((4,)))
    with pytest.raises(pg.ShapeError, match="in_features of weight"):
        nn.functional.linear(pg.ones((2, 4)), pg.ones((4,)))


@pytest.mark.parametrize("shape", [(3,), (2, 5), (1, 1)])
def test_embedding(shape):
    layer, ids = nn.Embedding(11, 6), RNG.integers(0, 11, shape).astype(np.int32)
    close(layer(pg.tensor(ids)), layer.weight.numpy()[ids])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dim", [1, 7, 65])
def test_layer_norm(dim, bias):
    layer, x = nn.LayerNorm(dim, bias=bias), draw(2, 3, dim)
    layer.weight.copy_(draw(dim))
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    want = want * layer.weight.numpy()
    if bias:
        layer.bias.copy_(draw(dim))
        want = want + layer.bias.numpy()
    close(layer(pg.tensor(x)), want)


@pytest.mark.parametrize("dim", [1, 7, 65])
def test_rms_norm(dim):
    layer, x = nn.RMSNorm(dim, eps=1e-3), draw(2, 3, dim)
    layer.weight.copy_(draw(dim))
    want = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * layer.weight.numpy()
    close(layer(pg.tensor(x)), want)


def test_norms_name_the_shapes():
    with pytest.raises(pg.ShapeError, match=r"LayerNorm: x must end in .*\(4,\); got \(2, 5\)"):
        nn.LayerNorm(4)(pg.ones((2, 5)))
    with pytest.raises(pg.ShapeError, match=r"RMSNorm: x must end in .*\(4,\); got \(2, 5\)"):
        nn.RMSNorm(4)(pg.ones((2, 5)))


def test_mlps_and_activations():
    x = draw(2, 3, 4)
    mlp = nn.GELUMLP(4, 9)
    inner = x @ mlp.c_fc.weight.numpy().T + mlp.c_fc.bias.numpy()
    want = gelu(inner) @ mlp.c_proj.weight.numpy().T + mlp.c_proj.bias.numpy()
    close(mlp(pg.tensor(x)), want)
    glu = nn.SwiGLUMLP(4, 9)
    gated = silu(x @ glu.gate_proj.weight.numpy().T) * (x @ glu.up_proj.weight.numpy().T)
    close(glu(pg.tensor(x)), gated @ glu.down_proj.weight.numpy().T)
    for layer, want in ((nn.GELU("tanh"), gelu(x)), (nn.SiLU(), silu(x)), (nn.ReLU(), x * (x > 0))):
        close(layer(pg.tensor(x)), want)


def test_sequential():
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = draw(3, 4)
    hidden = np.maximum(x @ layers[0].weight.numpy().T + layers[0].bias.numpy(), 0)
    close(layers(pg.tensor(x)), hidden @ layers[2].weight.numpy().T + layers[2].bias.numpy())
    assert len(layers) == 3
    assert [n for n, _ in layers.named_parameters()] == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]
    with pytest.raises(TypeError, match="must be a Module; got int at 1"):
        nn.Sequential(nn.ReLU(), 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(0, 3), "in_features must be a whole number >= 1; got 0"),
        (lambda: nn.Linear(3, -1), "out_features must be a whole number >= 1; got -1"),
        (lambda: nn.LayerNorm(4, eps=0.0), "eps must be a finite number > 0"),
        (lambda: nn.RMSNorm(4, eps=float("nan")), "eps must be a finite number > 0"),
        (lambda: nn.KVCache(1, 0, 1, 1), "capacity must be a whole number >= 1"),
        (lambda: nn.init.normal(-1.0), "std must be a finite number >= 0"),
        (lambda: nn.init.uniform(1.0, 0.0), "low must be <= high"),
        (lambda: nn.init.xavier_normal()((3,)), "shape must be"),
        (lambda: nn.init.gpt2(0), "n_layer must be a whole number >= 1"),
    ],
)
def test_bad_sizes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("drawn", "std"),
    [
        (nn.init.normal(0.3), 0.3),
        (nn.init.uniform(-1.0, 1.0), 1 / math.sqrt(3)),
        (nn.init.xavier_uniform(), math.sqrt(2 / 500)),
        (nn.init.xavier_normal(), math.sqrt(2 / 500)),
        (nn.init.kaiming_uniform(), math.sqrt(2 / 300)),
        (nn.init.kaiming_normal(), math.sqrt(2 / 300)),
        (nn.init.gpt2(8), 0.02),
        (nn.init.gpt2(8, residual=True), 0.02 / 4),
    ],
)
def test_initialisers_have_their_spread_and_follow_the_seed(drawn, std):
    pg.seed(3)
    values = drawn((200, 300))
    assert values.dtype == np.float32
    assert values.std() == pytest.approx(std, rel=0.02)
    assert abs(values.mean()) < 4 * std / math.sqrt(values.size)
    pg.seed(3)
    np.testing.assert_array_equal(values, drawn((200, 300)))
    with nn.init.empty_weights():
        assert not drawn((2, 2)).any()
