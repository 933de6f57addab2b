# SPDX-License-Identifier: MIT
"""Rows of the table with one element that is NaN or infinite.

A NaN spreads: what depends on the element is NaN, in the result and in the gradients; what does not
is the same number as before, or NaN where the element is multiplied by 0. A result depends on an
element if the reference changes as the element takes other finite values; a gradient, if ggml's own
changes. An infinity gives what NumPy gives in float64.
"""

from __future__ import annotations

import numpy as np

from ..backend.device import Device
from ..tensors.create import tensor
from .case import Case
from .check import Array

__all__ = ["AS_NUMPY", "INDICES", "INFINITE", "WHOLE", "run_nonfinite"]

INDICES = frozenset({"argmax", "top_k"})
"""The ops whose results are indices, for which a NaN is larger than all numbers."""

AS_NUMPY = frozenset("eq ne lt le gt ge isnan isinf isfinite any all argmin topk".split())
"""The ops whose results for a NaN are NumPy's: 1 or 0, an index, or the NaN as the largest."""

WHOLE = frozenset({"floor_divide", "remainder"})
"""The ops of whole numbers, which are neither NaN nor infinite."""

_ZERO_WEIGHT = "a weight that is 0 hides the element or makes NaN of it"
INFINITE = {
    "gelu": "0 at -inf, the limit, where the formula has 0 · inf",
    "gelu_quick": "likewise",
    "geglu": "likewise",
    "geglu_quick": "likewise",
    "pow": "NaN for fractions of -inf, as for those of all negative numbers",
    "diag": "the reference multiplies by 0",
    "upscale": _ZERO_WEIGHT,
    "interpolate": _ZERO_WEIGHT,
    "conv_2d_dw": _ZERO_WEIGHT,
    "flash_attn_ext": "an infinite score is the maximum, or hides what lies before it",
    "einsum": "the order of the sums decides between an infinity and NaN",
}
"""The ops with another result than NumPy's for an infinite element, and why."""

# A gradient goes to the NaN, as to the largest element of a window or row: no gradient is NaN.
_BY_INDEX = frozenset("pool_1d pool_2d max min amax amin topk vector_norm-inf".split())


def _run(case: Case, arrays: list[Array], where: Device) -> tuple[Array, list[Array]]:
    """The result and the gradients of a weighted sum of it."""
    leaves = [tensor(x, "f32", where) for x in arrays]
    wanted = range(len(arrays)) if case.grad is None else case.grad
    for i in wanted:
        leaves[i].requires_grad = True
    out = case.run(*leaves)
    if wanted:
        weight = np.random.default_rng(2).uniform(0.5, 1.5, out.shape)
        (out.astype("f32") * tensor(weight, "f32", where)).sum().backward()
    grads = (leaves[i].grad for i in wanted)
    return out.numpy().astype(np.float64), [g.numpy() for g in grads if g is not None]


def _spread(got: Array, before: Array, depends: Array) -> str:
    """Return the fault of a result whose elements `depends` must be NaN, or ""."""
    nan = np.isnan(got)
    if (depends & ~nan).any():
        return f"{(depends & ~nan).sum()} of {depends.sum()} dependent elements are not NaN"
    changed = ~depends & ~nan & (got != before)
    return f"{changed.sum()} elements changed that do not depend on it" if changed.any() else ""


def run_nonfinite(case: Case, where: Device) -> list[str]:
    """Run a row with NaN, inf and -inf as the middle element of each operand; return the faults."""
    if case.name in WHOLE:
        return []
    variant = f"{case.name}-{case.variant}" if case.variant else case.name
    arrays = case.operands(1)
    before, grads = _run(case, arrays, where)
    plain = case.reference(*arrays)
    faults = []
    with np.errstate(all="ignore"):
        for k, x in enumerate(arrays):
            at = np.unravel_index(x.size // 2, x.shape)

            def put(value: float, k: int = k, at: tuple[np.intp, ...] = at) -> list[Array]:
                moved = [a.copy() for a in arrays]
                moved[k][at] = value
                return moved

            depends = np.zeros(before.shape, bool)
            by_grad = [np.zeros(g.shape, bool) for g in grads]
            for value in (case.low, case.high, 0.6 * case.high + 0.4 * case.low):
                depends |= case.reference(*put(value)) != plain
                found = _run(case, put(value), where)[1]
                by_grad = [d | (g != old) for d, g, old in zip(by_grad, found, grads, strict=True)]
            got, found = _run(case, put(np.nan), where)
            if case.name in INDICES:
                index = got.reshape(len(x), -1)[at[0], 0]
                wrong = "" if index == at[1] else f"index {index:.0f} instead of the NaN's"
            elif case.name in AS_NUMPY:
                same = np.array_equal(got, case.reference(*put(np.nan)), equal_nan=True)
                wrong = "" if same else "not NumPy's result"
            else:
                wrong = _spread(got, before, depends)
            faults += [f"operand {k} NaN: {wrong}"] if wrong else []
            for i, (g, old, d) in enumerate(zip(found, grads, by_grad, strict=True)):
                wrong = "" if {case.name, variant} & _BY_INDEX else _spread(g, old, d)
                faults += [f"operand {k} NaN, gradient {i}: {wrong}"] if wrong else []
            if case.name in INFINITE:
                continue
            for value in (np.inf, -np.inf):
                got, want = _run(case, put(value), where)[0], case.reference(*put(value))
                if not np.allclose(got, want, rtol=1e-3, atol=1e-3, equal_nan=True):
                    faults.append(f"operand {k} {value}: another result than NumPy's")
    return faults
