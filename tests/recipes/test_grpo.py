# SPDX-License-Identifier: MIT
"""`recipes.grpo`: a run with its files, resume, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyggml.data import Tokenizer
from pyggml.errors import ConfigError, FormatError
from pyggml.models import Llama, LlamaConfig, load, load_lora
from pyggml.recipes import grpo

ROWS = [{"prompt": f"{digit}=", "answer": str(digit)} for digit in range(10)]


def right(completions, answer, **rest):
    return [float(text == wanted) for text, wanted in zip(completions, answer, strict=True)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("grpo") / "base.gguf"
    tokenizer = Tokenizer.chars(["0123456789="])
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_ffn": 32, "context": 16}
    Llama(LlamaConfig(vocab_size=tokenizer.vocab_size, **sizes)).save(path, tokenizer)
    return path


def run(base, folder, **options):
    given = {"num_generations": 4, "prompts_per_step": 2, "max_tokens": 2, "steps": 4, "lr": 1e-2,
             "beta": 0.01, "save_every": 2, "base": {"lora_rank": 2}}  # fmt: skip
    return grpo(base, ROWS, right, artifact_dir=folder, **{**given, **options})


def test_a_run_writes_its_files_and_resumes_to_the_same_bits(base, tmp_path):
    told = []
    whole = run(base, tmp_path / "whole", note=told.append)
    assert len(whole.rollouts) == 4
    assert "generation" in told[-1] and "training" in told[-1]  # noqa: PT018
    lines = (tmp_path / "whole" / "rollouts.jsonl").read_text().splitlines()
    assert [json.loads(line)["rollout"] for line in lines] == [0, 1, 2, 3]
    assert json.loads(lines[0])["kl"] == pytest.approx(0.0, abs=1e-6)
    assert whole.generation_s > 0
    assert whole.training_s > 0
    model, _ = load(base)
    load_lora(model, tmp_path / "whole" / "adapter.gguf")

    # A run that ends after half of the steps, and goes on.
    run(base, tmp_path / "half", steps=2)
    with pytest.raises(ConfigError, match="resume"):
        run(base, tmp_path / "half")
    again = run(base, tmp_path / "half", resume=True)
    assert [each.rollout for each in again.rollouts] == [2, 3]
    pairs = zip(whole.model.parameters(), again.model.parameters(), strict=True)
    assert all(np.array_equal(one.numpy(), other.numpy()) for one, other in pairs)
    assert len((tmp_path / "half" / "rollouts.jsonl").read_text().splitlines()) == 4


def test_bad_data_is_refused(base, tmp_path):
    with pytest.raises(FormatError, match="prompt"):
        grpo(base, [{"text": "1="}], right, artifact_dir=tmp_path)
    with pytest.raises(FormatError, match="prompt"):
        grpo(base, [], right, artifact_dir=tmp_path)
    messages = [{"role": "user", "content": "1="}]
    with pytest.raises(FormatError, match="template"):
        grpo(base, [{"prompt": messages}], right, artifact_dir=tmp_path)
