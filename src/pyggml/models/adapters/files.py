# SPDX-License-Identifier: MIT
"""LoRA adapters in files of their own: GGUF, as llama.cpp applies it, and PEFT's folders."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ... import checks, nn
from ...backend.device import alone
from ...errors import FormatError, shown
from ...io import GGUFFile, f32, read_gguf, write_gguf
from ...nn.lora import (
    Factors,
    LoRALayer,
    adapt,
    combine_lora,
    layers_of,
    lora_class,
    need_adapters,
    need_no_adapters,
)
from ..base import Model
from ..files import check_tensor
from ..metadata import base_model
from .origin import check_base, sample_base
from .peft import CONFIG, read_peft, write_peft

__all__ = ["load_lora", "save_lora"]

_ALPHA = "adapter.lora.alpha"
# What must be so for llama.cpp to take the file, and here.
_KINDS = {"general.type": "adapter", "adapter.type": "lora"}
# An adapter that is to work only after certain tokens; plain LoRA would be something else.
_INVOCATION = "adapter.alora.invocation_tokens"


def save_lora(model: Model, path: str | os.PathLike[str], name: str | None = None) -> None:
    """Write a model's adapters alone: a GGUF file for llama.cpp, or a folder for PEFT.

    What a weight gave up when training began (PiSSA) is subtracted: the file has twice the rank and
    is for the model as it was before. An adapter that began as what rounding took (LoftQ) is for
    the quantised model in a GGUF file, and in a folder, likewise at twice the rank, for the one
    before rounding.

    Args:
        model: with adapters, as `nn.apply_lora` or `load_lora` leaves it.
        path: a GGUF file, `*.gguf`, which llama.cpp applies to the base model; or a folder, which
            PEFT's `PeftModel.from_pretrained` opens.
        name: the adapter's name, for people, in a GGUF file.

    Raises:
        TypeError: model is no `Model`.
        ValueError: it has no adapters, or llama.cpp or PEFT has no such ones: those of DoRA, of
            convolutions, of a table that is the head, too, and of weights that were rounded again
            have no place in a GGUF file; those of experts, but for Mixtral's, none in a folder.
        OSError: a file cannot be written.

    Source: llama_adapter_lora_init of llama.cpp (src/llama-adapter.cpp); PEFT's LoraConfig.

    Example:
        >>> _ = nn.apply_lora(model, rank=2, targets="all-linear")
        >>> save_lora(model, "adapter.gguf")
    """
    _need_model("save_lora", model)
    found = need_adapters("save_lora", model)
    target = checks.path("save_lora", "path", path)
    folder = target.suffix != ".gguf"
    if not folder:
        _check_gguf(model, found)
    with alone():  # between two steps of a training
        adapters = {path: _difference(layer, path, folder) for path, layer in found.items()}
        parameters = dict(model.named_parameters())
        whole = {name: parameters[name].numpy()
                 for name in (f"{path}.weight" for path in model.saved_whole)}  # fmt: skip
    if folder:
        write_peft(target, model, found, adapters, whole)
        return
    # llama.cpp has one alpha for all, and divides it by each adapter's rank.
    ranks = {path: found[path].split(each.a, each.b)[0].shape[-1]
             for path, each in adapters.items()}  # fmt: skip
    first = next(iter(found))
    alpha = adapters[first].scale * ranks[first]
    metadata: dict[str, Any] = {
        "general.architecture": model.gguf_arch,
        **_KINDS,
        "general.name": name or f"pyggml LoRA for {model.arch}",
        **base_model(model.metadata),
        _ALPHA: f32(alpha),
        **sample_base(model),
    }
    tensors: dict[str, np.ndarray] = {}
    for layer_path, own in adapters.items():
        there = model.gguf_name(f"{layer_path}.weight")
        tensors[f"{there}.lora_a"] = own.a
        # Its rows are those of the weight, which the file may have in another order.
        b = own.b if own.b.ndim == 3 else _turned(model, layer_path, found, own.b)
        share = own.scale * ranks[layer_path] / alpha
        tensors[f"{there}.lora_b"] = b if share == 1.0 else np.float32(share) * b
    write_gguf(path, metadata, tensors)


def _turned(model: Model, path: str, found: Mapping[str, LoRALayer], b: np.ndarray) -> np.ndarray:
    """Return B with its rows in the file's order; those of an embedding are its columns."""
    if isinstance(found[path], nn.Embedding):
        return b
    layout = model.gguf_layout(f"{path}.weight", b, reading=False)
    return np.ascontiguousarray(layout).reshape(b.shape)


