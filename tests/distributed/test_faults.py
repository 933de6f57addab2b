# SPDX-License-Identifier: MIT
"""A rank that dies or is asked to stop ends the job, and the last checkpoint stands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyggml.train.checkpoints import load_checkpoint

from .ranks import command, environment, run_code
from .test_training import PROGRAM, train

pytestmark = pytest.mark.mpi
RANKS = 3
HANGS = """
import os, signal, sys, threading
from pyggml import distributed
group = distributed.init()
group.set_timeout({limit})
group.doing = "step 7"
group.barrier()
if group.rank == 1:
    {fault}
group.barrier()
print("on", flush=True)
"""
FAULTS = {
    "exit": ("sys.exit(1)", "the program ended there"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", "the process died"),
    "stop": ("os.kill(os.getpid(), signal.SIGSTOP)", "no sign of life"),
    "lock": ("threading.Event().wait()", "has done nothing"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_that_hangs_or_ends_is_named(tmp_path: Path, fault: str) -> None:
    code, said = FAULTS[fault]
    limit = 3 if fault in ("stop", "lock") else 30
    began = time.monotonic()
    done = run_code(2, tmp_path, HANGS.format(fault=code, limit=limit))
    assert time.monotonic() - began < 40
    assert done.returncode != 0
    assert done.stderr.count(said) == 1, done.stderr
    assert "rank 1 of 2 on " in done.stderr
    assert ", step 7: " in done.stderr


@pytest.mark.slow
def test_a_rank_that_computes_for_long_is_left_alone(tmp_path: Path) -> None:
    code = "import time\n    while time.process_time() < 3.5: pass"
    done = run_code(2, tmp_path, HANGS.format(fault=code, limit=2))
    assert done.stdout.split() == ["on", "on"], done.stderr


AGAIN = "trainer.fit(progress=False)"
ALONE = """
import numpy as np
import pyggml as pg
from pyggml import data, distributed, nn, optim, train
rank = distributed.init().rank
fails = []
def schedule(step):
    if step == 5 and rank in fails:
        fails.clear()
        raise OSError("once")
    return 1e-2
x = np.random.default_rng(0).standard_normal((64, 4)).astype("f4")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
trainer = train.Trainer(
    model, data.ArrayDataset(x, np.arange(64) % 3), optimizer=optim.AdamW(model), batch_size=8,
    steps=9, schedule=schedule, rank_timeout=30,
)
fails.append({rank})
try:
    trainer.fit(progress=False)
except OSError:
    {again}
print("rank", rank, "came to step", trainer.step, flush=True)
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_alone_cannot_fit_again(rank: int, tmp_path: Path) -> None:
    """The others wait in the step that it has left."""
    done = run_code(2, tmp_path, ALONE.format(rank=rank, again=AGAIN))
    assert done.returncode != 0
    said = rf"Trainer.fit: every rank must call it; an error has ended .* rank {rank} alone"
    assert re.search(said, done.stderr), done.stderr
    assert "came to step" not in done.stdout


def test_ranks_that_fail_together_fit_again(tmp_path: Path) -> None:
    done = run_code(2, tmp_path, ALONE.format(rank="rank", again=AGAIN))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("came to step 9") == 2


ROUNDS = """
import numpy as np
import pyggml as pg
from pyggml import data, distributed, nn, optim, train
rank = distributed.init().rank
fails = []
def schedule(step):
    if fails and step == 4 - rank:
        fails.clear()
        raise OSError("once")
    return 1e-2
x = np.random.default_rng(0).standard_normal((64, 4)).astype("f4")
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
trainer = train.Trainer(
    model, data.ArrayDataset(x, np.arange(64) % 3), optimizer=optim.AdamW(model), batch_size=8,
    steps=9, schedule=schedule, rank_timeout=30, sync_every={every}, checkpoint_dir="checkpoints",
    eval_every=0, save_every={every},
)
fails.append(rank)
try:
    trainer.fit(progress=False)
except OSError:
    pass
try:
    trainer.fit(progress=False)
except pg.DistributedError as error:
    print(error, flush=True)
    trainer.resume("checkpoints/step-000003")
    trainer.fit(progress=False)
print("rank", rank, "came to step", trainer.step, flush=True)
"""


@pytest.mark.parametrize("every", [3, 5])
def test_local_steps_go_on_in_the_same_round(
    every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank fails at step 4, the other one at step 3, where an average may be."""
    monkeypatch.chdir(tmp_path)
    done = run_code(2, tmp_path, ROUNDS.format(every=every))
    assert done.returncode == 0, done.stderr
    told = "the ranks must be between the same averages of their weights; errors have ended them"
    assert done.stdout.count(f"{told} at steps from 3 to 4") == (2 if every == 3 else 0)
    assert done.stdout.count("came to step 9") == 2


def test_ranks_that_go_on_differently_are_told(tmp_path: Path) -> None:
    again = 'trainer.resume("checkpoint") if rank else ' + AGAIN
    done = run_code(2, tmp_path, ALONE.format(rank="rank", again=again))
    assert done.returncode != 0
    assert re.search(r"(rank 1 has called Trainer.resume|rank 0 has called .*fit)", done.stderr)
    assert "came to step" not in done.stdout


def lives(process: int) -> bool:
    """Return whether a process runs; one that nobody has asked for its end does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "term", "interrupt"])
