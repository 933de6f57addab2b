# SPDX-License-Identifier: MIT
"""A fine-tuning step in pyggml: LoRA on all linear layers of a GGUF file in its own types."""

from __future__ import annotations

from typing import Any

import pyggml as pg
from pyggml import nn
from pyggml.models import load
from pyggml.optim import AdamW
from pyggml.train import TrainStep

from .. import tuned


class Step:
    """Does steps; the file stays mapped."""

    def __init__(self, order: dict[str, Any]) -> None:
        spec = tuned.Spec(**order["spec"])
        pg.set_threads(order["threads"])
        pg.seed(spec.seed)
        model, _ = load(order["path"], keep_types=True, mapped=True)
        nn.apply_lora(model, spec.rank, float(spec.rank), targets="all-linear")
        model.checkpointing = spec.checkpointing
        optimizer = AdamW(model, lr=spec.lr, weight_decay=0.0)
        self._step = TrainStep(model, optimizer, precision="bf16" if spec.bf16 else "f32")
        self._batch = tuned.batch(spec)
        self._step.record(self._batch)

    def __call__(self) -> float:
        """Do a step, and return its loss."""
        return float(self._step([self._batch]).loss)
