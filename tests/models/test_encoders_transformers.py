# SPDX-License-Identifier: MIT
"""Encoders and classifiers against transformers: names, outputs and gradients."""

import numpy as np
import pytest

import pyggml as pg
from pyggml.models import build

pytestmark = pytest.mark.slow  # the import of transformers; test_parity has the same formulas

V, B, T = 53, 2, 13
OURS = {"vocab_size": V, "context": 16, "n_layer": 4, "n_embd": 24, "n_head": 3, "n_ffn": 37}
THEIRS = {
    **{"vocab_size": V, "max_position_embeddings": 16, "num_hidden_layers": 4, "hidden_size": 24},
    **{"num_attention_heads": 3, "intermediate_size": 37, "pad_token_id": 0},
    **{"bos_token_id": 1, "eos_token_id": 2},
}
BERT = {**THEIRS, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MODERN = {**THEIRS, "local_attention": 4, "cls_token_id": 1, "sep_token_id": 2}
LOCAL = {"window": 4}
QWEN = {**THEIRS, "num_key_value_heads": 3, "head_dim": 8, "rms_norm_eps": 1e-5}
# Name: model, sizes; transformers' class, configuration.
CASES = {
    "classifier": (
        "bert-classifier", {"classes": 3}, "BertForSequenceClassification", "BertConfig",
        {**BERT, "num_labels": 3},
    ),
    "reranker": (
        "bert-classifier", {"classes": 1}, "BertForSequenceClassification", "BertConfig",
        {**BERT, "num_labels": 1},
    ),
    "roberta": (
        "bert-classifier", {"classes": 2, "types": 1, "eps": 1e-5},
        "RobertaForSequenceClassification", "RobertaConfig",
        {**BERT, "max_position_embeddings": 18, "pad_token_id": 1, "type_vocab_size": 1,
         "layer_norm_eps": 1e-5},
    ),
    "words": (
        "bert-token-classifier", {"classes": 3}, "BertForTokenClassification", "BertConfig",
        {**BERT, "num_labels": 3},
    ),
    "roberta-words": (
        "bert-token-classifier", {"classes": 3, "types": 1, "eps": 1e-5},
        "RobertaForTokenClassification", "RobertaConfig",
        {**BERT, "max_position_embeddings": 18, "pad_token_id": 1, "type_vocab_size": 1,
         "layer_norm_eps": 1e-5, "num_labels": 3},
    ),
    "modern": ("modern-bert", LOCAL, "ModernBertModel", "ModernBertConfig", MODERN),
    "modern-mlm": (
        "modern-bert-mlm", LOCAL, "ModernBertForMaskedLM", "ModernBertConfig", MODERN,
    ),
    "modern-mean": (
        "modern-bert-classifier", {**LOCAL, "classes": 3}, "ModernBertForSequenceClassification",
        "ModernBertConfig", {**MODERN, "num_labels": 3, "classifier_pooling": "mean"},
    ),
    "modern-cls": (
        "modern-bert-classifier", {**LOCAL, "pooling": "cls"},
        "ModernBertForSequenceClassification", "ModernBertConfig",
        {**MODERN, "num_labels": 2, "classifier_pooling": "cls"},
    ),
    "qwen3": (
        "llama-classifier", {"n_head_dim": 8, "classes": 2}, "Qwen3ForSequenceClassification",
        "Qwen3Config", {**QWEN, "num_labels": 2, "tie_word_embeddings": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_transformers_has_the_same_gradients(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    arch, sizes, kind, config, given = CASES[name]
    pg.seed(2)
    model = build(arch, {**OURS, **({} if arch[0] in "ml" else {"dropout": 0.0}), **sizes})
    torch.manual_seed(3)
    reference = getattr(transformers, kind)(
        getattr(transformers, config)(**given, attn_implementation="eager")
    )
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(0.12 * torch.randn_like(parameter) + (parameter.ndim == 1))
    model.load_state_dict({key: t.numpy() for key, t in reference.state_dict().items()})
    reference.eval()
    ids = np.random.default_rng(4).integers(3, V, (B, T))
    mask = np.ones((B, T), np.int64)
    ids[1, 9:], mask[1, 9:] = given["pad_token_id"], 0
    out = reference(torch.tensor(ids), attention_mask=torch.tensor(mask))
    theirs = out[0]
    ours = model(pg.tensor(ids.astype(np.int32)), attention_mask=pg.tensor(mask.astype(np.int32)))
    weights = np.random.default_rng(6).standard_normal(theirs.shape).astype(np.float32)
    if theirs.shape[:2] == (B, T):  # what fills up is nobody's business
        weights *= mask[..., None]
    counts = weights != 0
    size = np.abs(theirs.detach().numpy()[counts]).max()
    np.testing.assert_allclose(
        ours.numpy()[counts], theirs.detach().numpy()[counts], atol=5e-6 * size, rtol=1e-5
    )
    (theirs * torch.tensor(weights)).sum().backward()
    loss = (ours * pg.tensor(weights)).sum()
    grads = {p: pg.zeros(p.shape) for p in model.parameters()}
    pg.Graph([loss], loss=loss, grads=grads).run()
    # Their gradients under our names, as load_state_dict brings them there.
    wanted = build(arch, model.config)
    state = {
        key: np.zeros(t.shape, np.float32) if t.grad is None else t.grad.numpy()
        for key, t in reference.named_parameters()
    }
    wanted.load_state_dict(state, strict=False)
    for (key, p), want in zip(model.named_parameters(), wanted.parameters(), strict=True):
        got, there = grads[p].numpy(), want.numpy()
        error, length = np.linalg.norm(got - there), np.linalg.norm(there)
        if "key.bias" in key:  # a shift of all keys moves every score alike: rounding alone
            assert max(np.linalg.norm(got), length) < 1e-4
            continue
        assert error <= 1e-4 * length + 1e-7, f"{key}: {error} of {length}"
