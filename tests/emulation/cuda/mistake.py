# SPDX-License-Identifier: MIT
"""A mistake that is planted in a kernel, and what the harness must say to it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Mistake"]


class Mistake(NamedTuple):
    """A change of a kernel's text, each `right` in it to `wrong`.

    Attributes:
        source: the file that has the text, without .cu or .cuh.
        right: the text.
        wrong: what it is changed to.
        case: the op, or the case of it, that must fail.
        said: a pattern of what its line must say.
        kernel: the file that includes `source`, where that is a header.
        fast: planted in each run; the others by the slow tests.
    """

    source: str
    right: str
    wrong: str
    case: str
    said: str
    kernel: str = ""
    fast: bool = False
