# SPDX-License-Identifier: MIT
"""What a model's makers chose: generation_config.json, keys of GGUF files, and pooling."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import pyggml as pg
from pyggml.cli.app import app
from pyggml.data import Tokenizer
from pyggml.errors import FormatError
from pyggml.io import read_gguf, write_gguf
from pyggml.models import build, generate, generation_settings, load

SIZES = {"context": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_ffn": 16}
GIVEN = {
    "temperature": 0.7,
    "top_k": 3,
    "top_p": 0.9,
    "repetition_penalty": 1.2,
    "typical_p": 0.95,
    "eos_token_id": [5, 7],
    "pad_token_id": 2,
    "transformers_version": "4.57.0",
}


@pytest.fixture
def folder(tmp_path):
    pg.seed(1)
    tokenizer = Tokenizer.chars(["abcdefgh"])
    model = build("llama", {**SIZES, "vocab_size": tokenizer.vocab_size})
    model.save_pretrained(tmp_path / "folder", tokenizer)
    (tmp_path / "folder" / "generation_config.json").write_text(json.dumps(GIVEN))
    return tmp_path / "folder"


def test_settings_go_through_folders_and_files(folder, tmp_path):
    model, tokenizer = load(folder)
    wanted = {k: v for k, v in GIVEN.items() if k in vars(pg.models.Sampling())}
    assert generation_settings(model) == {**wanted, "stop_ids": [5, 7]}
    model.save(tmp_path / "m.gguf", tokenizer)
    with read_gguf(tmp_path / "m.gguf") as file:
        assert file.metadata["general.sampling.temp"] == pytest.approx(0.7)
        assert file.metadata["general.sampling.top_k"] == 3
        assert file.metadata["tokenizer.ggml.padding_token_id"] == 2
    again, tokenizer = load(tmp_path / "m.gguf")
    assert generation_settings(again) == generation_settings(model)
    again.save_pretrained(tmp_path / "again", tokenizer)
    written = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    roles = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    assert written == {**GIVEN, **roles}  # the tokenizer's end is none of those in the file


def test_generate_takes_them_unless_others_are_given(folder):
    model, _ = load(folder)
    for value in model.parameters():
        value.copy_(value.numpy() * (20 if value.ndim == 2 else 1))  # choices are clear
    model.metadata["general.sampling.penalty_repeat"] = np.float32(50)
    greedy = generate(model, [1, 2], 8, temperature=0, repetition_penalty=1.0, stop_ids=())
    assert len(greedy) == 8
    assert generate(model, [1, 2], 8, temperature=0, stop_ids=()) != greedy
    model.metadata = {"pyggml.generation_config": '{"do_sample": false}'}
    assert generate(model, [1, 2], 8) == greedy
    model.metadata = {"pyggml.generation_config": json.dumps({"eos_token_id": greedy[2]})}
    assert generate(model, [1, 2], 8, temperature=0) == greedy[: greedy.index(greedy[2])]


def test_the_command_takes_them(folder, tmp_path):
    path = tmp_path / "m.gguf"
    model, tokenizer = load(folder)
    model.metadata["pyggml.generation_config"] = '{"do_sample": false}'
    model.save(path, tokenizer)
    words = ["generate", "--model", str(path), "--prompt", "ab", "--max-tokens", "6"]
    first, second = (CliRunner().invoke(app, words).stdout for _ in "12")
    assert first == second  # not drawn
    assert len(first) > 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_k", 1.5),
        ("top_p", 2),
        ("repetition_penalty", 0),
        ("eos_token_id", "x"),
        ("eos_token_id", [1, -1]),
        ("pad_token_id", -1),
        ("do_sample", 1),
    ],
)
def test_damaged_settings_are_named(field, value, folder):
    (folder / "generation_config.json").write_text(json.dumps({field: value}))
    with pytest.raises(FormatError, match=field):
        load(folder)


def test_damaged_keys_are_named(folder, tmp_path):
    model, tokenizer = load(folder)
    model.metadata["general.sampling.top_p"] = np.float32(7)
    model.save(tmp_path / "m.gguf", tokenizer)
    model, _ = load(tmp_path / "m.gguf")
    with pytest.raises(FormatError, match="top_p"):
        generate(model, [1], 1)
    model.metadata = {"pyggml.generation_config": "{", "general.sampling.top_k": np.int32(-1)}
    assert generation_settings(model) == {}  # llama.cpp's way to say all


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("arch", ["bert", "modern-bert", "llama"])
def test_pooling_goes_through_folders(arch, pooling, tmp_path):
    sizes = {**SIZES, "vocab_size": 12, "pooling": pooling}
    build(arch, sizes).save_pretrained(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    assert [m["path"] for m in modules] == ["", "1_Pooling", "2_Normalize"]
    (tmp_path / "1_Pooling").rename(tmp_path / "9_Pooling")
    modules[1]["path"] = "9_Pooling"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert load(tmp_path)[0].config.pooling == pooling


def test_other_ways_to_make_a_vector_are_named(tmp_path):
    build("bert", {**SIZES, "vocab_size": 12}).save_pretrained(tmp_path)
    file = tmp_path / "1_Pooling" / "config.json"
    modes = json.loads(file.read_text())
    file.write_text(json.dumps({**modes, "pooling_mode_max_tokens": True}))
    with pytest.raises(FormatError, match="mean and max_tokens"):
        load(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules.append({"type": "sentence_transformers.models.Dense", "path": "3_Dense"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(FormatError, match="Dense"):
        load(tmp_path)


def test_a_model_that_continues_text_is_no_sentence_transformer(folder):
    assert not (folder / "modules.json").exists()
    assert load(folder)[0].config.pooling is None


def test_files_of_others(tmp_path):
    pg.seed(1)
    model = build("llama", {**SIZES, "vocab_size": 12})
    metadata = {**model.to_gguf_metadata(), "general.sampling.temp": np.float32(0.6)}
    write_gguf(tmp_path / "m.gguf", metadata, model.to_gguf_tensors())
    assert generation_settings(load(tmp_path / "m.gguf")[0]) == {"temperature": 0.6}
