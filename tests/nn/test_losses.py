# SPDX-License-Identifier: MIT
"""Every loss against PyTorch, value and gradient, and against central differences: one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.nn import functional, losses

rng = np.random.default_rng(0)


def normal(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


@dataclass
class Case:
    """One way to call a loss.

    Args:
        name: of the function; the rest of the key tells cases apart.
        inputs: arrays that get a gradient.
        fixed: arrays that get none, after the inputs.
        options: keyword arguments; arrays become tensors.
        torch: function of PyTorch's tensors and options; None is the one of the same name.
        reductions: those it has.
        eps: step of the differences.
    """

    name: str
    inputs: tuple[np.ndarray, ...]
    fixed: tuple[np.ndarray, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    torch: Callable[..., Any] | None = None
    reductions: tuple[str, ...] = ("mean", "sum", "none")
    eps: float = 1e-2


def torch_linear_cross_entropy(x, weight, targets, reduction, **options):
    import torch

    return torch_cross_entropy(torch.nn.functional.linear(x, weight), targets, reduction, **options)


def torch_nll_loss(x, target, reduction, weight=None, **options):
    """PyTorch's classes are the second axis."""
    import torch

    moved = torch.movedim(x, -1, 1 if x.ndim > 1 else 0)
    return torch.nn.functional.nll_loss(
        moved, target.long(), weight, reduction=reduction, **options
    )


def torch_cross_entropy(logits, targets, reduction, **options):
    """PyTorch's classes are the second axis."""
    import torch

    move = torch.movedim
    weight = options.pop("weight", None)
    axis = 1 if logits.ndim > 1 else 0
    soft = targets.is_floating_point()
    return torch.nn.functional.cross_entropy(
        move(logits, -1, axis),
        move(targets, -1, axis) if soft else targets.long(),
        weight,
        reduction=reduction,
        **options,
    )


def torch_info_nce(query, key, *negatives, temperature, symmetric=False, reduction):
    import torch

    f = torch.nn.functional
    keys = f.normalize(torch.cat([key, *negatives]), dim=-1)
    logits = f.normalize(query, dim=-1) @ keys.T / temperature
    at = torch.arange(len(query))
    loss = f.cross_entropy(logits, at, reduction="none")
    if symmetric:
        loss = (loss + f.cross_entropy(logits.T, at, reduction="none")) / 2
    return loss if reduction == "none" else getattr(loss, reduction)()


def torch_z_loss(logits, *targets, coefficient, ignore_index=-100, reduction):
    loss = coefficient * logits.logsumexp(-1) ** 2
    if targets:
        counts = (targets[0] != ignore_index).to(loss.dtype)
        loss = loss * counts
        if reduction == "mean":
            return loss.sum() / counts.sum().clamp(min=1)
    return loss if reduction == "none" else getattr(loss, reduction)()


def torch_square_error(x, target, reduction):
    loss = (x - target) ** 2
    return loss if reduction == "none" else getattr(loss, reduction)()


LOGITS = normal(3, 5, 7, scale=2)
CLASSES = rng.integers(0, 7, (3, 5)).astype(np.int32)
GAPS = np.where(rng.random((3, 5)) < 0.3, -100, CLASSES).astype(np.int32)
NONE = np.full((3, 5), 2, np.int32)
WEIGHT = rng.uniform(0.2, 2, 7).astype(np.float32)
SOFT = softmax(normal(3, 5, 7))
X, Y = normal(4, 6), normal(4, 6)
FAR = X + np.where(rng.random((4, 6)) < 0.5, 0.3, -2.5).astype(np.float32)
ELEMENTS = rng.uniform(0.2, 2, (4, 6)).astype(np.float32)
SIGNS = np.array([1, -1, -1, 1], np.int32)
HEAD, HEAD_TARGETS = normal(5, 6), np.array([4, 0, 3, 1], np.int32)

