# SPDX-License-Identifier: MIT
"""One model in several threads: generated, evaluated and trained."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim
from pyggml.models import GPT2, T5, Generator, GPT2Config, T5Config, generate
from pyggml.train import TrainStep, evaluate

from ..no_abort.test_threads import together

CONFIG = GPT2Config(vocab_size=17, context=32, n_embd=16, n_layer=2, n_head=2, dropout=0.5)
X = np.random.default_rng(0).integers(0, 17, (4, 16), dtype=np.int32)


def make() -> GPT2:
    pg.seed(0)
    return GPT2(CONFIG)


def written(model: GPT2, seed: int) -> list[int]:
    return generate(model, [seed % 17], 8, seed=seed)


def test_the_flag_stays_the_users() -> None:
    model = make()
    next(m for _, m in model.named_children()).eval()
    flags = [module.training for _, module in model.named_modules()]
    assert sorted(set(flags)) == [False, True]
    written(model, 1)
    evaluate(model, [(X, X)])
    TrainStep(model, optim.SGD(model.parameters(), lr=0.1))([(X, X)])
    assert [module.training for _, module in model.named_modules()] == flags


def test_a_computation_has_its_mode() -> None:
    seen: list[bool] = []

    class Watched(nn.Module):
        def __init__(self, teacher: nn.Module | None = None):
            self.linear = nn.Linear(3, 2)
            self._teacher = {"": teacher}.get  # no child

        def forward(self, x: pg.Tensor) -> pg.Tensor:
            seen.append(self.training)
            return self.linear(x)

    teacher = Watched()
    teacher.eval()
    model = Watched(teacher)
    model.eval()

    def loss(model: Any, x: pg.Tensor, y: pg.Tensor) -> pg.Tensor:
        apart = model(x) - teacher(x)
        return ((apart - y) * (apart - y)).mean()

    x, y = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    step = TrainStep(model, optim.SGD(model.parameters(), lr=0.1), loss=loss)
    step([(x, y)])
    assert seen == [True, False]  # trained, and beside it as the user said
    seen.clear()
    model.train()
    step.loss_sum((x, y))
    model(pg.ones((1, 3)))
    assert seen == [False, False, True]


def test_several_threads_generate() -> None:
    model = make()
    want = [written(model, seed) for seed in range(4)]

    def work(seed: int) -> None:
        for _ in range(5):
            assert written(model, seed) == want[seed]

    together(*(lambda s=s: work(s) for s in range(4)))
    assert model.training


def test_several_threads_write_with_t5() -> None:
    pg.seed(0)
    model = T5(T5Config.preset("tiny", vocab_size=17, dropout=0.5))
    want = [model.generate([3, s, 1], 4, seed=s) for s in range(3)]

    def work(s: int) -> None:
        for _ in range(3):
            assert model.generate([3, s, 1], 4, seed=s) == want[s]

    together(*(lambda s=s: work(s) for s in range(3)))


def beside(work: Callable[[GPT2], Any], steps: int = 12) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Train while another thread works with the model; the weights, and what the thread raised."""
    model, done, raised = make(), threading.Event(), list[Any]()
    step = TrainStep(model, optim.AdamW(model.parameters(), lr=1e-2), seed=3)

    def works() -> None:
        while not done.is_set():
            try:
                work(model)
            except RuntimeError as error:
                raised.append(error)

    thread = threading.Thread(target=works, daemon=True)
    thread.start()
    try:
        for _ in range(steps):
            step([(X, X), (X[:2], X[:2])])
    finally:
        done.set()
        thread.join(60)
    assert model.training
    return model.state_dict(), raised


@pytest.fixture(scope="module")
def trained() -> dict[str, np.ndarray]:
    return beside(lambda model: None)[0]


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(a[name], b[name]) for name in a)


def test_a_training_beside_which_is_generated(trained: dict[str, np.ndarray]) -> None:
    weights, raised = beside(lambda model: written(model, 1))
    assert same(weights, trained)
    assert all("alone" in str(error) for error in raised)


def test_a_training_beside_which_is_evaluated(trained: dict[str, np.ndarray]) -> None:
    weights, raised = beside(lambda model: evaluate(model, [(X, X)] * 3))
    assert same(weights, trained)
    assert all("alone" in str(error) for error in raised)


def test_generated_alone_beside_a_training(trained: dict[str, np.ndarray]) -> None:
    """Each text is that of the weights after a whole step."""
    found: list[tuple[list[int], dict[str, np.ndarray]]] = []

    def work(model: GPT2) -> None:
        with pg.alone():
            found.append((written(model, 1), model.state_dict()))

    weights, raised = beside(work)
    assert same(weights, trained)
    assert not raised
    twin = make()
    for text, state in found[:: max(1, len(found) // 4)]:
        twin.load_state_dict(state)
        assert written(twin, 1) == text


def test_weights_that_change_in_a_generation() -> None:
    model = make()
    generator = Generator(model)
    generator.feed([1, 2])
    TrainStep(model, optim.SGD(model.parameters(), lr=0.1))([(X, X)])
    with pytest.raises(RuntimeError, match="weights"):
        generator.feed([3])
    generator.reset()
    assert np.array_equal(generator.feed([1, 2, 3]), Generator(model).feed([1, 2, 3]))

    def train(token: int) -> None:
        model.parameters()[0].zero_()

    with pytest.raises(RuntimeError, match="weights"):
        generate(model, [1], 4, callback=train)
