# SPDX-License-Identifier: MIT
"""A training in less than f32 ends where that in f32 does."""

from __future__ import annotations

import pytest

from pyggml.recipes import LLMConfig, LLMRun


@pytest.mark.slow
def test_the_last_validation_loss_is_that_of_f32_within_a_hundredth(tmp_path):
    """On the text that comes with Python; 250 steps of a model with three blocks."""
    pytest.importorskip("tokenizers")
    losses = {}
    for precision in ("f32", "bf16", "f16"):
        config = LLMConfig(
            artifact_dir=str(tmp_path / precision), steps=250, layers=3, embd=96, heads=4,
            seq_len=96, tokenizer="bpe:1024", precision=precision, eval_every=0, save_every=0,
            sample_tokens=0,
        )  # fmt: skip
        result = LLMRun.prepare(config).train()
        losses[precision] = result.validation.loss
    assert losses["f32"] < 5.5
    for precision, loss in losses.items():
        assert loss == pytest.approx(losses["f32"], rel=0.01), precision
