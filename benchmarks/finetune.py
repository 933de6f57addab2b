# SPDX-License-Identifier: MIT
"""A fine-tuning step with LoRA on random models of Qwen2.5's shapes: pyggml, and PyTorch with PEFT.

pyggml trains on f16, q8_0 and q4_K_M files, PyTorch on bf16 weights, or with --torch-dtype f32 on
f32 ones; all with rank 16 on all linear layers. The contenders take turns, each in a process of its
own. Growth is the peak of the process less what it held after its imports.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from harness import options, report, tuned
from harness.contenders import Contender, Field, interleave
from harness.contract import OK

PEERS = ("pyggml", "torch")


def measure(
    shape: str, paths: dict[str, Path], spec: tuned.Spec, threads: int, steps: int
) -> list[dict[str, Any]]:
    """Race a shape in all its types."""
    with Field() as field:
        order = {"spec": spec.to_dict()}
        for kind, path in paths.items():
            peer = "torch" if kind == "torch" else "pyggml"
            name = f"PyTorch + PEFT {spec.torch_dtype}" if peer == "torch" else f"pyggml {kind}"
            field.add(peer, "tune", threads, name=name, path=str(path), **order)
        rounds = [{"do": "run", "steps": 1} for _ in range(steps + 1)]
        answers = interleave(field.contenders, rounds)
        pairs = zip(field.contenders, answers, strict=True)
        return [result(shape, contender, own, spec) for contender, own in pairs]


def result(
    shape: str, contender: Contender, answers: list[dict[str, Any]], spec: tuned.Spec
) -> dict[str, Any]:
    """Join the answers of a contender; the first step is not timed."""
    found: dict[str, Any] = {"shape": shape, "name": contender.name, "status": contender.status}
    if contender.status != OK or not answers:
        return found
    seconds = median(each["seconds"][0] for each in answers[1:])
    peak, imported = answers[-1]["rss_mib"], contender.started["import_mib"]
    return {
        **found,
        "tok_s": spec.batch * spec.seq / seconds,
        "step_s": seconds,
        "cpu_s": median(each["cpu"][0] for each in answers[1:]),
        "rss_mib": peak,
        "growth_mib": None if peak is None or imported is None else peak - imported,
        "first": answers[0]["losses"][0],
        "last": answers[-1]["losses"][0],
    }


def print_results(spec: tuned.Spec, results: list[dict[str, Any]]) -> None:
    """Print the table; ratios are to PyTorch of the same shape."""
    print(
        f"LoRA of rank {spec.rank} on all linear layers, {spec.batch} x {spec.seq} tokens"
        f"{', checkpointing' if spec.checkpointing else ''}; resident MiB; {report.machine()}"
    )
    base = {r["shape"]: r for r in results if r["status"] == OK and "PEFT" in r["name"]}
    rows = []
    for r in results:
        if r["status"] != OK:
            rows.append([f"{r['shape']} {r['name']}", r["status"]])
            continue
        other = base.get(r["shape"])
        cells = [report.number(r[key]) for key in ("tok_s", "step_s", "cpu_s")]
        cells += [report.number(r[key], 0) for key in ("rss_mib", "growth_mib")]
        faster = "" if other is None else f"{r['tok_s'] / other['tok_s']:.2f}"
        memory = ""
        if other is not None and r["growth_mib"] and other["growth_mib"]:
            memory = f"{r['growth_mib'] / other['growth_mib']:.2f}"
        losses = [f"{r[key]:.4f}" for key in ("first", "last")]
        rows.append([f"{r['shape']} {r['name']}", *cells, faster, memory, *losses])
    head = "model tok/s step(s) cpu(s) peak(MiB) growth(MiB) faster memory first last".split()
    report.print_table(head, rows)


def main() -> int:
    """Run the benchmark."""
    parser = options.parser(__doc__ or "")
    spec = tuned.Spec()
    parser.add_argument(
        "--shapes", default="0.5b,1.5b", metavar="NAME[,NAME]", help=", ".join(tuned.SHAPES)
    )
    parser.add_argument(
        "--kinds", default=",".join(tuned.KINDS), metavar="TYPE[,TYPE]", help="of pyggml's files"
    )
    for name in ("batch", "seq", "rank"):
        value = getattr(spec, name)
        parser.add_argument(f"--{name}", type=options.positive, default=value, metavar="N")
    parser.add_argument("--steps", type=options.positive, default=3, metavar="N", help="timed (3)")
    parser.add_argument("--bf16", action="store_true", help="pyggml multiplies in bf16")
    parser.add_argument("--torch-dtype", choices=("bf16", "f32"), default="bf16", help="PyTorch's")
    parser.add_argument("--checkpointing", action="store_true", help="recompute the blocks")
    parser.add_argument("--folder", metavar="DIR", help="keeps the models for the next time")
    options.add_threads(parser)
    options.add_only(parser, PEERS)
    args = parser.parse_args()
    shapes, kinds = args.shapes.split(","), args.kinds.split(",")
    for name, given, known in (("shapes", shapes, tuned.SHAPES), ("kinds", kinds, tuned.KINDS)):
        unknown = [each for each in given if each not in known]
        if unknown:
            parser.error(f"argument --{name}: must be among {', '.join(known)}; got {unknown[0]}")
    spec = tuned.Spec(args.batch, args.seq, args.rank, bf16=args.bf16,
                      checkpointing=args.checkpointing,
                      torch_dtype=args.torch_dtype)  # fmt: skip
    results = []
    keeper = nullcontext(args.folder) if args.folder else tempfile.TemporaryDirectory()
    with keeper as place:
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        for shape in shapes:
            paths = tuned.write(shape, folder, kinds, "torch" in args.only)
            wanted = [*(kinds if "pyggml" in args.only else ()), "torch"]
            paths = {kind: paths[kind] for kind in wanted if kind in paths}
            results += measure(shape, paths, spec, args.threads, args.steps)
    if args.json:
        report.print_json(results)
    else:
        print_results(spec, results)
    return 0 if all(r["status"] == OK for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
