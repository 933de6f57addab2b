# SPDX-License-Identifier: MIT
"""A training step on a GPU that is not here: its launches, bytes, operations and estimated time.

    python benchmarks/gpu_model.py --device h100 --dtype bf16
    python benchmarks/gpu_model.py --against            # beside the step without fusions and passes
    python benchmarks/gpu_model.py --by op --dtype f32
    python benchmarks/gpu_model.py --check              # beside what an H100 measured

The backend's own host code, CUDA's or Metal's, runs on an emulated GPU that computes nothing and
notes its launches (tests/emulation); the times come from a table of published figures
(harness/gpus.py). All of them are estimates. Those for Apple's GPUs were never measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from harness import options, report
from harness.gpus import CALIBRATED, GPUS, Gpu, Sum, seconds, sums, total
from harness.launches import Launch, graphs, launches
from harness.model import Spec
from harness.traced_step import read

# GPT-2 124M, 16 x 1024, on an H100, in ms: docs/internals/gpu.md. By op: with one op at a time.
MEASURED_STEP = {"bf16": 104.7, "f32": 413.5}
MEASURED_SAVED = 10.0  # of the step in bf16
# Those of the head's matmuls in bf16: two had an odd extent, which are computed otherwise since.
MEASURED_HEAD = {"MUL_MAT": 13.5, "OUT_PROD": 9.5 + 3.3}
MEASURED_OPS = {
    "OUT_PROD": 24.0,
    "FLASH_ATTN_EXT_BACK": 22.0,
    "MUL_MAT": 20.0,
    "ADD": 13.0,
    "GELU": 7.5,
    "CPY": 7.0,
    "FLASH_ATTN_EXT": 7.0,
    "MUL": 6.0,
    "REPEAT_BACK": 5.0,
    "CROSS_ENTROPY_ROWS_BACK": 4.0,
    "OPT_STEP_ADAMW": 3.5,
}


def step(spec: Spec, gpu: Gpu, fused: bool = True, passes: bool = True) -> tuple[list[Launch], int]:
    """Return the launches of a step and the number of its captured graphs or command buffers."""
    # The step without passes has a head in parts, however much memory there is.
    device = gpu.emulated if passes else {**gpu.emulated, "memory_gib": 0}
    events = read(spec.to_dict(), device, fused, passes)
    return launches(events, spec.vocab), graphs(events)


def cells(name: str, part: Sum) -> list[str]:
    """Return a row of the table."""
    return [
        name,
        f"{part.launches:,}",
        report.number(part.bytes / 1e9, 2),
        report.number(part.converted / 1e9, 2),
        report.number(part.operations / 1e12, 2),
        report.number(part.seconds * 1e3, 2),
    ]


def print_step(parts: dict[str, Sum], key: str) -> None:
    head = [key, "launches", "GB", "converted GB", "TFLOP", "est. ms"]
    rows = [cells(name, part) for name, part in parts.items()]
    report.print_table(head, [*rows, cells("all", total(parts))])


def print_change(before: dict[str, Sum], after: dict[str, Sum], key: str) -> None:
    """Print both steps side by side, each pair `before > after`."""
    print("without -> with kernels for chains of ops, operands rounded once, leaves first,")
    print("a head in as few parts, and results kept, as the memory allows")
    rows = []
    for name in [*before, *(name for name in after if name not in before), "all"]:
        old = total(before) if name == "all" else before.get(name, Sum())
        new = total(after) if name == "all" else after.get(name, Sum())
        pairs = zip(cells(name, old)[1:], cells(name, new)[1:], strict=True)
        rows.append([name, *(f"{a} -> {b}" for a, b in pairs)])
    report.print_table([key, "launches", "GB", "converted GB", "TFLOP", "est. ms"], rows)
    old, new = total(before), total(after)
    names = {"launches": "launches", "bytes": "bytes", "converted": "converted bytes"}
    for field, name in {**names, "seconds": "estimated time"}.items():
        a, b = getattr(old, field), getattr(new, field)
        if a:
            print(f"{name}: {100 * (b - a) / a:+.1f}%")


def check() -> None:
    """Print the estimates for an H100 beside what one measured, and which set a number."""
    gpu = GPUS["h100"]
    spec = Spec(batch=16, seq=1024, dtype="bf16")
    whole, _ = step(spec, gpu)
    single, _ = step(spec, gpu, fused=False)
    exact, _ = step(replace(spec, dtype="f32"), gpu)
    head = sum(MEASURED_HEAD.values())
    saved = ms(single, gpu) - ms(whole, gpu)
    rows = [
        difference("step, f32", MEASURED_STEP["f32"], ms(exact, gpu)),
        difference("step, bf16", MEASURED_STEP["bf16"], ms(whole, gpu)),
        difference("without the head's matmuls", MEASURED_STEP["bf16"] - head, rest(whole, gpu)),
        difference("saved by kernels for chains of ops", MEASURED_SAVED, saved),
    ]
    for op, measured in MEASURED_OPS.items():
        of = [launch for launch in single if launch.op == op]
        if op in MEASURED_HEAD:
            left = measured - MEASURED_HEAD[op]
            rows.append(difference(f"{op} without the head's", left, rest(of, gpu)))
        else:
            rows.append(difference(op, measured, ms(of, gpu), CALIBRATED.get(op, "")))
    report.print_table(["on an H100", "measured ms", "estimated ms", "ratio", ""], rows)


def rest(found: Sequence[Launch], gpu: Gpu) -> float:
    """Return the milliseconds of launches but the head's matmuls."""
    return ms([each for each in found if each.part != "head" or each.op not in MEASURED_HEAD], gpu)


