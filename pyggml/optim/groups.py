# SPDX-License-Identifier: MIT
"""Parameter groups: what an optimizer is given, read and checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import BackendError
from ..tensor import Tensor

__all__ = ["Group", "ParamGroups", "check_number", "check_params", "read_groups"]

# The updates' hyper-parameters are f32: 0 times what is infinite there would be NaN.
_F32_MAX = float(np.finfo(np.float32).max)

ParamGroups = Iterable[Tensor] | Iterable[Mapping[str, Any]]


class Group:
    """Parameters that share hyper-parameters.

    Attributes:
        params: the tensors.
        names: what their state is saved under.
        weight_decay: decoupled decay of these parameters.
        lr_scale: factor on the optimizer's learning rate.
        options: what else the group was given, by name.
        hyper: the input tensor that the update graph reads.
        decay: the same for a weight decay that is added to the gradient.
    """

    def __init__(
        self,
        params: list[Tensor],
        names: list[str],
        weight_decay: float,
        lr_scale: float,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.params = params
        self.names = names
        self.weight_decay = weight_decay
        self.lr_scale = lr_scale
        self.options = dict(options or {})
        self.hyper: Tensor
        self.decay: Tensor

    def __repr__(self) -> str:
        return (
            f"Group({len(self.params)} parameters, weight_decay={self.weight_decay}, "
            f"lr_scale={self.lr_scale})"
        )


def check_number(where: str, name: str, value: float, below: float = math.inf) -> float:
    """Return `value`, a number of at least zero and below `below`, finite in f32, too."""
    if isinstance(value, bool) or not (0 <= value < below and value <= _F32_MAX):
        bound = "" if below == math.inf else f" and < {below}"
        raise ValueError(f"{where}: {name} must be finite and >= 0{bound}; got {value}")
    return float(value)


def read_groups(
    where: str, params: ParamGroups, weight_decay: float, more: Sequence[str] = ()
) -> tuple[list[Group], dict[str, Tensor]]:
    """Turn tensors or dicts into groups of trainable parameters, and the others by name."""
    given: list[Any] = list(params)
    dicts: list[Mapping[str, Any]] = [{"params": given}]
    if given and all(isinstance(item, Mapping) for item in given):
        dicts = given
    groups, count = [], 0
    left_out: dict[str, Tensor] = {}
    for item in dicts:
        known = ["names", "weight_decay", "lr_scale", *more]
        if set(item) - {"params", *known} or "params" not in item:
            raise ValueError(
                f"{where}: a group must have params and may have {', '.join(known[:-1])} and "
                f"{known[-1]}; got the keys {sorted(map(str, item))}"
            )
        tensors = list(item["params"])
        for value in tensors:
            if not isinstance(value, Tensor):
                raise TypeError(f"{where}: params must be Tensors; got {type(value).__name__}")
        names = list(item.get("names") or (str(count + i) for i in range(len(tensors))))
        if len(names) != len(tensors):
            raise ValueError(
                f"{where}: a group's names must be as many as its params; "
                f"got {len(names)} names, {len(tensors)} params"
            )
        count += len(tensors)
        kept = [i for i, value in enumerate(tensors) if value.requires_grad]
        left_out |= {n: t for n, t in zip(names, tensors, strict=True) if not t.requires_grad}
        groups.append(
            Group(
                [tensors[i] for i in kept],
                [names[i] for i in kept],
                check_number(where, "weight_decay", item.get("weight_decay", weight_decay)),
                check_number(where, "lr_scale", item.get("lr_scale", 1.0)),
                {key: item[key] for key in more if key in item},
            )
        )
    return [group for group in groups if group.params], left_out


def check_params(where: str, params: list[Tensor], names: list[str]) -> None:
    """Raise unless there are parameters, each once, on one device."""
    if not params:
        raise ValueError(f"{where}: params must hold a tensor that requires a gradient; got none")
    if len({id(p) for p in params}) != len(params):
        raise ValueError(f"{where}: every parameter must be given once; one is given twice")
    if len(set(names)) != len(names):
        raise ValueError(f"{where}: names must differ; got one twice")
    devices = {p.device.name for p in params}
    if len(devices) > 1:
        raise BackendError(f"{where}: parameters must be on one device; got {sorted(devices)}")
