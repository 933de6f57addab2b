# SPDX-License-Identifier: MIT
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from pyggml import ShapeError
from pyggml.train import fonts, plot_curves, plot_matrix

PNG = b"\x89PNG\r\n"


def test_curves(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "curves.png"
    curves = {"a": [3.0, 2.0], "b": (np.array([1.0, 10.0]), [0.5, np.nan]), "c": np.ones(3)}
    plot_curves(path, curves, title="t", log="xy")
    assert path.read_bytes().startswith(PNG)
    with pytest.raises(ShapeError, match=r"'a' must be values .* got \(2,\) and \(3,\)"):
        plot_curves(path, {"a": ([1, 2], [1.0, 2.0, 3.0])})


def test_a_matrix_of_few_and_of_many_classes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for count in (1, 2, 40):
        path = tmp_path / f"{count}.png"
        plot_matrix(path, np.eye(count, dtype=int), [f"class {n}" for n in range(count)])
        assert path.read_bytes().startswith(PNG)
    with pytest.raises(ShapeError, match=r"must be \(2, 2\)"):
        plot_matrix(path, np.eye(3), ["a", "b"])


@pytest.mark.filterwarnings("error")
def test_any_name_is_drawn_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = ["猫 é", "$a", "$x^{$", "a_b", "\U0001f408", "line\nbreak", "ß"]
    plot_matrix(tmp_path / "m.png", np.eye(len(names), dtype=int), names)
    assert (tmp_path / "m.png").read_bytes().startswith(PNG)


def test_a_name_that_no_font_has_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(fonts, "_MORE", ())
    assert fonts.families() == ["DejaVu Sans"]
    assert fonts.drawable(["cat", "猫", "кот", 7]) == ["cat", "#1", "кот", "7"]
    # A font that is installed is looked into as well.
    monkeypatch.setattr(fonts, "_MORE", ("STIXGeneral", "no such font"))
    assert fonts.families() == ["DejaVu Sans", "STIXGeneral"]


def test_without_matplotlib_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pyggml\[cli\]"):
        plot_curves("x.png", {"a": [1.0]})
