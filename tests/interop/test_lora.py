# SPDX-License-Identifier: MIT
"""llama.cpp applies our adapters to our models as we do."""

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import Tokenizer, embedded_text
from pyggml.models import load, load_lora, save_lora

from . import llamacpp
from .test_families import SIZES, random_model

pytestmark = pytest.mark.skipif(not llamacpp.HERE, reason="needs the xllamacpp wheel")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train_bpe(embedded_text()[:20], 320)


def adapted(path, folder, **options):
    """A model of a file with adapters that matter, and their file."""
    model, _ = load(path, keep_types=True)
    nn.apply_lora(model, **{"targets": "all-linear", **options})
    rng = np.random.default_rng(6)
    for layer in nn.lora.adapters_of(model).values():
        b = layer.lora_B.weight
        b.copy_((rng.standard_normal(b.shape) * 0.2).astype(np.float32))
    save_lora(model, folder / "adapter.gguf")
    return model, folder / "adapter.gguf"


def ours(model, ids, found):
    """The log-probabilities of the tokens that llama.cpp names, after some."""
    logits = model.eval()(pg.tensor(ids[None].astype(np.int32))).numpy()[0, -1].astype(np.float64)
    logits -= logits.max()
    logits -= np.log(np.exp(logits).sum())
    return logits[[each["id"] for each in found]]


def theirs(path, ids, tokenizer, adapter=None):
    letter = tokenizer.encode("a")[0]
    request = llamacpp.weigh(ids, tokenizer.vocab_size, letter)
    (answer,) = llamacpp.ask(path, [request], 128, adapter=adapter)
    found = answer["completion_probabilities"][0]["top_logprobs"]
    return found, np.array([each["logprob"] for each in found])


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("rslora", [False, True])
def test_llama_cpp_applies_adapters(family, rslora, tokenizer, tmp_path):
    """Beside the base model, and merged; `llama` has rows of q and k in another order there."""
    size, path = tokenizer.vocab_size, tmp_path / "base.gguf"
    random_model("llama", {**SIZES, "family": family}, size).save(path, tokenizer)
    model, adapter = adapted(path, tmp_path, rank=4, alpha=6, use_rslora=rslora)
    ids = np.random.default_rng(5).integers(5, size, 20)
    found, with_adapter = theirs(path, ids, tokenizer, adapter)
    np.testing.assert_allclose(with_adapter, ours(model, ids, found), atol=5e-5, rtol=0)
    plain, without = theirs(path, ids, tokenizer)
    at = {each["id"]: p for each, p in zip(plain, without, strict=True)}
    apart = [p - at[each["id"]] for each, p in zip(found, with_adapter, strict=True)]
    assert np.abs(apart).mean() > 0.5  # that it was applied
    nn.merge_lora(model)
    model.save(tmp_path / "merged.gguf", tokenizer)
    found, merged = theirs(tmp_path / "merged.gguf", ids, tokenizer)
    np.testing.assert_allclose(merged, ours(model, ids, found), atol=5e-5, rtol=0)
    again, _ = load(path)
    load_lora(again, adapter)
    np.testing.assert_allclose(merged, ours(again, ids, found), atol=1e-4, rtol=0)


def test_llama_cpp_applies_adapters_to_a_quantised_model(tokenizer, tmp_path):
    size, path = tokenizer.vocab_size, tmp_path / "base.gguf"
    sizes = {**SIZES, "n_embd": 256, "n_ffn": 512}
    random_model("llama", sizes, size).save(path, tokenizer, dtype="q4_K")
    model, adapter = adapted(path, tmp_path, rank=4)
    ids = np.random.default_rng(5).integers(5, size, 20)
    found, with_adapter = theirs(path, ids, tokenizer, adapter)
    want = ours(model, ids, found)
    assert np.std(want) > 0.5
    # Both make eight bits of what they multiply the weights by, of sums in another order.
    assert np.abs(with_adapter - want).mean() < 0.05


def test_llama_cpp_applies_adapters_of_experts_table_and_head(tokenizer, tmp_path):
    size, path = tokenizer.vocab_size, tmp_path / "base.gguf"
    sizes = {**SIZES, "n_expert": 4, "n_ffn": 64, "tie": False}
    random_model("llama", sizes, size).save(path, tokenizer)
    targets = ["q_proj", "*.experts.*", "embed_tokens", "lm_head"]
    model, adapter = adapted(path, tmp_path, targets=targets, rank=3, alpha=6)
    table = model.model.embed_tokens.lora_A.weight
    drawn = np.random.default_rng(7).standard_normal(table.shape) * 0.05
    table.copy_(drawn.astype(np.float32))
    save_lora(model, adapter)
    ids = np.random.default_rng(5).integers(5, size, 20)
    found, with_adapter = theirs(path, ids, tokenizer, adapter)
    np.testing.assert_allclose(with_adapter, ours(model, ids, found), atol=5e-5, rtol=0)
    plain, without = theirs(path, ids, tokenizer)
    at = {each["id"]: p for each, p in zip(plain, without, strict=True)}
    assert np.abs([p - at[e["id"]] for e, p in zip(found, with_adapter, strict=True)]).mean() > 0.5
    again, _ = load(path)
    assert load_lora(again, adapter) == list(nn.lora.adapters_of(model))
    np.testing.assert_allclose(ours(again, ids, found), ours(model, ids, found), atol=1e-4, rtol=0)


def test_an_adapter_that_began_by_pissa_is_for_the_first_model(tokenizer, tmp_path):
    size, path = tokenizer.vocab_size, tmp_path / "base.gguf"
    random_model("llama", SIZES, size).save(path, tokenizer)
    options = {"rank": 3, "alpha": 6, "init_lora_weights": "pissa"}
    model, adapter = adapted(path, tmp_path, **options)
    ids = np.random.default_rng(5).integers(5, size, 20)
    found, with_adapter = theirs(path, ids, tokenizer, adapter)
    np.testing.assert_allclose(with_adapter, ours(model, ids, found), atol=5e-5, rtol=0)
