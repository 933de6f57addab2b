# SPDX-License-Identifier: MIT
"""L-BFGS: PyTorch's steps, resumed with the same bits, and refusals."""

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.optim import LBFGS

from .cases import compared_with_pytorchs

rng = np.random.default_rng(0)
SHAPES = [(3, 4), (5,), (2, 3)]
START = [rng.standard_normal(s).astype(np.float32) for s in SHAPES]
SIZES = [np.exp(rng.uniform(-0.5, 0.5, s)).astype(np.float32) for s in SHAPES]
GOALS = [rng.standard_normal(s).astype(np.float32) for s in SHAPES]


def bent(w, goals, sizes, tanh):
    """A function with a curvature that changes."""
    total = 0.0
    for p, goal, size in zip(w, goals, sizes, strict=True):
        d = (p - goal) * size
        total = total + (d * d + tanh(p * goal) * 0.5).sum()
    return total


def problem(**options):
    tensors = [nn.Parameter(x) for x in START]
    optimizer = LBFGS(tensors, **options)
    constants = [[pg.tensor(x) for x in values] for values in (GOALS, SIZES)]
    loss = bent(tensors, *constants, pg.ops.tanh)
    graph = pg.Graph([loss], loss=loss, grads=optimizer.grads)

    def closure():
        optimizer.zero_grad()
        graph.run()
        return float(graph.read(loss))

    return tensors, optimizer, closure


