# SPDX-License-Identifier: MIT
from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from pyggml.errors import FormatError
from pyggml.train import (
    CheckpointError,
    TrainState,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
)

from .tiny import edit_state, record_file

MODEL = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.float32([1.5])}
OPTIMIZER = {
    "steps": np.asarray(3, np.int64),
    "lr": np.asarray(1e-3),
    "a.weight.m": np.ones((2, 3), np.float32),
    "extra": {"nested": np.zeros(2, np.float32), "name": "adamw"},
    "plain": 7,
}


def state(step, total=100):
    return TrainState(
        step, total, 1000, 1.5, {"epoch": 1, "position": 2}, {"generator": {"x": 2**100}},
        {"lr": 0.1}, {"step": 1, "loss": 2.0, "stale": 0}, {"tokens": 5, "crc32": 1},
    )  # fmt: skip


def save(folder, *steps, keep=2):
    for step in steps:
        path = save_checkpoint(folder, state(step), MODEL, OPTIMIZER, keep)
    return path


def test_round_trip(tmp_path):
    path = save(tmp_path, 10)
    assert path.name == "step-000010"
    assert sorted(p.name for p in path.iterdir()) == [
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
    back = load_checkpoint(path)
    assert back.state == state(10)
    assert back.path == path
    for name, array in MODEL.items():
        np.testing.assert_array_equal(back.model[name], array)
    assert back.optimizer["plain"] == 7
    assert back.optimizer["extra"]["name"] == "adamw"
    assert back.optimizer["steps"].shape == ()
    assert back.optimizer["lr"].dtype == np.float64
    np.testing.assert_array_equal(back.optimizer["extra"]["nested"], np.zeros(2, np.float32))


def test_the_newest_are_kept_and_latest_names_the_last(tmp_path):
    save(tmp_path, 1, 2, 3, 4, keep=2)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-000003", "step-000004"]
    assert (tmp_path / "latest").read_text() == "step-000004\n"
    assert latest_checkpoint(tmp_path).name == "step-000004"


def test_steps_beyond_six_digits_sort_by_number(tmp_path):
    save_checkpoint(tmp_path, state(999_999, 10**7), MODEL, {}, 3)
    save_checkpoint(tmp_path, state(1_000_000, 10**7), MODEL, {}, 3)
    assert latest_checkpoint(tmp_path).name == "step-1000000"


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 5)
    other = {"w": np.float32([9])}
    save_checkpoint(tmp_path, state(5), other, {})
    assert list(load_checkpoint(tmp_path / "step-000005").model) == ["w"]


def test_no_folder_is_no_checkpoint(tmp_path):
    assert latest_checkpoint(tmp_path / "absent") is None
    assert list_checkpoints(tmp_path / "absent") == []


def test_keep_below_one_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep must be"):
        save(tmp_path, 1, keep=0)


def test_leftovers_are_ignored_and_cleaned(tmp_path):
    save(tmp_path, 1)
    half = tmp_path / "step-000002"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (tmp_path / "latest").write_text("step-000009\n")
    assert latest_checkpoint(tmp_path).name == "step-000001"
    save(tmp_path, 3)
    assert not half.exists()


