# SPDX-License-Identifier: MIT
"""The table of ops and gradients; exit status 1 when a row fails."""

from __future__ import annotations

import argparse
import sys

from ..backend.device import device as find_device
from ..backend.device import set_default_device
from ..errors import BackendError
from .cases import CASES
from .check import TOLERANCES, Result, run_case
from .nonfinite import run_nonfinite

__all__ = ["main"]


def _line(result: Result) -> str:
    numbers = [
        "     –   " if error is None else f"{error:9.1e}"
        for error in (result.forward, result.backward)
    ]
    name = f"{result.case.id}".ljust(58)
    tail = f"  {result.reason}" if result.verdict != "OK" and result.reason else ""
    return f"  {name} {result.dtype:5} {numbers[0]} {numbers[1]}  {result.verdict}{tail}"


def main(argv: list[str] | None = None) -> int:
    """Print a row per case and dtype: relative errors of result and gradients, and a verdict."""
    parser = argparse.ArgumentParser(
        prog="python -m pyggml.grad0", description="Every op and gradient against float64."
    )
    parser.add_argument("--op", help="only this op, by its name in pyggml.ops")
    parser.add_argument("--device", default="cpu", help="where to compute (default: cpu)")
    parser.add_argument("--type", choices=sorted(TOLERANCES), help="only this operand type")
    parser.add_argument(
        "--nonfinite", action="store_true", help="also rows of f32 with NaN or an infinity"
    )
    options = parser.parse_args(argv)
    names = sorted({case.name for case in CASES})
    if options.op is not None and options.op not in names:
        parser.error(f"no op {options.op!r}; there are {', '.join(names)}")
    try:
        where = find_device(options.device)
    except BackendError as error:
        parser.error(str(error))
    set_default_device(where)  # of the indices and masks that a row makes itself
    types = [options.type] if options.type else list(TOLERANCES)
    print(f"{'op and operands':60} {'type':5} {'forward':>9} {'gradient':>9}")
    counts = {"OK": 0, "FAIL": 0, "unsupported": 0}
    with_gradient: set[tuple[str, str]] = set()
    for case in CASES:
        if options.op not in (None, case.name):
            continue
        for dtype in types:
            result = run_case(case, dtype, where)
            counts[result.verdict] += 1
            if result.verdict == "OK" and result.backward is not None:
                with_gradient.add((case.name, case.variant))
            print(_line(result), flush=True)
        if options.nonfinite and "f32" in types:
            faults = run_nonfinite(case, where)
            counts["FAIL" if faults else "OK"] += 1
            verdict = f"FAIL  {'; '.join(faults)}" if faults else "OK"
            print(f"  {f'{case.id} with NaN or inf'.ljust(58)} f32   {verdict:>24}", flush=True)
    print(
        f"{counts['OK']} OK, {counts['FAIL']} failed, {counts['unsupported']} unsupported;"
        f" {len(with_gradient)} ops and variants with a gradient on {where.name}"
    )
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
