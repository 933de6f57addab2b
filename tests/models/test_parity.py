# SPDX-License-Identifier: MIT
"""Every model against PyTorch on the same weights: loss, all gradients, running statistics."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

import pyggml as pg
from pyggml.models import MODELS, build

torch = pytest.importorskip("torch")

from . import references as ref  # noqa: E402 - needs torch

V, B, T = 53, 3, 11
LM = {"vocab_size": V, "context": 16, "n_layer": 2}
LLAMA = {**LM, "n_embd": 24, "n_head": 4, "n_kv_head": 2, "n_ffn": 37}
BERT = {**LM, "n_embd": 24, "n_head": 3, "n_ffn": 37, "dropout": 0.0}
MODERN = {**LM, "n_layer": 4, "n_embd": 24, "n_head": 3, "n_ffn": 37, "window": 4}
T5 = {**LM, "n_embd": 20, "n_head": 3, "n_head_dim": 7, "n_ffn": 37, "dropout": 0.0}
# Short sequences: buckets for them fill earlier.
T5 |= {"buckets": 6, "max_distance": 9}


@dataclass(frozen=True)
class Row:
    """A model, how it gets its loss here, and how in PyTorch."""

    arch: str
    sizes: dict
    inputs: Callable
    ours: Callable
    theirs: Callable
    zero: tuple = field(default=())  # gradients that are nothing but rounding


def tokens(rng):
    y = rng.integers(0, V, (B, T))
    y[rng.random(y.shape) < 0.2] = -100
    return {"x": rng.integers(0, V, (B, T)), "y": y}


def texts(rng):
    mask = np.ones((B, T), np.int64)
    mask[1, 6:], mask[2, 1:] = 0, 0
    return {**tokens(rng), "mask": mask, "types": rng.integers(0, 2, (B, T))}


def labelled(rng):
    return {**texts(rng), "y": np.array([1, 0, 2])}


def tagged(rng):
    made = texts(rng)
    return {**made, "y": np.where(made["mask"] > 0, rng.integers(0, 3, (B, T)), -100)}


def scored(rng):
    return {**texts(rng), "y": np.array([1.0, 0.2, 0.7], np.float32)}


def untyped(make):
    def made(rng):
        arrays = make(rng)
        del arrays["types"]
        if arrays["y"].ndim == 2:  # what fills up is nothing to predict
            arrays["y"][arrays["mask"] == 0] = -100
        return arrays

    return made


def pairs(rng):
    made = texts(rng)
    del made["types"]
    y = rng.integers(0, V, (B, 6))
    y[0, 4:] = -100
    return {**made, "y": y}


def images(channels, *size):
    def make(rng):
        x = rng.standard_normal((5, channels, *size)) * 0.5 + 0.3
        return {"x": x.astype(np.float32), "y": np.array([0, 2, 1, 2, 0])}

    return make


def token_loss(model, a):
    return model.loss(a["x"], a["y"])


def bert_loss(model, a):
    return model.loss(a["x"], a["y"], attention_mask=a["mask"], types=a["types"])


def masked_loss(model, a):
    return model.loss(a["x"], a["y"], attention_mask=a["mask"])


def embed_loss(model, a):
    return (model.embed(a["x"], a["mask"]) * model.target).sum()


def t5_loss(model, a):
    return model.loss(a["x"], a["y"], attention_mask=a["mask"])


def class_loss(model, a):
    return pg.ops.cross_entropy(model(a["x"]), a["y"])


def their_llama(w, config, a):
    routings = []
    loss = ref.token_loss(ref.llama(w, config, a["x"], routings), a["y"])
    return loss + (config.router_aux * ref.balance(config, routings) if routings else 0)


def their_bert(head):
    def loss(w, config, a):
        x = ref.bert(w, config, a["x"], a["mask"], a["types"])
        return ref.token_loss(head(w, config, x), a["y"])

    return loss


def their_modernbert(head):
    def loss(w, config, a):
        x = ref.modernbert_head(w, config, ref.modernbert(w, config, a["x"], a["mask"]))
        return ref.token_loss(head(w, config, x), a["y"])

    return loss


def their_pooled(w, config, a):
    x = ref.modernbert(w, config, a["x"], a["mask"])
    if config.pooling == "mean":
        x = (x * a["mask"][..., None]).sum(1) / a["mask"].sum(1, keepdim=True)
    else:
        x = x[:, 0]
    logits = ref.linear(w, "classifier", ref.modernbert_head(w, config, x))
    return ref.token_loss(logits, a["y"])


def their_modern_embed(w, config, a):
    x = ref.modernbert(w, config, a["x"], a["mask"], "")
    return (ref.bert_embed(x, a["mask"]) * w["target"]).sum()


def their_llama_classes(w, config, a):
    x = ref.last_token(ref.llama_stream(w, config, a["x"]), a["mask"])
    return ref.token_loss(ref.linear(w, "score", x), a["y"])


def their_score(w, config, a):
    x = ref.bert(w, config, a["x"], a["mask"], a["types"])
    x = x[:, 0] if not config.pooler else ref.linear(w, "bert.pooler.dense", x[:, 0]).tanh()
    logits = ref.linear(w, "classifier", x)[:, 0]
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, a["y"])


def their_embed(w, config, a):
    x = ref.bert(w, config, a["x"], a["mask"], torch.zeros_like(a["x"]), "")
    return (ref.bert_embed(x, a["mask"]) * w["target"]).sum()


def their_t5(w, config, a):
    start = torch.full((len(a["y"]), 1), config.start_id)
    given = torch.cat([start, a["y"][:, :-1].clamp(min=0)], 1)
    return ref.token_loss(ref.t5(w, config, a["x"], a["mask"], given), a["y"])


def theirs(logits):
    return lambda w, config, a: ref.token_loss(logits(w, config, a["x"]), a["y"])


def llama_row(**sizes):
    return Row("llama", {**LLAMA, **sizes}, tokens, token_loss, their_llama)


KEYS = ("key.bias",)  # a shift of all keys moves every score of a query alike
ROWS = {
    "gpt2": Row(
        "gpt2",
        {**LM, "n_embd": 24, "n_head": 4, "n_ffn": 37, "dropout": 0.0},
        tokens,
        token_loss,
        theirs(ref.gpt2),
    ),
    "llama": llama_row(),
    "llama-untied-flash": llama_row(tie=False, attention="flash"),
    "llama-linear": llama_row(rope_scaling={"kind": "linear", "factor": 4.0}),
    "llama-dynamic": llama_row(rope_scaling={"kind": "dynamic", "factor": 2.0, "original": 6}),
    "llama-llama3": llama_row(
        n_head_dim=16, rope_scaling={"kind": "llama3", "factor": 8.0, "original": 64}
    ),
    "llama-yarn": llama_row(
        n_head_dim=16, rope_scaling={"kind": "yarn", "factor": 4.0, "original": 64}
    ),
    "mistral": llama_row(window=4),
    "mistral-plain": llama_row(window=4, attention="plain"),
    "mixtral": llama_row(n_expert=4, n_expert_used=2, router_aux=0.5),
    "llama-biases": llama_row(attention_bias=True, mlp_bias=True),
    "gemma2": llama_row(
        family="gemma2", n_head_dim=8, window=4, attention_softcap=2.0, logit_softcap=3.0
    ),
    "gemma2-plain": llama_row(family="gemma2", window=4, attention="plain"),
    "gemma3": llama_row(
        family="gemma3",
        n_head_dim=8,
        window=4,
        window_pattern=2,
        rope_theta=50.0,
        logit_softcap=3.0,
        rope_scaling={"kind": "linear", "factor": 4.0},
    ),
    "phi2": llama_row(family="phi2", rope_dims=2, tie=False),
    "phi3": llama_row(
        family="phi3",
        n_embd=32,
        rope_dims=6,
        tie=False,
        rope_scaling={
            "kind": "longrope",
            "factor": 4.0,
            "original": 8,
            "short": (1.0, 1.1, 1.3),
            "long": (1.0, 2.1, 3.9),
        },
    ),
    "olmo2": llama_row(family="olmo2", tie=False),
    "olmo3": llama_row(family="olmo2", tie=False, window=4, window_pattern=2),
    "granite": llama_row(
        family="granite",
        embedding_scale=3.0,
        residual_scale=0.4,
        attention_scale=0.2,
        logit_scale=2.0,
    ),
    "smollm3": llama_row(family="smollm3", n_layer=4),
    "starcoder2": llama_row(family="starcoder2"),
    "stablelm": llama_row(family="stablelm", attention_bias="qkv", rope_dims=2, tie=False),
    "stablelm-12b": llama_row(family="stablelm", qk_norm=True, parallel=True, rope_dims=4),
    "gpt-oss": llama_row(
        family="gpt-oss",
        n_expert=4,
        n_expert_used=2,
        window=4,
        tie=False,
        router_aux=0.5,
        rope_scaling={"kind": "yarn", "factor": 4.0, "original": 8, "truncate": False},
    ),
    "qwen2": llama_row(family="qwen2"),
    "qwen3": llama_row(family="qwen3", n_head_dim=10),
    "gemma": llama_row(family="gemma", n_head_dim=8, n_kv_head=1),
    "qwen2moe": llama_row(
        family="qwen2moe", n_expert=5, n_expert_used=3, n_expert_ffn=13, n_shared_ffn=17
    ),
    "qwen3moe": llama_row(family="qwen3moe", n_expert=6, n_expert_used=2, n_expert_ffn=13),
    "llm": Row("llm", {**LLAMA, "eps": 1e-6}, tokens, token_loss, their_llama),
    "bert": Row("bert", BERT, texts, embed_loss, their_embed, KEYS),
    "bert-mlm": Row("bert-mlm", BERT, texts, bert_loss, their_bert(ref.bert_mlm), KEYS),
    "bert-classifier": Row(
        "bert-classifier",
        {**BERT, "classes": 3, "attention": "plain"},
        labelled,
        bert_loss,
        their_bert(lambda w, config, x: ref.bert_classifier(w, x)),
        KEYS,
    ),
    "bert-token-classifier": Row(
        "bert-token-classifier",
        {**BERT, "classes": 3},
        tagged,
        bert_loss,
        their_bert(lambda w, config, x: ref.linear(w, "classifier", x)),
        KEYS,
    ),
    "bert-reranker": Row(
        "bert-classifier", {**BERT, "classes": 1}, scored, bert_loss, their_score, KEYS
    ),
    "bert-reranker-bare": Row(
        "bert-classifier",
        {**BERT, "classes": 1, "pooler": False},
        scored,
        bert_loss,
        their_score,
        KEYS,
    ),
    "modern-bert": Row(
        "modern-bert", {**MODERN, "activation": "silu"}, texts, embed_loss, their_modern_embed
    ),
    "modern-bert-mlm": Row(
        "modern-bert-mlm",
        MODERN,
        untyped(texts),
        masked_loss,
        their_modernbert(
            lambda w, config, x: (
                x @ w["model.embeddings.tok_embeddings.weight"].T + w["decoder.bias"]
            )
        ),
    ),
    "modern-bert-classifier": Row(
        "modern-bert-classifier",
        {**MODERN, "classes": 3},
        untyped(labelled),
        masked_loss,
        their_pooled,
    ),
    "modern-bert-classifier-plain": Row(
        "modern-bert-classifier",
        {**MODERN, "classes": 3, "attention": "plain", "pooling": "cls"},
        untyped(labelled),
        masked_loss,
        their_pooled,
    ),
    "llama-classifier": Row(
        "llama-classifier",
        {**LLAMA, "classes": 3},
        untyped(labelled),
        masked_loss,
        their_llama_classes,
    ),
    "t5": Row("t5", T5, pairs, t5_loss, their_t5),
    "t5-gated": Row(
        "t5", {**T5, "gated": True, "tie": False, "n_decoder": 1}, pairs, t5_loss, their_t5
    ),
    "mlp": Row(
        "mlp",
        {"inputs": 48, "hidden": (13, 7), "classes": 3, "mean": (0.3,), "std": (0.5,)},
        images(3, 4, 4),
        class_loss,
        theirs(ref.mlp),
    ),
    "mlp-batch": Row(
        "mlp",
        {"inputs": 48, "hidden": (13,), "classes": 3, "norm": "batch", "activation": "tanh"},
        images(3, 4, 4),
        class_loss,
        theirs(ref.mlp),
    ),
    "cnn": Row(
        "cnn",
        {"channels": 2, "size": (9, 6), "widths": (5, 6), "hidden": 7, "classes": 3},
        images(2, 9, 6),
        class_loss,
        theirs(ref.cnn),
    ),
    "cnn-group": Row(
        "cnn",
        {
            **{"channels": 2, "size": 8, "widths": (6, 4), "hidden": 0, "classes": 3},
            **{"norm": "group", "activation": "silu", "mean": (0.1, 0.2), "std": (0.5, 0.7)},
        },
        images(2, 8, 8),
        class_loss,
        theirs(ref.cnn),
    ),
    "cnn-plain": Row(
        "cnn",
        {
            **{"channels": 1, "size": 8, "widths": (6,), "hidden": 5, "classes": 3},
            **{"norm": "none", "activation": "gelu", "kernel": 5},
        },
        images(1, 8, 8),
        class_loss,
        theirs(ref.cnn),
    ),
    "resnet": Row(
        "resnet",
        {"channels": 3, "widths": (4, 6), "blocks": (2, 1), "classes": 3},
        images(3, 8, 6),
        class_loss,
        theirs(ref.resnet),
    ),
    "resnet-large": Row(
        "resnet",
        {"channels": 3, "widths": (4, 6), "blocks": (1, 1), "classes": 3, "stem": "large"},
        images(3, 33, 32),
        class_loss,
        theirs(ref.resnet),
    ),
}


def test_every_model_has_a_row():
    assert {row.arch for row in ROWS.values()} == set(MODELS)


class Pair:
    """One model here and in PyTorch, with the same weights and the same batch."""

    def __init__(self, name):
        row = ROWS[name]
        pg.seed(2)
        self.model = build(row.arch, row.sizes)
        rng = np.random.default_rng(3)
        # Larger than fresh weights: every part then has a gradient that can be told from noise.
        for p in self.model.parameters():
            noise = rng.standard_normal(p.shape) * (0.15 if p.ndim > 1 else 0.3)
            p.copy_((p.numpy() * (p.ndim == 1) + noise).astype(np.float32))
        trained = set(self.as_state({}))
        buffers = {key for key, _ in self.model.named_buffers()}
        self.weights = {
            key: torch.nn.Parameter(torch.tensor(array), key not in buffers)
            for key, array in self.model.state_dict().items()
        }
        assert trained == set(self.weights)
        arrays = row.inputs(rng)
        self.inputs = {
            key: pg.tensor(a.astype(np.int32) if a.dtype.kind == "i" else a)
            for key, a in arrays.items()
        }
        if name in ("bert", "modern-bert"):  # a direction for each sentence
            target = rng.standard_normal((B, 24)).astype(np.float32)
            self.model.target = pg.tensor(target)
            self.weights["target"] = torch.tensor(target)
        batch = {key: torch.tensor(a) for key, a in arrays.items()}
        self.theirs = row.theirs(self.weights, self.model.config, batch)
        self.loss = row.ours(self.model, self.inputs)

    def as_state(self, arrays):
        """Arrays of the parameters in the layout and under the names of the state dict."""
        kept = [(p, p.numpy()) for p in self.model.parameters()]
        for p, array in arrays.items():
            p.copy_(array)
        state = self.model.state_dict()
        for p, array in kept:
            p.copy_(array)
        return state


@pytest.mark.parametrize("name", ROWS)
def test_loss_and_every_gradient(name):
    pair = Pair(name)
    pair.theirs.backward()
    grads = {p: pg.zeros(p.shape) for p in pair.model.parameters()}
    graph = pg.Graph([pair.loss], loss=pair.loss, grads=grads)
    graph.run()
    assert graph.read(pair.loss).item() == pytest.approx(pair.theirs.item(), rel=1e-4)
    state = pair.as_state({p: grad.numpy() for p, grad in grads.items()})
    compared = 0
    for key, weight in pair.weights.items():
        if key.endswith(("running_mean", "running_var", "num_batches_tracked")):
            # The one run moved both once.
            np.testing.assert_allclose(state[key], weight.detach(), rtol=1e-5, atol=1e-6)
            continue
        if key == "target":
            continue
        theirs = weight.grad
        compared += 1
        if key.endswith(ROWS[name].zero) and ROWS[name].zero:
            assert max(np.abs(state[key]).max(), theirs.abs().max()) < 1e-6, key
            continue
        error, size = np.linalg.norm(state[key] - theirs.numpy()), theirs.norm().item()
        # An expert that no token chose has none.
        assert error <= 1e-4 * size, f"{key}: {error} of {size}"
    assert compared == sum(w.requires_grad for w in pair.weights.values())


@pytest.mark.parametrize("name", ["cnn", "resnet", "mlp-batch"])
def test_evaluating_uses_the_running_statistics(name):
    """And moves none; a few steps moved them before."""
    pair = Pair(name)
    graph = pg.Graph([pair.loss])
    for _ in range(3):
        graph.run()
    state = pair.model.state_dict()
    x = pair.inputs["x"]
    ours = pair.model.predict_proba(x).numpy()
    weights = {key: torch.tensor(array) for key, array in state.items()} | {"eval": None}
    logits = getattr(ref, ROWS[name].arch)(weights, pair.model.config, torch.tensor(x.numpy()))
    np.testing.assert_allclose(ours, logits.softmax(-1), rtol=1e-4, atol=1e-6)
    for key, array in pair.model.state_dict().items():
        np.testing.assert_array_equal(array, state[key])
    tracked = [array for key, array in state.items() if key.endswith("num_batches_tracked")]
    assert tracked
    assert all(count == 3 for count in tracked)
