# SPDX-License-Identifier: MIT
"""Whole trainings as functions, with flat options."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyggml.errors import ConfigError
from pyggml.models import load
from pyggml.recipes import ImageClassifier, LLMConfig, train_image, train_llm

TEXT = "the quick brown fox jumps over the lazy dog and runs on\n" * 30
SMALL = {
    "tokenizer": "chars", "layers": 1, "heads": 2, "embd": 32, "seq_len": 16, "batch_size": 4,
    "threads": 1,
}  # fmt: skip


def test_a_language_model(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text(TEXT)
    seen = []
    run = train_llm(
        text=tmp_path / "notes", artifact_dir=tmp_path / "run", steps=4, prepared=seen.append,
        **SMALL,
    )  # fmt: skip
    assert seen == [run]
    assert (run.result.step, run.exported.which) == (4, "last")
    said = run.generate("the ", max_tokens=6)
    assert said.startswith("the ")
    assert said == run.generate("the ", max_tokens=6) != run.generate("the ", 6, seed=5)
    with pytest.raises(ConfigError, match="`prompt`"):
        run.generate("QQQ")
    path = run.export(tmp_path / "half.gguf", dtype="f16")
    model, tokenizer = load(path)
    assert model.num_parameters() == run.model.num_parameters()
    assert tokenizer.decode(tokenizer.encode("the fox")) == "the fox"
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert LLMConfig.from_dict(record["train"]) == run.config
    trainer, data = record["options"]["trainer"], record["options"]["data"]
    assert trainer["batch_size"] == run.trainer.loader.batch_size
    assert trainer["schedule"] == "warmup_cosine"
    assert trainer["min_lr"] == trainer["lr"] / 10
    assert (trainer["steps"], trainer["eval_every"]) == (
        run.trainer.total_steps,
        run.trainer.eval_every,
    )
    assert data["seq_len"] == run.seq_len
    assert record["options"]["machine"]["device"] == "cpu"
    again = train_llm(artifact_dir=tmp_path / "run", resume=True, steps=6)
    assert (again.trainer.step, again.config.model.layers) == (6, 1)


def test_options_that_cannot_be_given(tmp_path):
    with pytest.raises(ConfigError, match=r"'stepps' \(did you mean steps\?\)"):
        train_llm(stepps=3)
    with pytest.raises(ConfigError, match="'mixup'"):
        train_llm(mixup=0.1)
    with pytest.raises(ConfigError, match="'mfu'"):  # it is for language models
        train_image(data="digits", mfu=True)
    with pytest.raises(ConfigError, match="`data` must be given"):
        train_image(epochs=1)
    with pytest.raises(ConfigError, match="`resume` and `overwrite`"):
        train_llm(resume=True, overwrite=True)
    with pytest.raises(ConfigError, match=r"`artifact_dir`.*no run"):
        train_image(resume=True, artifact_dir=tmp_path)


def test_a_classifier_of_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, value in (("dark", 20), ("light", 220)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(6):
            picture = np.full((12, 12), value + number, np.uint8)
            image.fromarray(picture).save(tmp_path / "data" / name / f"{number}.png")
    run = train_image(
        data=tmp_path / "data", artifact_dir=tmp_path / "run", size=8, channels=1, model="mlp",
        steps=3, batch_size=4, augment="none", clip=0.5, threads=1,
    )  # fmt: skip
    assert run.trainer.step == 3
    assert run.results().confusion.sum() == 2
    classify = ImageClassifier.load(run.export(tmp_path / "model.gguf"))
    assert set(classify(tmp_path / "data" / "dark" / "0.png")) == {"dark", "light"}


def test_a_configuration_of_a_wrong_kind():
    with pytest.raises(TypeError, match="config must be"):
        train_llm({"steps": 3})
