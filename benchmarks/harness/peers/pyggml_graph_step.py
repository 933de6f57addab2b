# SPDX-License-Identifier: MIT
"""A training step of GPT-2 in pyggml: a loop of one's own around a graph that was made once."""

from __future__ import annotations

import pyggml
from pyggml.nn import functional as F

from .. import model as shared
from . import pyggml_loop_step


class Step(pyggml_loop_step.Step):
    def __init__(self, spec: shared.Spec) -> None:
        super().__init__(spec)
        x, y = (pyggml.tensor(array) for array in self._batch)
        with pyggml.autocast(self._dtype):
            logits = self.model(x)
            self._loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        self._inputs = x, y
        self._graph = pyggml.Graph([self._loss], loss=self._loss, grads=self.optimizer.grads)

    def __call__(self) -> float:
        for own, array in zip(self._inputs, self._batch, strict=True):
            own.copy_(array)
        self.optimizer.zero_grad()
        self._graph.run()
        self.optimizer.step(clip=self._clip)
        return float(self._graph.read(self._loss))
