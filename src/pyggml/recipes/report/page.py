# SPDX-License-Identifier: MIT
"""The parts of a page: its style, light and dark, texts, tables and pictures."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ...errors import printable

__all__ = ["duration", "escape", "is_number", "number", "page", "samples", "table"]


@cache
def _style() -> str:
    """Return the style without what a reader alone needs."""
    text = (files(__package__) / "style.css").read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", "", text)


def escape(text: str) -> str:
    """Return a text of unknown origin as HTML.

    Args:
        text: the text.
    """
    return html.escape(printable(text, "\n\t"))


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and no truth value.

    Args:
        value: the value.
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number(value: Any) -> str:
    """Return a value as a cell shows it.

    Args:
        value: of a record.
    """
    if value is None:
        return "–"
    if isinstance(value, list) and len(value) > 3 and value.count(value[0]) == len(value):
        return f"{len(value):,} × {number(value[0])}"
    if not is_number(value):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def duration(seconds: float) -> str:
    """Return a time in words.

    Args:
        seconds: the time.

    Example:
        >>> duration(12.34), duration(67.2), duration(3723)
        ('12.3 s', '1 min 7 s', '1 h 2 min 3 s')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, rest = divmod(round(seconds), 3600)
    return f"{f'{hours} h ' if hours else ''}{rest // 60} min {rest % 60} s"


def table(rows: Mapping[str, Any], heads: Sequence[str] = (), *, many: bool = False) -> str:
    """Return rows as a table.

    Args:
        rows: by name, a value, or with `heads` a value for each.
        heads: titles of the columns of values.
        many: rows that stand in several columns where the page is wide.
    """
    parts = []
    if heads:
        cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
        parts.append(f"<tr><th></th>{cells}</tr>")
    for name, value in rows.items():
        values = value if heads else (value,)
        cells = "".join(f"<td>{escape(number(each))}</td>" for each in values)
        parts.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    kind = ' class="two"' if heads else ""
    text = f"<table{kind}>{''.join(parts)}</table>"
    return f'<div class="many">{text}</div>' if many else text


def samples(found: Sequence[Mapping[str, Any]]) -> str:
    """Return samples that open and close, the last one open.

    Args:
        found: of `samples.jsonl`.
    """
    parts = []
    for each in found:
        shown = " open" if each is found[-1] else ""
        text = escape(str(each.get("text", "")))
        parts.append(
            f"<details{shown}><summary>step {each['step']:,}</summary><pre>{text}</pre></details>"
        )
    return "".join(parts)


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page.

    Args:
        title: of the page.
        parts: what follows it.
    """
    return "".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_style()}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</body></html>\n",
        ]
    )
