# SPDX-License-Identifier: MIT
"""Operands of several matmuls that a device rounds once: the results, and what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import ops
from pyggml.backend.device import Device
from pyggml.backend.headers import address, op_name
from pyggml.backend.library import lib
from pyggml.graph import checkpoint, recompute

Made = tuple[pg.Graph, pg.Tensor, dict[str, pg.Tensor]]  # a graph, its loss, gradients


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Let the CPU say that it rounds operands in front of matmuls, as a GPU does, or not."""

    def choose(does: bool) -> None:
        monkeypatch.setattr(Device, "rounds_operands", property(lambda self: does))

    return choose


def numbers(*shape: int, seed: int = 0, grad: bool = False) -> pg.Tensor:
    return pg.tensor(
        np.random.default_rng(seed).standard_normal(shape).astype(np.float32), requires_grad=grad
    )


def does_cpu_round() -> bool:
    """Whether this CPU's matmuls use the permission to round; without bf16 units they need not."""
    x, w = numbers(24, 32), numbers(48, 32, seed=1)
    with pg.autocast("bf16"):
        rounded = ops.linear(x, w).tolist()
    return bool(rounded != ops.linear(x, w).tolist())


rounding = pytest.mark.skipif(not does_cpu_round(), reason="this CPU multiplies bf16 in f32")


def counts(graph: pg.Graph) -> Counter[str]:
    """How often the graph has each op; casts to bf16 as "cast"."""
    found = Counter(op_name(h) for h in graph.headers)
    found["cast"] = sum(
        h.op == lib.GGML_OP_CPY and h.type == lib.GGML_TYPE_BF16 for h in graph.headers
    )
    return found


def two_layers(middle: Callable[[pg.Tensor], pg.Tensor], *more: pg.Tensor) -> Made:
    """A loss of two matmuls with `middle` between them, and its gradients."""
    w, v = numbers(48, 32, seed=1, grad=True), numbers(40, 48, seed=2, grad=True)
    x = numbers(24, 32, seed=3)
    with pg.autocast("bf16"):
        loss = ops.linear(middle(ops.linear(x, w)), v).square().sum()
    grads = {"w": pg.zeros(48, 32), "v": pg.zeros(40, 48)}
    totals = {w: grads["w"], v: grads["v"], **{p: pg.zeros(*p.shape) for p in more}}
    graph = pg.Graph([loss], loss=loss, grads=totals, overwrite=True)
    return graph, loss, grads


def apart(ours: object, theirs: object) -> float:
    """How far two results are apart, in parts of the second."""
    return float(np.linalg.norm(np.subtract(ours, theirs)) / np.linalg.norm(np.asarray(theirs)))


def results(make: Callable[[], Made]) -> list[object]:
    graph, loss, grads = make()
    graph.run()
    return [graph.read(loss).tolist(), *(g.tolist() for g in grads.values())]


@rounding
@pytest.mark.parametrize("middle", [ops.gelu, lambda x: recompute(ops.gelu(x)), ops.relu])
def test_same_bits(rounds: Callable[[bool], None], middle: Callable[..., pg.Tensor]) -> None:
    rounds(False)
    expected = results(lambda: two_layers(middle))
    rounds(True)
    assert results(lambda: two_layers(middle)) == expected


def test_each_operand_is_rounded_once(rounds: Callable[[bool], None]) -> None:
    rounds(False)
    assert counts(two_layers(ops.gelu)[0])["cast"] == 0
    rounds(True)
    # v, the activation between the layers, the gradient of the second: twice each. The first
    # layer's input needs no gradient: w, x and the gradient of its result are multiplied once.
    graph = two_layers(ops.gelu)[0]
    casts = [h for h in graph.headers if h.op == lib.GGML_OP_CPY]
    assert len(casts) == counts(graph)["cast"]
    assert len({address(h.src[0]) for h in casts}) == len(casts)
    assert counts(graph)["cast"] == 3


def test_cheap_result_is_kept_rounded_instead_of_computed_again(
    rounds: Callable[[bool], None],
) -> None:
    def middle(x: pg.Tensor) -> pg.Tensor:
        return recompute(ops.gelu(x))

    rounds(False)
    assert counts(two_layers(middle)[0])["GELU"] == 2
    rounds(True)
    assert counts(two_layers(middle)[0])["GELU"] == 1


def test_checkpoint_is_computed_again(rounds: Callable[[bool], None]) -> None:
    u = numbers(48, 48, seed=5, grad=True)

    def inside(x: pg.Tensor) -> pg.Tensor:
        return ops.linear(recompute(ops.gelu(x)), u)

    rounds(True)
    assert counts(two_layers(inside, u)[0])["GELU"] == 1
    # the input of a checkpoint is all that the backward may keep of it
    assert counts(two_layers(lambda x: checkpoint(inside, x), u)[0])["GELU"] == 2


