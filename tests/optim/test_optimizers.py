# SPDX-License-Identifier: MIT
import importlib
import inspect
import pkgutil
import sys
from copy import copy
from pathlib import Path

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, optim
from pyggml.backend.library import lib
from pyggml.models import GPT2, GPT2Config
from pyggml.optim import SGD, AdamW, clip_factor, decay_groups, schedules

from .cases import CASES, COMPARED, PLAIN, both_step

SHAPES = [(3, 4), (5,), (1, 1), (2, 3, 7)]


def params(shapes=SHAPES, seed=0):
    rng = np.random.default_rng(seed)
    return [nn.Parameter(rng.standard_normal(s).astype(np.float32)) for s in shapes]


def put(optimizer, grads, tensors=None):
    """Write the gradients, of `tensors` in their order or of the optimizer's parameters."""
    where = optimizer.params if tensors is None else tensors
    for parameter, value in zip(where, grads, strict=True):
        optimizer.grads[parameter].copy_(value)


def test_every_optimizer_has_a_case_and_a_name():
    own = {
        value
        for name in optim.__all__
        if inspect.isclass(value := getattr(optim, name)) and issubclass(value, optim.Optimizer)
    }
    assert own - {optim.Optimizer} == {case.kind for case in CASES.values()}
    assert own - {optim.Optimizer} == set(optim.optimizers().values())
    assert all(name == kind.__name__.lower() for name, kind in optim.optimizers().items())


def comparisons(kind):
    """The tests that step it beside PyTorch's of its name, of the table and of other files."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("test_"):
            importlib.import_module(f"{__package__}.{module.name}")
    own = [
        test
        for test in COMPARED.get(kind, [])
        if test.__name__.startswith("test_")
        and getattr(sys.modules[test.__module__], test.__name__) is test
    ]
    names = [case.torch[0] for case in CASES.values() if case.kind is kind and case.torch]
    return own + [test_ten_steps_are_pytorchs] * names.count(kind.__name__)


@pytest.mark.parametrize("kind", optim.optimizers().values())
def test_every_optimizer_is_compared_with_pytorchs_or_with_its_formula(kind):
    torch = pytest.importorskip("torch")
    if hasattr(torch.optim, kind.__name__):
        assert comparisons(kind)
    else:
        assert all(case.formula for case in CASES.values() if case.kind is kind)


@pytest.mark.parametrize("kind", optim.optimizers().values())
def test_positional_arguments_mean_what_they_mean_in_pytorch(kind):
    torch = pytest.importorskip("torch")
    # PyTorch has neither of these; bitsandbytes and the author of Lion have AdamW's order.
    name = {"AdamW8bit": "AdamW"}.get(kind.__name__, kind.__name__)
    theirs = ["params", "lr", "betas", "weight_decay"]
    if hasattr(torch.optim, name):
        theirs = positional(getattr(torch.optim, name))
    ours = positional(kind)
    assert ours == theirs[: len(ours)]


def positional(kind):
    parameters = inspect.signature(kind).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def test_the_third_argument_of_sgd_is_its_momentum():
    optimizer = SGD(params(), 0.1, 0.9)
    assert optimizer.momentum == 0.9
    assert all(group.weight_decay == 0 for group in optimizer.groups)


@pytest.mark.parametrize("kind", optim.optimizers().values())
def test_a_module_is_divided_as_the_docs_say(kind):
    config = GPT2Config(16, context=4, n_embd=8, n_layer=1, n_head=2, tie=False)
    decay = 0.0 if kind is optim.LBFGS else 0.1
    optimizer = kind(GPT2(config), weight_decay=decay)
    got = {n: g.weight_decay for g in optimizer.groups for n in g.names}
    model = GPT2(config)
    assert set(got) == {name for name, _ in model.named_parameters()}
    for name, value in got.items():
        kept = name.endswith("bias") or any(part in name for part in ("ln_", "wte", "wpe"))
        assert value == (0.0 if kept else decay), name
    if kind is optim.Muon:
        rules = {n: g.options["rule"] for g in optimizer.groups for n in g.names}
        assert rules["lm_head.weight"] == rules["transformer.wte.weight"] == "adamw"
        assert rules["transformer.h.0.mlp.c_fc.weight"] == "muon"


def test_a_comparison_that_steps_only_one_is_no_comparison():
    torch = pytest.importorskip("torch")
    ours = SGD(params(), lr=0.1)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    step = SGD.step, torch.optim.SGD.step

    def compare(*optimizers):
        with both_step(SGD, torch.optim.SGD):
            for optimizer in optimizers:
                optimizer.step()

    for takes in ([], [ours], [theirs], [ours, ours, theirs]):
        with pytest.raises(AssertionError):
            compare(*takes)
    compare(ours, theirs)
    assert step == (SGD.step, torch.optim.SGD.step)


def make(case, tensors, decay=0.3, **more):
    """The optimizer over two groups that differ in decay and rate."""
    groups = [
        {"params": tensors[:2], "weight_decay": decay},
        {"params": tensors[2:], "lr_scale": 0.5},
    ]
    return case.kind(groups, **{"lr": 0.1, "weight_decay": 0.0, **case.options, **more})


def ten_gradients():
    """Small ones in between, which are not clipped."""
    rng = np.random.default_rng(1)
    for t in range(1, 11):
        size = 1.0 if t % 2 else 0.01
        yield t, [size * rng.standard_normal(s).astype(np.float32) for s in SHAPES]


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.formula])
@pytest.mark.parametrize("clip", [None, 1.5])
def test_ten_steps_follow_the_formula(name, clip):
    case = CASES[name]
    tensors = params()
    optimizer = make(case, tensors)
    want = {id(p): p.numpy().astype(np.float64) for p in tensors}
    state = {id(p): {} for p in tensors}
    for t, grads in ten_gradients():
        put(optimizer, grads, tensors)
        lr = 0.1 / t
        norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in grads))
        assert optimizer.step(lr=lr, clip=clip) == pytest.approx(norm, rel=1e-5)
        factor = 1.0 if clip is None else min(1.0, clip / (norm + 1e-6))
        for i, (p, g) in enumerate(zip(tensors, grads, strict=True)):
            rate, wd = (lr, 0.3) if i < 2 else (lr * 0.5, 0.0)
            cut = g.astype(np.float64) * factor
            want[id(p)] = case.formula(want[id(p)], cut, state[id(p)], t, rate, wd)
            np.testing.assert_allclose(p.numpy(), want[id(p)], rtol=2e-5, atol=2e-6)
    assert optimizer.steps == 10
    assert optimizer.lr == pytest.approx(0.01)


@pytest.mark.parametrize("beta2", [0.999, 0.9999, 0.99999])
@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_fifty_steps_with_a_beta2_near_one_are_pytorchs(kind, beta2, amsgrad):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    # Weights near zero: an error of the steps is not hidden by the rounding of large weights.
    param = nn.Parameter(np.zeros(999, np.float32))
    theirs = torch.nn.Parameter(torch.zeros(999, dtype=torch.float64))
    options = {"lr": 1e-3, "betas": (0.9, beta2), "weight_decay": 0.0, "amsgrad": amsgrad}
    ours = getattr(optim, kind)([param], **options)
    other = getattr(torch.optim, kind)([theirs], **options)
    for _ in range(50):
        grad = rng.standard_normal(999).astype(np.float32)
        ours.grads[param].copy_(grad)
        theirs.grad = torch.tensor(grad.astype(np.float64))
        ours.step()
        other.step()
    want = theirs.detach().numpy()
    error = np.sqrt(np.mean((param.numpy() - want) ** 2) / np.mean(want**2))
    assert error < 5e-7


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.torch])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_ten_steps_are_pytorchs(name, decay):
    torch = pytest.importorskip("torch")
    case = CASES[name]
    kind, options = case.torch
    tensors = params()
    optimizer = make(case, tensors, decay)
    theirs = [torch.nn.Parameter(torch.tensor(p.numpy())) for p in tensors]
    groups = [{"params": theirs[:2], "weight_decay": decay}, {"params": theirs[2:]}]
    other = getattr(torch.optim, kind)(groups, lr=0.1, **{"weight_decay": 0.0, **options})
    with both_step(case.kind, type(other)):
        for t, grads in ten_gradients():
            put(optimizer, grads, tensors)
            optimizer.step(lr=0.1 / t)
            for group, scale in zip(other.param_groups, (1.0, 0.5), strict=True):
                group["lr"] = 0.1 / t * scale
            for p, g in zip(theirs, grads, strict=True):
                p.grad = torch.tensor(g)
            other.step()
    for p, q in zip(tensors, theirs, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-5, atol=1e-5)


def parabola(w):
    return ((w - 3.0) * (w - 3.0)).sum()


def rosenbrock(w):
    x, y = w[:, 0:1], w[:, 1:2]
    bend = y - x * x
    return ((1.0 - x) * (1.0 - x) + 100.0 * (bend * bend)).sum()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("function", "start", "goal", "tolerance"),
    [(parabola, (-1.0, 5.0), (3.0, 3.0), 1e-2), (rosenbrock, (-0.5, 0.5), (1.0, 1.0), 0.03)],
)
def test_reaches_the_minimum(name, function, start, goal, tolerance):
    case = CASES[name]
    valley = function is rosenbrock
    w = nn.Parameter(np.tile(np.float32(start), (case.rows, 1)))
    options = case.options if case.search is None else case.search
    optimizer = case.kind([w], **{**options, "weight_decay": 0.0})
    loss = function(w)
    graph = pg.Graph([loss], loss=loss, grads=optimizer.grads)
    steps = case.steps if valley else 200
    lr = schedules.linear(case.valley if valley else case.fall, 0.0, steps)

    def gradients():
        optimizer.zero_grad()
        graph.run()
        return float(graph.read(loss))

    for step in range(steps):
        if case.closure:
            optimizer.step(gradients)
        else:
            gradients()
            optimizer.step(lr=lr(step))
    assert np.abs(w.numpy() - np.float32(goal)).max() < tolerance


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", PLAIN)
def test_non_finite_gradients_change_nothing(name, bad):
    tensors = params()
    optimizer = CASES[name].kind(tensors, lr=0.1, **CASES[name].options)
    grads = [np.ones(p.shape, np.float32) for p in tensors]
    put(optimizer, grads, tensors)
    optimizer.step()
    grads[1][2] = bad
    put(optimizer, grads, tensors)
    weights, state = [p.numpy() for p in tensors], optimizer.state_dict()
    with pytest.raises(FloatingPointError, match="at step 2, no parameter was changed"):
        optimizer.step(lr=0.5, clip=1.0)
    for p, w in zip(tensors, weights, strict=True):
        np.testing.assert_array_equal(p.numpy(), w)
    for key, value in optimizer.state_dict().items():
        np.testing.assert_array_equal(value, state[key])


@pytest.mark.parametrize("name", PLAIN)
def test_a_restored_state_continues_with_the_same_bits(name):
    kind, options = CASES[name].kind, CASES[name].options
    rng = np.random.default_rng(5)
    steps = [[rng.standard_normal(s).astype(np.float32) for s in SHAPES] for _ in range(6)]
    one = params()
    straight = kind(one, lr=0.1, **options)
    for grads in steps[:3]:
        put(straight, grads, one)
        straight.step(clip=1.0)
    two = [nn.Parameter(p.numpy()) for p in one]
    resumed = kind(two, lr=0.7, **options)
    resumed.load_state_dict(straight.state_dict())
    for grads in steps[3:]:
        for optimizer, tensors in ((straight, one), (resumed, two)):
            put(optimizer, grads, tensors)
            optimizer.step(clip=1.0)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].fuses])
def test_updates_in_the_backward_give_the_same_bits(name):
    case, found = CASES[name], []
    for fused in (False, True):
        w, b = params([(64, 48), (64,)])
        options = {"lr": 0.1, "weight_decay": 0.1, **case.options}
        optimizer = case.kind([w, b], **options, fused_update=fused)
        x = pg.tensor(np.random.default_rng(2).standard_normal((5, 48)).astype(np.float32))
        loss = (pg.ops.tanh(pg.ops.linear(x, w, b)) * 3.0).sum()
        norms = []
        if fused:
            effects, squares = optimizer.recorded_update()
            outputs = [loss, squares]
            graph = pg.Graph(outputs, loss=loss, grads=optimizer.trained(), effects=effects)
        else:
            graph = pg.Graph([loss], loss=loss, grads=optimizer.grads)
        for t in range(1, 5):
            if fused:
                with optimizer.updating(lr=0.1 / t):
                    graph.run()
                norms.append(float(graph.read(squares)) ** 0.5)
            else:
                optimizer.zero_grad()
                graph.run()
                norms.append(optimizer.step(lr=0.1 / t))
        found.append((norms, [w.numpy(), b.numpy()], optimizer.state_dict()))
    (norms, weights, state), (other_norms, others, other_state) = found
    assert norms == pytest.approx(other_norms, rel=1e-7)
    for a, b in zip([*weights, *state.values()], [*others, *other_state.values()], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", [SGD, optim.Adam, optim.RMSprop])
def test_a_weight_decay_that_changes_later_is_used(kind):
    """It is a part of the update where it is not zero."""
    w, v = params([(3,), (3,)], 0), params([(3,), (3,)], 0)
    options = {"momentum": 0.5} if kind is not optim.Adam else {}
    one, two = kind(w, lr=0.1, **options), kind(v, lr=0.1, weight_decay=0.4, **options)
    two.groups[0].weight_decay = 0.0
    for decay in (0.0, 0.2, 0.4, 0.0):
        one.groups[0].weight_decay = two.groups[0].weight_decay = decay
        for optimizer in (one, two):
            put(optimizer, [np.ones(3), -np.ones(3)])
            optimizer.step()
        np.testing.assert_array_equal(w[0].numpy(), v[0].numpy())
    assert not np.array_equal(w[0].numpy(), params([(3,), (3,)], 0)[0].numpy())


def test_state_dict_is_checked_before_anything_is_loaded():
    optimizer = AdamW(params(), lr=0.1)
    state = optimizer.state_dict()
    assert set(state) == {"steps", "lr", *(f"{i}.{k}" for i in range(4) for k in "mv")}
    with pytest.raises(KeyError, match=r"0\.m"):
        optimizer.load_state_dict({k: v for k, v in state.items() if k != "0.m"})
    with pytest.raises(pg.ShapeError, match=r"1.v must have the shape \(5,\)"):
        optimizer.load_state_dict({**state, "1.v": np.zeros(4)})
    with pytest.raises(ValueError, match="steps must be"):
        optimizer.load_state_dict({**state, "steps": np.int64(-1)})


def test_backward_accumulates_into_the_optimizers_gradients():
    layer = nn.Linear(3, 2)
    optimizer = AdamW(layer.parameters())
    for _ in range(2):
        layer(pg.ones((1, 3))).sum().backward()
    np.testing.assert_allclose(optimizer.grads[layer.weight].numpy(), np.full((2, 3), 2.0))
    assert optimizer.grad_norm() == pytest.approx(np.sqrt(6 * 4 + 2 * 4))
    optimizer.zero_grad()
    assert optimizer.grad_norm() == 0.0
    assert optimizer.nbytes == 2 * 4 * 8


def test_frozen_parameters_are_left_out():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].freeze()
    optimizer = AdamW(decay_groups(model, 0.1))
    assert optimizer.names == ["1.weight", "1.bias"]
    assert [group.weight_decay for group in optimizer.groups] == [0.1, 0.0]


def test_decay_groups():
    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    decayed, plain = decay_groups(model, 0.2)
    assert decayed["names"] == ["2.weight"]
    assert plain["names"] == ["0.weight", "1.weight", "1.bias", "2.bias"]
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.2, 0.0)
    decayed, plain = decay_groups(model, 0.2, decay_embeddings=True)
    assert decayed["names"] == ["0.weight", "2.weight"]
    assert plain["names"] == ["1.weight", "1.bias", "2.bias"]


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_a_device_without_the_folded_ops_clips_all_the_same(kind, monkeypatch):
    taken = {lib.GGML_OP_OPT_STEP_SGD: (2, 2), lib.GGML_OP_OPT_STEP_ADAMW: (4, 7)}

    def supports(self, node):
        if node.op in taken:
            source, count = taken[node.op]
            return int(lib.ggml_nelements(node.src[source])) == count
        return node.op != lib.GGML_OP_SUM_SQR

    def run():
        w = nn.Parameter([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
        optimizer = kind([w], lr=0.1, weight_decay=0.1)
        norms = []
        for scale in (3.0, 0.01, 5.0):
            optimizer.zero_grad()
            (w * w * scale).sum().backward()
            norms.append(optimizer.step(clip=1.0))
        return norms, w.numpy()

    folded = run()
    monkeypatch.setattr(type(pg.device("cpu")), "supports", supports)
    apart = run()
    assert apart[0] == pytest.approx(folded[0], rel=1e-6)
    np.testing.assert_array_equal(apart[1], folded[1])


def test_clip_factor_is_pytorchs():
    torch = pytest.importorskip("torch")
    for size in (0.01, 0.3, 5.0, 1e4):
        p = torch.nn.Parameter(torch.zeros(3))
        p.grad = torch.full((3,), size)
        before = p.grad.clone()
        norm = float(torch.nn.utils.clip_grad_norm_([p], 0.7))
        assert float((p.grad / before)[0]) == pytest.approx(clip_factor(norm, 0.7), rel=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: AdamW([]), ValueError, "params must hold a tensor"),
        (lambda p: AdamW([p, p]), ValueError, "every parameter must be given once"),
        (lambda p: AdamW([p], lr=-1.0), ValueError, "lr must be"),
        (lambda p: AdamW([p], lr=float("nan")), ValueError, "lr must be"),
        (lambda p: AdamW([p], betas=(0.9, 1.0)), ValueError, r"betas\[1\] must be"),
        (lambda p: AdamW([p], eps=0), ValueError, "eps must be"),
        (lambda p: SGD([p], weight_decay=-0.1), ValueError, "weight_decay must be"),
        (lambda p: SGD([{"params": [p], "momentum": 1}]), ValueError, "momentum"),
        (lambda p: SGD([{"weight_decay": 1.0}]), ValueError, "a group must have params"),
        (
            lambda p: SGD([{"params": [p], "lr": 1.0, "lr_scale": 2.0}], 0.1),
            ValueError,
            "one of the",
        ),
        (lambda p: SGD([{"params": [p], "lr": 1.0}], 0.0), ValueError, "an lr above 0"),
        (lambda p: SGD([{"params": [p], "lr": -1.0}], 0.1), ValueError, "a group's lr must be"),
        (lambda p: SGD([{"params": [p], "names": ["a", "b"]}]), ValueError, "as many"),
        (lambda p: SGD([p, 3]), TypeError, "params must be Tensors; got int"),
        (lambda p: SGD([pg.zeros((2,))]), ValueError, "params must hold a tensor"),
        (lambda p: SGD([p]).step(clip=0.0), ValueError, "clip must be"),
        (lambda p: SGD([p]).step(lr=-0.1), ValueError, "lr must be"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make(nn.Parameter([1.0, 2.0]))


def test_a_state_of_another_kind_changes_nothing() -> None:
    opt = AdamW([nn.Parameter([1.0, 2.0])], lr=0.5)
    state = opt.state_dict() | {"steps": np.asarray(7), "0.m": np.array(["a", "b"])}
    with pytest.raises(TypeError, match=r"0\.m"):
        opt.load_state_dict(state)
    assert opt.steps == 0


@pytest.mark.parametrize("name", PLAIN)
def test_frozen_later_and_unfrozen(name):
    w, b = params([(3,), (3,)])
    case = CASES[name]
    optimizer = case.kind([w, b], **{"lr": 0.1, "weight_decay": 0.1, **case.options})
    put(optimizer, [np.ones(3), np.ones(3)])
    assert optimizer.step() == pytest.approx(6**0.5)
    for frozen, free in ((w, b), (b, w)):
        frozen.requires_grad = False
        state = optimizer.state_dict()
        before = frozen.numpy(), free.numpy()
        assert optimizer.grad_norm() == optimizer.step(clip=0.5) == pytest.approx(3**0.5)
        np.testing.assert_array_equal(frozen.numpy(), before[0])
        assert (free.numpy() != before[1]).all()
        own = optimizer.names[next(i for i, p in enumerate(optimizer.params) if p is frozen)]
        for key in state:
            if key.startswith(f"{own}."):
                np.testing.assert_array_equal(optimizer.state_dict()[key], state[key])
        frozen.requires_grad = True
    assert optimizer.step() == pytest.approx(6**0.5)
    w.requires_grad = b.requires_grad = False
    with pytest.raises(pg.GradientError, match="every parameter is frozen"):
        optimizer.step()


def test_unfreezing_what_an_optimizer_left_out_is_refused():
    w, b = params([(3,), (3,)])
    b.requires_grad = False
    optimizer = SGD([w, b], lr=0.1)
    optimizer.step()
    b.requires_grad = True
    with pytest.raises(pg.GradientError, match="parameter 1 "):
        optimizer.step()


def test_a_replaced_gradient_is_used():
    w, b = params([(3,), (3,)])
    start = w.numpy(), b.numpy()
    optimizer = SGD([w, b], lr=1.0)
    own = optimizer.grads[w]
    for n in (1, 2, 3):
        w.grad = b.grad = None
        (w * 2.0).sum().backward()
        assert w.grad is not own
        assert optimizer.step() == pytest.approx(12**0.5)
        np.testing.assert_allclose(w.numpy(), start[0] - 2.0 * n, atol=1e-5)
        np.testing.assert_array_equal(b.numpy(), start[1])
        assert w.grad is own
    w.grad = pg.tensor([1.0, 0.0, 0.0])
    assert optimizer.grad_norm() == 1
    w.grad = pg.ones((3,))
    optimizer.zero_grad()
    assert w.grad is None
    assert optimizer.step() == 0
    optimizer.zero_grad(set_to_none=False)
    assert w.grad is own


def test_two_optimizers_of_the_same_parameters():
    (w,) = params([(3,)])
    start = w.numpy()
    first, second = SGD([w], lr=1.0), SGD([w], lr=10.0)
    (w * 2.0).sum().backward()
    with pytest.raises(pg.GradientError, match=r"another optimizer's.* zero_grad\(\)"):
        first.step()
    np.testing.assert_array_equal(w.numpy(), start)
    first.zero_grad()
    (w * 2.0).sum().backward()
    first.step()
    np.testing.assert_allclose(w.numpy(), start - 2.0, atol=1e-5)
    second.zero_grad()
    (w * 2.0).sum().backward()
    second.step()
    np.testing.assert_allclose(w.numpy(), start - 22.0, atol=1e-5)


def test_a_graph_with_updates_of_parameters_frozen_since_is_refused():
    w, b = params([(3,), (3,)])
    optimizer = SGD([w, b], lr=0.1, fused_update=True)
    loss = (w * b).sum()

    def record():
        effects, squares = optimizer.recorded_update()
        return pg.Graph([squares], effects=effects, loss=loss, grads=optimizer.trained())

    graph = record()
    with optimizer.updating():
        graph.run()
    b.requires_grad = False
    start = w.numpy(), b.numpy()
    with pytest.raises(pg.GradientError, match="frozen or unfrozen since"), optimizer.updating():
        graph.run()
    graph = record()
    with optimizer.updating():
        graph.run()
    np.testing.assert_allclose(w.numpy(), start[0] - 0.1 * start[1], rtol=1e-5)
    np.testing.assert_array_equal(b.numpy(), start[1])


def test_counts_may_be_numpys():
    n = np.int64
    assert schedules.linear(0.0, 1.0, n(4))(n(1)) == 0.25
    assert schedules.warmup_cosine(np.float32(1.0), n(2), n(6))(n(2)) == 1.0
    assert schedules.join([schedules.constant(1.0)] * 2, np.array([3]))(n(5)) == 1.0
    assert (
        optim.LBFGS(params([(2, 2)]), max_iter=n(3), max_eval=n(5), history_size=n(2)).max_iter == 3
    )
    assert optim.Muon(params([(2, 2)]), ns_steps=n(3)).ns_steps == 3
    assert optim.AdamW8bit(params([(2, 2)]), min_8bit_size=n(0)).min_8bit_size == 0
    assert optim.ReduceOnPlateau(1.0, patience=n(3), cooldown=n(1)).patience == 3
    assert AdamW(params([(2, 2)]), lr=np.float32(0.5), betas=np.array([0.5, 0.75])).betas[1] == 0.75


def test_parameters_of_a_wrong_kind_or_value_raise():
    w, layer = nn.Parameter(np.ones((2, 2))), nn.Linear(2, 2)
    other = nn.Parameter(np.ones((2, 2)))
    for params, error, message in [
        (w, TypeError, "params .*list"),
        ({"params": [w]}, TypeError, "params .*list"),
        (dict(layer.named_parameters()), TypeError, "params .*list"),
        (layer.named_parameters(), TypeError, "params .*decay_groups"),
        ([w, {"params": [w]}], TypeError, "params .*groups"),
        ([{"params": layer}], TypeError, "params"),
        ([{"params": w}], TypeError, "params"),
        ([w * 2.0], ValueError, "params .*stored"),
        ([], ValueError, "params"),
        ([pg.ones((2,))], ValueError, "params .*unfreeze"),
        ([w, w], ValueError, "0 .* again as 1"),
        ([w, copy(w)], ValueError, "0 .* again as 1"),
        ([{"params": [w], "names": 1}], TypeError, "names"),
        (
            [{"params": [w], "names": ["a"]}, {"params": [other], "names": ["a"]}],
            ValueError,
            "names .* a twice",
        ),
    ]:
        with pytest.raises(error, match=message):
            AdamW(params)
        assert w.grad is None
