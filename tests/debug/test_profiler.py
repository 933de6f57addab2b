# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import pyggml as pg
from pyggml.debug import OpSummary, Peaks


@pytest.fixture
def product():
    a = pg.tensor(np.ones((3, 5), np.float32))
    b = pg.tensor(np.ones((4, 5), np.float32))
    with pg.profile() as p:
        total = pg.ops.mul_mat(a, b).sum()
        assert total.item() == 60.0
    return p


def test_records_every_op_once(product):
    assert [r.op for r in product.records] == ["MUL_MAT", "SUM"]
    first = product.records[0]
    assert first.flops == 2 * 3 * 4 * 5
    assert first.bytes == 4 * (15 + 20 + 12)
    assert first.dtypes == ("f32", "f32")
    assert first.shape == (1, 1, 4, 3)
    assert "test_profiler.py" in first.where
    assert product.records[1].start_s >= first.start_s + first.seconds
    assert 0 < sum(r.seconds for r in product.records) < product.seconds
    assert 0 < product.outside_share < 1


def test_summaries_add_up(product):
    found = product.by_op()
    assert {s.op: s.calls for s in found} == {"MUL_MAT": 1, "SUM": 1}
    assert sum(s.share for s in found) == pytest.approx(1.0)
    assert found[0].seconds >= found[1].seconds


def test_the_backward_is_recorded_too():
    w = pg.tensor(np.ones((3, 5), np.float32))
    w.requires_grad = True
    x = pg.tensor(np.ones((4, 5), np.float32))
    with pg.profile() as p:
        pg.ops.mul_mat(w, x).sum().backward()
    outer = [r for r in p.records if r.op == "OUT_PROD"]
    assert [(r.where, r.flops) for r in outer] == [("backward", 2 * 3 * 4 * 5)]


def ones(*shape):
    return pg.tensor(np.ones(shape, np.float32))


def product_flops(function, *parameters):
    for each in parameters:
        each.requires_grad = True
    with pg.profile() as p:
        function().sum().backward()
    return {r.op: r.flops for r in p.records if r.flops}


def test_an_attention_counts_its_products():
    """Scores and values; backwards the scores again, and the gradients of all four."""
    q, k, v = ones(2, 3, 7, 8), ones(2, 3, 5, 8), ones(2, 3, 5, 16)
    pairs = 2 * 3 * 7 * 5
    assert product_flops(lambda: pg.ops.flash_attn_ext(q, k, v), q, k, v) == {
        "FLASH_ATTN_EXT": 2 * pairs * (8 + 16),
        "FLASH_ATTN_EXT_BACK": 2 * pairs * (3 * 8 + 2 * 16),
    }


def test_experts_and_convolutions_count_their_products():
    experts, x = ones(4, 6, 8), ones(5, 2, 8)
    ids = pg.tensor(np.zeros((5, 2), np.int32))
    found = product_flops(lambda: pg.ops.mul_mat_id(experts, x, ids), experts)
    assert found == dict.fromkeys(("MUL_MAT_ID", "MUL_MAT_ID_BACK"), 2 * 5 * 2 * 6 * 8)
    kernel, image = ones(4, 2, 3, 3), ones(2, 2, 9, 9)
    with pg.profile() as p:
        y = pg.ops.conv_2d_direct(image, kernel)
        y.numpy()
    assert [r.flops for r in p.records if r.op == "CONV_2D"] == [2 * y.numel() * 3 * 3 * 2]


def test_nothing_is_recorded_outside():
    with pg.profile() as p:
        assert p.records == []
    (pg.tensor([1.0]) * 2.0).numpy()
    assert p.records == []
    assert p.outside_share == 1.0


def test_other_threads_are_not_recorded():
    with pg.profile() as p:
        worker = threading.Thread(target=(pg.tensor([1.0]) * 2.0).numpy)
        worker.start()
        worker.join()
    assert p.records == []


def test_one_at_a_time():
    with pg.profile(), pytest.raises(RuntimeError, match="leave it first"), pg.profile():
        raise AssertionError("not reached")
    with pg.profile():
        assert (pg.tensor([1.0]) * 2.0).tolist() == [2.0]


def test_table_and_trace(product, tmp_path):
    text = str(product)
    for words in ("MUL_MAT", "outside of ops"):
        assert words in text
    assert "roof" not in text
    assert "roof" in product.table(Peaks(1e9, 1e9))
    product.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events] == ["MUL_MAT", "SUM"]
    assert events[0]["dur"] == pytest.approx(product.records[0].seconds * 1e6)
    assert events[0]["args"]["shape"] == [1, 1, 4, 3]


def test_share_of_the_roof():
    peaks = Peaks(flop_s=100.0, byte_s=10.0)
    assert peaks.share(OpSummary("MUL_MAT", 1, 2.0, 100, 1, 1.0)) == 0.5
    assert peaks.share(OpSummary("ADD", 1, 2.0, 0, 10, 1.0)) == 0.5


def test_peaks_are_measured():
    peaks = pg.measure_peaks()
    assert peaks.flop_s > 1e8
    assert peaks.byte_s > 1e7
