# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyggml.data import (
    IGNORE_INDEX,
    AugmentedDataset,
    CorruptSpans,
    Documents,
    FillInTheMiddle,
    Loader,
    MaskTokens,
    Prefetch,
)

SENTINELS = tuple(range(999, 899, -1))
TRANSFORMS: dict[str, Any] = {
    "crop": None,
    "mask": MaskTokens(900, 1000),
    "spans": CorruptSpans(SENTINELS, eos_id=1),
    "middle": FillInTheMiddle(997, 998, 999),
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def documents(count: int = 12) -> Documents:
    return Documents.of([np.arange(n) + 2 for n in rng().integers(1, 80, count)])


# Masks


@given(st.integers(1, 200), st.floats(0.01, 0.99), st.integers(0, 5))
def test_masks(length: int, rate: float, seed: int) -> None:
    ids = np.arange(length) + 10
    x, y = MaskTokens(5, 10, rate, special=(10, 12))(ids, rng(seed))
    chosen = y != IGNORE_INDEX
    free = length - (length >= 1) - (length >= 3)
    assert chosen.sum() == (max(1, round(rate * free)) if free else 0)
    np.testing.assert_array_equal(y[chosen], ids[chosen])
    np.testing.assert_array_equal(x[~chosen], ids[~chosen])
    assert not chosen[np.isin(ids, (10, 12))].any()


def test_eighty_ten_ten() -> None:
    ids = np.full(10**5, 7)
    x, y = MaskTokens(5, 4, 0.5)(ids, rng())
    found = x[y != IGNORE_INDEX]
    shares = [(found == 5).mean(), (found == 7).mean(), (found < 4).mean()]
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.005)
    assert np.bincount(found[found < 4], minlength=4).min() > 1000


# Spans


def join(x: np.ndarray, y: np.ndarray) -> list[int]:
    """The text again: every sentinel of the inputs replaced by what the targets say."""
    spans: dict[int, list[int]] = {}
    for token in y.tolist():
        if token >= 900:
            spans[token] = []
            last = token
        else:
            spans[last].append(token)
    assert list(spans) == list(SENTINELS[: len(spans)])
    return [t for token in x.tolist() for t in spans.get(token, [token])]


@given(st.integers(2, 400), st.floats(0.05, 0.6), st.floats(1, 6), st.integers(0, 9))
def test_spans_can_be_put_back(length: int, rate: float, mean: float, seed: int) -> None:
    corrupt = CorruptSpans(SENTINELS, rate=rate, mean_span=mean)
    if corrupt._counts(length)[1] > len(SENTINELS):
        return
    ids = np.arange(length)
    x, y = corrupt(ids, rng(seed))
    assert join(x, y) == ids.tolist()
    assert corrupt.sizes(length) == (x.size, y.size)
    noise = sum(t < 900 for t in y.tolist())
    assert noise == min(max(round(length * rate), 1), length - 1)
    assert x[0] < 900  # text comes first, a span last
    assert x[-1] >= 900


def test_spans_lie_anywhere() -> None:
    corrupt = CorruptSpans(SENTINELS)
    ids = np.arange(100)
    cut = np.concatenate([corrupt(ids, rng(seed))[1] for seed in range(2000)])
    counts = np.bincount(cut[cut < 900], minlength=100)
    # The first token is never cut out; of the others none much more often than another.
    assert counts[0] == 0
    assert counts[5:95].min() > 0.7 * counts[5:95].mean()
    assert counts.sum() == 2000 * 15


def test_spans_need_sentinels_and_text() -> None:
    with pytest.raises(ValueError, match="100 tokens need 5 sentinels; got 2"):
        CorruptSpans((9, 8))(np.arange(100), rng())
    with pytest.raises(ValueError, match="at least 2 tokens; got 1"):
        CorruptSpans((9, 8))(np.arange(1), rng())


@given(st.floats(0.001, 0.999), st.floats(1, 6))
def test_a_longer_text_never_needs_fewer_sentinels(rate: float, mean: float) -> None:
    corrupt = CorruptSpans(SENTINELS, rate=rate, mean_span=mean)
    counts = [corrupt._counts(n)[1] for n in range(2, 300)]
    assert counts == sorted(counts)


