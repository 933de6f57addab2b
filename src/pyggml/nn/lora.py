# SPDX-License-Identifier: MIT
"""LoRA: small trained matrices beside frozen ones, which may be quantised (QLoRA)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import ops
from ..backend.dtypes import as_dtype
from ..checks import flag
from ..errors import DTypeError, ShapeError
from ..ops.operands import need_tensor
from ..tensors import Tensor, tensor
from . import functional, init
from .layers import Dropout, Linear, check_sizes
from .module import Module, Parameter, check_names
from .swap import swap_modules

__all__ = [
    "LoRALinear",
    "apply_lora",
    "load_lora_state_dict",
    "lora_state_dict",
    "merge_lora",
    "remove_lora",
]

ALL = "all-linear"
# What sends tokens to experts, by name.
_ROUTERS = ("gate", "shared_expert_gate")


class _Factor(Module):
    """One of an adapter's two matrices."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight


class LoRALinear(Linear):
    """A `Linear` whose weight is frozen, and beside it a trained product of two small matrices.

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
        scale: factor of their product.

    Shape:
        x (..., in_features) -> (..., out_features); A (rank, in_features), B (out_features, rank)

    Raises:
        TypeError: linear is no Linear, or a subclass, whose forward would be lost.
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
        alpha: float = 16.0,
        dropout: float = 0.0,
        rslora: bool = False,
    ) -> None:
        if not isinstance(linear, Linear):
            raise TypeError(f"LoRALinear: linear must be a Linear; got {type(linear).__name__}")
        if isinstance(linear, LoRALinear):
            raise ValueError("LoRALinear: linear must not be adapted already; merge_lora first")
        if type(linear) is not Linear:
            raise TypeError(
                f"LoRALinear: linear must be a Linear itself; got {type(linear).__name__}, a "
                "subclass, whose own forward would be lost"
            )
        alpha = _check_numbers("LoRALinear", rank, alpha)
        check_rank("LoRALinear", rank, linear.weight.shape)
        _share(self, linear.weight, linear.bias, linear.training)
        self.rank = rank
        by_root = flag("LoRALinear", "rslora", rslora)
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
        """Return the frozen product and the adapter's."""
        y = functional.linear(need_tensor("LoRALinear", "x", x), self.weight, self.bias)
        # Scaled where it is narrow.
        inner = ops.scale(functional.linear(self.dropout(x), self.lora_A.weight), self.scale)
        return y + functional.linear(inner, self.lora_B.weight)

    def delta(self) -> np.ndarray:
        """Return what the adapter adds to the weight: scale * B @ A.

        Shape:
            -> (out_features, in_features)
        """
        product = self.lora_B.weight.numpy() @ self.lora_A.weight.numpy()
        return np.asarray(np.float32(self.scale) * product, np.float32)

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


def _check_numbers(who: str, rank: int, alpha: float) -> float:
    """Return alpha, which must be positive and finite; rank must be a positive integer."""
    check_sizes(who, rank=rank)
    if isinstance(alpha, (bool, np.bool_)) or not isinstance(
        alpha, (int, float, np.integer, np.floating)
    ):
        raise TypeError(f"{who}: alpha must be a number; got {alpha!r:.60}")
    limits = np.finfo(np.float32)  # as which it is computed with and stored
    if not float(limits.tiny) <= alpha <= float(limits.max):
        raise ValueError(f"{who}: alpha must be finite and > 0, as f32; got {alpha!r:.60}")
    return float(alpha)


def check_rank(who: str, rank: int, shape: tuple[int, ...], path: str = "the layer") -> None:
    """Refuse a rank beyond both of a weight's widths."""
    if rank > max(shape):
        raise ValueError(
            f"{who}: rank must be at most the larger width of {path}, {max(shape)}; got {rank}"
        )


