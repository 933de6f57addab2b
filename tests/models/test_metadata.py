# SPDX-License-Identifier: MIT
"""What a model's file says is said again by its next file."""

import logging

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import Tokenizer
from pyggml.errors import FormatError
from pyggml.io import f32, read_gguf, u32, write_gguf
from pyggml.models import build, generate, load, load_lora, save_lora

SIZES = {"vocab_size": 40, "context": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
FOREIGN = {
    "general.name": "Their Model",
    "general.author": "A. Author",
    "general.version": "v1.1",
    "general.license": "apache-2.0",
    "general.uuid": "1-2-3",
    "general.tags": ["chat", "small"],
    "general.languages": ["en"],
    "general.size_label": "20K",
    "general.sampling.temp": f32(0.7),
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.ggml.eot_token_id": u32(3),
    "tokenizer.ggml.padding_token_id": u32(4),
    "llama.some.key": u32(7),
    "other.vector": np.arange(3, dtype=np.float64),
    "other.flags": np.array([True, False]),
    "other.none": [],
}


@pytest.fixture
def theirs(tmp_path):
    """A file with all that a converter writes, and more."""
    pg.seed(2)
    model = build("llama", SIZES)
    tokenizer = Tokenizer.chars(["hello there, general text"])
    words = model.to_gguf_metadata(tokenizer.to_gguf_metadata(vocab_size=40))
    write_gguf(tmp_path / "theirs.gguf", {**words, **FOREIGN}, model.to_gguf_tensors())
    return tmp_path / "theirs.gguf"


def said(path):
    """The metadata as it can be compared, with the types."""
    with read_gguf(path) as file:
        return {
            key: (type(value).__name__, value.tolist() if hasattr(value, "tolist") else value)
            for key, value in file.typed_metadata.items()
        }


@pytest.mark.parametrize("given", [True, False])
def test_saving_what_was_loaded_keeps_every_key(given, theirs, tmp_path):
    model, tokenizer = load(theirs)
    model.save(tmp_path / "again.gguf", tokenizer if given else None)
    assert said(tmp_path / "again.gguf") == said(theirs)


def test_training_renames_and_names_the_base_model(theirs, tmp_path):
    model, tokenizer = load(theirs)
    step = pg.train.TrainStep(model, pg.optim.SGD(model, lr=0.1))
    step([(np.ones((1, 4), np.int32), np.ones((1, 4), np.int32))])
    assert model.trained
    model.save(tmp_path / "again.gguf", tokenizer)
    old, new = said(theirs), said(tmp_path / "again.gguf")
    gone = {key for key in old if key not in new}
    changed = {key for key in old if key in new and old[key] != new[key]}
    assert (gone, changed) == ({"general.uuid"}, {"general.name"})
    assert new["general.name"][1] == "Their Model trained with pyggml"
    added = {key: value[1] for key, value in new.items() if key not in old}
    assert added == {
        "general.base_model.count": 1,
        "general.base_model.0.name": "Their Model",
        "general.base_model.0.author": "A. Author",
        "general.base_model.0.version": "v1.1",
        "general.base_model.0.uuid": "1-2-3",
    }
    model.save_gguf(tmp_path / "again.gguf", tokenizer, name="Mine")
    assert said(tmp_path / "again.gguf")["general.name"][1] == "Mine"


def test_an_adapter_names_its_base_model(theirs, tmp_path):
    model, _ = load(theirs)
    nn.apply_lora(model, rank=2)
    save_lora(model, tmp_path / "adapter.gguf")
    assert said(tmp_path / "adapter.gguf")["general.base_model.0.name"][1] == "Their Model"
    model, _ = load(theirs)
    load_lora(model, tmp_path / "adapter.gguf")
    assert model.trained


def test_another_vocabulary_takes_nothing_of_the_old_one(theirs, tmp_path):
    model, _ = load(theirs)
    model.save(tmp_path / "again.gguf", Tokenizer.chars(["other words, that are not there"]))
    assert "tokenizer.chat_template" not in said(tmp_path / "again.gguf")


def test_metadata_can_be_changed(theirs, tmp_path):
    model, tokenizer = load(theirs)
    model.metadata["general.license"] = "mit"
    del model.metadata["general.tags"]
    model.save(tmp_path / "again.gguf", tokenizer)
    new = said(tmp_path / "again.gguf")
    assert new["general.license"][1] == "mit"
    assert "general.tags" not in new
    model.metadata = None
    with pytest.raises(TypeError, match="metadata"):
        model.save(tmp_path / "again.gguf", tokenizer)


@pytest.mark.parametrize(
    ("stored", "dtype", "number"),
    [("f32", "f32", 0), ("q8_0", "f32", 0), ("f32", "q8_0", 7), ("f16", "bf16", 32)],
)
def test_the_file_type_is_that_of_the_matrices(stored, dtype, number, theirs, tmp_path):
    model, tokenizer = load(theirs)
    model.save(tmp_path / "stored.gguf", tokenizer, dtype=stored)
    again, _ = load(tmp_path / "stored.gguf")
    again.save(tmp_path / "again.gguf", tokenizer, dtype=dtype)
    new = said(tmp_path / "again.gguf")
    assert new["general.file_type"][1] == number
    assert ("general.quantization_version" in new) is (dtype == "q8_0")
    kept, _ = load(tmp_path / "stored.gguf", keep_types=True)
    kept.save(tmp_path / "again.gguf", tokenizer)
    assert said(tmp_path / "again.gguf") == said(tmp_path / "stored.gguf")


def test_a_mix_keeps_its_number(theirs, tmp_path):
    path = tmp_path / "mix.gguf"
    model, tokenizer = load(theirs)
    model.metadata["general.file_type"] = u32(1)
    model.save(path, tokenizer, dtype="f16")
    model, _ = load(path)
    words = {**model.to_gguf_metadata(), "general.file_type": u32(5)}
    write_gguf(path, words, model.to_gguf_tensors("f16"))
    kept, _ = load(path, keep_types=True)
    assert kept.to_gguf_metadata()["general.file_type"] == 5
    assert kept.to_gguf_metadata(dtype="f16")["general.file_type"] == 5
    plain, _ = load(path)
    assert plain.to_gguf_metadata()["general.file_type"] == 0


@pytest.mark.parametrize("key", ["general.architecture", "general.type"])
@pytest.mark.parametrize("value", [["llama"], np.array([1, 2], np.int32), u32(1)])
def test_kinds_must_be_text(key, value, theirs, tmp_path):
    model, _ = load(theirs)
    bad = {**model.to_gguf_metadata(), key: value}
    write_gguf(tmp_path / "bad.gguf", bad, model.to_gguf_tensors())
    with pytest.raises(FormatError, match=key):
        load(tmp_path / "bad.gguf")
    with pytest.raises(FormatError, match="general"):
        load_lora(model, tmp_path / "bad.gguf")


# Keys that a reader looks for, beside those that are written.
LOOKED_FOR = (
    "attention.value_length expert_count expert_weights_norm pooling_type hidden_activation"
    " rope.scaling.type rope.scaling.factor rope.scale_linear rope.scaling.attn_factor"
    " rope.scaling.original_context_length decoder_start_token_id classifier.output_labels"
).split()
ARRAYS = (np.zeros(0, np.int32), np.array([True, False]), np.full(3, np.nan, np.float32))


@pytest.mark.parametrize(
    "arch", ["gpt2", "llama", "llm", "llama-classifier", "bert", "modern-bert", "t5"]
)
def test_an_array_in_the_place_of_any_value_is_named(arch, tmp_path):
    tokenizer = Tokenizer.chars(["hello there, general text"])
    model = build(arch, {**SIZES, "n_layer": 1, **({"n_ffn": 32} if arch == "t5" else {})})
    words = model.to_gguf_metadata(tokenizer.to_gguf_metadata(vocab_size=40))
    kind, tensors = words["general.architecture"], model.to_gguf_tensors()
    own = ("pyggml.model", "pyggml.rope_scaling", "pyggml.scaled_norm", "tokenizer.ggml.model")
    told = {}
    for key in {*words, *own, *(f"{kind}.{name}" for name in LOOKED_FOR)}:
        for number, value in enumerate(ARRAYS):
            write_gguf(tmp_path / "bad.gguf", {**words, key: value}, tensors)
            try:
                again, read = load(tmp_path / "bad.gguf")
                again.save(tmp_path / "again.gguf", read)
            except ValueError as error:
                told[key, number] = str(error)
    assert len(told) > 10
    assert [key for key, text in told.items() if "truth value" in text] == []
    files = ("bad.gguf: ", "save_gguf: ")
    assert [text for text in told.values() if not any(name in text for name in files)] == []


@pytest.mark.parametrize("keys", [["rope.scaling.factor"], ["rope.scale_linear"]])
def test_positions_are_stretched_as_in_llama_cpp(keys, theirs, tmp_path):
    """A file that gives a factor and no kind has linear positions; the old key counts too."""
    model, _ = load(theirs)
    more = {f"llama.{key}": f32(4) for key in keys}
    write_gguf(tmp_path / "m.gguf", {**model.to_gguf_metadata(), **more}, model.to_gguf_tensors())
    stretched, _ = load(tmp_path / "m.gguf")
    assert stretched.config.rope_scaling == nn.RopeScaling("linear", 4.0)
    none = {**model.to_gguf_metadata(), **more, "llama.rope.scaling.type": "none"}
    write_gguf(tmp_path / "m.gguf", none, model.to_gguf_tensors())
    assert load(tmp_path / "m.gguf")[0].config.rope_scaling is None


def test_a_window_is_left_out_where_llama_cpp_leaves_it_out(theirs, tmp_path, caplog):
    model, _ = load(theirs)
    words = {**model.to_gguf_metadata(), "llama.attention.sliding_window": u32(8)}
    write_gguf(tmp_path / "m.gguf", words, model.to_gguf_tensors())
    with caplog.at_level(logging.WARNING, "pyggml.models"):
        assert load(tmp_path / "m.gguf")[0].config.window is None
    assert "sliding_window = 8" in caplog.text
    own = build("llama", {**SIZES, "window": 8})
    own.save(tmp_path / "m.gguf")
    assert load(tmp_path / "m.gguf")[0].config == own.config


@pytest.mark.parametrize("family", ["qwen2moe", "qwen3moe"])
def test_mixtures_come_back(family, tmp_path):
    """Tied ones too, whose head llama.cpp wants in the file; and experts as wide as n_ffn."""
    model = build("llama", {**SIZES, "family": family, "n_expert": 4})
    model.save(tmp_path / "m.gguf")
    with read_gguf(tmp_path / "m.gguf") as file:
        assert ("output.weight" in file.tensors) is (family == "qwen2moe")
        assert file.metadata[f"{family}.expert_feed_forward_length"] == model.config.ffn
    again, _ = load(tmp_path / "m.gguf")
    assert again.config == model.config
    words = {k: v for k, v in model.to_gguf_metadata().items() if "expert_feed" not in k}
    write_gguf(tmp_path / "m.gguf", words, model.to_gguf_tensors())
    with pytest.raises(FormatError, match="ffn_up_exps"):  # llama.cpp takes n_ffn / n_expert_used
        load(tmp_path / "m.gguf")


def test_weights_that_are_no_numbers_are_named(theirs, tmp_path):
    model, tokenizer = load(theirs)
    weights = model.model.layers[1].mlp.up_proj.weight
    damaged = weights.numpy().copy()
    damaged[0, :3] = [np.nan, np.inf, -np.inf]
    weights.copy_(damaged)
    model.save(tmp_path / "bad.gguf", tokenizer)
    with pytest.raises(FormatError, match=r"bad\.gguf.*blk\.1\.ffn_up\.weight \(3\)"):
        load(tmp_path / "bad.gguf", check=True)
    bad, _ = load(tmp_path / "bad.gguf")
    with pytest.raises(FormatError, match="check=True"):
        generate(bad, [1, 2], 3, temperature=0)
    assert load(theirs, check=True)[0].config == model.config
    with pytest.raises(TypeError, match="check"):
        load(theirs, check="yes")


def test_a_vocabulary_is_not_searched_for_modules():
    model = build("llama", SIZES)
    model.metadata["tokenizer.ggml.tokens"] = ["a"] * 10
    assert "metadata" not in vars(model)
    assert all("metadata" not in path for path, _ in model.named_modules())
