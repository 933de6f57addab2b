# SPDX-License-Identifier: MIT
"""Calls whose ops are recorded when a graph needs them: the ops of calls recorded at once."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn, ops
from pyggml.backend.library import ffi
from pyggml.graph.walk import walk
from pyggml.nn import functional as F
from pyggml.tensors.node import Node, listen
from pyggml.tensors.on_demand import Recalled, on_demand
from pyggml.tensors.truth import is_mask
from pyggml.testing import CASES, Case

LINES = Path(__file__).read_text().splitlines()


def _is_waiting(t: pg.Tensor) -> bool:
    return not t.node.is_recorded


def _ops(root: Node) -> list[Any]:
    """Return what the headers below a node have, in the order of a walk."""
    nodes = walk([root], set())
    places = {int(ffi.cast("uintptr_t", node.ptr)): i for i, node in enumerate(nodes)}
    found: list[Any] = []
    for node in nodes:
        ptr = node.ptr
        sources = [places.get(int(ffi.cast("uintptr_t", source))) for source in ptr.src]
        numbers = bytes(ffi.buffer(ptr.op_params))
        marks = sorted(map(id, node.notes or ())) if node.buffer is None else []
        layout = list(ptr.ne), list(ptr.nb), ptr.view_offs, ptr.flags
        found.append((ptr.op, ptr.type, layout, numbers, sources, marks, node.requires_grad))
    return found


def _tensors(case: Case, seed: int) -> list[pg.Tensor]:
    trained = range(len(case.shapes)) if case.grad is None else case.grad
    arrays = [array.astype(np.float32) for array in case.operands(seed)]
    return [pg.tensor(a, requires_grad=i in trained) for i, a in enumerate(arrays)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_ops_are_those_of_a_call_at_once(case: Case) -> None:
    for seed in (0, 1):  # the first one is remembered
        case.run(*_tensors(case, seed))
    later = case.run(*_tensors(case, 2))
    with listen(lambda node: None):  # nothing waits for a listener
        now = case.run(*_tensors(case, 2))
    assert now.node.is_recorded
    assert (later.shape, later.dtype, later.requires_grad) == (
        now.shape, now.dtype, now.requires_grad,
    )  # fmt: skip
    assert later.node.layout is now.node.layout
    assert _ops(later.node) == _ops(now.node)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + x, lambda x: 2.0 * x, lambda x: -x, lambda x: x @ x, lambda x: x[0],
        lambda x: x[:, None], lambda x: x.reshape(-1), lambda x: x.T, lambda x: x.mean(dim=0),
        lambda x: F.layer_norm(x, 3), F.gelu, lambda x: x.softmax(dim=-1),
        lambda x: F.mse_loss(x, x), lambda x: F.linear(x, x), lambda x: x.flatten(),
    ],
)  # fmt: skip
def test_calls_wait(call: Callable[[pg.Tensor], pg.Tensor]) -> None:
    x = pg.tensor(np.arange(9.0).reshape(3, 3).astype(np.float32), requires_grad=True)
    first = call(x)
    second = call(x)
    assert _is_waiting(second)
    assert (second.shape, second.dtype, second.ndim) == (first.shape, first.dtype, first.ndim)
    np.testing.assert_array_equal(second.numpy(), first.numpy())
    assert not _is_waiting(second)


def test_other_numbers_of_python_are_other_calls() -> None:
    x = pg.tensor([1.0])
    for _ in range(2):
        assert (x * 2).tolist() == [2.0]
        assert (x * 3).tolist() == [3.0]
        assert str((x * -0.0).item()) == "-0.0"
        assert str((x * 0.0).item()) == "0.0"
        with pytest.raises(TypeError, match="keepdim"):
            x.sum(0, 1)
        assert x.sum(0, True).shape == (1,)
        assert ops.sum(x, keepdim=True).shape == (1,)
        assert ops.sum(x, 0).shape == ()


def test_what_is_known_to_be_a_mask() -> None:
    x = pg.tensor([[1.0, -1.0], [0.0, 2.0]])
    for _ in range(3):
        for plain, mask in ((x, x > 0), (x * 2.0, x * 2.0 > 0), (x.reshape(4), x.reshape(4) > 0)):
            for same in (lambda t: t, lambda t: t.reshape(-1), lambda t: t[:1]):
                assert is_mask(same(mask).node)
                assert not is_mask(same(plain).node)
                assert is_mask(pg.ops.logical_not(same(mask)).node)
                assert is_mask(pg.ops.logical_not(same(plain)).node)
        assert not is_mask((mask * 2.0).node)


def test_lists_of_tensors() -> None:
    a, b = pg.tensor([1.0, 2.0]), pg.tensor([3.0, 4.0])
    for _ in range(2):
        joined, turned = pg.cat([a, b]), pg.cat([b, a])
        twice, stacked = pg.cat((a, a)), pg.stack([a, b], dim=1)
    assert all(map(_is_waiting, (joined, turned, twice, stacked)))
    assert joined.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert turned.tolist() == [3.0, 4.0, 1.0, 2.0]
    assert twice.tolist() == [1.0, 2.0, 1.0, 2.0]
    assert stacked.tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_an_error_comes_each_time_and_at_once() -> None:
    a, b = pg.ones(2, 3), pg.ones(3, 2)
    for _ in range(3):
        with pytest.raises(pg.ShapeError, match="add"):
            a + b
        (a @ b).sum()


def test_numbers_that_a_function_reads_are_read_each_time() -> None:
    q = pg.ones(1, 1, 2, 4)
    for _ in range(2):
        ops.flash_attn_ext(q, q, q, pg.zeros(2, 2))
        with pytest.raises(ValueError, match="f16"):
            ops.flash_attn_ext(q, q, q, pg.full((2, 2), 1e5))


def test_row_numbers_are_checked_each_time() -> None:
    table, ids = pg.ones(3, 2), pg.tensor([0, 2])
    for _ in range(3):
        assert ops.get_rows(table, ids).shape == (2, 2)
        with pytest.raises(pg.ShapeError, match="get_rows"):
            ops.get_rows(table, pg.tensor([0, 3]))
    with pytest.raises(pg.ShapeError):
        ids.copy_([0, 3])
    ids.copy_([2, 0])
    with pytest.raises(pg.ShapeError, match="get_rows"):
        ops.get_rows(pg.ones(2, 2), ids)


def test_the_line_is_that_of_the_call() -> None:
    x = pg.tensor([1.0, 2.0])
    for _ in range(2):
        y = (x + 1.0) * 3.0  # line: of the call
    nodes = [node for node in walk([y.node], set()) if node.buffer is None]
    assert len(nodes) == 2
    assert all(LINES[node.origin[1] - 1].endswith("line: of the call") for node in nodes)


def test_a_parameter_written_before_the_ops_are_recorded() -> None:
    w = nn.Parameter([1.0])
    for _ in range(2):
        y = w * 2.0
    w.copy_([5.0])
    assert y.tolist() == [2.0]


def test_a_long_chain() -> None:
    x = pg.tensor([0.0])
    for _ in range(5000):
        x = x + 1.0
    assert x.item() == 5000.0


def test_autocast_is_that_of_the_call() -> None:
    x = pg.tensor([[1.0 + 2.0**-12]])
    for _ in range(2):
        with pg.autocast("f16"):
            rounded = x @ x
        exact = x @ x
        assert _is_waiting(rounded) == _is_waiting(exact)
    assert rounded.item() == 1.0
    assert exact.item() > 1.0


def test_a_checkpoint_marks_what_it_calls_alone() -> None:
    x = nn.Parameter([1.0, 2.0])
    for _ in range(2):
        outside = x * 2.0
        inside: list[Node] = []
        with listen(inside.append):
            y = outside + 1.0
    assert [node.shape for node in inside] == [(2,)]
    assert inside[0] is y.node


def test_threads_that_record_one_call() -> None:
    x = nn.Parameter(np.ones((4, 4), np.float32))
    for _ in range(20):
        h = x
        for _ in range(30):
            h = h @ x * 0.25
        y, found = h.sum(), []
        threads = [threading.Thread(target=lambda: found.append(y.item())) for _ in range(4)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [16.0] * 4


@pytest.mark.parametrize("slot", ["ptr", "srcs"])
def test_an_op_that_another_thread_recorded_meanwhile(slot: str) -> None:
    """The slot was found empty, and is filled before this thread goes on."""
    x = pg.tensor([1.0, 2.0])
    for _ in range(3):
        node = (x * 3.0).node
    filled = getattr(node, slot)
    assert Node.__getattr__(node, slot) is filled


def test_what_is_not_asked_for_is_forgotten() -> None:
    table: Recalled[int] = Recalled()
    for i in range(5000):
        table.put(i, i + 1)
        assert table.get(0) == 1
    assert table.get(1) is None
    assert table.get(4999) == 5000


def test_a_layout_is_known_as_long_as_a_call_has_it() -> None:
    """Thousands of other layouts come between the call that is remembered and the next ones."""
    x = pg.tensor(np.ones((3, 7), np.float32))
    for _ in range(2):
        (x * 2.0).exp()
    others = np.ones(3000, np.float32)
    for size in range(1, 3000):
        assert pg.tensor(others[:size]).node.layout.shape == (size,)
    later = x * 2.0
    assert _is_waiting(later)
    with listen(lambda node: None):
        now = x * 2.0
    assert now.node.is_recorded
    assert later.node.layout is now.node.layout
    assert _is_waiting(now.exp())


@pytest.mark.parametrize("call", [lambda x: x, lambda x: x > 0, lambda x: x[1:].T])
def test_layouts_that_nothing_has_take_no_memory(call: Callable[[pg.Tensor], pg.Tensor]) -> None:
    gc.disable()  # they end with the tensor
    try:
        with listen(lambda node: None):  # no call is remembered
            made = [call(pg.tensor(np.ones((3, 1001), np.float32)))]
        layout = weakref.ref(made[0].node.layout)
        assert layout() is not None
        made.clear()
        assert layout() is None
    finally:
        gc.enable()


def test_a_layout_that_ends_forgets_itself_alone() -> None:
    """Not the one that was made of its key while the collector ended it."""

    class Owner:
        pass

    def values() -> pg.Tensor:
        return pg.tensor(np.ones((3, 1005), np.float32))

    made = []
    with listen(lambda node: None):  # no call is remembered
        owner = Owner()
        owner.cycle, owner.kept = owner, values()
        assert owner.kept.node.layout.shape == (3, 1005)
        end = weakref.ref(owner, lambda _: made.append(values().node.layout))
        del owner
        gc.collect()
        assert end() is None
        assert values().node.layout is made[0]


def test_the_end_of_a_layout_runs_no_python_code() -> None:
    """A signal that comes there would be lost, and its exception printed."""
    made = [pg.tensor(np.ones((3, 1003), np.float32))]
    assert made[0].node.layout.shape == (3, 1003)
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(f"{event} {frame.f_code.co_name}"))
    made.clear()
    sys.setprofile(None)
    assert [each for each in called if each.startswith("call ")] == []


def test_a_factor_that_changes_takes_no_memory() -> None:
    x = pg.tensor([1.0])
    for i in range(3000):
        y = x * (1.0 + i)
    assert y.item() == 3000.0


def test_a_write_of_another_thread_during_a_first_call() -> None:
    """It gives what was recorded before its numbers, and the call goes on."""
    stored = pg.tensor([1.0, 2.0])

    def write() -> None:
        stored.copy_([5.0, 6.0])

    @on_demand
    def twice(t: pg.Tensor) -> pg.Tensor:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        return t + t

    assert twice(stored * 3.0).tolist() == [6.0, 12.0]
    assert twice(stored * 3.0).tolist() == [30.0, 36.0]