def apply_lora(
    model: Module,
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
    targets: str | Iterable[str] = ("q_proj", "v_proj"),
    rslora: bool = False,
) -> list[str]:
    """Put adapters beside linear layers of a model and freeze all else.

    Make the optimizer afterwards: of `model.parameters()` it takes those that are trained. A weight
    that is quantised (`models.load(path, keep_types=True)`) stays as it is.

    Args:
        model: changed in place.
        rank: of the adapters.
        alpha: scale times rank.
        dropout: probability that an element of an adapter's input is dropped while training.
        targets: names of layers, each the end of a path (`q_proj`) or a glob for all of it
            (`model.layers.1?.*`); or "all-linear": every `Linear` but the head, and a mixture's
            routers.
        rslora: scale is alpha / sqrt(rank) instead of alpha / rank.

    Returns:
        The paths of the layers that were adapted.

    Raises:
        TypeError: model is no module, or targets are no names.
        ValueError: a target matches no linear layer, the head, whose weight the loss multiplies
            itself, or a subclass of `Linear`; the model has adapters already; a number is out of
            range. Nothing has changed.

    Source: Hu et al. 2021, arXiv:2106.09685; see `LoRALinear`.

    Example:
        >>> model = Sequential(Linear(4, 8), Linear(8, 2))
        >>> apply_lora(model, rank=2, targets="all-linear")
        ['0', '1']
        >>> model.num_parameters(trainable_only=True)
        44
    """
    who = "apply_lora"
    if not isinstance(model, Module):
        raise TypeError(f"{who}: model must be a Module; got {type(model).__name__}")
    _check_numbers(who, rank, alpha)
    flag(who, "rslora", rslora)
    Dropout(dropout)  # refuses what is no probability, before anything changes
    refuse_adapters(who, model)
    paths = _chosen(who, model, targets)
    modules: dict[str, Any] = dict(model.named_modules())
    for path in paths:
        check_rank(who, rank, modules[path].weight.shape, path)
    model.freeze()
    adapt(model, dict.fromkeys(paths, (rank, alpha)), dropout, rslora)
    return paths


def adapt(
    model: Module,
    adapters: Mapping[str, tuple[int, float]],
    dropout: float = 0.0,
    rslora: bool = False,
) -> None:
    """Put an adapter beside each named layer; one that has several paths gets one adapter.

    Args:
        model: changed in place.
        adapters: rank and alpha by path.
        dropout: see `apply_lora`.
        rslora: see `apply_lora`.
    """
    modules = dict(model.named_modules())
    swaps: dict[int, Module] = {}
    for path, (rank, alpha) in adapters.items():
        found: Any = modules[path]
        if id(found) not in swaps:
            swaps[id(found)] = LoRALinear(found, rank, alpha, dropout, rslora)
    swap_modules(model, swaps.get)


def adapters_of(model: Module) -> dict[str, LoRALinear]:
    """The adapted layers of a model, by path."""
    return {path: m for path, m in model.named_modules() if isinstance(m, LoRALinear)}


def refuse_adapters(who: str, model: Module) -> None:
    """Raise a ValueError if a model has adapters."""
    found = adapters_of(model)
    if found:
        raise ValueError(
            f"{who}: the model must have no LoRA adapters; got {len(found)}, such as that of "
            f"{next(iter(found))}: merge_lora(model) folds them into the weights, "
            "remove_lora(model) drops them, models.save_lora writes them alone"
        )


def need_adapters(who: str, model: Module) -> dict[str, LoRALinear]:
    """The adapted layers; a ValueError where there are none."""
    if not isinstance(model, Module):
        raise TypeError(f"{who}: model must be a Module; got {type(model).__name__}")
    found = adapters_of(model)
    if not found:
        raise ValueError(f"{who}: the model must have LoRA adapters; got none: apply_lora first")
    return found


def _chosen(who: str, model: Module, targets: str | Iterable[str]) -> list[str]:
    """The paths of the linear layers that targets name."""
    linears = {path: m for path, m in model.named_modules() if isinstance(m, Linear) and path}
    heads = heads_of(model)
    if isinstance(targets, str):
        targets = [targets]
    wanted = list(targets) if isinstance(targets, Iterable) else []
    if not wanted or not all(isinstance(target, str) for target in wanted):
        raise TypeError(f"{who}: targets must be names of layers; got {targets!r:.80}")
    found: set[str] = set()
    for target in wanted:
        if target == ALL:
            routers = {path for path in linears if path.rpartition(".")[2] in _ROUTERS}
            matching = set(linears) - heads - routers
        else:
            matching = {path for path in linears if _matches(path, target)}
        if not matching:
            ends = sorted({path.rpartition(".")[2] for path in linears})
            raise ValueError(
                f"{who}: each target must match a linear layer; {target!r} matches none: the "
                f"layers' names end in {', '.join(ends[:12]) or 'nothing, as there are none'}"
            )
        found |= matching
    if found & heads:
        raise ValueError(
            f"{who}: the head cannot be adapted, as the loss multiplies its weight itself; got "
            f"{', '.join(sorted(found & heads))}: leave it out of targets"
        )
    own = [path for path in linears if path in found and type(linears[path]) is not Linear]
    if own:
        raise ValueError(
            f"{who}: adapted layers must be Linear itself; got {own[0]}, a "
            f"{type(linears[own[0]]).__name__}, whose own forward would be lost: name the other "
            "layers in targets"
        )
    return [path for path in linears if path in found]


