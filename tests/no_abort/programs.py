# SPDX-License-Identifier: MIT
"""Programs of their own, for what would end the tests if it went wrong."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = """
import multiprocessing, os, signal, sys, threading, time, warnings
import numpy as np
import pyggml as pg
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, Python 3.12
pg.set_threads(2)
big = np.random.default_rng(0).random((96, 96), np.float32)

def product():
    a = pg.tensor(big)
    return (a @ a).numpy()
"""


def script(text: str, limit_s: float = 900) -> str:
    """Run a program of its own; what it prints, when it ends well."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE + text],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout
