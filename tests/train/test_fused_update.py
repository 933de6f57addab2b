# SPDX-License-Identifier: MIT
"""Updates in the backward: the bits of the ordinary step, without gradients that stay."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.errors import GradientError, ShapeError
from pyggml.graph import Graph, grad_of
from pyggml.models import GPT2, GPT2Config, Llama, LlamaConfig
from pyggml.optim import SGD, AdamW, AdamW8bit, Lion, decay_groups
from pyggml.train import NonFiniteError, TrainingError, TrainStep

from .test_trainer import At
from .tiny import SEQ_LEN, VOCAB, make_model, make_trainer, same

MODELS = {"gpt2": (GPT2, GPT2Config), "llama": (Llama, LlamaConfig)}


def batch(rows=4, seed=0, length=SEQ_LEN, vocab=VOCAB):
    ids = np.random.default_rng(seed).integers(0, vocab, (rows, length + 1)).astype(np.int32)
    return ids[:, :-1], ids[:, 1:]


def train(arch, optimizer, fused, tie=True, checkpointing=False, precision=None, steps=3, **more):
    pg.seed(0)
    module, config = MODELS[arch]
    model = module(config(64, context=32, n_embd=32, n_layer=2, n_head=2, tie=tie, **more))
    model.checkpointing = checkpointing
    opt = optimizer(decay_groups(model, 0.1), lr=1e-2, fused_update=fused)
    step = TrainStep(model, opt, precision=precision)
    # Two shapes, so that two graphs take turns.
    sizes = [(4, 32) if i % 2 else (2, 16) for i in range(steps)]
    results = [step([batch(b, i, t, 64)], lr=1e-2 / (i + 1)) for i, (b, t) in enumerate(sizes)]
    return results, model.state_dict(), opt.state_dict(), step


def like(fused, kept):
    """The same results; a norm alone may be summed in another order."""
    norms = [[result.grad_norm for result in results] for results in (fused, kept)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    return [replace(r, grad_norm=0.0) for r in fused] == [replace(r, grad_norm=0.0) for r in kept]


@pytest.mark.parametrize(
    ("arch", "optimizer"),
    [
        ("gpt2", AdamW),
        ("llama", SGD),
        pytest.param("gpt2", SGD, marks=pytest.mark.slow),
        pytest.param("llama", AdamW, marks=pytest.mark.slow),
    ],
)
def test_the_bits_of_the_ordinary_step(arch, optimizer):
    for tie, checkpointing, precision in itertools.product(
        (True, False), (False, True), (None, "bf16")
    ):
        options = {"tie": tie, "checkpointing": checkpointing, "precision": precision}
        kept = train(arch, optimizer, False, **options)
        fused = train(arch, optimizer, True, **options)
        assert like(fused[0], kept[0]), options
        assert same(fused[1], kept[1]), options
        assert same(fused[2], kept[2]), options


def test_the_same_dropout():
    options = {"dropout": 0.2, "checkpointing": True}
    kept, fused = (train("gpt2", AdamW, on, **options) for on in (False, True))
    assert like(fused[0], kept[0])
    assert same(fused[1], kept[1])


def test_no_gradient_stays():
    _, _, _, step = train("gpt2", AdamW, True)
    assert step.optimizer.grad_nbytes == 0
    assert all(p.grad is None for p in step.model.parameters())
    assert not any(g.is_stored for g in step.optimizer.grads.values())


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", [AdamW, AdamW8bit, Lion])
def test_no_room_for_all_gradients_is_planned(kind, checkpointing):
    """With layers that are large for the few tokens, gradients kept to the end would show."""

    def planned(fused):
        pg.seed(0)
        model = GPT2(GPT2Config(64, context=8, n_embd=64, n_layer=12, n_head=2))
        model.checkpointing = checkpointing
        step = TrainStep(model, kind(model.parameters(), fused_update=fused))
        weights = sum(p.nbytes for p in model.parameters())
        return step.record((1, 8)).memory_bytes, weights

    (kept, weights), (fused, _) = planned(False), planned(True)
    assert fused < kept + 0.15 * weights


def test_what_waits_for_its_reader_reads_what_was_there():
    """A product of stored numbers waits for the gradient, but not beyond a later write to them."""
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    m, other, got = pg.tensor([3.0, 5.0]), pg.tensor([10.0, 10.0]), pg.zeros((2,))
    dw, hyper = grad_of(w), pg.tensor([-1.0, 0.0])
    effects = [
        ops.cpy(m * 2.0 + dw, got),  # needs the gradient
        ops.opt_step_sgd(m, other, hyper),  # m + other, which needs none
    ]
    loss = (w * w).sum()
    Graph([loss], loss=loss, grads={w: dw}, effects=effects).run()
    assert got.tolist() == [8.0, 14.0]
    assert m.tolist() == [13.0, 15.0]


def test_each_update_waits_for_the_last_reader_only():
    """The update of a layer comes before the gradients of the layers below it."""
    ws = [pg.tensor(np.eye(8, dtype=np.float32), requires_grad=True) for _ in range(3)]
    h = pg.ones((4, 8))
    for w in ws:
        h = ops.gelu(ops.linear(h, w))
    loss, hyper = h.sum(), pg.tensor([0.1, 0.0])
    grads = {w: grad_of(w) for w in ws}
    updates = [ops.opt_step_sgd(w, g, hyper) for w, g in grads.items()]
    graph = Graph([loss], loss=loss, grads=grads, effects=updates)
    with pg.profile() as taken:
        graph.run()
    names = [r.op for r in taken.records]
    first = names.index("OPT_STEP_SGD")
    assert names.count("OPT_STEP_SGD") == 3
    assert "GELU_BACK" in names[first:]
    assert names.index("GELU_BACK") < first


def test_a_parameter_that_the_loss_does_not_need_decays_all_the_same():
    found = []
    for fused in (False, True):
        used, idle = (pg.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
        opt = AdamW([used, idle], lr=0.1, weight_decay=0.5, fused_update=fused)
        loss = (used * used).sum()
        if fused:
            effects, squares = opt.recorded_update()
            graph = Graph([loss, squares], loss=loss, grads=opt.grads, effects=effects)
            with opt.updating():
                graph.run()
        else:
            Graph([loss], loss=loss, grads=opt.grads).run()
            opt.step()
        found.append((used.tolist(), idle.tolist(), opt.steps))
    assert found[0] == found[1]
    assert found[0][1] != [1.0, -2.0]


def test_results_are_those_of_effects_at_the_end():
    """What reads a parameter before its update in the order of effects gets the old numbers."""
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    before, after, hyper = pg.zeros((2,)), pg.zeros((2,)), pg.tensor([0.5, 0.0])
    dw = grad_of(w)
    loss = (w * w).sum()
    scaled = ops.mul(dw, (w * w).sum())  # the update itself may read the parameter
    effects = [ops.cpy(w * 1.0, before), ops.opt_step_sgd(w, scaled, hyper), ops.cpy(w, after)]
    Graph([loss, dw * 1.0], loss=loss, grads={w: dw}, effects=effects).run()
    assert before.tolist() == [1.0, 2.0]
    assert w.tolist() == [1.0 - 0.5 * 2.0 * 5.0, 2.0 - 0.5 * 4.0 * 5.0]
    assert after.tolist() == w.tolist()


def test_gradients_that_pass_beside_gradients_that_stay():
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    b = pg.tensor([3.0, 4.0], requires_grad=True)
    dw, db = grad_of(w), pg.zeros((2,))
    loss = (w * b).sum()
    shown, part = dw * 1.0, dw[1:]
    graph = Graph([loss, shown, part, dw], loss=loss, grads={w: dw, b: db})
    graph.run()
    assert graph.read(shown).tolist() == graph.read(dw).tolist() == [3.0, 4.0]
    assert graph.read(part).tolist() == [4.0]
    assert db.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("seen", [False, True])
def test_gradients_that_are_views(seen):
    w = pg.tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3), requires_grad=True)
    x = np.arange(3.0, 9.0, dtype=np.float32).reshape(3, 2)
    dw, hyper = grad_of(w), pg.tensor([1.0, 0.0])
    loss = (ops.gelu(w.T) * pg.tensor(x)).sum()
    outputs = [loss, dw, dw.reshape(6)] if seen else [loss]
    step = ops.opt_step_sgd(w, dw.reshape(6).reshape(2, 3), hyper)
    graph = Graph(outputs, loss=loss, grads={w: dw}, effects=[step])
    kept = pg.zeros((2, 3))
    Graph([loss], loss=loss, grads={w: kept}).run()
    want, before = kept.numpy(), w.numpy()
    graph.run()
    np.testing.assert_array_equal(w.numpy(), before - want)
    for output in outputs[1:]:
        np.testing.assert_array_equal(graph.read(output).ravel(), want.ravel())


def test_what_grad_of_refuses():
    w = pg.tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    with pytest.raises(TypeError, match="stored f32"):
        grad_of(w * 2.0)
    with pytest.raises(GradientError, match="only in a graph with its parameter"):
        (grad_of(w) * 2.0).numpy()
    with pytest.raises(GradientError, match="only in a graph with its parameter"):
        Graph(
            [loss], loss=loss, grads={w: grad_of(w)}, effects=[ops.cpy(grad_of(w), pg.zeros((2,)))]
        )
    with pytest.raises(ShapeError, match="of its shape"):
        Graph([loss], loss=loss, grads={w: grad_of(pg.ones((3,)))})
    other, shared = pg.ones((2,)), grad_of(w)
    with pytest.raises(ValueError, match="given twice"):
        Graph([loss], loss=loss, grads={w: shared, other: shared})


def test_what_needs_all_gradients_is_refused():
    model = make_model()
    optimizer = AdamW(model.parameters(), fused_update=True)
    with pytest.raises(ValueError, match="clip must be None or 0"):
        TrainStep(model, optimizer, clip=1.0)
    step = TrainStep(model, optimizer, clip=0.0)
    before = model.state_dict()
    with pytest.raises(ValueError, match="got 2 batches"):
        step([batch(), batch()])
    remove = model.parameters()[0].register_hook(lambda grad: None)
    with pytest.raises(GradientError, match="hooks"):
        step([batch()])
    remove()
    for call in (optimizer.step, optimizer.zero_grad, optimizer.grad_norm):
        with pytest.raises(GradientError, match="fused_update"):
            call()
    assert same(model.state_dict(), before)
    assert optimizer.steps == 0
    assert step([batch()]).grad_norm > 0
    assert optimizer.steps == 1


@pytest.mark.parametrize("profiled", [False, True])
def test_a_loss_that_is_not_finite_changes_nothing(profiled):
    model = make_model()
    optimizer = AdamW(model.parameters(), fused_update=True)
    step = TrainStep(model, optimizer)
    step([batch()])
    model.parameters()[0].copy_(np.full(model.parameters()[0].shape, np.nan, np.float32))
    before, state = model.state_dict(), optimizer.state_dict()
    watched = pg.profile() if profiled else contextlib.nullcontext()
    with pytest.raises(NonFiniteError, match="loss must be finite") as caught, watched:
        step([batch()], lr=0.5)
    assert not caught.value.spoiled
    assert same(model.state_dict(), before)
    assert same(optimizer.state_dict(), state)


def test_anomalies_are_found():
    model = make_model()
    step = TrainStep(model, AdamW(model.parameters(), fused_update=True))
    with pg.detect_anomaly():
        step([batch()])
    model.parameters()[0].copy_(np.full(model.parameters()[0].shape, np.nan, np.float32))
    with pytest.raises(pg.AnomalyError), pg.detect_anomaly():
        step([batch()])


def test_gradients_that_are_not_finite_are_told():
    """The loss is finite, its gradient is not: the parameters are changed when that is seen."""

    def loss(model, ids, targets):
        kink = ops.sqrt(model.parameters()[-1] * 0.0).sum()
        return model.loss(ids, targets) + kink

    model = make_model()
    step = TrainStep(model, SGD(model.parameters(), fused_update=True), loss=loss)
    with pytest.raises(NonFiniteError, match="gradients must be finite") as caught:
        step([batch()])
    assert caught.value.spoiled


def test_the_trainer_says_so(tmp_path):
    trainer = make_trainer(
        tmp_path, steps=4, fused_update=True, clip=0.0, save_every=1, val=None,
        loss=lambda model, ids, targets: (
            model.loss(ids, targets) + ops.sqrt(model.parameters()[-1] * 0.0).sum()
        ),
    )  # fmt: skip
    with pytest.raises(TrainingError, match=r"spoiled.*no checkpoint yet.*without `fused_update`"):
        trainer.fit()


def test_a_run_resumes_with_the_same_bits(tmp_path):
    options = {"steps": 6, "fused_update": True, "clip": 0.0, "save_every": 3}
    whole = make_trainer(tmp_path / "whole", **options)
    whole.fit()

    class Stop(Exception):
        pass

    def stop(trainer):
        raise Stop

    first = make_trainer(tmp_path / "parts", [At(4, stop)], **options)
    with pytest.raises(Stop):
        first.fit()
    rest = make_trainer(tmp_path / "parts", **options)
    assert rest.resume() == 4  # an error in a callback leaves a checkpoint
    rest.fit()
    assert same(rest.model.state_dict(), whole.model.state_dict())
    assert same(rest.optimizer.state_dict(), whole.optimizer.state_dict())
    kept = make_trainer(steps=6, clip=0.0)
    kept.fit()
    assert same(kept.model.state_dict(), whole.model.state_dict())


def test_the_plan_has_no_gradients():
    plan = make_trainer(fused_update=True, clip=0.0).plan()
    weights = sum(p.nbytes for p in make_trainer().model.parameters())
    assert plan.gradients == 0
    assert plan.parameters == weights
    assert plan.optimizer == 2 * weights