CASES = {
    "cross_entropy": Case("cross_entropy", (LOGITS,), (CLASSES,), torch=torch_cross_entropy),
    "cross_entropy gaps": Case("cross_entropy", (LOGITS,), (GAPS,), torch=torch_cross_entropy),
    "cross_entropy one": Case(
        "cross_entropy", (LOGITS[0, 0],), (CLASSES[0, 0],), torch=torch_cross_entropy
    ),
    "cross_entropy weight": Case(
        "cross_entropy", (LOGITS,), (GAPS,), {"weight": WEIGHT}, torch_cross_entropy
    ),
    "cross_entropy smooth": Case(
        "cross_entropy", (LOGITS,), (GAPS,), {"label_smoothing": 0.1}, torch_cross_entropy
    ),
    "cross_entropy smooth weight": Case(
        "cross_entropy",
        (LOGITS,),
        (np.where(GAPS == -100, 3, GAPS).astype(np.int32),),
        {"label_smoothing": 0.3, "weight": WEIGHT, "ignore_index": 3},
        torch_cross_entropy,
    ),
    "cross_entropy soft": Case("cross_entropy", (LOGITS,), (SOFT,), torch=torch_cross_entropy),
    "cross_entropy soft both": Case("cross_entropy", (LOGITS, SOFT), torch=torch_cross_entropy),
    "cross_entropy soft smooth weight": Case(
        "cross_entropy",
        (LOGITS,),
        (SOFT,),
        {"label_smoothing": 0.2, "weight": WEIGHT},
        torch_cross_entropy,
    ),
    "binary": Case("binary_cross_entropy_with_logits", (normal(4, 6, scale=4),), (softmax(X),)),
    "binary both": Case("binary_cross_entropy_with_logits", (X, softmax(Y))),
    "binary weights": Case(
        "binary_cross_entropy_with_logits",
        (X,),
        ((Y > 0).astype(np.float32),),
        {"weight": ELEMENTS, "pos_weight": WEIGHT[:6]},
    ),
    # Away from 0, where a difference would step over the end of the logarithm.
    "binary of probabilities": Case(
        "binary_cross_entropy", (0.2 + 0.6 * softmax(X),), (softmax(Y),)
    ),
    "nll_loss": Case("nll_loss", (LOGITS,), (CLASSES,), torch=torch_nll_loss),
    "nll_loss gaps": Case("nll_loss", (LOGITS,), (GAPS,), {"weight": WEIGHT}, torch_nll_loss),
    "mse_loss": Case("mse_loss", (X, Y)),
    "mse_loss weight": Case("mse_loss", (X, Y), (), {"weight": ELEMENTS}),
    "square_error": Case("square_error", (X, Y), torch=torch_square_error),
    "l1_loss": Case("l1_loss", (X, FAR)),
    "l1_loss weight": Case("l1_loss", (X, FAR), (), {"weight": ELEMENTS}),
    "smooth_l1_loss": Case("smooth_l1_loss", (X, FAR)),
    "smooth_l1_loss beta": Case("smooth_l1_loss", (X, FAR), (), {"beta": 0.5}),
    "smooth_l1_loss sharp": Case("smooth_l1_loss", (X, FAR), (), {"beta": 0.0}),
    "huber_loss": Case("huber_loss", (X, FAR), (), {"delta": 1.5}),
    "huber_loss weight": Case("huber_loss", (X, FAR), (), {"weight": ELEMENTS}),
    "kl_div": Case(
        "kl_div",
        (np.log(softmax(X)), softmax(0.3 * Y)),
        reductions=("mean", "sum", "none", "batchmean"),
        eps=4e-3,
    ),
    "kl_div log": Case(
        "kl_div",
        (np.log(softmax(X)), np.log(softmax(Y))),
        (),
        {"log_target": True},
        reductions=("mean", "sum", "none", "batchmean"),
    ),
    "cosine_embedding_loss": Case("cosine_embedding_loss", (X, Y), (SIGNS,)),
    "cosine_embedding_loss margin": Case(
        "cosine_embedding_loss", (X, X + 0.5 * Y), (SIGNS,), {"margin": 0.3}
    ),
    "cosine_embedding_loss one": Case("cosine_embedding_loss", (X[0], Y[0]), (SIGNS[0],)),
    "info_nce": Case("info_nce", (X, X + Y), (), {"temperature": 0.5}, torch_info_nce),
    "info_nce symmetric": Case(
        "info_nce", (X, X + Y), (), {"temperature": 0.3, "symmetric": True}, torch_info_nce
    ),
    "info_nce negatives": Case(
        "info_nce", (X, X + Y, normal(3, 6)), (), {"temperature": 0.5}, torch_info_nce
    ),
    "linear_cross_entropy": Case(
        "linear_cross_entropy", (X, HEAD), (HEAD_TARGETS,), {}, torch_linear_cross_entropy
    ),
    "linear_cross_entropy smoothed": Case(
        "linear_cross_entropy",
        (X, HEAD),
        (HEAD_TARGETS,),
        {"label_smoothing": 0.2, "ignore_index": 3},
        torch_linear_cross_entropy,
    ),
    "margin_ranking_loss": Case("margin_ranking_loss", (X, FAR), (np.sign(Y),), {"margin": 0.1}),
    "hinge_embedding_loss": Case("hinge_embedding_loss", (X,), (np.sign(Y),), {"margin": 0.7}),
    "soft_margin_loss": Case("soft_margin_loss", (X,), (np.sign(Y),)),
    "triplet_margin_loss": Case("triplet_margin_loss", (X, Y, FAR)),
    "triplet_margin_loss swap": Case("triplet_margin_loss", (X, Y, FAR), (), {"swap": True}),
    "multilabel_soft_margin_loss": Case(
        "multilabel_soft_margin_loss", (X,), ((Y > 0).astype(np.float32),), {"weight": WEIGHT[:6]}
    ),
    "poisson_nll_loss": Case("poisson_nll_loss", (X,), (np.abs(Y).round(),)),
    "poisson_nll_loss counts": Case(
        "poisson_nll_loss",
        (ELEMENTS,),
        (np.abs(3 * Y).round(),),
        {"log_input": False, "full": True},
    ),
    "gaussian_nll_loss": Case("gaussian_nll_loss", (X, Y, ELEMENTS)),
    "z_loss": Case("z_loss", (LOGITS,), (), {"coefficient": 0.1}, torch_z_loss),
    "z_loss gaps": Case("z_loss", (LOGITS,), (GAPS,), {"coefficient": 0.1}, torch_z_loss),
}
FUNCTIONS = {n: f for n in losses.__all__ if inspect.isfunction(f := getattr(losses, n))}
MODULES = {n: c for n in losses.__all__ if inspect.isclass(c := getattr(losses, n))}
ALL = [(key, reduction) for key, case in CASES.items() for reduction in case.reductions]


