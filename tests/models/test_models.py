# SPDX-License-Identifier: MIT
import numpy as np
import pytest

import pyggml as pg
from pyggml.models import GPT2, LANGUAGE_MODELS, GPT2Config, LlamaConfig, build

_LLAMA = {"vocab_size": 31, "context": 9, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_kv_head": 1}
TINY = {
    "gpt2": {"vocab_size": 31, "context": 9, "n_embd": 12, "n_layer": 2, "n_head": 3},
    "llama": _LLAMA,
    "llm": {**_LLAMA, "n_ffn": 32},
}


def tiny(arch, **overrides):
    pg.seed(0)
    return build(arch, {**TINY[arch], **overrides})


def test_every_model_has_a_case():
    assert set(LANGUAGE_MODELS) == set(TINY)


@pytest.mark.parametrize("arch", TINY)
def test_forward_and_loss(arch):
    model = tiny(arch)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 31, (2, 7)).astype(np.int32)
    logits = model(pg.tensor(ids))
    assert logits.shape == (2, 7, 31)
    values = logits.numpy().astype(np.float64)
    targets = rng.integers(0, 31, (2, 7)).astype(np.int32)
    log_p = values - np.log(np.exp(values).sum(-1, keepdims=True))
    each = -np.take_along_axis(log_p, targets[..., None], -1)[..., 0]
    for reduction, want in (("mean", each.mean()), ("sum", each.sum()), ("none", each)):
        got = model.loss(pg.tensor(ids), pg.tensor(targets), reduction).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5)
    # A fresh model knows nothing: its loss is that of guessing.
    assert each.mean() == pytest.approx(np.log(31), rel=0.02)


@pytest.mark.parametrize("arch", TINY)
def test_the_future_is_not_seen(arch):
    model = tiny(arch)
    ids = np.random.default_rng(0).integers(0, 31, (1, 9)).astype(np.int32)
    changed = ids.copy()
    changed[0, 5] = (ids[0, 5] + 1) % 31
    a, b = (model(pg.tensor(x)).numpy()[0] for x in (ids, changed))
    np.testing.assert_array_equal(a[:5], b[:5])
    assert np.abs(a[5:] - b[5:]).max() > 0


