# SPDX-License-Identifier: MIT
"""What is written, llama.cpp loads and computes; what our rules refuse, it refuses."""

import logging

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Tokenizer, embedded_text
from pyggml.errors import ShapeError
from pyggml.io import f32, u32, write_gguf
from pyggml.models import build, load
from pyggml.models.llama_cpp import check_gguf

from . import direct
from .draw import draw

pytestmark = pytest.mark.skipif(not direct.HERE, reason="needs the xllamacpp wheel and fork")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train_bpe(embedded_text()[:20], 320)


def shaken(arch, sizes, seed):
    """A model in which every part tells in the result."""
    pg.seed(seed)
    model = build(arch, sizes)
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        noise = rng.standard_normal(p.shape) * (0.12 if p.ndim > 1 else 0.2)
        p.copy_((p.numpy() * (p.ndim == 1) + noise).astype(np.float32))
    return model


def ours(path, ids):
    """The logits after ids of a file as it is."""
    model, _ = load(path, keep_types=True)
    model.eval()
    more = {}
    if model.arch == "t5":
        more["decoder_ids"] = pg.tensor(np.array([[model.config.start_id]], np.int32))
    return model(pg.tensor(np.array([ids], np.int32)), **more).numpy()[0, -1]


def tolerance(arch, sizes, dtype):
    """The largest difference of a logit, in standard deviations of them all.

    llama.cpp has its GELU from a table of f16, and both round what they multiply weights by: to
    bf16 or to blocks of eight bits, where sums that differ in their last bit part further.
    """
    if dtype == "bf16" or dtype.startswith("q"):
        return 0.25
    family = sizes.get("family", "")
    gelu = arch in ("gpt2", "t5") or "gemma" in family or family in ("starcoder2", "phi2")
    return 2e-2 if gelu or dtype == "f16" else 1e-4


def compare(tokenizer, tmp_path, count, seed):
    """Save random models; return how many llama.cpp has the same, other told, and refused."""
    rng = np.random.default_rng(seed)
    jobs, cases = [], []
    for k in range(count):
        arch, sizes, dtype = draw(rng)
        sizes["vocab_size"] = tokenizer.vocab_size + int(rng.integers(0, 3)) * 32
        model = shaken(arch, sizes, k)
        path, said = tmp_path / f"{k}.gguf", None
        ids = rng.integers(5, tokenizer.vocab_size, int(rng.integers(1, 40))).tolist()
        if dtype not in ("f32", "f16") and sizes.get("n_expert_used", 0) < sizes.get("n_expert", 0):
            ids = ids[
                :8
            ]  # beyond, sums are split otherwise, and a near tie may choose other experts
        try:
            model.save(path, tokenizer, dtype=dtype)
            said = check_gguf(path)
            assert not [each for each in said if each.kind != "differs"]
            assert load(path)[0].config == model.config
        except ShapeError:  # rows that are no blocks of the type
            continue
        except ValueError:
            try:
                model.save(path, tokenizer, strict=None)
            except ShapeError:
                continue
        jobs.append((path, ids))
        cases.append((arch, sizes, dtype, said))
    counts = {"same": 0, "other": 0, "refused": 0}
    answers = direct.answers(jobs)
    for (path, ids), (arch, sizes, dtype, said), answer in zip(jobs, cases, answers, strict=True):
        what = (arch, sizes, dtype, said, answer.get("refused"))
        assert ("refused" in answer) is (said is None), what
        if said is None:
            counts["refused"] += 1
            continue
        mine, theirs = ours(path, ids), np.array(answer["logits"])
        same = np.abs(mine - theirs).max() <= tolerance(arch, sizes, dtype) * max(1, mine.std())
        assert same or said, (what, np.abs(mine - theirs).max())
        counts["same" if same else "other"] += 1
    return counts


def test_llama_cpp_has_what_random_models_compute(tokenizer, tmp_path):
    counts = compare(tokenizer, tmp_path, 20, 1)
    assert counts["same"] > 8


@pytest.mark.slow
def test_llama_cpp_has_what_500_random_models_compute(tokenizer, tmp_path):
    counts = compare(tokenizer, tmp_path, 500, 2)
    assert counts["same"] > 250
    assert min(counts.values()) > 10


