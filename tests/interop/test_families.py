# SPDX-License-Identifier: MIT
"""Models that nobody trained say the same here and in llama.cpp, token by token."""

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Tokenizer, embedded_text
from pyggml.io import write_gguf
from pyggml.models import build, load

from . import llamacpp

pytestmark = pytest.mark.skipif(not llamacpp.HERE, reason="needs the xllamacpp wheel")

SIZES = {"context": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_kv_head": 2}
QWEN_MOE = {"n_expert": 6, "n_expert_used": 3, "n_expert_ffn": 32}


def stretched(kind, **more):
    return {"rope_scaling": {"kind": kind, "factor": 4.0, "original": 32, **more}}


CASES = {
    "gpt2": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "context": 128}),
    "llama": ("llama", SIZES),
    "llm": ("llm", {**SIZES, "n_ffn": 96}),
    "linear": ("llama", {**SIZES, **stretched("linear")}),
    "yarn": ("llama", {**SIZES, **stretched("yarn")}),
    "yarn-unsharpened": ("llama", {**SIZES, **stretched("yarn", attention=1.0)}),
    "llama3": ("llama", {**SIZES, **stretched("llama3")}),
    "wide-heads": ("llama", {**SIZES, "n_head_dim": 32}),
    "mistral-within-its-window": ("llama", {**SIZES, "window": 64}),
    "mixtral": ("llama", {**SIZES, "n_expert": 4, "n_ffn": 64, "tie": False}),
    "llama-biases": ("llama", {**SIZES, "attention_bias": True, "mlp_bias": True}),
    "llama-qkv-biases": ("llama", {**SIZES, "attention_bias": "qkv", "n_head_dim": 32}),
    "gemma2": ("llama", {**SIZES, "family": "gemma2", "n_head_dim": 32, "window": 8}),
    "gemma2-sharp": (
        "llama",
        {**SIZES, "family": "gemma2", "attention_softcap": 1.0, "logit_softcap": 2.0},
    ),
    "gemma3": (
        "llama",
        {
            **{**SIZES, "n_layer": 6, "family": "gemma3", "n_head_dim": 32, "window": 8},
            **{"rope_theta": 100.0, "rope_scaling": {"kind": "linear", "factor": 4.0}},
        },
    ),
    "gemma3-often": (
        "llama",
        {
            **{**SIZES, "family": "gemma3", "window": 8, "window_pattern": 2, "tie": False},
            **{"rope_theta_window": 50.0, "logit_softcap": 3.0},
        },
    ),
    "phi2": ("llama", {**SIZES, "family": "phi2", "rope_dims": 8, "tie": False}),
    "phi3": ("llama", {**SIZES, "family": "phi3", "tie": False}),
    "phi3-long": (
        "llama",
        {
            **{**SIZES, "family": "phi3", "rope_dims": 12, "n_layer": 3},
            "rope_scaling": {
                **{"kind": "longrope", "factor": 4.0, "original": 4},
                **{"short": (1.0,) * 6, "long": (1.0, 1.2, 1.5, 2.0, 3.5, 9.0)},
            },
        },
    ),
    "phi3-short": (
        "llama",
        {
            **{**SIZES, "family": "phi3", "rope_dims": 12},
            "rope_scaling": {
                **{"kind": "longrope", "factor": 4.0, "original": 512},
                **{"long": (1.0,) * 6, "short": (1.0, 1.2, 1.5, 2.0, 3.5, 9.0)},
            },
        },
    ),
    "olmo2": ("llama", {**SIZES, "family": "olmo2", "tie": False}),
    "olmo3": (
        "llama",
        {**SIZES, "family": "olmo2", "n_layer": 4, "window": 8, **stretched("yarn")},
    ),
    "granite": (
        "llama",
        {
            **{**SIZES, "family": "granite", "embedding_scale": 3.0, "residual_scale": 0.4},
            **{"attention_scale": 0.2, "logit_scale": 2.0},
        },
    ),
    "granite-plain": ("llama", {**SIZES, "family": "granite", "attention_bias": True}),
    "smollm3": ("llama", {**SIZES, "family": "smollm3", "n_layer": 4}),
    "starcoder2": ("llama", {**SIZES, "family": "starcoder2"}),
    "stablelm": (
        "llama",
        {**SIZES, "family": "stablelm", "attention_bias": "qkv", "rope_dims": 4, "tie": False},
    ),
    "stablelm-12b": (
        "llama",
        {**SIZES, "family": "stablelm", "qk_norm": True, "parallel": True, "rope_dims": 8},
    ),
    "gpt-oss": (
        "llama",
        {
            **{**SIZES, "family": "gpt-oss", "n_head_dim": 32, "n_expert": 4, "n_ffn": 64},
            **{"n_expert_used": 2, "window": 8, "tie": False, **stretched("yarn")},
        },
    ),
    "qwen2": ("llama", {**SIZES, "family": "qwen2"}),
    "qwen3": ("llama", {**SIZES, "family": "qwen3", "n_head_dim": 32}),
    "gemma": ("llama", {**SIZES, "family": "gemma", "n_head_dim": 32}),
    "qwen2moe": (
        "llama",
        {**SIZES, **QWEN_MOE, "family": "qwen2moe", "n_shared_ffn": 48, "tie": False},
    ),
    "qwen3moe": ("llama", {**SIZES, **QWEN_MOE, "family": "qwen3moe", "n_head_dim": 32}),
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train_bpe(embedded_text()[:20], 320)


