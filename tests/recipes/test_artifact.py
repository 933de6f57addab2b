# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import re
import stat
import subprocess
import sys

import pytest

from pyggml.errors import ConfigError, FormatError
from pyggml.recipes import ArtifactDir, LLMConfig, LLMRun
from pyggml.recipes.tuning.results import FinetuneArtifact

is_root = hasattr(os, "geteuid") and os.geteuid() == 0


def make_run(path):
    artifact = ArtifactDir(path)
    artifact.create({"note": 1})
    artifact.model.write_bytes(b"model")
    (artifact.checkpoints / "step-000001").mkdir(parents=True)
    return artifact


def test_a_new_or_empty_folder_is_fine(tmp_path):
    ArtifactDir(tmp_path).check_new()
    ArtifactDir(tmp_path / "a" / "b").check_new()
    assert not (tmp_path / "a").exists()


def test_a_run_is_never_replaced_unasked(tmp_path):
    artifact = make_run(tmp_path)
    with pytest.raises(ConfigError, match=r"holds another run.*`resume`.*`overwrite`"):
        artifact.check_new()
    artifact.check_new(overwrite=True)
    assert artifact.model.read_bytes() == b"model"


def test_overwriting_removes_the_run_and_nothing_else(tmp_path):
    artifact = make_run(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    artifact.create({"note": 2}, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "notes.txt"]
    assert artifact.read_config()["note"] == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_files_are_refused(tmp_path, overwrite):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match=r"no run of pyggml \(thesis.tex\)"):
        ArtifactDir(tmp_path).check_new(overwrite)


@pytest.mark.parametrize(
    "content",
    ['{"model_type": "bert"}', "no json", "[]", "3" * 5000, '{"a":' + "[" * 600 + "]" * 600 + "}"],
)
def test_a_foreign_config_is_no_run(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match="no run of pyggml"):
        ArtifactDir(tmp_path).check_new(overwrite=True)
    with pytest.raises((ConfigError, FormatError), match=r"config\.json"):
        ArtifactDir(tmp_path).check_resume()


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="is a file: give a folder"):
        ArtifactDir(file).check_new()
    with pytest.raises(ConfigError, match="lies below"):
        ArtifactDir(file / "run").check_new()
    with pytest.raises(ConfigError, match="is a file"):
        ArtifactDir(file).check_resume()


@pytest.mark.skipif(is_root, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(ConfigError, match="not writable"):
            ArtifactDir(tmp_path / "run").check_new()
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_no_permission_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="not writable"):
        ArtifactDir(tmp_path).check_new()


def test_a_folder_that_cannot_be_made_is_named():
    if not os.path.isdir("/proc/self"):
        pytest.skip("needs /proc, where nobody can make folders")
    with pytest.raises(ConfigError, match="/proc/none"):
        ArtifactDir("/proc/none").create({})


