# SPDX-License-Identifier: MIT
"""Pictures of runs: losses and other curves over steps, and matrices of numbers."""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...errors import ShapeError
from ...io import atomic_path
from ...train.metrics import perplexity
from ...train.need import need_number, need_path
from .fonts import drawable, families

__all__ = ["check_plot", "plot_curves", "plot_loss", "plot_matrix", "smooth"]

_log = logging.getLogger("pyggml.train")
_TRAIN, _SMOOTH, _TEXT = "#9ecae1", "#1f77b4", "#444444"
_SETS = ("#d95f02", "#2ca02c", "#9467bd", "#8c564b")
# So few values show their trend without an average over them.
_FEW = 50
# Larger matrices have no room for their numbers.
_MOST_LABELLED = 30


def smooth(values: list[float]) -> list[float]:
    """Exponential moving average over about a fiftieth of the values, without the bias of its
    first ones towards zero.

    Args:
        values: one a step.

    Returns:
        As many; fifty or fewer are given back as they are.

    Example:
        >>> smooth([3.0, 1.0])
        [3.0, 1.0]
    """
    # Smooth enough to see the trend, quick enough to show bends.
    weight = max(0.0, 1 - _FEW / len(values)) if len(values) > _FEW else 0.0
    smoothed, mean, norm = [], 0.0, 0.0
    for value in values:
        mean = weight * mean + (1 - weight) * value
        norm = weight * norm + (1 - weight)
        smoothed.append(mean / norm)
    return smoothed


def _points(lines: list[dict[str, Any]], kind: str) -> tuple[list[int], list[float]]:
    """Steps and finite losses of one kind of line."""
    chosen = [
        line
        for line in lines
        if line.get("kind") == kind and isinstance(line.get("loss"), (int, float))
    ]
    return [line["step"] for line in chosen], [float(line["loss"]) for line in chosen]


def check_plot(path: str | Path) -> Path:
    """Make sure that a picture can be drawn into a file, before the work that it is to show.

    Args:
        path: the file that is to be created or replaced.

    Returns:
        The same path.

    Raises:
        TypeError: it is no path.
        ValueError: it is empty.
        ImportError: matplotlib is not there.
        FileNotFoundError: its folder is not there.
        NotADirectoryError: its folder is a file.
        IsADirectoryError: it is a folder itself.
        PermissionError: its folder may not be written.

    Example:
        >>> check_plot("loss.png").name
        'loss.png'
    """
    path = _need_place("check_plot", path)
    _matplotlib()
    return path


def _need_place(who: str, path: str | Path) -> Path:
    """A path in a folder that can be written: else the error would name a temporary file."""
    path = need_path(who, "path", path)
    folder = path.parent
    if not folder.exists():
        raise FileNotFoundError(f"{who}: {path}: there is no folder {folder}: make it first")
    if not folder.is_dir():
        raise NotADirectoryError(f"{who}: {path}: {folder} is a file; a folder must be there")
    if path.is_dir():
        raise IsADirectoryError(f"{who}: {path} is a folder: name a file in it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{who}: {path}: the folder {folder} may not be written")
    return path


def _matplotlib() -> tuple[Any, Any]:
    """What draws without a screen: the classes of figures and of their canvas."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        cure = 'pip install "pyggml[cli]"'
        raise ImportError(f"plot: needs the package matplotlib; {cure}") from error
    return Figure, FigureCanvasAgg


def _axes(size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure that needs no screen, and its axes.

    Raises:
        ImportError: matplotlib is not there.
    """
    Figure, FigureCanvasAgg = _matplotlib()
    figure = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")
    axes.tick_params(colors=_TEXT)
    return figure, axes


def _finish(figure: Any, axes: Any, path: str | Path, title: str, x: str, y: str) -> None:
    """Labels, and the file."""
    axes.set_xlabel(x, color=_TEXT)
    axes.set_ylabel(y, color=_TEXT)
    if title:
        axes.set_title(title, loc="left", color=_TEXT, fontsize=11)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _grid(axes: Any) -> None:
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    axes.legend(frameon=False, labelcolor=_TEXT)


