# SPDX-License-Identifier: MIT
"""Merging adapters into the weights, removing them, and copying their matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike

from ...backend.dtypes import as_dtype
from ...errors import DTypeError, ShapeError
from ...tensors import Tensor
from ..module import Module, check_names
from ..swap import swap_modules
from .apply import need_adapters
from .layer import LoRALinear

__all__ = ["load_lora_state_dict", "lora_state_dict", "merge_lora", "remove_lora"]


def merge_lora(model: Module, dtype: str | None = None) -> list[str]:
    """Add adapters to their weights: weight + scale * B @ A; plain layers replace them.

    A weight that is quantised is quantised again, which rounds what the adapter adds to the steps
    of its blocks: the model then differs from the one that was trained. `dtype="f32"` keeps all of
    it, at four bytes for each number of the adapted weights. The weights stay frozen. A weight that
    layers share is one for each of them afterwards.

    Args:
        model: changed in place.
        dtype: type of the merged weights; None is each weight's own.

    Returns:
        The paths of the layers.

    Raises:
        ValueError: the model has no adapters, or one is not finite; nothing has changed then.
        DTypeError: dtype is none of numbers, or the weights are not finite and dtype is quantised.
        ShapeError: rows are no whole blocks of dtype.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, targets="all-linear")
        >>> merge_lora(model), type(model[0]).__name__
        (['0'], 'Linear')
    """
    found = need_adapters("merge_lora", model)
    if dtype is not None:
        wanted = as_dtype(dtype)
        for path, layer in found.items():
            if layer.weight.shape[1] % wanted.block_size:
                raise ShapeError(
                    f"merge_lora: rows of {wanted.name} must be multiples of {wanted.block_size}; "
                    f"got {path} of shape {layer.weight.shape}: choose another dtype"
                )
    layers: dict[int, Module] = {}
    for path, layer in found.items():
        factors = (layer.lora_A.weight.numpy(), layer.lora_B.weight.numpy())
        if not all(np.isfinite(factor).all() for factor in factors):
            raise ValueError(
                f"merge_lora: adapters must be finite; that of {path} holds NaN or Inf"
            )
        if id(layer) not in layers:
            layers[id(layer)] = layer.merged(dtype)
    # Only now, when all of them could be made.
    swap_modules(model, layers.get)
    return list(found)


def remove_lora(model: Module) -> list[str]:
    """Remove adapters: the layers are as they were before, and frozen.

    Returns:
        The paths of the layers.

    Raises:
        ValueError: the model has no adapters.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, targets="all-linear")
        >>> remove_lora(model)
        ['0']
    """
    found = need_adapters("remove_lora", model)
    plain: dict[int, Module] = {id(layer): layer.plain() for layer in found.values()}
    swap_modules(model, plain.get)
    return list(found)


def _factors(found: Mapping[str, LoRALinear]) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of each matrix of adapters."""
    for path, layer in found.items():
        yield f"{path}.lora_A.weight", layer.lora_A.weight
        yield f"{path}.lora_B.weight", layer.lora_B.weight


def lora_state_dict(model: Module) -> dict[str, np.ndarray]:
    """Copy the adapters' matrices alone, as `PATH.lora_A.weight` and `PATH.lora_B.weight`.

    Raises:
        ValueError: the model has no adapters.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, rank=2, targets="all-linear")
        >>> {name: array.shape for name, array in lora_state_dict(model).items()}
        {'0.lora_A.weight': (2, 4), '0.lora_B.weight': (8, 2)}
    """
    found = need_adapters("lora_state_dict", model)
    return {name: value.numpy() for name, value in _factors(found)}


def load_lora_state_dict(model: Module, state: Mapping[str, ArrayLike]) -> None:
    """Overwrite the adapters' matrices; on an error nothing changes.

    Args:
        model: with adapters on the same layers, of the same rank.
        state: what `lora_state_dict` gave.

    Raises:
        KeyError: names are missing or unexpected.
        ShapeError: a matrix has another shape.
        ValueError: the model has no adapters.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, targets="all-linear")
        >>> load_lora_state_dict(model, lora_state_dict(model))
    """
    who = "load_lora_state_dict"
    own = dict(_factors(need_adapters(who, model)))
    check_names(who, own, state)
    arrays = {name: np.asarray(state[name]) for name in own}
    for name, array in arrays.items():
        if array.shape != own[name].shape:
            raise ShapeError(
                f"{who}: {name} must have the shape {own[name].shape}; got {array.shape}: the "
                "adapters are of another rank or model"
            )
        if array.dtype.kind not in "fiu":
            raise DTypeError(f"{who}: {name} must hold real numbers; got {array.dtype}")
    for name, array in arrays.items():
        own[name].copy_(array)
