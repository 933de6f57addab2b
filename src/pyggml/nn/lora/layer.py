# SPDX-License-Identifier: MIT
"""LoRALinear: a frozen linear layer with two small trained matrices beside it."""

from __future__ import annotations

import math

import numpy as np

from ... import checks, ops
from ...backend.dtypes import as_dtype
from ...errors import DTypeError
from ...ops.operands import need_tensor
from ...tensors import Tensor, tensor
from .. import functional, init
from ..layers import Dropout, Linear
from ..module import Module, Parameter

__all__ = ["LoRALinear", "check_numbers", "check_rank"]


class _Factor(Module):
    """One of an adapter's two matrices."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight


class LoRALinear(Linear):
    """A `Linear` with a frozen weight, to which the matmul of two small matrices is added.

    y = x @ weight.T + bias + scale * (dropout(x) @ A.T) @ B.T

    A begins uniform within 1 / sqrt(in_features), B at zero: the first output is the linear's own.
    The parameters are `weight` and `bias`, frozen, `lora_A.weight` and `lora_B.weight`.

    Args:
        linear: what is adapted; its tensors are shared, of any type that `ops.linear` multiplies.
        rank: width between A and B.
        alpha: scale times rank.
        dropout: probability that an element of A's input is dropped.
        rslora: scale is alpha / sqrt(rank) instead of alpha / rank.

    Attributes:
        rank: width between A and B.
        scale: factor of their matmul.

    Shape:
        x (..., in_features) -> (..., out_features); A (rank, in_features), B (out_features, rank)

    Raises:
        TypeError: linear is no Linear, or a subclass, whose forward would be lost; or
            a number is of a wrong kind.
        ValueError: it is adapted already, or a number is out of range: a rank beyond both widths
            says no more than one of that width.

    Source: Hu et al. 2021, arXiv:2106.09685; over quantised weights: Dettmers et al. 2023,
        arXiv:2305.14314; rslora: Kalajdzievski 2023, arXiv:2312.03732. Names as in PEFT.

    Example:
        >>> layer = LoRALinear(Linear(4, 3), rank=2)
        >>> [name for name, p in layer.named_parameters() if p.requires_grad]
        ['lora_A.weight', 'lora_B.weight']
    """

    def __init__(
        self,
        linear: Linear,
        rank: int = 8,
        alpha: float = 8.0,
        dropout: float = 0.0,
        rslora: bool = False,
    ) -> None:
        checks.instance("LoRALinear", "linear", linear, Linear)
        if isinstance(linear, LoRALinear):
            raise ValueError("LoRALinear: linear must not be adapted already; merge_lora first")
        if type(linear) is not Linear:
            raise TypeError(
                f"LoRALinear: linear must be a Linear itself; got {type(linear).__name__}, a "
                "subclass, whose own forward would be lost"
            )
        rank, alpha = check_numbers("LoRALinear", rank, alpha)
        check_rank("LoRALinear", rank, linear.weight.shape)
        _share(self, linear.weight, linear.bias, linear.training)
        self.rank = rank
        by_root = checks.flag("LoRALinear", "rslora", rslora)
        self.scale = alpha / (math.sqrt(rank) if by_root else rank)
        for own in (linear.weight, linear.bias):
            if own is not None:
                own.requires_grad = False
        out, inside = self.weight.shape
        where = self.weight.device
        # Within 1 / sqrt(in), as Linear's own weight.
        drawn = init.kaiming_uniform(math.sqrt(1.0 / 3.0))((rank, inside))
        self.lora_A = _Factor(Parameter(drawn, device=where))
        self.lora_B = _Factor(Parameter(np.zeros((out, rank), np.float32), device=where))
        self.dropout = Dropout(dropout)
        self.dropout.training = linear.training

    def forward(self, x: Tensor) -> Tensor:
        """Return the frozen layer's output with the adapter's added."""
        y = functional.linear(need_tensor("LoRALinear", "x", x), self.weight, self.bias)
        # Scaled where it is narrow.
        inner = ops.scale(functional.linear(self.dropout(x), self.lora_A.weight), self.scale)
        return y + functional.linear(inner, self.lora_B.weight)

    def delta(self) -> np.ndarray:
        """Return what the adapter adds to the weight: scale * B @ A.

        Shape:
            -> (out_features, in_features)
        """
        delta = self.lora_B.weight.numpy() @ self.lora_A.weight.numpy()
        return np.asarray(np.float32(self.scale) * delta, np.float32)

    def merged(self, dtype: str | None = None) -> Linear:
        """Return a `Linear` with the adapter in its weight; see `merge_lora`."""
        wanted = self.weight.dtype if dtype is None else as_dtype(dtype)
        if not (wanted.is_float or wanted.quantized):
            raise DTypeError(f"merge_lora: dtype must be a float or quantised; got {wanted.name}")
        values = self.weight.numpy() + self.delta()
        # A tensor of its own: another layer may share the frozen one.
        return self.plain(tensor(values, wanted, self.weight.device))

    def plain(self, weight: Tensor | None = None) -> Linear:
        """Return a `Linear` without the adapter, of this weight or another."""
        weight = self.weight if weight is None else weight
        return _share(Linear.__new__(Linear), weight, self.bias, self.training)


def _share(layer: Linear, weight: Tensor, bias: Tensor | None, training: bool) -> Linear:
    """Give a layer tensors that are there: its parameters, also where they are frozen."""
    layer.weight, layer.bias, layer.training = weight, bias, training
    given = {"weight": weight, "bias": bias}
    layer.__dict__["_parameter_names"] = {n: None for n, t in given.items() if t is not None}
    return layer


def check_numbers(who: str, rank: int, alpha: float) -> tuple[int, float]:
    """Return rank, at least 1, and alpha, positive in f32."""
    # f32's smallest normal number: the adapter's scale is computed and stored as f32.
    least = float(np.finfo(np.float32).tiny)
    return checks.whole(who, "rank", rank, 1), checks.f32(who, "alpha", alpha, least)


def check_rank(who: str, rank: int, shape: tuple[int, ...], path: str = "the layer") -> None:
    """Raise a ValueError for a rank beyond both of a weight's widths."""
    if rank > max(shape):
        raise ValueError(
            f"{who}: rank must be at most the larger width of {path}, {max(shape)}; got {rank}"
        )
