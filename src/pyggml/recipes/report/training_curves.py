# SPDX-License-Identifier: MIT
"""Curves of a run over its steps: losses, rates and metrics."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OutOfMemoryError, printable
from .figure import COLOURS, FEW, FILE_SIZE, PAGE_SIZE, new_axes, place_of, save, to_svg

__all__ = ["curves_svg", "loss_name", "loss_svg", "loss_unit", "plot_loss", "smooth"]

_log = logging.getLogger("pyggml.train")
# More points than a screen has columns show nothing more.
_MOST_POINTS = 1000


def smooth(values: list[float]) -> list[float]:
    """Return centred moving averages over about a 25th of the values.

    Towards the ends the stretches are shorter on both sides, so that a falling curve's average
    does not lie above it.

    Args:
        values: one a step.

    Returns:
        As many; fifty or fewer are returned as they are.

    Example:
        >>> smooth([3.0, 1.0])
        [3.0, 1.0]
    """
    count = len(values)
    if count <= FEW:
        return list(values)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(count)
    half = np.minimum(np.minimum(at, count - 1 - at), count // FEW)
    averages = (sums[at + half + 1] - sums[at - half]) / (2 * half + 1)
    return [float(value) for value in averages]


def _points(lines: Sequence[Mapping[str, Any]], kind: str) -> tuple[list[int], list[float]]:
    """Steps and finite losses of one kind of line."""
    chosen = [
        line
        for line in lines
        if line.get("kind") == kind and isinstance(line.get("loss"), (int, float))
    ]
    return [line["step"] for line in chosen], [float(line["loss"]) for line in chosen]


def _thin(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most so many points: the mean of each stretch."""
    size = -(-len(points) // _MOST_POINTS)
    if size <= 1:
        return points
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [(part[-1][0], math.fsum(y for _, y in part) / len(part)) for part in parts]


def plot_loss(
    lines: list[dict[str, Any]], path: str | Path, title: str = "", *, images: bool = False
) -> bool:
    """Draw training and validation loss over steps into a PNG file.

    Args:
        lines: the result of `read_metrics`.
        path: the file to create or replace.
        title: printed above the picture.
        images: whether the run learns images; of other runs, what evaluations measured tells the
            unit of the loss and the number named beside it.

    Returns:
        Whether the picture was drawn: False without matplotlib or without a loss to show.

    Raises:
        TypeError: lines are not dicts, or path is not a path.
        OSError: the file cannot be written.
    """
    if not isinstance(lines, (list, tuple)) or not all(isinstance(each, dict) for each in lines):
        raise TypeError(
            "plot_loss: lines must be those of read_metrics; got something else: give "
            "read_metrics(path)"
        )
    path = place_of("plot_loss", path)
    if not _points(lines, "train")[0]:
        return False
    try:
        with new_axes(FILE_SIZE, title, "step", loss_name(lines, images)) as axes:
            _draw_loss(axes, lines, images)
            save(axes, path)
    except (ImportError, OutOfMemoryError) as error:
        _log.warning("%s was not drawn: %s", path, error)
        return False
    return True


def loss_svg(lines: list[dict[str, Any]], images: bool = False) -> str:
    """Return the picture of `plot_loss` as an `<svg>` element, or "" without a loss to show."""
    if not any(_points(lines, kind)[0] for kind in {str(line.get("kind")) for line in lines}):
        return ""
    with new_axes(PAGE_SIZE, loss_name(lines, images)) as axes:
        _draw_loss(axes, lines, images)
        return to_svg(axes)


_SAYS_MORE = {"r2": "R² {:.3f}", "perplexity": "perplexity {:.1f}", "accuracy": "accuracy {:.1%}"}


_NAMES = {
    "nats per image": "loss per image (nats)",
    "nats per token": "loss per token (nats)",
    "of the targets' variance": "squared error (share of the targets' variance)",
    "": "loss",
}


def loss_unit(lines: Sequence[Mapping[str, Any]], images: bool) -> str:
    """Return the unit of the losses, by what evaluations measured; "" for one that is not known.

    Args:
        lines: the result of `read_metrics`.
        images: whether the run learns images.
    """
    if images:
        return "nats per image"
    evaluations = [line for line in lines if line.get("kind") != "train"]
    if any("r2" in line for line in evaluations):
        return "of the targets' variance"
    if evaluations and not any("perplexity" in line for line in evaluations):
        return ""
    return "nats per token"


def loss_name(lines: Sequence[Mapping[str, Any]], images: bool) -> str:
    """Return the loss and its unit as a title.

    Args:
        lines: the result of `read_metrics`.
        images: whether the run learns images.
    """
    return _NAMES[loss_unit(lines, images)]


def _draw_loss(axes: Any, lines: Sequence[Mapping[str, Any]], images: bool) -> None:
    """Curves of the losses of every kind of line."""
    colours = itertools.cycle(COLOURS)
    colour = next(colours)
    steps, losses = _points(lines, "train")
    if losses:
        faint = len(losses) > FEW
        how: dict[str, Any] = {"alpha": 0.35, "linewidth": 1.0} if faint else {"linewidth": 1.5}
        _curve(axes, steps, losses, color=colour, label="training", **how)
    if len(losses) > FEW:
        _curve(axes, steps, smooth(losses), color=colour, label="training, smoothed")
    kinds = dict.fromkeys(str(line.get("kind")) for line in lines if line.get("kind") != "train")
    for kind, colour in zip(kinds, colours, strict=False):
        steps, losses = _points(lines, kind)
        if losses:
            last = [line for line in lines if line.get("kind") == kind][-1]
            label = f"{kind}, last {losses[-1]:.3f}{_in_words(last, images)}"
            _curve(axes, steps, losses, "o-", color=colour, label=label)
    _with_commas(axes)
    axes.legend()


def _with_commas(axes: Any) -> None:
    """Whole steps below, and thousands as 1,000."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if 1000 <= max(map(abs, axes.get_ylim())) < 1e7:
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def _in_words(line: Mapping[str, Any], images: bool) -> str:
    """The number beside a loss that says more: R², perplexity of text, accuracy of classes."""
    for name, form in _SAYS_MORE.items():
        value = line.get(name)
        if isinstance(value, (int, float)) and not (images and name == "perplexity"):
            return f" ({form.format(value)})"
    return ""


def _curve(
    axes: Any, xs: Sequence[float], ys: Sequence[float], form: str = "-", **how: Any
) -> None:
    """A line with no more points than show."""
    points = _thin(list(zip(xs, ys, strict=True)))
    how = {"linewidth": 1.8, "markersize": 4, **how, "label": printable(how["label"])}
    axes.plot(*zip(*points, strict=True), form, **how)


def curves_svg(title: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a picture of curves over steps as an `<svg>` element; needs matplotlib.

    Args:
        title: printed above it.
        curves: points (step, value) by name; points that are not finite are left out.

    Returns:
        The element, or "" where there is nothing to show.
    """
    kept = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
        for name, points in curves.items()
    }
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return ""
    with new_axes(PAGE_SIZE, title) as axes:
        for (name, points), colour in zip(kept.items(), itertools.cycle(COLOURS), strict=False):
            xs, ys = zip(*points, strict=True)
            form = "o-" if len(points) <= FEW else "-"
            # The first line is wider: it shows below another one that has the same values.
            width = 1.5 if axes.lines or len(kept) == 1 else 3.0
            _curve(axes, xs, ys, form, color=colour, linewidth=width, label=name)
        _with_commas(axes)
        if len(kept) > 1:
            axes.legend()
        return to_svg(axes)
