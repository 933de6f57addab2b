# SPDX-License-Identifier: MIT
"""Infinities, NaN, ties and zeros: PyTorch's numbers and gradients."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.nn import functional

torch = pytest.importorskip("torch")
INF, NAN = float("inf"), float("nan")
MOST = float(np.finfo(np.float32).max)
EDGES = [NAN, INF, -INF, MOST, -MOST, -1.5, -0.5, -0.0, 0.0, 0.5, 1.0, 2.5, 2.0**22 + 0.5, 1e-40]
ROUNDED = [*EDGES, 1.5, -2.5, 3.5, 0.49999997, 2.0**23 - 0.5, 2.0**23 + 1, -(2.0**31)]
NAMES = "eq ne lt le gt ge".split()

# x is EDGES as a column, y as a row.
CALLS = """T.where(x>0,x.log(),0.0)|T.where(x>0,x,-INF)|T.where(x>0,x,y)|T.where(x==x,x,0.0)
T.maximum(x,y)|T.minimum(x,y)|x.isnan()|x.isinf()|x.isfinite()|T.isnan(x)
x.any()|x.all()|(x*0).any(1)|(x*0).all(1)|x.masked_fill(x.isnan(),3.0)|x.masked_fill(x>0,INF)
T.triu(T.full((3,3),-INF),1)|T.tril(T.full((3,4),INF),-1)|T.triu(T.full((2,3,3),NAN),2)
m.masked_fill(m>0,-INF).masked_fill(m<2,-INF)|T.full((2,3),-INF).logsumexp(1)
T.tensor([[INF,1.0],[-INF,2.0],[INF,-INF]]).logsumexp(1)|T.round(T.tensor(ROUNDED))
T.maximum(T.full((3,),-INF),T.tensor([1.0,-INF,INF]))""".replace("\n", "|").split("|")


def _same(got: Any, want: Any) -> None:
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got.numpy(), want.float().numpy(), rtol=1e-6)


@pytest.mark.parametrize("call", CALLS)
def test_infinities_and_nan(call: str) -> None:
    made = [
        eval(
            call,
            {
                "T": lib, "INF": INF, "NAN": NAN, "ROUNDED": ROUNDED,
                "x": lib.tensor(EDGES).reshape(-1, 1), "y": lib.tensor(EDGES).reshape(1, -1),
                "m": lib.tensor([[0.0, 1.0, 2.0], [3.0, -1.0, 0.0]])[:, :1],
            },
        )
        for lib in (pg, torch)
    ]  # fmt: skip
    _same(*made)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [INF, -INF, NAN, 0.0, 0.5])
def test_comparisons_with_numbers(name: str, number: float) -> None:
    compare = getattr(operator, name)
    _same(compare(pg.tensor(EDGES), number), compare(torch.tensor(EDGES), number))


@pytest.mark.parametrize("name", NAMES)
def test_comparisons_of_tensors(name: str) -> None:
    compare = getattr(operator, name)
    ours, theirs = pg.tensor(EDGES), torch.tensor(EDGES)
    _same(compare(ours[:, None], ours), compare(theirs[:, None], theirs))


def test_whole_numbers_are_compared_exactly_or_not_at_all() -> None:
    large = pg.tensor([2**24 + 1, 5])
    assert (large == 5).tolist() == [0.0, 1.0]
    assert (large > pg.tensor([3, 7])).tolist() == [1.0, 0.0]
    for other in (pg.tensor([2**24, 5]), 2**24, np.array([2**24, 5])):
        with pytest.raises(ValueError, match="eq"):
            large == other  # noqa: B015
    assert (pg.tensor([2**24]) == 2**24).tolist() == [1.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 0).norm(),
        lambda x: (x * 0).norm(dim=1),
        lambda x: (x * 0).norm(3, dim=1),
        lambda x: (x * 0 + 1).std(1),
        lambda x: x.masked_fill(x > 0, 0.0).norm(dim=0),
        lambda x: x.where(x > 0, 0 * x).sqrt(),
        lambda x: x.masked_fill(x > 0, -INF).logsumexp(1),
        lambda x: x.masked_fill(x > 0, -INF).softmax(-1),
        lambda x: x.masked_fill(x < 0, 1.0).log(),
        lambda x: x.tril() + x.triu(1) * 2,
    ],
)
def test_gradients(function: Callable[[Any], Any]) -> None:
    numbers = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    found = []
    for lib in (pg, torch):
        x = lib.tensor(numbers.copy())
        x.requires_grad = True
        y = function(x)
        (y * lib.tensor(np.arange(1.0, 5.0, dtype=np.float32)[: y.shape[-1] if y.shape else 1]))\
            .sum().backward()  # fmt: skip
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.where(x > 0, 0 * x).sum(),
        lambda x: x.masked_fill(x > 0, -INF).softmax(-1)[0, 0],
        lambda x: (x * (x >= 2 * x)).sum() + x.round().sum() + x.maximum(2 * x).sum(),
        lambda x: x.masked_fill(x.isnan(), 1.0).triu(2).sum() + (x != x).sum(),
    ],
)
def test_gradients_of_arguments(function: Callable[[Any], Any]) -> None:
    numbers = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    loss, grad = pg.value_and_grad(function)(pg.tensor(numbers))
    theirs = torch.tensor(numbers, requires_grad=True)
    want = function(theirs)
    want.backward()
    np.testing.assert_allclose(loss.item(), want.item(), rtol=1e-5)
    np.testing.assert_allclose(grad.numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_known_to_be_a_mask_hides() -> None:
    heads = np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype(np.float32)
    q, lower = torch.tensor(heads), torch.tril(torch.ones(5, 5)) > 0
    want = torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=lower).numpy()
    ours, seen = pg.tensor(heads), pg.tril(pg.ones(5, 5)) > 0
    attend = functional.scaled_dot_product_attention
    masks = [seen, seen.clone(), seen.detach(), seen[None], seen & seen, ~~seen, lower.numpy()]
    for mask in masks:
        np.testing.assert_allclose(attend(ours, ours, ours, attn_mask=mask).numpy(), want, 1e-5)
    compiled = pg.compile(lambda x, mask: attend(x, x, x, attn_mask=mask))
    for mask in (seen, seen.log(), seen):  # truth, numbers to add, truth again
        np.testing.assert_allclose(compiled(ours, mask).numpy(), want, 1e-5)


def test_a_mask_overwritten_with_other_numbers_is_added() -> None:
    x, mask = pg.ones(1, 1, 2, 4), (pg.ones(2, 2) > 0).clone()
    mask.copy_(np.array([[0.5, 0.0], [0.0, 0.5]]))
    added = mask.detach() * 1.0
    attend = functional.scaled_dot_product_attention
    np.testing.assert_array_equal(
        attend(x, x, x, attn_mask=mask).numpy(), attend(x, x, x, attn_mask=added).numpy()
    )


def test_a_comparison_hides_in_multihead_attention() -> None:
    ours, theirs = pg.nn.MultiheadAttention(4, 2), torch.nn.MultiheadAttention(4, 2)
    state = {name: torch.tensor(p.numpy()) for name, p in ours.named_parameters()}
    theirs.load_state_dict(state)
    x = np.random.default_rng(0).standard_normal((1, 5, 4)).astype(np.float32)
    y = torch.tensor(x).transpose(0, 1)
    want = theirs(y, y, y, attn_mask=torch.triu(torch.ones(5, 5), 1) > 0)[0].transpose(0, 1)
    for mask in (pg.triu(pg.ones(5, 5), 1) > 0, np.triu(np.ones((5, 5)), 1) > 0):
        got = ours(*[pg.tensor(x)] * 3, attn_mask=mask)[0]
        np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-6)