def test_the_longest_text_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="need 107374182 sentinels"):
        CorruptSpans((9, 8)).check(2**31)


def test_too_few_sentinels_are_refused_before_the_first_batch() -> None:
    long, short = (Documents.of([np.arange(n)]) for n in (500, 40))
    assert AugmentedDataset(short, 100, CorruptSpans((998, 999))).crop_len > 100
    with pytest.raises(ValueError, match="sentinels"):
        AugmentedDataset(long, 100, CorruptSpans((998, 999)))
    for tokens in range(2, 200):
        corrupt = CorruptSpans(tuple(range(900, 1000)), rate=0.3, mean_span=1.5)
        needed = max(corrupt._counts(n)[1] for n in range(2, tokens + 1))
        CorruptSpans(tuple(range(needed)), rate=0.3, mean_span=1.5).check(tokens)
        if needed > 1:
            with pytest.raises(ValueError, match=f"need {needed} sentinels"):
                CorruptSpans(tuple(range(needed - 1)), rate=0.3, mean_span=1.5).check(tokens)
    for sentinels, eos in (((5, 5), None), ((5, 6), 6)):
        with pytest.raises(ValueError, match="sentinels must differ"):
            CorruptSpans(sentinels, eos)


# Middles


@given(st.integers(0, 50), st.booleans(), st.booleans(), st.integers(0, 20))
def test_middles_can_be_put_back(length: int, spm: bool, ended: bool, seed: int) -> None:
    fill = FillInTheMiddle(997, 998, 999, rate=1, spm_rate=int(spm), eos_id=1)
    ids = np.concatenate([np.arange(length) + 2, [1] * ended]).astype(int)
    made = fill(ids, rng(seed)).tolist()
    assert len(made) == len(ids) + 3
    if ended:
        assert made.pop() == 1
    prefix, suffix, middle = (made.index(token) for token in (997, 999, 998))
    assert prefix == 0 < suffix < middle
    if spm:
        assert suffix == 1
        text = made[middle + 1 :] + made[suffix + 1 : middle]
    else:
        text = made[1:suffix] + made[middle + 1 :] + made[suffix + 1 : middle]
    assert text == list(range(2, length + 2))


def test_shares_of_middles() -> None:
    fill = FillInTheMiddle(997, 998, 999, rate=0.7, spm_rate=0.25)
    made = [fill(np.arange(20), rng(seed)) for seed in range(4000)]
    turned = [m for m in made if m[0] == 997]
    assert len(turned) / len(made) == pytest.approx(0.7, abs=0.03)
    # With text before the gap, only SPM has SUFFIX beside PREFIX; 1 in 21 has none.
    spm = np.mean([m[1] == 999 for m in turned])
    assert 0.25 - 0.03 < spm < 0.25 + 0.12


# In datasets


@pytest.mark.parametrize("name", TRANSFORMS)
def test_rows_have_one_shape(name: str) -> None:
    data = AugmentedDataset(documents(), 24, TRANSFORMS[name])
    batch = data.batch(data.order(rng()))
    assert batch.x.shape == (len(data), 24)
    assert batch.y.shape == (len(data), data.target_len if name == "spans" else 24)
    assert batch.x.dtype == batch.y.dtype == np.int32
    assert all(array.dtype == np.int32 for array in batch.inputs.values())
    if name in ("crop", "middle"):
        assert not batch.inputs
        kept = batch.y != IGNORE_INDEX
        followed = kept[:, 1:]
        np.testing.assert_array_equal(batch.y[:, :-1][followed], batch.x[:, 1:][followed])
        assert (np.diff(kept.astype(int), axis=1) <= 0).all()
        # A crop is a part of its document, which counts up; PSM and SPM count up in each part.
        if name == "crop":
            assert set((batch.y - batch.x)[kept].tolist()) == {1}
    else:
        mask = batch.inputs["attention_mask"]
        assert (np.diff(mask, axis=1) <= 0).all()
        assert not batch.x[mask == 0].any()
    if name == "spans":
        decoder = batch.inputs["decoder_ids"]
        assert not decoder[:, 0].any()
        kept = batch.y[:, :-1] != IGNORE_INDEX
        np.testing.assert_array_equal(decoder[:, 1:][kept], batch.y[:, :-1][kept])
        assert not decoder[:, 1:][~kept].any()
        for x, y, m in zip(batch.x, batch.y, mask, strict=True):
            inputs, targets = x[m == 1], y[y != IGNORE_INDEX]
            assert inputs[-1] == targets[-1] == 1
            text = join(inputs[:-1], targets[:-1])
            assert np.diff(text).tolist() == [1] * (len(text) - 1)


