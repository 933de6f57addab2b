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


def saved(tmp_path, tokenizer, model, **how):
    """Return a model's file, and the model that is read from it."""
    path = tmp_path / "model.gguf"
    model.save(path, tokenizer, **how)
    again, _ = load(path)
    assert again.config == model.config
    return path, again


def draw(*lengths):
    """Return texts of some lengths."""
    rng = np.random.default_rng(6)
    return [rng.integers(5, 320, length) for length in lengths]


def batch(ids):
    """Return a text as a batch of one."""
    return pg.tensor(ids[None].astype(np.int32))


def probabilities(path, tokenizer, model, texts):
    """Yield the log-probabilities after each text, llama.cpp's and ours."""
    letter = tokenizer.encode("a")[0]
    jobs = [llamacpp.weigh(ids, tokenizer.vocab_size, letter) for ids in texts]
    for ids, answer in zip(texts, llamacpp.ask(path, jobs, 128), strict=True):
        logits = model(batch(ids)).numpy()[0, -1].astype(np.float64)
        own = logits - logits.max()
        own -= np.log(np.exp(own).sum())
        found = answer["completion_probabilities"][0]["top_logprobs"]
        assert len(found) > tokenizer.vocab_size // 2
        theirs = np.array([each["logprob"] for each in found])
        yield theirs, own[[each["id"] for each in found]]


def vectors(path, texts, context, count=None):
    """Return what llama.cpp gives for each text: a vector, or the first numbers of it."""
    jobs = [llamacpp.embed(ids) for ids in texts]
    answers = llamacpp.ask(path, jobs, context, embedding=True)
    return [np.array(answer[0]["embedding"][0][:count]) for answer in answers]


@pytest.mark.parametrize("name", CASES)
def test_llama_cpp_has_the_same_probabilities(name, tokenizer, tmp_path):
    arch, sizes = CASES[name]
    model = random_model(arch, sizes, tokenizer.vocab_size)
    path, again = saved(tmp_path, tokenizer, model)
    # llama.cpp takes the long divisors for all texts where its context is long.
    texts = draw(*((7, 60) if name == "phi3-long" else (1, 7, 60)))
    # Upstream's GELU of f32 comes from a table of f16.
    atol = 5e-3 if name.startswith(("gpt2", "gemma", "starcoder2", "phi2")) else 5e-5
    for theirs, ours in probabilities(path, tokenizer, again, texts):
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
    ((theirs, ours),) = probabilities(path, tokenizer, again, draw(20))
    np.testing.assert_allclose(theirs, ours, atol=5e-5)


@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen2moe"])
def test_llama_cpp_reads_eight_bits(name, tokenizer, tmp_path):
    arch, sizes = CASES[name]
    sizes = {**sizes, "n_shared_ffn": 64} if name == "qwen2moe" else sizes  # blocks of 32
    model = random_model(arch, sizes, tokenizer.vocab_size)
    path, again = saved(tmp_path, tokenizer, model, dtype="q8_0")
    ((theirs, ours),) = probabilities(path, tokenizer, again, draw(20))
    # It makes eight bits of what it multiplies the weights by, too; here that stays f32. Weights
    # that were read wrong would be off by whole units, as these logits spread over several.
    assert np.std(ours) > 0.5
    assert np.abs(theirs - ours).mean() < 0.05


BERT = {"context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
MODERN = {**BERT, "context": 128, "n_layer": 4, "window": 8}
# Of GELU: llama.cpp's comes from a table of f16.
ENCODERS = {
    "bert-mean": ("bert", {**BERT, "pooling": "mean"}, 2e-2),
    "bert-cls": ("bert", {**BERT, "pooling": "cls"}, 2e-2),
    "qwen3-last": ("llama", {**SIZES, "family": "qwen3", "pooling": "last"}, 2e-5),
    "llama-mean": ("llama", {**SIZES, "pooling": "mean"}, 2e-5),
    "modern-bert": ("modern-bert", {**MODERN, "rope_theta": 500.0}, 1e-2),
    "modern-bert-silu": (
        "modern-bert",
        {**MODERN, "n_layer": 2, "window": 128, "activation": "silu", "pooling": "cls"},
        2e-5,
    ),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_llama_cpp_has_the_same_embeddings(name, tokenizer, tmp_path):
    arch, sizes, near = ENCODERS[name]
    path, again = saved(tmp_path, tokenizer, random_model(arch, sizes, tokenizer.vocab_size))
    texts = draw(1, 9, 40)
    for ids, theirs in zip(texts, vectors(path, texts, sizes["context"]), strict=True):
        ours = again.eval().embed(batch(ids), normalize=False).numpy()[0]
        np.testing.assert_allclose(theirs, ours, atol=near * np.abs(ours).max())


LABELS = {"classes": 3, "labels": ("good", "bad", "neither")}
CLASSIFIERS = {
    "bert": ("bert-classifier", {**BERT, **LABELS}, 2e-2),
    "bert-reranker": ("bert-classifier", {**BERT, "classes": 1, "pooler": True}, 2e-2),
    "bert-reranker-bare": ("bert-classifier", {**BERT, "classes": 1, "pooler": False}, 2e-2),
    "modern-bert-mean": ("modern-bert-classifier", {**MODERN, **LABELS, "pooling": "mean"}, 1e-2),
    "modern-bert-cls": ("modern-bert-classifier", {**MODERN, **LABELS, "pooling": "cls"}, 1e-2),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_llama_cpp_has_the_same_classes(name, tokenizer, tmp_path):
    arch, sizes, near = CLASSIFIERS[name]
    path, again = saved(tmp_path, tokenizer, random_model(arch, sizes, tokenizer.vocab_size))
    (ids,) = draw(30)
    ours = again.eval()(batch(ids)).numpy()[0]
    # The server fills up to the width of the stream.
    (theirs,) = vectors(path, [ids], sizes["context"], sizes["classes"])
    np.testing.assert_allclose(theirs, ours, atol=near * np.abs(ours).max())


def test_qwen3_has_the_same_answers(tokenizer, tmp_path):
    """A reranker made of a language model: the probabilities of two tokens."""
    base = random_model("llama", {**SIZES, "family": "qwen3"}, tokenizer.vocab_size)
    kind = pg.models.LlamaForSequenceClassification
    model = kind.from_language_model(base, [77, 99], ("yes", "no"))
    (ids,) = draw(30)
    logits = base(batch(ids)).numpy()[0, -1, [77, 99]]
    np.testing.assert_allclose(model(batch(ids)).numpy()[0], logits, rtol=1e-5)
    path, again = saved(tmp_path, tokenizer, model)
    (theirs,) = vectors(path, [ids], 128, 2)
    np.testing.assert_allclose(theirs, again.predict_proba(batch(ids)).numpy()[0], atol=1e-5)


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
