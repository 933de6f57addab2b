# SPDX-License-Identifier: MIT
"""Attention of several heads with PyTorch's names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import checks, ops
from ..errors import ShapeError
from ..ops.operands import need_float
from ..tensors import Tensor
from . import init
from .functional.masking import hiding
from .layers import Dropout, Linear, check_sizes
from .module import Module, Parameter

__all__ = ["MultiheadAttention", "check_batch_first", "check_stream"]


class MultiheadAttention(Module):
    """Attention of a sequence to another one, or to itself, with several heads.

    Sequences come with the batch first. A mask is a comparison such as `ids == 0`, or booleans of
    NumPy, which are true where hidden; or f32 that is added to the scores, as of `nn.causal_mask`.

    Args:
        embed_dim: width of the query and of the output.
        num_heads: heads; must divide embed_dim.
        dropout: probability that a weight is dropped while training.
        bias: learn biases.
        batch_first: True, as the batch is the first axis here.

    Shape:
        query (B, T, C), key and value (B, S, C), key_padding_mask (B, S),
        attn_mask (T, S), (B * num_heads, T, S) or (B, 1, T, S)
        -> (B, T, C), and weights (B, T, S), (B, num_heads, T, S) or None

    Raises:
        TypeError: an argument is of a wrong kind.
        ValueError: the heads do not divide the width, or a probability is out of range.

    Source: torch.nn.MultiheadAttention with batch_first=True; Vaswani et al. 2017.

    Example:
        >>> x = ones((2, 3, 8))
        >>> y, weights = MultiheadAttention(8, 2)(x, x, x)
        >>> y.shape, weights.shape
        ((2, 3, 8), (2, 3, 3))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = True,
    ) -> None:
        who = "MultiheadAttention"
        check_batch_first(who, batch_first)
        embed_dim, self.num_heads = check_sizes(who, embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise ValueError(
                f"{who}: num_heads must divide embed_dim; got {num_heads} and {embed_dim}"
            )
        self.embed_dim = embed_dim
        learns_bias = checks.flag(who, "bias", bias)
        self.dropout = Dropout(dropout)
        bound = math.sqrt(6.0 / (4 * embed_dim))  # Xavier's, of the three matrices as one
        self.in_proj_weight = Parameter(init.uniform(-bound, bound)((3 * embed_dim, embed_dim)))
        self.in_proj_bias = Parameter(np.zeros(3 * embed_dim, np.float32)) if learns_bias else None
        self.out_proj = Linear(embed_dim, embed_dim, learns_bias)
        if self.out_proj.bias is not None:
            self.out_proj.bias.copy_(np.zeros(embed_dim, np.float32))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return what the queries gather, and the mean weights of the heads.

        Args:
            query: what asks.
            key: what is compared with it.
            value: what is gathered.
            key_padding_mask: keys that all queries ignore, as those that fill a row up.
            need_weights: return the weights; without them the memory of their mean is saved.
            attn_mask: keys that each query ignores.
            average_attn_weights: return the mean weights of the heads, not those of each.
            is_causal: hide what comes later, in addition to the masks.

        Raises:
            ShapeError: the shapes do not belong together.
        """
        who = "MultiheadAttention"
        named = {"query": query, "key": key, "value": value}
        for name, x in named.items():
            check_stream(who, name, x, self.embed_dim)
        batch, length, _ = query.shape
        if key.shape != value.shape or key.shape[0] != batch:
            raise ShapeError(
                f"{who}: key and value must have one shape, and the batch of the query; got "
                f"{key.shape}, {value.shape} and {query.shape}"
            )
        scores = batch, self.num_heads, length, key.shape[1]
        mask = hiding(
            who,
            query,
            scores,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
        )
        q, k, v = (self._projected(i, x) for i, x in enumerate((query, key, value)))
        scale = (self.embed_dim // self.num_heads) ** -0.5
        weights = ops.soft_max(ops.mul_mat(k, q), mask, scale)  # (B, H, T, S)
        dropped = self.dropout(weights)
        gathered = ops.mul_mat(ops.cont(ops.transpose(v)), dropped)  # (B, H, T, D)
        y = gathered.transpose(1, 2).reshape(batch, length, self.embed_dim)
        y = self.out_proj(y)
        if not checks.flag(who, "need_weights", need_weights):
            return y, None
        mean = checks.flag(who, "average_attn_weights", average_attn_weights)
        return y, dropped.mean(dim=1) if mean else dropped

    def _projected(self, part: int, x: Tensor) -> Tensor:
        """Return the queries, keys or values of all heads, (B, H, T, D)."""
        width, heads = self.embed_dim, self.num_heads
        rows = slice(part * width, (part + 1) * width)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        y = ops.linear(x, self.in_proj_weight[rows], bias)
        return y.reshape(x.shape[0], x.shape[1], heads, width // heads).transpose(1, 2)


def check_stream(who: str, name: str, x: Any, width: int) -> None:
    """Raise unless x is an f32 tensor (B, T, width).

    Args:
        who: the layer.
        name: the argument.
        x: the argument.
        width: of the stream.
    """
    if need_float(who, name, x).ndim != 3 or x.shape[2] != width:
        raise ShapeError(f"{who}: {name} must be (B, T, {width}); got {name}.shape={x.shape}")


def check_batch_first(who: str, given: Any) -> None:
    """Raise if the batch is to be the second axis.

    Args:
        who: the layer.
        given: its argument batch_first.
    """
    if not checks.flag(who, "batch_first", given):
        raise ValueError(
            f"{who}: batch_first must be True; got False: give (B, T, C), such as"
            " x.transpose(0, 1) of (T, B, C)"
        )
