# SPDX-License-Identifier: MIT
"""What scripts/wheel_check.py runs in the environment of the wheel; prints JSON.

Matrix products larger than a tile against float64, and the rows of grad0's table.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import pyggml as pg
from pyggml.backend.device import device
from pyggml.backend.library import cpu_features, cpu_variant
from pyggml.testing.cases import CASES
from pyggml.testing.check import TOLERANCES, run_case

# Rows, inner extent and columns: a tile and its edges, several blocks of the inner extent.
SHAPES = ((1, 64, 1), (5, 96, 7), (33, 256, 65), (130, 1056, 70))


def nmse(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.sum((found - right) ** 2) / np.sum(right**2))


def products() -> dict[str, float]:
    """The largest error of products of f32, rounded to bf16, and of quantized weights."""
    errors: dict[str, float] = {}
    rng = np.random.default_rng(0)
    for m, k, n in SHAPES:
        a = rng.standard_normal((m, k)).astype(np.float32)
        b = rng.standard_normal((k, n)).astype(np.float32)
        right = a.astype(np.float64) @ b
        x, y = pg.tensor(a), pg.tensor(b)
        found = {"f32": (x @ y).numpy()}
        with pg.autocast("bf16"):
            found["bf16"] = (x @ y).numpy()
        for kind in ("q8_0", "q4_0", "q4_K"):
            if k % (256 if kind == "q4_K" else 32) == 0:
                weight = pg.tensor(np.ascontiguousarray(b.T), dtype=kind)
                error = (
                    pg.nn.functional.linear(x, weight).numpy()
                    - a.astype(np.float64) @ weight.numpy().T
                )
                found[kind] = right + error
        for name, result in found.items():
            errors[name] = max(errors.get(name, 0.0), nmse(result, right))
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", action="store_true", help="also the rows of grad0's table")
    args = parser.parse_args()
    started = time.perf_counter()
    where, failed, right = device("cpu"), [], 0
    for case in CASES if args.rows else ():
        for dtype in TOLERANCES:
            result = run_case(case, dtype, where)
            right += result.verdict == "OK"
            failed += [f"{case.id} {dtype}"] if result.verdict == "FAIL" else []
    print(
        json.dumps(
            {
                "variant": cpu_variant(), "features": cpu_features(), "products": products(),
                "rows": right, "failed": failed, "seconds": time.perf_counter() - started,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
