# SPDX-License-Identifier: MIT
"""Inference in llama.cpp through its C interface, with its defaults."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np

# The declarations of the C interface are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.interop import direct


class Model:
    LIBRARY = True  # of the order; else that of the wheel

    def __init__(self, path: str, context: int, order: dict[str, Any]) -> None:
        self._lib = lib = direct.library(order["library"] if self.LIBRARY else None)
        self._said: list[str] = []
        self._log = direct.begin(lib, self._said)
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        params.extra_bufts = order["reorders"]
        self._model = lib.llama_model_load_from_file(path.encode(), params)
        settings = lib.llama_context_default_params()
        settings.n_ctx = settings.n_batch = context
        settings.n_threads = settings.n_threads_batch = order["threads"]
        self._context = self._model and lib.llama_init_from_model(self._model, settings)
        if not self._context:
            raise RuntimeError("".join(self._said)[-400:])
        self._size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))

    def reset(self) -> None:
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), False)

    def read(self, ids: list[int]) -> np.ndarray:
        kept = (ctypes.c_int32 * len(ids))(*ids)
        batch = self._lib.llama_batch_get_one(ctypes.addressof(kept), len(ids))
        if self._lib.llama_decode(self._context, batch):
            raise RuntimeError("".join(self._said)[-400:])
        found = self._lib.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(found, (self._size,)).copy()
