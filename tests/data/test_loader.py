# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyggml.data import IGNORE_INDEX, Loader, Prefetch, RandomWindows, TokenDataset
from pyggml.data.fingerprint import fingerprint
from pyggml.debug import progress


def dataset(items: int = 10, seq_len: int = 4) -> TokenDataset:
    return TokenDataset(np.arange(items * seq_len + 1), seq_len)


def firsts(batch: tuple[np.ndarray, np.ndarray]) -> list[int]:
    """The windows' numbers, by their first tokens."""
    return (batch[0][:, 0] // 4).tolist()


def test_batches_have_one_shape_and_type() -> None:
    loader = Loader(dataset(), 3)
    assert len(loader) == 3
    for _ in range(7):
        x, y = next(loader)
        assert x.shape == y.shape == (3, 4)
        assert x.dtype == y.dtype == np.int32
        np.testing.assert_array_equal(y, x + 1)


def test_an_epoch_has_each_item_once_and_epochs_differ() -> None:
    loader = Loader(dataset(), 5, seed=1)
    first, second = ([n for _ in range(2) for n in firsts(next(loader))] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert loader.epoch == 2


@pytest.mark.parametrize("ahead", [False, True])
def test_a_loop_goes_through_one_epoch(ahead: bool) -> None:
    loader: Any = Loader(dataset(), 4, seed=1, drop_last=False)
    loader = Prefetch(loader) if ahead else loader
    epochs = [[n for batch in loader for n in firsts(batch)] for _ in range(2)]
    assert [sorted(each) for each in epochs] == [list(range(10))] * 2
    assert epochs[0] != epochs[1]
    for _ in loader:
        break  # the next loop begins another epoch
    assert sorted(n for batch in loader for n in firsts(batch)) == list(range(10))
    assert len(list(progress(loader, show=False))) == len(loader) == 3


def made(ahead: bool, batch_size: int = 2) -> Any:
    """A loader of five batches of two, each item once in an epoch."""
    loader = Loader(dataset(), batch_size, seed=1, drop_last=False)
    return Prefetch(loader, depth=3) if ahead else loader


def epochs(count: int, batch_size: int = 2) -> list[list[list[int]]]:
    """The batches of the first epochs, as `next` gives them."""
    loader = made(False, batch_size)
    return [[firsts(next(loader)) for _ in range(len(loader))] for _ in range(count)]


@pytest.mark.parametrize("ahead", [False, True])
def test_each_iterator_has_an_epoch_of_its_own(ahead: bool) -> None:
    want = epochs(8)
    loader = made(ahead)
    assert firsts(next(iter(loader))) == want[0][0]  # a look at the first batch
    assert [firsts(batch) for batch in loader] == want[1]
    pairs = [(firsts(a), firsts(b)) for a, b in zip(loader, loader, strict=True)]
    assert pairs == list(zip(want[2], want[3], strict=True))
    first, second = iter(loader), iter(loader)
    assert firsts(next(second)) == want[5][0]
    assert [firsts(batch) for batch in first] == want[4]
    assert [firsts(batch) for batch in second] == want[5][1:]
    assert list(first) == []
    assert (loader.epoch, loader.position) == (6, 0)
    for number, batch in enumerate(loader):
        assert firsts(batch) == want[6][number]
        if not number:
            assert [firsts(inner) for inner in loader] == want[7]
    assert (loader.epoch, loader.position) == (8, 0)


@pytest.mark.parametrize("ahead", [False, True])
def test_loops_that_end_early_or_are_nested(ahead: bool) -> None:
    loader = made(ahead, 1)
    assert [len(list(zip(loader, range(7), strict=False))) for _ in range(3)] == [7, 7, 7]
    assert [firsts(b)[0] for b in loader] == [n for (n,) in epochs(4, 1)[3]]
    loader = made(ahead)
    assert sum(1 for _ in loader for _ in loader) == 25


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("taken", range(6))
def test_a_loop_that_is_resumed_goes_on_with_the_very_next_batch(ahead: bool, taken: int) -> None:
    want = epochs(3)
    loader, other = made(ahead), made(not ahead)
    list(loader)
    for number, _ in enumerate(loader):
        if number + 1 >= taken:
            break
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert other.epoch == (2 if taken == 5 else 1)
    rest = [firsts(batch) for batch in other]
    assert rest == (want[2] if taken == 5 else want[1][max(1, taken) :])
    if taken < 5:
        assert [firsts(batch) for batch in other] == want[2]


@pytest.mark.parametrize("ahead", [False, True])
def test_next_goes_on_from_the_newest_iteration(ahead: bool) -> None:
    want = epochs(4)
    loader = made(ahead)
    assert [firsts(next(loader)) for _ in range(7)] == want[0] + want[1][:2]
    assert [firsts(batch) for batch in loader] == want[2]
    walk = iter(loader)
    assert firsts(next(walk)) == want[3][0]
    assert firsts(next(loader)) == want[3][1]
    assert [firsts(batch) for batch in walk] == want[3][1:]  # which has its own place
    assert (loader.epoch, loader.position) == (3, 2)
    loader.load_state_dict({**loader.state_dict(), "position": 4})
    assert [firsts(batch) for batch in loader] == want[3][4:]


def test_the_rest_of_an_epoch_leaves_the_loader_in_place() -> None:
    want = epochs(2)
    loader = made(False)
    assert [firsts(batch) for batch in loader.rest_of(1, position=2)] == want[1][2:]
    assert loader.state_dict() == made(False).state_dict()


def test_the_order_follows_from_the_seed() -> None:
    loaders = [Loader(dataset(), 3, seed=s) for s in (0, 0, 1)]
    orders = [[firsts(next(each)) for _ in range(9)] for each in loaders]
    assert orders[0] == orders[1] != orders[2]


def test_without_shuffling_the_order_is_natural() -> None:
    loader = Loader(dataset(), 4, shuffle=False, drop_last=False)
    assert [firsts(next(loader)) for _ in range(4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
        [0, 1, 2, 3],
    ]


def test_the_last_batch_can_be_filled_up() -> None:
    loader = Loader(dataset(), 4, shuffle=False, pad_last=True)
    batches = list(loader.once())
    assert len(batches) == len(loader) == 3
    x, y = batches[-1]
    assert x.shape == y.shape == (4, 4)
    assert (x[2:] == 0).all()
    assert (y[2:] == IGNORE_INDEX).all()
    targets = np.concatenate([y for _, y in batches]).ravel()
    assert targets[targets != IGNORE_INDEX].tolist() == list(range(1, 41))


def test_going_through_once_does_not_move_the_loader() -> None:
    loader = Loader(dataset(), 2, seed=3)
    next(loader)
    state = loader.state_dict()
    assert [firsts(b) for b in loader.once()] == [firsts(b) for b in loader.once()]
    assert loader.state_dict() == state


@given(st.integers(0, 25), st.booleans(), st.booleans())
def test_a_resumed_loader_continues_exactly(taken: int, drop: bool, random: bool) -> None:
    def make() -> Loader:
        source = RandomWindows(np.arange(41), 4) if random else dataset()
        return Loader(source, 3, seed=7, drop_last=drop)

    loader = make()
    for _ in range(taken):
        next(loader)
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    for _ in range(8):
        for ours, theirs in zip(next(loader), next(resumed), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seed": 1}, "seed must be as when"),
        ({"batch_size": 4}, "batch_size must be as when"),
        ({"items": 11}, "items must be as when"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": 1.5}, "epoch"),
        ({"position": None}, "position"),
        ({"position": 3}, "position must be below 3"),
    ],
)
def test_a_foreign_state_is_refused(change: dict, match: str) -> None:
    loader = Loader(dataset(), 3)
    next(loader)
    before = loader.state_dict()
    with pytest.raises((ValueError, TypeError), match=match):
        loader.load_state_dict({**before, **change})
    assert loader.state_dict() == before


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"batch_size": 11}, r"got 10 items, batch_size=11.*smaller batch"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2, "seed": -1}, "seed"),
    ],
)
def test_bad_arguments(arguments: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Loader(dataset(), **arguments)


def test_a_batch_larger_than_the_dataset_can_be_filled_up() -> None:
    x, y = next(Loader(dataset(2), 5, pad_last=True))
    assert x.shape == (5, 4)
    assert (y == IGNORE_INDEX).all(axis=1).sum() == 3


def test_a_state_of_other_data_of_the_same_size_is_refused() -> None:
    """Whatever has the same number of items is not the same text."""
    ids = np.arange(41)
    state = Loader(TokenDataset(ids, 4), 3).state_dict()
    others = {
        "text": TokenDataset(ids[::-1].copy(), 4),
        "one token": TokenDataset(np.where(ids == 20, 7, ids), 4),
        "windows": RandomWindows(ids, 4),
        "length": TokenDataset(ids[:40], 4, keep_tail=True),
    }
    for name, other in others.items():
        loader = Loader(other, 3)
        assert loader.state_dict()["items"] == state["items"], name
        before = loader.state_dict()
        with pytest.raises(ValueError, match="data must be"):
            loader.load_state_dict(state)
        assert loader.state_dict() == before
    again = Loader(TokenDataset(ids.astype(np.uint16), 4), 3)
    again.load_state_dict(state)  # the same text in another type
    again.load_state_dict({name: np.int64(value) for name, value in state.items()})
    del state["data"]
    with pytest.raises(ValueError, match="data"):
        again.load_state_dict(state)


def test_large_data_is_looked_at_everywhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for shape in [(5_000_000,), (60, 300, 300)]:
        data = rng.integers(0, 250, shape).astype(np.uint8)
        want = fingerprint(data)
        assert fingerprint(data.astype(np.uint16)) == want
        stored = np.memmap(tmp_path / "data", np.uint8, "w+", shape=shape)
        stored[:] = data
        assert fingerprint(stored) == want
        for start, stop in [
            (0, 1),
            (len(data) // 2, len(data) // 2 + 40_000),
            (len(data) - 1, None),
        ]:
            changed = data.copy()
            changed[start:stop] += 1
            assert fingerprint(changed) != want
        assert fingerprint(data[:-1]) != want


def test_going_through_once_leaves_nothing_out() -> None:
    for shuffle in (True, False):
        batches = list(Loader(dataset(), 4, shuffle=shuffle).once())
        assert [len(x) for x, _ in batches] == [4, 4, 2]
        assert sorted(n for batch in batches for n in firsts(batch)) == list(range(10))


def test_shards_are_the_rows_of_the_whole_batches():
    def loader() -> Loader:
        return Loader(TokenDataset(np.arange(400), seq_len=5), batch_size=7, seed=3)

    whole, shards = loader(), [loader() for _ in range(3)]
    for rank, shard in enumerate(shards):
        shard.shard(rank, 3)
    for _ in range(len(whole) + 2):
        parts = [next(shard) for shard in shards]
        assert [len(x) for x, _ in parts] == [3, 2, 2]
        x, y = next(whole)
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), x)
        np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), y)
    assert shards[1].state_dict() == whole.state_dict()
    assert len(next(shards[2].once())[0]) == 7
    with pytest.raises(ValueError, match="batch_size"):
        loader().shard(0, 8)
    with pytest.raises(ValueError, match="rank"):
        loader().shard(3, 3)
