# SPDX-License-Identifier: MIT
"""Decoders with a head of classes: logits, loss and gradients as transformers computes them."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import Documents, LabelledDataset
from pyggml.data.text.chat import EncodedPreferences
from pyggml.models import (
    Llama,
    LlamaClassifierConfig,
    LlamaConfig,
    LlamaForSequenceClassification,
    load,
    load_lora,
    save_lora,
)
from pyggml.train import TrainStep
from pyggml.train.preferences import RewardDataset, RewardLoss

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")

SIZES = {"vocab_size": 60, "n_layer": 2, "n_head": 4, "n_kv_head": 2, "n_embd": 32, "n_ffn": 48,
         "context": 32}  # fmt: skip
DOCUMENTS = Documents.of([[5, 9, 12, 7], [3, 8, 2, 30, 41, 17, 22], [50], [11, 4, 6]])


def classifier(family, classes, labels=None):
    pg.seed(3)
    base = Llama(LlamaConfig(**SIZES, family=family, tie=family != "phi2"))
    return LlamaForSequenceClassification.from_body(base, classes, labels)


def theirs(model, folder):
    model.save_pretrained(folder)
    return transformers.AutoModelForSequenceClassification.from_pretrained(folder)


def gradients_of(model, batch, loss=None):
    optimizer = pg.optim.SGD(model, lr=1.0)
    before = {name: p.numpy() for name, p in model.named_parameters()}
    result = TrainStep(model, optimizer, loss=loss)([batch])
    after = dict(model.named_parameters())
    return result.loss, {n: before[n] - after[n].numpy() for n in before}


def check(found, expected, names):
    for name, value in expected.named_parameters():
        if any(part in name for part in names):
            want = value.grad.numpy()
            scale = np.abs(want).max()
            np.testing.assert_allclose(found[name], want, rtol=0, atol=1e-4 * scale, err_msg=name)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma"])
def test_loss_and_gradients_are_those_of_transformers(family, tmp_path):
    model = classifier(family, 3, ("a", "b", "c"))
    hf = theirs(model, tmp_path).eval()
    assert hf.config.id2label == {0: "a", 1: "b", 2: "c"}
    batch = LabelledDataset(DOCUMENTS, [2, 0, 1, 1]).batch(np.arange(4))
    mask = batch.inputs["attention_mask"]
    found = model(pg.tensor(batch.x), attention_mask=pg.tensor(mask)).numpy()
    ids = {"input_ids": torch.tensor(batch.x), "attention_mask": torch.tensor(mask)}
    output = hf(**ids, labels=torch.tensor(batch.y, dtype=torch.long))
    np.testing.assert_allclose(found, output.logits.detach().numpy(), rtol=0, atol=1e-5)
    output.loss.backward()
    loss, gradients = gradients_of(model, batch)
    assert loss == pytest.approx(output.loss.item(), abs=1e-5)
    check(gradients, hf, ("score", "q_proj", "down_proj", "embed_tokens"))


def test_a_reward_has_the_loss_and_gradients_of_trl(tmp_path):
    """RewardTrainer.compute_loss: -logsigmoid(rewards_chosen - rewards_rejected).mean()."""
    model = classifier("llama", 1)
    hf = theirs(model, tmp_path).eval()
    encoded = EncodedPreferences(DOCUMENTS, np.array([True, False, True, False]), paired=True)
    batch = RewardDataset(encoded).batch(np.arange(2))
    mask = torch.tensor(batch.inputs["attention_mask"])
    rewards = hf(input_ids=torch.tensor(batch.x), attention_mask=mask).logits.squeeze(-1)
    chosen, rejected = torch.chunk(rewards, 2)
    wanted = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
    wanted.backward()
    step = TrainStep(model, None, loss=RewardLoss())
    total, count, told = step.evaluated(batch)
    assert count == 2
    assert total / count == pytest.approx(wanted.item(), abs=1e-5)
    assert told["margin"] == pytest.approx((chosen - rejected).sum().item(), abs=1e-5)
    assert told["accuracy"] == (chosen > rejected).sum().item()
    loss, gradients = gradients_of(model, batch, RewardLoss())
    assert loss == pytest.approx(wanted.item(), abs=1e-5)
    check(gradients, hf, ("score", "v_proj", "up_proj"))


def test_folders_and_adapters_come_back(tmp_path):
    peft = pytest.importorskip("peft")
    model = classifier("qwen2", 3)
    hf = theirs(model, tmp_path / "base")
    again, _ = load(tmp_path / "base")
    assert (type(again), again.config) == (type(model), model.config)
    paths = pg.nn.apply_lora(model, 2, targets="all-linear")
    assert "score" not in paths
    for layer in pg.nn.lora.adapters_of(model).values():
        layer.lora_B.weight.copy_(np.full(layer.lora_B.weight.shape, 0.05, np.float32))
    model.score.weight.copy_(model.score.weight.numpy() + 1.0)
    with pytest.raises(ValueError, match="score"):
        save_lora(model, tmp_path / "adapter.gguf")
    save_lora(model, tmp_path / "adapter")
    load_lora(again, tmp_path / "adapter")
    x = pg.tensor([[5, 9, 12, 7]])
    np.testing.assert_allclose(again(x).numpy(), model(x).numpy(), rtol=0, atol=1e-6)
    tuned = peft.PeftModel.from_pretrained(hf, tmp_path / "adapter").eval()
    logits = tuned(input_ids=torch.tensor(x.numpy())).logits.detach().numpy()
    np.testing.assert_allclose(logits, model(x).numpy(), rtol=0, atol=1e-5)


def test_what_has_no_file_in_llama_cpp_is_refused(tmp_path):
    assert classifier("qwen3", 2).runs_in_llama_cpp
    assert not classifier("qwen3", 1).runs_in_llama_cpp
    with pytest.raises(ValueError, match=r"cls\.output"):
        classifier("llama", 2).save_gguf(tmp_path / "model.gguf")
    named = classifier("gemma3", 2).hf_config()["architectures"]
    assert named == ["Gemma3TextForSequenceClassification"]
    with pytest.raises(ValueError, match="family"):
        LlamaClassifierConfig(**SIZES, family="granite")


@pytest.mark.parametrize("family", ["llama", "qwen2", "phi2", "gemma", "starcoder2"])
def test_parameters_are_counted(family):
    model = classifier(family, 5)
    assert model.config.count_parameters() == model.num_parameters()
    assert model.model.embed_tokens.weight.shape == (60, 32)
