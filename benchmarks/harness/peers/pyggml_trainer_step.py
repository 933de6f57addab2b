# SPDX-License-Identifier: MIT
"""Training steps of GPT-2 by pyggml's Trainer, which stops after each until it is asked again."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import numpy as np

import pyggml
from pyggml.optim import AdamW, decay_groups
from pyggml.train import Callback, Trainer

from .. import model as shared
from ..contract import NotSupportedError
from .pyggml_step import build_model

_MOST = 10**6


class _Batches:
    """The same batch for ever, as the others have it."""

    def __init__(self, batch: tuple[np.ndarray, np.ndarray]):
        self._batch = batch

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        return self._batch

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Step(Callback):
    def __init__(self, spec: shared.Spec) -> None:
        if spec.fused_update:
            raise NotSupportedError("fused_update is TrainStep's")
        pyggml.set_threads(spec.threads)
        model = build_model(spec)
        groups = decay_groups(model, shared.WEIGHT_DECAY, decay_embeddings=True)
        trainer = Trainer(
            model,
            _Batches(shared.batch(spec)),
            optimizer=AdamW(groups, shared.LR, shared.BETAS, shared.EPS),
            callbacks=[self],
            schedule=lambda step: shared.LR,
            steps=_MOST,
            clip=spec.clip,
            precision=spec.dtype,
        )
        self._orders: SimpleQueue[None] = SimpleQueue()
        self._losses: SimpleQueue[float | BaseException] = SimpleQueue()
        threading.Thread(target=self._fit, args=(trainer,), daemon=True).start()

    def _fit(self, trainer: Trainer) -> None:
        self._orders.get()
        try:
            trainer.fit(progress=False)
        except BaseException as error:  # noqa: BLE001 - the other thread raises it
            self._losses.put(error)

    def on_step(self, trainer: Trainer, metrics: Any) -> None:
        self._losses.put(metrics.loss)
        self._orders.get()

    def __call__(self) -> float:
        self._orders.put(None)
        loss = self._losses.get()
        if isinstance(loss, BaseException):
            raise loss
        return loss
