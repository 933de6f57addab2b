# SPDX-License-Identifier: MIT
from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyggml.data import IGNORE_INDEX, BucketLoader, Documents, Prefetch


def documents(lengths: list[int]) -> Documents:
    return Documents.of([np.arange(n) + 100 * i for i, n in enumerate(lengths)])


def drawn(count: int = 60) -> list[int]:
    return np.random.default_rng(0).integers(2, 60, count).tolist()


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=40),
    st.integers(1, 100),
    st.integers(1, 9),
    st.booleans(),
)
def test_every_pair_is_there_once(
    lengths: list[int], max_tokens: int, buckets: int, shuffle: bool
) -> None:
    if max(lengths) < 2:
        with pytest.raises(ValueError, match="document"):
            BucketLoader(documents(lengths), max_tokens)
        return
    loader = BucketLoader(documents(lengths), max_tokens, buckets=buckets, shuffle=shuffle)
    batches = [next(loader) for _ in range(len(loader))]
    assert (loader.epoch, loader.position) == (1, 0)
    assert {b.x.shape for b in batches} == set(loader.shapes)
    assert len(loader.shapes) <= buckets
    assert all(b.x.size <= max_tokens for b in batches)
    found = [v for b in batches for v in b.y[b.y != IGNORE_INDEX].tolist()]
    assert sorted(found) == [v for d in documents(lengths) for v in d[1:].tolist()]
    assert loader.fill == pytest.approx(len(found) / sum(b.x.size for b in batches))
    for b in batches:
        kept = b.y != IGNORE_INDEX
        np.testing.assert_array_equal(b.y[kept], b.x[kept] + 1)
        # Rows are filled up on the right only.
        assert (np.diff(kept.astype(int), axis=1) <= 0).all()


def test_batches_hold_about_as_many_tokens() -> None:
    loader = BucketLoader(documents(drawn(1000)), 512)
    assert all(512 - tokens < rows * tokens <= 512 for rows, tokens in loader.shapes)
    assert loader.fill > 0.8
    # Rows of one length would be half empty.
    assert BucketLoader(documents(drawn(1000)), 512, buckets=1).fill < 0.6


@given(st.integers(0, 40), st.booleans())
def test_resumes_exactly(taken: int, ahead: bool) -> None:
    def make() -> BucketLoader:
        return BucketLoader(documents(drawn()), 128, seed=4)

    loader = make()
    for _ in range(taken):
        next(loader)
    other = Prefetch(make()) if ahead else make()
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    for _ in range(10):
        a, b = next(loader), next(other)
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)
    if isinstance(other, Prefetch):
        other.close()


def test_epochs_differ_and_once_does_not_move() -> None:
    loader = BucketLoader(documents(drawn()), 128)
    epochs = [[next(loader).x for _ in range(len(loader))] for _ in range(2)]
    shapes = [[x.shape for x in epoch] for epoch in epochs]
    assert shapes[0] != shapes[1]
    state = loader.state_dict()
    np.testing.assert_array_equal(next(loader.once()).x, epochs[0][0])
    assert loader.state_dict() == state


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 64, "buckets": 0}, "buckets"),
        ({"max_tokens": 64, "seq_len": 0}, "seq_len"),
        ({"max_tokens": 64, "seq_len": 65}, "seq_len must be at most max_tokens=64; got 65"),
        ({"max_tokens": 64, "seed": -1}, "seed"),
        ({"max_tokens": 64, "overlong": "no"}, "overlong must be one of"),
        ({"max_tokens": 64, "seq_len": 1, "overlong": "drop"}, "at least two tokens"),
    ],
)
def test_bad_arguments(options: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        BucketLoader(documents([5, 9]), **options)


def test_a_foreign_state_is_refused() -> None:
    loader = BucketLoader(documents(drawn()), 128)
    with pytest.raises(ValueError, match=r"BucketLoader.load_state_dict: max_tokens must be as"):
        loader.load_state_dict(BucketLoader(documents(drawn()), 256).state_dict())


def test_shards_are_the_rows_of_the_whole_batches():
    documents = Documents.of([np.arange(n) for n in (3, 30, 4, 5, 28, 9, 8, 7)])
    whole, *shards = (BucketLoader(documents, 64, buckets=2, seed=1) for _ in range(3))
    for rank, shard in enumerate(shards):
        shard.shard(rank, 2)
    for _ in range(len(whole)):
        parts, (x, y) = [next(shard) for shard in shards], next(whole)
        np.testing.assert_array_equal(np.concatenate([part.x for part in parts]), x)
        np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), y)
    with pytest.raises(ValueError, match="ranks"):
        whole.shard(0, 9)
