# SPDX-License-Identifier: MIT
"""Objects in a notebook."""

from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np

import pyggml as pg
from pyggml.debug.tables import html_table
from pyggml.recipes.run import Run
from pyggml.train import EvalMetrics, FitResult, MemoryPlan


class _Reader(HTMLParser):
    """Collects the texts, and the tags that are open."""

    def __init__(self):
        super().__init__()
        self.texts, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def _texts(html):
    """Return the texts of HTML whose tags are closed."""
    reader = _Reader()
    reader.feed(html)
    assert not reader.open
    return reader.texts


def test_texts_are_escaped():
    assert _texts(html_table([("<b>",)], ["<i>"], "&<u>")) == ["&<u>", "<i>", "<b>"]


def test_model():
    texts = _texts(pg.nn.Sequential(pg.nn.Linear(4, 8), pg.nn.ReLU())._repr_html_())
    assert texts[0] == "Sequential: 40 parameters"
    assert "Linear" in texts[1]


def test_profile():
    with pg.profile() as profile:
        (pg.tensor(np.ones(4)) * 2.0).numpy()
    texts = _texts(profile._repr_html_())
    assert "SCALE" in texts
    assert _texts(pg.debug.Profile()._repr_html_())


def test_plan_result_and_run():
    plan = MemoryPlan(1, 2, 3, 4, "CPU", 1 << 30, {"SIN": 2})
    assert {"CPU", "total", "SIN on the CPU"} <= set(_texts(plan._repr_html_()))
    validation = EvalMetrics(3, 0.5, None, 8, metrics={"accuracy": 0.25})
    result = FitResult(3, None, validation, None, 1.5)
    texts = _texts(result._repr_html_())
    assert texts[-2:] == ["validation accuracy", "0.2500"]
    run = SimpleNamespace(describe=lambda: [("model", "a <GPT>")], result=result)
    assert _texts(Run._repr_html_(run)) == ["model", "a <GPT>", *texts]
