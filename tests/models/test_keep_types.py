# SPDX-License-Identifier: MIT
"""Models whose matrices stay as a GGUF file has them."""

import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import DTypeError, FormatError, ShapeError
from pyggml.io import load_safetensors, read_gguf, save_safetensors, write_gguf
from pyggml.models import MODELS, build, load
from pyggml.nn.raw_bytes import blocks_of
from pyggml.optim import AdamW

V = 40
LLAMA = {"vocab_size": V, "context": 16, "n_embd": 256, "n_layer": 1, "n_head": 4, "n_kv_head": 2}
LLAMA |= {"n_ffn": 512}
IDS = np.array([[1, 2, 3, 39, 0, 7, 7, 8]], np.int32)
TYPES = ("f16", "bf16", "q8_0", "q4_K", "q6_K")


def saved(tmp_path, dtype="q4_K", arch="llama", **sizes):
    pg.seed(5)
    model = build(arch, {**LLAMA, **sizes} if arch == "llama" else sizes)
    path = tmp_path / f"{dtype}.gguf"
    model.save(path, dtype=dtype)
    return path


def loss_of(model):
    return model.loss(pg.tensor(IDS[:, :-1]), pg.tensor(IDS[:, 1:])).item()


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma"])
@pytest.mark.parametrize("dtype", TYPES)
def test_types_are_kept_and_written_back(family, dtype, tmp_path):
    """The rows of q and k come in another order in files of `llama`; norms of gemma less one."""
    path = saved(tmp_path, dtype, family=family, tie=family == "gemma")
    kept, _ = load(path, keep_types=True)
    plain, _ = load(path)
    for (name, own), (_, value) in zip(
        kept.named_parameters(), plain.named_parameters(), strict=True
    ):
        assert own.dtype.name == (dtype if own.ndim == 2 else "f32"), name
        assert own.requires_grad is (own.ndim == 1)
        np.testing.assert_array_equal(own.numpy().astype(np.float32), value.numpy(), name)
    # products of quantised weights quantise the activations: 0.7 % of a product's, see
    # tests/nn/test_lora.py
    assert loss_of(kept) == pytest.approx(loss_of(plain), rel=2e-3)
    assert kept.num_parameters() == plain.num_parameters()
    with read_gguf(path) as file:
        stored = sum(info.size_bytes for info in file.tensors.values())
    assert sum(p.nbytes for p in kept.parameters()) == stored
    kept.load_state_dict(kept.state_dict())
    kept.save(tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("arch", ["gpt2", "t5", "bert"])
def test_other_models_keep_types(arch, tmp_path):
    path = saved(tmp_path, "q8_0", arch, **_small(arch))
    kept, _ = load(path, keep_types=True)
    plain, _ = load(path)
    assert {p.dtype.name for p in kept.parameters()} == {"f32", "q8_0"}
    for (name, own), (_, value) in zip(
        kept.named_parameters(), plain.named_parameters(), strict=True
    ):
        np.testing.assert_array_equal(own.numpy(), value.numpy(), name)
    kept.save(tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == path.read_bytes()
    kept.load_state_dict(kept.state_dict())  # GPT-2's are transposed there
    kept.save(tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == path.read_bytes()


def _small(arch):
    sizes = {"vocab_size": V, "n_embd": 64, "n_layer": 1, "n_head": 2}
    return sizes if arch == "t5" else {**sizes, "context": 16}


@pytest.mark.parametrize("arch", MODELS)
def test_layouts_move_no_more_than_rows(arch):
    """So that they may be given the bytes of quantised rows."""
    with nn.init.empty_weights():
        model = build(arch, "tiny") if "tiny" in MODELS[arch].config_class.PRESETS else None
    if model is None:
        pytest.skip("has no small preset")
    for name, value in model.named_parameters():
        if value.ndim not in (2, 3) or not math.prod(value.shape) < 2**22:
            continue
        rows = np.arange(math.prod(value.shape[:-1]), dtype=np.float32)
        wide = np.repeat(rows, value.shape[-1]).reshape(value.shape)
        for reading in (True, False):
            turned = model.gguf_layout(name, wide, reading)
            narrow = rows.view(np.uint8).reshape(*value.shape[:-1], 4)
            narrow = np.ascontiguousarray(model.gguf_layout(name, narrow, reading))
            np.testing.assert_array_equal(
                turned.reshape(-1, value.shape[-1])[:, 0], narrow.reshape(-1).view(np.float32)
            )


@pytest.mark.parametrize("family", ["llama", "qwen2moe"])
def test_experts_are_kept(family, tmp_path):
    sizes = {"n_expert_ffn": 256, "n_shared_ffn": 256} if family == "qwen2moe" else {}
    path = saved(tmp_path, "q4_K", family=family, n_expert=4, n_expert_used=2, **sizes)
    kept, _ = load(path, keep_types=True)
    part = kept.model.layers[0]
    experts = getattr(part, "block_sparse_moe", None) or part.mlp
    assert experts.experts.up_proj.weight.dtype.name == "q4_K"
    assert experts.gate.weight.dtype.name == "f32"
    assert loss_of(kept) == pytest.approx(loss_of(load(path)[0]), rel=5e-3)
    kept.load_state_dict(kept.state_dict())  # one by one under Hugging Face's names
    kept.save(tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == path.read_bytes()
    nn.apply_lora(kept, rank=2)
    kept.loss(pg.tensor(IDS[:, :-1]), pg.tensor(IDS[:, 1:])).backward()
    assert kept.model.layers[0].self_attn.q_proj.lora_B.weight.grad.numpy().any()


def test_a_file_of_several_types(tmp_path):
    """As llama-quantize writes them: q6_K for the table, f32 for what it leaves alone."""
    path = saved(tmp_path)
    with read_gguf(path) as file:
        tensors = {name: np.array(file.array(name, dequantise=True)) for name in file.tensors}
        metadata = file.typed_metadata
    named = {"token_embd.weight": "q6_K", "blk.0.ffn_down.weight": "f16"}
    mixed = {
        name: (named.get(name, "q4_K"), array)
        if array.ndim == 2 and name != "blk.0.attn_v.weight"
        else array
        for name, array in tensors.items()
    }
    write_gguf(tmp_path / "mixed.gguf", metadata, mixed)
    kept, _ = load(tmp_path / "mixed.gguf", keep_types=True)
    layer = kept.model.layers[0]
    assert kept.model.embed_tokens.weight.dtype.name == "q6_K"
    assert layer.mlp.down_proj.weight.dtype.name == "f16"
    assert layer.self_attn.v_proj.weight.requires_grad  # f32, and not frozen by loading
    assert layer.self_attn.q_proj.weight.dtype.name == "q4_K"
    kept.save(tmp_path / "again.gguf")
    with read_gguf(tmp_path / "mixed.gguf") as a, read_gguf(tmp_path / "again.gguf") as b:
        for name, info in a.tensors.items():
            assert b.tensors[name].dtype == info.dtype
            assert b.array(name).tobytes() == a.array(name).tobytes()


def test_an_f32_file_has_nothing_to_keep(tmp_path):
    model, _ = load(saved(tmp_path, "f32"), keep_types=True)
    assert all(p.requires_grad for p in model.parameters())


def test_loading_makes_no_f32_of_what_is_kept(tmp_path, monkeypatch):
    """The largest buffer is that of a kept matrix, also before the file is read."""
    path = saved(tmp_path, vocab_size=4096)
    sizes = []
    from pyggml.tensors import storage

    class Buffer(storage.Buffer):
        def __init__(self, where, size_bytes):
            sizes.append(size_bytes)
            super().__init__(where, size_bytes)

    monkeypatch.setattr(storage, "Buffer", Buffer)
    model, _ = load(path, keep_types=True)
    assert max(sizes) == model.model.embed_tokens.weight.nbytes


def test_states_are_exact_and_checked_first(tmp_path):
    path = saved(tmp_path)
    model, _ = load(path, keep_types=True)
    name, norm = "model.layers.0.mlp.up_proj.weight", "model.norm.weight"
    state = model.state_dict()
    assert state[name].dtype == np.uint8
    assert state[name].shape == (512, 144)
    save_safetensors(tmp_path / "m.safetensors", state)
    other, _ = load(saved(tmp_path, "q4_K", n_layer=1), keep_types=True)
    up = other.model.layers[0].mlp.up_proj.weight
    up.copy_(np.zeros(up.shape, np.float32))
    other.load_state_dict(load_safetensors(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(blocks_of(up), state[name])
    numbers = {**state, name: np.full(up.shape, 0.5, np.float32)}  # are quantised
    other.load_state_dict(numbers)
    np.testing.assert_allclose(up.numpy(), 0.5, atol=1e-3)
    with pytest.raises(ShapeError, match=r"up_proj.weight must be the bytes of q4_K, \(512, 144\)"):
        other.load_state_dict({**state, norm: state[norm] + 1, name: state[name][:, :-1]})
    with pytest.raises(ShapeError, match=r"must have the shape \(512, 256\)"):
        other.load_state_dict({**numbers, norm: state[norm] + 1, name: numbers[name][:-1]})
    with pytest.raises(DTypeError, match="holds finite numbers only"):
        other.load_state_dict({**numbers, norm: state[norm] + 1, name: numbers[name] * np.nan})
    np.testing.assert_array_equal(other.model.norm.weight.numpy(), state[norm])


def test_copies_have_the_same_bytes(tmp_path):
    model, _ = load(saved(tmp_path), keep_types=True)
    state = model.state_dict()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [p.dtype for p in other.parameters()] == [p.dtype for p in model.parameters()]
        for name, array in other.state_dict().items():
            np.testing.assert_array_equal(array, state[name])


def test_what_is_kept_is_not_trained(tmp_path):
    model, _ = load(saved(tmp_path), keep_types=True)
    weight = model.model.layers[0].self_attn.q_proj.weight
    with pytest.raises(DTypeError, match=r"requires_grad: .*q4_K"):
        weight.requires_grad = True
    with pytest.raises(DTypeError, match=r"Llama.unfreeze: .*embed_tokens.weight is q4_K"):
        model.unfreeze()
    optimizer = AdamW(model.parameters())
    assert {p.ndim for p in optimizer.params} == {1}  # the norms, which are f32
    model.freeze()
    with pytest.raises(ValueError, match="got 11"):
        AdamW(model.parameters())


def test_rows_that_are_no_blocks_are_refused_before_anything_is_written(tmp_path):
    model = build("llama", {**LLAMA, "n_embd": 64, "n_head": 2})
    with pytest.raises(ShapeError, match="rows of q4_K must be multiples of 256"):
        model.save(tmp_path / "x.gguf", dtype="q4_K")
    assert not list(tmp_path.iterdir())


def test_files_that_do_not_fit_are_refused(tmp_path):
    path = saved(tmp_path)
    with read_gguf(path) as file:
        tensors = {name: np.array(file.array(name, dequantise=True)) for name in file.tensors}
        metadata = file.typed_metadata
    tensors["blk.0.ffn_gate.weight"] = ("q4_K", tensors["blk.0.ffn_gate.weight"][:-8])
    write_gguf(tmp_path / "bad.gguf", metadata, tensors)
    with pytest.raises(FormatError, match=r"ffn_gate.weight must have the shape \(512, 256\)"):
        load(tmp_path / "bad.gguf", keep_types=True)


def test_types_for_ggmls_own_use_are_refused(tmp_path):
    """Which no writer makes; the header of a q6_K tensor is given another type here."""
    path = saved(tmp_path, "q6_K")
    raw = bytearray(path.read_bytes())
    at = raw.index(b"blk.0.ffn_up.weight") + len(b"blk.0.ffn_up.weight") + 4 + 16
    assert raw[at] == 14
    raw[at] = 15  # q8_K, whose blocks are larger
    path.write_bytes(raw)
    with pytest.raises(FormatError):
        load(path, keep_types=True)


def test_empty_weights_of_a_type():
    with nn.init.empty_weights("q4_K"):
        model = build("llama", LLAMA)
        narrow = nn.Linear(64, 2)
    assert model.model.embed_tokens.weight.dtype.name == "q4_K"
    assert not model.state_dict()["model.embed_tokens.weight"].any()
    assert narrow.weight.dtype.name == "f32"
    assert nn.Linear(256, 2).weight.requires_grad
    with pytest.raises(DTypeError, match="i32"):
        nn.init.empty_weights("i32").__enter__()
    with pytest.raises(DTypeError, match="quantised; got q8_K"):  # for ggml's own use
        nn.init.empty_weights("q8_K").__enter__()


def in_file(tensor, path):
    """Whether a tensor's memory is a mapping of the file."""
    from pyggml.backend.library import ffi

    at = int(ffi.cast("uintptr_t", tensor.node.ptr.data))
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if first <= at < last:
            return line.endswith(str(path))
    return False


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mappings")
@pytest.mark.parametrize("parts", [None, 40_000])
def test_mapped_weights_stay_where_they_lie(parts, tmp_path):
    pg.seed(4)
    sizes = {"vocab_size": 64, "context": 16, "n_embd": 64, "n_layer": 2, "n_head": 4}
    made = build("llama", sizes).save_gguf(tmp_path / "m.gguf", dtype="q8_0", max_part_bytes=parts)
    before = [path.read_bytes() for path in made]
    copied, _ = load(made[0], keep_types=True)
    mapped, _ = load(made[0], keep_types=True, mapped=True)
    up = mapped.model.layers[0].mlp.up_proj.weight
    assert any(in_file(up, path) for path in made)
    assert not any(in_file(copied.model.layers[0].mlp.up_proj.weight, path) for path in made)
    # llama.cpp has the rows of queries in another order, so they are copied.
    assert not any(in_file(mapped.model.layers[0].self_attn.q_proj.weight, path) for path in made)
    ids = pg.tensor(np.array([[1, 2, 3]], np.int32))
    want = copied(ids).numpy()
    np.testing.assert_array_equal(mapped(ids).numpy(), want)
    up.copy_(np.zeros(up.shape, np.float32))  # its own pages from now on
    assert not np.array_equal(mapped(ids).numpy(), want)
    assert [path.read_bytes() for path in made] == before
    again, _ = load(made[0], keep_types=True, mapped=True)
    build("llama", sizes).save_gguf(tmp_path / "m.gguf", dtype="q8_0", max_part_bytes=parts)
    np.testing.assert_array_equal(again(ids).numpy(), want)  # which replaced the file
    with pytest.raises(TypeError, match="mapped"):
        load(made[0], keep_types=True, mapped=1)
