# SPDX-License-Identifier: MIT
from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyggml.data import (
    IGNORE_INDEX,
    Batch,
    BucketLoader,
    Documents,
    Loader,
    PackedDataset,
    best_fit,
)


@given(st.lists(st.integers(1, 20), max_size=60))
def test_bins_hold_each_piece_once_and_are_not_overfull(lengths: list[int]) -> None:
    bins = best_fit(np.array(lengths, int), 20)
    assert sorted(p for b in bins for p in b) == list(range(len(lengths)))
    sums = [sum(lengths[p] for p in b) for b in bins]
    assert all(0 < s <= 20 for s in sums)
    # Of no two bins is the one's content small enough for the other.
    assert all(a + b > 20 for i, a in enumerate(sums) for b in sums[:i])


def brute(lengths: list[int], capacity: int) -> int:
    """Bins of best fit by looking at all of them."""
    room: list[int] = []
    for length in sorted(lengths, reverse=True):
        fits = [r for r in room if r >= length]
        if fits:
            room[room.index(min(fits))] -= length
        else:
            room.append(capacity - length)
    return len(room)


@given(st.lists(st.integers(1, 30), max_size=80))
def test_as_few_bins_as_best_fit_takes(lengths: list[int]) -> None:
    assert len(best_fit(np.array(lengths, int), 30)) == brute(lengths, 30)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 12))
