# SPDX-License-Identifier: MIT
"""Fonts of pictures: which there are for which letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["drawable", "families"]

# matplotlib's own font has Latin, Greek and Cyrillic letters; the others those of East Asia, under
# the names that Linux, macOS and Windows have them by.
_OWN = "DejaVu Sans"
_MORE = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "Heiti SC", "Hiragino Sans",
    "Microsoft YaHei", "SimHei", "Yu Gothic", "Malgun Gothic", "Arial Unicode MS",
)  # fmt: skip


def families() -> list[str]:
    """The fonts to look for a letter in, in this order; needs matplotlib."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [_OWN, *(name for name in _MORE if name in installed)]


def drawable(names: Sequence[Any]) -> list[str]:
    """Names as a picture can have them: one with a letter that no font has is its number.

    Args:
        names: of classes.

    Example:
        >>> drawable(["cat", "chat é"])
        ['cat', 'chat é']
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known: set[int] = set()
    for family in families():
        known |= set(get_font(findfont(FontProperties(family=family))).get_charmap())
    texts = [str(name) for name in names]
    return [
        text if all(ord(letter) in known for letter in text) else f"#{number}"
        for number, text in enumerate(texts)
    ]
