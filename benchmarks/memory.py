# SPDX-License-Identifier: MIT
"""Resident memory of a training step of GPT-2: after the import, with the model, at its peak."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from harness import options, report, training
from harness.contenders import Field
from harness.contract import OK
from harness.model import Spec

PEERS = ("pyggml", "torch", "torch.compile", "jax")
_MIB = 1 << 20


def measure(peer: str, spec: Spec, steps: int) -> dict[str, Any]:
    """One contender, alone on the machine."""
    with Field() as field:
        contender = field.add(peer, "step", spec.threads, spec=spec.to_dict())
        found = training.race([contender], [spec], 1, [steps])[0]
        started = contender.started
    found["checkpointing"] = spec.checkpointing
    if found["status"] != OK:
        return found
    for key in ("import_mib", "model_mib"):
        found[key] = None if started[key] is None else round(started[key], 1)
    if started["planned"]:
        found["planned_mib"] = {k: round(v / _MIB, 1) for k, v in started["planned"].items()}
    return found


def print_results(spec: Spec, results: list[dict[str, Any]]) -> None:
    print(
        f"GPT-2 {spec.layers} x {spec.embd}, vocabulary {spec.vocab}, {spec.batch} x {spec.seq} "
        f"tokens, {spec.dtype}"
        f"{', no clipping, pyggml updates in the backward' if spec.fused_update else ''}"
        f"; resident MiB; {report.machine()}"
    )
    rows = []
    base = next((r["rss_mib"] for r in results if r["status"] == OK), None)
    for r in results:
        name = r["peer"] + (" checkpointing" if r["checkpointing"] else "")
        if r["status"] != OK:
            rows.append([name, r["status"]])
            continue
        sizes = [report.number(r[key], 0) for key in ("import_mib", "model_mib", "rss_mib")]
        ratio = f"{r['rss_mib'] / base:.2f}" if base else ""
        rows.append([name, *sizes, ratio, report.number(r["step_s"] * 1e3)])
    report.print_table(["peer", "imported", "model", "peak", "ratio", "step(ms)"], rows)
    for r in results:
        if "planned_mib" in r:
            parts = [f"{kind} {size:,.0f}" for kind, size in r["planned_mib"].items()]
            suffix = ", checkpointing" if r["checkpointing"] else ""
            print(f"planned by {r['peer']}{suffix}: {', '.join(parts)} MiB")


def main() -> int:
    parser = options.parser(__doc__ or "")
    options.add_model(parser, Spec())
    parser.add_argument(
        "--steps", type=options.positive, default=2, metavar="N", help="steps after the first (2)"
    )
    options.add_threads(parser)
    options.add_only(parser, PEERS)
    parser.add_argument(
        "--checkpointing", action="store_true", help="each once more with recomputed blocks"
    )
    options.add_fused_update(parser)
    args = parser.parse_args()
    spec = replace(options.spec_of(parser, args), checkpointing=False)
    results = []
    with training.weights() as weights:
        spec = weights.of(spec)
        for peer in args.only:
            for checkpointing in (False, True)[: 1 + args.checkpointing]:
                found = measure(peer, replace(spec, checkpointing=checkpointing), args.steps)
                if checkpointing and peer == "pyggml" and found["status"].startswith("not supp"):
                    parser.error(f"argument --checkpointing: {found['status']}; leave it out")
                results.append(found)
                if args.json:
                    report.print_json([found])
    if not args.json:
        print_results(spec, results)
    agree, verdict = training.compare(results, spec.dtype)
    if verdict and not args.json:
        print(verdict)
    if not agree:
        print(f"memory: {verdict}", file=sys.stderr)
    return 0 if agree and any(r["status"] == OK for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
