# SPDX-License-Identifier: MIT
"""The members of the Llama family: files, generation, and transformers as the reference."""

from dataclasses import dataclass, field

import numpy as np
import pytest

import pyggml as pg
from pyggml.io import read_gguf, write_gguf
from pyggml.models import Generator, LlamaConfig, build, load
from pyggml.models.llama.families import FAMILIES, NEUTRAL

V, T = 53, 13
LLAMA = {"vocab_size": V, "context": 16, "n_layer": 2, "n_embd": 24, "n_head": 4, "n_ffn": 37}
HF = {
    **{"vocab_size": V, "max_position_embeddings": 16, "num_hidden_layers": 2, "hidden_size": 24},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 37},
    **{"rms_norm_eps": 1e-5, "attention_dropout": 0.0, "pad_token_id": 0},
    **{"bos_token_id": 1, "eos_token_id": 2},
}


@dataclass(frozen=True)
class Case:
    """A member: its sizes here, and its class and configuration in transformers."""

    sizes: dict
    theirs: str
    config: dict = field(default_factory=dict)


def case(theirs, sizes, **config):
    return Case({**LLAMA, "n_kv_head": 2, **sizes}, theirs, {**HF, **config})


def rope(theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


def long(**more):
    return {"original": 8, "short": (1.0, 1.1, 1.3), "long": (1.0, 2.1, 3.9), **more}


CASES = {
    "llama": case(
        "Llama", {"attention_bias": True, "mlp_bias": True, "tie": False},
        attention_bias=True, mlp_bias=True, **rope(),
    ),
    "qwen3": case(
        "Qwen3", {"family": "qwen3", "n_head_dim": 10}, head_dim=10, tie_word_embeddings=True,
        **rope(),
    ),
    "gemma2": case(
        "Gemma2", {"family": "gemma2", "n_head_dim": 8, "window": 4, "attention_softcap": 2.0},
        head_dim=8, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=8,
        hidden_activation="gelu_pytorch_tanh", **rope(),
    ),
    "gemma3": case(
        "Gemma3", {"family": "gemma3", "n_head_dim": 8, "window": 4, "window_pattern": 2,
                   "rope_theta": 50.0, "rope_scaling": {"kind": "linear", "factor": 4.0}},
        head_dim=8, sliding_window=4, query_pre_attn_scalar=8,
        hidden_activation="gelu_pytorch_tanh",
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 50.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "phi2": case(
        "Phi", {"family": "phi2", "n_embd": 32, "rope_dims": 4, "tie": False},
        layer_norm_eps=1e-5, hidden_size=32, resid_pdrop=0.0, embd_pdrop=0.0,
        hidden_act="gelu_new", **rope(partial_rotary_factor=0.5),
    ),
    "phi3": case(
        "Phi3", {"family": "phi3", "n_embd": 32, "rope_dims": 6, "tie": False,
                 "rope_scaling": long(kind="longrope", factor=2.0)},
        hidden_size=32, original_max_position_embeddings=8,
        **rope(rope_type="longrope", short_factor=[1.0, 1.1, 1.3], long_factor=[1.0, 2.1, 3.9],
               partial_rotary_factor=0.75, original_max_position_embeddings=8, factor=2.0),
    ),
    "olmo2": case("Olmo2", {"family": "olmo2", "tie": False}, **rope()),
    "olmo3": case(
        "Olmo3", {"family": "olmo2", "tie": False, "window": 4, "window_pattern": 2,
         "rope_theta": 50.0, "rope_scaling": {"kind": "yarn", "factor": 4.0, "original": 8}},
        sliding_window=4, layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "yarn", "rope_theta": 50.0, "factor": 4.0,
                               "original_max_position_embeddings": 8},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    ),
    "granite": case(
        "Granite",
        {"family": "granite", "embedding_scale": 3.0, "residual_scale": 0.4,
         "attention_scale": 0.2, "logit_scale": 2.0},
        embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
        logits_scaling=2.0, tie_word_embeddings=True, **rope(),
    ),
    "smollm3": case(
        "SmolLM3", {"family": "smollm3", "n_layer": 4}, num_hidden_layers=4, **rope(),
    ),
    "starcoder2": case(
        "Starcoder2", {"family": "starcoder2"}, norm_epsilon=1e-5, residual_dropout=0.0,
        embedding_dropout=0.0, **rope(),
    ),
    "stablelm": case(
        "StableLm", {"family": "stablelm", "attention_bias": "qkv", "n_embd": 32, "rope_dims": 4,
                     "tie": False},
        use_qkv_bias=True, layer_norm_eps=1e-5, hidden_size=32, **rope(partial_rotary_factor=0.5),
    ),
    "stablelm-12b": case(
        "StableLm", {"family": "stablelm", "qk_norm": True, "parallel": True, "n_embd": 32,
                     "rope_dims": 4, "tie": False},
        qk_layernorm=True, use_parallel_residual=True, layer_norm_eps=1e-5, hidden_size=32,
        **rope(partial_rotary_factor=0.5),
    ),
    "gpt-oss": case(
        "GptOss", {"family": "gpt-oss", "n_expert": 4, "n_expert_used": 2, "window": 4,
                   "tie": False, "n_head_dim": 8,
                   "rope_scaling": {"kind": "yarn", "factor": 4.0, "original": 8,
                                    "truncate": False}},
        num_local_experts=4, num_experts_per_tok=2, sliding_window=4, head_dim=8,
        **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, truncate=False,
               beta_fast=32.0, beta_slow=1.0),
    ),
}  # fmt: skip


