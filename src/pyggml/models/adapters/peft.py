# SPDX-License-Identifier: MIT
"""LoRA adapters in PEFT's folders: `adapter_config.json` and `adapter_model.safetensors`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ... import nn
from ...errors import FormatError, shown
from ...io import (
    atomic_write,
    load_safetensors,
    make_dirs,
    safetensors_metadata,
    save_safetensors,
)
from ...nn.lora import Factors, LoRALayer, layers_of, lora_class
from ..pooling import TextClassifier
from ..pretrained.fields import HFConfig, read_json
from .origin import SAMPLE, check_base, sample_base

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
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "layer_replication": (None, []),
    # The others move a part of the base's weights into the adapter when training begins.
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    "ensure_weight_tying": (False, True),
}


def read_peft(folder: Path, model: Any) -> tuple[dict[str, Factors], float, dict[str, np.ndarray]]:
    """Read the adapters of a PEFT folder for a model; all are checked before one is returned.

    Args:
        folder: with `adapter_config.json` and `adapter_model.safetensors`.
        model: the base.

    Returns:
        The numbers of each layer's adapter by its path, the dropout of the training, and the
        weights that are whole, by name.

    Raises:
        FormatError: a file is damaged, or the adapter is none of LoRA, asks for more, or is another
            model's.
    """
    if not (folder / CONFIG).exists():
        inside = (folder / name for name in ("adapter.gguf", "adapter"))
        near = next((path for path in inside if path.exists()), None)
        cure = "name an adapter's folder or GGUF file" if near is None else f"name {near}"
        raise FormatError(f"load_lora: {folder}: must hold {CONFIG}; it has no such file: {cure}")
    given = HFConfig(folder / CONFIG, read_json(folder / CONFIG))
    for key, values in _ONLY.items():
        given.only(key, *values)
    heads = list(model.saved_whole)
    given.only("modules_to_save", None, [], *[heads] * bool(heads))
    rank, alpha = given.size("r", 8), given.number("lora_alpha", 8.0)
    by_root, dora = given.flag("use_rslora", False), given.flag("use_dora", False)
    ranks, alphas = (_pattern(given, key) for key in ("rank_pattern", "alpha_pattern"))
    layers = layers_of(model)
    file = folder / _WEIGHTS
    if not file.is_file():
        raise FormatError(f"load_lora: {folder}: must hold {_WEIGHTS}; it has no such file")
    names = _names_of(model, layers)
    found: dict[str, dict[str, Any]] = {}
    whole: dict[str, np.ndarray] = {}
    whole_names = {f"{path}.weight" for path in heads}
    sizes = {n: p.shape for n, p in model.named_parameters() if n in whole_names}
    for name, array in load_safetensors(file).items():
        what = f"load_lora: {file}: tensor {name}"
        if name.endswith(_BASE):
            # PEFT writes the frozen table beside the adapter of an embedding or head.
            there = _path_of(name.removeprefix(_PREFIX).removesuffix(_BASE), names)
            if there is not None and layers[names[there][0]].weight.shape == array.shape:
                continue
        own_name = name.removeprefix(_PREFIX)
        if own_name in whole_names:
            if sizes[own_name] != array.shape or not np.isfinite(array).all():
                raise FormatError(
                    f"{what} must be finite numbers {sizes[own_name]}; got shape {array.shape}"
                )
            whole[own_name] = np.asarray(array, np.float32)
            continue
        parts = _NAME.fullmatch(name)
        if parts is None:
            raise FormatError(f"{what} must end in .lora_A.weight, .lora_B.weight or another name "
                              "of LoRA; retrain without whole modules")  # fmt: skip
        there = _path_of(parts[1].removeprefix(_PREFIX), names)
        if there is None:
            raise FormatError(
                f"{what} is of no layer of the model that takes adapters: is it another model's?"
            )
        if not np.isfinite(np.asarray(array, np.float32)).all():
            raise FormatError(f"{what} must hold finite numbers; got NaN or infinity")
        path, expert = names[there]
        numbers = np.asarray(array, np.float32)
        if expert is None:
            found.setdefault(path, {})[parts[2]] = numbers
        else:
            found.setdefault(path, {}).setdefault(parts[2], {})[expert] = numbers
    if not found:
        raise FormatError(f"load_lora: {file}: must hold adapters; it has no tensor")
    adapters: dict[str, Factors] = {}
    for path in (path for path in layers if path in found):
        theirs = next(name for name, (at, _) in names.items() if at == path)
        own = int(_of(ranks, theirs, rank))
        what = f"load_lora: {file}: the adapter of {path}"
        kind, layer = lora_class(layers[path]), layers[path]
        assert kind is not None
        try:
            kind.check(what, layer, own, path)
        except ValueError as error:
            raise FormatError(str(error)) from None
        if layer.weight.ndim == 3:
            found[path] = {part: _stack(what, each) for part, each in found[path].items()}
        shapes = {part: array.shape for part, array in found[path].items()}
        wanted = _shapes(layer, own, dora)
        if shapes != wanted:
            raise FormatError(f"{what} must have {_told(wanted)}; got {_told(shapes)}")
        scale = _of(alphas, theirs, alpha) / (own**0.5 if by_root else own)
        adapters[path] = _factors(found[path], scale)
    check_base(f"load_lora: {file}", model, _samples(file))
    return adapters, given.number("lora_dropout", 0.0), whole


def _samples(file: Path) -> dict[str, Any]:
    """Return the samples of the base that the weights' file has."""
    texts = {k: v for k, v in safetensors_metadata(file).items() if k.startswith(SAMPLE)}
    try:
        return {key: json.loads(text) for key, text in texts.items()}
    except ValueError as error:
        raise FormatError(
            f"load_lora: {file}: {SAMPLE}* must be lists of numbers: {error}"
        ) from None


