# SPDX-License-Identifier: MIT
"""A training step of GPT-2 in pyggml, in a loop of one's own."""

from __future__ import annotations

import pyggml
from pyggml.nn import functional as F
from pyggml.optim import AdamW, decay_groups

from .. import model as shared
from ..contract import NotSupportedError
from .pyggml_step import build_model


class Step:
    def __init__(self, spec: shared.Spec) -> None:
        if spec.fused_update:
            raise NotSupportedError("fused_update is TrainStep's")
        pyggml.set_threads(spec.threads)
        self.model = build_model(spec)
        groups = decay_groups(self.model, shared.WEIGHT_DECAY, decay_embeddings=True)
        self.optimizer = AdamW(groups, shared.LR, shared.BETAS, shared.EPS)
        self._batch = shared.batch(spec)
        self._dtype = spec.dtype
        self._clip = spec.clip

    def __call__(self) -> float:
        x, y = (pyggml.tensor(array) for array in self._batch)
        with pyggml.autocast(self._dtype):
            logits = self.model(x)
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        loss.backward()
        self.optimizer.step(clip=self._clip)
        self.optimizer.zero_grad()
        return float(loss)
