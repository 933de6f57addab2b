# SPDX-License-Identifier: MIT
"""Stand-ins for popular models: their architecture, their vocabulary's kind, random weights.

Each file goes through `load` and has llama.cpp's tokens, probabilities and greedy text.
"""

import os

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("xllamacpp")
import pyggml as pg
from pyggml.io import read_gguf
from pyggml.models import T5, LanguageModel, generate, load

from . import direct, llamacpp
from .test_families import random_model
from .test_vocabularies_llamacpp import lines, sample, source, strings

pytestmark = pytest.mark.slow
TEXTS = int(os.environ.get("PYGGML_STAND_IN_TEXTS", "2000"))
SIZES = {"context": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_kv_head": 2, "tie": False}
MOE = {"n_expert": 6, "n_expert_used": 3, "n_expert_ffn": 32}
GEMMA = {**SIZES, "n_head_dim": 32, "tie": True}


def member(family, sizes=SIZES, **more):
    return "llama", {**sizes, "family": family, **more}


LLAMA = member("llama")
# Architecture and sizes; the vocabulary file; the name of its way of splitting words.
MODELS = {
    "Llama 2": (LLAMA, "llama-spm", None),
    "TinyLlama": (member("llama", n_kv_head=1), "llama-spm", None),
    "Mistral 7B": (member("llama", rope_theta=1e6), "llama-spm", None),
    "Yi": (member("llama", rope_theta=5e6), "llama-spm", None),
    "Mixtral": (member("llama", n_expert=4, n_ffn=64), "llama-spm", None),
    "Gemma": (member("gemma", GEMMA), "llama-spm", None),
    "Gemma 2": (member("gemma2", GEMMA), "llama-spm", None),
    "Gemma 3": (member("gemma3", GEMMA, n_layer=6), "llama-spm", None),
    "Phi 3": (member("phi3"), "phi-3", None),
    "Phi 4": (member("phi3", rope_theta=250000.0), "gpt-2", "dbrx"),
    "Llama 3": (
        member("llama", rope_scaling={"kind": "llama3", "factor": 8.0, "original": 32}),
        "llama-bpe", None,
    ),
    "DeepSeek LLM": (LLAMA, "deepseek-llm", None),
    "DeepSeek Coder": (
        member("llama", rope_scaling={"kind": "linear", "factor": 4.0}), "deepseek-coder", None,
    ),
    "R1 Distill Qwen": (member("qwen2"), "qwen2", "deepseek-r1-qwen"),
    "Qwen 2.5": (member("qwen2"), "qwen2", None),
    "Qwen 3": (member("qwen3", n_head_dim=32), "qwen2", None),
    "Qwen 3 A3B": (member("qwen3moe", n_head_dim=32, **MOE), "qwen2", None),
    "Qwen 1.5 MoE": (member("qwen2moe", n_shared_ffn=48, **MOE), "qwen2", None),
    "Mistral Nemo": (member("llama", n_head_dim=32), "llama-bpe", "tekken"),
    "SmolLM 2": (LLAMA, "gpt-2", "smollm"),
    "SmolLM 3": (member("smollm3", n_layer=4), "llama-bpe", None),
    "Falcon 3": (LLAMA, "llama-bpe", "falcon3"),
    "OLMo 2": (member("olmo2"), "gpt-neox", "dbrx"),
    "StableLM": (
        member("stablelm", attention_bias="qkv", rope_dims=4), "gpt-neox", "stablelm2",
    ),
    "Granite": (member("granite", logit_scale=2.0, residual_scale=0.5), "refact", None),
    "StarCoder 2": (member("starcoder2"), "starcoder", None),
    "gpt-oss": (
        member("gpt-oss", n_head_dim=32, n_expert=4, n_expert_used=2, n_ffn=64, window=8),
        "llama-bpe", "gpt-4o",
    ),
    "GPT-2": (("gpt2", {"context": 128, "n_embd": 64, "n_layer": 2, "n_head": 4}), "gpt-2", None),
    "bge": (
        ("bert", {"context": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "pooling": "cls"}),
        "bert-bge", None,
    ),
    "T5": (("t5", {"n_embd": 64, "n_layer": 2, "n_head": 4}), "nomic-bert-moe", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def texts():
    return sample([*strings(TEXTS), *lines(TEXTS)])


def stand_in(name, folder):
    """Write the file of a model; return its path."""
    (arch, sizes), vocabulary, pre = MODELS[name]
    path = folder / "vocabulary.gguf"
    path.write_bytes(source(f"models/ggml-vocab-{vocabulary}.gguf"))
    with read_gguf(path) as file:
        metadata = {k: v for k, v in file.typed_metadata.items() if k.startswith("tokenizer.")}
    if pre is not None:
        metadata["tokenizer.ggml.pre"] = pre
    model = random_model(arch, sizes, len(metadata["tokenizer.ggml.tokens"]))
    model.metadata.update(metadata)
    model.save(folder / "model.gguf")
    return folder / "model.gguf"


@pytest.mark.parametrize("name", MODELS)
def test_stand_in(name, texts, tmp_path):
    path = stand_in(name, tmp_path)
    model, tokenizer = load(path)
    model.eval()
    prompt = tokenizer.encode("The quick brown fox jumps over 13 lazy dogs.", add_special=True)
    wants_vector = not isinstance(model, (LanguageModel, T5))
    requests = [llamacpp.tokenize(text) for text in texts]
    requests.append(llamacpp.embed(prompt) if wants_vector else llamacpp.complete(prompt, 12))
    if isinstance(model, T5):  # the server runs none; `test_vocabulary_files` has its tokens
        requests = []
    answers = llamacpp.ask(path, requests, embedding=wants_vector) if requests else []
    for text, answer in zip(texts, answers, strict=False):
        assert tokenizer.encode(text).tolist() == answer["tokens"], text
    if wants_vector:
        want = np.array(answers[-1][0]["embedding"][0], np.float32)
        got = model.embed(pg.tensor(np.array(prompt)[None]), normalize=False).numpy()[0]
        np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want).max())
        return
    (found,) = direct.answers([(path, prompt)])
    want = np.array(found["logits"], np.float64)
    got = logits_of(model, prompt)
    top = np.argsort(-want)[:20]
    log_softmax = lambda x: x - x.max() - np.log(np.exp(x - x.max()).sum())  # noqa: E731
    # llama.cpp looks GELU up in a table of f16.
    limit = 2e-2 if name in ("GPT-2", "StarCoder 2") or "Gemma" in name else 1e-3
    np.testing.assert_allclose(log_softmax(got)[top], log_softmax(want)[top], atol=limit)
    if isinstance(model, LanguageModel):
        ends = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        text = generate(model, prompt, 12, temperature=0, stop_ids=ends)
        theirs = [token for token in answers[-1]["tokens"] if token not in ends]
        assert text == theirs


def logits_of(model, prompt):
    """The logits after the prompt."""
    ids = pg.tensor(np.array(prompt, np.int32)[None])
    if isinstance(model, T5):
        start = pg.tensor(np.array([[model.config.start_id]], np.int32))
        return model(ids, decoder_ids=start).numpy()[0, -1].astype(np.float64)
    return model(ids).numpy()[0, -1].astype(np.float64)
