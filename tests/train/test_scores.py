# SPDX-License-Identifier: MIT
from __future__ import annotations

import math

import numpy as np
import pytest

from pyggml.data import IGNORE_INDEX, Tokenizer
from pyggml.errors import ShapeError
from pyggml.train import (
    TASKS,
    TrainStep,
    accuracy,
    bits_per_byte,
    confusion_matrix,
    eval_batches,
    evaluate,
    f1_score,
    token_bytes,
    top_k_accuracy,
)

from .tiny import SEQ_LEN, make_model, tokens

TARGETS = np.array([0, 1, 2, 2, 1, 0, 2, IGNORE_INDEX])
GUESSES = np.array([0, 2, 2, 2, 1, 1, 0, 1])


def test_accuracy():
    assert accuracy(GUESSES, TARGETS) == 4 / 7
    logits = np.eye(3)[GUESSES]
    assert accuracy(logits, TARGETS) == 4 / 7
    assert accuracy(logits.reshape(2, 4, 3), TARGETS.reshape(2, 4)) == 4 / 7


def test_top_k_counts_how_many_are_higher():
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((50, 7)), rng.integers(0, 7, 50)
    order = np.argsort(-logits, axis=-1)
    for k in (1, 2, 5, 7, 100):
        want = np.mean([t in row[:k] for t, row in zip(targets, order, strict=True)])
        assert top_k_accuracy(logits, targets, k) == pytest.approx(want)


def test_confusion_and_f1_by_hand():
    table = confusion_matrix(GUESSES, TARGETS)
    assert table.tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 2]]
    # precision and recall of the classes: 1/2 and 1/2, 1/2 and 1/2, 2/3 and 2/3.
    assert f1_score(GUESSES, TARGETS) == pytest.approx((0.5 + 0.5 + 2 / 3) / 3)
    assert f1_score(GUESSES, TARGETS, "weighted") == pytest.approx((1 + 1 + 2) / 7)
    assert f1_score(GUESSES, TARGETS, "micro") == accuracy(GUESSES, TARGETS)
    assert f1_score([1, 1, 0, 0], [1, 0, 1, 1], "binary") == pytest.approx(2 / 5)
    assert f1_score([0, 0], [0, 0], "binary") == 0.0
    # A class that neither occurs nor is guessed does not count.
    assert f1_score(GUESSES, TARGETS, classes=9) == f1_score(GUESSES, TARGETS)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: accuracy([1, 2], [1, 2, 3]), ShapeError, "shape"),
        (lambda: accuracy([1.0], [0.5]), ValueError, "whole numbers"),
        (lambda: accuracy([1], [IGNORE_INDEX]), ValueError, "at least one target"),
        (lambda: top_k_accuracy([1.0], [1]), ShapeError, r"\(\.\.\., V\)"),
        (lambda: top_k_accuracy([[1.0]], [1]), ValueError, "from 0 to 0"),
        (lambda: top_k_accuracy([[1.0]], [0], 0), ValueError, "k must be"),
        (lambda: f1_score([1], [1], "mean"), ValueError, "macro, weighted, micro, binary"),
        (lambda: confusion_matrix([3], [1], 3), ValueError, "from 0 to 2"),
        (lambda: confusion_matrix([[0.1, 0.9]], [1]), ShapeError, "argmax"),
        (lambda: bits_per_byte(1.0, 0), ValueError, "size_bytes must be"),
        (lambda: TASKS["classification"].metric("top0"), ValueError, "top5"),
        (lambda: TASKS["classification"].metric("f2"), ValueError, "f1_weighted"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_bytes_of_tokens():
    text = "naïve 漢字\n"
    for tokenizer in (Tokenizer.chars([text]), Tokenizer.train_bpe([text * 5], 270)):
        sizes = token_bytes(tokenizer)
        ids = tokenizer.encode(text)
        assert sizes[ids].sum() == len(text.encode())
        assert sizes[tokenizer.eos_id] == 0
        assert sizes.shape == (tokenizer.vocab_size,)
        more = token_bytes(tokenizer, tokenizer.vocab_size + 3)
        assert more.tolist() == [*sizes.tolist(), 0, 0, 0]
    assert token_bytes(object()) is None


def test_evaluation_with_scores():
    model, ids = make_model(), tokens(100)
    sizes = np.arange(17)
    found = evaluate(
        model, eval_batches(ids, SEQ_LEN, 3), metrics=["accuracy", "top5"], token_bytes=sizes
    )
    step = TrainStep(model, None)
    x, y = ids[:-1], ids[1:]
    rows = [(x[i : i + SEQ_LEN][None], y[i : i + SEQ_LEN]) for i in range(0, 99, SEQ_LEN)]
    logits = [step.logits((a, a))[0] for a, _ in rows]
    assert found.metrics["accuracy"] == pytest.approx(accuracy(np.concatenate(logits), y))
    assert found.metrics["top5"] == pytest.approx(top_k_accuracy(np.concatenate(logits), y, 5))
    bits = found.loss * found.tokens / math.log(2) / sizes[y].sum()
    assert found.bits_per_byte == pytest.approx(bits)
    plain = evaluate(model, eval_batches(ids, SEQ_LEN, 3))
    assert plain.loss == found.loss
    assert plain.metrics == {}
    assert plain.bits_per_byte is None
