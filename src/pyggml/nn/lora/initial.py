# SPDX-License-Identifier: MIT
"""Adapters that begin as the largest parts of a weight (PiSSA), or of its rounding (LoftQ)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ShapeError, shown
from .. import init
from ..module import Module
from .kinds import LoRAEmbedding
from .layer import LoRALayer, encoded, replace_frozen, uniform_within
from .likeness import LEAST_LIKENESS, likeness

__all__ = ["check_start", "original_weights", "start"]

_NITER = re.compile(r"pissa_niter_(\d{1,3})")
Originals = Module | Mapping[str, Any] | None


def check_start(who: str, chosen: Any) -> str | bool:
    """Return `init_lora_weights` if it is known."""
    named = isinstance(chosen, str) and (
        chosen in ("gaussian", "pissa", "loftq") or _NITER.fullmatch(chosen)
    )
    if not named and not isinstance(chosen, bool):
        raise ValueError(
            f'{who}: init_lora_weights must be True, False, "gaussian", "pissa", '
            f'"pissa_niter_N" or "loftq"; got {shown(chosen)}'
        )
    return chosen  # type: ignore[no-any-return]


def original_weights(
    who: str, chosen: str | bool, modules: Mapping[str, Any], originals: Originals
) -> dict[str, np.ndarray]:
    """Return the weights before rounding of the layers to adapt, where a start needs them.

    Raises:
        ValueError: a quantised weight has no original or another model's, or loftq was asked for
            where none is.
        ShapeError: an original has another shape.
    """
    if not isinstance(originals, (Module, Mapping, type(None))):
        raise TypeError(
            f"{who}: originals must be a Module or arrays by path; got {type(originals).__name__}"
        )
    if chosen in (True, False, "gaussian"):
        if originals is not None:
            raise ValueError(
                f'{who}: originals are for init_lora_weights="pissa" or "loftq"; got {chosen!r}'
            )
        return {}
    there: Mapping[str, Any] = {}
    if isinstance(originals, Module):
        there = {path: getattr(m, "weight", None) for path, m in originals.named_modules()}
    elif originals is not None:
        there = originals
    found: dict[str, np.ndarray] = {}
    for path, module in modules.items():
        weight, given = module.weight, there.get(path, there.get(f"{path}.weight"))
        if not weight.dtype.quantized and chosen == "loftq":
            continue  # nothing was rounded: it begins at zero
        if given is None and weight.dtype.quantized:
            raise ValueError(
                f"{who}: init_lora_weights={chosen!r} on a quantised weight needs the one before "
                f"rounding, and originals have none for {path}: give originals, the f32 model"
            )
        values = weight.numpy() if given is None else given
        values = np.asarray(values.numpy() if hasattr(values, "numpy") else values, np.float32)
        if values.shape != weight.shape:
            raise ShapeError(
                f"{who}: originals must have {path} of shape {weight.shape}; got {values.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{who}: originals must be finite; {path} holds NaN or Inf")
        alike = None if given is None else likeness(values, weight.numpy())
        if alike is not None and alike < LEAST_LIKENESS:
            raise ValueError(
                f"{who}: originals must be the model's weights before rounding; {path} correlates "
                f"by {alike:.2f} with the weight, and by {LEAST_LIKENESS} or more if it is: give "
                "those that the model was quantised from"
            )
        found[path] = values
    if not found and chosen == "loftq":
        raise ValueError(
            f'{who}: init_lora_weights="loftq" takes up the rounding of quantised weights; the '
            'targets have none: give "pissa" or True'
        )
    return found


def start(layer: LoRALayer, chosen: str | bool, original: np.ndarray | None, rounds: int) -> None:
    """Set an adapter's first numbers.

    Args:
        layer: an adapter that was just made.
        chosen: see `apply_lora`.
        original: the weight before rounding, for PiSSA and LoftQ.
        rounds: of LoftQ.
    """
    a, b = layer.lora_A.weight, layer.lora_B.weight
    if chosen is True or (chosen == "loftq" and original is None):
        return
    if chosen is False or chosen == "gaussian":
        # As in PEFT: "gaussian" has the deviation 1 / rank, and False leaves nothing at zero.
        if isinstance(layer, LoRAEmbedding):
            if chosen is False:
                a.copy_(_normal(a.shape, 1.0))
        elif chosen == "gaussian":
            a.copy_(_normal(a.shape, 1.0 / layer.rank))
        else:
            b.copy_(uniform_within(b.shape, layer.rank))
        return
    assert original is not None
    if chosen == "loftq":
        factors = _loftq(layer, original, rounds)
    else:
        found = _NITER.fullmatch(str(chosen))
        factors = _largest(layer, original, int(found[1]) if found else None)
        _change_base(layer, original - layer.product(*factors))
    layer.initial = factors
    a.copy_(factors[0])
    b.copy_(factors[1])


def _loftq(layer: LoRALayer, original: np.ndarray, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Take up the difference from the original; from the second round on round what is left."""
    factors = _largest(layer, original - layer.weight.numpy(), None)
    for _ in range(rounds - 1):
        _change_base(layer, original - layer.product(*factors))
        factors = _largest(layer, original - layer.weight.numpy(), None)
    return factors


