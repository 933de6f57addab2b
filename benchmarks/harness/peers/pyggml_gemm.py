# SPDX-License-Identifier: MIT
"""A product in pyggml: one op in a planned graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import pyggml
from pyggml.tensors import record

from ..contract import NotSupportedError
from ..products import Operands


def set_threads(n: int) -> None:
    pyggml.set_threads(n)


def product(operands: Operands) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    try:
        a = pyggml.tensor(operands.a, operands.dtype)
        b = pyggml.tensor(operands.b)
        if operands.layout == "mul_mat":
            result = pyggml.ops.mul_mat(a, b)
        else:
            # As ggml's backward has it: the gradient is read through its strides, not copied.
            other = b.T if operands.layout == "out_prod_x" else b
            shape = (other.shape[-1], a.shape[-1])
            result = record(pyggml.lib.ggml_out_prod, [a, other], shape)
        graph = pyggml.Graph([result])
    except (pyggml.BackendError, pyggml.DTypeError, pyggml.ShapeError) as error:
        raise NotSupportedError(str(error)) from error
    return graph.run, lambda: graph.read(result)
