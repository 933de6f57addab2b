# SPDX-License-Identifier: MIT
"""Output that may be lost without an end of the work that it tells of."""

from __future__ import annotations

from typing import Any

__all__ = ["LastingStream"]


class LastingStream:
    """A stream that loses what cannot be written, such as to a terminal that is gone.

    Args:
        stream: is written to.

    Attributes:
        lost: why something was lost first; None while nothing was.
    """

    def __init__(self, stream: Any):
        self._stream = stream
        self.lost: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Write what is kept back."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.lost = self.lost or error.strerror or type(error).__name__
