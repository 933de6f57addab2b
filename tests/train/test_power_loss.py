# SPDX-License-Identifier: MIT
"""Whenever the power goes, a whole checkpoint is found: the new one or the one before."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from pyggml.io import read_gguf
from pyggml.train import latest_checkpoint, load_checkpoint

from ..power_loss.replay import Disk, Tree, check_states, record

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs LD_PRELOAD and cc"
)

BEGIN = """
import ctypes, sys
from pathlib import Path
import numpy as np
from pyggml.io import save_safetensors, write_gguf
from pyggml.train import TrainState, save_checkpoint
from pyggml.train.checkpoints.best import keep_best
mark = ctypes.CDLL(None).power_mark
root = Path(sys.argv[1])
folder = root / "run" / "checkpoints"
def arrays(step):
    return {"w": np.full(50, step, np.float32)}
def state(step):
    return TrainState(step, 99, best={"step": step, "loss": 1.0 / step, "stale": 0})
def save(step):
    return save_checkpoint(folder, state(step), arrays(step), {"m": np.ones(9)}, keep=1)
def best(step, same=None):
    keep_best(folder, state(step), arrays(step), {"m": np.ones(9)}, same)
"""
PROGRAMS = {
    "saved": "save(1); mark(1); save(2); mark(2)\n",
    "saved and pruned": "for step in (1, 2, 3, 4):\n    save(step); mark(step)\n",
    "saved again": "save(1); save(2); mark(2); save(2); mark(2)\n",
    "best by links": "save(1); mark(1); best(1, save(2)); mark(2); best(2, save(3)); mark(3)\n",
    "best alone": "best(1); mark(1); best(2); mark(2); best(3); mark(3)\n",
    "best and others": "save(1); mark(1); best(2); mark(2); save(3); mark(3); best(4); mark(4)\n",
}


def check_checkpoint(folder: Path, mark: int) -> None:
    path = latest_checkpoint(folder / "run" / "checkpoints")
    if path is None:
        assert mark == 0
        return
    found = load_checkpoint(path)
    assert found.state.step >= mark
    np.testing.assert_array_equal(found.model["w"], np.full(50, found.state.step, np.float32))


@pytest.mark.parametrize(
    "name", ["saved", *(pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS if n != "saved")]
)
def test_a_whole_checkpoint_is_found(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    operations = record(BEGIN + PROGRAMS[name], root, tmp_path)
    assert {"o", "w", "f", "r", "d", "M"} <= {each.kind for each in operations}
    assert check_states(operations, root, tmp_path, check_checkpoint, 1) > 30


FILES = {
    "m.gguf": "write_gguf(root / 'm.gguf', {}, arrays(step))",
    "m.safetensors": "save_safetensors(root / 'm.safetensors', arrays(step))",
}


@pytest.mark.parametrize("name", FILES)
def test_a_model_file_is_the_old_or_the_new_one(tmp_path: Path, name: str) -> None:
    from pyggml.io import load_safetensors

    def check(folder: Path, mark: int) -> None:
        path = folder / name
        if not path.exists():
            assert mark == 0
        elif path.suffix == ".gguf":
            with read_gguf(path) as file:
                assert file.array("w")[0] >= mark
                assert len(set(file.array("w").tolist())) == 1
        else:
            assert load_safetensors(path)["w"][0] >= mark

    root = tmp_path / "root"
    root.mkdir()
    program = f"for step in (1, 2, 3):\n    {FILES[name]}; mark(step)\n"
    assert check_states(record(BEGIN + program, root, tmp_path), root, tmp_path, check) > 10


FOREIGN = """
import os
from pyggml.io import atomic_dir
def write(text):
    with atomic_dir(root / "ck", replace=True) as folder:
        (folder / "own").write_text(text)
def flush(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
write("1")
(root / "ck" / "notes").write_text("mine")
flush(root / "ck" / "notes")
flush(root / "ck")
mark(1)
write("2")
"""


def test_a_file_of_others_in_a_replaced_folder_stays(tmp_path: Path) -> None:
    def check(folder: Path, mark: int) -> None:
        assert not mark or [path.read_text() for path in folder.rglob("notes")] == ["mine"]

    root = tmp_path / "root"
    root.mkdir()
    assert check_states(record(BEGIN + FOREIGN, root, tmp_path), root, tmp_path, check) > 10


def test_lines_that_are_put_aside_stay(tmp_path: Path) -> None:
    def check(folder: Path, mark: int) -> None:
        assert not mark or "mine" in [path.read_text() for path in folder.rglob("m.jsonl*")]

    root = tmp_path / "root"
    root.mkdir()
    program = (
        "from pyggml.train import MetricsFile\n(root / 'm.jsonl').write_text('mine')\n"
        "import os\nfor path in (root / 'm.jsonl', root):\n"
        "    fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.close(fd)\n"
        "mark(1)\nMetricsFile(root / 'm.jsonl').begin(0)\n"
    )
    check_states(record(BEGIN + program, root, tmp_path), root, tmp_path, check)


def kept(program: str, root: Path, work: Path) -> Tree:
    """What is on the disk for certain when the power goes after a program."""
    root.mkdir()
    disk = Disk(root)
    for operation in record(program, root, work):
        disk.play(operation)
    return disk.tree(set(), "disk", random.Random(0))


GRPO = """
import sys
from pyggml.data import Tokenizer
from pyggml.models import build
from pyggml.recipes import grpo
tokenizer = Tokenizer.chars(["0123="])
sizes = {"vocab_size": tokenizer.vocab_size, "context": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
build("llama", sizes).save(sys.argv[1] + "/base.gguf", tokenizer)
grpo(sys.argv[1] + "/base.gguf", [{"prompt": "1="}], lambda completions, **rest: [0.5, 1.0],
     num_generations=2, max_tokens=2, steps=2, save_every=1, artifact_dir=sys.argv[1] + "/a/run")
"""


def test_a_finished_run_of_grpo_is_on_the_disk(tmp_path: Path) -> None:
    found = kept(GRPO, tmp_path / "root", tmp_path)
    assert {"/a/run/adapter.gguf", "/a/run/checkpoints/step-000002/state.json"} <= set(found)


def test_the_folder_of_metrics_is_on_the_disk(tmp_path: Path) -> None:
    program = "from pyggml.train import MetricsFile\nMetricsFile(root / 'a/b/m.jsonl').begin(0)\n"
    assert {"/a", "/a/b"} <= set(kept(BEGIN + program, tmp_path / "root", tmp_path))


def test_the_replay_finds_what_is_not_flushed(tmp_path: Path) -> None:
    """A writer without a flush, which every file system without a power loss would forgive."""
    root = tmp_path / "root"
    root.mkdir()
    program = (
        "import os\nfor step in (1, 2):\n"
        "    (root / 'new').write_bytes(b'%d' % step)\n    os.rename(root / 'new', root / 'a')\n"
        "    mark(step)\n"
    )

    def check(folder: Path, mark: int) -> None:
        assert not mark or int((folder / "a").read_bytes()) >= mark

    operations = record(BEGIN + program, root, tmp_path)
    with pytest.raises(AssertionError, match="after operation"):
        check_states(operations, root, tmp_path, check)
