# SPDX-License-Identifier: MIT
"""Each option of each recipe with values of other kinds: refused in words, before the training."""

from __future__ import annotations

import contextlib
import inspect
from decimal import Decimal

import numpy as np
import pytest

from pyggml.data import Tokenizer
from pyggml.models import build
from pyggml.options import options_of
from pyggml.recipes import (
    FinetuneConfig,
    ImageConfig,
    LLMConfig,
    finetune,
    grpo,
    train_image,
    train_llm,
)
from pyggml.train import Callback
from pyggml.train.options import TrainerOptions

from ..fuzz.refusals import accident

TEXT = "To be, or not to be, that is the question.\n" * 40
FEW = (None, "10", float("nan"), np.array([2, 3]), object())
MORE = (b"4", -1, [], {}, {1: 2}, Decimal("nan"), "\ud800", "a\0b", 10**400, [object()], True, 1j)
# Words of Python's and NumPy's own errors, should an option pass them on in its own.
FOREIGN = ("truth value", "unhashable", "not supported between", "object is not", "no attribute")


class Ready(Exception):
    """Nothing stands against the training."""


def stop(run):
    raise Ready


class Stop(Callback):
    def on_start(self, trainer):
        raise Ready


def half(completions, **rest):
    return [0.5] * len(completions)


def options_of_all(recipe, kind):
    """The arguments of a recipe, and the options that it takes by name."""
    more = options_of(TrainerOptions) if kind is None else kind.options()
    return list(dict.fromkeys([*inspect.signature(recipe).parameters, *more]))


RECIPES = {
    "grpo": (grpo, None, {
        "data": [{"prompt": "a"}] * 2, "rewards": half, "num_generations": 2,
        "prompts_per_step": 1, "max_tokens": 1, "steps": 1, "callbacks": [Stop()],
    }),
    "finetune": (finetune, FinetuneConfig, {
        "data": [{"prompt": "a", "completion": "b"}] * 6, "steps": 1, "val_fraction": 0.0,
    }),
    "train_llm": (train_llm, LLMConfig, {
        "text": ("text.txt",), "tokenizer": "chars", "layers": 1, "heads": 1, "embd": 8,
        "seq_len": 8, "steps": 1, "warmup": 0, "threads": 1, "sample_tokens": 0,
    }),
    "train_image": (train_image, ImageConfig, {"data": "digits", "model": "cnn", "epochs": 1}),
}  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    tokenizer = Tokenizer.chars([TEXT])
    sizes = {"context": 64, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_ffn": 64}
    build("llama", sizes, vocab_size=tokenizer.vocab_size).save("base.gguf", tokenizer)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, FEW) for name in ("grpo", "finetune", "train_llm")),
        pytest.param("train_image", FEW, marks=pytest.mark.slow),  # None reads the images each time
        *(pytest.param(name, MORE, marks=pytest.mark.slow) for name in RECIPES),
    ],
)
def test_values_of_other_kinds_are_refused_in_words(here, name, values):
    recipe, kind, given = RECIPES[name]
    given = given if name == "grpo" else {**given, "prepared": stop}
    given = given if name.startswith("train") else {**given, "model": "base.gguf"}
    accidents, refused = [], 0
    for number, option in enumerate(options_of_all(recipe, kind)):
        for value in values:
            call = {"artifact_dir": here / f"run{number}", **given, option: value}
            with contextlib.suppress(Ready):
                try:
                    recipe(**call)
                except Ready:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
                    refused += 1
                    told = str(error)
                    if accident(error) or any(words in told for words in FOREIGN):
                        accidents.append((option, value, type(error).__name__, told))
    assert accidents == []
    assert refused > 100
