# SPDX-License-Identifier: MIT
"""LoRALayer: a frozen layer with two small trained matrices beside it; and the linear one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ... import checks, ops
from ...backend.device import Device
from ...backend.dtypes import DType, as_dtype
from ...backend.quantize import quantize_rows
from ...errors import DTypeError
from ...ops.operands import need_tensor
from ...tensors import Tensor, tensor
from .. import functional, init
from ..layers import Dropout, Linear
from ..module import Module, Parameter
from ..raw_bytes import from_blocks
from .dora import Magnitude

__all__ = ["LoRALayer", "LoRALinear", "check_numbers", "check_rank"]

# What an adapted layer has beside the attributes of its plain one.
_ADDED = (
    *("rank", "scale", "lora_A", "lora_B", "lora_magnitude_vector", "dropout"),
    *("initial", "base_rounded"),
)


class _Factor(Module):
    """One of an adapter's two matrices."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight


class LoRALayer(Module):
    """A layer with a frozen weight, to which the product of two small matrices is added.

    The classes below it say of which layer, and how its input meets the matrices.

    Args:
        layer: what is adapted; its tensors are shared.
        rank: width between the matrices.
        alpha: scale times rank.
        dropout: probability that an element of the adapter's input is dropped.
        use_rslora: scale is alpha / sqrt(rank) instead of alpha / rank.
        use_dora: train the norm of each row of the weight by itself; of linear layers and
            convolutions.

    Attributes:
        rank: width between the matrices.
        scale: factor of their product.
        initial: the matrices that the weight gave up when training began (PiSSA), or that took
            up its rounding (LoftQ); None where the first product is zero.
        base_rounded: the weight was quantised anew for `initial`: no file has it.

    Raises:
        TypeError: layer is of another kind, or a subclass, whose forward would be lost.
        ValueError: it is adapted already, or a number is out of range.
    """

    kind: ClassVar[type[Module]]
    # Whether the rows of the weight are those of the outputs, whose norms DoRA trains.
    takes_dora: ClassVar[bool] = False
    weight: Tensor
    lora_A: _Factor
    lora_B: _Factor

    def __init__(
        self,
        layer: Any,
        rank: int = 8,
        alpha: float = 8.0,
        dropout: float = 0.0,
        use_rslora: bool = False,
        use_dora: bool = False,
    ) -> None:
        who, name = type(self).__name__, self.kind.__name__
        kind: type[Any] = self.kind
        checks.instance(who, "layer", layer, kind)
        if isinstance(layer, LoRALayer):
            raise ValueError(f"{who}: layer must not be adapted already; merge_lora first")
        if type(layer) is not kind:
            raise TypeError(
                f"{who}: layer must be a {name} itself; got {type(layer).__name__}, a subclass, "
                "whose own forward would be lost"
            )
        rank, alpha = check_numbers(who, rank, alpha)
        self.check(who, layer, rank)
        by_root = checks.flag(who, "use_rslora", use_rslora)
        if checks.flag(who, "use_dora", use_dora):
            self.check_dora(who, "a layer")
        _take(self, vars(layer))
        self.rank, self.scale = rank, alpha / (math.sqrt(rank) if by_root else rank)
        self.initial: tuple[np.ndarray, np.ndarray] | None = None
        self.base_rounded = False
        for own in (layer.weight, getattr(layer, "bias", None)):
            if own is not None:
                own.requires_grad = False
        where = layer.weight.device
        a, b = self._drawn(rank)
        self.lora_A = _Factor(Parameter(np.asarray(a, np.float32), device=where))
        self.lora_B = _Factor(Parameter(np.asarray(b, np.float32), device=where))
        self.dropout = Dropout(dropout)
        self.dropout.training = layer.training
        self.lora_magnitude_vector = Magnitude(layer.weight) if use_dora else None

    @classmethod
    def shapes(cls, layer: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of A and B beside a layer."""
        raise NotImplementedError

    @classmethod
    def check(cls, who: str, layer: Any, rank: int, path: str = "the layer") -> None:
        """Raise a ValueError for a layer that cannot be adapted, or not with this rank."""
        check_rank(who, rank, layer.weight.shape, path)

    @classmethod
    def check_dora(cls, who: str, path: str) -> None:
        """Raise a ValueError for a layer whose norms DoRA does not train."""
        if not cls.takes_dora:
            raise ValueError(
                f"{who}: use_dora is for linear layers and convolutions; got {path}, a "
                f"{cls.kind.__name__}: leave it out of targets"
            )

    def _drawn(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return A, uniform within 1 / sqrt(its fan in), and B, zeros."""
        a, b = self.shapes(self, rank)
        fan_in = math.prod(a[1:]) if len(a) == 4 else a[-1]
        return uniform_within(a, fan_in), np.zeros(b, np.float32)

    @classmethod
    def split(cls, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the matrices whose product has the weight's numbers, of A and B."""
        return b, a

    @classmethod
    def join(
        cls, left: np.ndarray, right: np.ndarray, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return A and B of the matrices whose product has the numbers of a weight of a shape."""
        return right, left

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return scale times the product of an A and a B, in the weight's shape."""
        left, right = self.split(a, b)
        return np.asarray(np.float32(self.scale) * (left @ right), np.float32).reshape(
            self.weight.shape
        )

    def factors(self) -> dict[str, Tensor]:
        """Return what is trained, by name."""
        found = {"lora_A.weight": self.lora_A.weight, "lora_B.weight": self.lora_B.weight}
        if self.lora_magnitude_vector is not None:
            found["lora_magnitude_vector.weight"] = self.lora_magnitude_vector.weight
        return found

    def with_norms(
        self, layer: Callable[[Tensor], Tensor], x: Tensor, dropped: Tensor, beside: Tensor
    ) -> Tensor:
        """Return the output of a layer with an adapter and with norms of DoRA.

        Args:
            layer: multiplies by the frozen weight, without the bias.
            x: input.
            dropped: what the adapter sees of it.
            beside: what the adapter adds.
        """
        assert self.lora_magnitude_vector is not None
        a, b = self.lora_A.weight, self.lora_B.weight
        factor: Tensor = self.lora_magnitude_vector(self.weight, a, b, self.scale)
        if self.weight.ndim == 4:
            factor = factor.reshape(-1, 1, 1)
        if dropped is x:
            return (layer(x) + beside) * factor
        # What was dropped still passes the frozen weight, as in PEFT.
        return layer(x) + layer(dropped) * (factor - 1.0) + beside * factor

    def delta(self) -> np.ndarray:
        """Return what the adapter adds to the weight, in its shape.

        With DoRA it includes what the trained norms change.
        """
        added = self.product(self.lora_A.weight.numpy(), self.lora_B.weight.numpy())
        if self.lora_magnitude_vector is None:
            return added
        weight = self.weight.numpy().astype(np.float32)
        moved: np.ndarray = self.lora_magnitude_vector.scaled(weight + added) - weight
        return moved

    def merged(
        self, dtype: str | None = None, importance: np.ndarray | None = None
    ) -> tuple[Module, float]:
        """Return the layer with the adapter in its weight, and what rounding did to the adapter.

        Args:
            dtype: of the weight; None is its own.
            importance: weight of the squared error of each column of a quantised weight.

        Returns:
            The plain layer; and the norm of what rounding added, divided by that of what the
            adapter added: 0 keeps all of it, and at 1 as much is wrong as was learnt.
        """
        wanted = self.weight.dtype if dtype is None else as_dtype(dtype)
        if not (wanted.is_float or wanted.quantized):
            raise DTypeError(f"merge_lora: dtype must be a float or quantised; got {wanted.name}")
        delta = self.delta()
        values = self.weight.numpy().astype(np.float32) + delta
        # A tensor of its own: another layer may share the frozen one.
        weight = encoded(values, wanted, self.weight.device, importance)
        learnt = float(np.linalg.norm(delta))
        off = float(np.linalg.norm(weight.numpy().astype(np.float32) - values))
        return self.plain(weight), off / learnt if learnt else 0.0

    def plain(self, weight: Tensor | None = None) -> Module:
        """Return the layer without the adapter, of this weight or another."""
        made = self.kind.__new__(self.kind)
        _take(made, {k: v for k, v in vars(self).items() if k not in _ADDED})
        if weight is not None:
            replace_frozen(made, weight)
        return made


class LoRALinear(LoRALayer, Linear):
    """A `Linear` with a frozen weight, to which the matmul of two small matrices is added.

    y = x @ weight.T + bias + scale * (dropout(x) @ A.T) @ B.T

    A begins uniform within 1 / sqrt(in_features), B at zero: the first output is the linear's own.
    The parameters are `weight` and `bias`, frozen, `lora_A.weight` and `lora_B.weight`. With DoRA
    each row of weight + scale * B @ A is then given a norm of its own,
    `lora_magnitude_vector.weight`, which begins as the row's.

    Args:
        layer: what is adapted; its tensors are shared, of any type that `ops.linear` multiplies.
        rank: width between A and B.
        alpha: scale times rank.
        dropout: probability that an element of A's input is dropped.
        use_rslora: scale is alpha / sqrt(rank) instead of alpha / rank.
        use_dora: train the norms of the rows by themselves.

    Attributes:
        rank: width between A and B.
        scale: factor of their matmul.

    Shape:
        x (..., in_features) -> (..., out_features); A (rank, in_features), B (out_features, rank)

    Raises:
        TypeError: layer is no Linear, or a subclass, whose forward would be lost; or
            a number is of a wrong kind.
        ValueError: it is adapted already, or a number is out of range: a rank beyond both widths
            says no more than one of that width.

    Source: Hu et al. 2021, arXiv:2106.09685; over quantised weights: Dettmers et al. 2023,
        arXiv:2305.14314; rsLoRA: Kalajdzievski 2023, arXiv:2312.03732; DoRA: Liu et al. 2024,
        arXiv:2402.09353. Names as in PEFT.

    Example:
        >>> layer = LoRALinear(Linear(4, 3), rank=2)
        >>> [name for name, p in layer.named_parameters() if p.requires_grad]
        ['lora_A.weight', 'lora_B.weight']
    """

    kind = Linear
    takes_dora = True

    @classmethod
    def shapes(cls, layer: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of A and B beside a layer."""
        out, inside = layer.weight.shape
        return (rank, inside), (out, rank)

    def forward(self, x: Tensor) -> Tensor:
        """Return the frozen layer's output with the adapter's added."""
        need_tensor("LoRALinear", "x", x)
        dropped = self.dropout(x)
        # Scaled where it is narrow.
        inner = ops.scale(functional.linear(dropped, self.lora_A.weight), self.scale)
        beside = functional.linear(inner, self.lora_B.weight)
        if self.lora_magnitude_vector is None:
            return functional.linear(x, self.weight, self.bias) + beside
        y = self.with_norms(lambda x: functional.linear(x, self.weight), x, dropped, beside)
        return y if self.bias is None else y + self.bias


def encoded(
    values: np.ndarray, dtype: DType, where: Device, importance: np.ndarray | None = None
) -> Tensor:
    """Store numbers in a type; quantised ones with the importance of each column.

    Args:
        values: f32.
        dtype: the type.
        where: device.
        importance: None is the quantiser's own.

    Shape:
        values (..., C), importance (C,), or (E * C,) of matrices (E, M, C)
    """
    if importance is None or not dtype.quantized:
        return tensor(values, dtype, where)
    stacks = values.reshape(-1 if values.ndim == 3 else 1, *values.shape[-2:])
    columns = np.asarray(importance, np.float32).reshape(len(stacks), values.shape[-1])
    parts = [quantize_rows(rows, dtype, c) for rows, c in zip(stacks, columns, strict=True)]
    return from_blocks(np.concatenate(parts), dtype, values.shape, where)


def replace_frozen(layer: Any, weight: Tensor) -> None:
    """Give a layer another weight, which stays a parameter, and frozen."""
    layer.weight = weight
    layer.__dict__["_parameter_names"]["weight"] = None


def _take(layer: Module, attributes: dict[str, Any]) -> None:
    """Give a layer attributes that are there: its parameters, also where they are frozen."""
    layer.__dict__.update(attributes)
    names = ("weight", "bias")
    given = [n for n in names if attributes.get(n) is not None]
    layer.__dict__["_parameter_names"] = dict.fromkeys(given)


def uniform_within(shape: tuple[int, ...], fan_in: int) -> np.ndarray:
    """Draw numbers within 1 / sqrt(fan_in), as the layers' own weights are."""
    bound = 1.0 / math.sqrt(fan_in)
    return np.asarray(init.uniform(-bound, bound)(shape), np.float32)


def check_numbers(who: str, rank: int, alpha: float) -> tuple[int, float]:
    """Return rank, at least 1, and alpha, positive in f32."""
    # f32's smallest normal number: the adapter's scale is computed and stored as f32.
    least = float(np.finfo(np.float32).tiny)
    return checks.whole(who, "rank", rank, 1), checks.f32(who, "alpha", alpha, least)


def check_rank(who: str, rank: int, shape: tuple[int, ...], path: str = "the layer") -> None:
    """Raise a ValueError for a rank beyond both of a weight's widths."""
    most = max(shape[-2:] if len(shape) == 3 else (shape[0], math.prod(shape[1:])))
    if rank > most:
        raise ValueError(
            f"{who}: rank must be at most the larger width of {path}, {most}; got {rank}"
        )
