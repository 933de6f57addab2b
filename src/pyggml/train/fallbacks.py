# SPDX-License-Identifier: MIT
"""Which ops of a training step a device leaves to the CPU, for every kind of model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backend.device import Device
from ..backend.device import device as find_device
from ..data import Batch
from ..models import build
from ..optim import AdamW
from .step import TrainStep

__all__ = ["step_fallbacks", "tell_fallbacks"]

# Sizes that the matrix units of GPUs take.
_TEXT = {"vocab_size": 64, "context": 64, "n_embd": 64, "n_layer": 1, "n_head": 2}
_IDS, _IMAGES, _CLASSES = (2, 32), (2, 1, 8, 8), (2,)
# Architecture, sizes, and the shapes of a batch.
_Kind = tuple[str, dict[str, Any], tuple[int, ...], tuple[int, ...]]
_KINDS: dict[str, _Kind] = {
    "gpt2": ("gpt2", _TEXT, _IDS, _IDS),
    "llama": ("llama", {**_TEXT, "n_kv_head": 1}, _IDS, _IDS),
    "llama with experts": ("llama", {**_TEXT, "n_expert": 4}, _IDS, _IDS),
    "llm": ("llm", {**_TEXT, "n_ffn": 128}, _IDS, _IDS),
    "bert-mlm": ("bert-mlm", _TEXT, _IDS, _IDS),
    "bert-classifier": ("bert-classifier", {**_TEXT, "classes": 3}, _IDS, _CLASSES),
    "bert-token-classifier": ("bert-token-classifier", {**_TEXT, "classes": 3}, _IDS, _IDS),
    "t5": ("t5", {**_TEXT, "n_head_dim": 32, "n_ffn": 128}, _IDS, _IDS),
    "mlp": ("mlp", {"inputs": 64, "hidden": (32,)}, (2, 64), _CLASSES),
    "cnn": ("cnn", {"channels": 1, "size": 8, "widths": (8,), "hidden": 32}, _IMAGES, _CLASSES),
    "resnet": ("resnet", {"channels": 1, "widths": (8, 16), "blocks": (1, 1)}, _IMAGES, _CLASSES),
}


def step_fallbacks(where: Device | str | None = None) -> dict[str, dict[str, int]]:
    """Record a training step of a small model of each kind; return the ops left to the CPU.

    A step is the loss, its gradients, their norm and AdamW's update; nothing is computed.

    Args:
        where: device; None for the default one.

    Returns:
        For each kind of model the names of the ops that the CPU computes, and how many of each.

    Raises:
        BackendError: there is no such device, or neither it nor the CPU computes an op.

    Example:
        >>> step_fallbacks("cpu")["gpt2"]
        {}
    """
    device = find_device(where)
    found = {}
    for name, (arch, sizes, x, y) in _KINDS.items():
        model = build(arch, sizes).to(device)
        step = TrainStep(model, AdamW(model.parameters()), clip=1.0)
        dtype = np.int32 if x == _IDS else np.float32
        step.record(Batch(np.zeros(x, dtype), np.zeros(y, np.int32)))
        found[name] = step.fallbacks
    return found


def tell_fallbacks(fallbacks: Mapping[str, int]) -> str:
    """Tell which ops the CPU computes.

    Args:
        fallbacks: names of ops, and how many of each.

    Example:
        >>> tell_fallbacks({"ROPE_BACK": 2, "CUMSUM": 1})
        '2 ROPE_BACK, 1 CUMSUM'
    """
    return ", ".join(f"{count} {op}" for op, count in fallbacks.items()) or "none"
