# SPDX-License-Identifier: MIT
"""Losses where nothing counts, weights are 0, classes are masked out, or an argument is odd."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.nn import functional as F
from pyggml.nn import losses

rng = np.random.default_rng(0)
LOGITS = rng.standard_normal((4, 5)).astype(np.float32)
SOFT = rng.dirichlet(np.ones(5), 4).astype(np.float32)
X, Y = (rng.standard_normal((3, 4)).astype(np.float32) for _ in range(2))

TARGETS = {
    "some": [0, 3, -100, 2],
    "one": [-100, -100, 1, -100],
    "none": [-100] * 4,
    "of no weight": [0, 0, 3, 3],
}
WEIGHTS = {"no": None, "some": [0.0, 1.0, 0.5, 0.0, 2.0], "zero": [0.0] * 5}


def ours(loss, x):
    value, grad = pg.value_and_grad(lambda t: loss(t).sum())(x)
    return loss(pg.tensor(x)).numpy(), value.item(), grad.numpy()


def same_or_zero(loss, theirs, x):
    """Compare with PyTorch's in float64; where that is 0 / 0, ours is 0 with a gradient of 0."""
    torch = pytest.importorskip("torch")
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    want = theirs(t)
    want.sum().backward()
    values, _, grad = ours(loss, x)
    if want.isnan().any():
        assert want.ndim == 0
        assert values == 0.0
        assert not grad.any()
        return True
    np.testing.assert_allclose(values, want.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad, t.grad.numpy(), rtol=1e-5, atol=1e-6)
    return False


def of(array, kind="float64"):
    import torch

    return None if array is None else torch.tensor(array, dtype=getattr(torch, kind))


def maybe(array):
    return None if array is None else pg.tensor(np.asarray(array, np.float32))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("targets", TARGETS)
def test_cross_entropy_of_class_numbers(targets, weight, smoothing, reduction):
    torch = pytest.importorskip("torch")
    at, w = TARGETS[targets], WEIGHTS[weight]
    options = {"reduction": reduction, "label_smoothing": smoothing}
    zero = same_or_zero(
        lambda x: F.cross_entropy(x, pg.tensor(at), weight=maybe(w), **options),
        lambda x: torch.nn.functional.cross_entropy(x, of(at, "int64"), of(w), **options),
        LOGITS,
    )
    nothing = targets == "none" or weight == "zero" or (targets, weight) == ("of no weight", "some")
    assert zero == (nothing and reduction == "mean")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("factor", [1.0, 0.0, 3.0, [[1.0], [0.0], [1.0], [0.0]]])
