# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyggml.data import IGNORE_INDEX, Dataset, RandomWindows, TokenDataset, split_tokens


def test_targets_are_the_inputs_shifted_by_one() -> None:
    dataset = TokenDataset(np.arange(100, dtype=np.uint16), seq_len=7, stride=3)
    for item in range(len(dataset)):
        x, y = dataset[item]
        np.testing.assert_array_equal(x, np.arange(item * 3, item * 3 + 7))
        np.testing.assert_array_equal(y, x + 1)
        assert x.dtype == y.dtype == np.int32
        assert x.flags.c_contiguous
        assert y.flags.c_contiguous
    assert dataset[-1][0][0] == dataset[len(dataset) - 1][0][0]
    for wrong in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError):
            dataset[wrong]


@given(st.integers(2, 60), st.integers(1, 12), st.integers(1, 12))
def test_windows_never_leave_the_text(tokens: int, seq_len: int, stride: int) -> None:
    if tokens <= seq_len:
        with pytest.raises(ValueError, match=f"got {tokens}"):
            TokenDataset(np.arange(tokens), seq_len, stride)
        return
    dataset = TokenDataset(np.arange(tokens), seq_len, stride)
    last = dataset[len(dataset) - 1][1][-1]
    assert last < tokens <= last + stride
    assert len(dataset) >= 1


@given(st.integers(2, 60), st.integers(1, 12))
def test_with_its_tail_every_token_is_predicted_once(tokens: int, seq_len: int) -> None:
    dataset = TokenDataset(np.arange(tokens), seq_len, keep_tail=True)
    targets = np.concatenate([dataset[item][1] for item in range(len(dataset))])
    np.testing.assert_array_equal(targets[targets != IGNORE_INDEX], np.arange(1, tokens))


@given(st.integers(2, 60), st.integers(1, 12), st.integers(1, 12))
def test_with_its_tail_overlaps_reach_the_end(tokens: int, seq_len: int, stride: int) -> None:
    dataset = TokenDataset(np.arange(tokens), seq_len, stride, keep_tail=True)
    x, y = dataset.batch(dataset.order(None))
    kept = y != IGNORE_INDEX
    np.testing.assert_array_equal(y[kept], x[kept] + 1)
    assert kept.any(axis=1).all()
    if stride <= seq_len:
        assert set(y[kept]) == set(range(1, tokens))


def test_a_memory_map_is_read_as_it_is(tmp_path: Path) -> None:
    np.arange(50, dtype=np.uint16).tofile(tmp_path / "ids")
    ids = np.memmap(tmp_path / "ids", np.uint16, mode="r")
    dataset = TokenDataset(ids, 8)
    assert isinstance(dataset.ids, np.memmap)
    assert dataset[2][0].tolist() == list(range(16, 24))


def test_splits_are_contiguous_and_share_nothing() -> None:
    train, validation = TokenDataset(np.arange(1000), 8, stride=4).split(0.1)
    assert train.ids.tolist() == list(range(900))
    assert validation.ids.tolist() == list(range(900, 1000))
    assert (train.seq_len, train.stride) == (8, 4)
    # nanoGPT's split of tinyshakespeare's 1,115,394 characters.
    assert [len(p) for p in split_tokens(np.zeros(1115394, np.uint8))] == [1003854, 111540]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_splits_need_a_share(share: float) -> None:
    with pytest.raises(ValueError, match="validation must be"):
        split_tokens(np.arange(10), share)


def test_splits_say_what_is_too_short() -> None:
    with pytest.raises(ValueError, match=r"validation .*got 5 of"):
        TokenDataset(np.arange(50), 8).split(0.1)


@pytest.mark.parametrize("kind", [TokenDataset, RandomWindows])
def test_bad_arguments(kind: type) -> None:
    with pytest.raises(ValueError, match=r"at least 9 tokens.*seq_len=8; got 8"):
        kind(np.arange(8), 8)
    with pytest.raises(ValueError, match="seq_len must be"):
        kind(np.arange(8), 0)
    with pytest.raises(ValueError, match="one-dimensional"):
        kind(np.zeros((2, 8), int), 2)
    with pytest.raises(ValueError, match="float64"):
        kind(np.zeros(8), 2)
    with pytest.raises(ValueError, match="stride must be"):
        TokenDataset(np.arange(8), 2, stride=-1)


def test_random_windows_start_anywhere_alike() -> None:
    dataset = RandomWindows(np.arange(21), 10)
    assert isinstance(dataset, Dataset)
    assert len(dataset) == 2
    rng = np.random.default_rng(0)
    starts = np.concatenate([dataset.order(rng) for _ in range(5000)])
    counts = np.bincount(starts, minlength=11)
    assert counts.size == 11
    assert counts.min() > 0.8 * counts.mean()
    x, y = dataset.batch(np.array([0, 10]))
    assert x[:, 0].tolist() == [0, 10]
    assert y[:, -1].tolist() == [10, 20]
    assert dataset.order(None).tolist() == [0, 10]


@pytest.mark.parametrize("wrong", [2**40, 2**31, -1])
@pytest.mark.parametrize("kind", [TokenDataset, RandomWindows])
def test_ids_that_int32_would_change_are_refused(kind: type, wrong: int, tmp_path: Path) -> None:
    ids = np.arange(50, dtype=np.int64)
    ids[-1] = wrong
    with pytest.raises(ValueError, match=f"{kind.__name__}: ids must lie between 0 .*{wrong}"):
        kind(ids, 5)
    mapped = np.memmap(tmp_path / "ids", np.int64, "w+", shape=50)
    mapped[:] = ids
    windows = kind(mapped, 5) if kind is RandomWindows else kind(mapped, 5, keep_tail=True)
    assert windows.batch(np.array([0]))[0].tolist() == [[0, 1, 2, 3, 4]]
    last = 44 if kind is RandomWindows else len(windows) - 1
    with pytest.raises(ValueError, match="ids must lie between 0"):
        windows.batch(np.array([last]))