def random_model(arch, sizes, vocab_size):
    """Weights far from fresh: every part tells in the result."""
    pg.seed(3)
    model = build(arch, {**sizes, "vocab_size": vocab_size})
    rng = np.random.default_rng(4)
    for p in model.parameters():
        noise = rng.standard_normal(p.shape) * (0.12 if p.ndim > 1 else 0.2)
        p.copy_((p.numpy() * (p.ndim == 1) + noise).astype(np.float32))
    return model


@pytest.mark.parametrize("name", CASES)
def test_llama_cpp_has_the_same_probabilities(name, tokenizer, tmp_path):
    arch, sizes = CASES[name]
    size = tokenizer.vocab_size
    model = random_model(arch, sizes, size)
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer)
    again, _ = load(path)
    assert again.config == model.config
    rng = np.random.default_rng(5)
    # llama.cpp takes the long divisors for all texts where its context is long.
    lengths = (7, 60) if name == "phi3-long" else (1, 7, 60)
    texts = [rng.integers(5, size, n) for n in lengths]
    letter = tokenizer.encode("a")[0]
    answers = llamacpp.ask(path, [llamacpp.weigh(ids, size, letter) for ids in texts], 128)
    for ids, answer in zip(texts, answers, strict=True):
        logits = again(pg.tensor(ids[None].astype(np.int32))).numpy()[0, -1].astype(np.float64)
        want = logits - logits.max()
        want -= np.log(np.exp(want).sum())
        found = answer["completion_probabilities"][0]["top_logprobs"]
        assert len(found) > size // 2
        theirs = np.array([each["logprob"] for each in found])
        ours = want[[each["id"] for each in found]]
        # Upstream's GELU of f32 comes from a table of f16.
        atol = 5e-3 if name.startswith(("gpt2", "gemma", "starcoder2", "phi2")) else 5e-5
        np.testing.assert_allclose(theirs, ours, atol=atol, rtol=0)


def test_llama_cpp_has_the_same_experts_of_four_bits(tokenizer, tmp_path):
    """What is kept as it is in the file is rounded as llama.cpp rounds it."""
    size, path = tokenizer.vocab_size, tmp_path / "model.gguf"
    model = random_model(*CASES["gpt-oss"], size)
    tensors = model.to_gguf_tensors()
    four = {key: ("mxfp4", a) for key, a in tensors.items() if key.endswith("_exps.weight")}
    metadata = model.to_gguf_metadata(tokenizer.to_gguf_metadata(size))
    write_gguf(path, metadata, {**tensors, **four})
    again, _ = load(path, keep_types=True)
    ids = np.random.default_rng(5).integers(5, size, 20)
    letter = tokenizer.encode("a")[0]
    (answer,) = llamacpp.ask(path, [llamacpp.weigh(ids, size, letter)], 128)
    logits = again(pg.tensor(ids[None].astype(np.int32))).numpy()[0, -1].astype(np.float64)
    want = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    found = answer["completion_probabilities"][0]["top_logprobs"]
    theirs = np.array([each["logprob"] for each in found])
    np.testing.assert_allclose(theirs, want[[each["id"] for each in found]], atol=5e-5)