LLAMA = {"vocab_size": 320, "context": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_kv_head": 2}
REFUSED = {
    "general.architecture": ({"general.architecture": "nonsense"}, {}),
    "llama.block_count": ({"llama.block_count": u32(0)}, {}),
    "llama.context_length": ({"llama.context_length": np.int32(64)}, {}),
    "llama.embedding_length": ({"llama.embedding_length": None}, {}),
    "llama.attention.layer_norm_rms_epsilon": (
        {"llama.attention.layer_norm_rms_epsilon": np.float64(1e-5)},
        {},
    ),
    "llama.rope.freq_base": ({"llama.rope.freq_base": u32(10000)}, {}),
    "llama.rope.dimension_count": ({"llama.rope.dimension_count": u32(4)}, {}),
    "llama.rope.scaling.type": ({"llama.rope.scaling.type": "turned"}, {}),
    "llama.expert_used_count": ({"llama.expert_used_count": u32(2)}, {}),
    "blk.0.ffn_up.weight": ({"llama.feed_forward_length": u32(64)}, {}),
    "blk.2.attn_norm.weight": ({"llama.block_count": u32(3)}, {}),
    "blk.1.attn_q.weight": ({}, {"blk.1.attn_q.weight": None}),
    "blk.1.attn_k.weight": ({}, {"blk.1.attn_k.weight": np.ones((32, 32), np.float32)}),
    "blk.1.more.weight": ({}, {"blk.1.more.weight": np.ones(3, np.float32)}),
    "general.name": ({"general.name": "My Phi-3"}, {}),
    "tokenizer.ggml.model": ({"tokenizer.ggml.model": "own"}, {}),
    "tokenizer.ggml.pre": ({"tokenizer.ggml.pre": "own"}, {}),
    "tokenizer.ggml.merges": ({"tokenizer.ggml.merges": None}, {}),
    "tokenizer.ggml.token_type": ({"tokenizer.ggml.token_type": np.ones(3, np.int32)}, {}),
    "tokenizer.ggml.bos_token_id": ({"tokenizer.ggml.bos_token_id": np.int32(1)}, {}),
    "tokenizer.ggml.add_bos_token": ({"tokenizer.ggml.add_bos_token": u32(1)}, {}),
    "tokenizer.ggml.tokens": ({"tokenizer.ggml.tokens": ["a"] * 320}, {}),
}


def test_what_the_rules_refuse_llama_cpp_refuses(tokenizer, tmp_path):
    model = build("llama", LLAMA)
    words = model.to_gguf_metadata(tokenizer.to_gguf_metadata(320))
    arrays = model.to_gguf_tensors()
    jobs = []
    for number, (where, (keys, tensors)) in enumerate(REFUSED.items()):
        path = tmp_path / f"{number}.gguf"
        changed = [{**words, **keys}, {**arrays, **tensors}]
        write_gguf(path, *({k: v for k, v in d.items() if v is not None} for d in changed))
        assert where in [each.where for each in check_gguf(path)], where
        jobs.append((path, [5]))
    taken = [
        where
        for where, answer in zip(REFUSED, direct.answers(jobs), strict=True)
        if "refused" not in answer
    ]
    assert not taken


def test_what_llama_cpp_takes_the_rules_take(tokenizer, tmp_path):
    """Tensors and keys that it may have."""
    model = build("llama", {**LLAMA, "tie": False})
    words = model.to_gguf_metadata(tokenizer.to_gguf_metadata(320))
    arrays = model.to_gguf_tensors()
    cases = [
        ({}, {"blk.0.attn_q.bias": np.ones(32, np.float32)}),
        ({}, {"blk.1.ffn_down.bias": np.ones(32, np.float32)}),
        ({"llama.rope.scale_linear": f32(2)}, {"output.weight": None}),
        ({"llama.attention.head_count_kv": np.full(2, 2, np.int32)}, {}),
        ({"tokenizer.ggml.scores": np.ones(320, np.float32)}, {}),
    ]
    jobs = []
    for number, (keys, tensors) in enumerate(cases):
        path = tmp_path / f"{number}.gguf"
        kept = {k: v for k, v in {**arrays, **tensors}.items() if v is not None}
        write_gguf(path, {**words, **keys}, kept)
        assert not [each for each in check_gguf(path) if each.kind == "refused"]
        jobs.append((path, [5]))
    assert not [answer for answer in direct.answers(jobs) if "refused" in answer]


def test_other_results_are_told(tokenizer, tmp_path, caplog):
    model = build("llama", {**LLAMA, "window": 8})
    with caplog.at_level(logging.WARNING, "pyggml.models"):
        model.save(tmp_path / "m.gguf", tokenizer)
    assert "pyggml.window" in caplog.text
    with pytest.raises(ValueError, match="strict"):
        model.save(tmp_path / "m.gguf", tokenizer, strict=True)
    with pytest.raises(TypeError, match="strict"):
        model.save(tmp_path / "m.gguf", tokenizer, strict="yes")


def test_gemma_3_with_sharper_yarn_is_told(tokenizer, tmp_path):
    """llama.cpp scales the scores of its layers with a window, too."""
    scaling = {"kind": "yarn", "factor": 2.0, "original": 32}
    sizes = {**LLAMA, "family": "gemma3", "tie": True, "window": 8}
    for more, told in (({}, False), ({"attention": 1.0}, True)):
        model = shaken("llama", {**sizes, "rope_scaling": {**scaling, **more}}, 0)
        model.save(path := tmp_path / "m.gguf", tokenizer)
        assert bool(check_gguf(path)) is told
        ids = [5, 9, 7, 30, 31]
        (answer,) = direct.answers([(path, ids)])
        difference = np.abs(ours(path, ids) - np.array(answer["logits"])).max()
        assert bool(difference > 1e-2) is told


@pytest.mark.parametrize(
    "sizes",
    [
        {"family": "qwen2", "n_head_dim": 32},
        {"family": "qwen3", "rope_scaling": {"kind": "llama3", "factor": 4.0, "original": 32}},
    ],
)
def test_what_llama_cpp_would_refuse_is_not_written(sizes, tokenizer, tmp_path):
    path = tmp_path / "m.gguf"
    model = build("llama", {**LLAMA, **sizes})
    with pytest.raises(ValueError, match="would refuse"):
        model.save(path, tokenizer)
    with pytest.raises(ValueError, match="would refuse"):
        model.check_saving()
    assert not path.exists()
    model.save(path, tokenizer, strict=None)
    assert load(path)[0].config == model.config
