# SPDX-License-Identifier: MIT
"""Curves as SVG, for pages that bring everything with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["Curve", "draw"]

Curve = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 28, 32
_COLOURS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#8c564b", "#17becf")
# More points than a screen has columns show nothing more.
_POINTS_MAX = 1000


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers from low to high."""
    span = high - low
    unit = 10.0 ** math.floor(math.log10(span / 4))
    step = next(unit * m for m in (1, 2, 5, 10) if span / (unit * m) <= 8)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step) + 1)]


def _thin(points: Curve) -> Curve:
    """At most so many points: the mean of each stretch."""
    size = -(-len(points) // _POINTS_MAX)
    if size <= 1:
        return points
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return [(part[-1][0], math.fsum(y for _, y in part) / len(part)) for part in parts]


def draw(title: str, curves: Mapping[str, Curve]) -> str:
    """A picture of curves over steps.

    Args:
        title: written above.
        curves: points (step, value) by name; what is not finite is left out.

    Returns:
        An `<svg>` element, or "" when there is nothing to show.

    Example:
        >>> draw("loss", {"training": [(1, 2.0), (2, 1.0)]})[:4]
        '<svg'
    """
    kept = {
        name: _thin([(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)])
        for name, points in curves.items()
    }
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return ""
    xs = [x for points in kept.values() for x, _ in points]
    ys = [y for points in kept.values() for _, y in points]
    x_low, x_high = min(xs), max(*xs, min(xs) + 1)
    y_low, y_high = min(ys), max(ys)
    if y_high - y_low <= 1e-12 * max(abs(y_low), abs(y_high)) or y_high - y_low < 1e-300:
        pad = abs(y_low) * 0.1 or 1.0
        y_low, y_high = y_low - pad, y_high + pad

    def at_x(x: float) -> float:
        return _LEFT + (x - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)

    def at_y(y: float) -> float:
        return _HEIGHT - _BOTTOM - (y - y_low) / (y_high - y_low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="16" class="t">{escape(title)}</text>',
    ]
    for y in _ticks(y_low, y_high):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{at_y(y) + 4:.1f}" class="y">{y:.6g}</text>'
        )
    for x in _ticks(x_low, x_high):
        if x == int(x):
            parts.append(f'<text x="{at_x(x):.1f}" y="{_HEIGHT - 10}" class="x">{int(x):,}</text>')
    place = _LEFT + 8.0 * len(title) + 24
    for (name, points), colour in zip(kept.items(), _COLOURS * len(kept), strict=False):
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in points)
        if len(points) == 1:
            x, y = points[0]
            parts.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>')
        parts.append(f'<polyline points="{path}" stroke="{colour}"/>')
        if len(kept) > 1:
            parts.append(f'<text x="{place:.0f}" y="16" fill="{colour}">{escape(name)}</text>')
            place += 8.0 * len(name) + 16
    return "".join([*parts, "</svg>"])