def test_every_loss_is_in_the_table():
    assert set(FUNCTIONS) == {case.name for case in CASES.values()}
    assert set(FUNCTIONS) <= set(functional.__all__)
    assert set(MODULES) <= set(nn.__all__)
    assert set(MODULES) == set(MODULE_ARGUMENTS)


def call(case, reduction):
    """The loss as a function of its inputs."""
    options = {k: pg.tensor(v) if isinstance(v, np.ndarray) else v for k, v in case.options.items()}
    fixed = [pg.tensor(x) for x in case.fixed]
    fn = FUNCTIONS[case.name]
    return lambda *inputs: fn(*inputs, *fixed, reduction=reduction, **options)


def torch_call(case, reduction, inputs):
    """PyTorch's value and gradients in float64."""
    import torch

    def convert(x):
        t = torch.tensor(x)
        return t.double() if t.is_floating_point() else t

    given = [convert(x).requires_grad_() for x in inputs]
    fixed = [convert(x) for x in case.fixed]
    options = {k: convert(v) if isinstance(v, np.ndarray) else v for k, v in case.options.items()}
    fn = case.torch or getattr(torch.nn.functional, case.name)
    value = fn(*given, *fixed, reduction=reduction, **options)
    value.sum().backward()
    return value.detach().numpy(), [x.grad.numpy() for x in given]


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize(("key", "reduction"), ALL)
def test_values_and_gradients_are_pytorchs(key, reduction):
    pytest.importorskip("torch")
    case = CASES[key]
    value, grads = torch_call(case, reduction, case.inputs)
    fn = call(case, reduction)
    got = fn(*map(pg.tensor, case.inputs))
    assert got.shape == value.shape
    np.testing.assert_allclose(got.numpy(), value, rtol=2e-6, atol=2e-6)
    numbers = range(len(case.inputs))
    _, found = pg.value_and_grad(lambda *x: fn(*x).sum(), list(numbers))(*case.inputs)
    for grad, want in zip(found, grads, strict=True):
        np.testing.assert_allclose(grad.numpy(), want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("key", "reduction"), ALL)
def test_gradients_are_differences(key, reduction):
    case = CASES[key]
    assert pg.check_grads(call(case, reduction), *case.inputs, eps=case.eps) < 1e-2


def test_large_logits_stay_finite():
    x = pg.tensor([[-1000.0, 0.0, 1000.0], [1e4, -1e4, 0.0]])
    t = pg.tensor([0, 1])
    assert functional.cross_entropy(x, t).item() == pytest.approx((2000 + 20000) / 2)
    smooth = functional.cross_entropy(x, t, label_smoothing=0.3).item()
    assert smooth == pytest.approx(0.7 * 11000 + 0.3 * (1000 + 10000) / 2)
    binary = functional.binary_cross_entropy_with_logits(x, pg.zeros((2, 3)), reduction="none")
    assert binary.tolist() == [
        [0.0, pytest.approx(np.log(2)), 1000.0],
        [1e4, 0.0, binary[1, 2].item()],
    ]


