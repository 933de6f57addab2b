# SPDX-License-Identifier: MIT
"""One function per ggml op: check, then record. Shapes are in Python order."""

from __future__ import annotations

from ..tensor import register
from .attention import rope, soft_max
from .elementwise import (
    abs,
    add,
    clamp,
    cos,
    div,
    exp,
    gelu,
    gelu_erf,
    log,
    mul,
    neg,
    pow,
    relu,
    scale,
    sgn,
    sigmoid,
    silu,
    sin,
    sqr,
    sqrt,
    step,
    sub,
    swiglu,
    tanh,
)
from .loss import cross_entropy, cross_entropy_rows
from .norms import norm, rms_norm
from .optimizer import opt_step_adamw, opt_step_sgd
from .products import linear, matmul, mul_mat, out_prod
from .reductions import argmax, mean, sum, sum_rows
from .rows import cpy, get_rows, set_rows
from .shape import (
    broadcast_to,
    cast,
    concat,
    cont,
    getitem,
    permute,
    repeat,
    reshape,
    transpose,
)

__all__ = [
    "abs",
    "add",
    "argmax",
    "broadcast_to",
    "cast",
    "clamp",
    "concat",
    "cont",
    "cos",
    "cpy",
    "cross_entropy",
    "cross_entropy_rows",
    "div",
    "exp",
    "gelu",
    "gelu_erf",
    "get_rows",
    "getitem",
    "linear",
    "log",
    "matmul",
    "mean",
    "mul",
    "mul_mat",
    "neg",
    "norm",
    "opt_step_adamw",
    "opt_step_sgd",
    "out_prod",
    "permute",
    "pow",
    "relu",
    "repeat",
    "reshape",
    "rms_norm",
    "rope",
    "scale",
    "set_rows",
    "sgn",
    "sigmoid",
    "silu",
    "sin",
    "soft_max",
    "sqr",
    "sqrt",
    "step",
    "sub",
    "sum",
    "sum_rows",
    "swiglu",
    "tanh",
    "transpose",
]

_METHODS = (add, sub, mul, div, pow, neg, matmul, getitem, reshape, permute, transpose, cont, sum)
for _fn in (*_METHODS, mean, cast):
    register(_fn.__name__, _fn)
