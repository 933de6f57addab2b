# SPDX-License-Identifier: MIT
"""Attention and transformer layers, against PyTorch's modules of the same names."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn

RNG = np.random.default_rng(7)
X, MEMORY = (RNG.standard_normal((2, n, 8)).astype(np.float32) for n in (5, 3))


def give_weights(ours: nn.Module, theirs) -> None:
    import torch

    drawn = {n: RNG.standard_normal(p.shape).astype(np.float32) for n, p in ours.named_parameters()}
    ours.load_state_dict(drawn)
    theirs.load_state_dict({name: torch.tensor(array) for name, array in drawn.items()})


@pytest.mark.parametrize("kind", ["Encoder", "Decoder"])
@pytest.mark.parametrize(
    "how", [{}, {"norm_first": True, "activation": "gelu"}, {"bias": False}], ids=str
)
def test_layers_are_pytorchs(kind: str, how: dict) -> None:
    torch = pytest.importorskip("torch")
    ours = getattr(nn, f"Transformer{kind}Layer")(8, 2, 16, dropout=0.0, **how)
    theirs = getattr(torch.nn, f"Transformer{kind}Layer")(8, 2, 16, 0.0, batch_first=True, **how)
    give_weights(ours, theirs)
    mask = torch.triu(torch.full((5, 5), -torch.inf), 1)
    if kind == "Encoder":
        y, want = ours(pg.tensor(X), is_causal=True), theirs(torch.tensor(X), mask)
        both = ours(pg.tensor(X), pg.tensor(mask.numpy()), None, True)
        np.testing.assert_array_equal(both.numpy(), y.numpy())
    else:
        y = ours(pg.tensor(X), pg.tensor(MEMORY), pg.tensor(mask.numpy()))
        again = ours(pg.tensor(X), pg.tensor(MEMORY), tgt_is_causal=True)
        np.testing.assert_array_equal(again.numpy(), y.numpy())
        want = theirs(torch.tensor(X), torch.tensor(MEMORY), tgt_mask=mask)
    toward = RNG.standard_normal(want.shape).astype(np.float32)
    (y * pg.tensor(toward)).sum().backward()
    (want * torch.tensor(toward)).sum().backward()
    np.testing.assert_allclose(y.numpy(), want.detach(), rtol=1e-4, atol=1e-5)
    for name, parameter in theirs.named_parameters():
        found = dict(ours.named_parameters())[name].grad.numpy()
        least = 1e-5 * float(parameter.grad.abs().max())
        np.testing.assert_allclose(found, parameter.grad, rtol=1e-3, atol=least, err_msg=name)


def test_attention_is_pytorchs_with_its_weights() -> None:
    torch = pytest.importorskip("torch")
    ours = nn.MultiheadAttention(8, 4)
    theirs = torch.nn.MultiheadAttention(8, 4, batch_first=True)
    give_weights(ours, theirs)
    y, weights = ours(pg.tensor(X), pg.tensor(MEMORY), pg.tensor(MEMORY))
    want = theirs(torch.tensor(X), torch.tensor(MEMORY), torch.tensor(MEMORY))
    for found, wanted in zip((y, weights), want, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.detach(), rtol=1e-4, atol=1e-5)
    assert ours(pg.tensor(X), pg.tensor(X), pg.tensor(X), need_weights=False)[1] is None
    each = ours(*[pg.tensor(X)] * 3, average_attn_weights=False)[1]
    wanted = theirs(*[torch.tensor(X)] * 3, average_attn_weights=False)[1]
    np.testing.assert_allclose(each.numpy(), wanted.detach(), rtol=1e-4, atol=1e-5)


def test_padding_hides_in_a_compiled_function_and_its_gradients() -> None:
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, 0.0), pg.tensor(X[:1])
    hidden = np.arange(5)[None] > 2
    short = layer(x[:, :3])
    compiled = pg.compile(lambda x, fill: layer(x, src_key_padding_mask=fill != 0)[:, :3])
    got = compiled(x, hidden.astype(np.int32))
    np.testing.assert_allclose(got.numpy(), short.numpy(), rtol=1e-5, atol=1e-6)
    loss = pg.value_and_grad(lambda x: layer(x, src_key_padding_mask=hidden)[:, :3].sum())
    grad = loss(x)[1].numpy()
    want = pg.value_and_grad(lambda x: layer(x).sum())(x[:, :3])[1].numpy()
    assert not grad[:, 3:].any()
    np.testing.assert_allclose(grad[:, :3], want, rtol=1e-4, atol=1e-6)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="num_heads"):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(ValueError, match="activation"):
        nn.TransformerEncoderLayer(8, 2, activation="step")
    attention, x = nn.MultiheadAttention(8, 2), pg.ones((1, 2, 8))
    with pytest.raises(pg.ShapeError, match="query"):
        attention(pg.ones((2, 8)), x, x)
    with pytest.raises(pg.ShapeError, match="key"):
        attention(x, x, pg.ones((1, 3, 8)))
    with pytest.raises(pg.ShapeError, match="attn_mask"):
        attention(x, x, x, attn_mask=pg.zeros((3, 3)))
    with pytest.raises(pg.ShapeError, match="key_padding_mask"):
        attention(x, x, x, pg.zeros((2, 2)))
    with pytest.raises(TypeError, match="tgt_is_causal"):
        nn.TransformerDecoderLayer(8, 2, 16)(x, x, tgt_is_causal="yes")
