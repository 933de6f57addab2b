# SPDX-License-Identifier: MIT
"""However documents are laid out in batches, loss and gradients are those of each one alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyggml as pg
from pyggml.data import IGNORE_INDEX, Batch, BucketLoader, Documents, PackedDataset
from pyggml.models import build

VOCAB, CONTEXT = 31, 24
LENGTHS = (9, 3, 25, 2, 14, 7, 1, 12, 5)
# The same sums in another order; f32 has a unit roundoff of 6e-8.
TOLERANCE = 1e-6


def documents(prompts: bool = False) -> Documents:
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, VOCAB, n) for n in LENGTHS]
    counted = [np.arange(n) >= n // 2 for n in LENGTHS] if prompts else None
    return Documents.of(texts, counted)


def model(arch: str, attention: str = "plain", checkpointing: bool = False) -> Any:
    pg.seed(0)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context": CONTEXT, "attention": attention}
    if arch == "llama":
        sizes["n_kv_head"] = 2
    made = build(arch, sizes, vocab_size=VOCAB)
    rng = np.random.default_rng(1)
    for parameter in made.parameters():  # attention shall matter
        parameter.copy_(parameter.numpy() + 0.05 * rng.standard_normal(parameter.shape))
    made.checkpointing = checkpointing
    return made


class Step:
    """Summed loss and gradients, in one graph per shape into which batches are copied."""

    def __init__(self, made: Any) -> None:
        self.model = made
        self.plans: dict[Any, Any] = {}

    def __call__(self, batch: Batch) -> tuple[float, dict[str, np.ndarray]]:
        arrays = {"ids": batch.x, "targets": batch.y, **batch.inputs}
        key = (batch.x.shape, *sorted(arrays))
        if key not in self.plans:
            inputs = {name: pg.zeros(a.shape, dtype="i32") for name, a in arrays.items()}
            loss = self.model.loss(reduction="sum", **inputs)
            grads = {p: pg.zeros(p.shape) for p in self.model.parameters()}
            graph = pg.Graph([loss], loss=loss, grads=grads)
            self.plans[key] = inputs, loss, grads, graph
        inputs, loss, grads, graph = self.plans[key]
        for name, array in arrays.items():
            inputs[name].copy_(array)
        for grad in grads.values():
            grad.zero_()
        graph.run()
        named = {name: grads[p].numpy() for name, p in self.model.named_parameters()}
        return float(graph.read(loss)), named


def one_by_one(docs: Documents) -> list[Batch]:
    """Each document as a batch of its own, as long as it is."""
    made = []
    for item in range(len(docs)):
        ids = docs[item]
        y = np.where(docs.targets(item)[1:], ids[1:], IGNORE_INDEX).astype(np.int32)
        if ids.size > 1:
            made.append(Batch(ids[None, :-1], y[None]))
    return made


def packed(docs: Documents) -> list[Batch]:
    rows = PackedDataset(docs, CONTEXT)
    items = rows.order(np.random.default_rng(0))
    return [rows.batch(items[i : i + 2]) for i in range(0, len(items), 2)]


def one_large_batch(docs: Documents) -> list[Batch]:
    rows = PackedDataset(docs, CONTEXT)
    return [rows.batch(rows.order(None))]


def total(step: Step, batches: list[Batch]) -> tuple[float, dict[str, np.ndarray], int]:
    loss, tokens, sums = 0.0, 0, {}  # type: ignore[var-annotated]
    for batch in batches:
        value, grads = step(batch)
        loss, tokens = loss + value, tokens + batch.tokens
        for name, grad in grads.items():
            sums[name] = sums.get(name, 0.0) + grad.astype(np.float64)
    return loss, sums, tokens


def padded(docs: Documents) -> list[Batch]:
    loader = BucketLoader(docs, 2 * CONTEXT, buckets=3)
    return [next(loader) for _ in range(len(loader))]


def padded_with_noise(docs: Documents) -> list[Batch]:
    """What fills up the rows is any token."""
    rng = np.random.default_rng(5)
    made = []
    for batch in padded(docs):
        ends = np.where(batch.y != IGNORE_INDEX, np.arange(batch.x.shape[1]) + 1, 0).max(1)
        empty = np.arange(batch.x.shape[1]) >= ends[:, None]
        assert not batch.x[empty].any()
        made.append(Batch(np.where(empty, rng.integers(0, VOCAB, batch.x.shape), batch.x), batch.y))
    return made


LAYOUTS: dict[str, Callable[[Documents], list[Batch]]] = {
    "packed": packed,
    "packed in one batch": one_large_batch,
    "padded": padded,
    "padded with noise": padded_with_noise,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("prompts", [False, True], ids=["text", "pairs"])
@pytest.mark.parametrize(
    ("arch", "attention", "checkpointing"),
    [
        ("gpt2", "plain", False),
        ("gpt2", "auto", False),
        ("gpt2", "plain", True),
        ("llama", "plain", False),
        ("llama", "flash", False),
        ("llama", "flash", True),
    ],
)
def test_layouts_are_equal(
    arch: str, attention: str, checkpointing: bool, prompts: bool, layout: str
) -> None:
    docs = documents(prompts)
    step = Step(model(arch, attention, checkpointing))
    want, want_grads, want_tokens = total(step, one_by_one(docs))
    got, got_grads, got_tokens = total(step, LAYOUTS[layout](docs))
    assert got_tokens == want_tokens == sum(b.tokens for b in one_by_one(docs))
    assert abs(got - want) / want < TOLERANCE
    for name, grad in want_grads.items():
        error = np.linalg.norm(got_grads[name] - grad) / np.linalg.norm(grad)
        assert error < TOLERANCE, (name, error)


def test_what_makes_them_equal_is_needed() -> None:
    """Without segments, or without positions that start anew, the loss is another."""
    docs = documents()
    step = Step(model("gpt2"))
    want, *_ = total(step, one_by_one(docs))
    for missing in ("positions", "segments"):
        wrong = [
            Batch(b.x, b.y, **{k: v for k, v in b.inputs.items() if k != missing})
            for b in packed(docs)
        ]
        got, *_ = total(step, wrong)
        assert abs(got - want) / want > 1e-3, missing
