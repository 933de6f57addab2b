# SPDX-License-Identifier: MIT
"""Several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import pyggml as pg


def together(*workers: Callable[[], Any]) -> None:
    """Run all at once; raise what any of them raised."""
    failures: list[BaseException] = []

    def guarded(fn: Callable[[], Any]) -> None:
        try:
            fn()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(fn,), daemon=True) for fn in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def test_different_graphs_at_once() -> None:
    def work(seed: int) -> None:
        a = np.random.default_rng(seed).random((33, 17), np.float32)
        t = pg.tensor(a)
        for i in range(20):
            got = ((t @ t.T) * float(i)).numpy()
            assert np.allclose(got, a @ a.T * i, rtol=1e-4)

    together(*(lambda s=s: work(s) for s in range(4)))


def test_the_same_tensor_at_once() -> None:
    for _ in range(10):
        x = pg.tensor(np.arange(100.0), requires_grad=True)
        shared, plain = (x * 2.0).sum(), (x.detach() * 3.0).sum()

        def work(shared: pg.Tensor = shared, plain: pg.Tensor = plain) -> None:
            assert shared.item() == 9900.0
            assert plain.item() == 14850.0

        together(work, work, work)


def test_gradients_from_several_threads_add_up() -> None:
    x = pg.tensor(np.ones(50), requires_grad=True)

    def work() -> None:
        for _ in range(10):
            (x * 2.0).sum().backward()

    together(work, work, work)
    assert x.grad is not None
    assert (x.grad.numpy() == 60.0).all()


def test_the_same_function_at_once() -> None:
    weight = pg.tensor(np.eye(20, dtype=np.float32) * 3)
    compiled = pg.compile(lambda x: x @ weight)
    both = pg.value_and_grad(lambda x: (x * x).sum())

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            a = rng.random((5, 20), np.float32)
            assert np.allclose(compiled(a).numpy(), a * 3)
            value, grad = both(a)
            assert np.isclose(value.item(), (a * a).sum(), rtol=1e-4)
            assert np.allclose(grad.numpy(), 2 * a)

    together(*(lambda s=s: work(s) for s in range(4)))