def _change_base(layer: LoRALayer, values: np.ndarray) -> None:
    """Give the frozen layer other numbers, in a tensor of its own."""
    dtype = layer.weight.dtype
    replace_frozen(layer, encoded(np.ascontiguousarray(values), dtype, layer.weight.device))
    layer.base_rounded = dtype.quantized
    if layer.lora_magnitude_vector is not None:
        layer.lora_magnitude_vector.set_base(layer.weight)


def _largest(
    layer: LoRALayer, values: np.ndarray, rounds: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return A and B whose scaled product is nearest to a weight's numbers."""
    matrix = values.reshape(len(values), -1) if values.ndim == 4 else values
    matrix = matrix.astype(np.float32)
    u, s, v = _svd(matrix, layer.rank, rounds)
    root = np.sqrt(s / np.float32(layer.scale))
    a, b = layer.join(u * root[..., None, :], root[..., :, None] * v, values.shape)
    return np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32)


def _svd(
    matrix: np.ndarray, rank: int, rounds: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the largest singular values and vectors; zeros beyond the matrix's own.

    With `rounds` they are found in a random subspace that so many products with the matrix turned
    towards them (Halko et al. 2009, arXiv:0909.4061, algorithm 4.4), which is faster.
    """
    if rounds is None:
        u, s, v = np.linalg.svd(matrix, full_matrices=False)
    else:
        turned = matrix.swapaxes(-1, -2)
        drawn = _normal((*matrix.shape[:-2], matrix.shape[-1], rank), 1.0)
        q = np.linalg.qr(matrix @ drawn)[0]
        for _ in range(rounds):
            q = np.linalg.qr(turned @ q)[0]
            q = np.linalg.qr(matrix @ q)[0]
        u, s, v = np.linalg.svd(q.swapaxes(-1, -2) @ matrix, full_matrices=False)
        u = q @ u
    u, s, v = u[..., :rank], s[..., :rank], v[..., :rank, :]
    lacking = rank - s.shape[-1]
    if lacking > 0:
        pad = [(0, 0)] * (matrix.ndim - 2)
        u = np.pad(u, [*pad, (0, 0), (0, lacking)])
        s = np.pad(s, [*pad, (0, lacking)])
        v = np.pad(v, [*pad, (0, lacking), (0, 0)])
    return u, s, v


def _normal(shape: tuple[int, ...], deviation: float) -> np.ndarray:
    """Normal numbers of pyggml's generator."""
    drawn = init.normal(deviation)((int(np.prod(shape[:-1])), shape[-1]))
    return np.asarray(drawn, np.float32).reshape(shape)