def test_resuming_needs_a_run(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        ArtifactDir(tmp_path / "absent").check_resume()
    make_run(tmp_path).check_resume()


def test_what_a_killed_process_leaves_is_in_nobody_s_way(tmp_path):
    """Killed while it wrote config.json, on any machine: the same command begins anew."""
    code = (
        "import os, sys\n"
        "from pyggml.recipes.artifact import ArtifactDir\n"
        "os.fsync = lambda file: os._exit(9)\n"
        f"ArtifactDir({str(tmp_path)!r}).create({{}})\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    (left,) = tmp_path.iterdir()
    left.rename(elsewhere := tmp_path / re.sub("-[0-9a-f]{12}-", "-0123456789ab-", left.name))
    with pytest.raises(ConfigError, match="holds no run"):
        ArtifactDir(tmp_path).check_resume()
    ArtifactDir(tmp_path).check_new()
    make_run(tmp_path).check_resume()
    assert elsewhere.exists()  # whose process cannot be asked


def test_a_run_without_its_configuration_is_told(tmp_path):
    artifact = make_run(tmp_path)
    artifact.checkpoints.mkdir(exist_ok=True)
    artifact.config.unlink()
    for check in (artifact.check_new, artifact.check_resume):
        with pytest.raises(ConfigError, match=r"holds checkpoints, but no config\.json: put that"):
            check()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_or_a_folder_of_a_file_s_name_is_found_before_the_training(tmp_path):
    artifact = make_run(tmp_path)
    os.mkfifo(artifact.plot)
    with pytest.raises(ConfigError, match=r"loss\.png must be a file of the run and is none"):
        artifact.check_resume()
    artifact.plot.unlink()
    artifact.tensorboard.write_text("")
    with pytest.raises(ConfigError, match="tensorboard must be a folder of the run"):
        artifact.check_resume()
    with pytest.raises(ConfigError, match=r"`overwrite`: .*tensorboard must be a folder"):
        artifact.check_new(overwrite=True)
    artifact.tensorboard.unlink()
    artifact.samples.symlink_to(tmp_path / "elsewhere")  # a file is made there
    artifact.check_resume()
    artifact.plot.symlink_to(tmp_path / "none" / "elsewhere")
    with pytest.raises(ConfigError, match=r"loss\.png must be a file of the run and is none"):
        artifact.check_resume()


def test_config_of_another_version_is_refused(tmp_path):
    artifact = make_run(tmp_path)
    artifact.config.write_text(artifact.config.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(FormatError, match="format must be 1"):
        artifact.read_config()


def test_one_process_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    artifact = make_run(tmp_path)
    with artifact.lock():
        other = ArtifactDir(tmp_path)
        with pytest.raises(ConfigError, match="in use"), other.lock():
            raise AssertionError("must not get here")
        with pytest.raises(ConfigError, match="in use"):
            other.create({})
        assert artifact.model.exists()
    with artifact.lock():
        assert artifact.holds_run


def test_creating_looks_again(tmp_path):
    artifact = make_run(tmp_path)
    with pytest.raises(ConfigError, match="holds another run"):
        artifact.create({"note": 2})
    assert artifact.model.read_bytes() == b"model"
    with artifact.lock():
        assert artifact.read_config()["note"] == 1


def small(folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 40)
    return LLMConfig(
        text=(str(text),), tokenizer="chars", artifact_dir=str(folder), layers=1, heads=1, embd=8,
        seq_len=8, steps=2, warmup=0, threads=1, sample_tokens=0,
    )  # fmt: skip


def test_a_run_that_was_made_meanwhile_stays(tmp_path):
    """The other run comes while the text is being read, and is finished before that ends."""
    folder = tmp_path / "run"
    with pytest.raises(ConfigError, match="holds another run"):
        LLMRun.prepare(small(folder, tmp_path), note=lambda text: make_run(folder))
    assert (folder / "model.gguf").read_bytes() == b"model"
    assert (folder / "checkpoints" / "step-000001").is_dir()


@pytest.mark.slow
def test_nobody_comes_between_preparation_and_training(tmp_path):
    pytest.importorskip("fcntl")
    folder = tmp_path / "run"
    code = (
        "import sys\nfrom pyggml.errors import ConfigError\n"
        "from pyggml.recipes import ArtifactDir\n"
        "try:\n    ArtifactDir(sys.argv[1]).create({}, overwrite=True)\n"
        "except ConfigError as error:\n    print(error)\n"
    )

    def other():
        return subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        ).stdout  # fmt: skip

    run = LLMRun.prepare(small(folder, tmp_path))
    assert "in use" in other()
    run.train()
    assert run.artifact.model.is_file()
    again = LLMRun.resume(str(folder))
    assert "in use" in other()
    again.train()
    assert other() == ""
    assert not run.artifact.model.exists()


def test_overwriting_keeps_the_files_of_others_in_the_folders_of_the_run(tmp_path):
    artifact = make_run(tmp_path)
    step, aside = (artifact.checkpoints / name for name in ("step-000001", "best.left1"))
    aside.mkdir()
    own = [step / "state.json", step / "model.safetensors", aside / "state.json"]
    own += [artifact.checkpoints / "latest", artifact.tensorboard / "events.out.tfevents.1"]
    own += [artifact.wandb / "run-1" / "a"]
    mine = [step / "mine", artifact.checkpoints / "mine", artifact.tensorboard / "mine"]
    mine += [artifact.wandb / "mine"]
    for path in (*own, *mine):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    artifact.create({}, overwrite=True)
    assert [path.exists() for path in own] == [False] * len(own)
    assert [path.exists() for path in mine] == [True] * len(mine)
    assert not aside.exists()


def test_overwriting_removes_the_adapter_and_the_model_of_transformers(tmp_path):
    make_run(tmp_path)
    artifact = FinetuneArtifact(tmp_path)
    mine = artifact.peft / "mine"
    own = [artifact.peft / "adapter_model.safetensors", artifact.folder / "config.json"]
    for path in (*own, mine):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    artifact.create({}, overwrite=True)
    assert [path.exists() for path in (*own, artifact.folder)] == [False] * 3
    assert mine.exists()


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_overwriting_keeps_a_link_to_another_disk(tmp_path):
    artifact, disk = make_run(tmp_path / "run"), tmp_path / "disk"
    (artifact.checkpoints / "step-000001").rmdir()
    artifact.checkpoints.rmdir()
    (disk / "step-000007").mkdir(parents=True)
    (disk / "mine").touch()
    artifact.checkpoints.symlink_to(disk)
    artifact.create({}, overwrite=True)
    assert artifact.checkpoints.is_symlink()
    assert [path.name for path in disk.iterdir()] == ["mine"]


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_overwriting_looks_into_no_linked_folder_of_others(tmp_path):
    artifact, other = make_run(tmp_path / "run"), tmp_path / "other"
    (other / "run-1").mkdir(parents=True)
    mine = [other / "run-1" / "mine", other / "debug-mine.log", other / "events.out.tfevents.1"]
    mine += [other / "adapter_config.json", other / "config.json"]
    for path in mine:
        path.touch()
    for link in (artifact.wandb, artifact.tensorboard):
        link.symlink_to(other)
    artifact.create({}, overwrite=True)
    assert all(path.exists() for path in mine)
    assert artifact.wandb.is_symlink()


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_is_no_configuration(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ConfigError):
        ArtifactDir(tmp_path).check_new()
    with pytest.raises(FormatError, match=r"config\.json"):
        ArtifactDir(tmp_path).check_resume()
