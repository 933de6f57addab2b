# SPDX-License-Identifier: MIT
"""Configurations and `generate` given what they cannot take: refused by name; NumPy's numbers are
numbers."""

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
JUNK = (None, "no", "false", b"a", 2.5, -1, True, [], ["a"], {}, object(), float("nan"), np.ones(3))
# None is "chosen by the rest" in many fields; a scaling is checked by `nn.RopeScaling`.


@pytest.mark.parametrize("config", CONFIGS)
def test_any_junk_in_any_field_is_taken_or_refused_by_name(config):
    unclear = []
    for field in fields(config):
        for junk in JUNK:
            try:
                config(**{field.name: junk})
            except ValueError as error:
                parts = (config.__name__, "Dropout", "RopeScaling", "Rope", "relative_buckets")
                if not any(part in str(error) for part in parts):
                    unclear.append((field.name, junk, error))
            # A TypeError or an AttributeError ends the test.
    assert not unclear


@pytest.mark.parametrize("config", CONFIGS)
def test_flags_are_true_or_false(config):
    flags = [field.name for field in fields(config) if isinstance(field.default, bool)]
    for name in flags:
        for junk in ("no", "false", 0, 1, None):
            message = rf"^{config.__name__}: {name} must be True or False; got {junk!r}$"
            with pytest.raises(ValueError, match=message):
                config(**{name: junk})
        assert getattr(config(**{name: np.bool_(True)}), name) is True
    assert bool(flags) == (
        config.__name__ in ("GPT2Config", "LlamaConfig", "LLMConfig", "T5Config")
    )


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
    with pytest.raises(ValueError, match="labels must be 2 names, as many as classes; got"):
        config(classes=2, labels=labels)


def test_names_of_classes_survive_a_file(tmp_path):
    config = BERTConfig(**SIZES, classes=2, labels=["bad", "good"])
    BERTForSequenceClassification(config).save(tmp_path / "m.gguf")
    assert pg.models.load(tmp_path / "m.gguf")[0].config.labels == ("bad", "good")


@pytest.mark.parametrize("name", ["mean", "std"])
@pytest.mark.parametrize("value", [0.5, "a", (0.5, 0.5), (None,), ("x",), (float("inf"),)])
def test_means_are_numbers(name, value):
    fields = {"mean": (0.0,), "std": (1.0,), name: value}
    with pytest.raises(ValueError, match=rf"CNNConfig: {name} must be 1 finite numbers"):
        CNNConfig(channels=1, **fields)


def test_presets_are_named():
    for name in (None, [], "no"):
        with pytest.raises(ValueError, match=r"BERTConfig: preset must be one of tiny, .*; got"):
            BERTConfig.preset(name)


# generate


@pytest.fixture(scope="module")
def model():
    pg.seed(0)
    return build("gpt2", SIZES)


BAD = {
    "max_tokens": (2.5, -1, None, "a", True),
    "temperature": ("a", None, -1.0, float("nan")),
    "top_k": (2.5, 0, "a", True),
    "top_p": ("a", 0, 1.5, float("nan")),
    "seed": ("a", -1, 1.5),
    "stop_ids": (5, "ab", [1.5], None),
    "callback": (3, "print"),
}


@pytest.mark.parametrize("name", BAD)
def test_settings_are_refused_by_name(model, name):
    t5 = build("t5", {**SIZES, "n_head_dim": 8, "n_ffn": 32})
    for value in BAD[name]:
        given = {"max_tokens": 2, name: value}
        with pytest.raises((ValueError, TypeError), match=rf"^generate: {name} must be"):
            generate(model, [1, 2], **given)
        if value is not None:  # which are the defaults of T5
            with pytest.raises((ValueError, TypeError), match=rf"^generate_from: {name} must be"):
                t5.generate([1, 2], **given)


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
def test_what_continues_no_text_is_refused(arch, cure):
    other = None if arch is None else build(arch, "tiny")
    for call in (lambda: generate(other, [1, 2], 3), lambda: Generator(other)):
        with pytest.raises(TypeError, match=rf"must be a language model, .*{cure}"):
            call()
