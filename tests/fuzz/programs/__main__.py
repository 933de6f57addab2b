# SPDX-License-Identifier: MIT
"""Random programs by their seeds: `python -m tests.fuzz.programs COUNT [FIRST]`.

A program that fails is shrunk and printed as a script. The last line on stdout is a JSON object of
counts; exit status 1 means that a program failed. `--device` runs them on another device than
the CPU; GGML_BACKEND_PATH names a library that adds one.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import warnings
from collections.abc import Callable

import pyggml as pg

from .draw import Program, draw, shrunk
from .runs import check, counts

LIMIT_S = 300


def failure(program: Program) -> str:
    """Return the message of what goes wrong, "" if nothing does."""
    try:
        check(program)
    except Exception as error:  # noqa: BLE001 - any is a finding
        return f"{type(error).__name__}: {error}"
    return ""


def alike(message: str) -> Callable[[Program], bool]:
    """Return a function that says whether a program fails in the same way."""
    key = message.split(":")[:2]
    return lambda program: failure(program).split(":")[:2] == key


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.programs", description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--device", default="cpu", help="where they run (default: cpu)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    pg.set_threads(min(2, len(os.sched_getaffinity(0))))  # two on one core wait for each other
    pg.set_default_device(args.device)
    failed = 0
    for seed in range(args.first, args.first + args.count):
        # The seed is known when the process dies.
        print(f"seed {seed}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        program = draw(seed)
        message = failure(program)
        faulthandler.cancel_dump_traceback_later()
        if message:
            failed += 1
            small, tried = shrunk(program, alike(message))
            print(f"# seed {seed}: {message}\n# shrunk in {tried} tries:\n{small.script()}")
    print(json.dumps({**counts, "failed": failed}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
