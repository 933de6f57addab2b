# SPDX-License-Identifier: MIT
from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import BackendError, Graph
from pyggml.graph.memory_plan import Activations, Computation
from pyggml.models import GPT2, GPT2Config
from pyggml.optim import SGD
from pyggml.tensors.random import seed
from pyggml.train.step import TrainStep


def chain(x: pg.Tensor, n: int) -> pg.Tensor:
    for _ in range(n):
        x = pg.ops.gelu(x * 2.0)
    return x


def test_graphs_take_turns_in_one_buffer() -> None:
    rng = np.random.default_rng(0)
    shared = Activations(pg.device("cpu"))
    inputs = [pg.tensor(rng.standard_normal((rows, 64))) for rows in (16, 256, 4, 64)]
    outputs = [chain(x, 3) for x in inputs]
    alone = [Graph([y]) for y in outputs]
    together = [Graph([y], activations=shared) for y in outputs]
    assert [g.memory_bytes for g in together] == [g.memory_bytes for g in alone]
    assert shared.memory_bytes == max(g.memory_bytes for g in alone)
    for _ in range(2):  # and in another order than they were planned in
        for at in (2, 0, 1, 3, 3, 0):
            alone[at].run()
            together[at].run()
            want = alone[at].read(outputs[at])
            np.testing.assert_array_equal(together[at].read(outputs[at]), want)


def test_results_of_an_earlier_turn_are_not_read() -> None:
    shared = Activations(pg.device("cpu"))
    a, b = pg.ones((3,)) * 2.0, pg.ones((4,)) * 3.0
    first, second = Graph([a], activations=shared), Graph([b], activations=shared)
    first.run()
    second.run()
    assert second.read(b).tolist() == [3.0] * 4
    with pytest.raises(BackendError, match="activations"):
        first.read(a)
    first.run()
    assert first.read(a).tolist() == [2.0] * 3


def test_operands_that_a_plan_of_several_devices_replaces_come_back() -> None:
    """ggml's scheduler reads copies from another device, and frees them with itself."""
    ctx = pg.ffi.gc(pg.lib.ggml_init([10_000, pg.ffi.NULL, True]), pg.lib.ggml_free)
    a, b, copy = (pg.lib.ggml_new_tensor_1d(ctx, pg.lib.GGML_TYPE_F32, 4) for _ in range(3))
    total = pg.lib.ggml_add(ctx, a, b)
    computation = Computation(pg.ffi.NULL, ctx, 1, n_tensors=4, most_bytes=64, memory=ctx)
    computation.unplan(several=True)
    total.src[1] = copy
    computation.unplan(several=False)
    assert (total.src[0], total.src[1], total.src[2]) == (a, b, pg.ffi.NULL)


def test_what_cannot_be_shared_is_refused() -> None:
    with pytest.raises(TypeError, match=r"activations .*dict"):
        Graph([pg.ones((3,)) * 2.0], activations={})  # type: ignore[arg-type]


def steps(shapes: list[tuple[int, int]]) -> tuple[TrainStep, list[float], np.ndarray]:
    seed(0)
    model = GPT2(GPT2Config(vocab_size=31, context=32, n_embd=16, n_layer=2, n_head=2))
    step = TrainStep(model, SGD(model.parameters(), lr=0.1), clip=1.0)
    rng = np.random.default_rng(0)
    losses = []
    for shape in shapes:
        ids = rng.integers(0, 31, (shape[0], shape[1] + 1), dtype=np.int32)
        batch = ids[:, :-1], ids[:, 1:]
        losses += [step([batch]).loss, step.loss_sum(batch)[0]]
    return step, losses, model.parameters()[0].numpy()


def test_batches_of_many_shapes_take_the_memory_of_the_largest() -> None:
    shapes = [(2, 8), (4, 32), (1, 3), (2, 8), (3, 17), (4, 32)]
    step, losses, weights = steps(shapes)
    largest = max(step.record(shape).memory_bytes for shape in shapes)
    assert step.activation_bytes == largest
    assert np.isfinite(losses).all()
    # The same numbers as with graphs that have memory of their own.
    other, again, weights_again = None, None, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyggml.train.step.graphs.Activations", lambda device: None)
        other, again, weights_again = steps(shapes)
    apart = sum(other.record(shape).memory_bytes for shape in set(shapes))
    assert other.activation_bytes >= apart > 1.5 * largest
    assert again == losses
    np.testing.assert_array_equal(weights_again, weights)
