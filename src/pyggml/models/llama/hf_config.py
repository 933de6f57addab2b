# SPDX-License-Identifier: MIT
"""The Llama family's configuration in transformers' `config.json`, both ways."""

from __future__ import annotations

import json
from typing import Any

from ...nn import RopeScaling
from ..pretrained.fields import HFConfig
from ..pretrained.sentences import read_pooling
from .config import LlamaConfig
from .families import FAMILIES
from .hf_types import SIZES, TYPES, HFType

__all__ = ["read_hf_config", "write_hf_config"]

# Fields of a scaling, to their keys.
_SCALING = {
    "linear": {"factor": "factor"},
    "dynamic": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq": "low_freq_factor",
        "high_freq": "high_freq_factor",
    },
    "yarn": {
        "factor": "factor",
        "attention": "attention_factor",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
    },
    "longrope": {"attention": "attention_factor"},
}
_ORIGINAL = "original_max_position_embeddings"
_EXPERTS = {"num_experts": "num_local_experts"}
_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_hf_config(given: HFConfig) -> dict[str, Any]:
    """Read the fields of a configuration.

    Raises:
        FormatError: a field is missing, or asks for what the model does not do.
    """
    kind = TYPES[given.get("model_type")]
    fields: dict[str, Any] = {own: given.size(key) for own, key in SIZES.items()}
    for key, values in kind.only.items():
        if key in kind.needed and given.get(key) is None:
            raise given.error(key, json.dumps(values[0]))
        given.only(key, *values)
    if kind.family == "gemma" and given.get("hidden_activation") is None:
        given.only("hidden_act", "gelu_pytorch_tanh")
    elif kind.family == "gemma":
        given.only("hidden_activation", "gelu_pytorch_tanh")
    heads = fields["n_head"]
    fields["n_kv_head"] = given.size("num_key_value_heads", kind.n_kv_head or heads)
    width = kind.n_head_dim or fields["n_embd"] // heads
    fields["n_head_dim"] = given.size("head_dim", width)
    fields["eps"] = given.number(kind.eps, kind.eps_default)
    fields["tie"] = given.flag("tie_word_embeddings", kind.tie)
    for own, key in kind.experts.items():
        # transformers 5 writes its own name of the count.
        fields[own] = given.size(key if given.get(key) is not None else _EXPERTS.get(key, key))
    if kind.experts and given.flag("output_router_logits", False):
        fields["router_aux"] = given.number("router_aux_loss_coef", 0.001)
    if kind.family == "smollm3":
        _need_usual_rope(given, fields["n_layer"])
    fields |= _read_choices(given, kind)
    fields |= _read_window(given, kind, fields["n_layer"])
    fields |= _read_rope(given, kind, fields["n_head_dim"], fields["context"])
    fields["family"] = kind.family
    fields["pooling"] = read_pooling(given, None)
    if kind.family in ("gemma2", "gemma3"):
        scale = LlamaConfig(**fields).score_scale
        if abs(given.number("query_pre_attn_scalar", 256.0) * scale * scale - 1.0) > 1e-6:
            raise given.error("query_pre_attn_scalar", f"{round(scale**-2)}, as by the head's size")
    return fields


def _read_choices(given: HFConfig, kind: HFType) -> dict[str, Any]:
    """Read the fields in which members of a family differ."""
    fields: dict[str, Any] = {}
    for own, key in kind.fields.items():
        if own.endswith("_scale"):
            fields[own] = given.number(key, 1.0)
        elif own.endswith("_softcap"):
            default = 0.0 if key in given.values else FAMILIES[kind.family].values.get(own, 0.0)
            fields[own] = given.number(key, default)
            if given.get(key) == 0:
                raise given.error(key, "above 0, or null for none")
        else:
            fields[own] = given.flag(key, False)
    if kind.family == "stablelm" and fields["attention_bias"]:
        fields["attention_bias"] = "qkv"
    return fields


def _need_usual_rope(given: HFConfig, n_layer: int) -> None:
    """Raise unless every so many layers one has no rotary positions, as in the family."""
    every = FAMILIES["smollm3"].no_rope
    usual = [int((i + 1) % every != 0) for i in range(n_layer)]
    if given.get("no_rope_layers") is None:
        given.only("no_rope_layer_interval", every)
    given.only("no_rope_layers", usual)


