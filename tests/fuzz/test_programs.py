# SPDX-License-Identifier: MIT
"""Random programs give the same numbers eagerly, as a graph, compiled, computed again, in torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .programs import runs
from .programs.draw import Leaf, Program, Step, draw, shrunk
from .programs.table import PG

ROOT = Path(__file__).resolve().parents[2]
# Programs of the slow test; each shard is a process.
COUNT = int(os.environ.get("PYGGML_PROGRAMS", "10000"))
SHARD = 250


def run(count: int, first: int, *more: str, limit_s: float = 3000) -> dict[str, int]:
    """Run programs in a process of their own; return what it counted."""
    command = [sys.executable, "-m", "tests.fuzz.programs", str(count), str(first), *more]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False
    )
    last = done.stderr.strip().splitlines()[-1:]
    assert done.returncode == 0, f"{last}\n{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    counts: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return counts


@pytest.mark.parametrize("seed", range(8))
def test_programs(seed: int) -> None:
    runs.check(draw(seed, most=20))


@pytest.mark.slow
def test_ten_thousand_programs() -> None:
    pytest.importorskip("torch", reason="compares with torch, which is not installed")
    total: Counter[str] = Counter()
    with ThreadPoolExecutor(max_workers=int(os.environ.get("PYGGML_PROGRAM_JOBS", "1"))) as pool:
        for counts in pool.map(lambda first: run(SHARD, first), range(100, 100 + COUNT, SHARD)):
            total.update(counts)
    print(dict(total))
    assert total["programs"] >= COUNT
    assert total["compared with torch"] > 0.75 * COUNT


def test_every_kind_of_step_is_drawn() -> None:
    pytest.importorskip("torch")
    missing = set(runs.torch_table())
    for seed in range(150):
        missing -= {step.name for step in draw(seed, most=100).steps}
        if not missing:
            return
    raise AssertionError(f"no program of 150 has {missing}")


def test_a_wrong_op_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that is wrong in one way only is found, and what is left of the program is small."""
    programs = (draw(seed, most=20) for seed in range(50))
    program = next(p for p in programs if any(s.name == "gelu" for s in p.steps))
    right = runs.eager

    def wrong(given: Program) -> runs.Found:
        found = right(given)
        if any(s.name == "gelu" for s in given.steps):
            found.losses[0] = found.losses[0] + 1
        return found

    monkeypatch.setitem(runs.WAYS, "eager", wrong)
    with pytest.raises(runs.Wrong, match="eager"):
        runs.check(program)

    def fails(given: Program) -> bool:
        try:
            runs.check(given)
        except runs.Wrong:
            return True
        return False

    small, _ = shrunk(program, fails, limit=30)
    assert any(s.name == "gelu" for s in small.steps)
    assert len(small.steps) < len(program.steps) / 2
    names: dict[str, object] = {}
    monkeypatch.setattr(runs, "WAYS", {})  # the script runs; nothing is wrong any more
    exec(compile(small.script(), "script", "exec"), names)


def test_a_wrong_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is wrong in all ways differs from PyTorch."""
    pytest.importorskip("torch")
    program = Program(1, (Leaf(0, (3, 4)),), (Step(1, "neg", (0,)),), ((1,),))
    runs.check(program)
    monkeypatch.setitem(PG, "neg", lambda x: x * -1.01)
    with pytest.raises(runs.Wrong, match="graph"):
        runs.check(program)
