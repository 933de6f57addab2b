# SPDX-License-Identifier: MIT
"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["html_table"]


def html_table(
    rows: Iterable[Sequence[object]], head: Sequence[str] = (), caption: str = ""
) -> str:
    """Return a table as HTML; the texts in it are escaped.

    Args:
        rows: the cells of each row; spaces in them are kept.
        head: names of the columns; none leaves them out.
        caption: shown above the table.

    Example:
        >>> html_table([("a", 1)], caption="b")[:34]
        '<table><caption>b</caption><tr><td'
    """
    from html import escape

    parts = [f"<caption>{escape(caption)}</caption>"] if caption else []
    if head:
        parts.append(f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>")
    for row in rows:
        cells = (f"<td style='white-space:pre'>{escape(str(cell))}</td>" for cell in row)
        parts.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table>{''.join(parts)}</table>"
