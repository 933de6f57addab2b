# SPDX-License-Identifier: MIT
"""The table of optimizers: how each is made, what it computes, and how it reaches a minimum."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import pytest

from pyggml import optim

State = dict[str, Any]


# Tests that step an optimizer beside PyTorch's of the same name, by class.
COMPARED: dict[Any, list[Callable[..., None]]] = {}


def compared_with_pytorchs(kind: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test that compares a class with PyTorch's of its name, and fails unless it steps both."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def counted(*args: Any, **kwargs: Any) -> None:
            torch = pytest.importorskip("torch")
            with both_step(kind, getattr(torch.optim, kind.__name__)):
                test(*args, **kwargs)

        COMPARED.setdefault(kind, []).append(counted)
        return counted

    return mark


@contextmanager
def both_step(ours: Any, theirs: Any) -> Iterator[None]:
    """A block in which both classes take steps, as many, or it fails."""
    taken = {ours: 0, theirs: 0}

    def counting(kind: Any) -> Callable[..., Any]:
        step = kind.step

        @functools.wraps(step)
        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            taken[kind] += 1
            return step(self, *args, **kwargs)

        return counted

    with ExitStack() as stack:
        for kind in taken:
            stack.enter_context(mock.patch.object(kind, "step", counting(kind)))
        yield
    assert taken[ours] == taken[theirs] > 0


@dataclass
class Case:
    """One way to make an optimizer.

    Args:
        kind: the class.
        formula: (w, g, state, t, lr, wd) -> new w, in float64; it keeps `state`.
        options: for the class.
        torch: class of `torch.optim` and its options; None where PyTorch has none.
        fall: learning rate on the parabola.
        valley: learning rate in Rosenbrock's valley.
        steps: of the way through the valley.
        rows: how many minima are looked for at once.
        closure: whether a step calls one, several times; it is compared in its own tests.
        fuses: whether it can update in the backward.
        search: options while looking, instead of `options`.
    """

    kind: Any
    formula: Callable[..., np.ndarray] | None
    options: dict[str, Any] = field(default_factory=dict)
    torch: tuple[str, dict[str, Any]] | None = None
    fall: float = 0.1
    valley: float = 0.05
    steps: int = 600
    rows: int = 1
    closure: bool = False
    fuses: bool = True
    search: dict[str, Any] | None = None


def sgd(momentum=0.0, nesterov=False):
    def formula(w, g, state, t, lr, wd):
        g = g + wd * w
        b = state["b"] = momentum * state.get("b", 0.0) + g
        return w - lr * (g + momentum * b if nesterov else b)

    return formula


def adam(betas, eps, apart, amsgrad=False):
    def formula(w, g, state, t, lr, wd):
        g = g if apart else g + wd * w
        m = state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
        v = state["v"] = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * g * g
        if amsgrad:
            v = state["v_max"] = np.maximum(state.get("v_max", 0.0), v)
        step = m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
        return w * (1 - lr * wd * apart) - lr * step

    return formula


def rmsprop(alpha, eps, momentum=0.0, centered=False):
    def formula(w, g, state, t, lr, wd):
        g = g + wd * w
        v = state["v"] = alpha * state.get("v", 0.0) + (1 - alpha) * g * g
        a = state["a"] = alpha * state.get("a", 0.0) + (1 - alpha) * g
        u = g / (np.sqrt(v - a * a if centered else v) + eps)
        b = state["b"] = momentum * state.get("b", 0.0) + u
        return w - lr * b

    return formula


def adagrad(lr_decay, start, eps):
    def formula(w, g, state, t, lr, wd):
        g = g + wd * w
        v = state["v"] = state.get("v", start) + g * g
        return w - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(v) + eps)

    return formula


def lion(b1, b2):
    """Algorithm 2 of arXiv:2302.06675."""

    def formula(w, g, state, t, lr, wd):
        m = state.get("m", np.zeros_like(w))
        u = np.sign(b1 * m + (1 - b1) * g)
        state["m"] = b2 * m + (1 - b2) * g
        return w - lr * (u + wd * w)

    return formula


def adafactor(beta2_decay, eps, d):
    """Algorithms 4 and 5 of arXiv:1804.04235, with PyTorch's names."""

    def formula(w, g, state, t, lr, wd):
        k = t**beta2_decay
        rms = lambda x: np.sqrt((x * x).mean())  # noqa: E731
        if w.ndim < 2:
            v = state["v"] = (1 - k) * state.get("v", 0.0) + k * g * g
        else:
            r = state["r"] = (1 - k) * state.get("r", 0.0) + k * (g * g).mean(-1, keepdims=True)
            c = state["c"] = (1 - k) * state.get("c", 0.0) + k * (g * g).mean(-2, keepdims=True)
            v = r * c / np.maximum(r.mean(-2, keepdims=True), eps[0])
        u = g / np.sqrt(np.maximum(v, eps[0] ** 2))
        step = max(eps[1], rms(w)) * min(lr, t**-0.5) * u / max(1.0, rms(u) / d)
        return w * (1 - lr * wd) - step

    return formula