def test_cross_entropy_of_probabilities(factor, weight, smoothing, reduction):
    """Also of rows that do not sum to 1; the mean is over all rows."""
    torch = pytest.importorskip("torch")
    soft, w = (SOFT * factor).astype(np.float32), WEIGHTS[weight]
    options = {"reduction": reduction, "label_smoothing": smoothing}
    assert not same_or_zero(
        lambda x: F.cross_entropy(x, pg.tensor(soft), weight=maybe(w), **options),
        lambda x: torch.nn.functional.cross_entropy(x, of(soft), of(w), **options),
        LOGITS,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
@pytest.mark.parametrize("weight", [np.zeros((3, 4)), np.abs(Y) * (Y > 0), np.ones((3, 4))])
def test_weights_of_zero(name, weight, reduction):
    torch = pytest.importorskip("torch")
    same_or_zero(
        lambda x: getattr(F, name)(x, pg.tensor(Y), reduction, weight=maybe(weight)),
        lambda x: getattr(torch.nn.functional, name)(
            x, of(Y), reduction=reduction, weight=of(weight)
        ),
        X,
    )


@pytest.mark.parametrize("least", [-np.inf, -1e9, -1e4])
@pytest.mark.parametrize("masked", [[0], [0, 1, 2, 4], [3]])
def test_the_normaliser_does_not_mind_masked_classes(masked, least):
    """z_loss and smoothing need log(sum(exp)), whose class of reference is the largest one."""
    torch = pytest.importorskip("torch")
    x = LOGITS.copy()
    x[:, masked] = least
    assert not same_or_zero(
        lambda t: F.z_loss(t, coefficient=0.5), lambda t: (0.5 * t.logsumexp(-1) ** 2).mean(), x
    )
    at = [next(c for c in range(5) if c not in masked)] * 4
    assert not same_or_zero(
        lambda t: F.cross_entropy(t, pg.tensor(at)),
        lambda t: torch.nn.functional.cross_entropy(t, of(at, "int64")),
        x,
    )


def test_the_normaliser_of_more_logits_than_f32_has_whole_numbers(monkeypatch):
    """Elements are found by their number, piece by piece."""
    pytest.importorskip("torch")
    from pyggml.nn.losses import distribution

    monkeypatch.setattr(distribution, "_F32_WHOLE", 12)
    x = rng.standard_normal((7, 5)).astype(np.float32)  # pieces of two rows, and one
    assert not same_or_zero(
        lambda t: F.z_loss(t, coefficient=1.0), lambda t: (t.logsumexp(-1) ** 2).mean(), x
    )


def test_a_target_of_zero_adds_nothing_to_the_divergence():
    x = np.log(SOFT)
    some = SOFT * (SOFT.mean() < SOFT)
    with np.errstate(divide="ignore"):
        logarithms = np.log(some)
    assert np.isneginf(logarithms).any()
    plain = ours(lambda t: F.kl_div(t, pg.tensor(some), "sum"), x)
    logs = ours(lambda t: F.kl_div(t, pg.tensor(logarithms), "sum", log_target=True), x)
    for a, b in zip(plain, logs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert np.isfinite(b).all()
    _, grad = pg.value_and_grad(lambda t: F.kl_div(pg.tensor(x), t, "sum", log_target=True))(
        logarithms
    )
    assert np.isfinite(grad.numpy()).all()


def test_a_pair_that_is_neither_together_nor_apart_has_no_loss():
    torch = pytest.importorskip("torch")
    near = (X + 0.1 * Y).astype(np.float32)
    assert not same_or_zero(
        lambda x: F.cosine_embedding_loss(x, pg.tensor(near), pg.tensor([1, 0, -1]), 0.1, "none"),
        lambda x: torch.nn.functional.cosine_embedding_loss(
            x, of(near), of([1, 0, -1]), 0.1, reduction="none"
        ),
        X,
    )


def test_a_beta_of_almost_nothing_is_the_absolute_difference():
    x, y = pg.tensor(X), pg.tensor(Y)
    for beta in (0.0, 1e-320, 1e-39):
        got = F.smooth_l1_loss(x, y, "none", beta).numpy()
        np.testing.assert_array_equal(got, np.abs(X - Y))


def test_there_is_no_empty_batch():
    """A tensor has one element at least: what PyTorch makes NaN is refused where it is made."""
    with pytest.raises(pg.ShapeError, match="every extent must be at least 1"):
        pg.zeros((0, 5))


FUNCTIONS = {n: f for n in losses.__all__ if inspect.isfunction(f := getattr(losses, n))}
MODULES = {n: c for n in losses.__all__ if inspect.isclass(c := getattr(losses, n))}
VECTORS = {"x": lambda: pg.tensor(X), "target": lambda: pg.tensor(Y)}
CLASSES = {"logits": lambda: pg.tensor(LOGITS), "targets": lambda: pg.tensor([0, 1, 2, 3])}
GOOD = {
    "cross_entropy": CLASSES,
    "nll_loss": {"x": CLASSES["logits"], "target": CLASSES["targets"]},
    "z_loss": CLASSES,
    "linear_cross_entropy": {
        "x": lambda: pg.tensor(X),
        "weight": lambda: pg.ones((3, X.shape[-1])),
        "targets": lambda: pg.tensor([0, 1, 2]),
    },
    "cosine_embedding_loss": {
        "x1": lambda: pg.tensor(X),
        "x2": lambda: pg.tensor(Y),
        "target": lambda: pg.tensor([1, -1, 1]),
    },
    "margin_ranking_loss": {
        "a": VECTORS["x"],
        "b": VECTORS["target"],
        "target": VECTORS["x"],
    },
    "triplet_margin_loss": {
        "anchor": VECTORS["x"],
        "positive": VECTORS["target"],
        "negative": VECTORS["x"],
    },
    "gaussian_nll_loss": {**VECTORS, "var": lambda: pg.ones(X.shape)},
    "info_nce": {"query": lambda: pg.tensor(X), "key": lambda: pg.tensor(Y)},
    "binary_cross_entropy": {
        "x": lambda: pg.full(X.shape, 0.25),
        "target": lambda: pg.ones(X.shape),
    },
}
ODD = [
    None, "x", "", b"x", True, -1, 0, 7, 10**400, 2.5, np.nan, np.inf, 1e39, 1j,
    np.complex64(1), [], (), {}, [1.0], object, object(), np.array(["mean"]),
    np.array([1.0, 2.0]), np.array(0.5),
    nn.Linear(2, 2), pg.tensor([1, 2]), pg.tensor(0.5), pg.ones((2, 3)),
    pg.ones((4, 5), dtype="f16"),
]  # fmt: skip


@pytest.mark.parametrize("name", [*FUNCTIONS, *MODULES])
def test_odd_arguments_are_taken_or_named(name):
    call = FUNCTIONS.get(name) or MODULES[name]
    good = GOOD.get(name, VECTORS) if name in FUNCTIONS else {}
    call(**{key: make() for key, make in good.items()})
    refused = {}
    for argument in inspect.signature(call).parameters:
        for odd in ODD:
            try:
                made = call(**({key: make() for key, make in good.items()} | {argument: odd}))
                if name in FUNCTIONS:
                    made.numpy()
            except (ValueError, TypeError) as error:
                refused[f"{argument}={odd!r}"] = str(error)
    who = rf"({name}|cross_entropy_loss)"  # the op that computes it
    unnamed = {k: text for k, text in refused.items() if not re.match(rf"{who}: ", text)}
    assert not unnamed
    assert len(refused) > 20


@pytest.mark.parametrize("name", MODULES)
def test_modules_check_an_option_before_they_are_called(name):
    with pytest.raises(ValueError, match=f"^{name}: reduction must be"):
        MODULES[name](reduction="average")
    for option, value in [
        ("label_smoothing", 1.5), ("ignore_index", 0.5), ("beta", -1.0), ("delta", 0.0),
        ("margin", "far"), ("temperature", 0.0), ("symmetric", "no"), ("coefficient", -1.0),
        ("log_target", 1),
    ]:  # fmt: skip
        if option in inspect.signature(MODULES[name]).parameters:
            with pytest.raises((TypeError, ValueError), match=f"^{name}: {option} must be"):
                MODULES[name](**{option: value})


def test_whole_numbers_may_be_numpys():
    logits, targets = pg.tensor(LOGITS), pg.tensor([0, 1, 2, 3])
    n = np.int64(2)
    for options in ({}, {"label_smoothing": np.float32(0.1)}, {"weight": pg.ones((5,))}):
        got = F.cross_entropy(logits, targets, ignore_index=n, **options).item()
        assert got == F.cross_entropy(logits, targets, ignore_index=2, **options).item()
    assert F.z_loss(logits, targets, ignore_index=n).item() > 0
