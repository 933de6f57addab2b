# SPDX-License-Identifier: MIT
"""Stretched rotary positions, windows, relative positions and padding."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn

RNG = np.random.default_rng(8)


def test_linear_scaling_is_positions_divided():
    scaling = nn.RopeScaling("linear", 4.0)
    x = pg.tensor(RNG.standard_normal((1, 9, 2, 8)).astype(np.float32))
    positions = nn.position_ids(9)
    stretched = nn.Rope(scaling=scaling).rotate(x, positions, 9).numpy()
    scaled = nn.Rope(scale=0.25).rotate(x, positions, 9).numpy()
    np.testing.assert_allclose(stretched, scaled, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize("start", [0, 4000, 32000])
def test_far_positions_are_as_exact_as_hugging_faces(base, start):
    torch = pytest.importorskip("torch")
    dim, count = 128, 64
    x = RNG.standard_normal((1, count, 2, dim)).astype(np.float32)
    positions = np.arange(start, start + count).astype(np.int32)
    angle = positions[:, None] * base ** (-np.arange(dim // 2) / (dim // 2))
    cos, sin = (f(angle)[:, None] for f in (np.cos, np.sin))
    a, b = np.split(x.astype(np.float64), 2, -1)
    want = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    # As LlamaRotaryEmbedding and apply_rotary_pos_emb of transformers compute it.
    inverse = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim)
    angle = (torch.tensor(positions).float()[:, None] * inverse)[:, None]
    a, b = torch.tensor(x).split(dim // 2, -1)
    turned = (a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin())
    theirs = torch.cat(turned, -1)
    ours = nn.Rope(base).rotate(pg.tensor(x), pg.tensor(positions), count).numpy()

    def error(y):
        return np.sqrt(np.mean((y - want) ** 2))

    # Both round an angle twice to f32: which one is luckier depends on the base.
    assert error(ours) < 1.25 * error(theirs.numpy())


def test_llama3_keeps_quick_pairs_and_slows_slow_ones():
    """The figures of Llama 3.1's own code for its head of 128 and base of 500,000."""
    found = nn.RopeScaling("llama3", 8.0, 8192).divisors(128, 500000.0, 0)
    wavelength = 2 * math.pi * 500000.0 ** (np.arange(64) / 64)
    assert (found[wavelength < 8192 / 4] == 1).all()
    assert (found[wavelength > 8192] == 8).all()
    between = found[(wavelength > 8192 / 4) & (wavelength < 8192)]
    assert ((between > 1) & (between < 8)).all()
    assert (np.diff(found) >= 0).all()


def test_yarn_sharpens_the_scores():
    scaling = nn.RopeScaling("yarn", 16.0, 4096)
    assert scaling.score_factor == pytest.approx((0.1 * math.log(16) + 1) ** 2)
    assert nn.RopeScaling("yarn", 16.0, 4096, attention=1.0).score_factor == 1.0
    found = scaling.divisors(128, 10000.0, 0)
    assert found[0] == 1
    assert found[-1] == pytest.approx(16)


def test_dynamic_begins_beyond_the_original_context():
    scaling = nn.RopeScaling("dynamic", 2.0, 100)
    assert (scaling.divisors(8, 10000.0, 100) == 1).all()
    longer = scaling.divisors(8, 10000.0, 150)
    longest = scaling.divisors(8, 10000.0, 200)
    assert longer[0] == longest[0] == 1
    assert (longest[1:] > longer[1:]).all()
    # The slowest pair turns by as much less as the factor says: 2 * 200 / 100 - 1.
    assert longest[-1] == pytest.approx(3.0)
    assert nn.RopeScaling("dynamic", 2.0, 4).divisors(2, 1e4, 9).tolist() == [1.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("cubic", 2.0), r"kind must be one of .*got 'cubic'"),
        (("linear", 0.5), "factor must be a finite number >= 1; got 0.5"),
        (("linear", math.nan), "factor must be a finite number >= 1"),
        (("yarn", 2.0), '"yarn" needs original, the context of the training; got None'),
        (("llama3", 2.0, 64, 4.0, 4.0), "low_freq must be below high_freq"),
        (("table", 1.0), 'table is for kind "table"'),
    ],
)
def test_bad_scalings_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        nn.RopeScaling(*given)


