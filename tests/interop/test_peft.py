# SPDX-License-Identifier: MIT
"""PEFT's folders, both ways: the same numbers from each, and errors for what is no plain LoRA."""

import json

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.errors import FormatError
from pyggml.io import load_safetensors, save_safetensors
from pyggml.models import build, load, load_lora, save_lora

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")

IDS = (np.arange(24).reshape(2, 12) * 5 % 65).astype(np.int32)
ADAPTERS = {
    "defaults": {"target_modules": ["q_proj", "v_proj"]},
    "all": {"target_modules": "all-linear", "r": 4, "lora_alpha": 6},
    "rslora": {"target_modules": ["down_proj"], "use_rslora": True, "r": 4},
    "dora": {"target_modules": ["q_proj", "down_proj"], "use_dora": True},
    "table-and-head": {"target_modules": ["embed_tokens", "lm_head", "v_proj"], "r": 3},
    "patterns": {
        "target_modules": ["q_proj", "up_proj"],
        "rank_pattern": {"up_proj": 3},
        "alpha_pattern": {"layers.1.self_attn.q_proj": 32},
    },
}


def base(arch, folder, **more):
    pg.seed(1)
    model = build(arch, "tiny", vocab_size=65, **more)
    model.save_pretrained(folder)
    return model


def theirs(model):
    model.eval()
    with torch.no_grad():
        return model(torch.from_numpy(IDS).long()).logits.numpy()


def ours(model):
    model.eval()
    return model(pg.tensor(IDS)).numpy()


def fill(names):
    rng = np.random.default_rng(2)
    return {name: 0.1 * rng.standard_normal(value.shape) for name, value in names}


@pytest.mark.parametrize("name", ADAPTERS)
def test_theirs_is_read_and_ours_is_written(name, tmp_path):
    model = base("llama", tmp_path / "base", tie=name != "table-and-head")
    there = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    there = peft.get_peft_model(there, peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[name]))
    for parameter in there.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    there.save_pretrained(tmp_path / "theirs", save_embedding_layers=name == "table-and-head")
    want = theirs(there)
    load_lora(model, tmp_path / "theirs")
    np.testing.assert_allclose(ours(model), want, atol=5e-6 * np.abs(want).max())
    save_lora(model, tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    again = peft.PeftModel.from_pretrained(again, tmp_path / "ours")
    np.testing.assert_allclose(theirs(again), want, atol=1e-6 * np.abs(want).max())
    other, _ = load(tmp_path / "base")
    load_lora(other, tmp_path / "ours")
    np.testing.assert_array_equal(ours(other), ours(model))


def test_gpt2(tmp_path):
    model = base("gpt2", tmp_path / "base")
    nn.apply_lora(model, rank=3, targets="all-linear")
    for name, value in fill(model.named_parameters()).items():
        if "lora_" in name:
            dict(model.named_parameters())[name].copy_(value.astype(np.float32))
    save_lora(model, tmp_path / "adapter")
    there = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    want = ours(model)
    there = peft.PeftModel.from_pretrained(there, tmp_path / "adapter")
    np.testing.assert_allclose(theirs(there), want, atol=5e-6 * np.abs(want).max())


@pytest.mark.parametrize("use_rslora", [False, True])
def test_an_adapter_that_began_by_pissa_is_for_the_first_model(use_rslora, tmp_path):
    model = base("llama", tmp_path / "base")
    options = {"init_lora_weights": "pissa", "use_rslora": use_rslora}
    nn.apply_lora(model, rank=3, targets="all-linear", **options)
    for name, value in fill(model.named_parameters()).items():
        if "lora_" in name:
            own = dict(model.named_parameters())[name]
            own.copy_((own.numpy() + 0.3 * value).astype(np.float32))
    save_lora(model, tmp_path / "adapter")
    want = ours(model)
    there = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    there = peft.PeftModel.from_pretrained(there, tmp_path / "adapter")
    np.testing.assert_allclose(theirs(there), want, atol=1e-5 * np.abs(want).max())


# PEFT looks for the fused parameter among the modules.
@pytest.mark.filterwarnings("ignore:The following rank_pattern:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:The following alpha_pattern:RuntimeWarning")
def test_experts_are_stacked_by_peft(tmp_path):
    model = base("llama", tmp_path / "base", n_expert=3, n_expert_used=2)
    targets, alphas = ["*.experts.*", "q_proj"], {"layers.0.self_attn.q_proj": 8.0}
    nn.apply_lora(model, rank=3, alpha=5, targets=targets, alpha_pattern=alphas)
    for name, value in fill(model.named_parameters()).items():
        if "lora_" in name:
            dict(model.named_parameters())[name].copy_(value.astype(np.float32))
    save_lora(model, tmp_path / "adapter")
    want = ours(model)
    other, _ = load(tmp_path / "base")
    load_lora(other, tmp_path / "adapter")
    np.testing.assert_array_equal(ours(other), want)
    there = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    plain = theirs(there)
    there = peft.PeftModel.from_pretrained(there, tmp_path / "adapter")
    np.testing.assert_allclose(theirs(there), want, atol=1e-5 * np.abs(want).max())
    assert np.abs(plain - want).max() > 0.05


def test_the_default_scale_is_theirs():
    model = build("llama", "tiny", vocab_size=65)
    nn.apply_lora(model)
    config = peft.LoraConfig()
    layer = model.model.layers[0].self_attn.q_proj
    assert (layer.rank, layer.scale) == (config.r, config.lora_alpha / config.r)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"use_dora": True}, "magnitude"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"r": 5}, "A"),
        ({"r": None, "lora_alpha": "8"}, "lora_alpha"),
        ({"rank_pattern": {"(a+)+$": 2}}, "rank_pattern"),
        ({"alpha_pattern": [1]}, "alpha_pattern"),
    ],
)
def test_an_adapter_that_asks_for_more_is_an_error(change, field, tmp_path):
    model = base("llama", tmp_path / "base")
    nn.apply_lora(model)
    save_lora(model, tmp_path / "adapter")
    nn.remove_lora(model)
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(FormatError, match=field):
        load_lora(model, tmp_path / "adapter")
    assert not nn.lora.adapters_of(model)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda a: {n.replace("q_proj", "nothing"): v for n, v in a.items()}, "nothing"),
        (lambda a: {n: v for n, v in a.items() if "lora_B" not in n}, "must have A"),
        (lambda a: {n: v[:, :-1] for n, v in a.items()}, "must have A"),
        (lambda a: {n: v * np.nan for n, v in a.items()}, "finite"),
        (lambda a: {**a, "base_model.model.lm_head.weight": np.ones(3)}, "lm_head"),
        (lambda a: {}, "no tensor"),
    ],
)
def test_other_tensors_are_an_error(change, cause, tmp_path):
    model = base("llama", tmp_path / "base")
    nn.apply_lora(model)
    save_lora(model, tmp_path / "adapter")
    nn.remove_lora(model)
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    save_safetensors(file, change(load_safetensors(file)))
    with pytest.raises(FormatError, match=cause):
        load_lora(model, tmp_path / "adapter")
