# SPDX-License-Identifier: MIT
"""Commands that `mpiexec` starts several times: the ranks join, and the first one prints."""

from __future__ import annotations

import os
import sys

from ..distributed import init, is_launched
from ..errors import DistributedError

__all__ = ["join"]


def join() -> None:
    """Join the ranks of a job; those but the first print nothing, except that they failed.

    Raises:
        SystemExit: they cannot work together.
    """
    if not is_launched():
        return
    try:
        group = init()
    except DistributedError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    if not group.is_first:
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
