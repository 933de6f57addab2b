# SPDX-License-Identifier: MIT
"""A call that fails ends in the right result or in a Python exception, and the last files stand.

The library of faults.cpp, preloaded, fails the n-th allocation of ggml or of the binding, the n-th
operation on a file or folder (open, read, write, fsync, close, rename, mkdir, unlink, link), or the
n-th start of a thread; machine.py tells what came of it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SHORT = 0  # a write that takes half of what it is given
TRAIN = {
    "write": (errno.ENOSPC, errno.EIO, errno.EINTR, SHORT),
    "fsync": (errno.EIO,),
    "rename": (errno.EIO,),
    "open": (errno.EMFILE, errno.EACCES),
    "close": (errno.EIO,),
    "mkdir": (errno.ENOSPC,),
    "unlink": (errno.EPERM,),
    "link": (errno.EPERM, errno.EIO),
}
SAVE = {kind: errors for kind, errors in TRAIN.items() if kind not in ("mkdir", "unlink", "link")}
LOAD = {"read": (errno.EIO, errno.EINTR, SHORT), "open": (errno.EIO,), "close": (errno.EIO,)}
FILES = [
    (scenario, kind, error)
    for scenario, kinds in {"train": TRAIN, "save": SAVE, "load": LOAD}.items()
    for kind, errors in kinds.items()
    for error in errors
]
MEMORY = [(scenario, "malloc", 0) for scenario in ("train", "save", "load", "large", "ops")]
ALL = [*FILES, *MEMORY, ("large", "mmap", 0), ("threads", "thread", 0), ("threads", "malloc", 0)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library."""
    compiler = shutil.which("c++")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C++ compiler")
    place = tmp_path_factory.mktemp("faults") / "faults.so"
    options = ("-std=c++17", "-O1", "-shared", "-fPIC")
    subprocess.run([compiler, *options, HERE / "faults.cpp", "-o", place, "-ldl"], check=True)
    return place


def run(library: Path, folder: Path, *jobs: tuple[str, str, int, int, int]) -> list[dict[str, Any]]:
    """Let the machine do jobs: scenario, kind, error, first n, step between the n."""
    command = [sys.executable, "-m", "tests.crashes.machine", library, json.dumps(jobs), folder]
    done = subprocess.run(
        command,
        env={**os.environ, "LD_PRELOAD": str(library), "GGML_NO_BACKTRACE": "1"},
        cwd=HERE.parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(results) == len(jobs)
    for result in results:
        print(result["job"], result["calls"], result["outcomes"])
    return results


def test_some_calls(library: Path, tmp_path: Path) -> None:
    jobs = [
        ("train", "malloc", 0, 11, 71),
        ("train", "write", errno.ENOSPC, 7, 71),
        ("train", "fsync", errno.EIO, 5, 71),
        ("train", "rename", errno.EIO, 3, 71),
        ("train", "open", errno.EMFILE, 3, 71),
        ("train", "mkdir", errno.ENOSPC, 1, 71),
        ("train", "unlink", errno.EPERM, 1, 71),
        ("train", "link", errno.EPERM, 1, 71),
        ("load", "read", SHORT, 5, 71),
        ("load", "close", errno.EIO, 7, 71),
        ("ops", "malloc", 0, 3, 71),
        ("threads", "thread", 0, 2, 71),
    ]
    for result in run(library, tmp_path, *jobs):
        assert result["wrong"] == {}, result["job"]
        assert result["calls"] > 0, result["job"]


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "kind", "error"), ALL)
def test_every_call(scenario: str, kind: str, error: int, library: Path, tmp_path: Path) -> None:
    (result,) = run(library, tmp_path, (scenario, kind, error, 1, 1))
    assert result["wrong"] == {}
    assert result["calls"] > 0
