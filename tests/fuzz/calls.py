# SPDX-License-Identifier: MIT
"""Random calls of every public op: run as `python calls.py COUNT SEED LOG`.

Each call is written to LOG before it is made, so that the parent knows what killed the process.
The last line on stdout is a JSON object of counts; exit status 1 means a wrong number.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import pyggml as pg
from pyggml.grad0 import CASES, Case

REFUSED = (
    ValueError,
    TypeError,
    IndexError,
    pg.BackendError,
    pg.GradientError,
    pg.AnomalyError,
)
EXTENTS = st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 64])
DTYPES = st.sampled_from(["f32"] * 8 + ["f16", "bf16", "i32", "i64", "q8_0", "q4_K", "f64", "i8"])
counts = {"calls": 0, "accepted": 0, "refused": 0, "compared": 0, "differentiated": 0}
# ggml decides these by comparisons, which NaN fails: relu(NaN) is 0, as max(x, 0) is in C.
COMPARING = {
    *("argmax", "clamp", "elu", "hardsigmoid", "hardswish", "leaky_relu", "pool_1d", "pool_2d"),
    *("reglu", "relu", "sgn", "step"),
}


@st.composite
def shapes(draw: Any, like: tuple[int, ...]) -> tuple[int, ...]:
    """The shape itself, or one near it."""
    result = list(like)
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(["extent", "drop", "add", "swap"]))
        if kind == "add" and len(result) < 5:
            result.insert(draw(st.integers(0, len(result))), draw(EXTENTS))
        elif result and kind == "drop":
            result.pop(draw(st.integers(0, len(result) - 1)))
        elif result and kind == "extent":
            result[draw(st.integers(0, len(result) - 1))] = draw(EXTENTS)
        elif len(result) > 1 and kind == "swap":
            result[0], result[-1] = result[-1], result[0]
    return tuple(result)


def values(data: Any, shape: tuple[int, ...], case: Case) -> np.ndarray:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = rng.uniform(case.low, case.high, shape).astype(np.float32)
    if x.size and data.draw(st.integers(0, 9)) == 0:
        x.flat[rng.integers(x.size)] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))
    return x


def operand(data: Any, shape: tuple[int, ...], case: Case) -> tuple[pg.Tensor, np.ndarray]:
    """A tensor, perhaps a permuted view or a slice, and its numbers."""
    dtype = data.draw(DTYPES)
    x = values(data, shape, case)
    stored = np.nan_to_num(x).astype(np.int64) if dtype.startswith("i") else x
    t = pg.tensor(stored, dtype)
    if dtype == "f32" and data.draw(st.booleans()):
        t.requires_grad = True
    numbers = t.numpy().astype(np.float64)
    if t.ndim > 1 and data.draw(st.integers(0, 3)) == 0:
        axes = data.draw(st.permutations(range(t.ndim)))
        t, numbers = t.permute(*axes), numbers.transpose(axes)
    if t.ndim and t.shape[0] > 1 and data.draw(st.integers(0, 4)) == 0:
        t, numbers = t[1:], numbers[1:]
    return t, numbers


def close(got: np.ndarray, want: np.ndarray, exact: bool) -> bool:
    known = np.isfinite(want)
    if known.all():
        limit = (1e-3 if exact else 5e-2) * max(float(np.linalg.norm(want)), 1e-3)
        return bool(np.linalg.norm(got - want) <= limit)
    # Which elements become NaN or infinite depends on the order of operations, and 0 · Inf may be
    # its limit; elements that stay clear of it must be right.
    clear = known & np.isfinite(got)
    return bool(np.allclose(got[clear], want[clear], rtol=1e-2, atol=1e-2))


def call(case: Case, data: Any, log: Path) -> None:
    pairs = [operand(data, data.draw(shapes(s)), case) for s in case.shapes]
    tensors, numbers = [t for t, _ in pairs], [x for _, x in pairs]
    extra = case.extra
    if extra and data.draw(st.integers(0, 3)) == 0:
        bad = st.sampled_from(
            [-1, 0, 1, 2, 7, 2**31, -0.5, None, "x", (1, 2), [0, 1], float("nan")]
        )
        which = data.draw(st.integers(0, len(extra) - 1))
        extra = (*extra[:which], data.draw(bad), *extra[which + 1 :])
    log.write_text(f"{case.name} {tensors} {extra!r}\n")
    counts["calls"] += 1
    result = case.fn(*tensors, *extra)
    got = result.numpy().astype(np.float64)
    counts["accepted"] += 1
    finite = all(np.isfinite(x).all() for x in numbers)
    if extra is case.extra and (finite or case.name not in COMPARING):
        try:
            with np.errstate(all="ignore"):
                want = np.asarray(case.ref(*numbers, *extra), np.float64)
        except Exception:  # noqa: BLE001
            want = None  # the reference is written for the table's shapes; ggml takes more
        if want is not None and want.shape == got.shape:
            counts["compared"] += 1
            exact = all(t.dtype.name == "f32" for t in tensors)
            assert close(got, want, exact), f"{case.name} {tensors} {extra!r}: {got} != {want}"
    if result.dtype.name == "f32" and result.requires_grad:
        result.sum().backward()
        counts["differentiated"] += 1


def main(count: int, start: int, log: Path) -> int:
    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: Any) -> None:
        case = data.draw(st.sampled_from(CASES))
        try:
            call(case, data, log)
        except REFUSED:
            counts["refused"] += 1

    warnings.simplefilter("ignore")
    try:
        run()
    finally:
        print(json.dumps(counts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
