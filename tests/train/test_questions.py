# SPDX-License-Identifier: MIT
"""Scores on questions, against probabilities computed choice by choice."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tokenizers")
import pyggml as pg
from pyggml.data import Question, Tokenizer
from pyggml.models import build
from pyggml.train import score_choices


def test_choices_by_their_probability():
    tokenizer = Tokenizer.chars(["abcdefgh "])
    pg.seed(4)
    size = {"vocab_size": tokenizer.vocab_size, "context": 12, "n_embd": 16, "n_layer": 1}
    model = build("llama", {**size, "n_head": 2})
    for p in model.parameters():
        if p.ndim == 2:
            p.copy_(p.numpy() * 20)
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
