# SPDX-License-Identifier: MIT
"""LoRA adapters in files of their own: GGUF, as llama.cpp applies it, and PEFT's folders."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from .. import checks, nn
from ..errors import FormatError, shown
from ..io import GGUFFile, f32, read_gguf, write_gguf
from ..nn.lora import adapt, check_rank, need_adapters, need_no_adapters
from .base import Model
from .files import check_tensor
from .metadata import base_model
from .peft import CONFIG, read_peft, write_peft

__all__ = ["load_lora", "save_lora"]

_ALPHA = "adapter.lora.alpha"
# What must be so for llama.cpp to take the file, and here.
_KINDS = {"general.type": "adapter", "adapter.type": "lora"}
# An adapter that is to work only after certain tokens; plain LoRA would be something else.
_INVOCATION = "adapter.alora.invocation_tokens"


def save_lora(model: Model, path: str | os.PathLike[str], name: str | None = None) -> None:
    """Write a model's adapters alone: a GGUF file for llama.cpp, or a folder for PEFT.

    Args:
        model: with adapters, as `nn.apply_lora` or `load_lora` leaves it.
        path: a GGUF file, `*.gguf`, which llama.cpp applies to the base model; or a folder, which
            PEFT's `PeftModel.from_pretrained` opens.
        name: the adapter's name, for people, in a GGUF file.

    Raises:
        TypeError: model is no `Model`.
        ValueError: it has no adapters.
        OSError: a file cannot be written.

    Source: llama_adapter_lora_init of llama.cpp (src/llama-adapter.cpp); PEFT's LoraConfig.

    Example:
        >>> _ = nn.apply_lora(model, rank=2, targets="all-linear")
        >>> save_lora(model, "adapter.gguf")
    """
    _need_model("save_lora", model)
    found = need_adapters("save_lora", model)
    target = checks.path("save_lora", "path", path)
    if target.suffix != ".gguf":
        write_peft(target, model, found)
        return
    # llama.cpp has one alpha for all, and divides it by each adapter's rank.
    first = next(iter(found.values()))
    alpha = first.scale * first.rank
    metadata: dict[str, Any] = {
        "general.architecture": model.gguf_arch,
        **_KINDS,
        "general.name": name or f"pyggml LoRA for {model.arch}",
        **base_model(model.metadata),
        _ALPHA: f32(alpha),
    }
    tensors: dict[str, np.ndarray] = {}
    for layer_path, layer in found.items():
        own = f"{layer_path}.weight"
        there = model.gguf_name(own)
        tensors[f"{there}.lora_a"] = layer.lora_A.weight.numpy()
        b = layer.lora_B.weight.numpy()
        # Its rows are those of the weight, which the file may have in another order.
        b = np.ascontiguousarray(model.gguf_layout(own, b, reading=False)).reshape(b.shape)
        share = layer.scale * layer.rank / alpha
        tensors[f"{there}.lora_b"] = b if share == 1.0 else np.float32(share) * b
    write_gguf(path, metadata, tensors)


def load_lora(
    model: Model, path: str | os.PathLike[str], dropout: float | None = None
) -> list[str]:
    """Put the adapters of a file or folder beside a model's layers, and freeze all else.

    Args:
        model: the base model, changed in place.
        path: a GGUF file of `save_lora` or of llama.cpp's convert_lora_to_gguf.py; or a folder of
            `save_lora` or PEFT, with `adapter_config.json`.
        dropout: probability that an element of an adapter's input is dropped while training; None
            is the folder's, and 0 for a file, which does not tell.

    Returns:
        The paths of the layers that were adapted.

    Raises:
        TypeError: model is no `Model`.
        ValueError: it has adapters already, or dropout is no probability.
        FormatError: the file is no adapter, is damaged, or is one of another model: names the file,
            the field or tensor, and the cause. The model is as it was then.

    Example:
        >>> paths = nn.apply_lora(model, rank=2, targets="all-linear")
        >>> save_lora(model, "adapter.gguf")
        >>> _ = nn.remove_lora(model)
        >>> load_lora(model, "adapter.gguf") == paths
        True
        >>> _ = nn.merge_lora(model)
    """
    _need_model("load_lora", model)
    need_no_adapters("load_lora", model)
    if dropout is not None:
        nn.Dropout(dropout)
    given = checks.path("load_lora", "path", path)
    if given.is_dir() or given.name == CONFIG:
        adapters, trained_with = read_peft(given if given.is_dir() else given.parent, model)
        dropout = trained_with if dropout is None else dropout
    else:
        with read_gguf(given) as file:
            alpha = _check_metadata(file, model)
            adapters = {
                layer: (a, b, 1.0 if alpha is None else alpha / a.shape[0])
                for layer, (a, b) in _read_pairs(file, model).items()
            }
    model.freeze()
    ranks = {path: (a.shape[0], scale * a.shape[0]) for path, (a, _, scale) in adapters.items()}
    adapt(model, ranks, dropout or 0.0)
    model.trained = True
    made = need_adapters("load_lora", model)
    for layer, (a, b, _) in adapters.items():
        made[layer].lora_A.weight.copy_(a)
        made[layer].lora_B.weight.copy_(b)
    return list(adapters)


def _need_model(who: str, model: Any) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"{who}: model must be a Model of pyggml.models; got {model!r:.60}")


def _check_metadata(file: GGUFFile, model: Model) -> float | None:
    """Return alpha; None if the file has none, and the adapters' scale is 1."""
    wanted = {**_KINDS, "general.architecture": model.gguf_arch}
    for key, value in wanted.items():
        got = file.metadata.get(key)
        if not isinstance(got, str) or got != value:
            raise FormatError(f"load_lora: {file.path}: {key} must be {value!r}; got {shown(got)}")
    if _INVOCATION in file.metadata:
        raise FormatError(
            f"load_lora: {file.path}: {_INVOCATION} is there: an adapter that works only after "
            "certain tokens is not supported"
        )
    alpha = file.metadata.get(_ALPHA, 0.0)
    number = isinstance(alpha, float) and math.isfinite(alpha)
    if not number or alpha < 0:
        raise FormatError(
            f"load_lora: {file.path}: {_ALPHA} must be a finite f32 of at least 0; got {alpha!r}"
        )
    return alpha or None