def plot_loss(lines: list[dict[str, Any]], path: str | Path, title: str = "") -> bool:
    """Draw training and validation loss over steps into a PNG file.

    Args:
        lines: what `read_metrics` returns.
        path: the file to create or replace.
        title: printed above the picture.

    Returns:
        Whether the picture was drawn: False without matplotlib or without a loss to show.

    Raises:
        TypeError: lines are others, or path is none.
        OSError: the file cannot be written.
    """
    if not isinstance(lines, (list, tuple)) or not all(isinstance(each, dict) for each in lines):
        raise TypeError(
            "plot_loss: lines must be those of read_metrics; got something else: give "
            "read_metrics(path)"
        )
    path = _need_place("plot_loss", path)
    steps, losses = _points(lines, "train")
    if not steps:
        return False
    try:
        figure, axes = _axes((8, 4.5))
    except ImportError:
        _log.warning(
            '%s was not drawn: matplotlib is not installed; pip install "pyggml[cli]"', path
        )
        return False
    from matplotlib.ticker import MaxNLocator

    many = len(losses) > _FEW
    axes.plot(steps, losses, color=_TRAIN if many else _SMOOTH, linewidth=1.0, label="training")
    if many:
        axes.plot(steps, smooth(losses), color=_SMOOTH, linewidth=1.8, label="training, smoothed")
    sets = dict.fromkeys(str(line.get("kind")) for line in lines if line.get("kind") != "train")
    for name, colour in zip(sets, itertools.cycle(_SETS), strict=False):
        val_steps, val_losses = _points(lines, name)
        if not val_steps:
            continue
        last = f"{name}, last {val_losses[-1]:.3f} (perplexity {perplexity(val_losses[-1]):.1f})"
        axes.plot(
            val_steps, val_losses, "o-", color=colour, linewidth=1.8, markersize=4, label=last
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _grid(axes)
    _finish(figure, axes, path, title, "step", "loss per token (nats)")
    return True


def plot_curves(
    path: str | Path,
    curves: Mapping[str, Any],
    *,
    title: str = "",
    x: str = "step",
    y: str = "loss",
    log: str = "",
    points: Collection[str] = (),
    marks: Mapping[str, float] | None = None,
    smoothed: bool = False,
    most: float | None = None,
) -> None:
    """Draw curves into a PNG file; needs matplotlib.

    Args:
        path: the file to create or replace.
        curves: by name, the values over 1, 2, 3, …, or a pair of places and values.
        title: printed above the picture.
        x: name of the places.
        y: name of the values.
        log: which axes are logarithmic: "x", "y", "xy" or none.
        points: names of the curves drawn as points, which do not hide a line that they lie on.
        marks: by name, places where an upright line stands.
        smoothed: draw curves of more than fifty values faintly, and their averages over them.
        most: the highest value shown, for curves that leave the picture; None shows all.

    Shape:
        values (N,), or places (N,), values (N,)

    Raises:
        ShapeError: places and values differ in number.
        TypeError: there is no curve, or it holds no numbers, or a mark is none.
        ValueError: `log` names no axis, `points` no curve, or `most` is not finite.
        ImportError: matplotlib is not there.
        OSError: the file cannot be written.

    Example:
        >>> plot_curves("loss.png", {"training": [3.0, 2.5], "held back": ([2], [2.7])})
    """
    path = _need_place("plot_curves", path)
    if not isinstance(curves, Mapping) or not curves:
        raise TypeError(
            f"plot_curves: curves must be values by name, one at least; got {curves!r:.60}"
        )
    if log not in ("", "x", "y", "xy"):
        raise ValueError(f"plot_curves: log must be x, y, xy or nothing; got {log!r:.60}")
    unknown = [name for name in points if name not in curves]
    if isinstance(points, str) or unknown:
        raise ValueError(
            f"plot_curves: points must be names among {list(curves)!r:.80}; got {points!r:.60}"
        )
    marks = {} if marks is None else marks
    for name, place in marks.items():
        need_number("plot_curves", f"the mark {name!r}", place, -math.inf)
    if most is not None:
        need_number("plot_curves", "most", most, -math.inf)
    drawn = {}
    for name, given in curves.items():
        pair = isinstance(given, tuple) and len(given) == 2 and np.ndim(given[0]) == 1
        values = _numbers(name, given[1] if pair else given)
        places = _numbers(name, given[0]) if pair else np.arange(1, values.size + 1)
        if values.ndim != 1 or places.shape != values.shape:
            raise ShapeError(
                f"plot_curves: {name!r} must be values (N,), or places (N,) and values (N,); got"
                f" {places.shape} and {values.shape}"
            )
        drawn[name] = (places, values)
    figure, axes = _axes((8, 4.5))
    colours = itertools.cycle((_SMOOTH, *_SETS))
    for (name, (places, values)), colour in zip(drawn.items(), colours, strict=False):
        if name in points:
            axes.plot(places, values, "o", color=colour, markersize=3.5, label=name)
        elif smoothed and values.size > _FEW and np.isfinite(values).all():
            axes.plot(places, values, color=colour, linewidth=0.8, alpha=0.3)
            axes.plot(places, smooth(values.tolist()), color=colour, linewidth=1.8, label=name)
        else:
            axes.plot(places, values, color=colour, linewidth=1.5, label=name)
    for name, place in marks.items():
        axes.axvline(
            place, color=_TEXT, linewidth=1.0, linestyle="--", label=f"{name}: {place:.3g}"
        )
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    if most is not None:
        # Else the margin below would be one of what is not shown.
        low = min(float(np.nanmin(values)) for _, values in drawn.values())
        axes.set_ylim(None if "y" in log else low - 0.05 * (most - low), most)
    _plain_logs(axes, log)
    _grid(axes)
    _finish(figure, axes, path, title, x, y)


def _plain_logs(axes: Any, log: str) -> None:
    """Logarithmic axes with 0.02 in place of 2 × 10⁻², and labels between powers of few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for letter in log:
        axis = axes.xaxis if letter == "x" else axes.yaxis
        low, high = axis.get_view_interval()
        axis.set_major_formatter(plain)
        if 0 < low < high < 1000 * low:
            axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
            axis.set_minor_formatter(plain)
            axes.tick_params(axis=letter, which="minor", colors=_TEXT)
        else:
            axis.set_minor_formatter(NullFormatter())


def _numbers(name: Any, given: Any) -> np.ndarray:
    """A curve's numbers."""
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"plot_curves: the curve {name!r} must be numbers; got {given!r:.60}"
        ) from None


