# SPDX-License-Identifier: MIT
"""The classes of a run on its page: the confusion matrix and the worst examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from .page import escape, is_number

__all__ = ["classes"]

# A wider table shows nothing that confusion.png does not show better.
_MOST = 30
_PICTURE = "data:image/png;base64,"


def classes(results: Mapping[str, Any], level: int = 2) -> str:
    """Return the part of a page about classes; "" for a run that has none.

    Args:
        results: of results.json.
        level: of its headings.
    """
    names, counts = results.get("classes"), results.get("confusion")
    parts = []
    if isinstance(names, dict) and _is_matrix(counts, len(names)):
        parts.append(f"<h{level}>Classes</h{level}>{_matrix(list(names), counts)}")
    worst = results.get("worst")
    if isinstance(worst, list) and worst:
        shown = "".join(_example(each) for each in worst if isinstance(each, dict))
        told = "<p>With the probability that was given to the true class.</p>"
        head = f"<h{level}>Worst examples</h{level}>{told}"
        parts.append(f'{head}<div class="images">{shown}</div>')
    return "".join(parts)


def _is_matrix(counts: Any, size: int) -> TypeGuard[list[list[float]]]:
    """Return whether a value is a square of numbers that a page has room for."""
    return (
        isinstance(counts, list)
        and 0 < size == len(counts) <= _MOST
        and all(isinstance(row, list) and len(row) == size for row in counts)
        and all(is_number(each) for row in counts for each in row)
    )


def _matrix(names: Sequence[str], counts: Sequence[Sequence[float]]) -> str:
    """Return counts by true class (rows) and predicted class, shaded by their share of the row."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = [f"<tr><th>true \\ predicted</th>{heads}<th>correct</th></tr>"]
    for at, (name, row) in enumerate(zip(names, counts, strict=True)):
        total = sum(row)
        cells = "".join(_cell(each, each / max(total, 1)) for each in row)
        correct = f"{row[at] / total:.1%}" if total else "–"
        rows.append(f"<tr><th>{escape(name)}</th>{cells}<td>{correct}</td></tr>")
    return f'<div class="matrix"><table>{"".join(rows)}</table></div>'


def _cell(count: float, share: float) -> str:
    """Return a count on the colour of its share."""
    colour = f"rgba(31,119,180,{0.7 * share:.2f})"
    return f'<td style="background:{colour}">{f"{count:,}" if count else ""}</td>'


def _example(example: Mapping[str, Any]) -> str:
    """Return an example with its classes: a text, or a picture if there is one."""
    probability = example.get("probability")
    chance = f", {probability:.1%}" if is_number(probability) else ""
    told = f"{example.get('true')}, taken for {example.get('predicted')}{chance}"
    if isinstance(text := example.get("text"), str):
        return f"<figure class=text><pre>{escape(text)}</pre>{escape(told)}</figure>"
    picture = example.get("image")
    shown = ""
    if isinstance(picture, str) and picture.isascii():
        shown = f'<img alt="" src="{_PICTURE}{escape(picture)}">'
    return f"<figure>{shown}<figcaption>{escape(told)}</figcaption></figure>"
