# SPDX-License-Identifier: MIT
"""Random calls of the public ops end in a right result or a Python exception."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("calls.py")


def run(count: int, seed: int, tmp_path: Path, limit_s: float) -> dict[str, int]:
    log = tmp_path / f"call-{seed}.txt"
    done = subprocess.run(
        [sys.executable, str(WORKER), str(count), str(seed), str(log)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    last = log.read_text() if log.exists() else "none"
    assert done.returncode == 0, f"last call: {last}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    counts: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return counts


def test_hundreds_of_calls(tmp_path: Path) -> None:
    counts = run(400, 1, tmp_path, 300)
    assert counts["accepted"] > 50
    assert counts["compared"] > 20


@pytest.mark.slow
def test_twenty_thousand_calls(tmp_path: Path) -> None:
    total: dict[str, int] = {}
    for seed in range(10):
        for name, n in run(2000, seed, tmp_path, 1200).items():
            total[name] = total.get(name, 0) + n
    print(total)
    assert total["calls"] >= 20_000
