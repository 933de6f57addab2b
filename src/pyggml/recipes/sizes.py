# SPDX-License-Identifier: MIT
"""From the sizes that a run was told to a model's configuration."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from ..models import LANGUAGE_MODELS
from ..train.config import ConfigError, TrainConfig

__all__ = ["cache_bytes", "default_seq_len", "estimate_parameters", "model_config"]

# A million parameters with a vocabulary of 2,048: on two cores a wider or deeper model sees the
# embedded text too seldom in two minutes to write as well.
_DEFAULT_ARCH = "llama"
_DEFAULT_SIZES = {"n_layer": 4, "n_head": 4, "n_embd": 128}
_DEFAULT_SEQ_LEN = 128
_FIELDS = {
    "layers": "n_layer",
    "heads": "n_head",
    "kv_heads": "n_kv_head",
    "embd": "n_embd",
    "ffn": "n_ffn",
    "context": "context",
}


def _arch(config: TrainConfig) -> str:
    """The architecture: as given, or the one that has the preset."""
    if config.arch is not None:
        if config.arch not in LANGUAGE_MODELS:
            raise ConfigError(
                f"--arch must be one of {', '.join(LANGUAGE_MODELS)}; got {config.arch!r}: "
                "choose one"
            )
        return config.arch
    if config.preset is not None:
        having = [a for a, m in LANGUAGE_MODELS.items() if config.preset in m.config_class.PRESETS]
        if having:
            return _DEFAULT_ARCH if _DEFAULT_ARCH in having else having[0]
    return _DEFAULT_ARCH


def model_config(config: TrainConfig, vocab_size: int) -> tuple[str, Any]:
    """The architecture and the sizes of the model that a run trains.

    Args:
        config: what the run was told.
        vocab_size: tokens of the tokenizer.

    Returns:
        A key of `pyggml.models.LANGUAGE_MODELS` and the model's configuration.

    Raises:
        ConfigError: an unknown architecture or preset, or sizes that do not go together.

    Example:
        >>> model_config(TrainConfig(preset="gpt2-124m"), 50257)[1].n_layer
        12
    """
    arch = _arch(config)
    kind = LANGUAGE_MODELS[arch].config_class
    known = {field.name for field in fields(kind)}
    sizes: dict[str, Any] = {}
    if config.preset is None:
        sizes.update(_DEFAULT_SIZES, context=config.seq_len or _DEFAULT_SEQ_LEN)
    elif config.preset in kind.PRESETS:
        sizes.update(kind.PRESETS[config.preset])
    else:
        every = sorted({n for m in LANGUAGE_MODELS.values() for n in m.config_class.PRESETS})
        raise ConfigError(
            f"--preset must be one of {', '.join(kind.PRESETS)} with --arch {arch} "
            f"(of any architecture: {', '.join(every)}); got {config.preset!r}: choose one"
        )
    for option, name in _FIELDS.items():
        value = getattr(config, option)
        if value is None:
            continue
        if name not in known:
            raise ConfigError(
                f"--{option.replace('_', '-')} is not for --arch {arch}; got {value}: leave it out"
            )
        sizes[name] = value
    # A preset's own division of its width does not survive another width or number of heads.
    if config.embd is not None and config.ffn is None:
        sizes.pop("n_ffn", None)
    if config.heads is not None and config.kv_heads is None:
        sizes.pop("n_kv_head", None)
    sizes["vocab_size"] = vocab_size
    _check(sizes, config)
    try:
        return arch, kind.from_dict(sizes)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"the sizes do not go together: {error}: change --layers, --heads, --kv-heads, "
            "--embd, --ffn or --context"
        ) from error


def _check(sizes: dict[str, Any], config: TrainConfig) -> None:
    """The checks that need sizes which were not all given as options."""
    heads, embd, kv_heads = sizes["n_head"], sizes["n_embd"], sizes.get("n_kv_head")
    if embd % heads:
        near = max(1, round(embd / heads)) * heads
        raise ConfigError(
            f"--heads must divide --embd; got --heads {heads} and --embd {embd}: try --embd {near}"
        )
    if kv_heads is not None and heads % kv_heads:
        raise ConfigError(
            f"--kv-heads must divide --heads; got --kv-heads {kv_heads} and --heads {heads}: "
            f"try --kv-heads {math.gcd(heads, kv_heads)}"
        )
    if config.seq_len is not None and config.seq_len > sizes["context"]:
        raise ConfigError(
            f"--seq-len must not exceed the context; got --seq-len {config.seq_len} and a context "
            f"of {sizes['context']}: lower it, or give --context {config.seq_len}"
        )


def default_seq_len(config: TrainConfig, context: int) -> int:
    """Tokens per training sequence: as given, or the whole context.

    Args:
        config: what the run was told.
        context: longest sequence of the model.
    """
    return config.seq_len or context


def estimate_parameters(sizes: Any) -> int:
    """Count a model's parameters without building it.

    Args:
        sizes: its configuration.

    Returns:
        The number of elements.

    Example:
        >>> estimate_parameters(GPT2Config()) // 10**6
        124
    """
    return int(sizes.count_parameters())


def cache_bytes(sizes: Any) -> int:
    """Bytes of the keys and values that the sample at the end remembers.

    Args:
        sizes: the model's configuration.
    """
    heads = getattr(sizes, "n_kv_head", sizes.n_head)
    per_token = 2 * sizes.n_layer * heads * sizes.head_dim
    return int(4 * sizes.context * per_token)
