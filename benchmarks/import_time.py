# SPDX-License-Identifier: MIT
"""How long an import takes in a fresh process, and what lies before pyggml's first step."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from typing import Any

from harness import options, report, training
from harness.contenders import Field
from harness.contract import NOT_INSTALLED, OK
from harness.model import Spec

PEERS = ("pyggml", "numpy", "torch", "jax")

_IMPORT = """
import sys, time
try:
    began = time.perf_counter()
    import {peer}
    print(time.perf_counter() - began)
except ModuleNotFoundError as error:
    if error.name != "{peer}":
        raise
    print("missing")
"""


def fresh(code: str) -> str:
    """What a new process of this Python prints."""
    # Elsewhere than in a source tree, whose folder named pyggml Python would take.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
        )
    return done.stdout.strip()


def imports(peers: list[str], rounds: int) -> list[dict[str, Any]]:
    """Median and best seconds of each import; the first round only fills the file cache."""
    times: dict[str, list[float]] = {peer: [] for peer in peers}
    missing: set[str] = set()
    for i in range(rounds + 1):
        for peer in peers:
            if peer in missing:
                continue
            said = fresh(_IMPORT.format(peer=peer))
            if said == "missing":
                missing.add(peer)
            elif i:
                times[peer].append(float(said))
    found = []
    for peer, seconds in times.items():
        result: dict[str, Any] = {"peer": peer, "status": OK if seconds else NOT_INSTALLED}
        if seconds:
            result.update(import_s=statistics.median(seconds), import_min_s=min(seconds))
        found.append(result)
    return found


def start(spec: Spec, rounds: int) -> dict[str, float]:
    """Median seconds of what lies before a step and of steps, each round in a fresh process."""
    found: dict[str, list[float]] = {}
    with training.weights() as weights:
        spec = weights.of(spec)
        for _ in range(rounds):
            with Field() as field:
                contender = field.add("pyggml", "step", spec.threads, spec=spec.to_dict())
                steps = contender.ask(do="run", steps=2)
            if steps is None:
                raise RuntimeError(f"start: pyggml's step must run; it {contender.status}")
            first, following = steps["seconds"]
            took = contender.started["took"]
            round_s = {**took, "first_step_s": first, "next_step_s": following}
            round_s["start_s"] = took["optimizer_s"] + took["plan_s"]
            for key, value in round_s.items():
                found.setdefault(key, []).append(value)
    return {key: statistics.median(values) for key, values in found.items()}


def main() -> int:
    parser = options.parser(__doc__ or "")
    options.add_model(parser, Spec())
    options.add_threads(parser)
    parser.add_argument("--rounds", type=options.positive, default=7, metavar="N", help="(7)")
    parser.add_argument(
        "--start-rounds", type=options.positive, default=3, metavar="N", help="of the step (3)"
    )
    parser.add_argument("--no-start", action="store_true", help="imports only")
    options.add_only(parser, PEERS)
    args = parser.parse_args()
    spec = replace(options.spec_of(parser, args), dtype="f32")
    results = imports(args.only, args.rounds)
    started: dict[str, float] = {}
    if "pyggml" in args.only and not args.no_start:
        started = start(spec, args.start_rounds)
        for result in results:
            if result["peer"] == "pyggml":
                result.update(started)
    status = 0 if any(r["status"] == OK for r in results) else 1
    if args.json:
        report.print_json(results)
        return status
    rows = [
        [r["peer"], report.number(r["import_s"] * 1e3), report.number(r["import_min_s"] * 1e3)]
        if r["status"] == OK
        else [r["peer"], r["status"]]
        for r in results
    ]
    report.print_table(["import", "median(ms)", "best(ms)"], rows)
    if started:
        print(f"\nGPT-2 {spec.layers} x {spec.embd}, vocabulary {spec.vocab}, pyggml")
        head = {
            "model_s": "model built and filled",
            "optimizer_s": "optimizer made",
            "plan_s": "step recorded and planned",
            "start_s": "from the model to the first step",
            "first_step_s": "first step",
            "next_step_s": "next step",
        }
        report.print_table(
            ["", "ms"], [[text, report.number(started[key] * 1e3)] for key, text in head.items()]
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
