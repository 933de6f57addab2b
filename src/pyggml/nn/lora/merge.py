# SPDX-License-Identifier: MIT
"""Merging adapters into the weights, removing them, and copying their matrices."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...backend.device import alone
from ...backend.dtypes import as_dtype
from ...errors import DTypeError, ShapeError
from ...tensors import Tensor
from ..base import check_names, load_state
from ..module import Module
from ..swap import swap_modules
from .apply import need_adapters
from .layer import LoRALayer

__all__ = ["load_lora_state_dict", "lora_state_dict", "merge_lora", "remove_lora"]

_log = logging.getLogger("pyggml.nn")


def merge_lora(
    model: Module,
    dtype: str | None = None,
    importance: Mapping[str, np.ndarray] | None = None,
) -> list[str]:
    """Add adapters to their weights: weight + scale * B @ A; plain layers replace them.

    A weight that is quantised is quantised again, which rounds what the adapter adds to the steps
    of its blocks: the model then differs from the one that was trained. Where rounding changes the
    weights as much as the adapter did, a warning says so, with the figures. `dtype="f32"` keeps all
    of it, at four bytes for each number of the adapted weights. The weights stay frozen. A weight
    that layers share is one for each of them afterwards; a head that is an embedding's table stays
    the table. A training in another thread waits meanwhile; its next step raises `GradientError`,
    as the model no longer has what it trains.

    Args:
        model: changed in place.
        dtype: type of the merged weights; None is each weight's own.
        importance: weight of the squared error of each column, by the layer's path, as
            `Importance.by_path` of `pyggml.models.quantization` gives them; the others have the
            quantiser's own.

    Returns:
        The paths of the layers.

    Raises:
        ValueError: the model has no adapters, or one is not finite; nothing has changed then.
        DTypeError: dtype is none of numbers, or the weights are not finite and dtype is quantised.
        ShapeError: rows are no whole blocks of dtype, or an importance has another width.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, targets="all-linear")
        >>> merge_lora(model), type(model[0]).__name__
        (['0'], 'Linear')
    """
    with alone():  # all adapters are of one step of a training
        found, noise = _merge("merge_lora", model, dtype, importance)
    _warn(found, noise)
    return list(found)


def _merge(
    who: str, model: Module, dtype: str | None, importance: Mapping[str, np.ndarray] | None
) -> tuple[dict[str, LoRALayer], dict[str, float]]:
    """Merge adapters; return their layers, and what rounding did to each."""
    found = need_adapters(who, model)
    weights = {} if importance is None else checks.mapping(who, "importance", importance)
    wanted = None if dtype is None else as_dtype(dtype)
    for path, layer in found.items():
        shape = layer.weight.shape
        if wanted is not None and shape[-1] % wanted.block_size:
            raise ShapeError(
                f"{who}: rows of {wanted.name} must be multiples of {wanted.block_size}; "
                f"got {path} of shape {shape}: choose another dtype"
            )
        columns = shape[-1] * (shape[0] if len(shape) == 3 else 1)
        if path in weights and np.size(weights[path]) != columns:
            raise ShapeError(
                f"{who}: importance must have {columns} values for {path}; got "
                f"{np.size(weights[path])}: it is another model's"
            )
    layers: dict[int, Module] = {}
    noise: dict[str, float] = {}
    for path, layer in found.items():
        if not all(np.isfinite(factor.numpy()).all() for factor in layer.factors().values()):
            raise ValueError(f"{who}: adapters must be finite; that of {path} holds NaN or Inf")
        if id(layer) not in layers:
            layers[id(layer)], noise[path] = layer.merged(dtype, weights.get(path))
    # Only now, when all of them could be made.
    swap_modules(model, layers.get)
    return found, noise


def _warn(found: Mapping[str, LoRALayer], noise: Mapping[str, float]) -> None:
    """Say where rounding changed the weights as much as the adapter did."""
    lost = [path for path, share in noise.items() if share >= 1.0]
    if lost:
        worst = max(lost, key=lambda path: noise[path])
        _log.warning(
            "merge_lora: rounding changed the weights more than the adapter did in %d of %d layers,"
            " most in %s, %.1f times as much: the merged model may not have what was learnt; merge"
            ' into a wider type, such as dtype="q8_0", or keep the adapter beside the base',
            len(lost), len(found), worst, noise[worst],
        )  # fmt: skip


def remove_lora(model: Module) -> list[str]:
    """Remove adapters: the layers are as they were before, and frozen.

    A weight that gave a part of itself up when training began (PiSSA) stays without that part.

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
    with alone():  # other threads compute with all adapters, or with none
        found = need_adapters("remove_lora", model)
        plain: dict[int, Module] = {id(layer): layer.plain() for layer in found.values()}
        swap_modules(model, plain.get)
    return list(found)


def _factors(found: Mapping[str, LoRALayer]) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of each matrix of adapters."""
    for path, layer in found.items():
        for name, value in layer.factors().items():
            yield f"{path}.{name}", value


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
    with alone():  # between two steps of a training
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
    with alone():  # other threads compute with all of it, or with none
        load_state(who, own, arrays, True)
