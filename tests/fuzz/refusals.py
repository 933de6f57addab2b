# SPDX-License-Identifier: MIT
"""Tells errors that pyggml raises from those that escape from inside Python, NumPy or cffi."""

from __future__ import annotations

import dis
import re
from pathlib import Path

import pyggml as pg

_PACKAGE = Path(pg.__file__).parent
_TESTS = (Path(__file__).parent, _PACKAGE / "testing")
_RAISE = dis.opmap["RAISE_VARARGS"]

# Texts of a library that name the function and the cause.
GOOD_ENOUGH = {
    r"; it takes \(": "Python's, of a call that does not fit a signature, which pyggml adds",
    r"takes no arguments$|takes \d+ positional": "Python's, of a function that was given to pyggml",
    r"^\[Errno \d+\] .+: '": "the system's, which names the file",
    r"^Protocols cannot be instantiated": "Python's, of a type that is an interface",
}


def accident(error: BaseException) -> str | None:
    """Return the line of pyggml below which an error came up by accident, or None.

    An error is meant where a `raise` statement of pyggml made it. One whose innermost frame is
    in the fuzz, or in the tables of `pyggml.testing`, is no refusal of pyggml's, but Python's, of a
    call that leaves out an argument or of a reference that is computed there. Nor is one without a
    frame of pyggml's: it came up where the fuzz draws what it passes.
    """
    at = error.__traceback__
    place = None
    while at is not None:
        file = Path(at.tb_frame.f_code.co_filename)
        is_own = _PACKAGE in file.parents
        if is_own:
            place = f"{file.relative_to(_PACKAGE)}:{at.tb_lineno}"
        if at.tb_next is None:
            is_raise = at.tb_frame.f_code.co_code[at.tb_lasti] == _RAISE
            if file.parent in _TESTS or (is_own and is_raise):
                return None
        at = at.tb_next
    if any(re.search(pattern, str(error)) for pattern in GOOD_ENOUGH):
        return None
    return place
