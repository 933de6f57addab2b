# SPDX-License-Identifier: MIT
"""The commands that look into files."""

import gzip
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import pyggml as pg
from pyggml.cli.app import app
from pyggml.cli.generate import load_model
from pyggml.data import Loader, TokenDataset, Tokenizer
from pyggml.errors import FormatError
from pyggml.io import inspect_file, save_safetensors
from pyggml.models import build, save_lora
from pyggml.models.quantization import read_importance
from pyggml.recipes.options import MachineOptions
from pyggml.train import Trainer

SIZES = {"vocab_size": 40, "context": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}


@pytest.fixture
def model(tmp_path):
    pg.seed(1)
    made = build("llama", SIZES)
    made.save(tmp_path / "model.gguf", Tokenizer.chars(["hello there, general text"]))
    return made


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_check_tells_what_llama_cpp_would_say(model, tmp_path):
    done = run("check", tmp_path / "model.gguf")
    assert (done.exit_code, "loads it" in done.stdout) == (0, True)
    model.save(tmp_path / "bare.gguf")
    done = run("check", tmp_path / "bare.gguf", "--json")
    (found,) = json.loads(done.stdout)
    assert (done.exit_code, found["kind"], found["where"]) == (1, "refused", "tokenizer.ggml.model")
    assert run("check", tmp_path / "bare.gguf").stdout.startswith("refused: tokenizer.ggml.model")


def test_check_finds_weights_that_are_no_numbers(model, tmp_path):
    model.model.norm.weight.copy_(np.full(32, np.nan, np.float32))
    model.save(tmp_path / "bad.gguf", Tokenizer.chars(["hello there, general text"]))
    assert run("check", tmp_path / "bad.gguf").exit_code == 0
    done = run("check", tmp_path / "bad.gguf", "--weights")
    assert done.exit_code == 1
    assert "output_norm.weight (32)" in done.stderr
    assert run("check", tmp_path / "none.gguf").exit_code == 1
    done = run("check", tmp_path)
    assert done.exit_code == 1
    assert "cannot be read: it is a folder; give the file in it, such as model.gguf" in done.stderr


def test_inspect_shows_a_gguf_file(model, tmp_path):
    found = json.loads(run("inspect", tmp_path / "model.gguf", "--json").stdout)
    assert (found["format"], found["kind"], found["architecture"]) == ("gguf", "model", "llama")
    assert found["parameters"] == sum(p.numel() for p in model.parameters())
    assert found["size_bytes"] == 4 * found["parameters"]
    assert len(found["tensors"]) == found["types"]["f32"]["tensors"]
    assert found["tokenizer"]["special"]["eos"] == {"id": 0, "text": "<|endoftext|>"}
    assert found["metadata"]["tokenizer.ggml.tokens"]["count"] == 40
    shown = run("inspect", tmp_path / "model.gguf", "--tensors").stdout
    assert "token_embd.weight" in shown
    assert "token_embd.weight" not in run("inspect", tmp_path / "model.gguf").stdout


def test_inspect_shows_other_weights(model, tmp_path):
    state = model.state_dict()
    one, shards = tmp_path / "one.safetensors", tmp_path / "shards"
    save_safetensors(one, state, {"made": "here"})
    save_safetensors(shards, state, max_shard_bytes=20_000)
    (shards / "config.json").write_text('{"model_type": "llama", "hidden_size": 32}')
    (shards / "chat_template.jinja").write_text("{{ messages }}")
    single, whole = inspect_file(one), inspect_file(shards)
    assert single["metadata"] == {"format": "pt", "made": "here"}
    assert whole["metadata"]["hidden_size"] == 32
    assert whole["chat_template"] == "{{ messages }}"
    assert whole["architecture"] == "llama"
    assert single["parameters"] == whole["parameters"] == sum(a.size for a in state.values())
    assert inspect_file(shards / "model.safetensors.index.json")["tensors"] == whole["tensors"]
    assert run("inspect", shards).exit_code == 0


def test_inspect_shows_adapters(model, tmp_path):
    pg.nn.apply_lora(model, rank=2)
    save_lora(model, tmp_path / "adapter.gguf")
    assert inspect_file(tmp_path / "adapter.gguf")["kind"] == "adapter"
    folder = tmp_path / "peft"
    folder.mkdir()
    save_safetensors(folder / "adapter_model.safetensors", {"a": np.ones((2, 3), np.float16)})
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2}')
    found = inspect_file(folder)
    assert (found["kind"], found["architecture"], found["size_bytes"]) == ("adapter", "LORA", 12)