def test_operand_that_is_written_between_is_rounded_again(rounds: Callable[[bool], None]) -> None:
    def run() -> list[np.ndarray]:
        w, x, more = numbers(24, 32, seed=1), numbers(20, 32, seed=2), numbers(24, 32, seed=3)
        rows = pg.tensor(np.arange(24, dtype=np.int32))
        with pg.autocast("bf16"):
            y = x * 2.0
            first = [ops.linear(x, w), ops.linear(y, w)]
            changed = ops.set_rows(w, more, rows)
            second = [ops.linear(x, changed), ops.linear(y, changed)]
        graph = pg.Graph([*first, *second])
        assert counts(graph)["cast"] == (4 if x.device.rounds_operands else 0)
        graph.run()
        return [graph.read(each) for each in (*first, *second)]

    rounds(False)
    expected = run()
    rounds(True)
    for ours, theirs in zip(run(), expected, strict=True):
        assert apart(ours, theirs) < 2**-8
    assert apart(expected[2], expected[0]) > 1


def test_without_permission_nothing_is_rounded(rounds: Callable[[bool], None]) -> None:
    rounds(True)
    w = numbers(48, 32, seed=1, grad=True)
    loss = ops.linear(ops.linear(numbers(24, 32), w), w.T).square().sum()
    graph = pg.Graph([loss], loss=loss, grads={w: pg.zeros(48, 32)})
    assert counts(graph)["cast"] == 0


def head(
    classes: int,
    precision: str,
    *,
    shape: tuple[int, ...] = (24,),
    frozen: bool = False,
    kept: bool = False,
    twice: bool = False,
) -> Made:
    """Logits, their loss and gradients.

    Args:
        classes: how many.
        precision: of the matmuls.
        shape: of the operand, but for its 32 columns.
        frozen: without a gradient of the weight.
        kept: with the logits as an output.
        twice: with another loss of the same logits, whose gradients are added.
    """
    w = numbers(classes, 32, seed=1, grad=not frozen)
    x = numbers(*shape, 32, seed=2, grad=True)
    labels = pg.tensor(np.arange(24, dtype=np.int32) * 40)
    with pg.autocast(precision):
        logits = ops.linear(x, w)
    rows = logits.reshape(24, classes)
    loss = ops.cross_entropy_rows(rows, labels).sum()
    if twice:
        more = pg.tensor(np.arange(24, dtype=np.int32))
        loss = loss + ops.cross_entropy_rows(rows, more).sum()
    grads = {x: pg.zeros(*x.shape)}
    if not frozen:
        grads[w] = pg.zeros(*w.shape)
    graph = pg.Graph([loss, logits] if kept else [loss], loss=loss, grads=grads, overwrite=True)
    return graph, loss, {str(i): total for i, total in enumerate(grads.values())}


def header_of(graph: pg.Graph, op: int) -> Any:
    """Return the only header of an op."""
    (found,) = (h for h in graph.headers if h.op == op)
    return found


LOGITS, GRADIENT = lib.GGML_OP_MUL_MAT, lib.GGML_OP_CROSS_ENTROPY_ROWS_BACK


@pytest.mark.parametrize("precision", ["f32", "tf32", pytest.param("bf16", marks=rounding)])
@pytest.mark.parametrize("classes", [1000, 1056, 1100])
@pytest.mark.parametrize("shape", [(24,), (2, 12)])
def test_logits_of_many_classes(
    rounds: Callable[[bool], None], classes: int, precision: str, shape: tuple[int, ...]
) -> None:
    """Rows of 1,024 classes and more begin at multiples of 128 bytes, the gradient's over them.

    The CPU writes no gradient in bf16: its copy is rounded.
    """
    rounds(False)
    expected = results(lambda: head(classes, precision, shape=shape))
    rounds(True)
    graph, *_ = head(classes, precision, shape=shape)
    logits, gradient = header_of(graph, LOGITS), header_of(graph, GRADIENT)
    row = 4 * (1120 if classes == 1100 else classes)
    assert [logits.nb[1], gradient.nb[1]] == [row, row]
    assert gradient.data == logits.data
    found = results(lambda: head(classes, precision, shape=shape))
    if precision != "bf16":
        assert found == expected
    # The CPU multiplies a bf16 matrix with f32 ones that it does not round.
    for ours, theirs in zip(found, expected, strict=True):
        assert apart(ours, theirs) < 2**-8


@pytest.mark.parametrize("frozen", [False, True])
def test_gradient_of_logits_in_bf16(
    rounds: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch, frozen: bool
) -> None:
    """Where the device writes it, also for a single matmul; nothing else is rounded for it."""
    rounds(True)
    monkeypatch.setattr(Device, "supports", lambda self, node: True)
    # The CPU would not compute it: its memory is not planned.
    monkeypatch.setattr(
        pg.Graph, "_allocate", lambda self, _: setattr(self, "n_nodes", self._plan.n_nodes)
    )
    graph, *_ = head(1100, "bf16", frozen=frozen)
    gradient = header_of(graph, GRADIENT)
    assert (gradient.type, list(gradient.nb)[:2]) == (lib.GGML_TYPE_BF16, [2, 2 * 1152])
    read = [h.src[1] for h in graph.headers if h.op == lib.GGML_OP_OUT_PROD]
    assert len(read) == (1 if frozen else 2)
    for each in read:
        assert each.type == lib.GGML_TYPE_BF16
        assert sorted(list(each.nb)[:2]) == [2, 2 * 1152]
    assert counts(graph)["cast"] == (1 if frozen else 2)  # w, and x if it is multiplied twice


