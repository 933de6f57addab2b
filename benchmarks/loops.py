# SPDX-License-Identifier: MIT
"""Loops of one's own against `TrainStep`, `Trainer` and PyTorch's loops, on two small GPT-2s."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from harness import options, report, training
from harness.contenders import Field
from harness.contract import OK
from harness.model import Spec

# TrainStep, Trainer, the loops around a `Graph` and with `loss.backward()`, and PyTorch's two.
PEERS = ("pyggml", "pyggml.trainer", "pyggml.graph", "pyggml.loop", "torch", "torch.compile")
# Layers and width.
MODELS = ((4, 128), (2, 32))

_SOAK = """
import sys
from harness import rss
from harness.model import Spec
from harness.peers.pyggml_loop_step import Step
step = Step(Spec(**{spec!r}))
for _ in range(500):
    step()
before = rss.now_mib()
for _ in range({steps}):
    step()
print(before, rss.now_mib())
"""


def print_results(spec: Spec, results: list[dict[str, Any]], verdict: str) -> None:
    print(
        f"\nGPT-2 {spec.layers} x {spec.embd}, vocabulary {spec.vocab}, {spec.batch} x {spec.seq}"
        f" tokens, threads {spec.threads}; {report.machine()}"
    )
    ran = [r for r in results if r["status"] == OK]
    rows = []
    for r in results:
        if r["status"] != OK:
            rows.append([r["peer"], r["status"]])
            continue
        rows.append(
            [
                r["peer"],
                report.number(r["step_s"] * 1e3),
                report.number(r["cpu_s"] * 1e3),
                report.number(spec.tokens / r["cpu_s"]),
                f"{ran[0]['cpu_s'] / r['cpu_s']:.2f}",
                f"{r['last']:.4f}",
            ]
        )
    report.print_table("peer step(ms) cpu(ms) tok/cpu-s ratio last".split(), rows)
    if verdict:
        print(verdict)


def soak(spec: Spec, steps: int) -> bool:
    """Do many steps of the loop; return whether the memory stayed within 1%."""
    code = _SOAK.format(spec=spec.to_dict(), steps=steps)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=sys.path[0],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    before, after = map(float, done.stdout.split())
    print(f"\n{steps:,} steps of the loop: {before:.1f} MiB before, {after:.1f} MiB after")
    return after <= 1.01 * before


def main() -> int:
    parser = options.parser(__doc__ or "")
    options.add_steps(parser, 30)
    options.add_threads(parser)
    options.add_only(parser, PEERS)
    parser.add_argument("--soak", type=int, default=0, metavar="N", help="then N steps of the loop")
    args = parser.parse_args()
    turns = options.turns(parser, args)
    found, fine = [], True
    with training.weights() as weights:
        for layers, embd in MODELS:
            spec = Spec(layers, embd, 4, 256, 8, 64 if embd > 32 else 32, threads=args.threads)
            spec = weights.of(spec)
            with Field() as field:
                for peer in args.only:
                    field.add(peer, "step", spec.threads, spec=spec.to_dict())
                specs = [spec] * len(field.contenders)
                results = training.race(field.contenders, specs, args.warmup, turns)
            agree, verdict = training.compare(results, spec.dtype)
            fine = fine and agree and any(r["status"] == OK for r in results)
            found += [{"layers": layers, "embd": embd, **r} for r in results]
            if not args.json:
                print_results(spec, results, verdict)
        if args.soak:
            fine = soak(spec, args.soak) and fine
    if args.json:
        report.print_json(found)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