@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen2moe"])
def test_llama_cpp_reads_eight_bits(name, tokenizer, tmp_path):
    arch, sizes = CASES[name]
    sizes = {**sizes, "n_shared_ffn": 64} if name == "qwen2moe" else sizes  # blocks of 32
    size = tokenizer.vocab_size
    path = tmp_path / "model.gguf"
    random_model(arch, sizes, size).save(path, tokenizer, dtype="q8_0")
    again, _ = load(path)
    ids = np.random.default_rng(5).integers(5, size, 20)
    letter = tokenizer.encode("a")[0]
    (answer,) = llamacpp.ask(path, [llamacpp.weigh(ids, size, letter)], 128)
    logits = again(pg.tensor(ids[None].astype(np.int32))).numpy()[0, -1].astype(np.float64)
    want = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    found = answer["completion_probabilities"][0]["top_logprobs"]
    theirs = np.array([each["logprob"] for each in found])
    # It makes eight bits of what it multiplies the weights by, too; here that stays f32. Weights
    # that were read wrong would be off by whole units, as these logits spread over several.
    assert np.std(want) > 0.5
    assert np.abs(theirs - want[[each["id"] for each in found]]).mean() < 0.05


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_bert_has_the_same_embeddings(pooling, tokenizer, tmp_path):
    sizes = {"context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "pooling": pooling}
    model = random_model("bert", {**sizes, "dropout": 0.0}, tokenizer.vocab_size)
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer)
    again, _ = load(path)
    assert again.config == model.config
    texts = [np.random.default_rng(6).integers(5, 320, n) for n in (1, 9, 40)]
    answers = llamacpp.ask(path, [llamacpp.embed(ids) for ids in texts], 64, embedding=True)
    for ids, answer in zip(texts, answers, strict=True):
        ours = again.embed(pg.tensor(ids[None].astype(np.int32)), normalize=False).numpy()[0]
        theirs = np.array(answer[0]["embedding"][0])
        np.testing.assert_allclose(theirs, ours, atol=2e-2 * np.abs(ours).max())


def test_bert_has_the_same_classes(tokenizer, tmp_path):
    sizes = {"context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "dropout": 0.0}
    labels = {"classes": 3, "labels": ("good", "bad", "neither")}
    model = random_model("bert-classifier", {**sizes, **labels}, tokenizer.vocab_size)
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer)
    again, _ = load(path)
    assert again.config == model.config
    ids = np.random.default_rng(6).integers(5, 320, 12)
    (answer,) = llamacpp.ask(path, [llamacpp.embed(ids)], 64, embedding=True)
    ours = again.eval()(pg.tensor(ids[None].astype(np.int32))).numpy()[0]
    theirs = answer[0]["embedding"][0][:3]  # the server fills up to the width of the stream
    np.testing.assert_allclose(theirs, ours, atol=2e-2 * np.abs(ours).max())