@pytest.mark.parametrize("options", [{}, {"weight": WEIGHT}, {"label_smoothing": 0.1}])
def test_where_nothing_counts_the_loss_is_zero(options):
    options = {k: pg.tensor(v) if k == "weight" else v for k, v in options.items()}
    logits, targets = pg.tensor(LOGITS), pg.tensor(np.full((3, 5), -100, np.int32))
    value, grad = pg.value_and_grad(lambda x: functional.cross_entropy(x, targets, **options))(
        logits
    )
    assert value.item() == 0.0
    assert not grad.numpy().any()
    assert functional.z_loss(logits, targets).item() == 0.0


def test_a_target_that_is_no_class_makes_nan():
    logits, targets = pg.tensor(LOGITS[0, :2]), pg.tensor([1.0, 7.0]).astype("i32")
    rows = functional.cross_entropy(logits, targets, reduction="none", weight=pg.tensor(WEIGHT))
    assert np.isfinite(rows.numpy()).tolist() == [True, False]


def test_kl_of_a_target_with_zeros():
    x, target = pg.tensor(np.log(softmax(X[0]))), pg.tensor([0.5, 0.0, 0.5, 0.0, 0.0, 0.0])
    loss = functional.kl_div(x, target, "none").numpy()
    np.testing.assert_array_equal(loss[[1, 3, 4, 5]], 0.0)
    assert np.isfinite(loss).all()


def test_losses_are_trained_on_in_a_compiled_function():
    """Targets are inputs that change between the runs of one recording."""
    weight = pg.tensor(WEIGHT)

    def loss(x, at):
        return functional.cross_entropy(x, at, weight=weight, label_smoothing=0.1)

    both = pg.value_and_grad(loss)
    for seed in range(3):
        at = np.random.default_rng(seed).integers(0, 7, (3, 5)).astype(np.int32)
        value, _ = both(pg.tensor(LOGITS), pg.tensor(at))
        assert value.item() == pytest.approx(loss(pg.tensor(LOGITS), pg.tensor(at)).item())


MODULE_ARGUMENTS = {
    "MarginRankingLoss": ("margin_ranking_loss", {"margin": 0.1}, (X, Y, np.sign(FAR))),
    "HingeEmbeddingLoss": ("hinge_embedding_loss", {"margin": 0.7}, (X, np.sign(Y))),
    "SoftMarginLoss": ("soft_margin_loss", {"reduction": "sum"}, (X, np.sign(Y))),
    "TripletMarginLoss": ("triplet_margin_loss", {"p": 3.0, "swap": True}, (X, Y, FAR)),
    "MultiLabelSoftMarginLoss": (
        "multilabel_soft_margin_loss",
        {"weight": WEIGHT[:6]},
        (X, (Y > 0).astype(np.float32)),
    ),
    "PoissonNLLLoss": ("poisson_nll_loss", {"full": True}, (X, np.abs(Y).round())),
    "GaussianNLLLoss": ("gaussian_nll_loss", {"full": True}, (X, Y, ELEMENTS)),
    "CrossEntropyLoss": (
        "cross_entropy",
        {"label_smoothing": 0.1, "weight": WEIGHT},
        (LOGITS, GAPS),
    ),
    "BCEWithLogitsLoss": (
        "binary_cross_entropy_with_logits",
        {"pos_weight": WEIGHT[:6], "reduction": "sum"},
        (X, softmax(Y)),
    ),
    "BCELoss": ("binary_cross_entropy", {"reduction": "sum"}, (softmax(X), softmax(Y))),
    "NLLLoss": (
        "nll_loss",
        {"weight": WEIGHT, "ignore_index": 1},
        (LOGITS, np.where(GAPS < 0, 1, GAPS)),
    ),
    "MSELoss": ("mse_loss", {"reduction": "sum"}, (X, Y)),
    "L1Loss": ("l1_loss", {"reduction": "none"}, (X, Y)),
    "SmoothL1Loss": ("smooth_l1_loss", {"beta": 0.7}, (X, Y)),
    "HuberLoss": ("huber_loss", {"delta": 0.7}, (X, Y)),
    "KLDivLoss": ("kl_div", {"reduction": "batchmean", "log_target": True}, (X, Y)),
    "CosineEmbeddingLoss": ("cosine_embedding_loss", {"margin": 0.2}, (X, Y, SIGNS)),
    "InfoNCE": ("info_nce", {"temperature": 0.2, "symmetric": True}, (X, Y)),
    "ZLoss": ("z_loss", {"coefficient": 0.2, "reduction": "sum"}, (LOGITS, GAPS)),
}


