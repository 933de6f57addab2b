# SPDX-License-Identifier: MIT
"""Configurations and the settings of `generate`: NumPy's numbers, names of classes, presets."""

from dataclasses import MISSING, fields

import numpy as np
import pytest

import pyggml as pg
from pyggml.models import (
    MODELS,
    BERTConfig,
    BERTForSequenceClassification,
    CNNConfig,
    Generator,
    MLPConfig,
    build,
    generate,
)

CONFIGS = sorted({model.config_class for model in MODELS.values()}, key=lambda c: c.__name__)
SIZES = {"vocab_size": 31, "context": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}


@pytest.mark.parametrize("config", CONFIGS)
def test_numbers_of_numpy_are_numbers(config):
    kinds = {int: np.int64, float: np.float64}
    for field in fields(config):
        default = field.default
        if default is MISSING or type(default) not in kinds:
            continue
        made = config(**{field.name: kinds[type(default)](default)})
        assert made == config()
        plain = getattr(config(), field.name)
        assert type(getattr(made, field.name)) is type(plain)


def test_widths_of_numpy_are_widths():
    assert CNNConfig(widths=tuple(np.array([8, 16]))).widths == (8, 16)
    assert MLPConfig(inputs=2, mean=np.zeros(1), std=np.ones(2)).std == (1.0, 1.0)


@pytest.mark.parametrize("labels", [(1, 2), "ab", 5, ("a",), ("a", "b", "c"), ["a", None]])
@pytest.mark.parametrize("config", [BERTConfig, MLPConfig, CNNConfig])
def test_labels_are_names_as_many_as_classes(config, labels):
    names = isinstance(labels, str) or labels in (("a",), ("a", "b", "c"))
    with pytest.raises(ValueError if names else TypeError, match=r"labels must be .*; got"):
        config(classes=2, labels=labels)


@pytest.mark.parametrize("config", [BERTConfig, MLPConfig, CNNConfig])
def test_labels_that_no_file_can_hold_raise(config):
    with pytest.raises(ValueError, match=r"labels must be Unicode; got 'a\\xe9': rename the class"):
        config(classes=2, labels=("a\udce9", "b"))


def test_names_of_classes_survive_a_file(tmp_path):
    config = BERTConfig(**SIZES, classes=2, labels=["bad", "good"])
    BERTForSequenceClassification(config).save(tmp_path / "m.gguf")
    assert pg.models.load(tmp_path / "m.gguf")[0].config.labels == ("bad", "good")


@pytest.mark.parametrize("name", ["mean", "std"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0.5, TypeError),
        ("a", TypeError),
        ((None,), TypeError),
        (("x",), TypeError),
        ((0.5, 0.5), ValueError),
        ((float("inf"),), ValueError),
    ],
)
def test_means_are_numbers(name, value, error):
    fields = {"mean": (0.0,), "std": (1.0,), name: value}
    with pytest.raises(error, match=rf"CNNConfig: {name}(\[0\])? must"):
        CNNConfig(channels=1, **fields)


def test_presets_are_named():
    for name, error in ((None, TypeError), ([], TypeError), ("no", ValueError)):
        with pytest.raises(error, match=r"BERTConfig: preset must be one of tiny, .*; got"):
            BERTConfig.preset(name)


# generate


@pytest.fixture(scope="module")
def model():
    pg.seed(0)
    return build("gpt2", SIZES)


def test_settings_of_numpy_are_settings(model):
    given = {"temperature": np.float32(0.7), "top_k": np.int64(5), "seed": np.int64(3)}
    want = generate(model, [1, 2], 4, temperature=float(np.float32(0.7)), top_k=5, seed=3)
    assert generate(model, [1, 2], np.int64(4), **given) == want
    stops = np.array(want[:1])
    assert generate(model, [1, 2], 4, **given, stop_ids=stops) == []


@pytest.mark.parametrize(
    ("arch", "cure"),
    [
        ("t5", r"T5\.generate\(ids\)"),
        ("bert", "build or load one that continues text"),
        ("bert-mlm", "it names hidden tokens"),
        ("cnn", r"predict_proba\(x\)"),
        (None, "got NoneType"),
    ],
)
def test_generate_raises_for_models_that_continue_no_text(arch, cure):
    other = None if arch is None else build(arch, "tiny")
    for call in (lambda: generate(other, [1, 2], 3), lambda: Generator(other)):
        with pytest.raises(TypeError, match=rf"must be a language model, .*{cure}"):
            call()
