# SPDX-License-Identifier: MIT
"""Files in other mixes, and importance matrices. tests/interop compares them with llama.cpp's."""

import os
import struct

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Tokenizer
from pyggml.errors import FormatError
from pyggml.io import read_gguf, u32, write_gguf
from pyggml.models import build, load
from pyggml.models.quantization import (
    MIXES,
    measure_importance,
    quantize_gguf,
    read_importance,
    write_importance,
)
from pyggml.models.quantization.importance import Importance

SIZES = {"vocab_size": 64, "context": 32, "n_embd": 256, "n_layer": 2, "n_head": 4, "n_ffn": 256}
SMALL = {**SIZES, "n_embd": 32, "n_ffn": 64}


@pytest.fixture
def path(tmp_path):
    pg.seed(1)
    model = build("llama", SIZES)
    model.metadata["general.license"] = "mit"
    model.save(tmp_path / "model.gguf", Tokenizer.chars(["hello there"]))
    return tmp_path / "model.gguf"


def types(path):
    with read_gguf(path) as file:
        return {name: info.dtype for name, info in file.tensors.items()}


def test_a_mix_gives_some_matrices_more_bits(path, tmp_path):
    small = tmp_path / "small.gguf"
    assert quantize_gguf(path, small, "Q4_K_M") == [small]
    kinds = types(small)
    assert kinds["blk.0.attn_q.weight"] == "q4_K"
    assert kinds["token_embd.weight"] == "q6_K"  # which is the head
    assert kinds["blk.1.ffn_down.weight"] == "q6_K"
    assert kinds["blk.0.attn_norm.weight"] == "f32"
    with read_gguf(small) as file, read_gguf(path) as old:
        assert file.metadata["general.file_type"] == 15
        assert file.metadata["general.quantization_version"] == 2
        own = ("general.file_type", "general.quantization_version")
        assert {k for k in file.metadata if k not in own} == {
            k for k in old.metadata if k not in own
        }
        np.testing.assert_allclose(
            file.array("blk.0.attn_q.weight", dequantise=True),
            old.array("blk.0.attn_q.weight"),
            atol=8e-3,  # half a step of 4 bits
        )
    model, _ = load(small, keep_types=True)
    model.save(tmp_path / "again.gguf")
    assert types(tmp_path / "again.gguf") == kinds
    with read_gguf(tmp_path / "again.gguf") as file:
        assert file.metadata["general.file_type"] == 15
    quantize_gguf(path, small, "Q4_K_M", pure=True)
    assert set(types(small).values()) == {"f32", "q4_K"}


def test_rows_without_whole_blocks_get_another_type(tmp_path):
    build("llama", {**SMALL, "n_ffn": 40}).save(tmp_path / "m.gguf")
    quantize_gguf(tmp_path / "m.gguf", tmp_path / "s.gguf", "Q4_K_S")
    kinds = types(tmp_path / "s.gguf")
    assert kinds["blk.0.attn_q.weight"] == "q5_0"
    assert kinds["blk.0.ffn_down.weight"] == "f16"  # rows of 40


def test_a_file_can_be_quantised_in_its_place_and_in_parts(path, tmp_path):
    quantize_gguf(path, path, "Q8_0")
    assert types(path)["blk.0.attn_q.weight"] == "q8_0"
    with pytest.raises(FormatError, match="requantize"):
        quantize_gguf(path, tmp_path / "x.gguf", "Q4_0")
    target = tmp_path / "x.gguf"
    parts = quantize_gguf(path, target, "Q4_0", requantize=True, max_part_bytes=100_000)
    assert not target.exists()
    assert parts == sorted(tmp_path.glob("x-*.gguf"))
    assert len(parts) > 3
    assert load(parts[0])[0].config.n_layer == 2


