# SPDX-License-Identifier: MIT
"""A whole training step of GPT-2: pyggml, PyTorch (eager and compiled) and JAX."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from harness import options, report, training
from harness.contenders import Field
from harness.contract import OK
from harness.model import Spec

PEERS = ("pyggml", "torch", "torch.compile", "jax")


def print_results(spec: Spec, results: list[dict[str, Any]], verdict: str) -> None:
    print(
        f"GPT-2 {spec.layers} x {spec.embd}, vocabulary {spec.vocab}, {spec.batch} x {spec.seq} "
        f"tokens, {spec.dtype}, threads {spec.threads}"
        f"{', checkpointing' if spec.checkpointing else ''}"
        f"{', no clipping, pyggml updates in the backward' if spec.fused_update else ''}"
        f"; {report.machine()}"
    )
    ran = [r for r in results if r["status"] == OK]
    rows = []
    for r in results:
        if r["status"] != OK:
            rows.append([r["peer"], r["status"]])
            continue
        rss = r["rss_mib"]
        rows.append(
            [
                r["peer"],
                report.number(r["tok_s"]),
                f"{r['tok_s'] / ran[0]['tok_s']:.2f}",
                report.number(r["step_s"] * 1e3),
                report.number(r["cpu_s"] * 1e3),
                report.number(r["gflop_s"]),
                report.number(rss, 0),
                f"{rss / ran[0]['rss_mib']:.2f}" if rss else "",
                f"{r['first']:.4f}",
                f"{r['last']:.4f}",
            ]
        )
    head = "peer tok/s ratio step(ms) cpu(ms) GFLOP/s peak(MiB) ratio first last".split()
    report.print_table(head, rows)
    if verdict:
        print(verdict)


def main() -> int:
    parser = options.parser(__doc__ or "")
    options.add_model(parser, Spec())
    options.add_steps(parser)
    options.add_threads(parser)
    options.add_only(parser, PEERS)
    parser.add_argument("--checkpointing", action="store_true", help="recompute the blocks")
    options.add_fused_update(parser)
    parser.add_argument(
        "--beside",
        nargs="+",
        default=[],
        metavar="PYTHON",
        help="interpreters whose pyggml, of another build, is a contender as well",
    )
    parser.add_argument("--profile", action="store_true", help="then pyggml's step, op by op")
    args = parser.parse_args()
    spec = options.spec_of(parser, args)
    turns = options.turns(parser, args)
    if args.profile and (args.json or "pyggml" not in args.only):
        parser.error("argument --profile: prints pyggml's table; not with --json or without pyggml")
    with training.weights() as weights, Field() as field:
        spec = weights.of(spec)
        for peer in args.only:
            field.add(peer, "step", spec.threads, spec=spec.to_dict())
        for python in args.beside:
            if shutil.which(python) is None:
                parser.error(f"argument --beside: must be a Python interpreter; got {python!r}")
            field.add(
                "pyggml", "step", spec.threads, f"pyggml of {python}", python=python,
                spec=spec.to_dict(),
            )  # fmt: skip
        own = [c for c in field.contenders if c.peer == "pyggml"]
        if args.checkpointing and own and own[0].status.startswith("not supported"):
            parser.error(f"argument --checkpointing: {own[0].status}; leave it out")
        contenders = field.contenders
        results = training.race(contenders, [spec] * len(contenders), args.warmup, turns)
        table = own[0].ask(do="profile") if args.profile else None
    agree, verdict = training.compare(results, spec.dtype)
    if args.json:
        report.print_json(results)
    else:
        print_results(spec, results, verdict)
    if table is not None:
        print(f"\none step of pyggml, op by op\n{table['table']}")
    if not agree:
        print(f"train_step: {verdict}", file=sys.stderr)
    return 0 if agree and any(r["status"] == OK for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
