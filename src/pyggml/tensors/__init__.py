# SPDX-License-Identifier: MIT
"""Tensors, stored or recorded."""

from .autocast import autocast, bf16_matmuls
from .create import empty, full, ones, tensor, zeros, zeros_group
from .random import random_generator, seed
from .record import record, without_gradient
from .tensor import Tensor

__all__ = [
    "Tensor",
    "autocast",
    "bf16_matmuls",
    "empty",
    "full",
    "ones",
    "random_generator",
    "record",
    "seed",
    "tensor",
    "without_gradient",
    "zeros",
    "zeros_group",
]