def test_kill_while_saving_leaves_the_earlier_one(tmp_path):
    code = f"""
    import os, signal
    import pyggml.train.checkpoints.checkpoint as c
    from pyggml.train import TrainState, save_checkpoint
    import numpy as np
    model = {{"w": np.zeros(4, np.float32)}}
    save_checkpoint({str(tmp_path)!r}, TrainState(1, 9), model, {{}})
    write = c.write_safetensors
    def killed(file, arrays):
        write(file, arrays)
        if not arrays:
            os.kill(os.getpid(), signal.SIGKILL)
    c.write_safetensors = killed
    save_checkpoint({str(tmp_path)!r}, TrainState(2, 9), model, {{}})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, check=False
    )
    assert done.returncode == -9
    assert any(p.name.startswith(".step-000002") for p in tmp_path.iterdir())
    path = latest_checkpoint(tmp_path)
    assert path.name == "step-000001"
    load_checkpoint(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-000001"]


def disk_full(place, *rest):
    if not isinstance(place, Path):
        place.write(b"partial")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_full_disk_keeps_the_earlier_one(tmp_path, monkeypatch):
    save(tmp_path, 1)
    monkeypatch.setattr("pyggml.train.checkpoints.checkpoint.write_safetensors", disk_full)
    with pytest.raises(CheckpointError) as caught:
        save(tmp_path, 2)
    for word in ("step-000002", "No space left", "step-000001 is whole", "resume"):
        assert word in str(caught.value)
    monkeypatch.undo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-000001"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000001"
    load_checkpoint(tmp_path / "step-000001")


def test_full_disk_after_the_rename_says_that_the_new_one_is_whole(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def latest_fails(path, mode):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("pyggml.train.checkpoints.checkpoint.atomic_write", latest_fails)
    with pytest.raises(CheckpointError) as caught:
        save(tmp_path, 2)
    for word in ("step-000002 is whole", "latest could not be written", "No space", "resume"):
        assert word in str(caught.value)
    assert "step-000001" not in str(caught.value)
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000002"
    assert load_checkpoint(tmp_path / "step-000002").state == state(2)


def test_file_size_limit_is_a_full_disk(tmp_path):
    """The operating system itself refuses the write here, not a stand-in."""
    code = f"""
    import resource, signal
    import numpy as np
    from pyggml.train import CheckpointError, TrainState, save_checkpoint
    folder = {str(tmp_path)!r}
    save_checkpoint(folder, TrainState(1, 9), {{"w": np.ones(10, np.float32)}}, {{}})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        save_checkpoint(folder, TrainState(2, 9), {{"w": np.ones(10**6, np.float32)}}, {{}})
    except CheckpointError as error:
        print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert "could not be written" in done.stdout, done.stderr
    assert "step-000001 is whole" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-000001"]
    np.testing.assert_array_equal(
        load_checkpoint(tmp_path / "step-000001").model["w"], np.ones(10, np.float32)
    )


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("harm", ["missing", "truncated", "flipped", "empty"])
def test_damaged_arrays_are_named(tmp_path, name, harm):
    path = save(tmp_path, 3, 4) / name
    data = bytearray(path.read_bytes())
    if harm == "missing":
        path.unlink()
    elif harm == "truncated":
        path.write_bytes(data[:-1])
    elif harm == "empty":
        path.write_bytes(b"")
    else:
        data[-1] ^= 1
        path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        load_checkpoint(path.parent)
    assert str(path) in str(caught.value)
    assert f'resume("{tmp_path / "step-000003"}")' in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"format": 99}, "format"),
        ({"format": ...}, "format"),
        ({"step": ...}, "'step' is missing"),
        ({"step": "ten"}, "'step' must be int"),
        ({"step": True}, "'step' must be int"),
        ({"step": -1}, "step must not be negative"),
        ({"step": 5}, "step must be that of the directory"),
        ({"total_steps": 1}, "total_steps must be at least step"),
        ({"tokens": None}, "'tokens'"),
        ({"elapsed_s": "long"}, "'elapsed_s' must be int or float"),
        ({"loader": []}, "'loader' must be dict"),
        ({"rng": ...}, "'rng' is missing"),
        ({"config": 1}, "'config'"),
        ({"best": 3}, "'best'"),
        ({"best": {"a": 1}}, "'best.step' is missing"),
        ({"best": {"step": -1, "loss": 1.0, "stale": 0}}, "best.step must not be negative"),
        ({"best": {"step": 1, "loss": 10**400, "stale": 0}}, "best.loss must be at most"),
        ({"tokens": 10**400}, "tokens must be at most"),
        ({"elapsed_s": 10**400}, "elapsed_s must be at most"),
        ({"elapsed_s": float("inf")}, "elapsed_s must be at most"),
        ({"total_steps": 10**400}, "total_steps must be at most"),
        ({"best": {"step": 1}}, "is missing"),
        ({"best": {"step": 1, "loss": "low", "stale": 0}}, "'best.loss' must be"),
        ({"optimizer": {"a": 1, "a/b": 2}}, "'optimizer' is inconsistent"),
        ({"files": {}}, "'files.model.safetensors' is missing"),
        ({"files": {"model.safetensors": 3}}, "'files.model.safetensors' must be dict"),
        ({"files": {"model.safetensors": {"size_bytes": 1}}}, "size_bytes and sha256"),
        ({"optimizer": ...}, "'optimizer' is missing"),
    ],
)
def test_damaged_state_names_file_and_field(tmp_path, changes, word):
    path = save(tmp_path, 4)
    edit_state(path, **changes)
    with pytest.raises(FormatError) as caught:
        load_checkpoint(path)
    assert str(path / "state.json") in str(caught.value)
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"3", b"3" * 5000]
)
def test_state_that_is_no_object(tmp_path, content):
    path = save(tmp_path, 4)
    (path / "state.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"state\.json"):
        load_checkpoint(path)


def test_a_missing_directory_is_a_format_error(tmp_path):
    with pytest.raises(FormatError, match="missing"):
        load_checkpoint(tmp_path / "step-000001")


def test_foreign_arrays_with_a_right_checksum_are_refused(tmp_path):
    path = save(tmp_path, 4)
    (path / "model.safetensors").write_bytes(b"this is no safetensors file")
    record_file(path / "model.safetensors")
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        load_checkpoint(path)


def test_a_copied_checkpoint_loads_from_anywhere(tmp_path):
    path = save(tmp_path / "run", 4)
    shutil.copytree(path, tmp_path / "elsewhere")
    assert load_checkpoint(tmp_path / "elsewhere").state.step == 4


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_pruning_removes_a_link_and_not_what_it_names(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    kept = save(other, 1)
    run.mkdir()
    (run / "step-000001").symlink_to(kept)
    (run / "step-000000").symlink_to(tmp_path / "nothing")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").touch()
    (run / "step-000009").symlink_to(mine)  # no checkpoint, but a name of one
    assert list_checkpoints(run) == [run / "step-000001"]
    save(run, 2, 3)
    assert [p.name for p in list_checkpoints(run)] == ["step-000002", "step-000003"]
    assert not (run / "step-000001").is_symlink()
    assert load_checkpoint(kept).state.step == 1
    assert (mine / "notes.txt").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_a_save_replaces_a_link_and_not_what_it_names(tmp_path):
    run, kept = tmp_path / "run", save(tmp_path / "other", 5)
    run.mkdir()
    (run / "step-000005").symlink_to(kept)
    before = (kept / "state.json").read_bytes()
    save_checkpoint(run, state(5, 77), MODEL, {})
    assert (kept / "state.json").read_bytes() == before
    assert load_checkpoint(run / "step-000005").state.total_steps == 77


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
@pytest.mark.parametrize("make", [os.mkdir, getattr(os, "mkfifo", None)])
def test_what_is_no_file_is_not_said_to_be_damaged(tmp_path, make):
    path = save_checkpoint(tmp_path, state(5), MODEL, OPTIMIZER)
    (path / "model.safetensors").unlink()
    make(path / "model.safetensors")
    with pytest.raises(FormatError, match=r"model\.safetensors: cannot be read: "):
        load_checkpoint(path)


def test_a_foreign_file_of_any_name_is_named(tmp_path):
    path = save_checkpoint(tmp_path, state(5), MODEL, OPTIMIZER)
    Path(os.fsdecode(os.fsencode(path) + b"/caf\xe9")).write_text("")
    with pytest.raises(FormatError, match=r"/caf\\xe9: is not a file of this checkpoint"):
        load_checkpoint(path)
