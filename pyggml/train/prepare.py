# SPDX-License-Identifier: MIT
"""From a configuration to text, device and batches."""

from __future__ import annotations

import numpy as np

from ..data import Loader, RandomWindows, TokenDataset, Tokenizer, embedded_text, read_text
from ..device import Device, set_default_device, set_threads
from ..device import device as find_device
from .checks import ConfigError
from .config import TrainConfig
from .plan import OutOfMemoryError, format_bytes

__all__ = ["check_estimate", "choose_device", "read_documents", "read_eval_texts", "split_text"]

# At the least: weights, Adam's two moments and, unless each is used at once, gradients.
_BYTES_PER_WEIGHT = 4
_BYTES_OF_STATE = {"adam": 8, "adamw": 8}
_BYTES_PER_GRADIENT = 4


def read_eval_texts(config: TrainConfig, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Tokens of the texts that `eval_text` names."""
    sets = {}
    for text in config.eval_text:
        name, _, path = text.partition("=")
        documents = read_text([path])
        sets[name] = tokenizer.encode_documents(documents, eos=tokenizer.eos_id is not None)
        if sets[name].size < 2:
            raise ConfigError(f"--eval-text {text}: must hold at least 2 tokens: give more text")
    return sets


def read_documents(config: TrainConfig) -> list[str]:
    """The documents to train on."""
    return read_text(config.text) if config.text else embedded_text()


def choose_device(config: TrainConfig) -> Device:
    """Make the run's device and threads the default ones."""
    where = find_device(config.device)
    set_default_device(where)
    if config.threads is not None:
        try:
            set_threads(config.threads)
        except ValueError as error:
            raise ConfigError(f"--threads: {error}") from error
    return where


def check_estimate(config: TrainConfig, parameters: int, cache: int, where: Device) -> None:
    """Refuse a model whose weights or context alone do not fit, before any is made.

    Args:
        config: of the run.
        parameters: how many the model has.
        cache: bytes of the keys and values of a whole context.
        where: the run's device.

    Raises:
        OutOfMemoryError: names the numbers and the ways out.
    """
    needed = _BYTES_PER_WEIGHT + _BYTES_OF_STATE.get(config.optimizer, 0)
    needed = parameters * (needed + _BYTES_PER_GRADIENT * (not config.fused_update))
    free = where.memory_free
    if free and needed > free:
        raise OutOfMemoryError(
            f"train: {parameters:,} parameters need {format_bytes(needed)} with gradients and "
            f"optimizer state, but {where.name} has {format_bytes(free)} free: choose a smaller "
            "--preset, or fewer --layers or a smaller --embd"
        )
    if free and cache > free:
        raise OutOfMemoryError(
            f"train: the keys and values of a whole context need {format_bytes(cache)}, but "
            f"{where.name} has {format_bytes(free)} free: choose a shorter --context"
        )


def split_text(
    ids: np.ndarray, config: TrainConfig, seq_len: int
) -> tuple[Loader, np.ndarray | None]:
    """The training batches and the validation tokens."""
    cut = ids.size - int(ids.size * config.val_fraction)
    train, validation = ids[:cut], ids[cut:]
    if train.size < seq_len + 1:
        raise ConfigError(
            f"--text must hold more than one sequence of --seq-len {seq_len} tokens for training; "
            f"got {train.size} tokens of {ids.size}: give more text or a smaller --seq-len"
        )
    if config.val_fraction and validation.size < 2:
        raise ConfigError(
            f"--val-fraction {config.val_fraction} of {ids.size} tokens leaves "
            f"{validation.size} for validation: give more text, or --val-fraction 0"
        )
    dataset: TokenDataset | RandomWindows
    if config.stride is not None or config.epochs is not None:
        dataset = TokenDataset(train, seq_len, config.stride)
    else:
        dataset = RandomWindows(train, seq_len)
    if len(dataset) < config.batch_size:
        raise ConfigError(
            f"--batch-size must be at most the number of training sequences; got "
            f"--batch-size {config.batch_size} and {len(dataset)} sequences of {seq_len} tokens: "
            f"use --batch-size {len(dataset)}, a smaller --seq-len, or more text"
        )
    loader = Loader(dataset, config.batch_size, seed=config.seed)
    return loader, validation if config.val_fraction else None
