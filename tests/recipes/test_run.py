# SPDX-License-Identifier: MIT
"""Runs of all kinds: arguments, and folders of another kind."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from pyggml.errors import ConfigError, FormatError
from pyggml.recipes import ImageRun, LLMConfig, LLMRun, train_image, train_llm
from pyggml.recipes.describe import describe
from pyggml.train import CheckpointError, MetricsError

from ..train.test_trainer import At


@pytest.mark.parametrize(("train", "options"), [(train_llm, {}), (train_image, {"data": "digits"})])
@pytest.mark.parametrize("name", ["note", "prepared", "resume", "overwrite"])
def test_arguments_of_another_kind_raise(train, options, name):
    with pytest.raises(TypeError, match=f"{train.__name__}: {name} "):
        train(**{name: 3}, **options)


@pytest.mark.parametrize(("kind", "task"), [(LLMRun, "image"), (ImageRun, None)])
def test_a_run_of_another_kind_is_not_resumed(tmp_path, kind, task):
    record = {"kind": "pyggml training run", "format": 1, "task": task}
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"`resume`: .* holds a run of train-"):
        kind.resume(tmp_path)
    with pytest.raises(TypeError, match="note"):
        kind.resume(tmp_path, note=3)
    with pytest.raises(TypeError, match="overwrite must be True or False; got 'no'"):
        LLMRun.prepare(LLMConfig(artifact_dir=tmp_path), overwrite="no")


SMALL = {
    "layers": 1, "heads": 2, "embd": 16, "seq_len": 16, "tokenizer": "chars", "steps": 6,
    "save_every": 2, "eval_every": 2,
}  # fmt: skip


def removing(folder, harm, at=3):
    """A run during which something happens to its folder."""
    run = LLMRun.prepare(LLMConfig(artifact_dir=folder, **SMALL), callbacks=[At(at, harm)])
    run.artifact.path.joinpath("samples.jsonl").write_text("")
    return run


def test_files_removed_in_mid_run_are_written_again_or_named(tmp_path, caplog):
    def remove(trainer):
        for path in list(tmp_path.rglob("*")):
            if path.is_file() and path.name != "samples.jsonl":
                path.unlink()

    run = removing(tmp_path, remove)
    run.train()
    for name in ("tokenizer.json", "config.toml", "config.json", "model.gguf"):
        assert (tmp_path / name).is_file()
    assert "metrics.jsonl was removed; the lines before step 4 are lost" in caplog.text
    assert "tokenizer.json" in caplog.text.split("removed while the run trained; written again")[0]
    assert LLMRun.resume(tmp_path).trainer.step == 6


def test_a_file_that_cannot_be_written_again_is_an_error(tmp_path):
    run = removing(tmp_path, lambda trainer: (tmp_path / "samples.jsonl").unlink())
    with pytest.raises(
        FormatError, match=r"samples\.jsonl: removed while the run trained, and lost"
    ):
        run.train()
    assert run.artifact.model.exists()


@pytest.mark.parametrize("at", [3, 4])
def test_a_folder_moved_in_mid_run_is_not_said_to_be_whole(tmp_path, at):
    here, there = tmp_path / "here", tmp_path / "there"
    run = removing(here, lambda trainer: shutil.move(here, there), at)
    with pytest.raises((CheckpointError, MetricsError)) as caught:
        run.train()
    said = str(caught.value)
    assert "moved or removed? Give its new place" in said
    assert "is as it was" not in said
    assert LLMRun.resume(there).trainer.step == 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a finished run, of which each test takes a copy."""
    folder = tmp_path_factory.mktemp("trained")
    train_llm(artifact_dir=folder, **SMALL)
    return folder


def edited(trained, folder, part, name, value):
    """A copy of the run, in whose record an option is another."""
    path = shutil.copytree(trained, folder / "run") / "config.json"
    record = json.loads(path.read_text())
    assert name in record["train"][part]
    record["train"][part][name] = value
    path.write_text(json.dumps(record))
    return path


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("trainer", "lr", 0.003), ("trainer", "clip", 0.5), ("optimizer", "weight_decay", 0.3),
        ("optimizer", "no_decay", ["*"]), ("optimizer", "optimizer_options", {"eps": 0.1}),
    ],
)  # fmt: skip
def test_an_option_that_changed_in_the_record_is_told(trained, tmp_path, part, name, value):
    path, notes = edited(trained, tmp_path, part, name, value), []
    LLMRun.resume(path.parent, {"save_every": 3}, note=notes.append).artifact.release()
    (told,) = [line for line in notes if str(path) in line]
    now = re.escape(str(value))
    assert re.search(rf"`{name}` was .* in .*step-000006 and is {now} in .*config.json", told)


def test_an_option_that_is_given_is_not_taken_for_an_edit(trained, tmp_path):
    path, notes = shutil.copytree(trained, tmp_path / "run"), []
    changes = {"steps": 8, "save_every": 3, "weight_decay": 0.3}
    LLMRun.resume(path, changes, note=notes.append).artifact.release()
    assert not any(str(path) in line for line in notes)
    assert any("`weight_decay` was 0.1 and is now 0.3" in line for line in notes)


def test_tf32_is_kept_and_said_to_be_f32_on_the_cpu(tmp_path):
    run = LLMRun.prepare(LLMConfig(artifact_dir=tmp_path, precision="tf32", device="cpu", **SMALL))
    assert "tf32 matmuls (in f32: tf32 is CUDA's)" in dict(describe(run))["training"]
    run.train()
    again = LLMRun.resume(tmp_path, {"steps": 8}, note=lambda line: None)
    assert again.trainer.options.precision == "tf32"
    again.artifact.release()
    with pytest.raises(ConfigError, match=r"`precision` must be one of f32, tf32, .*'high'"):
        LLMConfig(precision="high")


@pytest.mark.parametrize(
    ("part", "name", "was", "value"), [("trainer", "accumulate", 1, 2), ("model", "heads", 2, 4)]
)
def test_an_option_that_makes_another_run_raises(trained, tmp_path, part, name, was, value):
    path = edited(trained, tmp_path, part, name, value)
    told = rf"config\.json: train\.{part}\.{name} must be {was}, .*; got {value}"
    with pytest.raises(FormatError, match=told):
        LLMRun.resume(path.parent)


def test_a_new_run_spares_the_files_of_others_where_its_checkpoints_go(trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "run")
    checkpoints = folder / "checkpoints"
    mine = [checkpoints / step / "mine" for step in ("step-000002", "step-000006", "best")]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.parent.name)
    train_llm(artifact_dir=folder, overwrite=True, **SMALL)
    left = [path.read_text() for path in checkpoints.rglob("mine")]
    assert sorted(left) == ["best", "step-000002", "step-000006"]
    assert LLMRun.resume(folder).trainer.step == 6
