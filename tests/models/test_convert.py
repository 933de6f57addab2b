# SPDX-License-Identifier: MIT
"""Models and adapters between GGUF and Hugging Face's folders."""

import os

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import Tokenizer, embedded_text
from pyggml.errors import FormatError
from pyggml.io import read_gguf
from pyggml.models import build, convert, load, load_lora, save_lora
from pyggml.recipes.artifact import ArtifactDir


@pytest.fixture
def source(tmp_path):
    tokenizer = Tokenizer.train_bpe(embedded_text()[:3], 288)
    model = build("llama", "tiny", vocab_size=tokenizer.vocab_size)
    model.metadata["tokenizer.chat_template"] = "{{ messages }}"
    model.save(tmp_path / "model.gguf", tokenizer, dtype="bf16")
    return tmp_path / "model.gguf"


def same(first, second):
    state = second.state_dict()
    return all(np.array_equal(array, state[name]) for name, array in first.state_dict().items())


def test_there_and_back(source, tmp_path):
    model, tokenizer = load(source)
    folder = convert(source, tmp_path / "folder")
    again = convert(folder, tmp_path / "again.gguf")
    for path in (folder, again):
        other, words = load(path)
        assert same(model, other)
        assert other.config == model.config
        assert words.to_json() == tokenizer.to_json()
    with read_gguf(source) as before, read_gguf(again) as after:
        kinds = [{name: info.dtype for name, info in f.tensors.items()} for f in (before, after)]
        assert kinds[0] == kinds[1]
        assert after.metadata["tokenizer.chat_template"] == "{{ messages }}"


def test_a_run_is_not_written_over(source, tmp_path):
    run = ArtifactDir(tmp_path / "run")
    run.create({})
    before = run.config.read_bytes()
    with pytest.raises(ValueError, match="folder must not be that of a training run"):
        convert(source, run.path)
    assert [path.name for path in run.path.iterdir() if path.is_file()] == ["config.json"]
    assert run.config.read_bytes() == before
    assert load(convert(source, run.path / "model"))[0].arch == "llama"


@pytest.mark.skipif(os.name != "posix", reason="needs names of any bytes")
def test_a_folder_of_any_name(source, tmp_path):
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    again = convert(convert(source, odd), tmp_path / "again.gguf")
    with read_gguf(again) as file:
        assert file.metadata["general.name"] == "caf\\xe9"


def test_types(source, tmp_path):
    small = convert(source, tmp_path / "small.gguf", dtype="q8_0")
    with read_gguf(small) as file:
        assert file.tensors["blk.0.ffn_up.weight"].dtype == "q8_0"
    folder = convert(small, tmp_path / "folder")
    assert load(folder, keep_types=True)[0].model.layers[0].mlp.up_proj.weight.dtype.name == "f16"
    with pytest.raises(ValueError, match="dtype"):
        convert(source, tmp_path / "other", dtype="q8_0")


def test_adapters(source, tmp_path):
    model, _ = load(source)
    nn.apply_lora(model, rank=2)
    rng = np.random.default_rng(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.copy_(rng.standard_normal(value.shape).astype(np.float32))
    save_lora(model, tmp_path / "peft")
    file = convert(tmp_path / "peft", tmp_path / "adapter.gguf", base=source)
    convert(file, tmp_path / "again", base=source)
    other, _ = load(source)
    load_lora(other, tmp_path / "again")
    ids = pg.tensor(np.arange(8, dtype=np.int32)[None])
    np.testing.assert_allclose(other(ids).numpy(), model(ids).numpy(), rtol=1e-5, atol=1e-6)
    for arguments in ({}, {"base": source, "dtype": "f16"}):
        with pytest.raises(ValueError, match=r"base|dtype"):
            convert(file, tmp_path / "x", **arguments)
    with pytest.raises(ValueError, match="base"):
        convert(source, tmp_path / "x", base=source)
    with pytest.raises(FormatError):
        convert(tmp_path / "peft", tmp_path / "x.gguf", base=file)
