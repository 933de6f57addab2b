# SPDX-License-Identifier: MIT
"""A small process beside a rank that is alone on its host; it tells of the rank's death."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

__all__ = ["Witness"]

_END = "\0end"
# mpiexec ends it with the rank; SIGINT is the rank's own business.
_PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
doing = ""
for line in sys.stdin:
    doing = line.rstrip("\\n")
if doing != "\\0end":
    place = ", " + doing if doing else ""
    print(f"{sys.argv[1]} on {sys.argv[2]}{place}: the process died", file=sys.stderr, flush=True)
"""


class Witness:
    """Starts a process that waits for the end of this one, and prints where this one was.

    Args:
        name: of the rank.
        host: its host.
    """

    def __init__(self, name: str, host: str):
        # Without the standard library's site and its environment, it starts in no time.
        self._process: subprocess.Popen[str] | None = None
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, name, host]
        with suppress(OSError):  # a rank that may start no process is trained all the same
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def tell(self, doing: str) -> None:
        """Note what the rank is at.

        Args:
            doing: one line.
        """
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):
                self._process.stdin.write(doing.replace("\n", " ") + "\n")
                self._process.stdin.flush()

    def end(self) -> None:
        """End the process, as the rank ends well."""
        self.tell(_END)
        process, self._process = self._process, None
        if process is not None:
            with suppress(OSError, ValueError):
                process.communicate()
