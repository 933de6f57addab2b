# SPDX-License-Identifier: MIT
"""Every model in a file: whole, smaller, damaged, and another's."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Tokenizer
from pyggml.errors import FormatError
from pyggml.io import GGUFFile, f64, i64, u32, write_gguf
from pyggml.models import MODELS, T5, build, load

_BERT = {"vocab_size": 40, "context": 9, "n_embd": 32, "n_layer": 2, "n_head": 4, "eps": 2e-12}
_LLAMA = {**_BERT, "n_kv_head": 2, "eps": 2e-6, "rope_theta": 12345.5}
_T5 = {"vocab_size": 40, "context": 9, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_head_dim": 6}
_T5 |= {"n_ffn": 48, "n_decoder": 1, "max_distance": 50, "eos_id": 7, "start_id": 3}
SIZES = {
    "gpt2": {**_BERT, "eps": 1e-5, "dropout": 0.25},
    "llama": {**_LLAMA, "window": 4},
    "llama-mixtral": {**_LLAMA, "n_expert": 3, "n_ffn": 32, "router_aux": 0.125},
    "llama-yarn": {
        **_LLAMA,
        "rope_scaling": {"kind": "yarn", "factor": 3.0, "original": 4, "beta_fast": 7.5},
    },
    "llama-dynamic": {
        **_LLAMA, "rope_scaling": {"kind": "dynamic", "factor": 3.0, "original": 4},
    },
    "llama-table": {
        **_LLAMA, "rope_scaling": {"kind": "table", "factor": 1.0, "table": (1.0, 2.0, 3.0, 4.5)},
    },
    "llama-qwen3": {**_LLAMA, "family": "qwen3", "n_head_dim": 12},
    "llama-gemma": {**_LLAMA, "family": "gemma", "n_head_dim": 12},
    "llama-qwen2moe": {
        **{**_LLAMA, "family": "qwen2moe", "n_expert": 4, "n_expert_used": 3, "tie": False},
        **{"n_expert_ffn": 32, "n_shared_ffn": 64},
    },
    "llm": {**_LLAMA, "n_ffn": 64},
    "bert": {**_BERT, "types": 3, "pooling": "cls", "dropout": 0.0},
    "bert-mlm": {**_BERT, "n_ffn": 64},
    "bert-classifier": {**_BERT, "classes": 3, "labels": ("x", "y", "z")},
    "bert-classifier-bare": {**_BERT, "classes": 1, "pooler": False},
    "bert-token-classifier": {**_BERT, "classes": 3, "labels": ("B-x", "I-x", "O")},
    "modern-bert": {**_BERT, "window": 4, "rope_theta": 500.0, "pooling": "last"},
    "modern-bert-mlm": {**_BERT, "window": 6, "window_pattern": 2, "activation": "silu"},
    "modern-bert-classifier": {**_BERT, "classes": 3, "labels": ("x", "y", "z"), "dropout": 0.25},
    "llama-embedding": {**_LLAMA, "family": "qwen3", "pooling": "last"},
    "llama-classifier": {**_LLAMA, "labels": ("yes", "no")},
    "t5": {**_T5, "dropout": 0.0},
    "t5-gated": {**_T5, "gated": True, "tie": False},
    "mlp": {
        "inputs": 32, "hidden": (16, 8), "classes": 2, "norm": "batch", "mean": 0.5, "std": 2.0,
    },
    "cnn": {
        **{"channels": 2, "size": (8, 9), "widths": (5, 6), "classes": 3, "dropout": 0.125},
        **{"labels": ("cat", "dog", "Zürich"), "mean": (0.1, 0.2), "std": (0.3, 0.4)},
    },
    "cnn-group": {"size": 8, "norm": "group", "hidden": 0, "activation": "tanh", "kernel": 1},
    "resnet": {"widths": (4, 6), "blocks": (1, 2), "classes": 1, "labels": ("one",)},
}  # fmt: skip


@pytest.fixture(params=SIZES)
def name(request):
    return request.param


def make(name, **overrides):
    pg.seed(6)
    arch = max((a for a in MODELS if f"{name}-".startswith(f"{a}-")), key=len)
    given = {k: v for k, v in SIZES[name].items() if not (arch == "t5" and k == "rope_theta")}
    model = build(arch, {**given, **overrides})
    rng = np.random.default_rng(2)
    for _, buffer in model.named_buffers():
        buffer.copy_(rng.uniform(0.5, 1.5, buffer.shape).astype(np.float32))
    return model


def result(model):
    """What a model says of some inputs."""
    model.eval()
    rng = np.random.default_rng(3)
    config = model.config
    if hasattr(config, "vocab_size"):
        ids = pg.tensor(rng.integers(0, config.vocab_size, (2, 7)).astype(np.int32))
        more = {"decoder_ids": ids} if model.arch == "t5" else {}
        return model(ids, **more).numpy()
    shape = {"mlp": (2, 2, 4, 4), "cnn": (2, getattr(config, "channels", 1), 8, 8)}.get(
        model.arch, (2, 3, 8, 8)
    )
    if model.arch == "cnn":
        shape = (*shape[:2], *config.shape)
    return model(pg.tensor(rng.standard_normal(shape).astype(np.float32))).numpy()


def test_every_model_has_a_row():
    assert {make(name).arch for name in SIZES} == set(MODELS)


def test_what_is_saved_is_loaded(name, tmp_path):
    model = make(name)
    model.save(tmp_path / "m.gguf")
    again, tokenizer = load(tmp_path / "m.gguf")
    assert tokenizer is None
    assert type(again) is type(model)
    assert again.config == model.config
    state, other = model.state_dict(), again.state_dict()
    assert list(state) == list(other)
    for key, array in state.items():
        assert array.shape == other[key].shape
        # T5's tied head moves its scale into a norm and back.
        np.testing.assert_allclose(other[key], array, rtol=2e-7 if "t5" in name else 0)
    np.testing.assert_allclose(result(again), result(model), rtol=1e-5, atol=1e-6)
    by_class = type(model).from_gguf(GGUFFile.open(tmp_path / "m.gguf"))
    assert by_class.config == model.config


def test_state_dicts_go_round(name):
    model, other = make(name), make(name)
    for p in other.parameters():
        p.zero_()
    other.load_state_dict(model.state_dict())
    np.testing.assert_array_equal(result(other), result(model))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "q8_0"])
def test_smaller_types(name, dtype, tmp_path):
    model = make(name)
    stored = model.to_gguf_tensors(dtype)
    rows = {each[1].shape[-1] % 32 for each in stored.values() if isinstance(each, tuple)}
    if dtype == "q8_0" and rows != {0}:
        with pytest.raises(pg.ShapeError, match="rows of q8_0 must be multiples of 32"):
            model.save(tmp_path / "m.gguf", dtype=dtype)
        return
    model.save(tmp_path / "m.gguf", dtype=dtype)
    again, _ = load(tmp_path / "m.gguf")
    near = {"f16": 2e-3, "bf16": 2e-2, "q8_0": 3e-2}[dtype]
    for key, array in again.state_dict().items():
        want = model.state_dict()[key]
        np.testing.assert_allclose(array, want, atol=near * max(1e-3, np.abs(want).max()))


@pytest.mark.parametrize("dtype", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize(
    ("arch", "more", "kept"),
    [
        ("t5", {"n_head_dim": 8, "n_ffn": 64}, {"attn_rel_b"}),
        ("llama", {"n_expert": 4, "n_ffn": 64}, {"ffn_gate_inp"}),
        (
            "llama",
            {"family": "qwen2moe", "n_expert": 4, "n_expert_ffn": 32, "n_shared_ffn": 64},
            {"ffn_gate_inp"},
        ),
        ("gpt2", {}, {"position_embd"}),
        ("bert", {}, {"position_embd", "token_types"}),
    ],
    ids=["t5", "mixtral", "qwen2moe", "gpt2", "bert"],
)
def test_small_tables_and_routers_keep_their_numbers(arch, more, kept, dtype, tmp_path):
    pg.seed(0)
    # Four heads: a row of T5's distances is no block of 32.
    model = build(arch, {"vocab_size": 64, "context": 32, "n_embd": 32, "n_layer": 1, "n_head": 4,
                         **more})  # fmt: skip
    model.save(tmp_path / "m.gguf", dtype=dtype)
    want = model.to_gguf_tensors()
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        types = {name: file.tensors[name].dtype for name in want if want[name].ndim > 1}
        plain = [name for name, found in types.items() if found == "f32"]
        for name in plain:
            array = file.array(name).reshape(want[name].shape)
            np.testing.assert_array_equal(array, want[name])
    assert {name.split(".")[-2] for name in plain} == kept
    assert set(types.values()) == {"f32", dtype}
    assert load(tmp_path / "m.gguf")[0].config == model.config


def test_another_models_file_is_refused(name, tmp_path):
    model = make(name)
    path = tmp_path / "m.gguf"
    model.save(path)
    for kind in MODELS.values():
        if model.gguf_arch in (kind.gguf_archs or (kind.arch,)):
            continue
        message = rf"m\.gguf: general\.architecture must be .*; got '{model.gguf_arch}'"
        with pytest.raises(pg.FormatError, match=message):
            kind.from_gguf(GGUFFile.open(path))


def test_a_missing_and_an_extra_tensor_are_named(name, tmp_path):
    model, path = make(name), tmp_path / "m.gguf"
    metadata, tensors = model.to_gguf_metadata(), model.to_gguf_tensors()
    lost = [key for key in tensors if key != "output.weight"][-1]  # without it a head is tied
    write_gguf(path, metadata, {key: a for key, a in tensors.items() if key != lost})
    with pytest.raises(pg.FormatError, match=r"m\.gguf: ") as error:
        load(path)
    assert lost in str(error.value)
    write_gguf(path, metadata, {**tensors, "extra.weight": np.ones(3, np.float32)})
    with pytest.raises(pg.FormatError, match=r"unexpected \['extra.weight'\]"):
        load(path)


def test_every_tensor_of_another_shape_is_named(name, tmp_path):
    model, path = make(name), tmp_path / "m.gguf"
    metadata, tensors = model.to_gguf_metadata(), model.to_gguf_tensors()
    for key, array in tensors.items():
        wrong = np.zeros((*array.shape[:-1], array.shape[-1] + 2) if array.ndim else 3, np.float32)
        write_gguf(path, metadata, {**tensors, key: wrong})
        with pytest.raises(pg.FormatError, match=r"m\.gguf: "):
            load(path)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("cnn", "cnn.widths", np.array([5, 0]), r"cnn: CNNConfig: widths\[1\] must be a whole"),
        ("cnn", "cnn.widths", i64(5), "cnn: CNNConfig: widths must be a list"),
        ("cnn", "cnn.labels", ["cat"], "labels must be 3 names, as many as classes"),
        ("cnn", "cnn.kernel", i64(4), "kernel must be odd"),
        ("cnn", "cnn.kernel", f64(3.0), "kernel must be a whole number; got 3.0"),
        ("cnn", "cnn.std", np.array([0.0, 1.0]), "std.0. must be a finite number > 0"),
        ("cnn", "cnn.activation", "swish", "activation must be one of relu, gelu, silu, tanh"),
        ("cnn", "cnn.dropout", "much", "dropout must be a number; got 'much'"),
        ("mlp", "mlp.inputs", i64(31), "mean must have 31 items"),
        ("mlp", "mlp.hidden", "wide", "hidden must be a list"),
        ("resnet", "resnet.blocks", np.array([1]), "widths and blocks must be as many"),
        ("resnet", "resnet.stem", "tiny", "stem must be one of small, large"),
        ("bert", "bert.context_length", u32(10), "position_embd.weight must have the shape"),
        ("bert", "bert.attention.head_count", u32(5), "n_head must divide n_embd"),
        (
            "bert-classifier",
            "bert.classifier.output_labels",
            ["x"],
            "must be 3 names, as many as classes",
        ),
        (
            "bert",
            "pyggml.dropout",
            f64(1.5),
            "pyggml.dropout.*: Dropout: p must be a finite number",
        ),
        ("bert", "pyggml.pooling", "max", "pooling must be one of mean, cls, last; got 'max'"),
        ("t5", "t5.block_count", u32(3), "block_count must be the number of blocks"),
        ("t5", "t5.decoder_block_count", u32(2), "block_count must be the number of blocks"),
        ("t5", "t5.attention.value_length", u32(7), "value_length must be as key_length, 6; got 7"),
        ("t5", "t5.attention.relative_buckets_count", u32(3), "buckets must be even"),
        (
            "t5",
            "t5.decoder_start_token_id",
            u32(40),
            "start_id must be a whole number >= 0 and <= 39",
        ),
        ("llama-mixtral", "llama.expert_used_count", u32(4), "n_expert_used must be at most n_exp"),
        ("llama-mixtral", "llama.expert_count", u32(4), "ffn_up_exps.weight must have the shape"),
        (
            "llama-table",
            "pyggml.rope_scaling",
            '{"kind":"table","factor":1,"table":[1]}',
            "4 pairs",
        ),
        ("llama-qwen2moe", "qwen2moe.expert_count", u32(0), "n_expert of the family qwen2moe must"),
    ],
)
def test_bad_fields_are_named(name, key, value, message, tmp_path):
    model, path = make(name), tmp_path / "broken.gguf"
    write_gguf(path, {**model.to_gguf_metadata(), key: value}, model.to_gguf_tensors())
    with pytest.raises(pg.FormatError, match=message) as error:
        load(path)
    assert "broken.gguf" in str(error.value)


def test_llama_cpps_own_t5_files_have_an_unscaled_norm(tmp_path):
    model = make("t5")
    metadata, tensors = model.to_gguf_metadata(), model.to_gguf_tensors()
    del metadata["pyggml.scaled_norm"]
    tensors["dec.output_norm.weight"] = model.state_dict()["decoder.final_layer_norm.weight"]
    write_gguf(tmp_path / "m.gguf", metadata, tensors)
    again, _ = load(tmp_path / "m.gguf")
    assert isinstance(again, T5)
    np.testing.assert_allclose(result(again), result(model), rtol=1e-5, atol=1e-6)


def test_image_models_have_no_tokenizer(tmp_path):
    with pytest.raises(ValueError, match=r"CNN .*tokenizer"):
        make("cnn").save(tmp_path / "m.gguf", tokenizer=object())


def test_a_tokenizer_instead_of_the_files_own(tmp_path):
    pytest.importorskip("tokenizers")
    own, other = Tokenizer.chars(["abc"]), Tokenizer.chars(["xyz"])
    model = make("llama", vocab_size=8)
    model.save(tmp_path / "m.gguf", own)
    other.save(tmp_path / "other.json")
    assert load(tmp_path / "m.gguf")[1].to_json() == own.to_json()
    for given in (other, tmp_path / "other.json", str(tmp_path / "other.json")):
        assert load(tmp_path / "m.gguf", tokenizer=given)[1].to_json() == other.to_json()
    model.save(tmp_path / "more.gguf", other)
    assert load(tmp_path / "m.gguf", tokenizer=tmp_path / "more.gguf")[1].token_id("x") is not None
    # A vocabulary that cannot be read is in nobody's way then.
    metadata = {**model.to_gguf_metadata(), "tokenizer.ggml.model": "rwkv"}
    write_gguf(tmp_path / "r.gguf", metadata, model.to_gguf_tensors())
    with pytest.raises(FormatError, match="rwkv"):
        load(tmp_path / "r.gguf")
    assert load(tmp_path / "r.gguf", tokenizer=other)[1] is other
    for none in ("none", "no_vocab"):
        metadata["tokenizer.ggml.model"] = none
        write_gguf(tmp_path / "n.gguf", metadata, model.to_gguf_tensors())
        assert load(tmp_path / "n.gguf")[1] is None
    with pytest.raises(ValueError, match=r"tokenizer .*8 tokens"):
        load(tmp_path / "m.gguf", tokenizer=Tokenizer.chars(["abcdefghijkl"]))
    make("cnn").save(tmp_path / "cnn.gguf")
    with pytest.raises(ValueError, match="a CNN reads no tokens"):
        load(tmp_path / "cnn.gguf", tokenizer=own)
    with pytest.raises(FormatError, match=r"gone\.json"):
        load(tmp_path / "m.gguf", tokenizer=tmp_path / "gone.json")
    with pytest.raises(TypeError, match="path"):
        load(tmp_path / "m.gguf", tokenizer=3)
