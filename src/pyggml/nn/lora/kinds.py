# SPDX-License-Identifier: MIT
"""Adapters beside embeddings, convolutions and stacked experts; the class for each layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ops
from ...ops.operands import need_tensor
from ...tensors import Tensor
from .. import functional, init
from ..experts import StackedLinear
from ..images import Conv2d
from ..layers import Embedding
from ..module import Module
from .layer import LoRALayer, LoRALinear

__all__ = ["LoRAConv2d", "LoRAEmbedding", "LoRAStackedLinear", "lora_class"]


class LoRAEmbedding(LoRALayer, Embedding):
    """An `Embedding` with a frozen table, to which the product of two small matrices is added.

    y = weight[ids] + scale * A[ids] @ B.T

    A begins at zero, B standard normal, as in PEFT, whose `lora_embedding_A` is A transposed. A
    language model whose head is this table adds the adapter to the head, too.

    Args:
        layer: what is adapted; its table is shared.
        rank: width between A and B.
        alpha: scale times rank.
        dropout: must be 0.
        use_rslora: scale is alpha / sqrt(rank) instead of alpha / rank.
        use_dora: must be False.

    Shape:
        ids (...) i32 -> (..., dim); A (num, rank), B (dim, rank)

    Raises:
        TypeError: layer is no Embedding, or a subclass.
        ValueError: it is adapted already, or a number is out of range.

    Example:
        >>> LoRAEmbedding(Embedding(10, 4), rank=2)(tensor([1, 2])).shape
        (2, 4)
    """

    kind = Embedding

    @classmethod
    def shapes(cls, layer: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of A and B beside a layer."""
        num, dim = layer.weight.shape
        return (num, rank), (dim, rank)

    def _drawn(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        a, b = self.shapes(self, rank)
        return np.zeros(a, np.float32), np.asarray(init.normal(1.0)(b), np.float32)

    @classmethod
    def split(cls, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrices whose product has the weight's numbers, of A and B."""
        return a, b.swapaxes(-1, -2)

    @classmethod
    def join(
        cls, left: np.ndarray, right: np.ndarray, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return A and B of the matrices whose product has the numbers of a weight of a shape."""
        return left, right.swapaxes(-1, -2)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors at `ids` with the adapter's added."""
        rows = ops.scale(ops.get_rows(self.lora_A.weight, ids), self.scale)
        return ops.get_rows(self.weight, ids) + functional.linear(rows, self.lora_B.weight)

    def head(self, x: Tensor) -> Tensor:
        """Return what the adapter adds to the logits of a head that is this table.

        Shape:
            x (..., dim) -> (..., num)
        """
        inner = ops.scale(x @ self.lora_B.weight, self.scale)
        return functional.linear(inner, self.lora_A.weight)


class LoRAConv2d(LoRALayer, Conv2d):
    """A `Conv2d` with frozen kernels, beside which two small convolutions run.

    y = conv(x) + scale * conv_1x1(conv(dropout(x); A); B)

    Args:
        layer: what is adapted; its kernels are shared. Those with groups cannot be adapted.
        rank: channels between A and B.
        alpha: scale times rank.
        dropout: probability that an element of A's input is dropped.
        use_rslora: scale is alpha / sqrt(rank) instead of alpha / rank.
        use_dora: train the norms of the kernels by themselves.

    Shape:
        x (B, C, H, W) -> (B, O, OH, OW); A (rank, C, KH, KW), B (O, rank, 1, 1)

    Raises:
        TypeError: layer is no Conv2d, or a subclass.
        ValueError: it has groups or is adapted already, or a number is out of range.

    Example:
        >>> LoRAConv2d(Conv2d(3, 8, 3, padding=1), rank=2)(ones((2, 3, 5, 5))).shape
        (2, 8, 5, 5)
    """

    kind = Conv2d
    takes_dora = True

    @classmethod
    def shapes(cls, layer: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of A and B beside a layer."""
        out, *inside = layer.weight.shape
        return (rank, *inside), (out, rank, 1, 1)

    @classmethod
    def check(cls, who: str, layer: Any, rank: int, path: str = "the layer") -> None:
        """Raise a ValueError for a layer that cannot be adapted, or not with this rank."""
        if layer.groups > 1:
            raise ValueError(
                f"{who}: convolutions that are adapted must have groups=1; got "
                f"{layer.groups} at {path}: leave it out of targets"
            )
        super().check(who, layer, rank, path)

    @classmethod
    def split(cls, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrices whose product has the weight's numbers, of A and B."""
        return b.reshape(len(b), -1), a.reshape(len(a), -1)

    @classmethod
    def join(
        cls, left: np.ndarray, right: np.ndarray, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return A and B of the matrices whose product has the numbers of a weight of a shape."""
        a = right.reshape(len(right), *shape[1:])
        return a, left.reshape(*left.shape, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolved images with the adapter's added."""
        need_tensor("LoRAConv2d", "x", x)
        options = self.stride, self.padding, self.dilation
        dropped = self.dropout(x)
        inner = ops.conv_2d(dropped, self.lora_A.weight, *options)
        beside = ops.conv_2d(ops.scale(inner, self.scale), self.lora_B.weight)
        if self.lora_magnitude_vector is None:
            y = ops.conv_2d(x, self.weight, *options) + beside
        else:
            y = self.with_norms(lambda x: ops.conv_2d(x, self.weight, *options), x, dropped, beside)
        return y if self.bias is None else y + self.bias.reshape(-1, 1, 1)


class LoRAStackedLinear(LoRALayer, StackedLinear):
    """The matrices of a mixture's experts, frozen, with an adapter for each expert.

    y = weight[e] x + bias[e] + scale * B[e] A[e] dropout(x), for the chosen experts e

    Args:
        layer: what is adapted; its matrices are shared.
        rank: width between A and B.
        alpha: scale times rank.
        dropout: probability that an element of A's input is dropped.
        use_rslora: scale is alpha / sqrt(rank) instead of alpha / rank.
        use_dora: must be False.

    Shape:
        x (N, 1 or K, C), chosen (N, K) i32 -> (N, K, M); A (E, rank, C), B (E, M, rank)

    Raises:
        TypeError: layer is of another kind.
        ValueError: it is adapted already, or a number is out of range.
    """

    kind = StackedLinear

    @classmethod
    def shapes(cls, layer: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of A and B beside a layer."""
        experts, out, inside = layer.weight.shape
        return (experts, rank, inside), (experts, out, rank)

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Return what the chosen experts make of x, with the adapters' added."""
        inner = ops.mul_mat_id(self.lora_A.weight, self.dropout(x), chosen)
        y = ops.mul_mat_id(self.weight, x, chosen)
        y = y + ops.mul_mat_id(self.lora_B.weight, ops.scale(inner, self.scale), chosen)
        return y if self.bias is None else ops.add_id(y, self.bias, chosen)


_KINDS: tuple[type[LoRALayer], ...] = (LoRALinear, LoRAEmbedding, LoRAConv2d, LoRAStackedLinear)


def lora_class(layer: Module) -> type[LoRALayer] | None:
    """Return the class that adapts a layer of this kind or of a subclass, or None."""
    if isinstance(layer, LoRALayer):
        return type(layer)
    return next((each for each in _KINDS if isinstance(layer, each.kind)), None)