def _read_pairs(file: GGUFFile, model: Model) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A and B of each layer, by its path; all are checked before one is returned."""
    layers = {
        model.gguf_name(f"{path}.weight"): path
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }
    heads = nn.lora.heads_of(model)
    pairs: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    modules: dict[str, Any] = dict(model.named_modules())
    for name in file.tensors:
        base, _, part = name.rpartition(".")
        what = f"load_lora: {file.path}: tensor {name}"
        if part not in ("lora_a", "lora_b"):
            raise FormatError(f"{what} must end in .lora_a or .lora_b: others are not supported")
        other = f"{base}.{'lora_b' if part == 'lora_a' else 'lora_a'}"
        if other not in file.tensors:
            raise FormatError(f"{what} has no {other} beside it")
        if base not in layers or layers[base] in heads:
            why = "is of the head, which cannot be adapted" if base in layers else "is of no linear"
            raise FormatError(f"{what} {why} layer of the model: is it another model's adapter?")
        if part == "lora_b":
            continue
        path = layers[base]
        out, inside = modules[path].weight.shape
        shape = file.tensors[name].shape
        rank = shape[0] if len(shape) == 2 else 1
        try:
            check_rank(what, rank, (out, inside), path)
        except ValueError as error:
            raise FormatError(str(error)) from None
        pairs[path] = (
            _read(file, name, (rank, inside)),
            _in_order(model, f"{path}.weight", _read(file, other, (out, rank))),
        )
    if not pairs:
        raise FormatError(f"load_lora: {file.path}: must hold adapters; it has no tensor")
    return {path: pairs[path] for path in layers.values() if path in pairs}


def _read(file: GGUFFile, name: str, shape: tuple[int, int]) -> np.ndarray:
    """A matrix of an adapter as f32."""
    check_tensor(file, name, shape)
    values = np.array(file.array(name, dequantise=True), np.float32).reshape(shape)
    if not np.isfinite(values).all():
        raise FormatError(
            f"load_lora: {file.path}: tensor {name} must hold finite numbers; got NaN or infinity"
        )
    return values


def _in_order(model: Model, own: str, b: np.ndarray) -> np.ndarray:
    """Return B with its rows in the order of the model's weight."""
    return np.ascontiguousarray(model.gguf_layout(own, b, reading=True)).reshape(b.shape)
