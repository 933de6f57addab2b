# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import pyggml as pg
from pyggml.profiler import OpSummary, Peaks


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