def ms(found: Sequence[Launch], gpu: Gpu) -> float:
    return 1e3 * total(sums(found, gpu, "part")).seconds


def difference(name: str, measured: float, estimated: float, remark: str = "") -> list[str]:
    numbers = (report.number(measured), report.number(estimated))
    return [name, *numbers, report.number(estimated / measured, 2), remark]


def main() -> int:
    parser = options.parser(__doc__ or "")
    options.add_model(parser, Spec(batch=16, seq=1024), dtypes=("f32", "tf32", "bf16"))
    parser.set_defaults(dtype="bf16")
    parser.add_argument("--device", choices=list(GPUS), default="h100", help="the GPU (h100)")
    parser.add_argument(
        "--by", choices=["part", "op", "kernel"], default="part", help="rows (part)"
    )
    parser.add_argument(
        "--against", action="store_true", help="beside the step without fusions and passes"
    )
    parser.add_argument("--check", action="store_true", help="beside an H100's measurements")
    args = parser.parse_args()
    spec = options.spec_of(parser, args)
    try:
        if args.check:
            check()
        else:
            show(args, spec, GPUS[args.device])
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def show(args: argparse.Namespace, spec: Spec, gpu: Gpu) -> None:
    """Print the step that the options describe."""
    found, n_graphs = step(spec, gpu)
    steps = {"with": sums(found, gpu, args.by)}
    if args.against:
        before, _ = step(spec, gpu, fused=False, passes=False)
        steps["without"] = sums(before, gpu, args.by)
    if args.json:
        report.print_json(
            {"fusions and passes": which, args.by: name, **asdict(part)}
            for which, parts in steps.items()
            for name, part in parts.items()
        )
        return
    print(
        f"GPT-2 {spec.layers} x {spec.embd}, vocabulary {spec.vocab}, {spec.batch} x {spec.seq} "
        f"tokens, {spec.dtype}, on {gpu.name}: estimates, "
        + f"{n_graphs} {'captured graphs' if gpu.cc else 'command buffers'}"
    )
    if args.against:
        print_change(steps["without"], steps["with"], args.by)
    else:
        print_step(steps["with"], args.by)
        longest = max(found, key=lambda launch: seconds(launch, gpu))
        took = report.number(1e3 * seconds(longest, gpu))
        print(f"longest launch: {took} ms, {longest.op} ({longest.part})")


if __name__ == "__main__":
    sys.exit(main())
