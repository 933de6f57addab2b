# SPDX-License-Identifier: MIT
"""Tensors, stored or recorded."""

from .autocast import autocast, bf16_matmuls
from .create import empty, full, ones, tensor, zeros, zeros_group
from .filled import (
    arange,
    as_tensor,
    empty_like,
    eye,
    from_numpy,
    full_like,
    linspace,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    zeros_like,
)
from .random import random_generator, seed
from .record import record, without_gradient
from .tensor import Tensor

__all__ = [
    "Tensor",
    "arange",
    "as_tensor",
    "autocast",
    "bf16_matmuls",
    "empty",
    "empty_like",
    "eye",
    "from_numpy",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "random_generator",
    "record",
    "seed",
    "tensor",
    "without_gradient",
    "zeros",
    "zeros_group",
    "zeros_like",
]
