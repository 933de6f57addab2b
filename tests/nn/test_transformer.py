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
    else:
        y = ours(pg.tensor(X), pg.tensor(MEMORY), pg.tensor(mask.numpy()))
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
    with pytest.raises(ValueError, match="attn_mask"):
        attention(x, x, x, pg.zeros((2, 2)), is_causal=True)
    with pytest.raises(pg.ShapeError):
        attention(x, x, x, pg.zeros((3, 3)))