@pytest.mark.parametrize("name", TRANSFORMS)
@given(taken=st.integers(0, 12))
def test_resumes_exactly(name: str, taken: int) -> None:
    def make() -> Loader:
        return Loader(AugmentedDataset(documents(), 16, TRANSFORMS[name]), 3, seed=9)

    loader = make()
    for _ in range(taken):
        next(loader)
    with Prefetch(make()) as other:
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        for _ in range(len(loader) + 1):
            a, b = next(loader), next(other)
            np.testing.assert_array_equal(a.x, b.x)
            np.testing.assert_array_equal(a.y, b.y)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_epochs_and_seeds_differ_and_evaluation_does_not(name: str) -> None:
    data = AugmentedDataset(documents(1), 16, TRANSFORMS[name])
    a, b, c = (
        [next(loader).x.tolist() for _ in range(len(loader))]
        for loader in (Loader(data, 1, seed=0), Loader(data, 1, seed=0), Loader(data, 1, seed=1))
    )
    assert a == b != c
    loader = Loader(data, 1, shuffle=False)
    first, second = ([next(loader).x.tolist() for _ in range(len(loader))] for _ in range(2))
    assert first == second
    loader = Loader(data, 1)
    first, second = (sorted(next(loader).x.tolist() for _ in range(len(loader))) for _ in range(2))
    assert first != second


def test_every_part_of_a_document_is_cropped() -> None:
    data = AugmentedDataset(Documents.of([np.arange(100)]), 9)
    assert (len(data), data.crop_len) == (10, 10)
    seen = np.concatenate([data.batch(data.order(rng(s))).x[:, 0] for s in range(300)])
    counts = np.bincount(seen, minlength=91)
    assert counts.size == 91  # offsets 0 to 90
    assert counts.min() > 10


@pytest.mark.parametrize(
    ("seq_len", "target_len"), [(3, None), (24, None), (24, 4), (24, 100), (100, 10)]
)
def test_seq2seq_rows_are_filled_as_well_as_they_can(seq_len: int, target_len: int | None) -> None:
    corrupt = CorruptSpans(SENTINELS, eos_id=1)
    data = AugmentedDataset(documents(), seq_len, corrupt, target_len=target_len)
    inputs, targets = corrupt.sizes(data.crop_len)
    assert inputs <= seq_len
    assert targets <= data.target_len
    more = corrupt.sizes(data.crop_len + 1)
    assert more[0] > seq_len or more[1] > data.target_len


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda d: AugmentedDataset(d, 0), "seq_len"),
        (lambda d: AugmentedDataset(d, 1, TRANSFORMS["middle"]), "rows must have room"),
        (lambda d: AugmentedDataset(d, 9, TRANSFORMS["spans"], target_len=2), "room for what Corr"),
        (lambda d: AugmentedDataset(d, 9, pad_id=-1), "pad_id"),
        (lambda d: AugmentedDataset(Documents.of([[1], []]), 9), "at least two tokens"),
        (lambda d: AugmentedDataset(Documents.of([[1, 2]], [[0, 1]]), 9), "must count all"),
        (lambda d: MaskTokens(1, 2, 0.0), "rate"),
        (lambda d: MaskTokens(1, 2, 1.0), "rate"),
        (lambda d: MaskTokens(1, 0), "vocab_size"),
        (lambda d: MaskTokens(-1, 5), "mask_id"),
        (lambda d: CorruptSpans(()), "sentinels must be tokens"),
        (lambda d: CorruptSpans((1,), rate=2), "rate"),
        (lambda d: CorruptSpans((1,), mean_span=0.5), "mean_span"),
        (lambda d: FillInTheMiddle(1, 2, 3, rate=1.5), "rate"),
        (lambda d: FillInTheMiddle(1, 2, 3, spm_rate=-1), "spm_rate"),
    ],
)
def test_bad_arguments(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(documents())
