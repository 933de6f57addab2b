# SPDX-License-Identifier: MIT
"""Attention by the fused op: the plain one's numbers and gradients, and no T × T tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ffi, nn
from pyggml.models import GPT2, Generator, GPT2Config, Llama, LlamaConfig

# Of the largest gradient: the two sum the same products in another order.
TOLERANCE = 1e-4


def scores(graph: pg.Graph, length: int) -> int:
    """How many tensors that a run of the graph writes are as large as one head's scores."""
    # Not the logits: they are as wide as the vocabulary.
    whole = (p for p in graph.headers if p.view_src == ffi.NULL)
    return sum(list(p.ne)[:2] == [length, length] for p in whole)


def gradients(model: Any, ids: np.ndarray, targets: np.ndarray) -> tuple[float, dict[str, Any]]:
    """Loss and gradients by name, the memory that activations take, and the T × T tensors."""
    grads = {p: pg.zeros(p.shape) for p in model.parameters()}
    loss = model.loss(pg.tensor(ids), pg.tensor(targets))
    graph = pg.Graph([loss], loss=loss, grads=grads)
    graph.run()
    named = {name: grads[p].numpy() for name, p in model.named_parameters()}
    found = {"memory": graph.memory_bytes, "grads": named, "scores": scores(graph, ids.shape[1])}
    return float(graph.read(loss)), found


def compare(kind: Any, config: Any, batch: int, length: int) -> None:
    """Both attentions on the same weights and tokens."""
    ids = np.random.default_rng(0).integers(0, config.vocab_size, (batch, length + 1), np.int32)
    model = kind(type(config).from_dict({**config.to_dict(), "attention": "plain"}))
    other = kind(type(config).from_dict({**config.to_dict(), "attention": "flash"}))
    other.load_state_dict(model.state_dict())
    loss, plain = gradients(model, ids[:, :-1], ids[:, 1:])
    other_loss, flash = gradients(other, ids[:, :-1], ids[:, 1:])
    assert other_loss == pytest.approx(loss, rel=1e-5)
    largest = max(float(np.abs(g).max()) for g in plain["grads"].values())
    worst = {
        name: float(np.abs(g - flash["grads"][name]).max()) / largest
        for name, g in plain["grads"].items()
    }
    name = max(worst, key=lambda n: worst[n])
    print(f"loss {loss:.6f} and {other_loss:.6f}; largest difference {worst[name]:.1e} in {name}")
    print(f"memory {plain['memory']:,} and {flash['memory']:,} bytes")
    print(f"T x T tensors {plain['scores']} and {flash['scores']}")
    assert worst[name] <= TOLERANCE
    assert plain["scores"] >= 4 * config.n_layer  # scores and weights, and the gradient of each
    assert flash["scores"] == 0
    # Not less: scores are computed again in the backward, and those of one layer may fit into what
    # the logits leave.
    assert flash["memory"] <= plain["memory"]


def test_gpt2_of_two_layers() -> None:
    config = GPT2Config(vocab_size=101, context=48, n_embd=48, n_layer=2, n_head=4)
    compare(GPT2, config, 2, 47)  # T is no extent of a weight


def test_llama_with_grouped_heads() -> None:
    config = LlamaConfig(vocab_size=101, context=40, n_embd=48, n_layer=2, n_head=6, n_kv_head=2)
    compare(Llama, config, 2, 33)


def test_no_tensor_grows_with_the_square_of_the_sequence() -> None:
    def memory(length: int, attention: str) -> int:
        q = pg.tensor(np.ones((1, length, 2, 8)), requires_grad=True)
        fn = nn.functional.flash_attention if attention == "flash" else nn.functional.attention
        loss = fn(q, q, q, nn.causal_mask(length, None, "f16" if attention == "flash" else "f32"))
        total = loss.sum()
        return pg.Graph([total], loss=total, grads={q: pg.zeros(q.shape)}).memory_bytes

    assert memory(1024, "flash") <= 4.5 * memory(256, "flash")
    assert memory(1024, "plain") >= 12 * memory(256, "plain")


