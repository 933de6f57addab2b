# SPDX-License-Identifier: MIT
"""llama.cpp computes what a fine-tuned model computes here: with the adapter, and merged."""

import json

import numpy as np
import pytest

from pyggml.data import Tokenizer
from pyggml.models import load
from pyggml.recipes import finetune

from . import llamacpp
from .test_families import SIZES, batch, random_model, vectors
from .test_lora import ours, theirs

pytestmark = pytest.mark.skipif(not llamacpp.HERE, reason="needs the xllamacpp wheel")


def test_llama_cpp_answers_as_the_fine_tuned_model(tmp_path):
    pairs = [(f"{n} and {n}?", f"It is {2 * n}.") for n in range(24)]
    tokenizer = Tokenizer.train_bpe([f"<|user|> {q} {a}" for q, a in pairs], 300)
    path, data, folder = (tmp_path / name for name in ("base.gguf", "chats.jsonl", "run"))
    sizes = {**SIZES, "n_embd": 64, "n_ffn": 96, "context": 64}
    random_model("llama", sizes, tokenizer.vocab_size).save(path, tokenizer, dtype="q8_0")
    rows = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
        for q, a in pairs
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    run = finetune(
        model=path, data=data, artifact_dir=folder, steps=12, batch_size=4, lr=2e-2, threads=1,
        merge="q8_0", answers=0, lora_rank=4, report=False,
    )  # fmt: skip
    ids = run.examples.train.documents[3][:-4]
    found, with_adapter = theirs(path, ids, tokenizer, folder / "adapter.gguf")
    np.testing.assert_allclose(with_adapter, ours(run.model, ids, found), atol=5e-5, rtol=0)
    merged, _ = load(folder / "model.gguf", keep_types=True)
    found, there = theirs(folder / "model.gguf", ids, tokenizer)
    np.testing.assert_allclose(there, ours(merged, ids, found), atol=5e-5, rtol=0)
    base, _ = load(path, keep_types=True)
    assert np.abs(ours(base, ids, found) - ours(merged, ids, found)).mean() > 0.2


def test_llama_cpp_tells_the_classes_of_the_fine_tuned_classifier(tmp_path):
    words = ("fine", "poor", "none")
    rows = [{"text": f"{n} is {words[n % 3]}", "label": words[n % 3]} for n in range(24)]
    tokenizer = Tokenizer.train_bpe([row["text"] for row in rows], 300)
    path, data, folder = (tmp_path / name for name in ("base.gguf", "texts.jsonl", "run"))
    sizes = {**SIZES, "family": "qwen3"}
    random_model("llama", sizes, tokenizer.vocab_size).save(path, tokenizer, dtype="f16")
    data.write_text("\n".join(map(json.dumps, rows)))
    finetune(
        model=path, data=data, artifact_dir=folder, steps=8, batch_size=4, lr=2e-2, threads=1,
        task="classify", merge="f32", lora_rank=4, report=False,
    )  # fmt: skip
    model, _ = load(folder / "model.gguf")
    ids = tokenizer.encode("77 is poor", add_special=True)
    (found,) = vectors(folder / "model.gguf", [ids], 128, 3)
    shares = model.predict_proba(batch(ids)).numpy()[0]
    np.testing.assert_allclose(found, shares, atol=1e-5)
    assert shares.max() > 0.5
