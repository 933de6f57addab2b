# SPDX-License-Identifier: MIT
"""What a training takes of its machine: memory, and the share of the peak."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...backend.device import Device
from ...backend.device import device as find_device

__all__ = ["flops_per_token", "free_memory", "memory_in_use"]

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def flops_per_token(model: Any, seq_len: int) -> float:
    """Floating-point operations that training a language model on one token needs.

    6 N + 12 L H D T: two for each of the N elements of matrices that multiply and for each score
    and value of attention, forward once, backward twice; of a frozen matrix, which has no gradient,
    backward once. What is computed a second time to save memory does not count.

    Args:
        model: a language model; its config has n_layer, n_head and head_dim.
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
    config = model.config
    # Of the experts' stacked matrices a token meets a few.
    met = config.n_expert_used / config.n_expert if getattr(config, "n_expert", 0) else 1.0
    multiplied = sum(
        p.size * (met if p.ndim == 3 else 1.0) * (6 if p.requires_grad else 4)
        for p in model.parameters()
        if p.ndim >= 2 and id(p) not in tables
    )
    if getattr(config, "tie", False):  # the table is the head's matrix, too
        multiplied += (
            config.vocab_size * config.n_embd * (6 if model.head_weight.requires_grad else 4)
        )
    heads = config.n_head * config.head_dim
    return float(multiplied + 12 * config.n_layer * heads * seq_len)


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
