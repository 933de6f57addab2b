# SPDX-License-Identifier: MIT
"""Memory that a training uses of its machine, and its share of the peak."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...backend.device import Device
from ...backend.device import device as find_device
from ...debug import measure_peaks

__all__ = ["Utilization", "flops_per_token", "free_memory", "memory_in_use"]

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def flops_per_token(model: Any, seq_len: int) -> float:
    """Return the floating-point operations of training a language model on one token.

    6 N + 12 L H D T: two for each of the N elements of matrices that multiply and for each score
    and value of attention, forward once, backward twice; of a frozen matrix, which has no gradient,
    backward once. What is computed a second time to save memory does not count.

    Args:
        model: a language model; its config has n_layer, n_head and head_dim.
        seq_len: tokens of a sequence, T.

    Source: Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, appendix B.

    Example:
        >>> from pyggml.models import GPT2, GPT2Config
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
        p.numel() * (met if p.ndim == 3 else 1.0) * (6 if p.requires_grad else 4)
        for p in model.parameters()
        if p.ndim >= 2 and id(p) not in tables
    )
    if getattr(config, "tie", False):  # the table is the head's matrix, too
        multiplied += (
            config.vocab_size * config.n_embd * (6 if model.head_weight.requires_grad else 4)
        )
    heads = config.n_head * config.head_dim
    return float(multiplied + 12 * config.n_layer * heads * seq_len)


class Utilization:
    """The share of a device's measured peak that a training uses (model FLOPs utilization).

    Args:
        model: a language model.
        seq_len: returns the tokens of a sequence.

    Example:
        >>> Utilization(model, lambda: 64).share(1e5) is None  # nothing was measured
        True
    """

    def __init__(self, model: Any, seq_len: Callable[[], int]):
        self._model, self._seq_len = model, seq_len
        self._peak_flop_s: float | None = None

    def measure(self, device: Device) -> None:
        """Measure the peak of a device, once.

        Args:
            device: device of the model.
        """
        if self._peak_flop_s is None:
            self._peak_flop_s = measure_peaks(device).flop_s

    def share(self, tokens_per_s: float) -> float | None:
        """Return the share of the peak that the model's matmuls need; None if not measured.

        Args:
            tokens_per_s: speed of the training.
        """
        if self._peak_flop_s is None:
            return None
        return flops_per_token(self._model, self._seq_len()) * tokens_per_s / self._peak_flop_s


def memory_in_use(device: Device) -> int | None:
    """Return the bytes that the process has of the CPU's memory, or in use on another device.

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
    """Return the free bytes of a model's device plus the bytes of the model.

    Args:
        model: on one device.

    Returns:
        The bytes; None where the device does not tell.
    """
    parameters = model.parameters()
    free = find_device(parameters[0].device).memory_free
    return free + sum(p.nbytes for p in parameters) if free else None