def test_inspect_shows_a_checkpoint(model, tmp_path):
    rows = TokenDataset(np.ones(40, np.int32), 8)
    loader = Loader(rows, 2)
    trainer = Trainer(model, loader, steps=2, checkpoint_dir=tmp_path / "checkpoints")
    trainer.fit()
    found = inspect_file(trainer.last_checkpoint)
    assert (found["kind"], found["metadata"]["step"]) == ("checkpoint", 2)
    assert found["parameters"] == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("content", [b"", b"GGUF", b"\x08\0\0\0\0\0\0\0{}      ", b"text"])
@pytest.mark.parametrize("name", ["a.gguf", "a.safetensors", "model.safetensors.index.json"])
def test_inspect_names_damaged_files(content, name, tmp_path):
    (tmp_path / name).write_bytes(content)
    if (content[:1], name) == (b"\x08", "a.safetensors"):  # a whole file without tensors
        assert inspect_file(tmp_path / name)["tensors"] == []
        return
    with pytest.raises(FormatError, match=name):
        inspect_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        inspect_file(tmp_path / "none")


def test_quantize_and_imatrix(tmp_path):
    pg.seed(1)
    model = build("llama", {**SIZES, "n_embd": 256, "n_ffn": 256})
    tokenizer = Tokenizer.chars(["hello there, general text"])
    source, weights, small = (tmp_path / n for n in ("m.gguf", "i.gguf", "s.gguf"))
    model.save(source, tokenizer)
    (tmp_path / "a.txt").write_text("hello there, general text " * 20)
    done = run("imatrix", source, "--text", tmp_path / "a.txt", "--output", weights, "--chunk", 64)
    assert done.exit_code == 0, done.stderr
    assert read_importance(weights).chunks == 8
    done = run("quantize", source, small, "--type", "iq4_xs", "--imatrix", weights)
    assert done.exit_code == 0, done.stderr
    assert inspect_file(small)["types"]["iq4_xs"]["tensors"] > 3
    assert run("check", small).exit_code == 0
    done = run("generate", "--model", small, "--prompt", "hello", "--max-tokens", 4)
    assert done.exit_code == 0, done.stderr
    assert run("imatrix", source, "--text", tmp_path / "none.txt").exit_code == 1


def test_commands_compute_in_the_types_of_the_file(model, tmp_path):
    """As llama.cpp does, and in its memory: not in f32."""
    model.save(tmp_path / "q.gguf", Tokenizer.chars(["hello there, general text"]), dtype="q8_0")
    found, _ = load_model(str(tmp_path / "q.gguf"), MachineOptions())
    assert found.model.layers[0].mlp.up_proj.weight.dtype.name == "q8_0"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("convert M out.gguf --dtype q9", 2, "--dtype must"),
        ("convert M out --dtype q8_0", 2, "--dtype must"),
        ("convert M out.gguf --base M", 2, "--base is for adapters"),
        ("convert M out.gguf --tokenizer none.json", 1, "none.json: "),
        ("convert none.gguf out.gguf", 1, "SOURCE must"),
        ("quantize M out.gguf --type none", 2, "--type must"),
        ("quantize M out.gguf --type IQ1_S", 2, "give --imatrix"),
        ("quantize M out.gguf --max-part-bytes -3", 2, "--max-part-bytes must"),
        ("quantize M out.gguf --imatrix none", 1, "none: "),
        ("quantize none.gguf out.gguf", 1, "none.gguf: "),
        ("check none.gguf", 1, "none.gguf: "),
        ("inspect none.gguf", 1, "FILE must"),
        ("imatrix M --text T --chunk 0", 2, "--chunk must"),
        ("imatrix M --text T --chunk 1000", 2, "--chunk must"),
        ("imatrix M --text cut.gz", 1, "cut.gz: the gzip stream is damaged"),
        (
            "imatrix M --text latin.txt",
            1,
            "latin.txt: text must be UTF-8; got byte 0xe9",
        ),
        ("imatrix M --text nul.txt", 1, "nul.txt: must be text; got a NUL byte"),
        ("imatrix M --text T --output none/x.gguf", 2, "--output none/x.gguf: "),
    ],
)
def test_bad_input_is_told_by_flags(words, code, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {**SIZES, "n_embd": 256, "n_ffn": 256, "n_layer": 1}
    build("llama", sizes).save("model.gguf", Tokenizer.chars(["hello there, general text"]))
    (tmp_path / "text.txt").write_text("hello there, general text " * 4)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"hello there " * 20)[:-9])
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 200)
    (tmp_path / "nul.txt").write_bytes(b"hello\0" * 200)
    named = {"M": "model.gguf", "T": "text.txt"}
    done = run(*(named.get(word, word) for word in words.split()))
    assert done.exit_code == code, done.stderr
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert told in done.stderr
