# SPDX-License-Identifier: MIT
"""The sizes of a run's model, and whether it fits into memory."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from ..backend.device import Device
from ..errors import ConfigError
from ..models import LANGUAGE_MODELS
from ..train.memory import OutOfMemoryError, format_bytes
from .llm_config import LLMConfig

__all__ = [
    "cache_bytes",
    "check_estimate",
    "default_seq_len",
    "estimate_parameters",
    "model_config",
]

# A million parameters with a vocabulary of 2,048: on two cores a wider or deeper model sees the
# embedded text too seldom in two minutes to write as well.
_DEFAULT_ARCH = "llama"
_DEFAULT_SIZES = {"n_layer": 4, "n_head": 4, "n_embd": 128}
_DEFAULT_SEQ_LEN = 128
# At the least: weights, Adam's two moments and, unless each is used at once, gradients.
_BYTES_PER_WEIGHT = 4
_BYTES_OF_STATE = {"adam": 8, "adamw": 8}
_BYTES_PER_GRADIENT = 4
_FIELDS = {
    "layers": "n_layer",
    "heads": "n_head",
    "kv_heads": "n_kv_head",
    "embd": "n_embd",
    "ffn": "n_ffn",
    "context": "context",
}


def _arch(config: LLMConfig) -> str:
    """Return the architecture: as given, or the one that has the preset."""
    if config.model.arch is not None:
        return config.model.arch
    if config.model.preset is not None:
        having = [
            a for a, m in LANGUAGE_MODELS.items() if config.model.preset in m.config_class.PRESETS
        ]
        if having:
            return _DEFAULT_ARCH if _DEFAULT_ARCH in having else having[0]
    return _DEFAULT_ARCH


def model_config(config: LLMConfig, vocab_size: int) -> tuple[str, Any]:
    """Return the architecture and the sizes of the model that a run trains.

    Args:
        config: of the run.
        vocab_size: tokens of the tokenizer.

    Returns:
        A key of `pyggml.models.LANGUAGE_MODELS` and the model's configuration.

    Raises:
        ConfigError: an unknown architecture or preset, or sizes that do not go together.

    Example:
        >>> model_config(LLMConfig(preset="gpt2-124m"), 50257)[1].n_layer
        12
    """
    arch = _arch(config)
    kind = LANGUAGE_MODELS[arch].config_class
    known = {field.name for field in fields(kind)}
    sizes: dict[str, Any] = {}
    if config.model.preset is None:
        sizes.update(_DEFAULT_SIZES, context=config.data.seq_len or _DEFAULT_SEQ_LEN)
    elif config.model.preset in kind.PRESETS:
        sizes.update(kind.PRESETS[config.model.preset])
    else:
        every = sorted({n for m in LANGUAGE_MODELS.values() for n in m.config_class.PRESETS})
        raise ConfigError(
            f"`preset` must be one of {', '.join(kind.PRESETS)} with `arch`={arch} "
            f"(of any architecture: {', '.join(every)}); got {config.model.preset!r}: choose one"
        )
    for option, name in _FIELDS.items():
        value = getattr(config.model, option)
        if value is None:
            continue
        if name not in known:
            raise ConfigError(f"`{option}` is not for `arch`={arch}; got {value}: leave it out")
        sizes[name] = value
    # A preset's own division of its width does not survive another width or number of heads.
    if config.model.embd is not None and config.model.ffn is None:
        sizes.pop("n_ffn", None)
    if config.model.heads is not None and config.model.kv_heads is None:
        sizes.pop("n_kv_head", None)
    sizes["vocab_size"] = vocab_size
    _check(sizes, config)
    try:
        return arch, kind.from_dict(sizes)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"the sizes do not go together: {error}: change `layers`, `heads`, `kv_heads`, "
            "`embd`, `ffn` or `context`"
        ) from error


def _check(sizes: dict[str, Any], config: LLMConfig) -> None:
    """Raise if sizes do not go together, some of them from a preset."""
    heads, embd, kv_heads = sizes["n_head"], sizes["n_embd"], sizes.get("n_kv_head")
    if embd % heads:
        near = max(1, round(embd / heads)) * heads
        raise ConfigError(
            f"`heads` must divide `embd`; got `heads`={heads} and `embd`={embd}: try `embd`={near}"
        )
    if kv_heads is not None and heads % kv_heads:
        raise ConfigError(
            f"`kv_heads` must divide `heads`; got `kv_heads`={kv_heads} and `heads`={heads}: "
            f"try `kv_heads`={math.gcd(heads, kv_heads)}"
        )
    every = config.trainer.checkpointing
    layers: int = sizes.get("n_layer", 0)
    if isinstance(every, int) and every > layers > 0:
        raise ConfigError(
            f"`checkpointing` must be at most `layers`={layers}; got `checkpointing`={every}: "
            f"give all, or {layers} or less"
        )
    if config.data.seq_len is not None and config.data.seq_len > sizes["context"]:
        raise ConfigError(
            f"`seq_len` must not exceed the context; got `seq_len`={config.data.seq_len} and a "
            f"context of {sizes['context']}: lower it, or give `context`={config.data.seq_len}"
        )


def default_seq_len(config: LLMConfig, context: int) -> int:
    """Return the tokens per training sequence: as given, or the whole context.

    Args:
        config: of the run.
        context: longest sequence of the model.
    """
    return config.data.seq_len or context


def estimate_parameters(sizes: Any) -> int:
    """Count a model's parameters without building it.

    Args:
        sizes: its configuration.

    Returns:
        The number of elements.

    Example:
        >>> estimate_parameters(pg.models.GPT2Config()) // 10**6
        124
    """
    return int(sizes.count_parameters())


def cache_bytes(sizes: Any) -> int:
    """Return the bytes of the keys and values of a whole context.

    Args:
        sizes: the model's configuration.
    """
    heads = getattr(sizes, "n_kv_head", sizes.n_head)
    per_token = 2 * sizes.n_layer * heads * sizes.head_dim
    return int(4 * sizes.context * per_token)


def check_estimate(config: LLMConfig, parameters: int, cache: int, where: Device) -> None:
    """Raise if the weights or the context alone do not fit, before any is made.

    Args:
        config: of the run.
        parameters: how many the model has.
        cache: bytes of the keys and values of a whole context.
        where: the run's device.

    Raises:
        OutOfMemoryError: names the numbers and the cures.
    """
    needed = _BYTES_PER_WEIGHT + _BYTES_OF_STATE.get(config.optimizer.optimizer, 0)
    needed = parameters * (needed + _BYTES_PER_GRADIENT * (not config.optimizer.fused_update))
    free = where.memory_free
    if free and needed > free:
        raise OutOfMemoryError(
            f"train: {parameters:,} parameters need {format_bytes(needed)} with gradients and "
            f"optimizer state, but {where.name} has {format_bytes(free)} free: choose a smaller "
            "`preset`, or fewer `layers` or a smaller `embd`"
        )
    if free and cache > free:
        raise OutOfMemoryError(
            f"train: the keys and values of a whole context need {format_bytes(cache)}, but "
            f"{where.name} has {format_bytes(free)} free: choose a shorter `context`"
        )
