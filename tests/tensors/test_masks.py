# SPDX-License-Identifier: MIT
"""Masks stay masks wherever their elements go, and other tensors count as true where not 0."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml import nn
from pyggml.nn import functional
from pyggml.tensors.truth import is_mask

FLAGS = np.random.default_rng(0).random((4, 4)) < 0.5
OTHERS = np.random.default_rng(1).random((4, 4)) < 0.5
NUMBERS = [0.0, -0.0, 2.0, 1.0, 0.5, -1.0, float("nan"), float("inf"), 1e-40]

MASKS = """m.tril()|m.triu(1)|pg.cat([m,n])|pg.stack([m,n])|m.flip(0)|pg.roll(m,1)|m.split(2)[1]
F.pad(m,(1,1))|F.pad(m,(1,1),value=True)|F.pad(m,(1,0),mode='replicate')|m.gather(1,ids[None])
m.index_select(1,ids)|m[[0,2]]|m[ids]|m[1]|m[:,::2]|m[None]|m.repeat_interleave(2,0)|m.repeat(2,1)
m[:1].expand(4,4)|pg.tile(m,(2,2))|pg.where(m,m,n)|pg.where(m,True,n)|m*n|m+n|m&n|~m|m*True|m.T
m.mT|m.reshape(2,8)|m.clone()|m.detach()|m.contiguous()|m.to('cpu')|m.narrow(0,1,2)|m.sort()[0]
m.masked_fill(n,False)|m.masked_fill(n,1)|m.any(0)|m.all(1)|m.max(0)[0]|m.unbind()[0]|m==n
pg.maximum(m,n)|pg.minimum(m,n)|pg.logical_xor(m,n)|pg.diag(m[0])|m.diagonal()|m.swapaxes(0,1)
copy.deepcopy(m)|copy.copy(m)|pickle.loads(pickle.dumps(m))|pg.tensor(m)|m[0].outer(n[0])
pg.compile(lambda a:a.T)(m)|pg.compile(lambda a:a[[1,0]])(m)|pg.meshgrid(m[0],n[0])[1]
pg.tensor([True,False])|pg.tensor(np.array([[True]]))|pg.full((2,),True)|m+np.ones((4,4),bool)
pg.ones_like(m)|pg.zeros_like(m)|pg.full_like(m,True)"""
PLAIN = """m.float()|m.to(dtype='f32')|m.astype('f32')|m.type_as(pg.ones(1))|m*1.0|m+1|m-n|1-m
m.half()|m.int()|m.sum(0)|m.mean(0)|m.cumsum(0)|pg.where(m,1.0,0.0)|pg.where(m,n,0.5)|m*pg.ones(4,4)|m@n
m.masked_fill(n,2.0)|pg.cat([m,m.float()])|pg.tensor(m.numpy())|pg.tensor([True],'f32')|m.float().T
F.pad(m,(1,1),value=2.0)|m.exp()|pg.tensor(m.numpy()).tril()|m.float()+n.float()"""


@pytest.fixture(params=["stored", "recorded"])
def given(request: Any) -> dict[str, Any]:
    m, n = pg.tensor(FLAGS), pg.tensor(OTHERS)
    if request.param == "recorded":
        m, n = (pg.tensor(flags.astype(np.float32)) > 0.5 for flags in (FLAGS, OTHERS))
    more = {"ids": pg.tensor([2, 0, 1, 3]), "F": functional, "copy": copy, "pickle": pickle}
    return {"pg": pg, "np": np, "m": m, "n": n, **more}


@pytest.mark.parametrize("call", MASKS.replace("\n", "|").split("|"))
def test_a_mask_stays_one(call: str, given: dict[str, Any]) -> None:
    for _ in range(2):  # recorded, and found again
        found = eval(call, given)
        assert is_mask(found.node)
        assert np.isin(found.numpy(), (0, 1)).all()
        assert is_mask(found.node)  # now stored


@pytest.mark.parametrize("call", PLAIN.replace("\n", "|").split("|"))
def test_numbers_are_no_mask(call: str, given: dict[str, Any]) -> None:
    for _ in range(2):
        found = eval(call, given)
        assert not is_mask(found.node)
        found.numpy()
        assert not is_mask(found.node)


def test_numbers_count_as_true_where_they_are_not_zero() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = pg.tensor(NUMBERS), torch.tensor(NUMBERS)
    truth, x = theirs.bool(), torch.arange(9.0)
    y = torch.arange(9.0).flip(0)
    pairs = [
        (pg.logical_not(ours), torch.logical_not(theirs)),
        (~ours, ~truth),
        (ours & ours.flip(0), truth & truth.flip(0)),
        (ours | pg.zeros(9), truth | torch.zeros(9, dtype=torch.bool)),
        (pg.logical_and(ours, ours.flip(0)), torch.logical_and(theirs, theirs.flip(0))),
        (pg.logical_or(ours, -ours), torch.logical_or(theirs, -theirs)),
        (ours.any(), theirs.any()),
        (ours.all(), theirs.all()),
        (pg.tensor([-1.0, 1.0]).any(), torch.tensor([-1.0, 1.0]).any()),
        (pg.where(ours, 1.0, 2.0), torch.where(truth, 1.0, 2.0)),
        (pg.where(ours, pg.arange(9).float(), pg.arange(9).float().flip(0)), x.where(truth, y)),
    ]
    for value in (float("-inf"), float("inf"), -1e9, 7.0):
        pairs.append((pg.zeros(9).masked_fill(ours, value), x.mul(0).masked_fill(truth, value)))
    for got, want in pairs:
        np.testing.assert_array_equal(got.numpy(), want.float().numpy())


def test_causal_and_padding_together() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (pg, torch):
        pad = lib.tensor([[5, 6, 0, 0]]) == 0
        causal = lib.triu(lib.ones(4, 4), 1) > 0
        hidden = causal + pad[:, None, :]
        found.append(lib.ones(1, 4, 4).masked_fill(hidden, 7.0).numpy())
        found.append(hidden.sum().item())
    np.testing.assert_array_equal(found[0], found[2])
    assert found[1] == found[3]


@pytest.mark.parametrize(
    "mask",
    [
        lambda: pg.triu(pg.ones(8, 8) > 0, diagonal=1),
        lambda: pg.tril(pg.ones(8, 8) > 0).logical_not(),
        lambda: pg.cat([pg.triu(pg.ones(4, 8) > 0, 1), pg.triu(pg.ones(4, 8) > 0, 5)]),
        lambda: functional.pad(pg.triu(pg.ones(8, 7) > 0), (1, 0)),
    ],
)
def test_the_future_stays_hidden(mask: Callable[[], Any]) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0), 2)
    x = np.random.default_rng(0).standard_normal((2, 8, 16)).astype(np.float32)
    later = x.copy()
    later[:, -1] += 5
    before, after = (encoder(pg.tensor(each), mask=mask()).numpy() for each in (x, later))
    np.testing.assert_array_equal(before[:, :-1], after[:, :-1])
    assert np.abs(before[:, -1] - after[:, -1]).max() > 0.1


class Attention(nn.Module):
    def __init__(self, mask: Any) -> None:
        self.qkv = nn.Linear(4, 12)
        self.register_buffer("mask", mask)

    def forward(self, x: Any) -> Any:
        q, k, v = (part[:, None] for part in self.qkv(x).chunk(3, dim=-1))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)[:, 0]


def test_copies_and_files_of_a_model_keep_its_mask(tmp_path: Path) -> None:
    x = pg.tensor(np.random.default_rng(0).standard_normal((2, 5, 4)), "f32")
    model = Attention(pg.tril(pg.ones(5, 5)) > 0)
    want = model(x).numpy()
    assert model.state_dict()["mask"].dtype == bool
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.to("cpu")]
    for mask in (pg.zeros(5, 5), pg.ones(5, 5) > 0):
        other = Attention(mask)
        other.load_state_dict(model.state_dict())
        others.append(other)
    other = Attention(pg.zeros(5, 5))
    pg.io.save_safetensors(tmp_path / "m.safetensors", model.state_dict())
    other.load_state_dict(pg.io.open_safetensors(tmp_path / "m.safetensors"))
    others.append(other)
    other = Attention(pg.zeros(5, 5))
    other.load_state_dict(dict(model.named_state()))
    others.append(other)
    for each in others:
        np.testing.assert_array_equal(each(x).numpy(), want)
    added = {**model.state_dict(), "mask": np.full((5, 5), 0.5, np.float32)}
    model.load_state_dict(added)  # numbers: no mask any more
    assert not is_mask(model.mask.node)


def test_numbers_loaded_in_the_place_of_a_mask_are_its_truth() -> None:
    model = Attention(pg.tril(pg.ones(5, 5)) > 0)
    old = {name: array.astype(np.float32) for name, array in model.state_dict().items()}
    model.load_state_dict(old)
    assert is_mask(model.mask.node)


def test_a_mask_as_an_argument_is_recorded_apart() -> None:
    x = pg.tensor(np.random.default_rng(0).standard_normal((1, 1, 4, 4)), "f32")
    seen = pg.tril(pg.ones(4, 4)) > 0

    def loss(x: Any, mask: Any) -> Any:
        return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask).square().sum()

    both = pg.value_and_grad(loss)
    for mask in (seen, seen.float(), seen, seen.log()):
        assert both(x, mask)[0].item() == pytest.approx(loss(x, mask).item(), rel=1e-6)
    assert both(x, seen)[0].item() != pytest.approx(both(x, seen.float())[0].item(), rel=1e-3)


def test_graphs_are_made_anew_when_a_buffer_becomes_a_mask_or_numbers() -> None:
    x = pg.tensor(np.random.default_rng(0).standard_normal((2, 5, 4)), "f32")
    model, state = Attention(pg.zeros(5, 5)), {"mask": np.tri(5, dtype=bool)}
    compiled = pg.compile(model)
    for mask in (np.zeros((5, 5), np.float32), state["mask"], np.tri(5) - 2.0, state["mask"]):
        model.load_state_dict({"mask": mask}, strict=False)
        assert is_mask(model.mask.node) == (mask.dtype == bool)
        for _ in range(2):
            np.testing.assert_allclose(compiled(x).numpy(), model(x).numpy(), 1e-6, 1e-6)


def test_numbers_written_by_a_graph_end_a_mask() -> None:
    mask = (pg.ones(2, 2) > 0).detach()
    assert is_mask(pg.ops.set_rows(mask, pg.zeros(1, 2) > 0, pg.tensor([1])).node)
    assert is_mask(mask.node)
    pg.ops.set_rows(mask, pg.full((1, 2), 0.5), pg.tensor([1])).numpy()
    assert not is_mask(mask.node)
    mask = (pg.ones(2, 2) > 0).detach()
    pg.ops.cpy(pg.full((2, 2), 0.5), mask).numpy()
    assert not is_mask(mask.node)


@pytest.mark.parametrize(
    "write",
    [
        lambda model, values: model.mask.copy_(values),
        lambda model, values: model.load_state_dict({"mask": np.array(values)}),
    ],
)
def test_a_write_that_cannot_be_checked_changes_nothing(
    monkeypatch, write: Callable[[Any, list[float]], object]
) -> None:
    class Masked(pg.nn.Module):
        def __init__(self) -> None:
            self.mask = pg.tensor([True, False])

    model = Masked()

    def none_left(*_: object) -> bool:
        raise MemoryError

    with monkeypatch.context() as short:
        for module in ("pyggml.tensors.tensor", "pyggml.nn.base.state"):
            short.setattr(sys.modules[module], "stays_mask", none_left)
        with pytest.raises(MemoryError):
            write(model, [2.0, 2.0])
    assert (~model.mask).tolist() == [0.0, 1.0]