def muon(momentum, nesterov, steps=5, eps=1e-7):
    """https://kellerjordan.github.io/posts/muon, with the ratio of arXiv:2502.16982."""
    a, b, c = 3.4445, -4.7750, 2.0315
    rest = adam((0.9, 0.999), 1e-8, apart=True)

    def formula(w, g, state, t, lr, wd):
        if w.ndim != 2:
            return rest(w, g, state, t, lr, wd)
        m = state["b"] = momentum * state.get("b", 0.0) + g
        x = g + momentum * m if nesterov else m
        x = x / max(np.linalg.norm(x), eps)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return w * (1 - lr * wd) - lr * 0.2 * max(w.shape) ** 0.5 * x

    return formula


MOMENTS: dict[str, Any] = {"betas": (0.8, 0.95), "eps": 1e-6}
LARGEST: dict[str, Any] = {**MOMENTS, "amsgrad": True}
CENTERED: dict[str, Any] = {"alpha": 0.9, "eps": 1e-3, "momentum": 0.5, "centered": True}
SUMMED: dict[str, Any] = {"lr_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-6}
FACTORED: dict[str, Any] = {"beta2_decay": -0.7, "eps": (1e-7, 1e-2), "d": 1.2}
NESTEROV: dict[str, Any] = {"momentum": 0.9, "nesterov": True}

CASES = {
    "SGD": Case(optim.SGD, sgd(), {}, ("SGD", {}), valley=4e-3, steps=7000),
    "SGD momentum": Case(
        optim.SGD, sgd(0.9), {"momentum": 0.9}, ("SGD", {"momentum": 0.9}), 0.05, 2e-3, 1000
    ),
    "SGD nesterov": Case(optim.SGD, sgd(0.9, True), NESTEROV, ("SGD", NESTEROV), 0.05, 2e-3, 1000),
    "Adam": Case(optim.Adam, adam(**MOMENTS, apart=False), MOMENTS, ("Adam", MOMENTS)),
    "AdamW": Case(optim.AdamW, adam(**MOMENTS, apart=True), MOMENTS, ("AdamW", MOMENTS)),
    # The first gradients, which are large, slow it down for good.
    "Adam amsgrad": Case(
        optim.Adam, adam(**LARGEST, apart=False), LARGEST, ("Adam", LARGEST), 0.3, 0.2, 2000
    ),
    "AdamW amsgrad": Case(
        optim.AdamW, adam(**LARGEST, apart=True), LARGEST, ("AdamW", LARGEST), 0.3, 0.2, 2000
    ),
    "RMSprop": Case(
        optim.RMSprop,
        rmsprop(0.9, 1e-3),
        {"alpha": 0.9, "eps": 1e-3},
        ("RMSprop", {"alpha": 0.9, "eps": 1e-3}),
        valley=0.01,
        steps=3000,
    ),
    "RMSprop centered": Case(
        optim.RMSprop, rmsprop(**CENTERED), CENTERED, ("RMSprop", CENTERED), valley=0.01, steps=1000
    ),
    "Adagrad": Case(
        optim.Adagrad,
        adagrad(0.1, 0.2, 1e-6),
        SUMMED,
        ("Adagrad", SUMMED),
        fall=2.0,
        valley=0.2,
        steps=6000,
        search={},
    ),
    "Adafactor": Case(
        optim.Adafactor,
        adafactor(**FACTORED),
        FACTORED,
        ("Adafactor", FACTORED),
        valley=0.03,
        steps=5000,
    ),
    "AdamW8bit": Case(
        optim.AdamW8bit,
        adam(**MOMENTS, apart=True),
        {**MOMENTS, "min_8bit_size": 0},
        ("AdamW", MOMENTS),
        rows=16,
    ),
    "Muon": Case(optim.Muon, muon(0.95, True), fall=1.0),
    "Muon without": Case(
        optim.Muon, muon(0.8, False), {"momentum": 0.8, "nesterov": False}, fall=1.0
    ),
    "LBFGS": Case(optim.LBFGS, None, fall=1.0, valley=1.0, steps=40, closure=True, fuses=False),
    "Lion": Case(optim.Lion, lion(0.9, 0.99), valley=0.01, steps=1500),
}

# Those that update by the gradients that are there.
PLAIN = {name: case for name, case in CASES.items() if not case.closure}