def _names_of(model: Any, layers: Mapping[str, Any]) -> dict[str, tuple[str, int | None]]:
    """Return the layers by Hugging Face's names; of stacked experts each has one."""
    names: dict[str, tuple[str, int | None]] = {}
    for path, layer in layers.items():
        probe = np.broadcast_to(np.float32(0), layer.weight.shape)  # takes no memory
        theirs = [name.removesuffix(".weight") for name in _theirs(model, path, probe)]
        stacked = layer.weight.ndim == 3
        names |= {name: (path, j if stacked else None) for j, name in enumerate(theirs)}
    return names


def _theirs(model: Any, path: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Return a layer's array by the names of Hugging Face's layers."""
    try:
        found: dict[str, np.ndarray] = model.hf_arrays({f"{path}.weight": array})
    except KeyError:  # one of several that are one there
        return {}
    return found


def _stack(what: str, arrays: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the matrices of experts as one array."""
    shapes = {array.shape for array in arrays.values()}
    if sorted(arrays) != list(range(len(arrays))) or len(shapes) != 1:
        raise FormatError(f"{what} must have each expert's, of one shape; got {sorted(arrays)}")
    return np.stack([arrays[j] for j in range(len(arrays))])


def _told(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{part} {shape}" for part, shape in sorted(shapes.items()))


def _shapes(layer: Any, rank: int, dora: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's tensors in a folder."""
    kind = lora_class(layer)
    assert kind is not None
    a, b = kind.shapes(layer, rank)
    if isinstance(layer, nn.Embedding):
        return {"embedding_A": a[::-1], "embedding_B": b}
    norms = (1, layer.weight.shape[0], 1, 1)  # of a convolution
    more = {"magnitude_vector": norms if layer.weight.ndim == 4 else norms[1:2]} if dora else {}
    return {"A": a, "B": b, **more}


def _factors(arrays: Mapping[str, np.ndarray], scale: float) -> Factors:
    """Return the numbers of a layer's adapter, of its tensors in a folder."""
    if "embedding_A" in arrays:
        a = np.ascontiguousarray(arrays["embedding_A"].T)
        return Factors(a, arrays["embedding_B"], scale)
    norms = arrays.get("magnitude_vector")
    return Factors(arrays["A"], arrays["B"], scale, None if norms is None else norms.reshape(-1))


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
    folder: Path,
    model: Any,
    found: Mapping[str, LoRALayer],
    adapters: Mapping[str, Factors],
    whole: Mapping[str, np.ndarray],
) -> None:
    """Write adapters as PEFT does.

    Args:
        folder: made when missing.
        model: the adapted model.
        found: its adapted layers by path.
        adapters: their numbers by path.
        whole: the weights that were trained whole, by name.

    Raises:
        ValueError: PEFT has no such adapter.
        OSError: a file cannot be written.
    """
    stacked = [path for path, layer in found.items() if isinstance(layer, nn.LoRAStackedLinear)]
    first = next(iter(stacked or found))
    ranks = {path: _rank(layer, adapters[path]) for path, layer in found.items()}
    alphas = {path: _alpha(adapters[path].scale, ranks[path]) for path in found}
    head = getattr(model, "head_weight", None)
    names = {
        path: _name(model, path, layer) for path, layer in found.items() if path not in stacked
    }
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": _task(model),
        "base_model_name_or_path": model.metadata.get("general.name"),
        "r": ranks[first],
        "lora_alpha": alphas[first],
        # PEFT drops nothing before experts.
        "lora_dropout": 0.0 if stacked else max(layer.dropout.p for layer in found.values()),
        "target_modules": [],
        "bias": "none",
        "use_rslora": False,
        "use_dora": any(each.magnitude is not None for each in adapters.values()),
        "fan_in_fan_out": model.arch == "gpt2",
        "inference_mode": True,
        "rank_pattern": {n: ranks[p] for p, n in names.items() if ranks[p] != ranks[first]},
        "alpha_pattern": {n: alphas[p] for p, n in names.items() if alphas[p] != alphas[first]},
    }
    arrays: dict[str, np.ndarray] = {}
    targets: set[str] = set()
    for path, layer in found.items():
        own = adapters[path]
        if path in stacked:
            targets |= _add_experts(arrays, model, path, own)
            if (ranks[path], alphas[path]) != (ranks[first], alphas[first]):
                raise ValueError(
                    "save_lora: PEFT has one rank and alpha for all experts; got others for "
                    f"{path}: write a GGUF file, which llama.cpp applies, or merge the adapter"
                )
            continue
        if not isinstance(layer, nn.Linear) and layer.weight is head:
            # PEFT's changes the embedding, and not the head that shares its table.
            raise ValueError(
                f"save_lora: PEFT has no adapter of a table that is the head, too; got {path}: "
                "merge the adapter, or leave it out of targets"
            )
        targets.add(names[path])
        start = f"{_PREFIX}{names[path]}.lora_"
        if isinstance(layer, nn.Embedding):
            arrays[f"{start}embedding_A"] = np.ascontiguousarray(own.a.T)
            arrays[f"{start}embedding_B"] = own.b
            continue
        arrays[f"{start}A.weight"], arrays[f"{start}B.weight"] = own.a, own.b
        if own.magnitude is not None:
            shape = (1, -1, 1, 1) if layer.weight.ndim == 4 else (-1,)
            arrays[f"{start}magnitude_vector"] = own.magnitude.reshape(shape)
    config["target_modules"] = sorted(targets)
    if model.saved_whole:
        config["modules_to_save"] = list(model.saved_whole)
        arrays.update({f"{_PREFIX}{name}": weight for name, weight in whole.items()})
    make_dirs(folder)
    samples = {key: json.dumps(numbers.tolist()) for key, numbers in sample_base(model).items()}
    save_safetensors(folder / _WEIGHTS, arrays, samples)
    with atomic_write(folder / CONFIG, "w") as handle:
        handle.write(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _task(model: Any) -> str | None:
    """Return PEFT's name of what the model does."""
    if isinstance(model, TextClassifier):
        return "SEQ_CLS"
    return "CAUSAL_LM" if hasattr(model, "new_cache") else None


def _name(model: Any, path: str, layer: LoRALayer) -> str:
    """Return Hugging Face's name of a layer."""
    theirs = _theirs(model, path, np.broadcast_to(np.float32(0), layer.weight.shape))
    return next(iter(theirs)).removesuffix(".weight") if len(theirs) == 1 else path


def _add_experts(arrays: dict[str, np.ndarray], model: Any, path: str, own: Factors) -> set[str]:
    """Add the matrices of each expert under the names that PEFT stacks; return their ends."""
    for part, array in (("A", own.a), ("B", own.b)):
        theirs = _theirs(model, path, array)
        if len(theirs) != len(array) or ".block_sparse_moe." not in path:  # Mixtral's
            raise ValueError(
                f"save_lora: PEFT has no adapter of these experts; got {path}: write a GGUF file, "
                "which llama.cpp applies, or merge the adapter"
            )
        for name, matrix in theirs.items():
            arrays[f"{_PREFIX}{name.removesuffix('weight')}lora_{part}.weight"] = matrix
    return {name.split(".")[-2] for name in theirs}


def _rank(layer: LoRALayer, factors: Factors) -> int:
    """Return the width between the matrices."""
    return int(layer.split(factors.a, factors.b)[0].shape[-1])


def _alpha(scale: float, rank: int) -> float:
    """Return scale times rank, as a whole number where it is one."""
    alpha = scale * rank
    return round(alpha) if abs(alpha - round(alpha)) < 1e-9 * alpha else alpha