def heads_of(model: Module) -> set[str]:
    """The paths of linear layers whose weight the model multiplies without calling them."""
    head = getattr(model, "head_weight", None)
    linears = ((path, m) for path, m in model.named_modules() if isinstance(m, Linear))
    return {path for path, linear in linears if linear.weight is head}


def _matches(path: str, target: str) -> bool:
    return path == target or path.endswith(f".{target}") or fnmatchcase(path, target)


def merge_lora(model: Module, dtype: str | None = None) -> list[str]:
    """Fold adapters into their weights: weight + scale * B @ A; plain layers take their place.

    A weight that is quantised is quantised again, which rounds what the adapter adds to the steps
    of its blocks: the model then differs from the one that was trained. `dtype="f32"` keeps all of
    it, at four bytes for each number of the adapted weights. The weights stay frozen. A weight that
    layers share is one for each of them afterwards.

    Args:
        model: changed in place.
        dtype: type of the merged weights; None is each weight's own.

    Returns:
        The paths of the layers.

    Raises:
        ValueError: the model has no adapters, or one is not finite; nothing has changed then.
        DTypeError: dtype is none of numbers, or the weights are not finite and dtype is quantised.
        ShapeError: rows are no whole blocks of dtype.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, targets="all-linear")
        >>> merge_lora(model), type(model[0]).__name__
        (['0'], 'Linear')
    """
    found = need_adapters("merge_lora", model)
    if dtype is not None:
        wanted = as_dtype(dtype)
        for path, layer in found.items():
            if layer.weight.shape[1] % wanted.block_size:
                raise ShapeError(
                    f"merge_lora: rows of {wanted.name} must be multiples of {wanted.block_size}; "
                    f"got {path} of shape {layer.weight.shape}: choose another dtype"
                )
    layers: dict[int, Module] = {}
    for path, layer in found.items():
        factors = (layer.lora_A.weight.numpy(), layer.lora_B.weight.numpy())
        if not all(np.isfinite(factor).all() for factor in factors):
            raise ValueError(
                f"merge_lora: adapters must be finite; that of {path} holds NaN or Inf"
            )
        if id(layer) not in layers:
            layers[id(layer)] = layer.merged(dtype)
    # Only now, when all of them could be made.
    swap_modules(model, layers.get)
    return list(found)


def remove_lora(model: Module) -> list[str]:
    """Drop adapters: the layers are as they were before, and frozen.

    Returns:
        The paths of the layers.

    Raises:
        ValueError: the model has no adapters.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, targets="all-linear")
        >>> remove_lora(model)
        ['0']
    """
    found = need_adapters("remove_lora", model)
    plain: dict[int, Module] = {id(layer): layer.plain() for layer in found.values()}
    swap_modules(model, plain.get)
    return list(found)


def _factors(found: Mapping[str, LoRALinear]) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of each matrix of adapters."""
    for path, layer in found.items():
        yield f"{path}.lora_A.weight", layer.lora_A.weight
        yield f"{path}.lora_B.weight", layer.lora_B.weight


def lora_state_dict(model: Module) -> dict[str, np.ndarray]:
    """Copy the adapters' matrices alone, as `PATH.lora_A.weight` and `PATH.lora_B.weight`.

    Raises:
        ValueError: the model has no adapters.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, rank=2, targets="all-linear")
        >>> {name: array.shape for name, array in lora_state_dict(model).items()}
        {'0.lora_A.weight': (2, 4), '0.lora_B.weight': (8, 2)}
    """
    found = need_adapters("lora_state_dict", model)
    return {name: value.numpy() for name, value in _factors(found)}


def load_lora_state_dict(model: Module, state: Mapping[str, ArrayLike]) -> None:
    """Overwrite the adapters' matrices; nothing changes when anything does not fit.

    Args:
        model: with adapters on the same layers, of the same rank.
        state: what `lora_state_dict` gave.

    Raises:
        KeyError: names are missing or unexpected.
        ShapeError: a matrix has another shape.
        ValueError: the model has no adapters.

    Example:
        >>> model = Sequential(Linear(4, 8))
        >>> _ = apply_lora(model, targets="all-linear")
        >>> load_lora_state_dict(model, lora_state_dict(model))
    """
    who = "load_lora_state_dict"
    own = dict(_factors(need_adapters(who, model)))
    check_names(who, own, state)
    arrays = {name: np.asarray(state[name]) for name in own}
    for name, array in arrays.items():
        if array.shape != own[name].shape:
            raise ShapeError(
                f"{who}: {name} must have the shape {own[name].shape}; got {array.shape}: the "
                "adapters are of another rank or model"
            )
        if array.dtype.kind not in "fiu":
            raise DTypeError(f"{who}: {name} must hold real numbers; got {array.dtype}")
    for name, array in arrays.items():
        own[name].copy_(array)
