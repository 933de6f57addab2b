# SPDX-License-Identifier: MIT
"""Muon: PyTorch's steps, and which parameters have which rule."""

import numpy as np
import pytest

from pyggml import nn
from pyggml.optim import Muon

from .cases import compared_with_pytorchs


@pytest.mark.parametrize("rate", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [True, False])
@compared_with_pytorchs(Muon)
def test_ten_steps_are_pytorchs(rate, nesterov, monkeypatch):
    """PyTorch iterates in bf16; here it is made to do so in f32, as pyggml does."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x.clone())
    rng = np.random.default_rng(0)
    ours = [nn.Parameter(rng.standard_normal(s).astype(np.float32)) for s in ((8, 5), (4, 9))]
    theirs = [torch.nn.Parameter(torch.tensor(p.numpy())) for p in ours]
    options = {"lr": 0.05, "weight_decay": 0.1, "momentum": 0.9, "nesterov": nesterov}
    optimizer = Muon(ours, adjust_lr_fn=rate, **options)
    other = torch.optim.Muon(theirs, adjust_lr_fn=rate, **options)
    for _ in range(10):
        for p, q in zip(ours, theirs, strict=True):
            g = rng.standard_normal(p.shape).astype(np.float32)
            optimizer.grads[p].copy_(g)
            q.grad = torch.tensor(g)
        optimizer.step()
        other.step()
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_step_is_nearly_orthogonal():
    rng = np.random.default_rng(0)
    w = nn.Parameter(np.zeros((24, 16), np.float32))
    optimizer = Muon([w], lr=1.0, weight_decay=0.0, adjust_lr_fn="original")
    optimizer.grads[w].copy_(rng.standard_normal((24, 16)).astype(np.float32))
    optimizer.step()
    values = np.linalg.svd(w.numpy(), compute_uv=False) / np.sqrt(24 / 16)
    assert values.min() > 0.65
    assert values.max() < 1.25


def test_rules():
    matrix, vector, image = (nn.Parameter(np.ones(s)) for s in ((3, 4), (4,), (2, 3, 2, 2)))
    head = nn.Parameter(np.ones((5, 4)))
    groups = [
        {"params": [vector, matrix, image], "names": ["v", "m", "i"], "weight_decay": 0.2},
        {"params": [head], "names": ["head"], "rule": "adamw", "lr_scale": 0.5},
    ]
    optimizer = Muon(groups)
    assert optimizer.names == ["m", "v", "i", "head"]
    assert [set(kinds) for kinds in optimizer.state] == [{"b"}, *[{"m", "v"}] * 3]
    assert [group.weight_decay for group in optimizer.groups] == [0.2, 0.2, 0.1]
    assert [group.lr_scale for group in optimizer.groups] == [1.0, 1.0, 0.5]
    with pytest.raises(ValueError, match=r"for matrices; got shape \(4,\)"):
        Muon([{"params": [matrix, vector], "rule": "muon"}])
    with pytest.raises(ValueError, match="rule must be one of muon, adamw"):
        Muon([{"params": [matrix], "rule": "sgd"}])
