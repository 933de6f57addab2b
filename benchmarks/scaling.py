# SPDX-License-Identifier: MIT
"""How a training step grows: with threads, tokens of a step, width and depth of the model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness import options, report, training
from harness.contenders import Field
from harness.contract import OK
from harness.model import Spec

PEERS = ("pyggml", "torch", "torch.compile", "jax")
SWEEPS = ("threads", "tokens", "width", "depth")
_BASE = Spec(layers=6, embd=384, heads=6, vocab=4096, batch=4, seq=256)
_HEAD = 64  # GPT-2's own; a width that is no multiple keeps the number of heads


def with_tokens(base: Spec, tokens: int) -> Spec:
    """The base with more sequences of the same length."""
    if tokens % base.seq:
        raise ValueError(f"must be multiples of --seq {base.seq}; got {tokens}")
    return replace(base, batch=tokens // base.seq)


def with_width(base: Spec, embd: int) -> Spec:
    """The base, wider; heads stay as wide as GPT-2's."""
    heads = embd // _HEAD if embd % _HEAD == 0 else base.heads
    if embd % heads:
        raise ValueError(f"must be multiples of {_HEAD}, or of --heads {base.heads}; got {embd}")
    return replace(base, embd=embd, heads=heads)


POINTS: dict[str, Callable[[Spec, int], Spec]] = {
    "threads": lambda base, n: replace(base, threads=n),
    "tokens": with_tokens,
    "width": with_width,
    "depth": lambda base, n: replace(base, layers=n),
}


def measure(
    peer: str, sweep: str, specs: dict[int, Spec], warmup: int, turns: list[int]
) -> list[dict[str, Any]]:
    """All points of a sweep side by side, their rounds interleaved."""
    with Field() as field:
        contenders = [
            field.add(peer, "step", spec.threads, spec=spec.to_dict()) for spec in specs.values()
        ]
        results = training.race(contenders, list(specs.values()), warmup, turns)
    found = []
    for (value, spec), result in zip(specs.items(), results, strict=True):
        shape = {key: getattr(spec, key) for key in ("layers", "embd", "heads", "batch", "seq")}
        point = {"sweep": sweep, "value": value, **result, **shape}
        if result["status"] == OK:
            point["us_per_token"] = result["step_s"] / spec.tokens * 1e6
        found.append(point)
    return found


def print_results(base: Spec, results: list[dict[str, Any]]) -> None:
    print(
        f"GPT-2 {base.layers} x {base.embd}, vocabulary {base.vocab}, {base.batch} x {base.seq} "
        f"tokens, {base.dtype}, threads {base.threads}, where the sweep does not say otherwise; "
        f"{report.machine()}"
    )
    for sweep in dict.fromkeys(r["sweep"] for r in results):
        print(f"\n{sweep}")
        rows = []
        for peer in dict.fromkeys(r["peer"] for r in results):
            own = [r for r in results if r["sweep"] == sweep and r["peer"] == peer]
            base_s = next((r["us_per_token"] for r in own if r["status"] == OK), 0.0)
            for r in own:
                if r["status"] != OK:
                    rows.append([peer, r["status"]])
                    continue
                rows.append(
                    [
                        peer,
                        str(r["value"]),
                        report.number(r["tok_s"]),
                        report.number(r["us_per_token"]),
                        f"{r['us_per_token'] / base_s:.2f}",
                        report.number(r["gflop_s"]),
                        report.number(r["rss_mib"], 0),
                    ]
                )
        head = ["peer", sweep, "tok/s", "us/token", "of first", "GFLOP/s", "peak(MiB)"]
        report.print_table(head, rows)


def main() -> int:
    parser = options.parser(__doc__ or "")
    options.add_model(parser, _BASE)
    options.add_threads(parser)
    options.add_steps(parser)
    parser.add_argument(
        "--sweeps", nargs="+", choices=SWEEPS, default=list(SWEEPS), help="(default: all)"
    )
    values: dict[str, list[int]] = {
        "threads": list(range(1, min(2, options.cores()) + 1)),
        "tokens": [256, 512, 1024, 2048, 4096],
        "width": [128, 256, 384, 768],
        "depth": [1, 2, 4, 8],
    }
    for sweep, known in values.items():
        text = ",".join(map(str, known))
        name = "--thread-counts" if sweep == "threads" else f"--{sweep}"
        parser.add_argument(
            name, dest=f"of_{sweep}", type=options.counts, default=known, metavar="N,N", help=text
        )
    options.add_only(parser, PEERS)
    parser.set_defaults(only=["pyggml"])
    args = parser.parse_args()
    base = options.spec_of(parser, args)
    turns = options.turns(parser, args)
    if "threads" in args.sweeps:
        options.check_threads(parser, max(args.of_threads))
    chosen: dict[str, dict[int, Spec]] = {}
    for sweep in args.sweeps:
        try:
            chosen[sweep] = {n: POINTS[sweep](base, n) for n in getattr(args, f"of_{sweep}")}
        except ValueError as error:
            parser.error(f"argument --{sweep}: {error}")
    results = []
    with training.weights() as weights:
        for sweep, points in chosen.items():
            specs = {value: weights.of(spec) for value, spec in points.items()}
            for peer in args.only:
                found = measure(peer, sweep, specs, args.warmup, turns)
                if args.json:
                    report.print_json(found)
                results += found
    if not args.json:
        print_results(base, results)
    return 0 if any(r["status"] == OK for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
