# SPDX-License-Identifier: MIT
"""What a training takes of its machine: memory, and the share of the peak."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..device import Device
from ..device import device as find_device

__all__ = ["flops_per_token", "free_memory", "memory_in_use"]

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def flops_per_token(model: Any, seq_len: int) -> float:
    """Floating-point operations that training a language model on one token needs.

    6 N + 12 L C T: two for each of the N elements of matrices that multiply and for each score
    and value of attention, forward once, backward twice. What is computed a second time to save
    memory does not count.

    Args:
        model: a language model; its config has n_layer and n_embd.
        seq_len: tokens of a sequence, T.

    Source: Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, appendix B.

    Example:
        >>> config = GPT2Config(vocab_size=64, context=32, n_embd=16, n_layer=3, n_head=2)
        >>> flops_per_token(GPT2(config), 32)
        79872.0
    """
    tables = {
        id(module.weight)
        for _, module in model.named_modules()
        if getattr(module, "is_embedding", False)
    }
    sizes = [p.size for p in model.parameters() if p.ndim >= 2 and id(p) not in tables]
    config = model.config
    multiplied = sum(sizes)
    if getattr(config, "tie", False):  # the table is the head's matrix, too
        multiplied += config.vocab_size * config.n_embd
    return float(6 * multiplied + 12 * config.n_layer * config.n_embd * seq_len)


def memory_in_use(device: Device) -> int | None:
    """Bytes that the process has of the CPU's memory, or that are in use of another device's.

    Args:
        device: where the model is.

    Returns:
        The bytes; None where the system does not tell.
    """
    if device.kind != "cpu":
        total, free = device.memory_total, device.memory_free
        return total - free if total else None
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def free_memory(model: Any) -> int | None:
    """Bytes that a model's device has free, with what the model takes of them already.

    Args:
        model: on one device.

    Returns:
        The bytes; None where the device does not tell.
    """
    parameters = model.parameters()
    free = find_device(parameters[0].device).memory_free
    return free + sum(p.nbytes for p in parameters) if free else None
