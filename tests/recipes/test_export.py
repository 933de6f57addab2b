# SPDX-License-Identifier: MIT
"""The weights that a run leaves: those of the best evaluation, or of the last step."""

from __future__ import annotations

import shutil

import pytest

from pyggml.errors import ConfigError, FormatError
from pyggml.models import load
from pyggml.recipes import ImageConfig, LLMConfig, LLMRun, export_checkpoint
from pyggml.recipes.export import exported_weights
from pyggml.train import load_checkpoint
from pyggml.train.checkpoints.checkpoint import load_weights

from ..train.test_fit import Scripted
from ..train.test_trainer import At
from ..train.tiny import make_trainer, same

# With these, the best evaluation is that of step 4.
LOSSES = [3.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_the_best_is_lent_and_given_back(tmp_path, ema):
    def spoil(trainer):
        for parameter in trainer.model.parameters():
            parameter.copy_(5 * parameter.numpy())

    options = {"steps": 8, "eval_every": 2, "lr": 1e-3, "patience": 9, "ema": ema}
    trainer = make_trainer(tmp_path, [At(5, spoil)], **options)
    assert trainer.fit().step == 8
    assert trainer.best["step"] == 4
    own = trainer.model.state_dict()
    with exported_weights(trainer, "best") as found:
        assert (found.which, found.step) == ("best", 4)
        lent = trainer.model.state_dict()
        assert not same(lent, own)
        # Those that the evaluation saw: it finds the same loss again.
        applied, trainer.ema = trainer.ema, None
        assert trainer.evaluate().loss == found.loss
        trainer.ema = applied
    assert same(trainer.model.state_dict(), own)
    assert same(load_weights(trainer.best_checkpoint), lent)
    saved = load_checkpoint(trainer.best_checkpoint).model
    assert same(saved, lent) == (not ema)


def test_the_last_and_what_stands_in_for_the_best(tmp_path, monkeypatch):
    Scripted(monkeypatch, LOSSES)
    trainer = make_trainer(tmp_path, steps=8, eval_every=2)
    trainer.fit()
    own = trainer.model.state_dict()
    with exported_weights(trainer, "last") as found:
        assert str(found) == "the last weights, of step 8"
        assert same(trainer.model.state_dict(), own)
    with exported_weights(trainer, "best") as found:
        assert str(found) == "the best weights, of step 4: validation loss 1.0000"
    kept = trainer.best_checkpoint
    (kept / "model.safetensors").write_bytes(b"x")
    damaged = pytest.raises(FormatError, match=r"model\.safetensors: must have")
    with damaged, exported_weights(trainer, "best"):
        pass
    assert same(trainer.model.state_dict(), own)


def test_the_last_stands_in_where_no_best_is_kept(tmp_path, monkeypatch):
    Scripted(monkeypatch, LOSSES)
    trainer = make_trainer(tmp_path, steps=8, eval_every=2, keep_best=False)
    trainer.fit()
    with exported_weights(trainer, "best") as found:
        assert str(found) == "the last weights, of step 8, as no best checkpoint is kept"


@pytest.mark.parametrize("ema", [0.0, 0.5])
@pytest.mark.parametrize("which", ["best", "last"])
def test_they_are_chosen_when_they_are_lent(tmp_path, which, ema):
    """A training between the call and the block, as in another thread, has other best ones."""
    trainer = make_trainer(tmp_path, steps=8, eval_every=2, lr=1e-3, ema=ema, keep_best=False)
    block = exported_weights(trainer, which)
    trainer.fit()
    with block as found:
        assert found.step == 8


def test_the_default_is_the_best_of_a_run_that_may_stop_early():
    def chosen(kind, **options):
        config = kind(**options)
        return config.output.chosen_export(config.trainer)

    assert chosen(LLMConfig) == "last"
    assert chosen(LLMConfig, patience=2) == "best"
    assert chosen(LLMConfig, patience=2, keep_best=False) == "last"
    assert chosen(LLMConfig, patience=2, export="last") == "last"
    assert chosen(ImageConfig, data="digits", export="best") == "best"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"export": "first"}, "export"),
        ({"export": "best", "val_fraction": 0.0}, "val_fraction"),
        ({"export": "best", "keep_best": False}, "keep_best"),
    ],
)
def test_weights_that_cannot_be_exported_raise(fields, name):
    with pytest.raises(ConfigError, match=f"`{name}`"):
        LLMConfig(**fields)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that stopped early, and its folder."""
    folder = tmp_path_factory.mktemp("export")
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog and runs on\n" * 30)
    config = LLMConfig(
        text=(str(text),), artifact_dir=str(folder / "run"), tokenizer="chars", layers=1, heads=2,
        embd=16, seq_len=16, steps=300, eval_every=3, save_every=2, patience=2, lr=0.5, ema=0.5,
        sample_tokens=4, threads=1,
    )  # fmt: skip
    run = LLMRun.prepare(config)
    run.train()
    return run


def test_a_run_that_stopped_early_leaves_its_best(run):
    folder, best = run.artifact.path, run.trainer.best
    assert best["step"] < run.trainer.step < 300
    assert (run.exported.which, run.exported.step) == ("best", best["step"])
    model, _ = load(folder)
    assert same(model.state_dict(), load_weights(folder / "checkpoints" / "best"))
    assert run.artifact.read_config()["exported"]["step"] == best["step"]
    assert f"the best weights, of step {best['step']}" in (folder / "report.html").read_text()
    assert run.generate("the", 8) != run.generate("the", 8, exported=False)


def test_any_checkpoint_can_be_exported(run, tmp_path):
    folder = run.artifact.path
    for checkpoint in (folder / "checkpoints").glob("*/"):
        path = export_checkpoint(checkpoint, tmp_path / f"{checkpoint.name}.gguf")
        model, tokenizer = load(path)
        assert same(model.state_dict(), load_weights(checkpoint))
        assert tokenizer.decode(tokenizer.encode("the fox")) == "the fox"
    assert (tmp_path / "best.gguf").exists()


def test_what_is_no_checkpoint_of_a_run(run, tmp_path):
    best = run.artifact.checkpoints / "best"
    with pytest.raises(FormatError, match=r"is no checkpoint.*give one, such as .*step-"):
        export_checkpoint(run.artifact.path, tmp_path / "x.gguf")
    alone = shutil.copytree(best, tmp_path / "alone")
    with pytest.raises(FormatError, match="must lie in the folder of a run"):
        export_checkpoint(alone, tmp_path / "x.gguf")
    with pytest.raises(FileNotFoundError, match="but a checkpoint: `pyggml export`"):
        load(best)
    other = tmp_path / "other"
    shutil.copytree(run.artifact.path, other)
    text = (other / "config.json").read_text().replace('"n_embd": 16', '"n_embd": 32')
    (other / "config.json").write_text(text)
    with pytest.raises(FormatError, match="does not fit"):
        export_checkpoint(other / "checkpoints" / "best", tmp_path / "x.gguf")
    assert not (tmp_path / "x.gguf").exists()