def test_importance_is_the_mean_square_of_the_inputs(tmp_path):
    pg.seed(2)
    model = build("llama", SMALL)
    ids = np.random.default_rng(0).integers(0, 64, 20)
    found = measure_importance(model, ids, length=5, datasets=["a text"])
    assert (found.chunks, found.chunk_size) == (4, 5)
    names = [n for n, _ in model.named_state() if n.endswith("_proj.weight")]
    assert set(found.values) == {model.gguf_name(name) for name in names}
    block = model.model.layers[0]
    chunks = [
        model.model.embed_tokens(pg.tensor(c[None].astype(np.int32))) for c in ids.reshape(4, 5)
    ]
    inputs = np.concatenate([block.input_layernorm(x).numpy()[0] for x in chunks])
    np.testing.assert_allclose(found.values["blk.0.attn_q.weight"], (inputs**2).mean(0), rtol=1e-5)
    write_importance(tmp_path / "i.gguf", found)
    again = read_importance(tmp_path / "i.gguf")
    assert (again.chunks, again.chunk_size, again.datasets) == (4, 5, ["a text"])
    for name, values in found.values.items():
        np.testing.assert_allclose(again.values[name], values, rtol=1e-6)
    assert "forward" not in vars(block.mlp.up_proj)


def test_names_of_what_was_read_may_be_any_bytes(tmp_path):
    values = {"a": np.ones(32, np.float32)}
    write_importance(tmp_path / "i.gguf", Importance(values, {}, (os.fsdecode(b"caf\xe9"),)))
    assert read_importance(tmp_path / "i.gguf").datasets == ["caf\\xe9"]


def test_importance_of_experts_is_apart(tmp_path):
    pg.seed(3)
    model = build("llama", {**SMALL, "n_expert": 4, "n_expert_used": 1})
    found = measure_importance(model, np.arange(24) % 64, length=8)
    name = "blk.1.ffn_up_exps.weight"
    assert found.values[name].shape == (4 * 32,)
    assert found.counts[name].sum() == 24
    routings = []
    chunks = [pg.tensor((np.arange(8)[None] + 8 * i).astype(np.int32)) for i in range(3)]
    for chunk in chunks:
        model.hidden(chunk, routings=routings)
    chosen = np.concatenate([routings[2 * i + 1][1].numpy()[:, 0] for i in range(3)])
    np.testing.assert_array_equal(found.counts[name], np.bincount(chosen, minlength=4))
    unseen = found.counts[name] == 0
    assert (found.values[name].reshape(4, -1)[unseen] == 1).all()


def test_fewest_bits_need_importance(path, tmp_path):
    with pytest.raises(ValueError, match="needs an importance matrix"):
        quantize_gguf(path, tmp_path / "s.gguf", "IQ2_XXS")
    model, _ = load(path)
    write_importance(tmp_path / "i.gguf", measure_importance(model, np.arange(32)))
    quantize_gguf(path, tmp_path / "s.gguf", "IQ4_XS", tmp_path / "i.gguf")
    with read_gguf(tmp_path / "s.gguf") as file:
        assert file.metadata["quantize.imatrix.entries_count"] == 14
        assert file.metadata["quantize.imatrix.chunks_count"] == 1
    build("llama", SMALL).save(tmp_path / "other.gguf")
    with pytest.raises(FormatError, match="another model's"):
        quantize_gguf(tmp_path / "other.gguf", tmp_path / "s.gguf", "Q4_0", tmp_path / "i.gguf")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "holds no importance matrix"),
        ({"a.in_sum2": np.ones((1, 4), np.float32)}, "must be f32"),
        ({"a.in_sum2": np.ones((1, 4)), "a.counts": np.ones((1, 1))}, "must be f32"),
        (
            {"a.in_sum2": np.ones((1, 4), np.float32), "a.counts": np.ones((3, 1), np.float32)},
            "each of 3 counts",
        ),
        (
            {"a.in_sum2": np.full((1, 4), np.nan, np.float32), "a.counts": np.ones(1, np.float32)},
            "finite",
        ),
    ],
)
def test_damaged_importance_is_named(tensors, message, tmp_path):
    write_gguf(tmp_path / "i.gguf", {"general.type": "imatrix"}, tensors)
    with pytest.raises(FormatError, match=message):
        read_importance(tmp_path / "i.gguf")


