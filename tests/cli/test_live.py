# SPDX-License-Identifier: MIT
"""Lines that a training shows where stdout is no terminal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pyggml.cli.training.live import PlainReporter


@pytest.mark.parametrize(("last", "times"), [("The end", 1), ("The best", 0)])
def test_the_last_sample_is_shown_once(capsys: pytest.CaptureFixture[str], last: str, times: int):
    """With `sample_every` the last step may have shown it; other weights' is another."""
    reporter = PlainReporter()
    trainer = SimpleNamespace(step=4)
    for text in ("The", "The end", "The end"):
        reporter.on_sample(trainer, text)
    reporter.last_sample(last)
    out = capsys.readouterr().out
    assert out.count("sample after step 4") == 3
    assert out.count("\nThe end\n") == 2
    assert out.count("\nThe best\n") == 1 - times
