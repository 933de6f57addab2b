# SPDX-License-Identifier: MIT
"""The parts of a page: its style, light and dark, texts, tables and pictures."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import printable
from .figure import COLOURS, TEXT_COLOUR

__all__ = ["escape", "is_number", "number", "page", "samples", "table", "themed"]

# What matplotlib draws with, and the page's own names of it.
_NAMES = {
    TEXT_COLOUR: "text",
    "#ffffff": "picture",
    "#bbbbbb": "edge",
    "#e6e6e6": "line",
    **{colour: f"curve{i}" for i, colour in enumerate(COLOURS)},
}
_DARK = {
    "text": "#c9c9c9",
    "picture": "#1c1c1e",
    "edge": "#666666",
    "line": "#333336",
    **{
        f"curve{i}": colour
        for i, colour in enumerate(
            ("#6cb6ff", "#ff9a4d", "#6bcf7f", "#c5a3ff", "#d6a38f", "#5fd7e8")
        )
    },
}


def _variables(colours: Mapping[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


_LIGHT = {name: colour for colour, name in _NAMES.items()}
_STYLE = f"""
:root{{color-scheme:light dark;--ink:#222;--paper:#fff;--faint:#666;--box:#fafafa;
{_variables(_LIGHT)}}}
@media(prefers-color-scheme:dark){{:root{{--ink:#e6e6e6;--paper:#121214;--faint:#9a9a9f;
--box:#1c1c1e;{_variables(_DARK)}}}}}
@media print{{:root{{--ink:#222;--paper:#fff;--faint:#666;--box:#fafafa;{_variables(_LIGHT)}}}}}
body{{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;
color:var(--ink);background:var(--paper)}}
h1{{font-size:1.5rem}}h2{{font-size:1.15rem;margin-top:2rem}}h1,td,th{{overflow-wrap:anywhere}}
.curves{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:1rem}}
svg{{width:100%;height:auto;background:var(--picture);border:1px solid var(--line);
border-radius:6px}}
svg *{{stroke-linejoin:round;stroke-linecap:butt}}
table{{border-collapse:collapse}}td,th{{padding:.1rem 1rem .1rem 0;vertical-align:top;
text-align:left;font-weight:inherit}}
td:first-child,th{{color:var(--faint)}}td:first-child{{min-width:7rem}}
pre{{background:var(--box);border:1px solid var(--line);border-radius:6px;padding:.6rem;
white-space:pre-wrap;overflow-wrap:anywhere}}
details{{margin:.4rem 0}}.pair{{display:grid;gap:1rem;
grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr))}}
.matrix{{overflow-x:auto}}.matrix td,.matrix th{{padding:.15rem .45rem;text-align:right;
min-width:1.4rem;white-space:nowrap}}
.images{{display:flex;flex-wrap:wrap;gap:1rem}}figure{{margin:0;width:7rem;font-size:.85rem}}
figure img{{width:100%;image-rendering:pixelated;border:1px solid var(--line);border-radius:4px}}
"""


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
    if not is_number(value):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def table(rows: Mapping[str, Any], heads: Sequence[str] = ()) -> str:
    """Return rows as a table.

    Args:
        rows: by name, a value, or with `heads` a value for each.
        heads: titles of the columns of values.
    """
    parts = []
    if heads:
        cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
        parts.append(f"<tr><th></th>{cells}</tr>")
    for name, value in rows.items():
        values = value if heads else (value,)
        cells = "".join(f"<td>{escape(number(each))}</td>" for each in values)
        parts.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    return f"<table>{''.join(parts)}</table>"


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


def themed(svg: str) -> str:
    """Return a picture whose colours are those of the page, light or dark.

    Args:
        svg: of `curves_svg` or `loss_svg`.
    """
    for colour, name in _NAMES.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg


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
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</body></html>\n",
        ]
    )
