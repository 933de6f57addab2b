# SPDX-License-Identifier: MIT
"""Rounds of training steps, and what comes of them."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from .contenders import Contender, interleave
from .contract import OK
from .model import Spec, write_weights

# How far losses may be apart: f32 adds in other orders; bf16 has 8 bits, and each library casts
# at other places.
TOLERANCE = {"f32": 1e-3, "bf16": 2e-2}


class Weights:
    """First weights in a temporary folder: one set for each shape of model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[int, ...], Path] = {}

    def of(self, spec: Spec) -> Spec:
        """The spec with its weights written."""
        if spec.shape not in self._made:
            path = self._folder / str(len(self._made))
            path.mkdir()
            write_weights(spec, path)
            self._made[spec.shape] = path
        return replace(spec, weights=str(self._made[spec.shape]))


@contextmanager
def weights() -> Iterator[Weights]:
    """A place for first weights, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="pyggml-bench-") as folder:
        yield Weights(Path(folder))


def race(
    contenders: Sequence[Contender], specs: Sequence[Spec], warmup: int, turns: Sequence[int]
) -> list[dict[str, Any]]:
    """Warm everyone up, run the rounds, and give one result for each contender.

    Args:
        contenders: who; those that are out get a result that says so.
        specs: what each trains.
        warmup: steps before, not timed.
        turns: timed steps of each round.
    """
    orders = [{"do": "run", "steps": n} for n in (warmup, *turns)]
    rounds = interleave(contenders, orders)
    return [
        result(contender, spec, answers)
        for contender, spec, answers in zip(contenders, specs, rounds, strict=True)
    ]


def result(contender: Contender, spec: Spec, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """One contender's numbers, or why there are none."""
    found: dict[str, Any] = {
        "peer": contender.name,
        "dtype": spec.dtype,
        "threads": spec.threads,
        "status": contender.status,
    }
    if contender.status != OK:
        return found
    seconds = [s for answer in answers[1:] for s in answer["seconds"]]
    cpu = [s for answer in answers[1:] for s in answer["cpu"]]
    outside = [share for answer in answers[1:] for share in answer["outside"]]
    losses = [loss for answer in answers for loss in answer["losses"]]
    step_s = statistics.median(seconds)
    peak = answers[-1]["rss_mib"]
    return {
        **found,
        "tok_s": round(spec.tokens / step_s, 3),
        "step_s": step_s,
        "step_min_s": min(seconds),
        "cpu_s": statistics.median(cpu),
        **({"outside_share": statistics.median(outside)} if outside else {}),
        "gflop_s": round(spec.step_flops / step_s / 1e9, 3),
        "rss_mib": None if peak is None else round(peak, 1),
        "first": losses[0],
        "last": losses[-1],
        "steps": len(seconds),
        "tokens": spec.tokens,
        "checkpointing": spec.checkpointing,
        "fused_update": spec.fused_update,
    }


def compare(results: Sequence[dict[str, Any]], dtype: str) -> tuple[bool, str]:
    """Hold every first and last loss against those of the first contender that ran.

    Returns:
        Whether all agree, and a sentence that says how well.
    """
    ran = [r for r in results if r["status"] == OK]
    if len(ran) < 2:
        return True, ""
    allowed = TOLERANCE[dtype]
    apart = {}
    for key in ("first", "last"):
        base = ran[0][key]
        apart[key] = max(abs(r[key] - base) / abs(base) for r in ran[1:])
    # Python's max may pass over a NaN.
    finite = all(math.isfinite(r[key]) for r in ran for key in apart)
    agree = finite and all(value <= allowed for value in apart.values())
    verdict = "losses agree" if agree else "LOSSES DIFFER"
    return agree, (
        f"{verdict}: first within {apart['first']:.1e}, last within {apart['last']:.1e} "
        f"of {ran[0]['peer']}'s (allowed {allowed:.0e})"
    )
