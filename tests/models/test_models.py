# SPDX-License-Identifier: MIT
import numpy as np
import pytest

import pyggml as pg
from pyggml.errors import ShapeError
from pyggml.models import GPT2, LANGUAGE_MODELS, MODELS, GPT2Config, build

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


_HEAD = "lm_head.weight"
_DECODER = "cls.predictions.decoder"
# A model whose head is a table, with the two names of the tensor in Hugging Face's files.
TIED = {
    "gpt2": (TINY["gpt2"], _HEAD, "transformer.wte.weight"),
    "llama": (_LLAMA, _HEAD, "model.embed_tokens.weight"),
    "llm": (TINY["llm"], _HEAD, "model.embed_tokens.weight"),
    "t5": ({"n_embd": 12, "n_layer": 1, "n_head": 3, "vocab_size": 31}, _HEAD, "shared.weight"),
    "bert-mlm": (
        TINY["gpt2"],
        f"{_DECODER}.weight",
        "bert.embeddings.word_embeddings.weight",
    ),
    "bert-mlm-bias": (TINY["gpt2"], f"{_DECODER}.bias", "cls.predictions.bias"),
}


@pytest.mark.parametrize("case", TIED)
@pytest.mark.parametrize("strict", [True, False])
def test_a_head_of_other_numbers_than_the_table_raises(case, strict):
    sizes, copy, table = TIED[case]
    model = build(case.removesuffix("-bias"), sizes)
    before = model.state_dict()
    state = {name: np.asarray(array + 1) for name, array in before.items()}
    state[copy] = state[table] + 1
    cure = "tie=False" if copy == _HEAD else "leave out"
    with pytest.raises(ValueError, match=f"{copy} must equal {table}.*{cure}"):
        model.load_state_dict(state, strict)
    with pytest.raises(ShapeError, match=f"{copy} must have the shape of {table}.*{cure}"):
        model.load_state_dict({**state, copy: np.zeros(3, np.float32)}, strict)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    # A copy is welcome, and stands for the table where that is not named.
    state[copy] = state[table]
    model.load_state_dict(state, strict)
    own = state.pop(table)
    model.load_state_dict({table: own * 0, **before}, strict)
    model.load_state_dict(state, strict)
    np.testing.assert_array_equal(model.state_dict()[table], own)


@pytest.mark.parametrize("case", TIED)
def test_a_head_without_its_table_is_the_table_which_is_reported_missing(case):
    """As PyTorch: a tied head is the table, and the table's own name is missing."""
    sizes, copy, table = TIED[case]
    model = build(case.removesuffix("-bias"), sizes)
    before = model.state_dict()
    keys = model.load_state_dict({copy: before[table] + 1, "other": np.ones(1)}, strict=False)
    assert table in keys.missing_keys
    assert set(keys.missing_keys) == set(before)
    assert [name.rpartition(".")[2] for name in keys.unexpected_keys] == ["other"]
    np.testing.assert_array_equal(model.state_dict()[table], before[table] + 1)
    assert model.load_state_dict(before) == ([], [])


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


# What the publishers' files hold, in numbers; a table that is tied counts once.
PUBLISHED = {
    "gpt2": {
        "gpt2-124m": 124_439_808, "gpt2-355m": 354_823_168, "gpt2-774m": 774_030_080,
        "gpt2-1558m": 1_557_611_200,
    },
    "llama": {
        "tinyllama-1.1b": 1_100_048_384, "llama-2-7b": 6_738_415_616,
        "llama-2-13b": 13_015_864_320, "llama-2-70b": 68_976_648_192,
        "llama-3-8b": 8_030_261_248, "llama-3-70b": 70_553_706_496,
        "llama-3.1-8b": 8_030_261_248, "llama-3.2-1b": 1_235_814_400,
        "llama-3.2-3b": 3_212_749_824, "smollm-135m": 134_515_008, "smollm-360m": 361_821_120,
        "smollm-1.7b": 1_711_376_384, "smollm2-135m": 134_515_008, "smollm2-360m": 361_821_120,
        "smollm2-1.7b": 1_711_376_384, "mistral-7b": 7_241_732_096,
        "mixtral-8x7b": 46_702_792_704, "qwen2-0.5b": 494_032_768, "qwen2-1.5b": 1_543_714_304,
        "qwen2-7b": 7_615_616_512, "qwen3-0.6b": 596_049_920, "qwen3-1.7b": 1_720_574_976,
        "qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360,
        "qwen1.5-moe-a2.7b": 14_315_784_192, "qwen3-30b-a3b": 30_532_122_624,
        "gemma-2b": 2_506_172_416, "gemma-7b": 8_537_680_896, "gemma-2-2b": 2_614_341_888,
        "gemma-2-9b": 9_241_705_984, "gemma-3-1b": 999_885_952, "phi-2": 2_779_683_840,
        "phi-3-mini-4k": 3_821_079_552, "phi-4": 14_659_507_200, "olmo-2-1b": 1_484_916_736,
        "smollm3-3b": 3_075_098_624, "starcoder2-3b": 3_030_371_328,
        "gpt-oss-20b": 20_914_757_184,
    },
    "bert": {
        "bert-base-uncased": 109_482_240 - 590_592, "bert-large-uncased": 335_141_888 - 1_049_600,
        "all-minilm-l6-v2": 22_713_216 - 147_840,
    },
    "t5": {
        "t5-small": 60_506_624, "t5-base": 222_903_552, "t5-large": 737_668_096,
        "t5-3b": 2_851_598_336, "flan-t5-small": 76_961_152, "flan-t5-base": 247_577_856,
        "flan-t5-large": 783_150_080, "flan-t5-xl": 2_849_757_184,
    },
}  # fmt: skip


