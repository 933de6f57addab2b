# SPDX-License-Identifier: MIT
import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Tokenizer
from pyggml.errors import FormatError
from pyggml.io import GGUFFile, f32, u32, write_gguf
from pyggml.models import build, load

SIZES = {
    "gpt2": {"vocab_size": 40, "context": 9, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "llama": {
        "vocab_size": 40, "context": 9, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_kv_head": 2,
        "rope_theta": 12345.5, "eps": 2e-6,
    },
}  # fmt: skip
IDS = [[1, 2, 3, 39, 0]]


@pytest.fixture(params=SIZES)
def arch(request):
    return request.param


def make(arch, **overrides):
    pg.seed(6)
    return build(arch, {**SIZES[arch], **overrides})


@pytest.mark.parametrize("tie", [True, False])
def test_round_trip(arch, tie, tmp_path):
    model = make(arch, tie=tie)
    model.save_gguf(tmp_path / "model.gguf", name="a name")
    again, tokenizer = load(tmp_path)
    assert tokenizer is None
    assert type(again) is type(model)
    assert again.config == model.config
    for key, array in again.state_dict().items():
        np.testing.assert_array_equal(array, model.state_dict()[key])
    with GGUFFile.open(tmp_path / "model.gguf") as file:
        assert ("output.weight" in file.tensors) is not tie
        assert file.metadata["general.name"] == "a name"


@pytest.mark.parametrize("tie", [True, False])
def test_a_gpt2_without_shifts_has_zeros_in_the_file(tie, tmp_path):
    """llama.cpp asks for every bias; ours come back as a model that learns none."""
    path = tmp_path / "model.gguf"
    model = make("gpt2", bias=False, tie=tie)
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]
    model.save_gguf(path, dtype="f16")
    with GGUFFile.open(path) as file:
        with_shifts = {
            make("gpt2", tie=tie).gguf_name(n) for n, _ in make("gpt2", tie=tie).named_parameters()
        }
        assert set(file.tensors) == with_shifts
        for name in file.tensors:
            if name.endswith("bias"):
                assert not file.array(name).any()
                assert file.tensors[name].dtype == "f32"
    model.save_gguf(path)
    again, _ = load(path)
    assert again.config == model.config
    for key, array in again.state_dict().items():
        np.testing.assert_array_equal(array, model.state_dict()[key])


def test_what_the_shifts_are_must_go_with_the_metadata(tmp_path):
    path, shift = tmp_path / "m.gguf", "blk.1.ffn_up.bias"
    rewrite("gpt2", path, tensors={shift: np.ones(128, np.float32)}, bias=False)
    with pytest.raises(FormatError, match=r"m\.gguf: tensor blk\.1\.ffn_up\.bias"):
        load(path)
    rewrite("gpt2", path, {"pyggml.gpt2.bias": "no"}, bias=False)
    with pytest.raises(FormatError, match=r"pyggml\.gpt2\.bias .*'no'"):
        load(path)
    rewrite("gpt2", path, tensors={shift: None}, bias=False)  # a writer that leaves zeros out
    assert not load(path)[0].config.bias
    rewrite("gpt2", path, {"pyggml.gpt2.bias": None}, bias=False)
    assert load(path)[0].config.bias  # shifts of zero can be learned on


def test_loading_leaves_the_generator_alone(arch, tmp_path):
    make(arch).save_gguf(tmp_path / "m.gguf")
    pg.seed(9)
    want = pg.random_generator().random()
    pg.seed(9)
    load(tmp_path / "m.gguf")
    assert pg.random_generator().random() == want


@pytest.mark.parametrize(("dtype", "atol"), [("f16", 1e-4), ("bf16", 1e-3), ("q8_0", 2e-3)])
def test_smaller_types(arch, dtype, atol, tmp_path):
    model = make(arch)
    model.save_gguf(tmp_path / "m.gguf", dtype=dtype)
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        assert file.tensors["token_embd.weight"].dtype == dtype
        assert file.tensors["output_norm.weight"].dtype == "f32"
    again, _ = load(tmp_path / "m.gguf")
    for key, array in again.state_dict().items():
        np.testing.assert_allclose(array, model.state_dict()[key], atol=atol)


