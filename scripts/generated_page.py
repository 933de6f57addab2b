# SPDX-License-Identifier: MIT
"""The command line of the scripts that generate a page of the docs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(
    path: Path, page: Callable[[], str], recipe: str, about: str | None, argv: list[str] | None
) -> int:
    """Write a page, or with --check compare it; return the exit status.

    Args:
        path: of the page.
        page: returns its text.
        recipe: the recipe of `just` that writes the page.
        about: the script in words.
        argv: the arguments of the command line.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(argv)
    text = page()
    if not options.check:
        path.write_text(text, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != text:
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        print(f"{shown} is stale; run `just {recipe}`", file=sys.stderr)
        return 1
    return 0
