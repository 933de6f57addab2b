# SPDX-License-Identifier: MIT
import numpy as np
import pytest

import pyggml as pg
from pyggml import nn

RNG = np.random.default_rng(11)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v, mask):
    """q (B, T, H, D), k and v (B, S, G, D) -> (B, T, H * D), one head at a time."""
    batch, length, heads, width = q.shape
    group = heads // k.shape[2]
    out = np.zeros((batch, length, heads, width))
    for b in range(batch):
        for h in range(heads):
            scores = q[b, :, h] @ k[b, :, h // group].T / np.sqrt(width) + mask
            out[b, :, h] = softmax(scores) @ v[b, :, h // group]
    return out.reshape(batch, length, heads * width)


def rotate(x, positions, base):
    """Rotary positions in Hugging Face's layout: halves are paired."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@pytest.mark.parametrize(
    ("batch", "length", "heads", "groups", "width"),
    [(1, 1, 1, 1, 2), (2, 5, 4, 4, 6), (3, 7, 6, 2, 4), (2, 33, 4, 1, 8)],
)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("rope", [None, nn.Rope(base=500.0)])
def test_attention(batch, length, heads, groups, width, fused, rope):
    dim = heads * width
    layer = nn.CausalSelfAttention(dim, heads, groups, fused=fused, rope=rope)
    x = draw(batch, length, dim)
    if fused:
        qkv = x @ layer.c_attn.weight.numpy().T + layer.c_attn.bias.numpy()
        q, k, v = np.split(qkv, [dim, dim + groups * width], axis=-1)
        out = layer.c_proj
    else:
        q, k, v = (
            x @ p.weight.numpy().T + p.bias.numpy()
            for p in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        out = layer.o_proj
    q, k, v = (t.reshape(batch, length, -1, width) for t in (q, k, v))
    if rope:
        q, k = (rotate(t, np.arange(length), rope.base) for t in (q, k))
    mask = np.triu(np.full((length, length), -np.inf), 1)
    want = attend(q, k, v, mask) @ out.weight.numpy().T + out.bias.numpy()
    np.testing.assert_allclose(layer(pg.tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_the_cache_gives_what_the_whole_sequence_gives(fused):
    layer = nn.CausalSelfAttention(8, 4, 2, fused=fused, rope=nn.Rope())
    x = draw(1, 9, 8)
    want = layer(pg.tensor(x)).numpy()
    cache = nn.KVCache(1, 16, 2, 2).layers[0]
    for start, stop in ((0, 4), (4, 5), (5, 9)):
        at = np.arange(start, stop)
        mask = np.where(np.arange(stop) <= at[:, None], 0.0, -np.inf)
        got = layer(
            pg.tensor(x[:, start:stop]),
            positions=pg.tensor(at.astype(np.int32)),
            mask=pg.tensor(mask.astype(np.float32)),
            cache=cache,
        )
        np.testing.assert_allclose(got.numpy(), want[:, start:stop], rtol=1e-4, atol=1e-5)


def test_the_mask_is_made_once_per_length():
    assert nn.causal_mask(6, None) is nn.causal_mask(6, None)
    np.testing.assert_array_equal(
        np.isneginf(nn.causal_mask(3).numpy()), np.triu(np.ones((3, 3), bool), 1)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 10, "n_head": 3}, "n_head must divide n_embd; got n_embd=10, n_head=3"),
        ({"dim": 12, "n_head": 6, "n_kv_head": 4}, "n_kv_head must divide n_head"),
        ({"dim": 12, "n_head": 4, "rope": nn.Rope()}, "even head size"),
        ({"dim": 12, "n_head": 0}, "n_head must be a whole number >= 1"),
        ({"dim": -4, "n_head": 2}, "n_embd must be a whole number >= 1"),
    ],
)
def test_bad_heads_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        nn.CausalSelfAttention(**arguments)


def test_bad_calls_are_named():
    layer = nn.CausalSelfAttention(8, 2)
    with pytest.raises(pg.ShapeError, match=r"x must be \(B, T, dim\); got \(3, 8\)"):
        layer(pg.ones((3, 8)))
    with pytest.raises(ValueError, match="a cache needs positions and mask"):
        layer(pg.ones((1, 3, 8)), cache=nn.KVCache(1, 4, 2, 4).layers[0])
    with pytest.raises(pg.ShapeError, match=r"mask must end in \(T, S\) = \(3, 3\)"):
        layer(pg.ones((1, 3, 8)), mask=pg.zeros((2, 2)))
    with pytest.raises(ValueError, match="mode must be"):
        nn.Rope(mode="interleaved")
    with pytest.raises(ValueError, match="base must be a finite number > 0"):
        nn.Rope(base=0.0)
    attention = nn.functional.attention
    with pytest.raises(pg.ShapeError, match="one shape"):
        attention(pg.ones((1, 3, 4, 8)), pg.ones((1, 3, 2, 8)), pg.ones((1, 3, 4, 8)))
    with pytest.raises(pg.ShapeError, match="multiple of k's"):
        attention(pg.ones((1, 3, 4, 8)), pg.ones((1, 3, 3, 8)), pg.ones((1, 3, 3, 8)))
    cache = nn.KVCache(1, 4, 2, 4).layers[0]
    with pytest.raises(pg.ShapeError, match="at most the capacity 4"):
        cache.update(
            pg.ones((1, 2, 2, 4)), pg.ones((1, 2, 2, 4)), pg.tensor(np.arange(2, dtype="i4")), 5
        )


def test_segments_hide_other_documents():
    segments = np.array([[0, 0, 1, 1, 1], [7, 2, 2, 2, 7]], np.int32)
    mask = nn.segment_mask(pg.tensor(segments)).numpy()
    same = segments[:, :, None] == segments[:, None, :]
    want = np.where(same & np.tri(5, dtype=bool), 0.0, -np.inf)
    np.testing.assert_array_equal(mask[:, 0], want)
    half = nn.segment_mask(pg.tensor(segments), "f16")
    assert half.dtype.name == "f16"
    np.testing.assert_array_equal(half.numpy()[:, 0], want)
    with pytest.raises(pg.ShapeError, match=r"must be \(B, T\); got \(5,\)"):
        nn.segment_mask(pg.tensor(segments[0]))
    with pytest.raises(pg.DTypeError, match="segments must be i32"):
        nn.segment_mask(pg.tensor(segments.astype(np.float32)))


@pytest.mark.parametrize("fused", [True, False])
def test_positions_of_each_sequence(fused):
    layer = nn.CausalSelfAttention(8, 2, 1, fused=fused, rope=nn.Rope())
    x = draw(2, 5, 8)
    positions = np.array([[0, 1, 2, 3, 4], [9, 3, 1, 0, 2]], np.int32)
    together = layer(pg.tensor(x), positions=pg.tensor(positions)).numpy()
    for row in range(2):
        alone = layer(pg.tensor(x[row : row + 1]), positions=pg.tensor(positions[row])).numpy()
        np.testing.assert_allclose(together[row], alone[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(pg.ShapeError, match=r"got \(5, 2\)"):
        layer(pg.tensor(x), positions=pg.tensor(positions.T.copy()))
