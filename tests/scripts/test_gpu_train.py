# SPDX-License-Identifier: MIT
"""What the check for a machine with a GPU trains where there is no other program beside it."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from pyggml.models import Llama, LlamaConfig
from pyggml.nn.init import empty_weights

from .gpu_logs import ROOT, judging, train

SCRIPT = ROOT / "scripts" / "gpu_train.py"


@pytest.mark.slow
def test_adapters_of_a_quantised_model_train() -> None:
    command = [sys.executable, str(SCRIPT), "qlora", "--device", "cpu", "--size", "tiny"]
    command += ["--context", "32", "--batch", "2", "--steps", "6", "--warmup", "1", "--profile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    told = judging.training_of(done.stdout)
    assert told is not None
    assert told["framework"] == "pyggml qlora"
    assert (told["steps"], told["precision"], told["fallbacks"]) == (6, "bf16", {})
    assert told["adapters"] == 14
    assert all(math.isfinite(loss) for loss in told["losses"])
    assert any(op["op"] == "OUT_PROD" for op in told["ops"])
    line = {"stage": "train-pyggml-qlora", "status": 0, "seconds": 3, "limit": 60}
    assert judging.judge(line, done.stdout, []) == ("passed", "")


def test_the_sizes_are_those_published() -> None:
    """Qwen2.5-1.5B's, by its config.json: 1.54 billion parameters, 1.31 without the table."""
    size, batch, steps = train.SIZES["qlora"]
    config = LlamaConfig.preset(size)
    assert (config.n_embd, config.n_layer, config.n_head, config.n_kv_head) == (1536, 28, 12, 2)
    assert (config.n_ffn, config.vocab_size, config.tie, config.family) == (
        8960, 151936, True, "qwen2",
    )  # fmt: skip
    assert round(config.count_parameters() / 1e9, 2) == 1.54
    assert batch * steps > 0
    for width in (config.n_embd, config.n_ffn):
        assert width % 256 == 0  # a block of q4_K


@pytest.mark.slow
def test_matrices_are_filled_with_random_blocks() -> None:
    with empty_weights("q4_K"):
        model = Llama(LlamaConfig(vocab_size=64, n_embd=256, n_layer=1, n_head=4, n_ffn=512))
    train.fill(model)
    for p in model.parameters():
        if p.ndim == 2:
            values = p.numpy()
            assert p.dtype.name == "q4_K"
            assert values.std() == pytest.approx(0.02, rel=0.02)
            # of one block each, drawn from 65,536: two of 256 or 512 may be the same
            assert len(np.unique(values, axis=0)) > 0.98 * len(values)


def test_what_is_not_told_is_the_models_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []
    monkeypatch.setattr(train, "train_qlora", seen.append)
    monkeypatch.setattr(train, "train_torch", seen.append)
    for words in (["qlora"], ["qlora", "--size", "tiny"], ["torch", "--weights", "w.npz"]):
        monkeypatch.setattr(sys, "argv", ["gpu_train.py", *words])
        assert train.main() == 0
    assert [(a.size, a.batch, a.steps) for a in seen] == [
        ("qwen2-1.5b", 8, 30),
        ("tiny", 8, 30),
        ("gpt2-124m", 16, 50),
    ]
    monkeypatch.setattr(sys, "argv", ["gpu_train.py", "torch"])
    with pytest.raises(SystemExit):
        train.main()
    assert json.dumps(sorted(train.SIZES)) == '["gpt2", "qlora"]'