def test_every_pair_is_there_once(lengths: list[int], seq_len: int) -> None:
    texts = [np.arange(n) + 100 * i for i, n in enumerate(lengths)]
    if max(lengths) < 2:
        with pytest.raises(ValueError, match="document"):
            PackedDataset(Documents.of(texts), seq_len)
        return
    rows = PackedDataset(Documents.of(texts), seq_len)
    batch = rows.batch(rows.order(None))
    kept = batch.y != IGNORE_INDEX
    np.testing.assert_array_equal(batch.y[kept], batch.x[kept] + 1)
    want = [int(v) for t in texts for v in t[1:]]
    assert sorted(batch.y[kept].tolist()) == sorted(want)
    assert rows.fill == kept.mean()
    assert batch.tokens == len(want)
    # Positions count from 0 in each segment, and segments do not mix documents.
    for positions, segments, x, there in zip(
        batch.inputs["positions"], batch.inputs["segments"], batch.x, kept, strict=True
    ):
        for number in np.unique(segments):
            span = segments == number
            np.testing.assert_array_equal(positions[span], np.arange(span.sum()))
            assert len(set(x[span & there] // 100)) <= 1
            assert there[span].all() or not there[span].any()


@pytest.mark.parametrize(("overlong", "targets"), [("split", 12), ("truncate", 8), ("drop", 3)])
def test_overlong_documents(overlong: str, targets: int) -> None:
    docs = Documents.of([np.arange(4), np.arange(10)])
    rows = PackedDataset(docs, 5, overlong)
    assert rows.batch(rows.order(None)).tokens == targets


def test_prompts_are_no_targets() -> None:
    docs = Documents.of([[1, 2, 3, 4]], [[0, 0, 1, 1]])
    assert PackedDataset(docs, 4).batch(np.array([0])).y.tolist() == [
        [IGNORE_INDEX, 3, 4, IGNORE_INDEX]
    ]


@given(
    st.lists(st.lists(st.booleans(), max_size=30), min_size=1, max_size=15),
    st.integers(1, 12),
    st.sampled_from(["split", "truncate", "drop"]),
)
def test_pieces_without_a_counted_target_are_left_out(
    counted: list[list[bool]], seq_len: int, overlong: str
) -> None:
    """As each piece says by itself; what counts is there once, and no batch is without any."""
    texts = [np.arange(len(flags)) + 100 * i for i, flags in enumerate(counted)]
    docs = Documents.of(texts, counted)
    pieces, want = [], []
    for text, flags in zip(texts, counted, strict=True):
        starts = range(0, len(text) - 1, seq_len)
        if overlong != "split":
            fits = overlong == "truncate" or len(text) <= seq_len + 1
            starts = range(0, 1 if fits and len(text) > 1 else 0)
        for start in starts:
            targets = slice(start + 1, start + seq_len + 1)
            pieces.append(any(flags[targets]))
            want += [int(v) for v, f in zip(text[targets], flags[targets], strict=True) if f]
    if not want:
        for make in (PackedDataset, BucketLoader):
            with pytest.raises(ValueError, match=r"needs a (target that counts|document of)"):
                make(docs, seq_len, overlong=overlong)
        return
    rows = PackedDataset(docs, seq_len, overlong)
    bucketed = BucketLoader(docs, seq_len, seq_len=seq_len, overlong=overlong)
    for batches, skipped in (
        ([rows.batch(np.array([i])) for i in range(len(rows))], rows.skipped),
        ([next(bucketed) for _ in range(len(bucketed))], bucketed.skipped),
    ):
        assert min(batch.tokens for batch in batches) > 0
        found = [v for batch in batches for v in batch.y[batch.y != IGNORE_INDEX].tolist()]
        assert sorted(found) == want
        assert skipped == pieces.count(False)


def test_left_out_pieces_are_told(caplog: pytest.LogCaptureFixture) -> None:
    docs = Documents.of([np.arange(10), np.arange(3)], [np.arange(10) > 8, [0, 1, 1]])
    assert PackedDataset(docs, 4).skipped == 2
    assert "PackedDataset: 2 of 4 pieces of at most 4 tokens are left out" in caplog.text
    assert PackedDataset(Documents.of([np.arange(10)]), 4).skipped == 0
    prompt = Documents.of([np.arange(10)], [np.arange(10) > 8])
    with pytest.raises(ValueError, match="1 pieces of at most 4"):
        PackedDataset(prompt, 4, "truncate")


def test_a_loader_shuffles_fills_up_and_resumes() -> None:
    rng = np.random.default_rng(0)
    docs = Documents.of([rng.integers(0, 50, n) for n in rng.integers(2, 30, 40)])
    rows = PackedDataset(docs, 32)
    loader = Loader(rows, 4, seed=2, pad_last=True)
    taken = [next(loader) for _ in range(len(loader) + 2)]
    assert {b.x.shape for b in taken} == {(4, 32)}
    assert {b.inputs["segments"].shape for b in taken} == {(4, 32)}
    assert sum(b.tokens for b in taken[: len(loader)]) == (docs.lengths - 1).sum()
    state = loader.state_dict()
    other = Loader(PackedDataset(docs, 32), 4, seed=2, pad_last=True)
    other.load_state_dict(state)
    for _ in range(5):
        a, b = next(loader), next(other)
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.inputs["positions"], b.inputs["positions"])


def test_bad_arguments() -> None:
    docs = Documents.of([[1, 2, 3]])
    for call, match in [
        (lambda: PackedDataset(docs, 0), "seq_len must be"),
        (lambda: PackedDataset(docs, 4, "cut"), "overlong must be one of split, truncate, drop"),
        (lambda: PackedDataset(docs, 1, "drop"), "at least two tokens and at most 2"),
        (lambda: best_fit(np.array([3]), 2), "lengths must be from 1 to the capacity 2"),
        (lambda: best_fit(np.array([0]), 2), "lengths must be from 1"),
    ]:
        with pytest.raises(ValueError, match=match):
            call()


def test_batches_are_pairs_with_more() -> None:
    batch = Batch(np.ones((2, 3)), np.zeros((2, 3)), positions=np.arange(3))
    x, y = batch
    assert len(batch) == 2
    assert (x is batch.x, y is batch.y) == (True, True)
    assert isinstance(batch, tuple)
    for other in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert isinstance(other, Batch)
        np.testing.assert_array_equal(other.inputs["positions"], np.arange(3))
    assert repr(batch) == "Batch(x (2, 3), y (2, 3), positions (3,))"
