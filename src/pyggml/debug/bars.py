# SPDX-License-Identifier: MIT
"""Bars of progress: in a terminal, in a notebook, and plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TextIO, TypeVar, cast

from ..checks import flag, is_iterable
from ..errors import printable
from .lasting import LastingStream

__all__ = ["Bar", "NotebookBar", "PlainBar", "TerminalBar", "make_bar", "progress"]

_T = TypeVar("_T")
_EVERY_S = 0.2
_PLAIN_S = 10.0
_LINES = 20


class Bar:
    """The base of bars, which itself shows nothing.

    Args:
        total: items in all, or None where that is unknown.
        done: items done before.
        name: of the items.

    Attributes:
        is_live: True if it moves; False if it only writes lines.
        text: beside the bar.
    """

    is_live = True

    def __init__(self, total: int | None, done: int = 0, name: str = "step"):
        self.total, self.done, self.name = total, done, name
        self.text = ""

    def update(self, done: int, text: str = "") -> None:
        """Show how many items are done, and a text beside it."""
        self.done, self.text = done, text

    def note(self, line: str) -> None:
        """Show a line."""

    def stop(self) -> None:
        """Show the last state, and leave it there."""

    @property
    def count(self) -> str:
        """The items done, of how many."""
        return f"{self.done}" if self.total is None else f"{self.done}/{self.total}"


class PlainBar(Bar):
    """Writes lines only, to a file or a pipe.

    Args:
        total: items in all, or None.
        done: items done before.
        name: of the items.
        file: what is written to; None is stderr.
    """

    is_live = False

    def __init__(
        self, total: int | None, done: int = 0, name: str = "step", file: TextIO | None = None
    ):
        super().__init__(total, done, name)
        self._file = file

    def note(self, line: str) -> None:
        """Write a line; where it cannot be written, the work goes on."""
        file = self._file or sys.stderr
        if file is not None:  # or print takes stdout
            with suppress(OSError):
                print(printable(line, "\n\t"), file=file, flush=True)


class TerminalBar(Bar):
    """Shows a bar of rich, and lines above it.

    Args:
        total: items in all, or None.
        done: items done before.
        name: of the items.
        console: of rich; None is one on stderr.
    """

    def __init__(self, total: int | None, done: int = 0, name: str = "step", console: Any = None):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        super().__init__(total, done, name)
        self._bar = Progress(
            TextColumn(name, style="bold", markup=False),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}", markup=False),
            console=console
            or Console(file=cast(TextIO, LastingStream(sys.stderr)), highlight=False),
            refresh_per_second=5,
        )
        self._task = self._bar.add_task("", total=total, completed=done)
        self._bar.start()

    def update(self, done: int, text: str = "") -> None:
        """Move the bar."""
        super().update(done, text)
        self._bar.update(self._task, completed=done, description=printable(text))

    def note(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(printable(line, "\n\t"), markup=False, soft_wrap=True)

    def stop(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


class NotebookBar(Bar):
    """Shows a bar in one output of a notebook's cell, which is replaced as it moves.

    Args:
        total: items in all, or None.
        done: items done before.
        name: of the items.
    """

    def __init__(self, total: int | None, done: int = 0, name: str = "step"):
        display = import_module("IPython.display").display

        super().__init__(total, done, name)
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._shown = time.monotonic()
        self._display: Any = display(self, display_id=True)

    def update(self, done: int, text: str = "") -> None:
        """Move the bar, a few times a second at most."""
        super().update(done, text)
        if time.monotonic() - self._shown >= _EVERY_S:
            self._show()

    def note(self, line: str) -> None:
        """Add a line below the bar, where the latest are kept."""
        self._lines.append(line)
        self._show()

    def stop(self) -> None:
        """Show the last state."""
        self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        self._display.update(self)

    def __repr__(self) -> str:
        return "\n".join([f"{self.name} {self.count}  {self.text}".rstrip(), *self._lines])

    def _repr_html_(self) -> str:
        """Return the bar and its lines for a notebook."""
        from html import escape

        total = "" if self.total is None else f" max='{max(self.total, 1)}' value='{self.done}'"
        style = "font-family:monospace;white-space:pre-wrap;word-break:normal"
        hanging = "padding-left:2ch;text-indent:-2ch"  # a line that is too long goes on within it
        text = "".join(f"<div style='{hanging}'>{escape(line)}</div>" for line in self._lines)
        lines = f"<div style='{style}'>{text}</div>" if self._lines else ""
        return (
            f"<div><code>{escape(self.name)} {self.count}</code> <progress{total}></progress> "
            f"<code>{escape(self.text)}</code>{lines}</div>"
        )


def _is_notebook() -> bool:
    """Return whether a notebook's kernel runs this."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def make_bar(total: int | None, done: int = 0, name: str = "step") -> Bar:
    """Return the bar for where this runs.

    In a notebook it is a `NotebookBar`; in a terminal a `TerminalBar`, where rich is installed;
    else a `PlainBar`.

    Args:
        total: items in all, or None where that is unknown.
        done: items done before.
        name: of the items.

    Example:
        >>> make_bar(10).count
        '0/10'
    """
    if _is_notebook():
        return NotebookBar(total, done, name)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if is_terminal and find_spec("rich") is not None:
        return TerminalBar(total, done, name)
    return PlainBar(total, done, name)


def progress(items: Iterable[_T], name: str = "step", *, show: bool = True) -> Iterator[_T]:
    """Return an iterator over items that shows how far it is, for loops of one's own.

    The bar is in a terminal (on stderr) or in a notebook; without either, or without rich, a line
    is written every ten seconds and at the end.

    Args:
        items: a loader, or anything else that is iterable.
        name: of the items.
        show: False shows nothing.

    Returns:
        The items.

    Raises:
        TypeError: the items are not iterable, or another argument is of another kind.

    Example:
        >>> [each for each in progress([1, 2, 3], show=False)]
        [1, 2, 3]
    """
    if not is_iterable(items):
        raise TypeError(f"progress: items must be iterable; got {type(items).__name__}")
    if not isinstance(name, str):
        raise TypeError(f"progress: name must be a text; got {type(name).__name__}")
    if not flag("progress", "show", show):
        return iter(items)
    return _shown(items, name)


def _shown(items: Iterable[_T], name: str) -> Iterator[_T]:
    """Yield the items, and move a bar."""
    total = len(items) if isinstance(items, Sized) else None
    bar, began = make_bar(total, 0, name), time.monotonic()
    told, done = began, 0
    try:
        for item in items:
            yield item
            done += 1
            now = time.monotonic()
            bar.update(done, f"{done / max(now - began, 1e-9):,.1f}/s")
            if not bar.is_live and now - told >= _PLAIN_S:
                told = now
                bar.note(f"{name} {bar.count}  {bar.text}")
    finally:
        if not bar.is_live:
            bar.note(f"{name} {bar.count}  {bar.text}".rstrip())
        bar.stop()