ENCODERS = {
    "qwen3-last": ("llama", {**SIZES, "family": "qwen3", "pooling": "last"}),
    "llama-mean": ("llama", {**SIZES, "pooling": "mean"}),
    "modern-bert": (
        "modern-bert",
        {**SIZES, "n_kv_head": None, "n_layer": 4, "window": 8, "rope_theta": 500.0},
    ),
    "modern-bert-silu": (
        "modern-bert", {**SIZES, "n_kv_head": None, "activation": "silu", "pooling": "cls"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_llama_cpp_has_the_same_embeddings(name, tokenizer, tmp_path):
    arch, sizes = ENCODERS[name]
    sizes = {key: value for key, value in sizes.items() if value is not None}
    model = random_model(arch, sizes, tokenizer.vocab_size)
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer)
    again, _ = load(path)
    assert again.config == model.config
    texts = [np.random.default_rng(6).integers(5, 320, n) for n in (1, 9, 40)]
    answers = llamacpp.ask(path, [llamacpp.embed(ids) for ids in texts], 128, embedding=True)
    for ids, answer in zip(texts, answers, strict=True):
        ours = again.embed(pg.tensor(ids[None].astype(np.int32)), normalize=False).numpy()[0]
        theirs = np.array(answer[0]["embedding"][0])
        near = 1e-2 if name == "modern-bert" else 2e-5  # GELU, from a table of f16
        np.testing.assert_allclose(theirs, ours, atol=near * np.abs(ours).max())


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_modernbert_has_the_same_classes(pooling, tokenizer, tmp_path):
    sizes = {"context": 128, "n_embd": 64, "n_layer": 4, "n_head": 4, "window": 8}
    sizes |= {"pooling": pooling, "classes": 3, "labels": ("good", "bad", "neither")}
    model = random_model("modern-bert-classifier", sizes, tokenizer.vocab_size)
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer)
    again, _ = load(path)
    assert again.config == model.config
    ids = np.random.default_rng(6).integers(5, 320, 30)
    (answer,) = llamacpp.ask(path, [llamacpp.embed(ids)], 128, embedding=True)
    ours = again.eval()(pg.tensor(ids[None].astype(np.int32))).numpy()[0]
    theirs = answer[0]["embedding"][0][:3]
    np.testing.assert_allclose(theirs, ours, atol=1e-2 * np.abs(ours).max())


def test_qwen3_has_the_same_answers(tokenizer, tmp_path):
    """A reranker made of a language model: the probabilities of two tokens."""
    base = random_model("llama", {**SIZES, "family": "qwen3"}, tokenizer.vocab_size)
    kind = pg.models.LlamaForSequenceClassification
    model = kind.from_language_model(base, [77, 99], ("yes", "no"))
    ids = np.random.default_rng(6).integers(5, 320, 30)
    tensors = pg.tensor(ids[None].astype(np.int32))
    logits = base(tensors).numpy()[0, -1, [77, 99]]
    np.testing.assert_allclose(model(tensors).numpy()[0], logits, rtol=1e-5)
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer)
    again, _ = load(path)
    assert again.config == model.config
    (answer,) = llamacpp.ask(path, [llamacpp.embed(ids)], 128, embedding=True)
    ours = again.predict_proba(tensors).numpy()[0]
    np.testing.assert_allclose(answer[0]["embedding"][0][:2], ours, atol=1e-5)


@pytest.mark.parametrize("pooler", [False, True])
def test_a_reranker_has_the_same_score(pooler, tokenizer, tmp_path):
    sizes = {"context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "dropout": 0.0}
    sizes |= {"classes": 1, "pooler": pooler}
    model = random_model("bert-classifier", sizes, tokenizer.vocab_size)
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer)
    again, _ = load(path)
    assert again.config == model.config
    ids = np.random.default_rng(6).integers(5, 320, 12)
    (answer,) = llamacpp.ask(path, [llamacpp.embed(ids)], 64, embedding=True)
    ours = again.eval()(pg.tensor(ids[None].astype(np.int32))).numpy()[0]
    np.testing.assert_allclose(answer[0]["embedding"][0][:1], ours, atol=2e-2)


@pytest.mark.parametrize("gated", [False, True])
def test_t5_loads(gated, tokenizer, tmp_path):
    """The server cannot run an encoder, and says so once it has taken in the whole file."""
    sizes = {"context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_head_dim": 16, "n_ffn": 96}
    model = random_model(
        "t5", {**sizes, "gated": gated, "tie": not gated, "dropout": 0.0}, tokenizer.vocab_size
    )
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer)
    again, _ = load(path)
    assert again.config == model.config
    with pytest.raises(AssertionError, match="llama_encode must be called first"):
        llamacpp.ask(path, [], 64)
    model.save(path, tokenizer, dtype="q8_0")
    with pytest.raises(AssertionError, match="llama_encode must be called first"):
        llamacpp.ask(path, [], 64)
    metadata = model.to_gguf_metadata(tokenizer.to_gguf_metadata(tokenizer.vocab_size))
    tensors = model.to_gguf_tensors()
    del tensors["dec.blk.1.cross_attn_v.weight"]
    write_gguf(path, metadata, tensors)
    with pytest.raises(AssertionError, match=r"dec\.blk\.1\.cross_attn_v\.weight' not found"):
        llamacpp.ask(path, [], 64)