def test_bad_dicts_of_scalings_are_named():
    for given in (
        {"kind": "linear"},
        {"factor": 2.0},
        {"kind": "linear", "factor": 2.0, "x": 1},
    ):
        with pytest.raises(ValueError, match="a dict must have kind and factor"):
            nn.RopeScaling.of(given)
    with pytest.raises(TypeError, match="scaling must be a RopeScaling; got str"):
        nn.Rope(scaling="linear")
    with pytest.raises(ValueError, match="a divisor for each of 4 pairs; got 2"):
        nn.RopeScaling("table", 1.0, table=(1.0, 2.0)).divisors(8, 1e4, 3)


@pytest.mark.parametrize("attention", ["plain", "flash"])
def test_a_window_hides_what_is_further_back(attention):
    layer = nn.CausalSelfAttention(8, 2, window=3, attention=attention)
    x = RNG.standard_normal((1, 9, 8)).astype(np.float32)
    changed = x.copy()
    changed[0, 2] += 1
    a, b = (layer(pg.tensor(t)).numpy()[0] for t in (x, changed))
    same = np.abs(a - b).max(-1) == 0
    assert same.tolist() == [True] * 2 + [False] * 3 + [True] * 4


def test_windows_of_segments():
    segments = pg.tensor([[0, 0, 0, 1, 1]])
    mask = nn.segment_mask(segments, window=2).numpy()[0, 0]
    seen = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]
    np.testing.assert_array_equal(mask == 0, np.array(seen, bool))


def test_buckets_are_those_of_t5():
    """The published code's buckets of its own sizes, 32 up to 128, for both directions."""
    found = nn.relative_buckets([0], np.arange(-200, 201), 32, 128)[0]
    assert found[200] == 0
    assert found[193:200].tolist() == [7, 6, 5, 4, 3, 2, 1]
    assert found[201:208].tolist() == [17, 18, 19, 20, 21, 22, 23]
    assert found[0] == 15
    assert found[-1] == 31
    one_way = nn.relative_buckets([0], np.arange(-200, 201), 32, 128, bidirectional=False)[0]
    assert not one_way[200:].any()
    assert one_way[184:200].tolist() == [16, *range(15, 0, -1)]
    assert one_way[0] == 31


def test_relative_bias_is_a_row_of_the_table():
    bias = nn.RelativePositionBias(8, 3, 16)
    table = bias.weight.numpy()
    at = bias.between(np.arange(4), np.arange(4))
    np.testing.assert_array_equal(bias(4).numpy(), table[at].transpose(2, 0, 1))
    np.testing.assert_array_equal(
        bias(pg.tensor(at[2:3])).numpy(), table[at[2:3]].transpose(2, 0, 1)
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.relative_buckets([0], [0], 3), ValueError, "buckets must be even"),
        (lambda: nn.relative_buckets([0], [0], 2), ValueError, "at least 4"),
        (lambda: nn.relative_buckets([0], [0], 32, 8), ValueError, "max_distance above 8"),
        (lambda: nn.RelativePositionBias(8, 0), ValueError, "dim must be a whole number >= 1"),
        (
            lambda: nn.RelativePositionBias(8, 2)(0),
            ValueError,
            "length must be a whole number >= 1",
        ),
        (lambda: nn.RelativePositionBias(8, 2)(pg.tensor([1])), pg.ShapeError, r"must be \(T, S\)"),
        (lambda: nn.padding_mask(pg.tensor([1, 0]), 3), pg.ShapeError, r"must be \(B, S\)"),
        (lambda: nn.padding_mask(pg.ones((1, 2)), 3), pg.DTypeError, "must be i32"),
        (lambda: nn.causal_mask(3, window=0), ValueError, "window must be a whole number >= 1"),
    ],
)
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_row_of_nothing_but_filling_is_finite(dtype):
    mask = nn.padding_mask(pg.tensor([[1, 1, 0], [0, 0, 0]]), 2, dtype)
    assert mask.shape == (2, 1, 2, 3)
    q = pg.tensor(RNG.standard_normal((2, 2, 1, 4)).astype(np.float32))
    k = pg.tensor(RNG.standard_normal((2, 3, 1, 4)).astype(np.float32))
    attend = nn.functional.attention if dtype == "f32" else nn.functional.flash_attention
    y = attend(q, k, k, mask).numpy()
    assert np.isfinite(y).all()
    np.testing.assert_allclose(
        y[0], nn.functional.attention(q[:1], k[:1, :2], k[:1, :2]).numpy()[0], rtol=1e-2, atol=1e-3
    )
