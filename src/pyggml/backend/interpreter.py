# SPDX-License-Identifier: MIT
"""Raise at import where the interpreter is of a kind that pyggml cannot run in."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["check_interpreter"]


def _is_subinterpreter() -> bool:
    """Return True in an interpreter that is not the process's first; False where none can tell."""
    try:
        here = ctypes.pythonapi.PyInterpreterState_Get
        main = ctypes.pythonapi.PyInterpreterState_Main
    except AttributeError:  # another Python than CPython
        return False
    here.restype = main.restype = ctypes.c_void_p
    return bool(here() != main())


def check_interpreter() -> None:
    """Raise for free-threaded Python and for a subinterpreter.

    Free-threaded Python lacks the stable ABI of the compiled module, and much in this package
    counts on the lock. ggml's log and its message before an abort are of the process: they would
    call into whichever interpreter imported the package last, and a process that ends before its
    subinterpreters do would wait for ever.

    Raises:
        ImportError: it is one of them.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "pyggml: the interpreter must have the global interpreter lock; got free-threaded"
            f" Python {sys.version_info.major}.{sys.version_info.minor}; use the ordinary one"
            " (python3, not python3t), 3.10 or later"
        )
    if _is_subinterpreter():
        raise ImportError(
            "pyggml: the interpreter must be the main one of its process; got a subinterpreter;"
            " use a process (multiprocessing with the spawn start method), and under mod_wsgi"
            " WSGIApplicationGroup %{GLOBAL}"
        )
