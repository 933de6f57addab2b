# SPDX-License-Identifier: MIT
"""A wrong kind of argument raises TypeError, which names it; NumPy's numbers are numbers."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import data, distributed, nn, optim, recipes, train
from pyggml.models import CNNConfig, GPT2Config, LlamaConfig, MLPConfig
from pyggml.train.metrics import top_k_accuracy

MLP_CONFIG = MLPConfig(inputs=2)


def sgd() -> optim.SGD:
    return optim.SGD(nn.Linear(2, 2), lr=0.1)


def adapted() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2))
    nn.lora.apply_lora(model, 1, targets="all-linear")
    return model


def graph() -> pg.Graph:
    return pg.Graph([pg.ones(3) * 2.0])


# A call with an argument of a wrong kind, and the argument's name.
WRONG = [
    (lambda: nn.Linear("a", 3), "in_features"),
    (lambda: nn.Linear(2.0, 3), "in_features"),
    (lambda: nn.Linear(3, 3, bias="no"), "bias"),
    (lambda: nn.Embedding(3, True), "embedding_dim"),
    (lambda: nn.LayerNorm(3, bias="no"), "bias"),
    (lambda: nn.RMSNorm(3, eps=True), "eps"),
    (lambda: nn.RMSNorm(3, offset=1), "offset"),
    (lambda: nn.Dropout("a"), "p"),
    (lambda: nn.GELU(1), "approximate"),
    (lambda: nn.Conv2d("a", 3, 3), "in_channels"),
    (lambda: nn.Conv2d(3, 3, "a"), "kernel"),
    (lambda: nn.Conv2d(3, 3, 3, bias="no"), "bias"),
    (lambda: nn.MaxPool2d(2.0), "kernel"),
    (lambda: nn.BatchNorm2d(3, momentum="a"), "momentum"),
    (lambda: nn.BatchNorm2d(3, affine="no"), "affine"),
    (lambda: nn.GroupNorm(1.0, 3), "num_groups"),
    (lambda: nn.CausalSelfAttention(8, 2, bias=None), "bias"),
    (lambda: nn.CausalSelfAttention(8, 2, window="a"), "window"),
    (lambda: nn.MixtureOfExperts(4, 4, 2, 1, normalize="no"), "normalize"),
    (lambda: nn.Rope(base="a"), "base"),
    (lambda: nn.RopeScaling("linear", "a"), "factor"),
    (lambda: nn.RopeScaling.of(3), "given"),
    (lambda: nn.LoRALinear(nn.Linear(4, 4), rank="a"), "rank"),
    (lambda: nn.LoRALinear(nn.Linear(4, 4), alpha="a"), "alpha"),
    (lambda: nn.Linear(2, 2).load_state_dict(None), "state"),
    (lambda: nn.Linear(2, 2).load_state_dict([1]), "state"),
    (lambda: nn.Linear(2, 2).load_state_dict({}, strict="no"), "strict"),
    (lambda: LlamaConfig(vocab_size="a"), "vocab_size"),
    (lambda: LlamaConfig(tie="no"), "tie"),
    (lambda: LlamaConfig(window="a"), "window"),
    (lambda: LlamaConfig(attention_bias=np.ones(2)), "attention_bias"),
    (lambda: GPT2Config(eps="a"), "eps"),
    (lambda: GPT2Config.from_dict(3), "values"),
    (lambda: GPT2Config.preset(3), "preset"),
    (lambda: CNNConfig(hidden=1.0), "hidden"),
    (lambda: CNNConfig(widths="a"), "widths"),
    (lambda: CNNConfig(labels=3), "labels"),
    (lambda: MLPConfig(inputs=2, mean="a", std=1.0), "mean"),
    (lambda: pg.models.load(3), "path"),
    (lambda: pg.models.load("none.bin", keep_types=np.ones(2)), "keep_types"),
    (lambda: pg.io.load_safetensors(3), "path"),
    (lambda: pg.io.read_gguf(3), "path"),
    (lambda: pg.io.GGUFFile("x"), "data"),
    (lambda: top_k_accuracy([[1.0, 2.0]], [0], "a"), "k"),
    (lambda: pg.zeros(2.5), "shape"),
    (lambda: pg.zeros(2, 3, "f32"), "dtype="),
    (lambda: pg.full("a", 1.0), "shape"),
    (lambda: pg.ones(2, 3).sum("a"), "dim"),
    (lambda: pg.ones(2, 3).permute("a"), "axes"),
    (lambda: pg.ones(2, 3).reshape(2.0, 3), "shape"),
    (lambda: pg.ops.top_k(pg.ones(2, 3), 1.0), "k"),
    (lambda: pg.ops.pad(pg.ones(2, 3), "a"), "widths"),
    (
        lambda: pg.optim.AdamW(nn.Linear(2, 2).parameters(), betas=0.9),
        "betas must be a list or tuple",
    ),
    (lambda: pg.full_like(pg.ones(3), "a"), "value"),
    (lambda: pg.randperm(3, generator=3), "generator"),
    (lambda: pg.allclose(pg.ones(3), pg.ones(3), atol={}), "atol"),
    (lambda: pg.Device("cpu", "cpu", 3), "handle"),
    (lambda: nn.Linear(2, 2, init_weight=2), "init_weight"),
    (lambda: nn.Linear(2, 2, init_weight=lambda shape: "a"), "init_weight"),
    (lambda: nn.GELUMLP(2, 2, init_weight=np.ones(2)), "init_weight"),
    (lambda: nn.SwiGLUMLP(2, 2, init_out=np.ones(2)), "init_weight"),
    (lambda: nn.Conv1d(2, 2, 2, init_weight=2), "init_weight"),
    (lambda: nn.Conv2d(2, 2, 2, init_weight=2), "init_weight"),
    (lambda: nn.ConvTranspose1d(2, 2, 2, init_weight=2), "init_weight"),
    (lambda: nn.ConvTranspose2d(2, 2, 2, init_weight=2), "init_weight"),
    (lambda: nn.Embedding(2, 2, init_weight=2), "init_weight"),
    (lambda: nn.MixtureOfExperts(2, 2, 2, 1, init_out=np.ones(2)), "init_weight"),
    (lambda: nn.relative_buckets([3], ["a"]), "keys"),
    (lambda: nn.ModuleDict(3), "modules"),
    (lambda: nn.ModuleDict([3]), "member"),
    (lambda: nn.Sequential().extend(np.array(3)), "modules"),
    (lambda: nn.Sequential().insert(np.ones(2), nn.ReLU()), "index"),
    (lambda: nn.Unflatten(0, False), "unflattened_size"),
    (lambda: nn.KVCache(1, 2, 1, 2, rope=1.0), "rope"),
    (lambda: nn.Linear(2, 2).apply(3), "function"),
    (lambda: nn.Linear(2, 2).replace_tensors(3), "pairs"),
    (lambda: nn.Linear(2, 2).replace_tensors([3]), "pair"),
    (lambda: optim.Group([], [], 0.0, 1.0, [1]), "options"),
    (lambda: optim.RoundedWeights({}, (1, 2)), "types"),
    (lambda: optim.RoundedWeights({}, {"a": "q4_0"}), "params"),
    (lambda: optim.RoundedWeights([1], {"a": "q4_0"}), "params"),
    (lambda: sgd().zero_grad(np.ones(2)), "set_to_none"),
    (lambda: sgd().shard(3, [0, 1], abs), "owned"),
    (lambda: sgd().shard([True, "no"], [0, 1], abs), "owned"),
    (lambda: sgd().shard([True, True], [0, "a"], abs), "order"),
    (lambda: sgd().shard([True, True], [0, 1], 3), "total"),
    (lambda: sgd().sum_grads(3), "reduce"),
    (lambda: train.count_targets(3), "batch"),
    (lambda: train.count_targets([1, 2]), "batch"),
    (lambda: train.token_scores(3, []), "model"),
    (lambda: train.score_answers(nn.Linear(2, 2), [1], None, None), "chats"),
    (lambda: train.QuantizationAware(None, None, 3), "rounded"),
    (lambda: train.r2_score("a", [1.0]), "predicted"),
    (lambda: train.rmse([1.0], ["a"]), "targets"),
    (lambda: train.span_f1_score([1], [2]), "predicted"),
    (lambda: pg.models.generation_settings(3), "model"),
    (lambda: pg.models.MLP(MLP_CONFIG).load_state_dict({1: 2}), "the names"),
    (lambda: pg.models.MLP(MLP_CONFIG).own_state(3), "state"),
    (lambda: pg.models.MLP(MLP_CONFIG).gguf_name(3), "name"),
    (lambda: train.GradScaler().update(3), "overflow"),
    (lambda: data.ArrayDataset([[1.0]], [1]).order(3), "rng"),
    (lambda: data.split_images({}, 0.5), "source"),
    (lambda: data.cache_images(1.5, 8), "source"),
    (lambda: data.end_ids("a"), "tokenizer"),
    (lambda: data.read_labelled([], skip_bad=1), "skip_bad"),
    (lambda: data.text.chat.read_preferences([], skip_bad=1), "skip_bad"),
    (lambda: optim.schedules.linear(1.0, 0.1, 3)("a"), "step"),
    (lambda: optim.schedules.one_cycle(1.0, 3)((1, 2)), "step"),
    (lambda: nn.CausalSelfAttention(8, 2, fused=(0, 1)), "fused"),
    (lambda: nn.lora.load_lora_state_dict(adapted(), 3), "state"),
    (lambda: pg.io.open_regular(3), "path"),
    (lambda: data.StreamDecoder("a"), "tokenizer"),
    (lambda: data.read_idx(3), "path"),
    (lambda: data.idx_images({}), "folder"),
    (lambda: data.idx_images("a", {1}), "part"),
    (lambda: graph().readers([1]), "tensor"),
    (lambda: graph().readers(3), "tensors"),
    (lambda: graph().last_ops([1]), "tensor"),
    (lambda: graph().fetch(np.ones(2)), "t must"),
    (lambda: graph().read({}), "t must"),
    (lambda: distributed.check_same(3, {}), "group"),
    (lambda: recipes.LLMRun(3, None, None, None, (), print), "config"),
    (lambda: recipes.FinetuneRun(3, None), "config"),
    (lambda: recipes.plot_matrix("a.png", [[1]], 3), "names"),
]


@pytest.mark.parametrize(("call", "name"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_a_wrong_kind_raises_type_error_with_the_name(call, name):
    with pytest.raises(TypeError) as caught:
        call()
    assert f" {name}" in str(caught.value)


def test_numbers_of_numpy_are_numbers():
    two, third = np.int64(2), np.float32(0.25)
    linear = nn.Linear(two, np.int8(3), bias=np.True_)
    assert linear(pg.ones(1, 2)).shape == (1, 3)
    assert nn.Dropout(third).p == 0.25
    assert nn.LayerNorm(3, eps=third).eps == nn.RMSNorm(3, eps=third).eps == 0.25
    assert nn.BatchNorm2d(two, momentum=third).momentum == 0.25
    assert nn.Conv2d(two, two, two, groups=two)(pg.ones(1, 2, 2, 2)).shape == (1, 2, 1, 1)
    assert nn.LoRALinear(linear, rank=two, alpha=third).scale == 0.125
    assert nn.Rope(base=np.float32(100)).base == 100.0
    assert nn.RopeScaling("linear", two, table=None).factor == 2.0
    attention = nn.CausalSelfAttention(np.int64(8), two, two)
    assert attention(pg.ones(1, 3, 8)).shape == (1, 3, 8)
    assert top_k_accuracy([[1.0, 2.0]], [0], two) == 1.0
    config = GPT2Config(n_layer=two, dropout=third, eps=third)
    assert type(config.n_layer) is int
    assert type(config.dropout) is float


def test_a_wrong_value_stays_a_value_error():
    for call in (
        lambda: nn.Linear(0, 3),
        lambda: nn.Dropout(1.0),
        lambda: nn.LayerNorm(3, eps=0.0),
        lambda: nn.BatchNorm2d(3, momentum=2.0),
        lambda: nn.Rope(base=-1.0),
        lambda: LlamaConfig(vocab_size=0),
        lambda: LlamaConfig(rope_theta=float("nan")),
        lambda: pg.models.load(""),
        lambda: pg.zeros(0),
        lambda: pg.ones(2).sum(4),
    ):
        with pytest.raises(ValueError, match=r"must|at least"):
            call()


def test_a_dtype_may_follow_a_shape_that_is_a_tuple():
    for made in (pg.zeros((2, 3), "f16"), pg.ones([2, 3], "f16"), pg.full((2, 3), 1.0, "f16")):
        assert (made.shape, made.dtype.name) == ((2, 3), "f16")