@pytest.mark.parametrize(("precision", "row"), [("f32", 1100), ("tf32", 1120)])
def test_logits_that_are_kept(rounds: Callable[[bool], None], precision: str, row: int) -> None:
    """Their rows stay as they are, and their gradient's are padded for tensor cores alone."""
    rounds(False)
    expected = results(lambda: head(1100, precision, kept=True))
    rounds(True)
    graph, *_ = head(1100, precision, kept=True)
    assert header_of(graph, LOGITS).nb[1] == 4 * 1100
    assert header_of(graph, GRADIENT).nb[1] == 4 * row
    assert results(lambda: head(1100, precision, kept=True)) == expected


@pytest.mark.parametrize("precision", ["f32", "tf32", "bf16"])
def test_gradient_of_logits_that_is_added_up(
    rounds: Callable[[bool], None], precision: str
) -> None:
    """It is no operand of matmuls: it stays as it is, and so do the logits below it."""
    rounds(True)
    graph, *_ = head(1100, precision, twice=True)
    assert header_of(graph, LOGITS).nb[1] == 4 * 1100
    for each in (h for h in graph.headers if h.op == GRADIENT):
        assert (each.type, each.nb[1]) == (lib.GGML_TYPE_F32, 4 * 1100)


def test_heads_are_rounded_once(rounds: Callable[[bool], None]) -> None:
    """Attention and its gradient read q, k and v in one copy, and nothing else is kept of them."""
    w = numbers(96, 32, seed=1, grad=True)

    def make(rows: int) -> list[object]:
        with pg.autocast("bf16"):
            qkv = ops.linear(numbers(rows, 32), w).reshape(1, rows, 6, 16)
            heads = (qkv[:, :, i : i + 2].permute(0, 2, 1, 3) for i in (0, 2, 4))
            loss = ops.flash_attn_ext(*heads, scale=0.25).square().sum()
        graph = pg.Graph([loss], loss=loss, grads={w: pg.zeros(96, 32)}, overwrite=True)
        return list(graph.headers)

    rounds(True)
    found = make(24)
    (forward,) = (h for h in found if h.op == lib.GGML_OP_FLASH_ATTN_EXT)
    (backward,) = (h for h in found if h.op == lib.GGML_OP_FLASH_ATTN_EXT_BACK)
    (fill,) = (h for h in found if h.op == lib.GGML_OP_FILL)
    copies = [h for h in found if h.op == lib.GGML_OP_CPY and h.type == lib.GGML_TYPE_BF16]
    (copy,) = (h for h in copies if h.src[0].op == lib.GGML_OP_MUL_MAT)
    for i in range(3):
        assert forward.src[i] == backward.src[i + 1]  # the log-sums of the forward are its own
        assert forward.src[i].view_src == copy
        assert list(forward.src[i].nb)[:3] == [2, 2 * 96, 2 * 16]
        assert forward.src[i].view_offs == 2 * 16 * 2 * i
    readers = [h for h in found if h.src[0] == copy.src[0]]
    assert readers == [copy]
    # The gradient and its copy lie elsewhere, so that attention can write them itself.
    assert fill.src[0] == copy
    assert [h.src[2] for h in copies if h.src[0].op == lib.GGML_OP_ACC] in ([], [copy])

    (forward,) = (h for h in make(8) if h.op == lib.GGML_OP_FLASH_ATTN_EXT)
    assert [forward.src[i].type for i in range(3)] == [lib.GGML_TYPE_F32] * 3


def test_heads_in_f32_stay_as_they_are(
    rounds: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device may take k and v in bf16 where it computes attention in f32: all three, or none."""
    supports = Device.supports

    def takes(self: Device, node: Any) -> bool:
        query = {lib.GGML_OP_FLASH_ATTN_EXT: 0, lib.GGML_OP_FLASH_ATTN_EXT_BACK: 1}.get(node.op)
        rounded = query is not None and node.src[query].type != lib.GGML_TYPE_F32
        return not rounded and supports(self, node)

    monkeypatch.setattr(Device, "supports", takes)
    rounds(True)
    w = numbers(96, 32, seed=1, grad=True)
    with pg.autocast("bf16"):
        qkv = ops.linear(numbers(24, 32), w).reshape(1, 24, 6, 16)
        heads = (qkv[:, :, i : i + 2].permute(0, 2, 1, 3) for i in (0, 2, 4))
        loss = ops.flash_attn_ext(*heads, scale=0.25).square().sum()
    graph = pg.Graph([loss], loss=loss, grads={w: pg.zeros(96, 32)}, overwrite=True)
    attention = [h for h in graph.headers if "FLASH" in op_name(h)]
    assert len(attention) == 2
    for header in attention:
        read = [header.src[i] for i in range(4) if header.src[i]]
        assert {each.type for each in read} == {lib.GGML_TYPE_F32}
    assert all(h.type == lib.GGML_TYPE_F32 for h in graph.headers if h.op == lib.GGML_OP_VIEW)
    graph.run()