def random_model(sizes):
    """Weights far from fresh: every part tells in the result."""
    pg.seed(2)
    model = build("llama", sizes)
    rng = np.random.default_rng(3)
    for p in model.parameters():
        noise = rng.standard_normal(p.shape) * (0.15 if p.ndim > 1 else 0.3)
        p.copy_((p.numpy() * (p.ndim == 1) + noise).astype(np.float32))
    return model


def test_every_member_has_a_case():
    known = {"gemma", "qwen2", "qwen2moe", "qwen3moe"}  # in test_parity.py alone
    assert {c.sizes.get("family", "llama") for c in CASES.values()} | known == set(FAMILIES)


@pytest.mark.parametrize("name", CASES)
def test_a_cache_changes_nothing(name):
    """Tokens read in pieces give the logits of all at once, also beyond windows."""
    model = random_model(CASES[name].sizes)
    ids = np.random.default_rng(4).integers(0, V, T)
    whole = model(pg.tensor(ids[None].astype(np.int32))).numpy()[0, -1]
    generator = Generator(model)
    generator.feed(ids[:7])
    for token in ids[7:-1]:
        generator.feed([token])
    np.testing.assert_allclose(generator.feed(ids[-1:]), whole, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_file_gives_the_same_bits(name, tmp_path):
    model = random_model(CASES[name].sizes)
    model.save(tmp_path / "m.gguf")
    again, _ = load(tmp_path / "m.gguf")
    assert again.config == model.config
    for (key, ours), theirs in zip(model.named_parameters(), again.parameters(), strict=True):
        # Gemma's scales are 1 + weight in the file.
        atol = 1e-6 if model.config.traits.offset and ours.ndim == 1 else 0
        np.testing.assert_allclose(theirs.numpy(), ours.numpy(), atol=atol, rtol=0, err_msg=key)
    state = model.state_dict()
    fresh = build("llama", CASES[name].sizes)
    fresh.load_state_dict(state)
    for key, array in fresh.state_dict().items():
        np.testing.assert_array_equal(array, state[key])


@pytest.mark.parametrize("name", ["gemma2", "gpt-oss"])
def test_packed_documents_are_the_documents_apart(name):
    """Windows of some layers hold inside of each document."""
    model = random_model(CASES[name].sizes)
    ids = np.random.default_rng(5).integers(0, V, (1, T)).astype(np.int32)
    apart = [model(pg.tensor(part)).numpy() for part in (ids[:, :6], ids[:, 6:])]
    segments = np.array([[0] * 6 + [1] * (T - 6)], np.int32)
    at = np.array([[*range(6), *range(T - 6)]], np.int32)
    packed = model(pg.tensor(ids), positions=pg.tensor(at), segments=pg.tensor(segments)).numpy()
    np.testing.assert_allclose(packed, np.concatenate(apart, 1), rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A gpt-oss, and its file with experts of four bits."""
    sizes = {**CASES["gpt-oss"].sizes, "n_embd": 64, "n_ffn": 32}
    model, path = random_model(sizes), tmp_path_factory.mktemp("oss") / "m.gguf"
    tensors = model.to_gguf_tensors()
    four = {key: ("mxfp4", a) for key, a in tensors.items() if key.endswith("_exps.weight")}
    write_gguf(path, model.to_gguf_metadata(), {**tensors, **four})
    return model, path


def test_experts_of_four_bits_stay_and_the_rest_trains(packed, tmp_path):
    """Gradients pass through frozen experts, as through the same numbers in f32."""
    _, path = packed
    kept, plain = load(path, keep_types=True)[0], load(path)[0]
    rng = np.random.default_rng(4)
    chosen = pg.tensor(rng.integers(0, 4, (5, 2)).astype(np.int32))
    pull = pg.tensor(rng.standard_normal((5, 2, 32)).astype(np.float32))
    found = []
    for model in (kept, plain):
        experts = model.model.layers[0].mlp.experts.up_proj
        x = pg.nn.Parameter(np.ones((5, 1, 64), np.float32))
        (experts(x, chosen) * pull).sum().backward()
        found.append(x.grad.numpy())
    assert kept.model.layers[0].mlp.experts.up_proj.weight.dtype.name == "mxfp4"
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)
    ids = pg.tensor(rng.integers(0, V, (2, T)).astype(np.int32))
    trained = {n: p for n, p in kept.named_parameters() if p.requires_grad}
    frozen = {n for n, _ in kept.named_parameters() if n not in trained}
    assert len(frozen) == 6
    assert all(".experts." in n and n.endswith("_proj.weight") for n in frozen)
    loss = kept.loss(ids, ids)
    grads = {p: pg.zeros(p.shape) for p in trained.values()}
    pg.Graph([loss], loss=loss, grads=grads).run()
    assert all(grads[p].numpy().any() for p in trained.values())
    kept.save(tmp_path / "again.gguf")
    with read_gguf(path) as file, read_gguf(tmp_path / "again.gguf") as again:
        for name in file.tensors:
            np.testing.assert_array_equal(again.array(name), file.array(name))


def test_hugging_faces_four_bits_load(packed):
    """Blocks and scales as gpt-oss's publisher writes them."""
    model, path = packed
    want = load(path)[0]
    state = {**model.state_dict()}
    with read_gguf(path) as file:
        for i in range(2):
            p = f"model.layers.{i}.mlp.experts"
            raw = {
                own: file.array(f"blk.{i}.ffn_{own}_exps.weight").reshape(4, rows, -1, 17)
                for own, rows in (("gate", 32), ("up", 32), ("down", 64))
            }
            for name in ("gate_up_proj", "down_proj"):
                parts = [raw["gate"], raw["up"]] if name == "gate_up_proj" else [raw["down"]]
                both = np.stack(parts, 2).reshape(4, -1, *parts[0].shape[2:])
                # ggml's block: the scale, then the first 16 numbers in the low halves.
                numbers = np.concatenate([both[..., 1:] & 15, both[..., 1:] >> 4], -1)
                state[f"{p}.{name}_blocks"] = numbers[..., ::2] | numbers[..., 1::2] << 4
                state[f"{p}.{name}_scales"] = both[..., 0]
                del state[f"{p}.{name}"]
    model.load_state_dict(state)
    for (key, ours), theirs in zip(model.named_parameters(), want.parameters(), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=key)
    lost = {
        key: a for key, a in state.items() if not key.endswith("1.mlp.experts.down_proj_scales")
    }
    with pytest.raises(KeyError, match="down_proj_scales are missing"):
        model.load_state_dict(lost)


@pytest.mark.parametrize("name", [n for n in NEUTRAL if n not in ("qk_norm", "parallel")])
def test_a_member_without_the_choice_raises(name):
    value = {"attention_bias": True, "mlp_bias": True, "rope_dims": 2, "window_pattern": 2}
    with pytest.raises(ValueError, match=f"{name} of the family qwen2 must be"):
        LlamaConfig(**LLAMA, family="qwen2", **{name: value.get(name, 3.0)})


@pytest.mark.slow  # the import of transformers; test_parity has the same formulas
@pytest.mark.parametrize("name", CASES)
def test_transformers_has_the_same_gradients(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    case = CASES[name]
    model = random_model(case.sizes)
    config = f"{case.theirs}TextConfig" if case.theirs == "Gemma3" else f"{case.theirs}Config"
    reference = getattr(transformers, f"{case.theirs}ForCausalLM")(
        getattr(transformers, config)(
            **case.config, attn_implementation="eager", experts_implementation="eager"
        )
    )
    state = {key: torch.tensor(array) for key, array in model.state_dict().items()}
    told = reference.load_state_dict(state, strict=False)
    assert not told.unexpected_keys
    assert all(key == "lm_head.weight" and model.config.tie for key in told.missing_keys)
    reference.eval()  # no dropout; gradients all the same
    ids = np.random.default_rng(4).integers(3, V, (2, T))
    theirs = reference(torch.tensor(ids)).logits
    tensors = pg.tensor(ids.astype(np.int32))
    ours = model(tensors)
    scale = theirs.detach().abs().max().item()
    np.testing.assert_allclose(ours.numpy(), theirs.detach(), atol=2e-6 * scale, rtol=1e-5)
    weights = np.random.default_rng(6).standard_normal(theirs.shape).astype(np.float32)
    (theirs * torch.tensor(weights)).sum().backward()
    loss = (ours * pg.tensor(weights)).sum()
    grads = {p: pg.zeros(p.shape) for p in model.parameters()}
    graph = pg.Graph([loss], loss=loss, grads=grads)
    graph.run()
    for p, grad in grads.items():
        p.copy_(grad.numpy())
    named = dict(reference.named_parameters())
    for key, array in model.state_dict().items():
        want = named[key].grad.numpy()
        error, size = np.linalg.norm(array - want), np.linalg.norm(want)
        assert error <= 1e-4 * size, f"{key}: {error} of {size}"
