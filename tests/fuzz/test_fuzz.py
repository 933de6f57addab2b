# SPDX-License-Identifier: MIT
"""Random calls of all that is public end in a right result or a Python exception."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import pyggml as pg
from pyggml import nn

from .refusals import accident

WORKER = Path(__file__).with_name("calls.py")
FILES = Path(__file__).with_name("files.py")
# Properties that only tell what ggml knows, and what a graph leaves in a tensor, which
# tests/graph/test_held_values.py has.
NOT_CALLED = set(
    "buffer data device has_hooks node ptr computed computed_from is_computed keep end".split()
)


def run(count: int, seed: int, tmp_path: Path, limit_s: float) -> dict[str, Any]:
    log = tmp_path / f"call-{seed}.txt"
    done = subprocess.run(
        [sys.executable, str(WORKER), str(count), str(seed), str(log)],
        cwd=tmp_path,  # some calls write files
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    last = log.read_text() if log.exists() else "none"
    assert done.returncode == 0, f"last call: {last}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    counts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    accidents = counts.pop("accidents")
    assert not accidents, "errors without a word of what was expected:\n" + "\n".join(accidents)
    return counts


def test_an_error_from_below_is_no_refusal() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(TypeError) as found:
        layer.apply(len)  # Python's: a layer has no length
    place = accident(found.value)
    assert place is not None
    assert place.startswith("nn/base/tree.py:")
    for refused in (lambda: nn.Linear("a", 2), layer, lambda: layer(pg.ones(2), 3)):
        with pytest.raises(TypeError) as found:
            refused()
        assert accident(found.value) is None


def test_hundreds_of_calls(tmp_path: Path) -> None:
    counts = run(300, 1, tmp_path, 900)
    assert counts["calls"] >= 300
    assert counts["accepted"] > 75
    assert counts["compared"] > 40
    assert counts["gradients"] > 15


@pytest.mark.slow
def test_a_hundred_thousand_calls(tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(50):
        counts = run(2000, seed, tmp_path, 1200)
        kinds.update(counts.pop("by"))
        total.update(counts)
    print(dict(total), dict(kinds))
    assert total["calls"] >= 100_000


def test_all_that_is_public_is_called(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(WORKER), "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    drawn = json.loads(done.stdout)
    assert sorted(drawn["ops"]) == sorted(pg.ops.__all__)
    missing = set(pg.__all__) - set(drawn["top"])
    assert not missing, f"tensor_calls.py neither draws these nor says why not: {missing}"
    missing = set(drawn["offered"]) - set(drawn["modules"])
    assert not missing, f"module_calls.py neither draws these nor says why not: {missing}"
    assert not drawn["untold"], f"owners.py neither makes these nor says why not: {drawn['untold']}"
    assert not drawn["wrongly_made"]
    public = {name for name in dir(pg.Tensor) if not name.startswith("_")}
    assert public - set(drawn["Tensor"]) - NOT_CALLED == set()


def damaged(count: int, seed: int, tmp_path: Path, limit_s: float) -> dict[str, int]:
    folder = tmp_path / str(seed)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(FILES), str(count), str(seed), str(folder)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    counts: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return counts


@pytest.mark.skipif(sys.platform == "win32", reason="limits address space")
def test_hundreds_of_damaged_files(tmp_path: Path) -> None:
    for package in ("tokenizers", "PIL"):
        pytest.importorskip(package)
    counts = damaged(200, 1, tmp_path, 900)
    assert counts["files"] == 200
    assert counts["refused"] > 100
    assert counts["read"] > 20


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits address space")
def test_a_hundred_thousand_damaged_files(tmp_path: Path) -> None:
    for package in ("tokenizers", "PIL"):
        pytest.importorskip(package)
    total: Counter[str] = Counter()
    for seed in range(50):
        total.update(damaged(2000, seed, tmp_path, 1200))
    print(dict(total))
    assert total["files"] == 100_000
