# SPDX-License-Identifier: MIT
"""Rotations by far positions, as exact as f32 allows."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.backend.library import ffi, lib
from pyggml.tensors.record import record

T, HEADS, DIM, HALF = 8, 2, 128, 64
RNG = np.random.default_rng(3)
# With angles in f32 the errors are 1e-4 at 4,000 and grow with the position.
RMS = 1e-7
STARTS = (0, 4000, 1_000_000)


def turned(x, angle, scale=1.0):
    """NeoX pairs turned by angles (T, D / 2), in double."""
    cos, sin = (scale * f(angle)[:, None] for f in (np.cos, np.sin))
    a, b = np.split(x.astype(np.float64), 2, -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def rms(got, want):
    return np.sqrt(np.mean((got - want) ** 2))


def inputs(start):
    x = RNG.standard_normal((T, HEADS, DIM)).astype(np.float32)
    return x, np.arange(start, start + T, dtype=np.int32)


@pytest.mark.parametrize("mode", ["neox", "normal"])
@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize("start", STARTS)
def test_far_positions_and_their_gradients_are_exact(mode, base, start):
    x, positions = inputs(start)
    angle = positions[:, None] * base ** (-np.arange(HALF) / HALF)
    pairs = np.arange(DIM).reshape(HALF, 2).T.ravel() if mode == "normal" else np.arange(DIM)
    leaf = pg.tensor(x, requires_grad=True)
    y = ops.rope(leaf, pg.tensor(positions), mode=mode, base=base)
    assert rms(y.numpy()[..., pairs], turned(x[..., pairs], angle)) < RMS
    weights = RNG.standard_normal(x.shape).astype(np.float32)
    (y * pg.tensor(weights)).sum().backward()
    assert rms(leaf.grad.numpy()[..., pairs], turned(weights[..., pairs], -angle)) < RMS


def test_far_positions_with_divisors_of_the_angles_are_exact():
    x, positions = inputs(4000)
    factors = RNG.uniform(1, 40, HALF).astype(np.float32)
    angle = positions[:, None] * 0.25 * 500.0 ** (-np.arange(HALF) / HALF) / factors
    y = ops.rope(
        pg.tensor(x), pg.tensor(positions), base=500.0, scale=0.25, freq_factors=pg.tensor(factors)
    )
    assert rms(y.numpy(), turned(x, angle)) < RMS


def test_far_positions_of_yarn_are_exact():
    x, positions = inputs(100000)
    base, scale, mix = 10000.0, 0.125, 0.75
    extrapolated = positions[:, None] * base ** (-np.arange(HALF) / HALF)
    corner = ffi.new("float[2]")
    lib.ggml_rope_yarn_corr_dims(DIM, 4096, base, 32.0, 1.0, corner)
    low, high = corner
    ramp = mix * (1 - np.clip((np.arange(HALF) - low) / max(0.001, high - low), 0, 1))
    angle = extrapolated * (scale * (1 - ramp) + ramp)
    args = [pg.tensor(x), pg.tensor(positions), ffi.NULL, DIM, lib.GGML_ROPE_TYPE_NEOX, 4096]
    y = record(lib.ggml_rope_ext, [*args, base, scale, mix, 1.0, 32.0, 1.0], x.shape)
    want = turned(x, angle, 1 + 0.1 * np.log(1 / scale))
    assert rms(y.numpy(), want) < 2 * RMS


# Which of the four rows of positions turns a pair, and by which of the frequencies.
SECTIONS = (16, 24, 24, 0)
BY_PAIR = np.arange(HALF)
IN_TURN = np.where((BY_PAIR % 3 == 1) & (BY_PAIR < 72), 1, np.where(BY_PAIR % 3 == 2, 2, 0))
IN_TURN = np.where((BY_PAIR % 3 == 0) & (BY_PAIR >= 48), 3, IN_TURN)
MULTI = {
    "mrope": (lib.GGML_ROPE_TYPE_MROPE, DIM, SECTIONS, np.repeat(range(4), SECTIONS), BY_PAIR),
    "imrope": (lib.GGML_ROPE_TYPE_IMROPE, DIM, SECTIONS, IN_TURN, BY_PAIR),
    "vision": (
        lib.GGML_ROPE_TYPE_VISION, HALF, (32, 32, 0, 0), np.repeat((0, 1), 32),
        2 * (BY_PAIR % 32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MULTI)
def test_far_positions_of_several_axes_are_exact(kind):
    mode, dims, sections, row, power = MULTI[kind]
    x, _ = inputs(0)
    positions = RNG.integers(4000, 40000, (4, T)).astype(np.int32)
    angle = positions[row].T * 10000.0 ** (-power / HALF)
    args = [pg.tensor(x), pg.tensor(positions.ravel()), ffi.NULL, dims, ffi.new("int[4]", sections)]
    args += [mode, 4096, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0]
    y = record(lib.ggml_rope_multi, args, x.shape)
    assert rms(y.numpy(), turned(x, angle)) < RMS
