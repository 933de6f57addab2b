# SPDX-License-Identifier: MIT
"""Two hosts with a slow link between them: DiLoCo's speed and loss beside synchronous training's.

sudo python benchmarks/slow_network.py [--mbit 100] [--rtt-ms 20] [--steps 300] [--every 50]
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from harness.link import run, slow_link


def train(name: str, args: argparse.Namespace, *more: str) -> tuple[float, float]:
    """Return the seconds from the 10th step to the last, and the last validation loss."""
    folder = Path(args.folder) / name
    shutil.rmtree(folder, ignore_errors=True)
    call = ["-m", "pyggml", "train-llm", "--artifact-dir", str(folder)]
    call += ["--tokenizer", "chars", "--layers", "2", "--heads", "4", "--embd", "128"]
    call += ["--seq-len", "64", "--batch-size", "16", "--threads", "1", "--seed", "1"]
    call += ["--sample-tokens", "0", "--no-report", *more]
    run(call)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row["elapsed_s"] for row in rows if row["kind"] == "train"]
    losses = [row["loss"] for row in rows if row["kind"] != "train" and "loss" in row]
    return (steps[-1] - steps[9]) / (len(steps) - 10), losses[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mbit", type=float, default=100)
    parser.add_argument("--rtt-ms", type=float, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--folder", default="artifacts/slow-network")
    args = parser.parse_args()
    local = ["--sync-every", str(args.every), "--steps", str(args.steps)]
    plain = ["--steps", str(args.steps), "--eval-every", str(args.every)]
    found = {}
    for link in ("fast", "slow"):
        slow = link == "slow"
        with slow_link(*((args.mbit, args.rtt_ms) if slow else (0.0, 0.0))):
            found[f"DiLoCo, {link}"] = train(f"local-{link}", args, *local)
            short = plain if not slow else ["--steps", "40", "--eval-every", "40"]
            found[f"synchronous, {link}"] = train(f"plain-{link}", args, *short)
    for name, (step_s, loss) in found.items():
        note = "" if name != "synchronous, slow" else " (40 steps)"
        print(f"{name:20s} {step_s * 1e3:8.1f} ms a step, validation loss {loss:.4f}{note}")
    kept = found["DiLoCo, fast"][0] / found["DiLoCo, slow"][0]
    print(f"DiLoCo keeps {kept:.2f} of the fast link's speed")


if __name__ == "__main__":
    main()
