# SPDX-License-Identifier: MIT
"""A training step of GPT-2 in pyggml."""

from __future__ import annotations

import time

import pyggml
from pyggml import nn
from pyggml.models import GPT2, GPT2Config
from pyggml.optim import AdamW, decay_groups
from pyggml.train.step import TrainStep

from .. import model as shared
from ..contract import NotSupportedError

_run = pyggml.Graph.run


class Inside:
    """Seconds spent in graphs; the rest of a step is Python's."""

    seconds = 0.0


def _timed(graph: pyggml.Graph) -> None:
    began = time.perf_counter()
    _run(graph)
    Inside.seconds += time.perf_counter() - began


def build_model(spec: shared.Spec) -> GPT2:
    """The model with the first weights."""
    config = GPT2Config(
        vocab_size=spec.vocab,
        context=spec.seq,
        n_embd=spec.embd,
        n_layer=spec.layers,
        n_head=spec.heads,
        eps=shared.NORM_EPS,
        **({"attention": spec.attention} if spec.attention else {}),
    )
    with nn.init.empty_weights():
        model = GPT2(config)
    if spec.checkpointing:
        if not hasattr(model, "checkpointing"):
            raise NotSupportedError("GPT2 has no activation checkpointing")
        model.checkpointing = True
    for name, parameter in model.named_parameters():
        parameter.copy_(shared.read_weight(spec, name))
    return model


class Step:
    def __init__(self, spec: shared.Spec) -> None:
        pyggml.Graph.run = _timed  # type: ignore[method-assign]
        pyggml.set_threads(spec.threads)
        marks = [time.perf_counter()]
        self.model = build_model(spec)
        marks.append(time.perf_counter())
        # Every matrix, as the others do.
        groups = decay_groups(self.model, shared.WEIGHT_DECAY, decay_embeddings=True)
        self.optimizer = AdamW(
            groups, shared.LR, shared.BETAS, shared.EPS, fused_update=spec.fused_update
        )
        self._step = TrainStep(self.model, self.optimizer, spec.clip, precision=spec.dtype)
        marks.append(time.perf_counter())
        self._batch = shared.batch(spec)
        self.graph = self._step.record(self._batch[0].shape)
        marks.append(time.perf_counter())
        names = ("model_s", "optimizer_s", "plan_s")
        self.took = {name: marks[i + 1] - marks[i] for i, name in enumerate(names)}

    @staticmethod
    def inside() -> float:
        """Seconds spent in graphs so far."""
        return Inside.seconds

    def __call__(self) -> float:
        return self._step([self._batch]).loss

    def planned(self) -> dict[str, int]:
        """Bytes by kind, as planned before the first step."""
        weights = sum(p.nbytes for p in self.model.parameters())
        return {
            "parameters": weights,
            "gradients": self.optimizer.grad_nbytes,
            "optimizer": self.optimizer.nbytes,
            "activations": self.graph.memory_bytes,
        }

    def profile(self) -> str:
        """The table of one step, against what the machine attains."""
        peaks = pyggml.measure_peaks()
        with pyggml.profile() as taken:
            self()
        return taken.table(peaks)
