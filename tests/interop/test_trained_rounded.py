# SPDX-License-Identifier: MIT
"""llama.cpp computes with a file what the model computed in quantisation-aware training."""

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Tokenizer, embedded_text
from pyggml.models import build, load
from pyggml.train import TrainStep, quantization_aware

from . import llamacpp

pytestmark = pytest.mark.skipif(not llamacpp.HERE, reason="needs the xllamacpp wheel")


@pytest.mark.parametrize("mix", ["q4_0", "tq2_0"])
def test_llama_cpp_computes_what_was_trained_with_rounded_weights(mix, tmp_path):
    tokenizer = Tokenizer.train_bpe(embedded_text()[:20], 320)
    pg.seed(0)
    sizes = {"context": 128, "n_embd": 256, "n_layer": 2, "n_head": 4, "n_ffn": 256}
    model = build("llama", {**sizes, "vocab_size": tokenizer.vocab_size})
    optimizer = pg.optim.AdamW(model, lr=3e-3)
    aware = quantization_aware(model, optimizer, mix)
    ids = np.asarray(tokenizer.encode(" ".join(embedded_text()[:3]))[:129], np.int32)
    step = TrainStep(model, optimizer)
    for _ in range(12):
        step([(ids[None, :64].copy(), ids[None, 1:65].copy())])
    aware.finish()
    model.save(tmp_path / "a.gguf", tokenizer)
    again, _ = load(tmp_path / "a.gguf", keep_types=True)
    letter = tokenizer.encode("a")[0]
    request = llamacpp.weigh(ids[:20], tokenizer.vocab_size, letter)
    (answer,) = llamacpp.ask(tmp_path / "a.gguf", [request], 128)
    found = answer["completion_probabilities"][0]["top_logprobs"]
    logits = again.eval()(pg.tensor(ids[None, :20].copy())).numpy()[0, -1].astype(np.float64)
    ours = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    theirs = np.array([each["logprob"] for each in found])
    own = ours[[each["id"] for each in found]]
    assert np.std(own) > 0.5
    # Both make eight bits of what they multiply the weights by, of sums in another order.
    assert np.abs(theirs - own).mean() < 0.05