@pytest.mark.parametrize("arch", TINY)
def test_rows_choose_logits(arch):
    model = tiny(arch)
    ids = pg.tensor(np.arange(14, dtype=np.int32).reshape(2, 7))
    everything = model(ids).numpy().reshape(14, 31)
    some = model(ids, rows=pg.tensor([13, 0, 6])).numpy()
    np.testing.assert_allclose(some, everything[[13, 0, 6]], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("arch", TINY)
@pytest.mark.parametrize("tie", [True, False])
def test_state_dict_round_trip(arch, tie):
    model, other = tiny(arch, tie=tie), build(arch, {**TINY[arch], "tie": tie})
    state = model.state_dict()
    assert ("lm_head.weight" in state) is not tie
    assert all(array.flags.c_contiguous for array in state.values())
    other.load_state_dict(state)
    ids = pg.tensor([[1, 2, 3]])
    np.testing.assert_array_equal(model(ids).numpy(), other(ids).numpy())


def test_state_dicts_have_hugging_faces_keys_and_shapes():
    state = {key: array.shape for key, array in tiny("gpt2").state_dict().items()}
    assert state["transformer.wte.weight"] == (31, 12)
    assert state["transformer.wpe.weight"] == (9, 12)
    assert state["transformer.h.1.attn.c_attn.weight"] == (12, 36)
    assert state["transformer.h.1.attn.c_attn.bias"] == (36,)
    assert state["transformer.h.0.mlp.c_fc.weight"] == (12, 48)
    assert state["transformer.h.0.mlp.c_proj.weight"] == (48, 12)
    assert state["transformer.ln_f.bias"] == (12,)
    assert len(state) == 2 + 2 * 12 + 2
    state = {key: array.shape for key, array in tiny("llama").state_dict().items()}
    assert state["model.embed_tokens.weight"] == (31, 12)
    assert state["model.layers.1.self_attn.k_proj.weight"] == (4, 12)
    assert state["model.layers.1.self_attn.o_proj.weight"] == (12, 12)
    assert state["model.layers.0.mlp.down_proj.weight"] == (12, 32)
    assert state["model.layers.0.post_attention_layernorm.weight"] == (12,)
    assert len(state) == 1 + 2 * 9 + 1


def test_old_and_foreign_files_load():
    model = tiny("gpt2")
    state = {key.removeprefix("transformer."): array for key, array in model.state_dict().items()}
    state["h.0.attn.bias"] = np.tril(np.ones((1, 1, 9, 9)))
    state["lm_head.weight"] = state["wte.weight"]
    tiny("gpt2").load_state_dict(state)
    with pytest.raises(KeyError, match=r"transformer.h.0.extra"):
        model.load_state_dict({**state, "h.0.extra": np.ones(1)})
    llama = tiny("llama")
    state = llama.state_dict()
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(2)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    llama.load_state_dict(state)


def test_initial_weights_are_gpt2s():
    pg.seed(0)
    model = GPT2(GPT2Config(vocab_size=500, context=64, n_embd=64, n_layer=8, n_head=4))
    block = model.transformer.h[3]
    assert model.transformer.wte.weight.numpy().std() == pytest.approx(0.02, rel=0.03)
    assert block.attn.c_attn.weight.numpy().std() == pytest.approx(0.02, rel=0.05)
    assert block.attn.c_proj.weight.numpy().std() == pytest.approx(0.02 / 4, rel=0.05)
    assert block.mlp.c_proj.weight.numpy().std() == pytest.approx(0.02 / 4, rel=0.05)
    assert not block.mlp.c_fc.bias.numpy().any()


@pytest.mark.parametrize("arch", LANGUAGE_MODELS)
def test_configs_round_trip_and_presets_build(arch):
    kind = LANGUAGE_MODELS[arch].config_class
    for name in kind.PRESETS:
        config = kind.preset(name, vocab_size=77, context=None)
        assert config.vocab_size == 77
        assert kind.from_dict(config.to_dict()) == config
    assert build(arch, "tiny", vocab_size=40).num_parameters() > 0
    assert build(arch, kind(**TINY[arch]), n_layer=1).config.n_layer == 1


def test_parameter_counts_are_the_published_ones():
    """GPT-2's 124,439,808; SmolLM-135M's 134,515,008; counted without allocating them."""

    def count(config):
        c = config
        if isinstance(c, GPT2Config):
            block = 12 * c.n_embd**2 + 13 * c.n_embd
            return (c.vocab_size + c.context) * c.n_embd + c.n_layer * block + 2 * c.n_embd
        kv = c.n_embd * c.kv_head // c.n_head
        block = 2 * c.n_embd**2 + 2 * c.n_embd * kv + 3 * c.n_embd * c.ffn + 2 * c.n_embd
        return c.vocab_size * c.n_embd + c.n_layer * block + c.n_embd

    assert count(GPT2Config.preset("gpt2-124m")) == 124_439_808
    assert count(LlamaConfig.preset("smollm-135m")) == 134_515_008
    for arch in ("gpt2", "llama"):
        model = build(arch, "tiny", vocab_size=50)
        assert model.num_parameters() == count(model.config)


@pytest.mark.parametrize(
    ("arch", "overrides", "message"),
    [
        ("gpt2", {"n_head": 5}, "GPT2Config: n_head must divide n_embd; got n_embd=12, n_head=5"),
        ("gpt2", {"n_layer": 0}, "n_layer must be an integer >= 1; got 0"),
        ("gpt2", {"vocab_size": -3}, "vocab_size must be an integer >= 1; got -3"),
        ("gpt2", {"context": 1.5}, "context must be an integer >= 1; got 1.5"),
        ("gpt2", {"eps": 0.0}, "eps must be finite and > 0"),
        ("gpt2", {"width": 3}, "keys must be among .*got .'width'"),
        ("llama", {"n_head": 4, "n_kv_head": 3}, "n_kv_head must divide n_head"),
        ("llama", {"n_head": 4, "n_kv_head": 4}, "even head size n_embd / n_head; got 12 / 4 = 3"),
        ("llama", {"n_ffn": -1}, "n_ffn must be an integer >= 1; got -1"),
        ("llama", {"rope_theta": 0.0}, "base and scale must be > 0"),
        ("rnn", {}, "arch must be one of gpt2, llama, .*; got 'rnn'"),
    ],
)
def test_bad_configurations_are_named(arch, overrides, message):
    with pytest.raises(ValueError, match=message):
        build(arch, {**TINY.get(arch, {}), **overrides})


def test_bad_calls_are_named():
    model = tiny("gpt2")
    with pytest.raises(pg.ShapeError, match=r"ids must be \(B, T\); got \(3,\)"):
        model(pg.tensor([1, 2, 3]))
    with pytest.raises(pg.ShapeError, match="got T=10, context=9"):
        model(pg.zeros((1, 10), "i32"))
    with pytest.raises(pg.ShapeError, match="must have one shape"):
        model.loss(pg.zeros((1, 4), "i32"), pg.zeros((1, 3), "i32"))
    with pytest.raises(ValueError, match="preset must be one of tiny, small"):
        build("llama", "huge")
    with pytest.raises(TypeError, match="config must be a LlamaConfig; got GPT2Config"):
        build("llama", GPT2Config.preset("tiny"))


@pytest.mark.parametrize("arch", TINY)
def test_segments_are_refused_where_they_do_not_fit(arch):
    model, ids = tiny(arch), pg.tensor(np.arange(14, dtype=np.int32).reshape(2, 7))
    segments = pg.zeros((2, 7), "i32")
    with pytest.raises(ValueError, match="give mask or segments, not both"):
        model(ids, mask=pg.zeros((7, 7)), segments=segments)
    with pytest.raises(pg.ShapeError, match=r"segments must be as ids, \(2, 7\); got \(7,\)"):
        model(ids, segments=pg.zeros((7,), "i32"))
    whole = model(ids, segments=segments).numpy()
    np.testing.assert_array_equal(whole, model(ids).numpy())