def _check_gguf(model: Model, found: Mapping[str, LoRALayer]) -> None:
    """Raise for adapters that llama.cpp does not apply."""
    if model.saved_whole:
        raise ValueError(
            f"save_lora: llama.cpp's adapters have no place for {', '.join(model.saved_whole)}, "
            "which is trained whole: merge the adapter, and save the model; or write a folder for "
            "PEFT"
        )
    head, cure = getattr(model, "head_weight", None), "merge the adapter, and save the model"
    for path, layer in found.items():
        what = None
        if layer.lora_magnitude_vector is not None:
            what = "of DoRA"
        elif isinstance(layer, nn.Conv2d):
            what = "of a convolution"
        elif isinstance(layer, nn.Embedding) and layer.weight is head:
            what = "of a table that is the head, too"
        if what is not None:
            raise ValueError(
                f"save_lora: llama.cpp applies no adapter {what}; got {path}: {cure}; or write a "
                "folder for PEFT"
            )


def _difference(layer: LoRALayer, path: str, folder: bool) -> Factors:
    """Return the numbers of an adapter for the model that has the file's base."""
    a, b = layer.lora_A.weight.numpy(), layer.lora_B.weight.numpy()
    vector = layer.lora_magnitude_vector
    magnitude = None if vector is None else vector.weight.numpy()
    loftq = layer.weight.dtype.quantized and not layer.base_rounded
    if layer.initial is None or (loftq and not folder):
        return Factors(a, b, layer.scale, magnitude)
    cure = "merge the adapter, and save the model"
    if magnitude is not None:
        raise ValueError(
            f"save_lora: an adapter of DoRA on a weight that gave up a part cannot be written; got "
            f"{path}: {cure}"
        )
    if layer.base_rounded and not folder:
        raise ValueError(
            f"save_lora: the weight of {path} was rounded again when training began, and no file "
            f"has it: {cure}; or write a folder for PEFT, for the model before rounding"
        )
    left, right = layer.split(a, b)
    first, second = layer.split(*layer.initial)
    both = np.concatenate([left, -first], axis=-1), np.concatenate([right, second], axis=-2)
    new_a, new_b = layer.join(*both, layer.weight.shape)
    return Factors(np.ascontiguousarray(new_a), np.ascontiguousarray(new_b), layer.scale)


def load_lora(
    model: Model,
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    dropout: float | None = None,
    *,
    weights: Sequence[float] | None = None,
    combination_type: str = "cat",
) -> list[str]:
    """Put the adapters of a file or folder beside a model's layers, and freeze all else.

    Args:
        model: the base model, changed in place.
        path: a GGUF file of `save_lora` or of llama.cpp's convert_lora_to_gguf.py; or a folder of
            `save_lora` or PEFT, with `adapter_config.json`; or several of these, which become one
            adapter.
        dropout: probability that an element of an adapter's input is dropped while training; None
            is the folder's, and 0 for a file, which does not tell.
        weights: factor of each adapter; None is 1 for each.
        combination_type: of several adapters, or of one with a weight: "cat", "svd" or "linear", as
            in PEFT; see `nn.lora.combine_lora`.

    Returns:
        The paths of the layers that were adapted.

    Raises:
        TypeError: model is no `Model`.
        ValueError: it has adapters already, dropout is no probability, weights are not one for each
            adapter, or the adapters cannot be combined.
        FormatError: the file is no adapter, is damaged, or is one of another model, by its shapes
            or by its sample of the base's weights: names the file, the field or tensor, and the
            cause. The model is as it was then.

    Example:
        >>> paths = nn.apply_lora(model, rank=2, targets="all-linear")
        >>> save_lora(model, "adapter.gguf")
        >>> _ = nn.remove_lora(model)
        >>> load_lora(model, "adapter.gguf") == paths
        True
        >>> _ = nn.remove_lora(model)
        >>> load_lora(model, ["adapter.gguf", "adapter.gguf"], weights=[0.5, 0.5]) == paths
        True
        >>> _ = nn.merge_lora(model)
    """
    _need_model("load_lora", model)
    need_no_adapters("load_lora", model)
    if dropout is not None:
        nn.Dropout(dropout)
    several = not isinstance(path, (str, os.PathLike))
    paths: Sequence[Any] = checks.items("load_lora", "path", path) if several else [path]
    read = [_read_adapters(each, model) for each in paths]
    adapters = read[0][0] if read else {}
    whole = read[0][2] if read else {}
    if several and any(each[2] for each in read):
        raise ValueError(
            f"load_lora: one adapter alone may bring {', '.join(model.saved_whole)}; got "
            f"{len(read)} adapters: give that one"
        )
    if several or weights is not None:
        shares = [1.0] * len(read) if weights is None else weights
        layers = layers_of(model)
        adapters = combine_lora(layers, [each for each, _, _ in read], shares, combination_type)
    trained_with = max((p for _, p, _ in read), default=0.0)
    numbers = {}
    for layer_path, own in adapters.items():
        kind = lora_class(layers_of(model)[layer_path])
        assert kind is not None
        rank = kind.split(own.a, own.b)[0].shape[-1]
        numbers[layer_path] = (rank, own.scale * rank)
    dora = any(own.magnitude is not None for own in adapters.values())
    with alone():  # other threads compute with all adapters, or with none
        model.freeze()
        adapt(model, numbers, trained_with if dropout is None else dropout, use_dora=dora)
        model.trained = True
        made = need_adapters("load_lora", model)
        for layer_path, own in adapters.items():
            layer = made[layer_path]
            layer.lora_A.weight.copy_(own.a)
            layer.lora_B.weight.copy_(own.b)
            if own.magnitude is not None and layer.lora_magnitude_vector is not None:
                layer.lora_magnitude_vector.weight.copy_(own.magnitude)
        parameters = dict(model.named_parameters())
        for name, array in whole.items():
            parameters[name].copy_(array)
            parameters[name].requires_grad = True
    return list(adapters)


