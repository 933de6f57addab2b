# SPDX-License-Identifier: MIT
"""Functions that are called with inputs of many shapes: how many graphs are kept."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.backend.lru import LRUCache


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def counted(calls: list[tuple[int, ...]]) -> Callable[[pg.Tensor], pg.Tensor]:
    """A function that tells of what shapes it was recorded."""

    def fn(x: pg.Tensor) -> pg.Tensor:
        calls.append(x.shape)
        return (x * 2.0).sum()

    return fn


def both(fn: Any, **limits: int) -> list[Callable[[Any], Any]]:
    with_grad = pg.value_and_grad(fn, **limits)
    return [pg.compile(fn, **limits), lambda x: with_grad(x)[0]]


@pytest.mark.parametrize("which", [0, 1])
def test_the_least_recently_used_shape_is_dropped_and_comes_back(which: int) -> None:
    calls: list[tuple[int, ...]] = []
    f = both(counted(calls), max_graphs=3)[which]

    def calling() -> None:
        for n in (1, 2, 3, 1, 4, 1, 3, 2):
            assert f(np.ones(n, np.float32)).item() == 2 * n

    with pytest.warns(RuntimeWarning, match="max_graphs") as told:
        calling()
    # 4 drops 2, and 2 drops 4
    assert calls == [(1,), (2,), (3,), (4,), (2,)]
    assert [Path(w.filename).name for w in told] == [Path(__file__).name]


@pytest.mark.parametrize("which", [0, 1])
def test_a_limit_of_memory(which: int) -> None:
    calls: list[tuple[int, ...]] = []
    f = both(counted(calls), max_bytes=8_000_000)[which]

    def calling() -> None:
        for n in (1, 200_000, 2, 3) * 2:
            assert f(np.ones(n, np.float32)).item() == 2 * n

    with pytest.warns(RuntimeWarning, match="max_bytes"):
        calling()
    assert 4 < len(calls) <= 8


def test_one_that_is_larger_than_the_limit_is_kept() -> None:
    calls: list[tuple[int, ...]] = []
    f = pg.compile(counted(calls), max_bytes=1)
    for _ in range(3):
        f([1.0])
    assert len(calls) == 1


def test_memory_is_bounded() -> None:
    f = pg.compile(lambda x: x * 2.0, max_graphs=4)
    taken = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for n in range(1, 150):
            f(np.ones(n, np.float32))
            taken.append(resident_bytes())
    assert taken[-1] - taken[30] < 20e6  # each graph takes 2 MB


@pytest.mark.parametrize("limit", ["max_graphs", "max_bytes"])
def test_limits_that_are_none(limit: str) -> None:
    for make in (pg.compile, pg.value_and_grad):
        with pytest.raises(ValueError, match=limit):
            make(lambda x: x, **{limit: 0})
        with pytest.raises(TypeError, match=limit):
            make(lambda x: x, **{limit: 1.5})


def test_threads_share_a_function_of_few_graphs() -> None:
    f, wrong = pg.compile(lambda x: pg.ops.dropout(x, 0.5) * 0.0 + x, max_graphs=2), list[int]()

    def work(seed: int) -> None:
        for n in np.random.default_rng(seed).integers(1, 6, 30):
            if f(np.full(n, seed, np.float32)).tolist() != [seed] * n:
                wrong.append(n)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_what_is_kept() -> None:
    told: list[int] = []
    kept: LRUCache[str] = LRUCache(3, 10, len, lambda: told.append(1), least=2)
    for key in "abc":
        kept.put(key, key)
    assert kept.get("a") == "a"
    kept.put("d", "dd")
    assert list(kept) == ["c", "a", "dd"]
    kept.put("e", "e" * 20)
    assert list(kept) == ["dd", "e" * 20]
    assert kept.nbytes == 22
    assert told == [1]
    assert kept.get("a") is None
    kept.drop(lambda key: key == "d")
    assert len(kept) == 1
    kept.clear()
    assert not list(kept)