def test_the_tokenizer_travels(arch, tmp_path):
    texts = ["hello there, general text", "abc ABC 123"]
    tokenizer = Tokenizer.chars(texts)
    model = make(arch)
    model.save_gguf(tmp_path / "m.gguf", tokenizer)
    again, found = load(tmp_path / "m.gguf")
    assert again.config.vocab_size == 40
    assert found.encode(texts[0]).tolist() == tokenizer.encode(texts[0]).tolist()
    with pytest.raises(ValueError, match="vocab_size"):
        make(arch, vocab_size=5).save_gguf(tmp_path / "m.gguf", tokenizer)


def test_llama_rows_are_llama_cpps(tmp_path):
    """llama.cpp's converter: (H, 2, D / 2) -> (H, D / 2, 2), for q and k alone."""
    model = make("llama")
    tensors = model.to_gguf_tensors()
    state = model.state_dict()
    for own, name, heads in (("q", "attn_q", 4), ("k", "attn_k", 2)):
        w = state[f"model.layers.0.self_attn.{own}_proj.weight"]
        want = w.reshape(heads, 2, 4, 32).swapaxes(1, 2).reshape(w.shape)
        np.testing.assert_array_equal(tensors[f"blk.0.{name}.weight"], want)
        assert not np.array_equal(want, w)
    value = state["model.layers.0.self_attn.v_proj.weight"]
    np.testing.assert_array_equal(tensors["blk.0.attn_v.weight"], value)


def rewrite(arch, path, metadata=None, tensors=None, **overrides):
    """Write a model's file with some metadata and tensors changed; None removes."""
    model = make(arch, **overrides)
    keys = {**model.to_gguf_metadata(), **(metadata or {})}
    arrays = {**model.to_gguf_tensors(), **(tensors or {})}
    write_gguf(
        path,
        {key: value for key, value in keys.items() if value is not None},
        {key: value for key, value in arrays.items() if value is not None},
    )


def test_a_copied_head_is_a_tied_head(arch, tmp_path):
    model = make(arch)
    table = model.to_gguf_tensors()["token_embd.weight"]
    rewrite(arch, tmp_path / "m.gguf", tensors={"output.weight": table})
    again, _ = load(tmp_path / "m.gguf")
    assert again.config.tie
    rewrite(arch, tmp_path / "m.gguf", tensors={"output.weight": table + 1})
    again, _ = load(tmp_path / "m.gguf")
    assert not again.config.tie


