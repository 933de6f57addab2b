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
from ..nn.lora import LoRALinear, check_rank
from .pretrained.fields import HFConfig, read_json

__all__ = ["CONFIG", "read_peft", "write_peft"]

CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_NAME = re.compile(r"(.+)\.lora_([AB])(?:\.default)?\.weight")
# What changes the result in a way that a LoRALinear does not compute; the first is the default.
_ONLY: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False,),
    "lora_bias": (False,),
    "use_qalora": (False,),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "layer_replication": (None, []),
    # The others move a part of the base's weights into the adapter when training begins.
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
}

Adapter = tuple[np.ndarray, np.ndarray, float]


def read_peft(folder: Path, model: Any) -> tuple[dict[str, Adapter], float]:
    """Read the adapters of a PEFT folder for a model; all are checked before one is returned.

    Args:
        folder: with `adapter_config.json` and `adapter_model.safetensors`.
        model: the base.

    Returns:
        A, B and scale of each layer by its path, and the dropout of the training.

    Raises:
        FormatError: a file is damaged, or the adapter is none of LoRA, asks for more, or is another
            model's.
    """
    given = HFConfig(folder / CONFIG, read_json(folder / CONFIG))
    for key, values in _ONLY.items():
        given.only(key, *values)
    rank, alpha = given.size("r", 8), given.number("lora_alpha", 8.0)
    by_root = given.flag("use_rslora", False)
    ranks, alphas = (_pattern(given, key) for key in ("rank_pattern", "alpha_pattern"))
    layers = {path: m for path, m in model.named_modules() if isinstance(m, nn.Linear) and path}
    heads = nn.lora.heads_of(model)
    file = folder / _WEIGHTS
    if not file.is_file():
        raise FormatError(f"load_lora: {folder}: must hold {_WEIGHTS}; it has no such file")
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, array in load_safetensors(file).items():
        what = f"load_lora: {file}: tensor {name}"
        parts = _NAME.fullmatch(name)
        if parts is None:
            raise FormatError(f"{what} must end in .lora_A.weight or .lora_B.weight; retrain "
                              "without DoRA, embeddings and whole modules")  # fmt: skip
        path = _path_of(parts[1].removeprefix(_PREFIX), layers)
        if path is None or path in heads:
            why = "is of no linear" if path is None else "is of the head, which is no adapted"
            raise FormatError(f"{what} {why} layer of the model: is it another model's adapter?")
        if not np.isfinite(np.asarray(array, np.float32)).all():
            raise FormatError(f"{what} must hold finite numbers; got NaN or infinity")
        found.setdefault(path, {})[parts[2]] = np.asarray(array, np.float32)
    if not found:
        raise FormatError(f"load_lora: {file}: must hold adapters; it has no tensor")
    adapters: dict[str, Adapter] = {}
    for path in (path for path in layers if path in found):
        own = int(_of(ranks, path, rank))
        out, inside = layers[path].weight.shape
        what = f"load_lora: {file}: the adapter of {path}"
        shapes = {part: array.shape for part, array in found[path].items()}
        if shapes != {"A": (own, inside), "B": (out, own)}:
            raise FormatError(
                f"{what} must have A {own, inside} and B {out, own}; got "
                + (", ".join(f"{p} {s}" for p, s in sorted(shapes.items())))
            )
        try:
            check_rank(what, own, (out, inside), path)
        except ValueError as error:
            raise FormatError(str(error)) from None
        scale = _of(alphas, path, alpha) / (own**0.5 if by_root else own)
        adapters[path] = (found[path]["A"], found[path]["B"], scale)
    return adapters, given.number("lora_dropout", 0.0)


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


def write_peft(folder: Path, model: Any, found: Mapping[str, LoRALinear]) -> None:
    """Write adapters as PEFT does.

    Args:
        folder: made when missing.
        model: the adapted model.
        found: its adapted layers by path.

    Raises:
        OSError: a file cannot be written.
    """
    first = next(iter(found.values()))
    alpha = _alpha(first)
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if hasattr(model, "new_cache") else None,
        "base_model_name_or_path": model.metadata.get("general.name"),
        "r": first.rank,
        "lora_alpha": alpha,
        "lora_dropout": first.dropout.p,
        "target_modules": sorted(found),
        "bias": "none",
        "use_rslora": False,
        "fan_in_fan_out": model.arch == "gpt2",
        "inference_mode": True,
        "rank_pattern": {p: m.rank for p, m in found.items() if m.rank != first.rank},
        "alpha_pattern": {p: _alpha(m) for p, m in found.items() if _alpha(m) != alpha},
    }
    make_dirs(folder)
    arrays: dict[str, np.ndarray] = {}
    for path, layer in found.items():
        arrays[f"{_PREFIX}{path}.lora_A.weight"] = layer.lora_A.weight.numpy()
        arrays[f"{_PREFIX}{path}.lora_B.weight"] = layer.lora_B.weight.numpy()
    save_safetensors(folder / _WEIGHTS, arrays)
    with atomic_write(folder / CONFIG, "w") as handle:
        handle.write(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _alpha(layer: LoRALinear) -> float:
    """Return scale times rank, as a whole number where it is one."""
    alpha = layer.scale * layer.rank
    return round(alpha) if abs(alpha - round(alpha)) < 1e-9 * alpha else alpha
