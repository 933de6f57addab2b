# SPDX-License-Identifier: MIT
"""LoRA adapters in PEFT's folders: `adapter_config.json` and `adapter_model.safetensors`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import nn
from ..errors import FormatError, shown
from ..io import atomic_write, load_safetensors, make_dirs, save_safetensors
from ..nn.lora import Factors, LoRALayer, layers_of, lora_class
from .pretrained.fields import HFConfig, read_json

__all__ = ["CONFIG", "read_peft", "write_peft"]

CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_BASE = ".base_layer.weight"
_NAME = re.compile(
    r"(.+)\.lora_(A|B|embedding_A|embedding_B|magnitude_vector)(?:\.default)?(?:\.weight)?"
)
# What changes the result in a way that no adapter here computes; the first is the default.
_ONLY: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "lora_bias": (False,),
    "use_qalora": (False,),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "layer_replication": (None, []),
    # The others move a part of the base's weights into the adapter when training begins.
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    "ensure_weight_tying": (False, True),
}


def read_peft(folder: Path, model: Any) -> tuple[dict[str, Factors], float]:
    """Read the adapters of a PEFT folder for a model; all are checked before one is returned.

    Args:
        folder: with `adapter_config.json` and `adapter_model.safetensors`.
        model: the base.

    Returns:
        The numbers of each layer's adapter by its path, and the dropout of the training.

    Raises:
        FormatError: a file is damaged, or the adapter is none of LoRA, asks for more, or is another
            model's.
    """
    given = HFConfig(folder / CONFIG, read_json(folder / CONFIG))
    for key, values in _ONLY.items():
        given.only(key, *values)
    rank, alpha = given.size("r", 8), given.number("lora_alpha", 8.0)
    by_root, dora = given.flag("use_rslora", False), given.flag("use_dora", False)
    ranks, alphas = (_pattern(given, key) for key in ("rank_pattern", "alpha_pattern"))
    layers = layers_of(model)
    file = folder / _WEIGHTS
    if not file.is_file():
        raise FormatError(f"load_lora: {folder}: must hold {_WEIGHTS}; it has no such file")
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, array in load_safetensors(file).items():
        what = f"load_lora: {file}: tensor {name}"
        if name.endswith(_BASE):
            # PEFT writes the frozen table beside the adapter of an embedding or head.
            path = _path_of(name.removeprefix(_PREFIX).removesuffix(_BASE), layers)
            if path is not None and layers[path].weight.shape == array.shape:
                continue
        parts = _NAME.fullmatch(name)
        if parts is None:
            raise FormatError(f"{what} must end in .lora_A.weight, .lora_B.weight or another name "
                              "of LoRA; retrain without whole modules")  # fmt: skip
        path = _path_of(parts[1].removeprefix(_PREFIX), layers)
        if path is None:
            raise FormatError(
                f"{what} is of no layer of the model that takes adapters: is it another model's?"
            )
        if not np.isfinite(np.asarray(array, np.float32)).all():
            raise FormatError(f"{what} must hold finite numbers; got NaN or infinity")
        found.setdefault(path, {})[parts[2]] = np.asarray(array, np.float32)
    if not found:
        raise FormatError(f"load_lora: {file}: must hold adapters; it has no tensor")
    adapters: dict[str, Factors] = {}
    for path in (path for path in layers if path in found):
        own = int(_of(ranks, path, rank))
        what = f"load_lora: {file}: the adapter of {path}"
        kind, layer = lora_class(layers[path]), layers[path]
        assert kind is not None
        try:
            kind.check(what, layer, own, path)
        except ValueError as error:
            raise FormatError(str(error)) from None
        shapes = {part: array.shape for part, array in found[path].items()}
        wanted = _shapes(layer, own, dora)
        if shapes != wanted:
            raise FormatError(f"{what} must have {_told(wanted)}; got {_told(shapes)}")
        scale = _of(alphas, path, alpha) / (own**0.5 if by_root else own)
        adapters[path] = _factors(found[path], scale)
    return adapters, given.number("lora_dropout", 0.0)


def _told(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{part} {shape}" for part, shape in sorted(shapes.items()))


def _shapes(layer: Any, rank: int, dora: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's tensors in a folder."""
    kind = lora_class(layer)
    assert kind is not None
    a, b = kind.shapes(layer, rank)
    if isinstance(layer, nn.Embedding):
        return {"embedding_A": a[::-1], "embedding_B": b}
    more = {"magnitude_vector": (layer.weight.shape[0],)} if dora else {}
    return {"A": a, "B": b, **more}


