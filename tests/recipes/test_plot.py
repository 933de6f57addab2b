# SPDX-License-Identifier: MIT
from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyggml import OutOfMemoryError, ShapeError
from pyggml.recipes import check_plot, plot_curves, plot_matrix, script_options
from pyggml.recipes.report import figure
from pyggml.recipes.report.training_curves import plot_loss

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
    monkeypatch.setattr(figure, "_MORE", ())
    assert figure.families() == ["DejaVu Sans"]
    assert figure.drawable(["cat", "猫", "кот", 7]) == ["cat", "#1", "кот", "7"]
    # A font that is installed is looked into as well.
    monkeypatch.setattr(figure, "_MORE", ("STIXGeneral", "no such font"))
    assert figure.families() == ["DejaVu Sans", "STIXGeneral"]


def test_without_matplotlib_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pyggml\[cli\]"):
        plot_curves("x.png", {"a": [1.0]})


@pytest.mark.skipif(sys.platform == "win32", reason="no handler waits there")
@pytest.mark.parametrize("n", [1, 20])
def test_a_signal_while_a_picture_is_drawn(
    n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no error of matplotlib, whose C++ calls Python; the picture is whole."""
    Affine2DBase = pytest.importorskip("matplotlib.transforms").Affine2DBase
    calls, real = iter(range(1, 100_000)), Affine2DBase.__array__

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == n:
            signal.raise_signal(signal.SIGINT)
        return real(*args, **kwargs)

    monkeypatch.setattr(Affine2DBase, "__array__", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            plot_curves(tmp_path / "a.png", {"a": ([1, 2, 3], [1, 2, 3])}, title="T")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_a_picture_that_the_memory_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenBLAS would end the process; a training goes on without the picture."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(figure, "_DRAWING", 1 << 60)
    with pytest.raises(OutOfMemoryError, match="plot: a picture takes up to"):
        plot_curves(tmp_path / "a.png", {"a": [1.0, 2.0]})
    lines = [{"kind": "train", "step": step, "loss": 1.0} for step in (1, 2)]
    assert not plot_loss(lines, tmp_path / "loss.png")
    assert "loss.png was not drawn: plot: a picture takes up to" in caplog.text


def test_curves_as_points_with_marks_and_a_limit(tmp_path: Path) -> None:
    """All of them change the picture."""
    pytest.importorskip("matplotlib")
    noisy = np.random.default_rng(0).normal(5.0, 1.0, 200)
    pictures = set()
    for options in (
        {},
        {"points": ["a"]},
        {"marks": {"here": 30.0}},
        {"smoothed": True},
        {"most": 6.0},
        {"most": 6.0, "log": "y"},
    ):
        plot_curves(tmp_path / "p.png", {"a": noisy}, **options)
        pictures.add((tmp_path / "p.png").read_bytes())
    assert len(pictures) == 6


def test_a_place_for_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert check_plot(tmp_path / "p.png") == tmp_path / "p.png"
    assert not list(tmp_path.iterdir())


def test_a_script_ends_before_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(sys, "argv", ["script", "--seed", "3"])
    options = script_options(ArgumentParser(), plot="the waves")
    assert (options.seed, options.plot) == (3, None)
    monkeypatch.setattr(sys, "argv", ["script", "--plot", str(tmp_path / "no" / "p.png")])
    with pytest.raises(SystemExit, match=r"^error: check_plot: .*there is no folder"):
        script_options(ArgumentParser())
    # From then on what a user mends is told in a line, anything else with its traceback.
    sys.excepthook(FileNotFoundError, FileNotFoundError("a.txt: no such file"), None)
    assert capsys.readouterr().err == "error: a.txt: no such file\n"
    sys.excepthook(ValueError, ValueError("odd"), None)
    assert capsys.readouterr().err == "ValueError: odd\n"
    monkeypatch.setenv("PYGGML_DEBUG", "1")
    sys.excepthook(OSError, OSError("full"), None)
    assert capsys.readouterr().err == "OSError: full\nerror: full\n"
