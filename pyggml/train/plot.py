# SPDX-License-Identifier: MIT
"""The picture of a run's loss."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ..io import atomic_path
from .metrics import perplexity

__all__ = ["plot_loss"]

_log = logging.getLogger("pyggml.train")
_TRAIN, _SMOOTH, _VALIDATION, _TEXT = "#9ecae1", "#1f77b4", "#d95f02", "#444444"


def _smooth(values: list[float], weight: float) -> list[float]:
    """Exponential moving average, without the bias towards zero of its first values."""
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
        OSError: the file cannot be written.
    """
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
    # About a fiftieth of the run: smooth enough to see the trend, quick enough to show bends.
    weight = max(0.0, 1 - 50 / len(losses)) if len(losses) > 50 else 0.0
    axes.plot(steps, losses, color=_TRAIN if weight else _SMOOTH, linewidth=1.0, label="training")
    if weight:
        axes.plot(
            steps, _smooth(losses, weight), color=_SMOOTH, linewidth=1.8, label="training, smoothed"
        )
    val_steps, val_losses = _points(lines, "validation")
    if val_steps:
        last = (
            f"validation, last {val_losses[-1]:.3f} (perplexity {perplexity(val_losses[-1]):.1f})"
        )
        axes.plot(
            val_steps, val_losses, "o-", color=_VALIDATION, linewidth=1.8, markersize=4, label=last
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
