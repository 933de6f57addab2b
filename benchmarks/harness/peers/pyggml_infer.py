# SPDX-License-Identifier: MIT
"""Inference in pyggml: the file's weights as they lie, and a Generator."""

from __future__ import annotations

from typing import Any

import numpy as np

import pyggml as pg
import pyggml.data
from pyggml.models import Generator


class Model:
    def __init__(self, path: str, context: int, order: dict[str, Any]) -> None:
        pg.set_threads(order["threads"])
        model, _ = pg.load(path, keep_types=True, mapped=True)
        self._generator = Generator(model, context)

    def reset(self) -> None:
        self._generator.reset()

    def read(self, ids: list[int]) -> np.ndarray:
        return self._generator.feed(ids)