@pytest.mark.parametrize("name", MODULE_ARGUMENTS)
def test_modules_are_their_functions(name):
    function, options, arguments = MODULE_ARGUMENTS[name]
    options = {k: pg.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    given = [pg.tensor(x) for x in arguments]
    want = FUNCTIONS[function](*given, **options).numpy()
    np.testing.assert_array_equal(MODULES[name](**options)(*given).numpy(), want)
    own = set(inspect.signature(MODULES[name]).parameters)
    of_function = set(inspect.signature(FUNCTIONS[function]).parameters)
    assert own <= of_function


F = functional
V3, V4, I3 = pg.zeros((3,)), pg.zeros((4,)), pg.tensor([0, 0, 0])
M = pg.zeros((3, 4))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: F.mse_loss(V3, V4), pg.ShapeError, r"one shape; got \(3,\) and \(4,\)"),
        (lambda: F.mse_loss(V3, I3), pg.DTypeError, "target must be f32; got i32"),
        (lambda: F.mse_loss([1.0], V3), TypeError, "x must be a Tensor; got list"),
        (lambda: F.mse_loss(V3, V3, "average"), ValueError, "reduction must be"),
        (lambda: F.mse_loss(V3, V3, weight=V4), pg.ShapeError, r"stretch to \(3,\)"),
        (lambda: F.mse_loss(V3, V3, weight=M), pg.ShapeError, "stretch to"),
        (lambda: F.l1_loss(V3, V4), pg.ShapeError, "one shape"),
        (lambda: F.square_error(V3, V4), pg.ShapeError, "one shape"),
        (lambda: F.huber_loss(V3, V3, delta=0.0), ValueError, "delta must be"),
        (lambda: F.huber_loss(V3, V3, delta=float("nan")), ValueError, "delta must be a finite"),
        (lambda: F.smooth_l1_loss(V3, V3, beta=-1.0), ValueError, "beta must be"),
        (lambda: F.kl_div(V3, V4), pg.ShapeError, "one shape"),
        (lambda: F.kl_div(V3, V3, "sums"), ValueError, "mean, batchmean, sum, none"),
        (lambda: F.cross_entropy(M, V3), pg.ShapeError, r"f32 targets are a probability for each"),
        (lambda: F.cross_entropy(M, pg.tensor([0, 1])), pg.ShapeError, "less its last axis"),
        (lambda: F.cross_entropy(pg.tensor(1.0), I3), pg.ShapeError, "must be"),
        (lambda: F.cross_entropy(M, V3.astype("f16")), pg.DTypeError, "i32 or f32; got f16"),
        (lambda: F.cross_entropy(M, I3, weight=V3), pg.ShapeError, r"weight must be \(4,\)"),
        (
            lambda: F.cross_entropy(M, I3, label_smoothing=1.5),
            ValueError,
            "label_smoothing must be",
        ),
        (lambda: F.cross_entropy(M, I3, label_smoothing=-0.1), ValueError, ">= 0"),
        (
            lambda: F.cross_entropy(M, I3, ignore_index=2**40),
            ValueError,
            "ignore_index must be",
        ),
        (lambda: F.cross_entropy(M, I3, reduction="batch"), ValueError, "reduction must be"),
        (
            lambda: F.binary_cross_entropy_with_logits(M, M, pos_weight=V3),
            pg.ShapeError,
            r"pos_weight must stretch to \(3, 4\); got \(3,\)",
        ),
        (lambda: F.cosine_embedding_loss(M, M, V4), pg.ShapeError, r"target \(N,\)"),
        (lambda: F.cosine_embedding_loss(M, M, I3, margin=2.0), ValueError, "margin must be"),
        (lambda: F.cosine_embedding_loss(M, M, V3.astype("f16")), pg.DTypeError, "got f16"),
        (lambda: F.info_nce(M, pg.zeros((2, 4))), pg.ShapeError, r"query and key must be \(N, D\)"),
        (lambda: F.info_nce(M, M, pg.zeros((2, 3))), pg.ShapeError, r"negatives must be \(M, 4\)"),
        (lambda: F.info_nce(M, M, temperature=0.0), ValueError, "temperature must be"),
        (lambda: F.info_nce(M, M, M, symmetric=True), ValueError, "takes no negatives"),
        (lambda: F.z_loss(M, V3), pg.DTypeError, "targets must be i32"),
        (lambda: F.z_loss(M, pg.tensor([0, 1])), pg.ShapeError, r"targets must be \(3,\)"),
        (lambda: F.z_loss(M, I3, ignore_index=1.5), TypeError, "ignore_index must be"),
        (lambda: F.z_loss(M, coefficient=-1.0), ValueError, "coefficient must be"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
