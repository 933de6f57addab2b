# SPDX-License-Identifier: MIT
"""A product in PyTorch; of bf16 both operands and the result are bf16."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ..contract import NotSupportedError
from ..products import Operands

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def set_threads(n: int) -> None:
    torch.set_num_threads(n)
    torch.set_float32_matmul_precision("highest")


def product(operands: Operands) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    if operands.dtype not in _DTYPES:
        raise NotSupportedError(f"PyTorch has no {operands.dtype}")
    a, b = (torch.from_numpy(x).to(_DTYPES[operands.dtype]) for x in (operands.a, operands.b))
    left = b.T if operands.layout == "out_prod_w" else b
    right = a.T if operands.layout == "mul_mat" else a
    out = torch.empty((left.shape[0], right.shape[1]), dtype=a.dtype)

    def run() -> None:
        torch.mm(left, right, out=out)

    return run, lambda: out.float().numpy()