def test_bad_input_is_named(path, tmp_path):
    target = tmp_path / "s.gguf"
    with pytest.raises(ValueError, match="mix"):
        quantize_gguf(path, target, "Q4")
    with pytest.raises(ValueError, match="threads"):
        quantize_gguf(path, target, threads=-1)
    write_gguf(tmp_path / "a.gguf", {"general.type": "adapter"}, {})
    with pytest.raises(FormatError, match="must be a model"):
        quantize_gguf(tmp_path / "a.gguf", target)
    model, _ = load(path)
    model.model.layers[0].mlp.up_proj.weight.copy_(np.full((256, 256), np.inf, np.float32))
    model.save(tmp_path / "inf.gguf")
    with pytest.raises(FormatError, match=r"blk\.0\.ffn_up\.weight must hold finite"):
        quantize_gguf(tmp_path / "inf.gguf", target)
    assert not target.exists()
    with pytest.raises(FormatError, match="NaN or infinity"):
        measure_importance(model, np.arange(32))
    with pytest.raises(TypeError, match="model"):
        measure_importance(path, np.arange(32))
    with pytest.raises(ValueError, match="length"):
        measure_importance(load(path)[0], np.arange(10), length=33)
    odd = {"general.architecture": "llama", "llama.block_count": u32(0)}
    write_gguf(tmp_path / "odd.gguf", odd, {"blk.0.ffn_down.weight": np.ones((2, 256), np.float32)})
    for mix in sorted(set(MIXES) - {"IQ1_S", "IQ1_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ2_M"}):
        if mix not in ("IQ3_XXS", "Q2_K_S"):
            quantize_gguf(tmp_path / "odd.gguf", target, mix)


def dat(*entries, tail=b""):
    """Return a file of the format before GGUF."""
    parts = [struct.pack("<i", len(entries))]
    for name, calls, values in entries:
        parts.append(struct.pack("<i", len(name)) + name)
        parts.append(struct.pack("<ii", calls, len(values)) + np.asarray(values, "<f4").tobytes())
    return b"".join(parts) + tail


def test_importance_of_the_old_format(tmp_path):
    tail = struct.pack("<ii", 7, 5) + b"a.txt"
    content = dat((b"blk.0.a.weight", 4, [4.0, 8.0]), (b"b", 0, [3.0]), tail=tail)
    (tmp_path / "i.dat").write_bytes(content)
    found = read_importance(tmp_path / "i.dat")
    assert {name: array.tolist() for name, array in found.values.items()} == {
        "blk.0.a.weight": [1.0, 2.0],
        "b": [3.0],
    }
    assert (found.chunks, list(found.datasets)) == (7, ["a.txt"])
    # What follows the matrices may be missing.
    (tmp_path / "i.dat").write_bytes(content[: -len(tail)])
    assert read_importance(tmp_path / "i.dat").chunks == 0
    for end in range(4, len(content) - len(tail)):
        (tmp_path / "i.dat").write_bytes(content[:end])
        with pytest.raises(FormatError, match="read_importance"):
            read_importance(tmp_path / "i.dat")


@pytest.mark.parametrize(
    "content",
    [
        b"text",
        dat(),
        dat((b"a", 1, [])),
        dat((b"a", 1, [np.nan])),
        struct.pack("<ii", 1, -5) + b"abcde",
        struct.pack("<iicii", 1, 1, b"a", 1, 2**30),
    ],
)
def test_damaged_importance_of_the_old_format(content, tmp_path):
    (tmp_path / "i.dat").write_bytes(content)
    with pytest.raises(FormatError, match=r"i\.dat"):
        read_importance(tmp_path / "i.dat")


def test_chunks_begin_with_the_token_of_a_begin():
    model = build("llama", {**SIZES, "n_layer": 1})
    ids = np.arange(2, 22)
    begun = np.where(np.arange(20) % 5 == 0, 1, ids)
    found = measure_importance(model, ids, length=5, bos=1)
    wanted = measure_importance(model, begun, length=5)
    for name, values in wanted.values.items():
        np.testing.assert_array_equal(found.values[name], values)