OPTIONS = [
    {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 4},
    {"line_search_fn": "strong_wolfe", "history_size": 10, "max_iter": 1, "lr": 0.5},
    {"line_search_fn": "strong_wolfe", "history_size": 4, "max_iter": 5, "lr": 3.0, "max_eval": 9},
    {"line_search_fn": None, "history_size": 3, "max_iter": 2, "lr": 0.1},
]


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("options", OPTIONS)
@compared_with_pytorchs(LBFGS)
def test_ten_iterations_are_pytorchs(options):
    torch = pytest.importorskip("torch")
    tensors, optimizer, closure = problem(**options)
    theirs = [torch.nn.Parameter(torch.tensor(x)) for x in START]
    other = torch.optim.LBFGS(theirs, **{"lr": 1.0, **options})
    constants = [[torch.tensor(x) for x in values] for values in (GOALS, SIZES)]

    def their_closure():
        other.zero_grad()
        loss = bent(theirs, *constants, torch.tanh)
        loss.backward()
        return loss

    # Long first steps come so near that the last bits of the losses say where a search ends.
    while optimizer.iterations < (10 if optimizer.lr <= 1 else 5):
        loss = optimizer.step(closure)
        assert loss == pytest.approx(float(other.step(their_closure).detach()), rel=1e-5)
        for p, q in zip(tensors, theirs, strict=True):
            np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-5)
    counts = other.state[theirs[0]]
    assert (optimizer.iterations, optimizer.evaluations) == (counts["n_iter"], counts["func_evals"])


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@compared_with_pytorchs(LBFGS)
def test_the_way_through_rosenbrocks_valley_is_pytorchs():
    """With strong Wolfe: the same points after as many evaluations, down to the minimum."""
    torch = pytest.importorskip("torch")

    def valley(w):
        x, y = w[:, 0:1], w[:, 1:2]
        return ((1.0 - x) * (1.0 - x) + 100.0 * ((y - x * x) * (y - x * x))).sum()

    options = {"line_search_fn": "strong_wolfe", "max_iter": 4, "max_eval": 20}
    w = nn.Parameter([[-1.2, 1.0]])
    optimizer = LBFGS([w], history_size=10, **options)
    theirs = torch.nn.Parameter(torch.tensor([[-1.2, 1.0]]))
    other = torch.optim.LBFGS([theirs], history_size=10, **options)

    def closure(of, where):
        of.zero_grad()
        loss = valley(where)
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(lambda: closure(optimizer, w))
        other.step(lambda: closure(other, theirs))
        assert optimizer.evaluations == other.state[theirs]["func_evals"]
        # Later on rounding, which the valley's curvature magnifies, shows until the minimum.
        if optimizer.iterations <= 12:
            np.testing.assert_allclose(w.numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(w.numpy(), 1.0, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_restored_state_continues_with_the_same_bits(options):
    one, straight, closure = problem(**options)
    for _ in range(3):
        straight.step(closure)
    two, resumed, other = problem(**options)
    for p, q in zip(two, one, strict=True):
        p.copy_(q)
    resumed.load_state_dict(straight.state_dict())
    for _ in range(3):
        assert straight.step(closure) == resumed.step(other)
        for p, q in zip(one, two, strict=True):
            np.testing.assert_array_equal(p.numpy(), q.numpy())
    for key, value in straight.state_dict().items():
        np.testing.assert_array_equal(value, resumed.state_dict()[key])


def test_the_state_is_checked_before_anything_is_loaded():
    _, optimizer, closure = problem(history_size=3)
    optimizer.step(closure)
    state = optimizer.state_dict()
    for changes, error, message in [
        ({"history.rows": np.asarray([0, 0, -1])}, ValueError, "each once"),
        ({"history.rows": np.asarray([7, -1, -1])}, ValueError, "rows of 3"),
        ({"history.rho": np.asarray([np.nan, 0, 0])}, ValueError, "must be finite"),
        (
            {"history.steps": np.zeros((2, 23))},
            pg.ShapeError,
            r"history\.steps must have",
        ),
        ({"iterations": -1}, ValueError, "counters must be >= 0"),
        ({"other": 1}, KeyError, "unexpected"),
    ]:
        with pytest.raises(error, match=message):
            optimizer.load_state_dict({**state, **changes})
    for key, value in optimizer.state_dict().items():
        np.testing.assert_array_equal(value, state[key])


def test_a_step_into_what_is_not_finite_is_shortened():
    """The logarithm has no value where a full first step would lead."""
    w = nn.Parameter([0.01])
    optimizer = LBFGS([w], lr=50.0)

    def closure():
        optimizer.zero_grad()
        loss = (w - pg.ops.log(w)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert w.item() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("search", ["strong_wolfe", None])
def test_what_is_not_finite_or_fails_changes_nothing(search):
    tensors, optimizer, closure = problem(line_search_fn=search, max_iter=5)
    optimizer.step(closure)
    before = [p.numpy() for p in tensors]
    calls = []

    def fails():
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("broken")
        return closure()

    with pytest.raises(KeyError, match="broken"):
        optimizer.step(fails)
    with pytest.raises(FloatingPointError, match="no parameter was changed"):
        optimizer.step(lambda: closure() * float("nan"))
    for p, value in zip(tensors, before, strict=True):
        np.testing.assert_array_equal(p.numpy(), value)
    # However often that happens, the next step is a good one.
    for _ in range(6):
        calls[:] = []
        with pytest.raises(KeyError, match="broken"):
            optimizer.step(fails)
    start = closure()
    optimizer.lr = 0.1 if search is None else 1.0
    optimizer.step(closure)
    assert closure() < start


@pytest.mark.parametrize("search", ["strong_wolfe", None])
def test_gradients_that_are_not_finite_later_spoil_nothing(search):
    """The loss is finite, and its gradient at the new places is not."""
    w = nn.Parameter([1.0, -2.0])
    optimizer = LBFGS([w], lr=0.5, line_search_fn=search)
    calls = []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        if len(calls) > 1:
            optimizer.grads[w].copy_([float("nan"), 1.0])
        return loss

    if search is None:
        with pytest.raises(FloatingPointError, match="parameters are those before it"):
            optimizer.step(closure)
    else:
        optimizer.step(closure)
    assert w.tolist() == [1.0, -2.0]


def test_bad_arguments_are_named():
    p = nn.Parameter([1.0, 2.0])
    for options, message in [
        ({"fused_update": True}, "fused_update must be False"),
        ({"line_search_fn": "armijo"}, "line_search_fn must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"max_eval": 0}, "max_eval must be"),
        ({"history_size": 0}, "history_size must be"),
        ({"tolerance_grad": -1.0}, "tolerance_grad must be"),
        ({"tolerance_change": float("nan")}, "tolerance_change must be"),
        ({"weight_decay": 0.1}, "weight_decay must be 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            LBFGS([p], **options)
    with pytest.raises(ValueError, match="lr_scale 1"):
        LBFGS([{"params": [p], "lr_scale": 0.5}])
    optimizer = LBFGS([p])
    with pytest.raises(ValueError, match="needs a closure"):
        optimizer.step(lr=0.1)
    with pytest.raises(ValueError, match="clip must be None"):
        optimizer.step(lambda: 0.0, clip=1.0)
    q = nn.Parameter([1.0])
    optimizer = LBFGS([p, q])
    q.requires_grad = False
    with pytest.raises(pg.GradientError, match="a parameter was frozen"):
        optimizer.step(lambda: 0.0)