def _read_window(given: HFConfig, kind: HFType, n_layer: int) -> dict[str, Any]:
    """Read which layers see how many tokens."""
    windowed = kind.window in ("all", "layers") or given.flag("use_sliding_window", False)
    width = given.values.get("sliding_window", kind.width)
    if kind.window == "none" or not windowed or (width is None and kind.window != "layers"):
        return {}
    types = given.get("layer_types")
    if types is None:
        if kind.window == "flag":
            first = min(given.size("max_window_layers", 28, least=0), n_layer)
            types = [_FULL] * first + [_SLIDING] * (n_layer - first)
        elif kind.window == "all":
            types = [_SLIDING] * n_layer
        else:
            usual = FAMILIES[kind.family].values["window_pattern"]
            every = given.size("sliding_window_pattern", usual)
            types = [_FULL if (i + 1) % every == 0 else _SLIDING for i in range(n_layer)]
    if not isinstance(types, list) or len(types) != n_layer:
        raise given.error("layer_types", f"a name for each of {n_layer} layers")
    if set(types) <= {_FULL}:
        return {}
    window = given.size("sliding_window", width)
    for pattern in range(2, n_layer + 2):
        if types == [_FULL if (i + 1) % pattern == 0 else _SLIDING for i in range(n_layer)]:
            # No layer is the last of a pattern longer than the model.
            own = _pattern(kind, pattern, n_layer)
            if own == 1 and not FAMILIES[kind.family].window_scaling:
                break  # layers with a window have other rotary positions
            return {"window": window, "window_pattern": own}
    key = "layer_types" if "layer_types" in given.values else "max_window_layers"
    raise given.error(key, "such that every so many layers one has no window, or all have one")


def _pattern(kind: HFType, pattern: int, n_layer: int) -> int | None:
    """Return the pattern; the family's where the layers end before it shows."""
    usual = FAMILIES[kind.family].values.get("window_pattern", 1)
    if pattern <= n_layer:
        return pattern
    return None if usual > n_layer or usual == 1 else 1


def _read_rope(given: HFConfig, kind: HFType, head_dim: int, context: int) -> dict[str, Any]:
    """Read the rotary positions, from the keys of transformers 5 or the older ones."""
    now, before = given.get("rope_parameters", {}), given.get("rope_scaling", {})
    for key, value in (("rope_parameters", now), ("rope_scaling", before)):
        if not isinstance(value, dict):
            raise given.error(key, "an object")
    fields: dict[str, Any] = {}
    theta = given.number("rope_theta", kind.theta)
    if _FULL in now or _SLIDING in now:
        if not isinstance(now.get(_FULL), dict):
            raise given.error("rope_parameters", f"objects for {_FULL} and {_SLIDING}")
        local = HFConfig(f"{given.path}: rope_parameters.{_SLIDING}", now.get(_SLIDING) or {})
        local.only("rope_type", "default")
        now = now[_FULL]
        if kind.family == "gemma3":
            fields["rope_theta_window"] = local.number("rope_theta", 10000.0)
        else:
            local.only("rope_theta", now.get("rope_theta"))
    elif kind.family == "gemma3":
        fields["rope_theta_window"] = given.number("rope_local_base_freq", 10000.0)
    elif kind.family == "gpt-oss" and not (now or before):
        raise given.error("rope_parameters", "an object")  # transformers has a default of its own
    inner = HFConfig(f"{given.path}: rope_{'parameters' if now else 'scaling'}", {**before, **now})
    fields["rope_theta"] = inner.number("rope_theta", theta)
    share = inner.number(
        "partial_rotary_factor", given.number("partial_rotary_factor", kind.partial)
    )
    if share != 1.0:
        fields["rope_dims"] = int(head_dim * share)
    name = inner.get("rope_type", inner.get("type", "default"))
    name = "longrope" if name == "su" else name
    if name == "default":
        return fields
    if name not in _SCALING:
        raise inner.error("rope_type", f"default or one of {', '.join(_SCALING)}")
    for key in ("mscale", "mscale_all_dim"):
        inner.only(key, None)
    values: dict[str, Any] = {
        own: inner.number(key, 0.0)
        for own, key in _SCALING[name].items()
        if inner.get(key) is not None
    }
    if name != "longrope" and "factor" not in values:
        raise inner.error("factor", "a number")
    if name == "dynamic":
        values["original"] = context
    elif name != "linear":
        # The key beside the object wins, and of Phi 3 its default, too.
        beside = 4096 if kind.family == "phi3" else inner.size(_ORIGINAL, context)
        values["original"] = given.size(_ORIGINAL, beside)
    if name == "yarn":
        values["truncate"] = inner.flag("truncate", True)
    if name == "longrope":
        values |= _read_factors(inner, head_dim if share == 1.0 else int(head_dim * share))
        values["factor"] = max(context / values["original"], 1.0)
    fields["rope_scaling"] = RopeScaling(name, **values)
    return fields


