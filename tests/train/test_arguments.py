# SPDX-License-Identifier: MIT
"""Wrong arguments of every public function and class are told by name, with what came."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import pyggml as pg
from pyggml import train
from pyggml.data import Loader, TokenDataset
from pyggml.models import CNN, CNNConfig
from pyggml.optim import SGD
from pyggml.recipes import (
    ArtifactDir,
    LLMRun,
    export_checkpoint,
    plot_loss,
    read_config,
    save_config,
    write_report,
)
from pyggml.train import (
    ConfigError,
    GradScaler,
    InterruptGuard,
    MetricsFile,
    MetricsWriter,
    Sampler,
    StepMetrics,
    TrainConfig,
    Trainer,
    TrainState,
    TrainStep,
    bits_per_byte,
    confusion_matrix,
    eval_batches,
    evaluate,
    f1_score,
    find_lr,
    format_bytes,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    make_optimizer,
    parse_bytes,
    perplexity,
    read_metrics,
    save_checkpoint,
    step_fallbacks,
    top_k_accuracy,
)

from .test_step import batch
from .tiny import VOCAB, make_model, make_trainer, tokens

IMAGES = CNN(CNNConfig())


class World:
    """Good parts, one of which each case replaces."""

    def __init__(self):
        self.model = make_model("gpt2")
        self.optimizer = SGD(self.model.parameters(), lr=0.1)
        self.loader = Loader(TokenDataset(tokens(), 8), 4)
        self.batch = batch(2)

    def trainer(self, **parts):
        given = {"model": self.model, "optimizer": self.optimizer, "loader": self.loader, **parts}
        return Trainer(**given)

    def step(self, **options):
        return TrainStep(**{"model": self.model, "optimizer": self.optimizer, **options})


# By public name: call, kind of error, words of the message.
CASES = {
    "TrainConfig": [
        (lambda w: TrainConfig(lr="0.1"), ConfigError, "--lr must be a number; got '0.1'"),
        (lambda w: TrainConfig(steps=1.5), ConfigError, "--steps must be a whole number"),
        (lambda w: TrainConfig(scores=3), ConfigError, "--scores must be a list of texts"),
        (lambda w: TrainConfig(scores=[3]), ConfigError, "--scores must be a list of"),
        (lambda w: TrainConfig(text=5), ConfigError, "--text must be a list of texts"),
        (lambda w: TrainConfig(artifact_dir=None), ConfigError, "--artifact-dir must be"),
        (lambda w: TrainConfig(tokenizer=None), ConfigError, "--tokenizer must be text"),
        (lambda w: TrainConfig.from_dict(3), ConfigError, "must be options by name"),
        (lambda w: TrainConfig(precision=["f32"]), ConfigError, "--precision must be one"),
    ],
    "Trainer": [
        (lambda w: w.trainer(model="m"), TypeError, "model must be a pyggml.nn.Module"),
        (lambda w: w.trainer(model=type(w.model)), TypeError, "give an object of it"),
        (lambda w: w.trainer(optimizer=None), TypeError, "must be one of pyggml.optim"),
        (lambda w: w.trainer(optimizer=SGD), TypeError, "give an object of it"),
        (lambda w: w.trainer(model=make_model()), ValueError, "those of another"),
        (lambda w: w.trainer(loader=None), TypeError, "give a pyggml.data.Loader"),
        (lambda w: w.trainer(loader=tokens()), TypeError, "got ndarray: give pyggml.data.Loader("),
        (lambda w: w.trainer(loader=iter([])).plan(), TypeError, "list_iterator without once()"),
        (lambda w: w.trainer(loader=w.loader.dataset), TypeError, "without __iter__"),
        (lambda w: w.trainer(loader=[w.batch], checkpoint_dir="x"), TypeError, "state_dict"),
        (
            lambda w: w.trainer(loader=iter([]), config=TrainConfig(epochs=1)),
            TypeError,
            "without __len__",
        ),
        (lambda w: w.trainer(config={"steps": 3}), TypeError, "give TrainConfig(**options)"),
        (lambda w: w.trainer(callbacks=MetricsWriter("a")), TypeError, "give [callback]"),
        (lambda w: w.trainer(callbacks=[MetricsWriter]), TypeError, "give an object of it"),
        (lambda w: w.trainer(callbacks=[print]), TypeError, "must be a Callback"),
        (lambda w: w.trainer(callbacks=3), TypeError, "must be a list of them"),
        (lambda w: w.trainer(checkpoint_dir=3), TypeError, "checkpoint_dir must be a path"),
        (lambda w: w.trainer(schedule=0.1), TypeError, "schedule must be a function"),
        (lambda w: w.trainer(schedule=lambda step: "x"), TypeError, "step 0 of 1000 is none"),
        (lambda w: w.trainer(schedule=lambda step: -1.0), ValueError, "the learning rate must be"),
        (lambda w: w.trainer(loss="mse"), TypeError, "loss must be a function"),
        (lambda w: w.trainer(count=3), TypeError, "count must be a function"),
        (lambda w: w.trainer(token_bytes=[1, 2]), ValueError, "for each of 17 tokens"),
        (lambda w: w.trainer(data=3), TypeError, "data must be a dict"),
        (lambda w: w.trainer(data={"a": object()}), TypeError, "data must be JSON-ready"),
        (lambda w: w.trainer(validation={"a": None}), ValueError, "validation set 'a'"),
        (lambda w: make_trainer().resume(3), TypeError, "path must be a path or text; got 3"),
        (lambda w: make_trainer().resume(""), ValueError, "must name a file or folder"),
        (lambda w: make_trainer().resume("file"), pg.FormatError, "is a file, and a checkpoint"),
        (lambda w: make_trainer().resume("folder"), pg.FormatError, "no complete checkpoint"),
        (lambda w: make_trainer().evaluate(stop=3), TypeError, "stop must be a function"),
        (
            lambda w: w.trainer(checkpoint_dir="file", config=TrainConfig(steps=1)).fit(),
            train.CheckpointError,
            "file cannot hold checkpoints",
        ),
    ],
    "TrainStep": [
        (lambda w: w.step(model=None), TypeError, "model must be a pyggml.nn.Module"),
        (lambda w: w.step(optimizer=3), TypeError, "must be one of pyggml.optim"),
        (lambda w: w.step(clip="1"), TypeError, "clip must be a number; got '1'"),
        (lambda w: w.step(clip=-1), ValueError, "clip must be finite and >= 0; got -1"),
        (lambda w: w.step(clip_value=np.nan), ValueError, "clip_value must be finite"),
        (lambda w: w.step(precision="fp16"), ValueError, "precision must be one of f32"),
        (lambda w: w.step(scaler=3), TypeError, "scaler must be a GradScaler; got 3"),
        (lambda w: w.step(loss=3), TypeError, "loss must be a function"),
        (lambda w: w.step(count=3), TypeError, "count must be a function"),
        (lambda w: w.step(seed=1.5), ValueError, "seed must be a whole number"),
        (lambda w: w.step()(w.batch), TypeError, "got one batch: give [batch]"),
        (lambda w: w.step()(None), TypeError, "got NoneType: give [batch]"),
        (lambda w: w.step()([3]), TypeError, "a batch must be a pair (x, y); got int"),
        (lambda w: w.step()([(1, 2)]), TypeError, "x must be a NumPy array; got int"),
        (lambda w: w.step()([(*w.batch, 3)]), TypeError, "must be a pair (x, y); got tuple"),
        (lambda w: w.step()([tuple(map(pg.tensor, w.batch))]), TypeError, "tensor.numpy()"),
        (lambda w: w.step()([w.batch], lr="0.1"), TypeError, "lr must be a number; got '0.1'"),
        (lambda w: w.step()([w.batch], lr=-1), ValueError, "lr must be finite and >= 0"),
        (lambda w: w.step(optimizer=None)([w.batch]), ValueError, "a step needs an optimizer"),
        (lambda w: w.step().record("x"), TypeError, "a batch must be a pair"),
        (lambda w: w.step().record(3), TypeError, "a batch must be a pair"),
        (lambda w: w.step().record((0, 3)), pg.ShapeError, "every extent must be at least 1"),
        (lambda w: w.step().logits(3), TypeError, "a batch must be a pair"),
        (lambda w: w.step().loss_sum(3), TypeError, "a batch must be a pair"),
    ],
    "evaluate": [
        (lambda w: evaluate(w.model, None), TypeError, "batches must be several"),
        (lambda w: evaluate(w.model, w.batch), TypeError, "a batch must be a pair"),
        (lambda w: evaluate(None, [w.batch]), TypeError, "model must be a pyggml.nn.Module"),
        (lambda w: evaluate(w.model, [w.batch], step=3), TypeError, "step must be a TrainStep"),
        (lambda w: evaluate(w.model, [w.batch], stop=3), TypeError, "stop must be a function"),
        (lambda w: evaluate(w.model, [w.batch], scores=3), TypeError, "scores must be texts"),
        (lambda w: evaluate(w.model, [w.batch], scores="top17"), ValueError, "more than 17"),
        (lambda w: evaluate(w.model, [w.batch], at_step="x"), TypeError, "at_step must be"),
        (lambda w: evaluate(w.model, [w.batch], token_bytes=[1]), ValueError, "token_bytes"),
    ],
    "eval_batches": [
        (lambda w: eval_batches("x", 3, 2), ValueError, "one-dimensional integer array"),
        (lambda w: eval_batches(tokens(), "3", 2), ValueError, "seq_len must be"),
        (lambda w: eval_batches(tokens(), 3, "2"), TypeError, "batch_size must be"),
        (lambda w: eval_batches(tokens(), 3, 2, 0), ValueError, "max_batches must be at least 1"),
    ],
    "find_lr": [
        (lambda w: find_lr(None, w.optimizer, w.loader), TypeError, "model must be"),
        (lambda w: find_lr(w.model, None, w.loader), TypeError, "optimizer must be"),
        (lambda w: find_lr(w.model, w.optimizer, None), TypeError, "batches must be a loader"),
        (lambda w: find_lr(w.model, w.optimizer, w.loader, start="x"), TypeError, "start must be"),
        (lambda w: find_lr(w.model, w.optimizer, w.loader, step=3), TypeError, "be a TrainStep"),
    ],
    "GradScaler": [
        (lambda w: GradScaler("x"), TypeError, "init_scale must be a number; got 'x'"),
        (lambda w: GradScaler(min_scale=None), TypeError, "min_scale must be a number"),
        (lambda w: GradScaler().load_state_dict(3), TypeError, "state must be a mapping"),
    ],
    "MetricsWriter": [
        (lambda w: MetricsWriter(None), TypeError, "path must be a path or text"),
    ],
    "MetricsFile": [
        (lambda w: MetricsFile(3), TypeError, "path must be a path or text; got 3"),
        (lambda w: MetricsFile("m").write(3), TypeError, "must be StepMetrics or"),
        (lambda w: MetricsFile("m").truncate_after("x"), TypeError, "step must be a whole"),
    ],
    "Sampler": [
        (lambda w: Sampler(1, 3), TypeError, "sample must be a function"),
        (lambda w: Sampler("1", str), ValueError, "every must be an integer >= 1"),
        (lambda w: Sampler(1, str, 3), TypeError, "path must be a path or text"),
        (
            lambda w: Sampler(1, lambda: 3).on_step(None, StepMetrics(1, *[1] * 6)),
            TypeError,
            "sample must give a text; got 3",
        ),
    ],
    "plot_loss": [
        (lambda w: plot_loss(3, "x.png"), TypeError, "lines must be those of read_metrics"),
        (lambda w: plot_loss([3], "x.png"), TypeError, "lines must be those of read_metrics"),
        (lambda w: plot_loss([], 3), TypeError, "path must be a path or text"),
    ],
    "read_metrics": [
        (lambda w: read_metrics(3), TypeError, "path must be a path or text"),
    ],
    "read_config": [
        (lambda w: read_config(3), TypeError, "path must be a path or text"),
        (lambda w: read_config("folder"), ConfigError, "cannot be read"),
    ],
    "save_config": [
        (lambda w: save_config(3, "x"), TypeError, "config must be a TrainConfig; got int"),
        (lambda w: save_config(TrainConfig(), 3), TypeError, "path must be a path or text"),
    ],
    "write_report": [
        (lambda w: write_report(3), ConfigError, "must be a path; got 3"),
        (lambda w: write_report("folder"), pg.FormatError, "holds no run"),
    ],
    "make_optimizer": [
        (lambda w: make_optimizer(3, w.model), TypeError, "must be a TrainConfig"),
        (lambda w: make_optimizer(TrainConfig(), 3), TypeError, "model must be"),
    ],
    "parse_bytes": [
        (lambda w: parse_bytes(None), ValueError, "a size must be a number of bytes"),
    ],
    "step_fallbacks": [
        (lambda w: step_fallbacks("npu"), pg.errors.BackendError, "no 'npu' here"),
        (lambda w: step_fallbacks(3), pg.errors.BackendError, "expected a name"),
    ],
    "format_bytes": [
        (lambda w: format_bytes("x"), TypeError, "size_bytes must be a number"),
    ],
    "perplexity": [
        (lambda w: perplexity("x"), TypeError, "loss must be a number"),
    ],
    "bits_per_byte": [
        (lambda w: bits_per_byte("x", 1), TypeError, "loss_sum must be a number"),
        (lambda w: bits_per_byte(1.0, "x"), TypeError, "size_bytes must be a whole"),
    ],
    "accuracy": [
        (lambda w: train.accuracy(None, None), ValueError, "must be whole numbers of classes"),
    ],
    "top_k_accuracy": [
        (lambda w: top_k_accuracy([[1.0]], [0], "x"), ValueError, "k must be an integer"),
    ],
    "f1_score": [
        (lambda w: f1_score([1.5], [1]), ValueError, "must be whole numbers of classes"),
    ],
    "confusion_matrix": [
        (lambda w: confusion_matrix([1], [1], "x"), TypeError, "classes must be a"),
        (lambda w: confusion_matrix([10**9], [1]), ValueError, "too large"),
    ],
    "export_checkpoint": [
        (lambda w: export_checkpoint(3, "x"), TypeError, "checkpoint must be a path"),
        (lambda w: export_checkpoint("folder", ""), ValueError, "path must name a file"),
        (lambda w: export_checkpoint("folder", "x"), pg.FormatError, "no complete checkpoint"),
    ],
    "latest_checkpoint": [
        (lambda w: latest_checkpoint(3), TypeError, "directory must be a path"),
    ],
    "list_checkpoints": [
        (lambda w: list_checkpoints(None), TypeError, "directory must be a path"),
    ],
    "load_checkpoint": [
        (lambda w: load_checkpoint(3), TypeError, "path must be a path or text"),
        (lambda w: load_checkpoint("file"), pg.FormatError, "is a file, and a checkpoint"),
    ],
    "save_checkpoint": [
        (lambda w: save_checkpoint(3, TrainState(1, 2), {}, {}), TypeError, "directory"),
        (lambda w: save_checkpoint("c", 3, {}, {}), TypeError, "state must be a Train"),
        (lambda w: save_checkpoint("c", TrainState(1, 2), 3, {}), TypeError, "model must"),
        (
            lambda w: save_checkpoint("c", TrainState("1", 2), {}, {}),
            pg.FormatError,
            "field 'step' must be int; got str",
        ),
        (
            lambda w: save_checkpoint("c", TrainState(-1, 2), {}, {}),
            pg.FormatError,
            "step must not be negative",
        ),
        (
            lambda w: save_checkpoint("c", TrainState(5, 2), {}, {}),
            pg.FormatError,
            "total_steps must be at least step",
        ),
        (lambda w: save_checkpoint("c", TrainState(1, 2), {}, {}, "x"), TypeError, "keep"),
        (
            lambda w: save_checkpoint("c", TrainState(1, 2), {}, {"x": object()}),
            TypeError,
            "must be JSON-ready",
        ),
    ],
    "InterruptGuard": [
        (lambda w: InterruptGuard(3), TypeError, "on_request must be a function"),
    ],
    "ArtifactDir": [
        (lambda w: ArtifactDir(3), ConfigError, "must be a path; got 3"),
    ],
    "LLMRun": [
        (lambda w: LLMRun.prepare("x"), TypeError, "config must be a TrainConfig; got str"),
        (lambda w: LLMRun.resume(3), ConfigError, "must be a path; got 3"),
    ],
}

CASES |= {
    "ImageConfig": [
        (lambda w: train.ImageConfig("digits", lr="0.1"), ConfigError, "--lr must be a number"),
        (lambda w: train.ImageConfig(3), ConfigError, "--data must be digits or a folder; got 3"),
        (lambda w: train.ImageConfig("digits", epochs=1.5), ConfigError, "--epochs must be"),
        (lambda w: train.ImageConfig("digits", model="vit"), ConfigError, "--model must be one"),
    ],
    "ImageRun": [
        (lambda w: train.ImageRun("x", None), TypeError, "config must be an ImageConfig; got str"),
        (
            lambda w: train.ImageRun(train.ImageConfig("digits"), None),
            TypeError,
            "artifact must be an ImageArtifact; got NoneType",
        ),
    ],
    "ImageClassifier": [
        (lambda w: train.ImageClassifier("m", 8, 1), TypeError, "model must be an ImageModel"),
        (lambda w: train.ImageClassifier(IMAGES, "8", 1), TypeError, "size must be a whole"),
        (lambda w: train.ImageClassifier(IMAGES, 8, 0), ValueError, "channels must be at least 1"),
    ],
    "plot_curves": [
        (lambda w: train.plot_curves(3, {"a": [1]}), TypeError, "plot_curves: path must be"),
        (lambda w: train.plot_curves("x.png", 3), TypeError, "curves must be values by name"),
        (lambda w: train.plot_curves("x.png", {}), TypeError, "one at least; got {}"),
        (lambda w: train.plot_curves("x.png", {"a": ["b"]}), TypeError, "'a' must be numbers"),
        (lambda w: train.plot_curves("x.png", {"a": [1]}, log="q"), ValueError, "log must be x"),
        (lambda w: train.plot_curves("x.png", {"a": [1]}, points="a"), ValueError, "must be names"),
        (lambda w: train.plot_curves("x.png", {"a": [1]}, points=["b"]), ValueError, "got ['b']"),
        (lambda w: train.plot_curves("x.png", {"a": [1]}, marks={"m": "1"}), TypeError, "mark 'm'"),
        (lambda w: train.plot_curves("x.png", {"a": [1]}, most="1"), TypeError, "most must be"),
        (lambda w: train.plot_curves("no/x.png", {"a": [1]}), FileNotFoundError, "no folder no"),
    ],
    "check_plot": [
        (lambda w: train.check_plot(3), TypeError, "check_plot: path must be a path or text"),
        (lambda w: train.check_plot("no/p.png"), FileNotFoundError, "there is no folder no: make"),
        (lambda w: train.check_plot("file/p.png"), NotADirectoryError, "file is a file; a folder"),
        (
            lambda w: train.check_plot("folder"),
            IsADirectoryError,
            "folder is a folder: name a file",
        ),
    ],
    "script_options": [
        (lambda w: train.script_options(3), TypeError, "must be an argparse.ArgumentParser; got 3"),
    ],
    "plot_matrix": [
        (lambda w: train.plot_matrix(3, [[1]], ["a"]), TypeError, "plot_matrix: path must be"),
        (lambda w: train.plot_matrix("x.png", [[1, 2]], ["a"]), ValueError, "must be (1, 1)"),
    ],
}

# What only holds values, is raised, or needs a package that may be missing.
WITHOUT = {
    "Callback", "Checkpoint", "CheckpointError", "ConfigError", "EvalMetrics", "FitResult",
    "ImageResults",
    "LRFinding", "MemoryPlan", "MetricsError", "NonFiniteError", "OutOfMemoryError", "StepMetrics",
    "StepResult", "StoppedAtOnce", "TensorBoardWriter", "TrainState", "TrainingError",
    "TrainingInterrupted", "WandbWriter", "system_info", "token_bytes",
}  # fmt: skip


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.mark.parametrize(
    ("name", "call", "error", "words"),
    [(name, *case) for name, cases in CASES.items() for case in cases],
    ids=[f"{name}-{number}" for name, cases in CASES.items() for number in range(len(cases))],
)
def test_a_wrong_argument_is_told(tmp_path, monkeypatch, world, name, call, error, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(error, match=re.escape(words)):
        call(world)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_every_public_name_has_a_case():
    assert CASES.keys() | WITHOUT == set(train.__all__)
    assert not CASES.keys() & WITHOUT


def test_what_is_as_good_is_taken(world):
    """NumPy's own numbers, and one text for several."""
    step = world.step(clip=np.float32(1.0))
    assert step([world.batch], lr=np.float64(0.1)).tokens > 0
    x, y = world.batch
    assert step([(x.astype(np.int64), y.astype(np.int64))]).tokens > 0
    assert evaluate(world.model, [world.batch], scores="accuracy").scores.keys() == {"accuracy"}
    assert f1_score(np.array([1], np.uint8), [1]) == 1.0
    assert world.model.config.vocab_size == VOCAB
    assert not inspect.isclass(world.trainer(loader=(b for b in [world.batch])))
