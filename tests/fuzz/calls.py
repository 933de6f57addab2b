# SPDX-License-Identifier: MIT
"""Random calls of all that is public: run as `python calls.py COUNT SEED LOG`.

Each call is written to LOG before it is made, so that the parent knows what killed the process.
The last line on stdout is a JSON object of counts, and of the errors that escaped by accident;
exit status 1 means a wrong number, an exception of another kind than those allowed, or a call
beyond its time. A COUNT of 0 lists what is drawn.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

import adapter_calls
import module_calls
import numpy as np
import op_calls
import owners
import package_calls
import tensor_calls
from draw import Draw
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from refusals import accident

import pyggml as pg

# What a wrong call may raise; anything else is a check that is missing.
REFUSALS = (
    *(ValueError, TypeError, IndexError, KeyError, OverflowError, FloatingPointError),
    *(pg.BackendError, pg.GradientError, pg.AnomalyError, pg.RecordingError),
    *(pg.DistributedError, AttributeError),
    *(OSError, ImportError),  # a file that is not there, a package that is left out
)
LIMIT_S = 60
CALLS = (
    *[op_calls.table_call] * 8,
    *[op_calls.signature_call] * 8,
    *tensor_calls.CALLS,
    *module_calls.CALLS,
    *adapter_calls.CALLS,
    *[package_calls.package_call] * 8,
)
counts: Counter[str] = Counter()
refused: Counter[str] = Counter()
accidents: dict[str, str] = {}


def one(source: random.Random, log: Path) -> None:
    """Draw a call, make it, compare it, and differentiate it."""
    d = Draw(source)
    kind = d.pick(*CALLS)
    counts["calls"] += 1
    log.write_text(f"drawing {kind.__name__}\n")
    text, run, check = kind(d)
    log.write_text(text + "\n")
    result = run()
    got = result.numpy().astype(np.float64)
    counts["accepted"] += 1
    verdict = check(got)
    if verdict is not None:
        counts["compared"] += 1
        assert verdict, f"{text}: {got}"
    if result.requires_grad and not result.is_stored:
        log.write_text(text + ": backward\n")
        counts["backward"] += 1
        total = result if result.dtype.name == "f32" else result.astype("f32")
        total.sum().backward()
        counts["gradients"] += 1


def main(count: int, start: int, log: Path) -> int:
    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=True))
    def run(source: random.Random) -> None:
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        try:
            one(source, log)
        except AssertionError:
            raise
        except Exception as error:
            place = accident(error)
            if place is not None:
                told = f"{type(error).__name__}: {error} @ {place}, of {log.read_text():.300}"
                accidents.setdefault(f"{type(error).__name__} {place}", told)
            elif not isinstance(error, REFUSALS):
                raise
            counts["refused"] += 1
            refused[type(error).__name__] += 1
        faulthandler.cancel_dump_traceback_later()

    warnings.simplefilter("ignore")
    # A draw may ask for gigabytes: they count as too much.
    importlib.import_module("pyggml.backend.device").available_bytes = lambda: 2**28
    pg.set_threads(2)
    try:
        run()
    finally:
        print(json.dumps({**counts, "by": refused, "accidents": [*accidents.values()]}), flush=True)
    return 0


def listing() -> dict[str, list[str]]:
    modules = module_calls.drawn()
    return {
        "ops": op_calls.drawn(),
        "Tensor": tensor_calls.drawn(),
        "top": sorted(tensor_calls.TOP | tensor_calls.NOT_CALLED),
        "modules": modules,
        "offered": module_calls.offered(),
        "untold": owners.untold(),
        "wrongly_made": owners.wrongly_made(),
    }


if __name__ == "__main__":
    if int(sys.argv[1]) == 0:
        print(json.dumps(listing()))
        sys.exit(0)
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
