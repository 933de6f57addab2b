# SPDX-License-Identifier: MIT
"""Run Python with arguments as its own (`-c CODE`, `-m MODULE` or a file), then look for leaks.

CPython gives not all back when it ends, so LeakSanitizer's search at the exit finds what the
interpreter itself lost. This one runs before, while the modules still reach what they hold: what
is found then, nothing can free.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import runpy
import sys


def search() -> None:
    """Have LeakSanitizer report what cannot be reached any more."""
    gc.collect()
    ctypes.CDLL(None).__lsan_do_recoverable_leak_check()


def main(arguments: list[str]) -> None:
    """Run what the arguments say; the search follows at the exit."""
    # Registered first, so that what the run itself registers ends before.
    atexit.register(search)
    kind, *rest = arguments
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        sys.argv = list(rest)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
