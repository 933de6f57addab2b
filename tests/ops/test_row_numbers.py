# SPDX-License-Identifier: MIT
"""Row numbers that are joined, computed, or given to a function that is recorded."""

from __future__ import annotations

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.nn import functional as F
from pyggml.optim import SGD
from pyggml.train import TrainStep


class Next(nn.Module):
    """Scores of what follows each token."""

    def __init__(self) -> None:
        pg.seed(2)
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, ids: pg.Tensor) -> pg.Tensor:
        return self.head(self.table(ids))


def test_a_loop_that_appends_what_is_likeliest() -> None:
    model = Next()
    ids = pg.tensor([[3, 1], [0, 5]])
    follows = (model.table.weight.numpy() @ model.head.weight.numpy().T
               + model.head.bias.numpy()).argmax(1)  # fmt: skip
    want = ids.numpy()
    for _ in range(5):
        scores = model(ids[:, -3:])
        likeliest = scores[:, -1].argmax(dim=-1, keepdim=True)
        ids = pg.cat((ids, likeliest), dim=1)
        want = np.concatenate([want, follows[want[:, -1:]]], 1)
        assert likeliest.is_stored  # computed once, not again by each later step
    assert ids.dtype == "i32"
    np.testing.assert_array_equal(ids.numpy(), want)


def test_row_numbers_that_a_graph_computes_are_computed_when_they_are_used() -> None:
    table = nn.Embedding(5, 2)
    ids = (pg.tensor([0.1, 2.7]) * 1.5).int()
    got = table(ids)
    np.testing.assert_array_equal(got.numpy(), table.weight.numpy()[[0, 4]])
    got.sum().backward()
    assert table.weight.grad.numpy().sum() == 4
    with pytest.raises(pg.ShapeError, match="Embedding: ids, row numbers, must be from 0 to 4"):
        table((pg.tensor([4.0]) * 2).int())
    with pytest.raises(pg.ShapeError, match=r"Embedding: .* got 9 to 9"):
        table(pg.cat((pg.tensor([9]), pg.ones(1, 3).argmax(1))))
    found = pg.gather(pg.tensor([[1.0, 2.0], [3.0, 4.0]]), 0, (pg.tensor([[1.0, 0.0]]) * 1).int())
    assert found.tolist() == [[3.0, 2.0]]


def test_row_numbers_are_joined_in_a_function_that_is_recorded() -> None:
    table, first = nn.Embedding(9, 2), pg.tensor([[8]])

    def shifted(ids: pg.Tensor) -> pg.Tensor:
        return table(pg.cat((first.expand(2, 1), ids[:, :-1]), 1))

    compiled = pg.compile(shifted)
    for ids in ([[1, 2], [3, 4]], [[5, 6], [7, 0]]):
        given = np.array(ids, np.int32)
        want = table.weight.numpy()[[[8, ids[0][0]], [8, ids[1][0]]]]
        np.testing.assert_array_equal(compiled(given).numpy(), want)
    with pytest.raises(pg.ShapeError, match=r"compile: args\[0\]: row numbers.* got 0 to 9"):
        compiled(np.array([[9, 0], [0, 0]], np.int32))
    with pytest.raises(pg.ShapeError, match=r"Embedding: ids, .* an argument of the function"):
        pg.compile(lambda x: table((x * 2.0).int()))(np.ones(2, np.float32))


def test_wrong_row_numbers_of_a_batch_are_named() -> None:
    model = Next()
    optimizer = SGD(model.parameters(), lr=0.1)
    step = TrainStep(model, optimizer, loss=lambda model, x, y: F.cross_entropy(model(x), y))
    x = np.array([[1, 2]], np.int32)
    step([(x, x)])
    with pytest.raises(pg.ShapeError, match=r"TrainStep: batch\[0\]: row numbers"):
        step([(x + 6, x)])


def test_a_mask_of_booleans_is_known_as_one() -> None:
    q, seen = pg.randn(1, 1, 3, 4), np.tril(np.ones((3, 3), bool))
    want = F.scaled_dot_product_attention(q, q, q, attn_mask=seen).numpy()
    for mask in (pg.tensor(seen), pg.tensor(seen.tolist()), pg.as_tensor(seen)):
        got = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        np.testing.assert_array_equal(got.numpy(), want)