@pytest.mark.parametrize("arch", PUBLISHED)
def test_parameter_counts_are_the_published_ones(arch):
    """BERT's without the pooler, a layer of n_embd by n_embd that `BERT` has not."""
    kind = MODELS[arch].config_class
    for name, count in PUBLISHED[arch].items():
        assert kind.preset(name).count_parameters() == count, name


@pytest.mark.parametrize(
    "arch", ["gpt2", "llama", "llm", "bert", "t5", "modern-bert", "llama-classifier"]
)
def test_counting_is_what_building_gives(arch):
    kind = MODELS[arch].config_class
    sizes = {"n_layer": 1, "n_embd": 48, "n_head": 4, "n_ffn": 96}
    for name in kind.PRESETS:
        given = {**kind.PRESETS[name], **sizes, "vocab_size": 60, "context": 8}
        # Few and small experts, narrow heads: what a preset has, at a size that is built at once.
        small = {"n_expert": 4, "n_expert_used": 2, "n_expert_ffn": 96, "n_shared_ffn": 64}
        small |= {"n_head_dim": 10, "n_kv_head": 2, "labels": None, "rope_dims": 4}
        given |= {key: value for key, value in small.items() if given.get(key)}
        if given.get("n_expert") and given.get("family", "llama") != "llama":
            given["n_expert_ffn"] = 32
        model = build(arch, kind.from_dict(given))
        assert model.num_parameters() == model.config.count_parameters(), name


@pytest.mark.parametrize(
    ("arch", "overrides", "message"),
    [
        ("gpt2", {"n_head": 5}, "GPT2Config: n_head must divide n_embd; got n_embd=12, n_head=5"),
        ("gpt2", {"n_layer": 0}, "n_layer must be a whole number >= 1; got 0"),
        ("gpt2", {"vocab_size": -3}, "vocab_size must be a whole number >= 1; got -3"),
        ("gpt2", {"eps": 0.0}, "eps must be a finite number > 0"),
        ("gpt2", {"width": 3}, "keys must be among .*got .'width'"),
        ("llama", {"n_head": 4, "n_kv_head": 3}, "n_kv_head must divide n_head"),
        ("llama", {"n_head": 4, "n_kv_head": 4}, "even head size n_embd / n_head; got 12 / 4 = 3"),
        ("llama", {"n_ffn": -1}, "n_ffn must be a whole number >= 1; got -1"),
        ("llama", {"rope_theta": 0.0}, "base must be a finite number > 0"),
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
        model(pg.zeros((1, 10), dtype="i32"))
    with pytest.raises(pg.ShapeError, match="must have one shape"):
        model.loss(pg.zeros((1, 4), dtype="i32"), pg.zeros((1, 3), dtype="i32"))
    with pytest.raises(ValueError, match="preset must be one of tiny, small"):
        build("llama", "huge")
    with pytest.raises(TypeError, match=r"config .*GPT2Config"):
        build("llama", GPT2Config.preset("tiny"))


@pytest.mark.parametrize("arch", TINY)
def test_segments_are_refused_where_they_do_not_fit(arch):
    model, ids = tiny(arch), pg.tensor(np.arange(14, dtype=np.int32).reshape(2, 7))
    segments = pg.zeros((2, 7), dtype="i32")
    with pytest.raises(ValueError, match="give mask or segments, not both"):
        model(ids, mask=pg.zeros((7, 7)), segments=segments)
    with pytest.raises(pg.ShapeError, match=r"segments .*\(7,\)"):
        model(ids, segments=pg.zeros((7,), dtype="i32"))
    whole = model(ids, segments=segments).numpy()
    np.testing.assert_array_equal(whole, model(ids).numpy())
