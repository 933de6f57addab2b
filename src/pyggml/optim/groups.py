# SPDX-License-Identifier: MIT
"""Parameter groups: what an optimizer is given, read and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from .. import checks
from ..errors import BackendError
from ..tensors import Tensor

__all__ = [
    "Group",
    "Model",
    "ParamGroups",
    "check_params",
    "checked_betas",
    "need_model",
    "read_groups",
]


class Model(Protocol):
    """A module: something with named modules and parameters."""

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """Yield the paths and modules."""

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the names and parameters."""


ParamGroups = Iterable[Tensor] | Iterable[Mapping[str, Any]] | Model
"""Parameters, groups of parameters with their options, or a module."""


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
        self.options = {} if options is None else dict(checks.mapping("Group", "options", options))
        self.hyper: Tensor
        self.decay: Tensor

    def __repr__(self) -> str:
        return (
            f"Group({len(self.params)} parameters, weight_decay={self.weight_decay}, "
            f"lr_scale={self.lr_scale})"
        )


def checked_betas(who: str, betas: Any) -> tuple[float, float]:
    """Return the decay of two averages, each in [0, 1)."""
    first, second = checks.items(who, "betas", betas, 2)
    return (
        checks.f32(who, "betas[0]", first, 0.0, below=1.0),
        checks.f32(who, "betas[1]", second, 0.0, below=1.0),
    )


def need_model(who: str, model: Any) -> Any:
    """Return a module; raise a TypeError for what has no named parameters."""
    if not callable(getattr(model, "named_parameters", None)):
        raise TypeError(
            f"{who}: model must be a module, as nn.Module is; got {type(model).__name__}"
        )
    return model


def read_groups(
    where: str, params: ParamGroups, weight_decay: float, more: Sequence[str] = (), lr: float = 0.0
) -> tuple[list[Group], dict[str, Tensor]]:
    """Turn tensors or dicts into groups of trainable parameters, and the others by name.

    Args:
        where: the optimizer.
        params: tensors or groups.
        weight_decay: of groups that have none.
        more: keys of groups besides those that all optimizers know.
        lr: of the optimizer, of which a group's own `lr` is a multiple.
    """
    given = _as_list(where, "params", params)
    dicts: list[Mapping[str, Any]] = [{"params": given}]
    if given and all(isinstance(item, Mapping) for item in given):
        dicts = given
    groups, count = [], 0
    left_out: dict[str, Tensor] = {}
    for item in dicts:
        known = ["names", "weight_decay", "lr_scale", "lr", *more]
        if set(item) - {"params", *known} or "params" not in item:
            raise ValueError(
                f"{where}: a group must have params and may have {', '.join(known[:-1])} and "
                f"{known[-1]}; got the keys {sorted(map(str, item))}"
            )
        tensors = _as_list(where, "params", item["params"])
        for value in tensors:
            _check_parameter(where, value)
        names = _read_names(where, item.get("names"), len(tensors), count)
        count += len(tensors)
        kept = [i for i, value in enumerate(tensors) if value.requires_grad]
        left_out |= {n: t for n, t in zip(names, tensors, strict=True) if not t.requires_grad}
        groups.append(
            Group(
                [tensors[i] for i in kept],
                [names[i] for i in kept],
                checks.f32(where, "weight_decay", item.get("weight_decay", weight_decay), 0.0),
                _lr_scale(where, item, lr),
                {key: item[key] for key in more if key in item},
            )
        )
    return [group for group in groups if group.params], left_out


def _lr_scale(where: str, group: Mapping[str, Any], lr: float) -> float:
    """Return the factor of a group's learning rate, also where the group has a rate of its own."""
    if "lr" not in group:
        return checks.f32(where, "lr_scale", group.get("lr_scale", 1.0), 0.0)
    own = checks.f32(where, "a group's lr", group["lr"], 0.0)
    if "lr_scale" in group or not lr:
        raise ValueError(
            f"{where}: a group's lr becomes lr_scale, a multiple of the optimizer's lr; got"
            f" {sorted(map(str, group))} and lr={lr:g}: give one of the two, and an lr above 0"
        )
    return checks.f32(where, "lr_scale", own / lr, 0.0)


def _as_list(where: str, name: str, params: Any) -> list[Any]:
    """Return the items of a list; raise if it is a tensor or a dict."""
    if isinstance(params, Tensor):
        cure = "put the tensor into a list"
    elif isinstance(params, Mapping):
        cure = "give list(params.values()), or [params] where it is a group"
    else:
        return list(checks.items(where, name, params))
    raise TypeError(
        f"{where}: {name} must be several tensors, or groups of them; got "
        f"{type(params).__name__}; {cure}"
    )


def _check_parameter(where: str, value: Any) -> None:
    """Raise unless it is a tensor with memory of its own, which an update can write."""
    if not isinstance(value, Tensor):
        cure = "give tensors, such as model.parameters()"
        if isinstance(value, Mapping):
            cure = "give tensors or groups, not both"
        elif isinstance(value, tuple):
            cure = "for names give groups with names, as decay_groups(model) makes them"
        elif callable(getattr(value, "parameters", None)):
            cure = "give its parameters()"
        raise TypeError(f"{where}: params must be Tensors; got {type(value).__name__}; {cure}")
    if not value.is_stored:
        raise ValueError(
            f"{where}: params must be stored tensors, as nn.Parameter makes them; got a recorded "
            f"op of shape {value.shape}; give the parameters that it was made from"
        )


def _read_names(where: str, names: Any, size: int, count: int) -> list[str]:
    """Return a group's names, or the places of its parameters among all."""
    if names is None:
        return [str(count + i) for i in range(size)]
    read = list(checks.names(where, "a group's names", names))
    if len(read) != size:
        raise ValueError(
            f"{where}: a group's names must be as many as its params; "
            f"got {len(read)} names, {size} params"
        )
    return read


def check_params(where: str, groups: Sequence[Group], left_out: Mapping[str, Tensor]) -> None:
    """Raise unless there are parameters, each once, on one device.

    Args:
        where: whose they are.
        groups: the trainable ones.
        left_out: the frozen ones by name.
    """
    named = [pair for g in groups for pair in zip(g.names, g.params, strict=True)]
    if not named:
        came = f"{len(left_out)} that do not" if left_out else "none"
        cure = (
            "unfreeze one: t.requires_grad = True"
            if left_out
            else "an iterator that was read before has nothing left"
        )
        raise ValueError(
            f"{where}: params must hold a tensor that requires a gradient; got {came}; {cure}"
        )
    seen: dict[int, str] = {}
    for name, param in named:
        if id(param.node) in seen:
            raise ValueError(
                f"{where}: every parameter must be given once; {seen[id(param.node)]} of shape "
                f"{param.shape} is given twice, again as {name}: leave one out"
            )
        seen[id(param.node)] = name
    twice = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if twice:
        raise ValueError(f"{where}: names must differ; got {twice[0]} twice")
    devices = {param.device.name for _, param in named}
    if len(devices) > 1:
        raise BackendError(
            f"{where}: parameters must be on one device; got {sorted(devices)}; move them, or "
            "make an optimizer for each"
        )