def _read_adapters(
    path: Any, model: Model
) -> tuple[dict[str, Factors], float, dict[str, np.ndarray]]:
    """Return a file's or folder's adapters by path, their dropout, and whole weights."""
    given = checks.path("load_lora", "path", path)
    if given.is_dir() or given.name == CONFIG:
        return read_peft(given if given.is_dir() else given.parent, model)
    with read_gguf(given) as file:
        alpha = _check_metadata(file, model)
        pairs = _read_pairs(file, model, alpha)
        check_base(f"load_lora: {file.path}", model, file.metadata)
        return pairs, 0.0, {}


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


def _read_pairs(file: GGUFFile, model: Model, alpha: float | None) -> dict[str, Factors]:
    """The numbers of each layer, by its path; all are checked before one is returned."""
    plain = {path: m for path, m in layers_of(model).items() if not isinstance(m, nn.Conv2d)}
    layers = {model.gguf_name(f"{path}.weight"): path for path in plain}
    pairs: dict[str, Factors] = {}
    for name in file.tensors:
        base, _, part = name.rpartition(".")
        what = f"load_lora: {file.path}: tensor {name}"
        if part not in ("lora_a", "lora_b"):
            raise FormatError(f"{what} must end in .lora_a or .lora_b: others are not supported")
        other = f"{base}.{'lora_b' if part == 'lora_a' else 'lora_a'}"
        if other not in file.tensors:
            raise FormatError(f"{what} has no {other} beside it")
        if base not in layers:
            raise FormatError(
                f"{what} is of no layer of the model that takes adapters: is it another model's?"
            )
        if part == "lora_b":
            continue
        path = layers[base]
        layer, kind = plain[path], lora_class(plain[path])
        assert kind is not None
        given = file.tensors[name].shape
        axes = layer.weight.ndim
        given = (1,) * (axes - len(given)) + tuple(given)  # GGUF keeps no leading ones
        rank = given[0 if isinstance(layer, nn.Linear) else 1]
        try:
            kind.check(what, layer, rank, path)
        except ValueError as error:
            raise FormatError(str(error)) from None
        a, b = kind.shapes(layer, rank)
        left, right = _read(file, name, a), _read(file, other, b)
        if isinstance(layer, nn.Linear):
            right = _in_order(model, f"{path}.weight", right)
        pairs[path] = Factors(left, right, 1.0 if alpha is None else alpha / rank)
    if not pairs:
        raise FormatError(f"load_lora: {file.path}: must hold adapters; it has no tensor")
    return {path: pairs[path] for path in layers.values() if path in pairs}


def _read(file: GGUFFile, name: str, shape: tuple[int, ...]) -> np.ndarray:
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
