# SPDX-License-Identifier: MIT
"""Figures of matplotlib in one style, as PNG files and as SVG elements of a page."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...backend.sizes import format_bytes
from ...backend.undivided import Undivided
from ...errors import OutOfMemoryError, printable
from ...io import atomic_path

__all__ = [
    "COLOURS",
    "FEW",
    "FILE_SIZE",
    "PAGE_SIZE",
    "TEXT_COLOUR",
    "drawable",
    "families",
    "need_matplotlib",
    "new_axes",
    "place_of",
    "save",
    "to_svg",
]

TEXT_COLOUR = "#444444"
COLOURS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#8c564b", "#17becf")
# So few values show their trend without an average over them.
FEW = 50
# Bytes that a picture takes at most, and then some; none is written to.
_DRAWING = 64 << 20
# Inches: of a file, and of a picture in a page, as wide as a phone.
FILE_SIZE, PAGE_SIZE = (8.0, 4.5), (5.0, 2.9)
_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#bbbbbb",
    "axes.grid": True,
    "axes.labelcolor": TEXT_COLOUR,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": TEXT_COLOUR,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.xmargin": 0.02,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "legend.labelcolor": TEXT_COLOUR,
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name is no formula, whatever signs it has
    "xtick.color": TEXT_COLOUR,
    "ytick.color": TEXT_COLOUR,
}
# matplotlib's own font has Latin, Greek and Cyrillic letters; the others those of East Asia, under
# the names that Linux, macOS and Windows have them by.
_OWN = "DejaVu Sans"
_MORE = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "Heiti SC", "Hiragino Sans",
    "Microsoft YaHei", "SimHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS",
)  # fmt: skip


def need_matplotlib() -> Any:
    """Return matplotlib's class of figures, which needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        cure = 'pip install "pyggml[cli]"'
        raise ImportError(f"plot: needs the package matplotlib; {cure}") from error
    return Figure


@contextmanager
def new_axes(size: tuple[float, float], title: str = "", x: str = "", y: str = "") -> Iterator[Any]:
    """Axes in our style, to be drawn and written in the block; needs matplotlib."""
    Figure = need_matplotlib()
    from matplotlib import rc_context

    try:  # or OpenBLAS, which inverts matrices for it, ends the process where it has no memory
        np.empty(_DRAWING, np.uint8)
    except MemoryError as error:
        raise OutOfMemoryError(
            f"plot: a picture takes up to {format_bytes(_DRAWING)}, which cannot be allocated:"
            " raise the limit of memory (ulimit -v)"
        ) from error
    title = printable(title, "\n")
    # The same picture has the same bytes, and its names differ from another picture's.
    style: Any = {**_STYLE, "font.family": families(), "svg.hashsalt": title or "pyggml"}
    # Where a handler raises in a call from matplotlib's C++, that makes another error of it.
    with Undivided(), rc_context(style), warnings.catch_warnings():
        # A letter that no font has is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        axes = Figure(figsize=size, dpi=120, layout="constrained").add_subplot()
        axes.set(title=title, xlabel=printable(x), ylabel=printable(y))
        yield axes


def save(axes: Any, path: Path) -> None:
    """Write a picture as PNG."""
    with atomic_path(path) as temporary:
        axes.figure.savefig(temporary, format="png")


def to_svg(axes: Any) -> str:
    """A picture as an element of a page; it takes the page's font and width."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    axes.figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    # Nothing refers to the names of groups, which every picture has again.
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(<svg [^>]*?)width="[^"]*"', r"\1", text)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text)
    return re.sub(r"(font(?:-family)?: (?:[\d.]+px )?)'[^;\"]*", r"\1sans-serif", text).strip()


def families() -> list[str]:
    """The fonts to look for a letter in, in this order; needs matplotlib."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [_OWN, *(name for name in _MORE if name in installed)]


def drawable(names: Sequence[Any]) -> list[str]:
    """Return names that the fonts can draw; a name with another letter becomes its number."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known: set[int] = set()
    for family in families():
        known |= set(get_font(findfont(FontProperties(family=family))).get_charmap())
    texts = [str(name) for name in names]
    return [
        text if all(ord(letter) in known for letter in text) else f"#{number}"
        for number, text in enumerate(texts)
    ]


def place_of(who: str, path: str | Path) -> Path:
    """Return a path; raise unless its folder can be written."""
    path = checks.path(who, "path", path)
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
