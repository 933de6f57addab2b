# SPDX-License-Identifier: MIT
"""Tensors, stored or recorded."""

from .autocast import autocast, bf16_products
from .random import random_generator, seed
from .tensor import Tensor, empty, full, ones, tensor, zeros, zeros_group

__all__ = [
    "Tensor",
    "autocast",
    "bf16_products",
    "empty",
    "full",
    "ones",
    "random_generator",
    "seed",
    "tensor",
    "zeros",
    "zeros_group",
]
