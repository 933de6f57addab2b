# SPDX-License-Identifier: MIT
"""Models trained here run in llama.cpp: same tokens in, same tokens out."""

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import TokenDataset, Tokenizer, embedded_text
from pyggml.models import build, generate
from pyggml.optim import AdamW, decay_groups

from . import llamacpp

pytestmark = pytest.mark.skipif(not llamacpp.HERE, reason="needs the xllamacpp wheel")

TEXTS = [
    "The value of an expression",
    "  two spaces, a tab\tand a\nnew line\n\n",
    "it's we'll I'm they'd we've you're don't 'quoted'",
    "1234567890 3.14 0x7f 10_000",
    "x = [i ** 2 for i in range(10)]  # squares",
    "snake_case CamelCase __init__",
    "naïve café – “dash” … ÅÄÖ ñ",
    "日本語 и кириллица 🙂",
    "",
]
LENGTH, BATCH, STEPS = 64, 8, 60
CASES = {
    "gpt2": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4}),
    "gpt2-untied": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 2, "tie": False}),
    "gpt2-without-bias": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "bias": False}),
    "llama": ("llama", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_kv_head": 2}),
    "llama-untied": (
        "llama",
        {"n_embd": 48, "n_layer": 2, "n_head": 3, "n_kv_head": 1, "tie": False, "n_ffn": 100},
    ),
}


@pytest.fixture(scope="module")
def corpus():
    documents = embedded_text()[:60]
    tokenizer = Tokenizer.train_bpe(documents, 512)
    return tokenizer, tokenizer.encode_documents(documents)


def train(model, ids):
    """Train a few steps; return the first and the last loss."""
    dataset = TokenDataset(ids, LENGTH)
    rng = np.random.default_rng(0)
    x, y = pg.zeros((BATCH, LENGTH), dtype="i32"), pg.zeros((BATCH, LENGTH), dtype="i32")
    loss = model.loss(x, y)
    optimizer = AdamW(decay_groups(model, 0.1), lr=3e-3)
    graph = pg.Graph([loss], loss=loss, grads=optimizer.grads)
    losses = []
    for _ in range(STEPS):
        rows = [dataset[int(i)] for i in rng.integers(0, len(dataset), BATCH)]
        x.copy_(np.stack([row[0] for row in rows]))
        y.copy_(np.stack([row[1] for row in rows]))
        optimizer.zero_grad()
        graph.run()
        optimizer.step(clip=1.0)
        losses.append(graph.read(loss).item())
    return losses[0], losses[-1]


@pytest.mark.parametrize(
    "name",
    [
        "gpt2-without-bias",
        "llama-untied",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "gpt2-untied", "llama")),
    ],
)
def test_llama_cpp_says_the_same(name, corpus, tmp_path):
    tokenizer, ids = corpus
    arch, sizes = CASES[name]
    pg.seed(4)
    model = build(arch, {"vocab_size": tokenizer.vocab_size, "context": 128, **sizes})
    first, last = train(model, ids)
    assert last < first - 1.0
    path = tmp_path / "model.gguf"
    model.save_gguf(path, tokenizer)
    prompts = [tokenizer.encode(text) for text in TEXTS[:3]]
    count = 48
    requests = [llamacpp.tokenize(text) for text in TEXTS]
    requests += [llamacpp.complete(prompt, count) for prompt in prompts]
    answers = llamacpp.ask(path, requests, context=128)
    for text, answer in zip(TEXTS, answers, strict=False):
        assert answer["tokens"] == tokenizer.encode(text).tolist(), text
    compared = 0
    for prompt, answer in zip(prompts, answers[len(TEXTS) :], strict=True):
        ours = generate(model, prompt, count, temperature=0, stop_ids={tokenizer.eos_id})
        theirs = [token for token in answer["tokens"] if token != tokenizer.eos_id]
        assert ours == theirs
        compared = max(compared, len(ours))
    assert compared >= 32