def _read_factors(inner: HFConfig, dims: int) -> dict[str, Any]:
    """Read the two sets of divisors of longrope."""
    found: dict[str, Any] = {}
    for own, key in (("short", "short_factor"), ("long", "long_factor")):
        value = inner.get(key)
        if not isinstance(value, list) or len(value) != dims // 2:
            raise inner.error(key, f"a list of {dims // 2} numbers")
        found[own] = tuple(value)
    return found


def write_hf_config(config: LlamaConfig) -> dict[str, Any]:
    """Return the fields of a `config.json`, under keys that transformers 4 and 5 read."""
    name = next(n for n, kind in TYPES.items() if kind.family == config.family)
    if config.family == "llama" and config.n_expert:
        name = "mixtral"
    elif config.family == "llama" and config.window is not None:
        name = "mistral"
    elif config.family == "olmo2" and config.window is not None:
        name = "olmo3"
    kind = TYPES[name]
    values: dict[str, Any] = {"model_type": name, "architectures": [kind.architecture]}
    values |= {key: getattr(config, own) for own, key in SIZES.items()}
    values |= {key: allowed[0] for key, allowed in kind.only.items() if allowed[0] is not None}
    if config.family == "gemma":
        values |= {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
    values |= {
        "num_key_value_heads": config.kv_head,
        "head_dim": config.head_dim,
        kind.eps: config.eps,
        "tie_word_embeddings": config.tie,
        "rope_theta": config.rope_theta,
        "rope_scaling": _write_scaling(config),
    }
    if config.family == "phi3" and values["rope_scaling"] is not None:
        values[_ORIGINAL] = values["rope_scaling"].get(_ORIGINAL, config.context)
    for own, key in {**kind.fields, **kind.experts}.items():
        value = getattr(config, "expert_ffn" if own == "n_expert_ffn" else own)
        values[key] = config.shared_ffn if own == "n_shared_ffn" else value
    for own, key in kind.fields.items():
        if own == "attention_scale" and config.attention_scale is None:
            values[key] = config.score_scale
        elif own.endswith("_softcap") and not values[key]:
            values[key] = None
        elif own == "attention_bias":
            values[key] = bool(values[key])
    if config.router_aux:
        values |= {"output_router_logits": True, "router_aux_loss_coef": config.router_aux}
    if config.family in ("gemma2", "gemma3"):
        values["query_pre_attn_scalar"] = round(config.score_scale**-2)
    if config.family == "gemma3":
        values["rope_local_base_freq"] = config.rope_theta_window
    if config.rope_dims is not None or kind.partial != 1.0:
        values["partial_rotary_factor"] = (config.rope_dims or config.head_dim) / config.head_dim
    return {**values, **_write_window(config, kind)}


def _write_window(config: LlamaConfig, kind: HFType) -> dict[str, Any]:
    """Return the fields of the windows."""
    if kind.window == "none":
        return {}
    windows = [config.layer_window(i) for i in range(config.n_layer)]
    values: dict[str, Any] = {"sliding_window": config.window}
    if kind.window == "flag":
        values |= {"use_sliding_window": config.window is not None, "max_window_layers": 0}
    if kind.window != "all":
        values["layer_types"] = [_FULL if window is None else _SLIDING for window in windows]
    if config.family == "smollm3":
        values["no_rope_layer_interval"] = config.traits.no_rope
    return values


def _write_scaling(config: LlamaConfig) -> dict[str, Any] | None:
    """Return the older key's object."""
    scaling = RopeScaling.of(config.rope_scaling)
    if scaling is None:  # transformers stretches gpt-oss unless told
        return {"rope_type": "default"} if config.family == "gpt-oss" else None
    if scaling.kind not in _SCALING:
        raise ValueError(
            f"save_pretrained: rope_scaling must be one of {', '.join(_SCALING)}; got "
            f'"{scaling.kind}", which transformers has not'
        )
    values: dict[str, Any] = {"rope_type": scaling.kind, "type": scaling.kind}
    for own, key in _SCALING[scaling.kind].items():
        if getattr(scaling, own) is not None:
            values[key] = getattr(scaling, own)
    if scaling.original is not None:
        values[_ORIGINAL] = scaling.original
    if scaling.kind == "yarn":
        values["truncate"] = scaling.truncate
    if scaling.kind == "longrope":
        values |= {
            "short_factor": list(scaling.short or ()),
            "long_factor": list(scaling.long or ()),
        }
    return values