def plot_matrix(
    path: str | Path,
    matrix: ArrayLike,
    names: Sequence[str],
    *,
    title: str = "",
    x: str = "predicted",
    y: str = "true",
) -> None:
    """Draw a matrix of counts, such as `confusion_matrix` gives, into a PNG file; needs matplotlib.

    Each row is coloured by its shares; the numbers stand in the cells while there is room.

    Args:
        path: the file to create or replace.
        matrix: counts.
        names: of rows and columns; one with letters that no font of the system has is written as
            its number, such as #3.
        title: printed above the picture.
        x: what the columns are.
        y: what the rows are.

    Shape:
        matrix (K, K)

    Raises:
        ShapeError: the matrix has not a row and a column for each name.
        ImportError: matplotlib is not there.
        OSError: the file cannot be written.

    Example:
        >>> plot_matrix("confusion.png", [[9, 1], [0, 10]], ["cat", "dog"])
    """
    path = _need_place("plot_matrix", path)
    counts = np.asarray(matrix)
    if counts.shape != (len(names), len(names)):
        raise ShapeError(
            f"plot_matrix: the matrix must be ({len(names)}, {len(names)}) for as many names; got"
            f" {counts.shape}"
        )
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(12.0, 3.0 + 0.4 * len(names))
    figure, axes = _axes((side, side))
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    if len(names) <= _MOST_LABELLED:
        texts = drawable(names)
        # A name is no formula, whatever signs it has.
        style: dict[str, Any] = {"family": families(), "parse_math": False}
        turned = 90 if max(map(len, texts)) > 2 else 0
        axes.set_xticks(range(len(texts)), texts, rotation=turned, **style)
        axes.set_yticks(range(len(texts)), texts, **style)
        for row, column in np.ndindex(counts.shape):
            colour = "white" if shares[row, column] > 0.5 else _TEXT
            if counts[row, column]:
                text = str(counts[row, column])
                axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)
    _finish(figure, axes, path, title, x, y)