@pytest.mark.parametrize(
    ("arch", "metadata", "tensors", "message"),
    [
        ("gpt2", {"general.architecture": "rwkv"}, {}, "must be one of gpt2, .*; got 'rwkv'"),
        ("gpt2", {"gpt2.block_count": None}, {}, "gpt2.block_count must be .*; got None"),
        ("gpt2", {"gpt2.block_count": u32(0)}, {}, "gpt2.block_count must be .*; got 0"),
        ("gpt2", {"gpt2.block_count": u32(10**9)}, {}, "block_count must be the number of blocks"),
        ("gpt2", {"gpt2.block_count": "2"}, {}, "gpt2.block_count must be .*; got '2'"),
        ("gpt2", {"gpt2.embedding_length": u32(64)}, {}, "token_embd.weight must have the shape"),
        ("gpt2", {"gpt2.context_length": u32(10)}, {}, "position_embd.weight must have the shape"),
        ("gpt2", {"gpt2.feed_forward_length": u32(9)}, {}, "blk.0.ffn_up.weight must have the sh"),
        ("gpt2", {"gpt2.attention.head_count": u32(5)}, {}, "n_head must divide n_embd"),
        ("gpt2", {"gpt2.attention.layer_norm_epsilon": None}, {}, "must be a number; got None"),
        ("gpt2", {}, {"token_embd.weight": None}, "token_embd.weight must be there"),
        ("gpt2", {}, {"blk.1.attn_norm.bias": None}, "missing .'blk.1.attn_norm.bias'"),
        ("gpt2", {}, {"blk.1.extra": np.ones(3, np.float32)}, "unexpected .'blk.1.extra'"),
        ("gpt2", {}, {"output_norm.weight": np.ones(31, np.float32)}, "output_norm.weight must"),
        ("llama", {"llama.rope.scaling.type": "yarn"}, {}, "rope.scaling.factor must be a number"),
        (
            "llama",
            {"llama.rope.scaling.type": "su", "llama.rope.scaling.factor": f32(2)},
            {},
            "llama.rope.scaling: .* kind must be one of linear, .*; got 'su'",
        ),
        ("llama", {"pyggml.rope_scaling": "{nonsense"}, {}, "llama.rope.scaling: "),
        ("llama", {"pyggml.rope_scaling": '{"kind": "yarn"}'}, {}, "must have kind and factor"),
        ("llama", {"pyggml.router_aux": f32(-1)}, {}, "pyggml.router_aux: .* must be a finite"),
        ("llama", {"llama.expert_count": u32(8)}, {}, "llama.expert_used_count must be an integer"),
        ("llama", {"llama.expert_gating_func": u32(2)}, {}, "llama.expert_gating_func must be 1"),
        ("llama", {"llama.rope.scale_linear": f32(-2)}, {}, "scale_linear must be finite and > 0"),
        ("llama", {"llama.attention.key_length": u32(16)}, {}, "rope.dimension_count must be 16"),
        ("llama", {"llama.attention.head_count_kv": u32(3)}, {}, "n_kv_head must divide n_head"),
        ("llama", {}, {"rope_freqs.weight": np.ones(5, np.float32)}, "rope_freqs.weight must have"),
        (
            "llama",
            {},
            {"rope_freqs.weight": np.zeros(4, np.float32)},
            "table.0. must be a finite",
        ),
    ],
)
def test_bad_files_are_named(arch, metadata, tensors, message, tmp_path):
    path = tmp_path / "broken.gguf"
    rewrite(arch, path, metadata, tensors)
    with pytest.raises(pg.FormatError, match=message) as error:
        load(path)
    assert "broken.gguf" in str(error.value)


def test_missing_and_damaged_files_are_named(tmp_path):
    for name in ("weights.safetensors", "weights.pt"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(FormatError, match=r"weights alone: .* model\.load_state_dict"):
            load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"holds no model\.gguf"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.gguf does not exist"):
        load(tmp_path / "nothing.gguf")
    (tmp_path / "text.gguf").write_text("not a model")
    with pytest.raises(pg.FormatError, match=r"text.gguf"):
        load(tmp_path / "text.gguf")
    make("llama").save_gguf(tmp_path / "model.gguf")
    whole = (tmp_path / "model.gguf").read_bytes()
    (tmp_path / "model.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(pg.FormatError, match=r"model.gguf"):
        load(tmp_path)
    with pytest.raises(ValueError, match="dtype must be one of f32"):
        make("llama").save_gguf(tmp_path / "model.gguf", dtype="f8")


def test_an_empty_path_is_not_this_folder(tmp_path, monkeypatch):
    make("llama").save_gguf(tmp_path / "model.gguf")
    monkeypatch.chdir(tmp_path)
    load(".")
    with pytest.raises(ValueError, match="path must name"):
        load("")


def test_a_vocabulary_without_tokens_names_the_file(tmp_path):
    path = tmp_path / "model.gguf"
    rewrite("llama", path, {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2"})
    with pytest.raises(FormatError, match=r"model\.gguf: .*tokenizer\.ggml\.tokens"):
        load(path)