def test_a_lost_rank_ends_the_job(tmp_path: Path, fault: str) -> None:
    folder, out = tmp_path / "checkpoints", tmp_path / "out"
    call = command(RANKS, PROGRAM, "f32", folder, "1000000")
    with out.open("wb") as file:
        job = subprocess.Popen(call, stdout=file, stderr=file, env=environment())
    end = time.monotonic() + 60
    while not (folder / "latest").exists() and time.monotonic() < end:
        time.sleep(0.05)
    processes = [int((tmp_path / f"process-{rank}").read_text()) for rank in range(RANKS)]
    if fault == "kill":
        os.kill(processes[1], signal.SIGKILL)
    elif fault == "term":
        os.kill(processes[2], signal.SIGTERM)
    else:
        job.send_signal(signal.SIGINT)
    assert job.wait(60) != 0
    end = time.monotonic() + 10
    while any(map(lives, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(lives, processes))
    told = out.read_text(errors="replace")
    if fault == "kill":
        assert told.count("the process died") == 1, told
        assert "rank 1 of 3" in told
        assert ", step " in told
    if fault == "term":  # of one rank: all of them stop after the same step
        assert told.count("training stopped after step") == 1, told
    state = load_checkpoint(folder / (folder / "latest").read_text().strip()).state
    assert state.step >= 10
    rest = train(2, "f32", folder, str(state.step + 3))
    assert len(rest["losses"]) == 3


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


@pytest.mark.slow
@pytest.mark.parametrize("case", ["f32", "zero3"])
def test_kills_at_any_instant_lose_no_bit(tmp_path: Path, case: str) -> None:
    random, stop, kills = np.random.default_rng(0), "1000", 0
    folder = tmp_path / "killed" / "checkpoints"
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = train(RANKS, case, tmp_path / "whole" / "checkpoints", stop)
    for turn in range(10):
        files = [folder.parent / f"process-{rank}" for rank in range(RANKS)]
        for file in files:
            file.unlink(missing_ok=True)
        with (tmp_path / f"out-{turn}").open("wb") as file:
            call = command(RANKS, PROGRAM, case, folder, stop)
            job = subprocess.Popen(call, stdout=file, stderr=file, env=environment())
        wait_for(lambda files=files: all(each.exists() and each.read_text() for each in files))
        processes = [int(each.read_text()) for each in files]
        time.sleep(random.uniform(0, 1))
        kills += job.poll() is None
        os.kill(processes[turn % RANKS], signal.SIGKILL)
        assert job.wait(60) != 0
        wait_for(lambda processes=processes: not any(map(lives, processes)), 10)
        told = (tmp_path / f"out-{turn}").read_text(errors="replace")
        assert told.count("the process died") == 1, told
        assert f"rank {turn % RANKS} of 3" in told
    assert kills == 10
    rest = train(RANKS, case, folder, stop)
    assert 0 < len(rest["losses"]) < 1000
    assert rest["losses"] == whole["losses"][-len(rest["losses"]) :]
    assert rest["digests"] == whole["digests"]


@pytest.mark.parametrize("ends", [3, 2])
def test_launch_starts_a_failed_job_again(tmp_path: Path, ends: int) -> None:
    command(1, "-c", "")  # skips without MPI
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nfrom pathlib import Path\n"
        "rank, size = os.environ['OMPI_COMM_WORLD_RANK'], os.environ['OMPI_COMM_WORLD_SIZE']\n"
        f"mark = Path({str(tmp_path)!r}) / f'mark-{{rank}}-{{size}}'\n"
        f"mark.touch()\nsys.exit(0 if size == '2' else {ends})\n"
    )
    call = [sys.executable, "-m", "pyggml", "launch", "-n", "3", "--restarts", "2"]
    call += ["--min-ranks", "2", sys.executable, str(program)]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert done.returncode == (0 if ends == 3 else 2), done.stderr
    assert (tmp_path / "mark-1-2").exists() == (ends == 3)
    assert done.stderr.count("restart 1 of 2 with 2 ranks") == (ends == 3)


def with_a_full_disk(folder: Path, rank: int, size_bytes: int, steps: int) -> Any:
    """Train on two ranks, of which one cannot write files beyond a size."""
    code = f"""
import resource, sys
from pathlib import Path
sys.path.insert(0, {str(PROGRAM.parent)!r})
import training
from pyggml import distributed
trainer, _ = training.make("f32", Path({str(folder / "checkpoints")!r}), {steps})
if distributed.rank() == {rank}:
    resource.setrlimit(resource.RLIMIT_FSIZE, ({size_bytes}, {size_bytes}))
trainer.fit()
print("step", trainer.step)
"""
    return run_code(2, folder, code)


@pytest.mark.slow
def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    done = with_a_full_disk(tmp_path, 0, 3000, 50)
    assert done.returncode == 1
    assert done.stderr.count("could not be written") == 1, done.stderr


@pytest.mark.slow
def test_a_rank_that_cannot_write_a_file_trains_on(tmp_path: Path) -> None:
    done = with_a_full_disk(tmp_path, 1, 0, 4)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 4") == 2
    assert any((tmp_path / "checkpoints").iterdir())


def test_without_mpi_one_rank_tells_it(tmp_path: Path) -> None:
    code = "import sys\nsys.modules['mpi4py'] = None\nfrom pyggml import distributed\n"
    done = run_code(2, tmp_path, code + "distributed.init()\n")
    assert done.returncode == 1
    assert done.stderr.count("errors.DistributedError:") == 1