def test_generation_with_a_cache_agrees() -> None:
    config = GPT2Config(
        vocab_size=31, context=16, n_embd=16, n_layer=1, n_head=2, attention="plain"
    )
    plain = GPT2(config)
    flash = GPT2(GPT2Config.from_dict({**config.to_dict(), "attention": "flash"}))
    flash.load_state_dict(plain.state_dict())
    ids = np.array([[3, 1, 4, 1, 5]], np.int32)
    want = plain(pg.tensor(ids)).numpy()[0]
    np.testing.assert_allclose(flash(pg.tensor(ids)).numpy()[0], want, rtol=1e-4, atol=1e-5)
    generator = Generator(flash)
    for piece, at in ((ids[0, :3], 2), (ids[0, 3:4], 3), (ids[0, 4:], 4)):
        np.testing.assert_allclose(generator.feed(piece), want[at], rtol=1e-4, atol=1e-5)


def test_auto_is_flash_where_it_rounds_no_mask() -> None:
    attend = nn.CausalSelfAttention(16, 2)
    x = pg.tensor(np.random.default_rng(0).standard_normal((2, 6, 16)))
    mask = nn.causal_mask(6)

    def ops_of(**given) -> set[str]:
        with pg.profile() as p:
            attend(x, **given).numpy()
        return {record.op for record in p.records}

    assert "FLASH_ATTN_EXT" in ops_of()
    assert "FLASH_ATTN_EXT" not in ops_of(mask=mask)
    assert "FLASH_ATTN_EXT" in ops_of(mask=nn.causal_mask(6, None, "f16"))
    np.testing.assert_allclose(
        attend(x).numpy(), attend(x, mask=mask).numpy(), rtol=1e-4, atol=1e-5
    )


def test_an_unknown_attention_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attention .*'linear'"):
        nn.CausalSelfAttention(8, 2, attention="linear")
    with pytest.raises(ValueError, match="GPT2Config: attention must be"):
        GPT2Config.preset("tiny", attention="linear")


@pytest.mark.slow
def test_gpt2_124m_at_a_sequence_of_1024() -> None:
    compare(GPT2, GPT2Config.preset("gpt2-124m"), 1, 1024)


@pytest.mark.parametrize("scale", [0.3, 0.0, -0.3])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(16, 63), (16, 64), (40, 50), (64, 63), (130, 140)])
def test_any_scale_with_tiles_in_part(rows, columns, masked, softcap, scale) -> None:
    """Results and gradients of float64, also where a tile lacks its last columns or hides them."""
    rng = np.random.default_rng(0)
    shapes = [(1, 2, rows, 5), (1, 1, columns, 5), (1, 1, columns, 7)]
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    grad = rng.standard_normal((1, rows, 2, 7))
    hidden = np.triu(np.ones((rows, columns), bool), 1 + columns - rows) & masked
    u = scale * (q @ k.swapaxes(-1, -2))
    scores = softcap * np.tanh(u / softcap) if softcap else u
    slope = 1 - (scores / softcap) ** 2 if softcap else 1.0
    e = np.where(hidden, 0.0, np.exp(scores - scores.max(-1, keepdims=True)))
    # a row that sees nothing gives nothing
    p = e / np.maximum(e.sum(-1, keepdims=True), 1e-30)
    out = p @ v
    g = grad.swapaxes(1, 2)
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * slope * scale
    want = (
        ds @ k,
        (ds.swapaxes(-1, -2) @ q).sum(1, keepdims=True),
        (p.swapaxes(-1, -2) @ g).sum(1, keepdims=True),
    )
    tensors = [pg.tensor(x, requires_grad=True) for x in (q, k, v)]
    mask = pg.tensor(np.where(hidden, -np.inf, 0.0).astype(np.float16)) if masked else None
    y = pg.ops.flash_attn_ext(*tensors, mask, scale, softcap=softcap)
    np.testing.assert_allclose(y.numpy(), out.swapaxes(1, 2), rtol=1e-5, atol=1e-5)
    (y * pg.tensor(grad.astype(np.float32))).sum().backward()
    for tensor, reference in zip(tensors, want, strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), reference, rtol=1e-4, atol=2e-5)
