# SPDX-License-Identifier: MIT
"""Pictures of any curves, and of matrices of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...errors import ShapeError, printable
from .figure import (
    COLOURS,
    FEW,
    FILE_SIZE,
    TEXT_COLOUR,
    drawable,
    need_matplotlib,
    new_axes,
    place_of,
    save,
)
from .training_curves import smooth

__all__ = ["check_plot", "plot_curves", "plot_matrix"]

# Larger matrices have no room for their numbers.
_MOST_LABELLED = 30


def check_plot(path: str | Path) -> Path:
    """Raise unless a picture can be drawn into a file; call it before a long run.

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
    path = place_of("check_plot", path)
    need_matplotlib()
    return path


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
        TypeError: there is no curve, or a curve or a mark is no number.
        ValueError: `log` names no axis, `points` no curve, or `most` is not finite.
        ImportError: matplotlib is not there.
        OSError: the file cannot be written.

    Example:
        >>> plot_curves("loss.png", {"training": [3.0, 2.5], "validation": ([2], [2.7])})
    """
    path = place_of("plot_curves", path)
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
        checks.number("plot_curves", f"the mark {name!r}", place)
    if most is not None:
        checks.number("plot_curves", "most", most)
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
    with new_axes(FILE_SIZE, title, x, y) as axes:
        for (name, curve), colour in zip(drawn.items(), itertools.cycle(COLOURS), strict=False):
            (places, values), label = curve, printable(str(name))
            if name in points:
                axes.plot(places, values, "o", color=colour, markersize=3.5, label=label)
            elif smoothed and values.size > FEW and np.isfinite(values).all():
                axes.plot(places, values, color=colour, linewidth=0.8, alpha=0.3)
                axes.plot(places, smooth(values.tolist()), color=colour, linewidth=1.8, label=label)
            else:
                axes.plot(places, values, color=colour, linewidth=1.5, label=label)
        for name, place in marks.items():
            label = printable(f"{name}: {place:.3g}")
            axes.axvline(place, color=TEXT_COLOUR, linewidth=1.0, linestyle="--", label=label)
        if "x" in log:
            axes.set_xscale("log")
        if "y" in log:
            axes.set_yscale("log")
        if most is not None:
            # Else the margin below would be one of what is not shown.
            low = min(float(np.nanmin(values)) for _, values in drawn.values())
            axes.set_ylim(None if "y" in log else low - 0.05 * (most - low), most)
        _plain_logs(axes, log)
        axes.legend()
        save(axes, path)


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
            axes.tick_params(axis=letter, which="minor", colors=TEXT_COLOUR)
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
    path = place_of("plot_matrix", path)
    names = checks.names("plot_matrix", "names", names)
    counts = checks.array("plot_matrix", "matrix", matrix)
    if counts.shape != (len(names), len(names)):
        raise ShapeError(
            f"plot_matrix: the matrix must be ({len(names)}, {len(names)}) for as many names; got"
            f" {counts.shape}"
        )
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(12.0, 3.0 + 0.4 * len(names))
    with new_axes((side, side), title, x, y) as axes:
        axes.grid(visible=False)
        axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
        if len(names) <= _MOST_LABELLED:
            texts = drawable(names)
            axes.set_xticks(
                range(len(texts)), texts, rotation=90 if max(map(len, texts)) > 2 else 0
            )
            axes.set_yticks(range(len(texts)), texts)
            for row, column in np.ndindex(counts.shape):
                colour = "white" if shares[row, column] > 0.5 else TEXT_COLOUR
                if counts[row, column]:
                    text = str(counts[row, column])
                    where = {"ha": "center", "va": "center", "fontsize": 8}
                    axes.text(column, row, text, color=colour, **where)
        save(axes, path)
