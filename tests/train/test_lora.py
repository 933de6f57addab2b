# SPDX-License-Identifier: MIT
"""Trainings of adapters beside frozen, quantised weights: plan, checkpoints, resume, average."""

import math

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.data import TokenDataset
from pyggml.models import build, load, load_lora, save_lora
from pyggml.optim import AdamW, decay_groups
from pyggml.train import Trainer, load_checkpoint
from pyggml.train.metrics.efficiency import flops_per_token

from .tiny import SEQ_LEN, VOCAB, edit_state, make_model, read_state, same, tokens

SIZES = {"n_layer": 2, "n_head": 2, "n_kv_head": 1, "n_embd": 256, "n_ffn": 256, "context": SEQ_LEN}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A base model whose matrices are q4_K."""
    path = tmp_path_factory.mktemp("base") / "base.gguf"
    pg.seed(0)
    build("llama", SIZES, vocab_size=VOCAB).save(path, dtype="q4_K")
    return path


def make(file, folder=None, fused_update=False, **options):
    options = {"batch_size": 4, "steps": 12, "seed": 3, "accumulate": 2, **options}
    pg.seed(3)
    model, _ = load(file, keep_types=True)
    nn.apply_lora(model, rank=4, dropout=0.1, targets="all-linear")
    train, validation = TokenDataset(tokens(), SEQ_LEN).split(0.2)
    optimizer = AdamW(decay_groups(model, 0.1), lr=1e-2, fused_update=fused_update)
    return Trainer(model, train, validation, optimizer, checkpoint_dir=folder, **options)


def test_the_plan_has_the_bytes_of_the_file(file):
    trainer = make(file)
    plan = trainer.plan()
    model = trainer.model
    trained = 4 * model.num_parameters(trainable_only=True)
    kept = sum(p.nbytes for p in model.parameters() if p.dtype.name == "q4_K")
    matrices = sum(p.numel() for p in model.parameters() if p.dtype.name == "q4_K")
    assert kept == matrices * 4.5 / 8  # 144 bytes for 256 numbers
    norms = 4 * 5 * 256
    assert plan.parameters == kept + norms + trained
    assert plan.optimizer == 2 * trained
    assert trained <= plan.gradients <= trained + 64 * len(trainer.optimizer.params)  # alignment
    assert plan.fallbacks == {}


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "bf16", "checkpointing": True, "ema": 0.9},
        {"accumulate": 1, "fused_update": True, "clip": 0.0},
        {"precision": "f16"},
    ],
    ids=str,
)
def test_a_resumed_run_has_the_same_bits(file, tmp_path, options):
    whole = make(file, **options)
    first = whole.evaluate().loss
    whole.fit()
    assert whole.last_evaluation.loss < first - 0.05
    halted = make(file, tmp_path / "c", steps=12, save_every=5, **options)
    before = halted.model.state_dict()
    halted.total_steps = 5
    halted.fit()
    resumed = make(file, tmp_path / "c", save_every=5, **options)
    assert resumed.resume() == 5
    resumed.fit()
    after = resumed.model.state_dict()
    assert same(after, whole.model.state_dict())
    assert same(resumed.optimizer.state_dict(), whole.optimizer.state_dict())
    changed = {name for name, array in after.items() if not np.array_equal(array, before[name])}
    assert changed == {name for name in after if "lora_" in name}
    saved = load_checkpoint(resumed.last_checkpoint)
    assert same(saved.model, after)
    assert {name for name in saved.optimizer if name.endswith((".m", ".v"))} == {
        f"{name}.{kind}" for name in changed for kind in "mv"
    }


@pytest.mark.parametrize(
    "options",
    [{"use_dora": True}, {"init_lora_weights": "pissa", "targets": ["q_proj", "*embed*"]}],
)
def test_a_resumed_run_of_other_adapters_has_the_same_bits(options, tmp_path):
    def made(folder):
        model = make_model()
        nn.apply_lora(model, **{"rank": 2, "targets": "all-linear", **options})
        data = TokenDataset(tokens(), 8)
        optimizer = AdamW(model, lr=1e-2)
        return Trainer(
            model, data, optimizer=optimizer, batch_size=2, steps=6, seed=1, save_every=3,
            checkpoint_dir=folder, keep=3,
        )  # fmt: skip

    whole = made(tmp_path / "a")
    before = whole.model.state_dict()
    whole.fit()
    resumed = made(tmp_path / "b")
    assert resumed.resume(tmp_path / "a" / "step-000003") == 3
    resumed.fit()
    assert same(resumed.model.state_dict(), whole.model.state_dict())
    after = whole.model.state_dict()
    assert all("lora_" in n for n in after if not np.array_equal(after[n], before[n]))


def test_what_is_trained_goes_into_a_file(file, tmp_path):
    trainer = make(file, tmp_path / "c")
    trainer.fit()
    save_lora(trainer.model, tmp_path / "adapter.gguf")
    model, _ = load(file, keep_types=True)
    load_lora(model, tmp_path / "adapter.gguf")
    x = pg.tensor(tokens(SEQ_LEN).reshape(1, -1))
    want = trainer.model.eval()(x).numpy()
    np.testing.assert_allclose(model.eval()(x).numpy(), want, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_of_another_rank_is_refused(file, tmp_path):
    make(file, tmp_path / "c", steps=2).fit()
    model, _ = load(file, keep_types=True)
    nn.apply_lora(model, rank=2, targets="all-linear")
    train, _ = TokenDataset(tokens(), SEQ_LEN).split(0.2)
    other = Trainer(
        model, train, None, AdamW(model.parameters()),
        steps=2, batch_size=4, seed=3, checkpoint_dir=tmp_path / "c",
    )  # fmt: skip
    with pytest.raises(pg.FormatError, match=r"model.safetensors: .*lora_A.weight"):
        other.resume()


def test_a_checkpoint_of_another_scale_is_refused(file, tmp_path):
    def adapted(alpha, folder):
        pg.seed(3)
        model, _ = load(file, keep_types=True)
        nn.apply_lora(model, rank=4, alpha=alpha, targets="all-linear")
        train, _ = TokenDataset(tokens(), SEQ_LEN).split(0.2)
        return Trainer(
            model, train, None, AdamW(model.parameters()),
            steps=2, batch_size=4, seed=3, checkpoint_dir=folder,
        )  # fmt: skip

    adapted(16, tmp_path / "c").fit()
    other = adapted(32, tmp_path / "c")
    before = other.model.state_dict()
    with pytest.raises(pg.FormatError, match=r"q_proj .*8.0"):
        other.resume()
    assert same(other.model.state_dict(), before)
    assert adapted(16, tmp_path / "c").resume() == 2
    state = tmp_path / "c" / "step-000002"
    assert read_state(state)["adapters"]
    edit_state(state, adapters=...)
    with pytest.raises(pg.FormatError, match="field 'adapters' is missing"):
        adapted(16, tmp_path / "c").resume()
    edit_state(state, adapters=3)
    with pytest.raises(pg.FormatError, match="field 'adapters' must be"):
        adapted(16, tmp_path / "c").resume()
    scales = nn.lora.adapters_of(other.model)
    for bad in ("4.0", None, [4.0]):
        edit_state(state, adapters=dict.fromkeys(scales, bad))
        with pytest.raises(pg.FormatError, match=r"adapters\..*_proj'"):
            adapted(16, tmp_path / "c").resume()
    edit_state(state, adapters=dict.fromkeys(scales, math.nan))
    with pytest.raises(pg.FormatError, match="must be scaled by nan"):
        adapted(16, tmp_path / "c").resume()
    # Of a model whose adapters are gone it is the arrays that do not fit.
    plain = adapted(16, tmp_path / "c")
    nn.remove_lora(plain.model)
    with pytest.raises(pg.FormatError, match="unexpected"):
        plain.resume()


def test_a_scale_that_numpy_computed_is_kept_in_a_checkpoint(file, tmp_path):
    trainer = make(file, tmp_path / "c", steps=2)
    for layer in nn.lora.adapters_of(trainer.model).values():
        layer.scale = np.float32(2.5)
    trainer.fit()
    assert set(load_checkpoint(trainer.last_checkpoint).state.adapters.values()) == {2.5}


def test_frozen_matrices_count_four_operations(file):
    model, _ = load(file, keep_types=True)
    frozen = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    scores = 12 * 2 * 256 * SEQ_LEN
    assert flops_per_token(model, SEQ_LEN) == 4 * frozen + scores  # the table is the head, too
    nn.apply_lora(model, rank=4)
    trained = model.num_parameters(trainable_only=True)
    assert flops_per_token(model, SEQ_LEN) == 4 * frozen + 6 * trained + scores


@pytest.mark.parametrize("change", [nn.remove_lora, nn.merge_lora])
def test_an_evaluation_is_of_the_model_as_it_is(file, change):
    """Not of the adapters that its graph was recorded with."""
    trainer = make(file)
    trainer.fit()
    adapted = trainer.evaluate().loss
    batch = next(iter(trainer.loader))
    said = trainer.train_step.logits(batch)
    change(trainer.model)
    again = make(file)
    nn.remove_lora(again.model)
    again.model.load_state_dict(trainer.model.state_dict())
    want = again.evaluate().loss
    assert trainer.evaluate().loss == want != adapted
    assert not np.array_equal(trainer.train_step.logits(batch), said)
    with pytest.raises(pg.GradientError, match="pass a gradient to a parameter"):
        trainer.train_step([batch])