def _factors(arrays: Mapping[str, np.ndarray], scale: float) -> Factors:
    """Return the numbers of a layer's adapter, of its tensors in a folder."""
    if "embedding_A" in arrays:
        a = np.ascontiguousarray(arrays["embedding_A"].T)
        return Factors(a, arrays["embedding_B"], scale)
    return Factors(arrays["A"], arrays["B"], scale, arrays.get("magnitude_vector"))


def _pattern(given: HFConfig, key: str) -> dict[str, float]:
    """Read numbers by the ends of layers' names."""
    values = given.get(key, {})
    numbers = isinstance(values, dict) and all(
        isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in values.values()
    )
    if not numbers:
        raise given.error(key, "an object of numbers above 0")
    for name in values:
        if not re.fullmatch(r"[\w.]+", name):
            raise FormatError(
                f"{given.path}: {key} must name layers as they are; got {shown(name)}: patterns "
                "of strangers are not run"
            )
    return dict(values)


def _of(pattern: Mapping[str, float], path: str, default: float) -> float:
    """Return the number for a layer."""
    for name, value in pattern.items():
        if path == name or path.endswith(f".{name}"):
            return value
    return default


def _path_of(name: str, layers: Mapping[str, Any]) -> str | None:
    """Return the layer of a name, which may lack the part that holds the model without a head."""
    if name in layers:
        return name
    longer = [path for path in layers if path.endswith(f".{name}")]
    return longer[0] if len(longer) == 1 else None


def write_peft(
    folder: Path, model: Any, found: Mapping[str, LoRALayer], adapters: Mapping[str, Factors]
) -> None:
    """Write adapters as PEFT does.

    Args:
        folder: made when missing.
        model: the adapted model.
        found: its adapted layers by path.
        adapters: their numbers by path.

    Raises:
        ValueError: PEFT has no such adapter.
        OSError: a file cannot be written.
    """
    first = next(iter(found))
    ranks = {path: _rank(layer, adapters[path]) for path, layer in found.items()}
    alphas = {path: _alpha(adapters[path].scale, ranks[path]) for path in found}
    head = getattr(model, "head_weight", None)
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if hasattr(model, "new_cache") else None,
        "base_model_name_or_path": model.metadata.get("general.name"),
        "r": ranks[first],
        "lora_alpha": alphas[first],
        "lora_dropout": max(layer.dropout.p for layer in found.values()),
        "target_modules": sorted(found),
        "bias": "none",
        "use_rslora": False,
        "use_dora": any(each.magnitude is not None for each in adapters.values()),
        "fan_in_fan_out": model.arch == "gpt2",
        "inference_mode": True,
        "rank_pattern": {p: rank for p, rank in ranks.items() if rank != ranks[first]},
        "alpha_pattern": {p: alpha for p, alpha in alphas.items() if alpha != alphas[first]},
    }
    arrays: dict[str, np.ndarray] = {}
    for path, layer in found.items():
        if isinstance(layer, nn.LoRAStackedLinear):
            raise ValueError(
                f"save_lora: PEFT has no adapter of stacked experts; got {path}: write a GGUF "
                "file, which llama.cpp applies, or merge_lora"
            )
        if not isinstance(layer, nn.Linear) and layer.weight is head:
            # PEFT's changes the embedding, and not the head that shares its table.
            raise ValueError(
                f"save_lora: PEFT has no adapter of a table that is the head, too; got {path}: "
                "merge_lora, or leave it out of targets"
            )
        own, start = adapters[path], f"{_PREFIX}{path}.lora_"
        if isinstance(layer, nn.Embedding):
            arrays[f"{start}embedding_A"] = np.ascontiguousarray(own.a.T)
            arrays[f"{start}embedding_B"] = own.b
            continue
        arrays[f"{start}A.weight"], arrays[f"{start}B.weight"] = own.a, own.b
        if own.magnitude is not None:
            arrays[f"{start}magnitude_vector"] = own.magnitude
    make_dirs(folder)
    save_safetensors(folder / _WEIGHTS, arrays)
    with atomic_write(folder / CONFIG, "w") as handle:
        handle.write(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _rank(layer: LoRALayer, factors: Factors) -> int:
    """Return the width between the matrices."""
    return int(layer.split(factors.a, factors.b)[0].shape[-1])


def _alpha(scale: float, rank: int) -> float:
    """Return scale times rank, as a whole number where it is one."""
    alpha = scale * rank
    return round(alpha) if abs(alpha - round(alpha)) < 1e-9 * alpha else alpha
