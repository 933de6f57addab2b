# SPDX-License-Identifier: MIT
"""The cores that a container's quota and OMP_NUM_THREADS leave."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

import pyggml as pg
from pyggml.backend.cores import available_cores, cores_of_quota, wanted_threads


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_max", ".max").replace("_cfs", ".cfs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("200000 100000", 2),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("max 100000", None),
        ("", None),
        ("1 0", None),
        ("x 1", None),
    ],
)
def test_a_quota_leaves_whole_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    write(tmp_path, proc__self__cgroup="0::/a/b\n", sys__fs__cgroup__a__b__cpu_max=quota)
    assert cores_of_quota(tmp_path) == cores


def test_the_smallest_quota_above_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        proc__self__cgroup="3:cpuset:/x\n2:cpu,cpuacct:/host/path\n0::/a/b\n",
        sys__fs__cgroup__a__b__cpu_max="800000 100000",
        sys__fs__cgroup__a__cpu_max="300000 100000",
    )
    assert cores_of_quota(tmp_path) == 3
    write(
        tmp_path,
        sys__fs__cgroup__cpu__cpu_cfs_quota_us="200000",
        sys__fs__cgroup__cpu__cpu_cfs_period_us="100000",
    )
    assert cores_of_quota(tmp_path) == 2
    assert 1 <= available_cores(tmp_path) <= 2
    assert cores_of_quota(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("text", "threads"),
    [("3", 3), ("4,2", 4), (" 2 ", 2), ("", None), ("0", None), ("513", None), ("-1", None),
     ("٣", None), ("1e9", None)],
)  # fmt: skip
def test_omp_num_threads(monkeypatch: pytest.MonkeyPatch, text: str, threads: int | None) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert wanted_threads() == threads
    monkeypatch.setattr(importlib.import_module("pyggml.backend.device"), "_threads", None)
    assert pg.get_threads() == (threads or available_cores())
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert pg.get_threads() == available_cores() <= (os.cpu_count() or 1)
