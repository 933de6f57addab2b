# SPDX-License-Identifier: MIT
"""Sums in the memory of GPUs, by a library in NCCL's place whose GPUs are the ranks' own memory."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .ranks import run, run_code
from .test_training import train

pytestmark = pytest.mark.mpi
SUMS = """
import sys
from types import SimpleNamespace
import numpy as np
from pyggml import distributed as d
from pyggml.distributed import nccl
nccl.NCCL = nccl.RUNTIME = ("nothing", (sys.argv[1],))
group = d.init()
found = nccl.device_sums(group, SimpleNamespace(name=sys.argv[2]))
if found is None:
    print("through the host", flush=True)
    sys.exit()
rng = np.random.default_rng(3)
each = [rng.normal(size=100_002).astype(np.float32) for _ in range(group.size)]
everywhere, one = each[group.rank].copy(), each[group.rank].copy()
found.begin_sum(everywhere[1:-1].ctypes.data, 100_000)
found.begin_sum(one[1:].ctypes.data, 70_000, 1)
found.finish()
total = each[0]
for more in each[1:]:
    total = total + more
assert (everywhere[1:-1] == total[1:-1]).all()
assert (everywhere[[0, -1]] == each[group.rank][[0, -1]]).all()
want = total if group.rank == 1 else each[group.rank]
assert (one[1:70_001] == want[1:70_001]).all() and one[0] == each[group.rank][0]
assert (one[70_001:] == each[group.rank][70_001:]).all()
print("summed", flush=True)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is here")
    path = tmp_path_factory.mktemp("nccl") / "libnccl.so"
    source = Path(__file__).with_name("nccl.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


def sums(path: Path, library: Any, device: str = "cuda:0", ranks: int = 3, **more: str) -> Any:
    program = path / "program.py"
    program.write_text(SUMS)
    return run(ranks, program, library, device, **more)


def test_vectors_are_summed_on_every_rank_or_on_one(tmp_path: Path, library: Path) -> None:
    done = sums(tmp_path, library)
    assert (done.returncode, done.stdout.split()) == (0, ["summed"] * 3), done.stderr


@pytest.mark.parametrize("case", ["f32", "zero1+accumulate"])
def test_training_has_the_bits_of_sums_through_the_host(library: Path, case: str) -> None:
    there, here = train(2, f"{case}+nccl={library}"), train(2, case)
    assert there.pop("device_sums") > 3
    assert here.pop("device_sums") == 0
    assert there == here


@pytest.mark.parametrize(
    ("mistake", "said"), [("fails", "ncclAllReduce failed: invalid usage (5)"),
                          ("late", "ncclCommGetAsyncError failed: remote process exited (6)")],
)  # fmt: skip
def test_a_failure_ends_the_job_with_one_message(
    tmp_path: Path, library: Path, mistake: str, said: str
) -> None:
    done = sums(tmp_path, library, PYGGML_TEST_NCCL=mistake)
    assert done.returncode == 1
    assert done.stderr.count(f"DistributedError: distributed: {said}") == 1, done.stderr


def test_the_host_sums_where_nccl_cannot(tmp_path: Path, library: Path) -> None:
    done = sums(tmp_path, "libnone.so", ranks=2)
    assert done.stdout.split("\n")[:2] == ["through the host"] * 2, done.stderr
    assert done.stderr.count("has no NCCL: ") == 1
    done = sums(tmp_path, library, ranks=2, PYGGML_TEST_NCCL="shared")
    assert done.stdout.count("through the host") == 2
    assert done.stderr.count("several ranks share a GPU") == 1
    done = sums(tmp_path, library, "cpu", ranks=2)
    assert done.stdout.count("through the host") == 2
    assert "NCCL" not in done.stderr


def test_one_process_needs_no_nccl(tmp_path: Path) -> None:
    code = (
        "from types import SimpleNamespace\n"
        "from pyggml import distributed as d\n"
        "from pyggml.distributed.nccl import device_sums\n"
        "assert device_sums(d.init(), SimpleNamespace(name='cuda:0')) is None\n"
    )
    done = run_code(1, tmp_path, code)
    assert done.returncode == 0, done.stderr
