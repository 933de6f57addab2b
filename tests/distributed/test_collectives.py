# SPDX-License-Identifier: MIT
"""Collective operations: of one process, and of ranks that mpiexec started."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml import distributed
from pyggml.distributed import launch
from pyggml.errors import DistributedError

from .ranks import run_code


def test_one_process_is_a_world() -> None:
    group = distributed.init("none")
    assert (group.rank, group.size, group.local_size) == (0, 1, 1)
    x = np.array([1.0, 2.0])
    assert distributed.all_reduce(x, "mean") is x
    assert distributed.broadcast(pg.ones(2)).tolist() == [1, 1]
    assert [a.tolist() for a in distributed.all_gather(pg.ones(2))] == [[1, 1]]
    assert group.first(lambda: 3) == 3
    assert group.sums(1, 2.5) == [1, 2.5]
    distributed.barrier()


@pytest.mark.parametrize(
    ("call", "kind", "name"),
    [
        (lambda: distributed.all_reduce([1.0]), TypeError, "x"),
        (lambda: distributed.all_reduce(np.ones(2), "product"), ValueError, "op"),
        (lambda: distributed.all_reduce(np.broadcast_to(1.0, 3)), ValueError, "x"),
        (lambda: distributed.broadcast(np.ones(2), 1), ValueError, "src"),
        (lambda: distributed.init("nccl"), ValueError, "backend"),
    ],
)
def test_wrong_arguments_are_named(call, kind, name) -> None:
    with pytest.raises(kind, match=name):
        call()


def test_launchers_of_two_mpis_are_told_apart(monkeypatch) -> None:
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE", raising=False)
    with pytest.raises(DistributedError, match="two MPIs"):
        launch.check_launcher("Open MPI v5.0.11, package: x")
    launch.check_launcher("MPICH Version: 4.2")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_VERSION", "4.1.8")
    with pytest.raises(DistributedError, match=r"4\.1\.8"):
        launch.check_launcher("Open MPI v5.0.11, package: x")


def test_a_missing_mpi4py_is_named(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    with pytest.raises(DistributedError, match="pyggml\\[mpi\\]"):
        launch.import_mpi()


RANKS = """
import numpy as np
import pyggml as pg
from pyggml import distributed as d
group = d.init()
assert d.init() is group and d.is_initialized() and group.local_size == 2
assert pg.get_threads() == 1
x = np.arange(3.0) + d.rank()
assert d.all_reduce(x).tolist() == [1, 3, 5]
assert d.all_reduce(pg.full((2,), float(d.rank())), "mean").tolist() == [0.5, 0.5]
assert d.all_reduce(np.array([d.rank()], np.float16), "max").tolist() == [1]
assert d.broadcast(np.full((2, 2), d.rank())[:, ::2], 1).tolist() == [[1], [1]]
assert [a.tolist() for a in d.all_gather(np.arange(d.rank()))] == [[], [0]]
assert group.any(d.rank() == 1) and not group.any(False)
try:
    group.first(lambda: 1 // 0)
except ZeroDivisionError:
    print(f"done {d.rank()}", flush=True)
big = np.full(10_000_000, 1.0 + d.rank(), np.float32)
group.reduce([big])
assert (big == 3).all()
d.barrier()
if d.rank() == 1:
    group.doing = "step 7"
    raise ValueError("a bad batch")
d.barrier()
"""


@pytest.mark.mpi
def test_ranks_reduce_and_fail_with_one_message(tmp_path: Path) -> None:
    done = run_code(2, tmp_path, RANKS)
    assert {"done 0", "done 1"} <= set(done.stdout.splitlines()), done.stderr
    assert done.returncode == 1
    assert done.stderr.count("a bad batch") == 2  # the line of the program, and its message
    assert "rank 1 of 2" in done.stderr
    assert "step 7" in done.stderr


@pytest.mark.mpi
@pytest.mark.slow
def test_a_rank_that_differs_is_refused(tmp_path: Path) -> None:
    code = """
import pyggml as pg
from pyggml import distributed as d
import os, pyggml
if os.environ["OMPI_COMM_WORLD_RANK"] == "2":
    pyggml.__version__ = "0.0.9"
d.init()
"""
    done = run_code(4, tmp_path, code)
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if "errors.DistributedError:" in line]
    assert len(told) == 1
    assert "rank 2" in told[0]
    assert "0.0.9" in told[0]
