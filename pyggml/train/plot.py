# SPDX-License-Identifier: MIT
"""The picture of a run's loss."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

from ..io import atomic_path
from .metrics import perplexity
from .need import need_path

__all__ = ["plot_loss", "smooth"]

_log = logging.getLogger("pyggml.train")
_TRAIN, _SMOOTH, _TEXT = "#9ecae1", "#1f77b4", "#444444"
_SETS = ("#d95f02", "#2ca02c", "#9467bd", "#8c564b")


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
    weight = max(0.0, 1 - 50 / len(values)) if len(values) > 50 else 0.0
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
    path = need_path("plot_loss", "path", path)
    steps, losses = _points(lines, "train")
    if not steps:
        return False
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        _log.warning(
            '%s was not drawn: matplotlib is not installed; pip install "pyggml[cli]"', path
        )
        return False

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    many = len(losses) > 50
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
    axes.set_xlabel("step", color=_TEXT)
    axes.set_ylabel("loss per token (nats)", color=_TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")
    axes.tick_params(colors=_TEXT)
    axes.margins(x=0.02)
    if title:
        axes.set_title(title, loc="left", color=_TEXT, fontsize=11)
    axes.legend(frameon=False, labelcolor=_TEXT)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")
    return True
