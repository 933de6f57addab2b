# SPDX-License-Identifier: MIT
"""Scores on questions, against probabilities computed choice by choice."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tokenizers")
import pyggml as pg
from pyggml.data import Question, Tokenizer, end_ids
from pyggml.models import build, generate
from pyggml.train import harness_model, score_choices, token_scores


def small():
    """Return a tokenizer and a model whose choices are clear."""
    tokenizer = Tokenizer.chars(["abcdefgh "])
    pg.seed(4)
    size = {"vocab_size": tokenizer.vocab_size, "context": 12, "n_embd": 16, "n_layer": 1}
    model = build("llama", {**size, "n_head": 2})
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(p.numpy() * 20)
    return tokenizer, model


def test_choices_by_their_probability():
    tokenizer, model = small()
    rng = np.random.default_rng(0)
    letters = list("abcdefgh")
    questions = [
        Question(
            "".join(rng.choice(letters, size=rng.integers(1, 16))),  # some beyond the context
            tuple(" " + "".join(rng.choice(letters, size=rng.integers(1, 5))) for _ in range(3)),
            int(rng.integers(3)),
        )
        for _ in range(20)
    ]
    right = right_norm = 0
    for question in questions:
        logps = []
        for choice in question.choices:
            ids = tokenizer.encode(question.prompt + choice)
            count = tokenizer.encode(choice).size
            ids = ids[-13:]
            logits = model(pg.tensor(ids[None, :-1])).numpy()[0].astype(np.float64)
            logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
            chosen = logits[np.arange(ids.size - 1), ids[1:]]
            logps.append(chosen[-count:].sum())
        right += int(np.argmax(logps)) == question.answer
        norms = [p / (len(c) - 1) for p, c in zip(logps, question.choices, strict=True)]
        right_norm += int(np.argmax(norms)) == question.answer
    scores = score_choices(model, questions, tokenizer, batch_size=4)
    assert (scores.acc, scores.acc_norm, scores.questions) == (right / 20, right_norm / 20, 20)
    assert scores.error(0.5) == pytest.approx(0.5 / np.sqrt(19))
    with pytest.raises(ValueError, match="questions"):
        score_choices(model, [], tokenizer)


def test_the_harness_of_other_programs(tmp_path):
    api = pytest.importorskip("lm_eval.api.instance")
    tokenizer, model = small()
    harness = harness_model(model, tokenizer, max_tokens=4)

    def ask(kind, *args):
        return [api.Instance(request_type=kind, doc={}, arguments=each, idx=0) for each in args]

    pairs = [("ab", "cd"), ("", "abc"), ("abcdefgh" * 3, "ab")]
    found = harness.loglikelihood(ask("loglikelihood", *pairs), disable_tqdm=True)
    ids = tokenizer.encode("abcd")
    [(logp, likeliest)] = token_scores(model, [(ids[:2], ids[2:])])
    assert found[0] == (pytest.approx(logp, rel=1e-5), likeliest)
    assert all(value < 0 for value, _ in found)
    [whole] = harness.loglikelihood_rolling(ask("loglikelihood_rolling", ("abcdefghabcdefgh",)))
    assert whole < 0
    [text] = harness.generate_until(ask("generate_until", ("ab", {"until": ["z"]})))
    added = generate(model, tokenizer.encode("ab"), 4, temperature=0, stop_ids=end_ids(tokenizer))
    assert text == tokenizer.decode(added, skip_special=True)
    [cut] = harness.generate_until(ask("generate_until", ("ab", {"until": [text[1]]})))
    assert cut == text[: text.index(text[1])]


def test_scores_of_tokens():
    tokenizer, model = small()
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, tokenizer.vocab_size, rng.integers(2, 12)) for _ in range(9)]
    pairs = [(ids[:1], ids[1:]) for ids in texts]
    # One whose tokens are the likeliest.
    likely = generate(model, [3], 4, temperature=0)
    pairs.append(([3], likely))
    for (before, after), (logp, likeliest) in zip(
        pairs, token_scores(model, pairs, batch_size=3), strict=True
    ):
        ids = np.array([*before, *after], np.int32)
        logits = model(pg.tensor(ids[None, :-1])).numpy()[0].astype(np.float64)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        wanted = logits[np.arange(ids.size - 1), ids[1:]].sum()
        assert logp == pytest.approx(wanted, rel=1e-4)
        assert likeliest == bool((logits.argmax(-1) == ids[1:]).all())
    assert token_scores(model, pairs)[-1][1]
