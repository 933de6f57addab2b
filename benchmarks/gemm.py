# SPDX-License-Identifier: MIT
"""The matrix products of GPT-2's layers, forward and backward: pyggml, PyTorch and NumPy."""

from __future__ import annotations

import statistics
import sys
from typing import Any

from harness import options, report
from harness.contenders import Contender, Field, interleave
from harness.contract import OK
from harness.products import LAYOUTS

PEERS = ("pyggml", "torch", "numpy")
DTYPES = ("f32", "bf16", "q8_0", "q4_K")
LAYERS = ("qkv", "proj", "up", "down", "head")
_TURN_S = 0.2


def shapes(embd: int, vocab: int) -> dict[str, tuple[int, int]]:
    """Features out and in of each linear layer."""
    return {
        "qkv": (3 * embd, embd),
        "proj": (embd, embd),
        "up": (4 * embd, embd),
        "down": (embd, 4 * embd),
        "head": (vocab, embd),
    }


def measure(contenders: list[Contender], case: dict[str, Any], rounds: int) -> list[dict[str, Any]]:
    """Time one product by all who can do it."""
    prepared = [contender.ask(do="prepare", case=case) for contender in contenders]
    statuses = [contender.status for contender in contenders]
    turns = interleave(contenders, [{"do": "run", "seconds": _TURN_S}] * rounds)
    found = []
    for contender, status, ready, answers in zip(
        contenders, statuses, prepared, turns, strict=True
    ):
        own: dict[str, Any] = {"peer": contender.name, "dtype": case["dtype"], "status": status}
        if ready is not None and len(answers) == rounds:
            seconds = statistics.median(s for answer in answers for s in answer["seconds"])
            flops = 2 * case["m"] * case["n"] * case["k"]
            own.update(
                seconds=seconds,
                gflop_s=round(flops / seconds / 1e9, 3),
                error=ready["error"],
            )
        elif status == OK:
            own["status"] = contender.status
        # What one does not multiply says nothing of the next product.
        if contender.status.startswith("not supported"):
            contender.status = OK
        found.append({**own, **{key: case[key] for key in ("layout", "m", "n", "k")}})
    return found


def print_results(results: list[dict[str, Any]], args: Any) -> None:
    print(f"tokens {args.tokens}, threads {args.threads}; {report.machine()}")
    for layout in args.layouts:
        print(f"\n{layout}: {LAYOUTS[layout]}; GFLOP/s (relative error)")
        own = [r for r in results if r["layout"] == layout and "gflop_s" in r]
        columns = list(dict.fromkeys((r["peer"], r["dtype"]) for r in own))
        names = list(dict.fromkeys(r["layer"] for r in own))
        rows = []
        for name in names:
            of_layer = {(r["peer"], r["dtype"]): r for r in own if r["layer"] == name}
            first = next(iter(of_layer.values()))
            cells = [
                f"{of_layer[c]['gflop_s']:.1f} ({of_layer[c]['error']:.0e})"
                if c in of_layer
                else "-"
                for c in columns
            ]
            rows.append([f"{name} {first['n']} x {first['m']} x {first['k']}", *cells])
        report.print_table(["N x M x K", *[f"{peer} {dtype}" for peer, dtype in columns]], rows)
    out = {(r["peer"], r["dtype"]): r["status"] for r in results if r["status"] != OK}
    for (peer, dtype), status in out.items():
        print(f"{peer} {dtype}: {status}")


def parse() -> Any:
    parser = options.parser(__doc__ or "")
    for name, default in (("tokens", 1024), ("embd", 768), ("vocab", 50257)):
        parser.add_argument(
            f"--{name}", type=options.positive, default=default, metavar="N", help=f"({default})"
        )
    for name, known in (("layers", LAYERS), ("layouts", tuple(LAYOUTS)), ("dtypes", DTYPES)):
        parser.add_argument(
            f"--{name}", nargs="+", choices=known, default=list(known), help="(default: all)"
        )
    parser.add_argument("--rounds", type=options.positive, default=5, metavar="N", help="(5)")
    parser.add_argument("--seed", type=int, default=0, help="of the numbers (0)")
    parser.add_argument(
        "--openblas-core",
        metavar="NAME",
        help="NumPy once more with OPENBLAS_CORETYPE set to this, such as SkylakeX",
    )
    options.add_threads(parser)
    options.add_only(parser, PEERS)
    args = parser.parse_args()
    options.check_threads(parser, args.threads)
    options.check_seed(parser, args.seed)
    return args


def main() -> int:
    args = parse()
    results = []
    with Field() as field:
        for peer in args.only:
            field.add(peer, "gemm", args.threads)
        if args.openblas_core and "numpy" in args.only:
            core = {"OPENBLAS_CORETYPE": args.openblas_core}
            field.add("numpy", "gemm", args.threads, f"numpy-{args.openblas_core}", core)
        for layout in args.layouts:
            for layer in args.layers:
                m, k = shapes(args.embd, args.vocab)[layer]
                for dtype in args.dtypes:
                    case = {"layout": layout, "dtype": dtype, "n": args.tokens, "m": m, "k": k}
                    case["seed"] = args.seed
                    found = measure(field.contenders, case, args.rounds)
                    found = [{**r, "layer": layer, "threads": args.threads} for r in found]
                    if args.json:
                        report.print_json(found)
                    results += found
    if not args.json:
        print_results(results, args)
    return 0 if any(r["status"] == OK for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
