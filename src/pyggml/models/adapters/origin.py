# SPDX-License-Identifier: MIT
"""Samples of a base's weights in an adapter's file, by which another base is found out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import ops
from ...errors import FormatError, shown
from ...nn.lora import LoRALayer
from ...nn.lora.likeness import LEAST_LIKENESS, likeness
from ...tensors import Tensor, tensor

__all__ = ["SAMPLE", "check_base", "sample_base"]

SAMPLE = "pyggml.base.sample."
_MATRICES, _ROWS, _COLUMNS = 4, 16, 32
_COUNT = _ROWS * _COLUMNS


def sample_base(model: Any) -> dict[str, np.ndarray]:
    """Return a few numbers of some matrices of an adapted model's base, by their keys in a file."""
    frozen = {
        f"{path}.weight": module.weight
        for path, module in model.named_modules()
        if _is_frozen(module) and path not in model.saved_whole
    }
    names = sorted(frozen)
    chosen = {names[i] for i in np.linspace(0, len(names) - 1, _MATRICES, dtype=int)[: len(names)]}
    return {f"{SAMPLE}{name}": _numbers(frozen[name]) for name in sorted(chosen)}


def _is_frozen(module: Any) -> bool:
    """Return True for a module with a matrix that is as it was before the training."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.requires_grad:
        return False
    changed = isinstance(module, LoRALayer) and module.initial is not None
    return not changed or (weight.dtype.quantized and not module.base_rounded)


def _numbers(weight: Tensor) -> np.ndarray:
    """Return numbers of rows and columns at equal distances."""
    rows = np.linspace(0, weight.shape[0] - 1, _ROWS, dtype=np.int32)
    columns = np.linspace(0, weight.shape[1] - 1, _COLUMNS, dtype=int)
    found = ops.get_rows(weight, tensor(rows, device=weight.device)).numpy()
    return np.asarray(found[:, columns], np.float32).reshape(-1)


def check_base(what: str, model: Any, samples: Mapping[str, Any]) -> None:
    """Raise for an adapter of another base, whatever its shapes and types.

    Args:
        what: the function and the file, for messages.
        model: without adapters.
        samples: of a file's metadata, by key; other keys are left out, and so are matrices that
            the model has not.

    Raises:
        FormatError: a sample is none, or the adapter was trained on another base.
    """
    weights = {f"{SAMPLE}{path}.weight": getattr(m, "weight", None)
               for path, m in model.named_modules()}  # fmt: skip
    found: dict[str, float] = {}
    for key, value in samples.items():
        if not key.startswith(SAMPLE):
            continue
        try:
            array = np.asarray(value)
        except ValueError:  # ragged
            array = np.empty(0)
        if array.shape != (_COUNT,) or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise FormatError(f"{what}: {key} must be {_COUNT} numbers; got {shown(value)}")
        weight = weights.get(key)
        if isinstance(weight, Tensor) and weight.ndim == 2:
            alike = likeness(array, _numbers(weight))
            if alike is not None:
                found[key] = alike
    if found and float(np.median(list(found.values()))) < LEAST_LIKENESS:
        key = min(found, key=found.__getitem__)
        raise FormatError(
            f"{what}: {key} must be of the model's weights; they correlate by {found[key]:.2f}, "
            f"and by {LEAST_LIKENESS} or more where the base is the same, in any type: the adapter "
            "is for another base; load that one"
        )
