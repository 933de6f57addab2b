# SPDX-License-Identifier: MIT
"""The parameters, state and recorded update of an optimizer."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .. import checks, ops
from ..absent import absent
from ..backend.not_copied import NotCopied
from ..errors import GradientError, fitting
from ..graph import Graph, grad_of, most_fallbacks
from ..tensors import Tensor, tensor, zeros_group
from ..tensors.autocast import autocast
from ..tensors.moves import has_moved
from .gradients import OwnGradients
from .groups import Group, Model, ParamGroups, check_params, read_groups
from .patterns import decay_groups
from .rounded import RoundedWeights

__all__ = ["OptimizerBase", "Spec", "State"]

Spec = tuple[Sequence[int], str]
State = Mapping[str, Tensor]
# For each parameter: -1 without a gradient, else a number for those that skipped as many steps.
Kinds = tuple[int, ...]
# Graphs of updates that are kept; each set of parameters with a gradient has its own.
_MOST_UPDATES = 16


class OptimizerBase(NotCopied, ABC):
    """The part of an optimizer below its step: groups, gradients, state, the update's graph."""

    instead = "make another one for the copied parameters, and give it state_dict()"

    # Kinds of state that are f32 and of the parameter's shape.
    state_names: tuple[str, ...] = ()
    # `step` takes a closure that computes loss and gradients.
    needs_closure = False
    # Group keys besides those that all optimizers know.
    group_options: tuple[str, ...] = ()
    # The op itself multiplies the gradient by a factor, the last of its hyper-parameters.
    _folds = False
    # Weight decay is added to the gradient, as the gradient of a squared norm would be.
    _couples = False

    def __init_subclass__(cls) -> None:
        """Let a call that does not fit the constructor of an optimizer tell its signature."""
        if "__init__" in vars(cls):
            cls.__init__ = fitting(cls.__init__, cls.__name__)  # type: ignore[method-assign]

    def __init__(
        self, params: ParamGroups, lr: float, weight_decay: float, fused_update: bool = False
    ) -> None:
        self._who = type(self).__name__
        self.fused_update = checks.flag(self._who, "fused_update", fused_update)
        self.lr = checks.f32(self._who, "lr", lr, 0.0)
        checks.f32(self._who, "weight_decay", weight_decay, 0.0)
        if callable(getattr(params, "named_parameters", None)):
            params = self._model_groups(cast(Model, params), weight_decay)
        given, self._left_out = read_groups(
            self._who, params, weight_decay, self.group_options, self.lr
        )
        self.groups = self._divide(given)
        self.params = [p for group in self.groups for p in group.params]
        self.names = [name for group in self.groups for name in group.names]
        self._nodes = [p.node for p in self.params]
        check_params(self._who, self.groups, self._left_out)
        self.steps = 0
        self.device = self.params[0].device
        self._owned = [True] * len(self.params)
        self._total: Callable[[float], float] | None = None
        self._own = None if fused_update else OwnGradients(self._who, self.params, self.names)
        grads = [grad_of(p) for p in self.params] if self._own is None else self._own.tensors
        self.grads: dict[Tensor, Tensor] = dict(zip(self.params, grads, strict=True))
        self.grad_nbytes = sum(g.nbytes for g in grads if g.is_stored)
        self.state = self._make_state()
        self._trained = self.grads
        self._make_inputs()
        self._updates: dict[tuple[bool, Kinds | None], Graph] = {}
        # Steps in which a parameter had no gradient; its own count of steps is behind by so many.
        self._skipped = [0] * len(self.params)
        self._late: dict[tuple[int, int], Tensor] = {}
        self._frozen = [False] * len(self.params)
        self._decays = self._which_decay()
        self._recorded: tuple[list[bool], list[bool]] | None = None
        self.rounded: RoundedWeights | None = None

    if not TYPE_CHECKING:  # type checkers go on reporting absent names

        def __getattr__(self, name: str) -> Any:
            """Raise for a name that is not there, and say what to use."""
            if hasattr(type(self), name):  # a property raised this: let its own error come out
                return object.__getattribute__(self, name)
            absent("optimizer", name, dir(self))

    def _model_groups(self, model: Model, weight_decay: float) -> list[dict[str, Any]]:
        """Divide a module's parameters where the optimizer was given the module."""
        return decay_groups(model, weight_decay)

    def _make_state(self) -> list[dict[str, Tensor]]:
        """Return the state of every parameter, zeros in one buffer."""
        params = [(p, group) for group in self.groups for p in group.params]
        specs = [
            self._state_specs(p, group) if owned else {}
            for (p, group), owned in zip(params, self._owned, strict=True)
        ]
        made = iter(zeros_group([s for spec in specs for s in spec.values()], self.device))
        return [{kind: next(made) for kind in spec} for spec in specs]

    def _make_inputs(self) -> None:
        """Make the small tensors that the update reads and each step writes."""
        # Clipping is a factor on the gradients: the op takes it, or a copy is multiplied first.
        if self._folds:
            for group in self.groups:
                values = np.append(self._hyper(group, 0.0), np.float32(1.0))
                group.hyper = tensor(values, device=self.device)
            param = self.params[0]
            probe = self._record(param, self.grads[param], self.state[0], self.groups[0])[-1]
            self._folds = self.device.supports(probe.ptr)
        for group in self.groups:
            if not self._folds:
                group.hyper = tensor(self._hyper(group, 0.0), device=self.device)
            if self._couples:
                decay = np.asarray([group.weight_decay], np.float32)
                group.decay = tensor(decay, device=self.device)
        self._factor = tensor(np.ones((1,), np.float32), device=self.device)

    def _divide(self, groups: list[Group]) -> list[Group]:
        """Return the groups as the optimizer keeps them."""
        return groups

    def _state_specs(self, param: Tensor, group: Group) -> dict[str, Spec]:
        """Return shape and dtype of each kind of a parameter's state."""
        return dict.fromkeys(self.state_names, (param.shape, "f32"))

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        """Return the numbers that the update reads; these are those of SGD's op."""
        return np.asarray([lr, 0.0 if self._couples else group.weight_decay], np.float32)

    @abstractmethod
    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        """Record the ops that update `param` and `state` in place, in order."""

    def trained(self) -> dict[Tensor, Tensor]:
        """Return the gradients of the parameters that are not frozen, for `Graph(grads=...)`.

        Raises:
            GradientError: all are frozen, or one that was frozen when the optimizer was made, and
                has no state, is not any more; or one lives on another device since.
        """
        for name, param in self._left_out.items():
            if param.requires_grad:
                raise GradientError(
                    f"{self._who}: parameter {name} of shape {param.shape} was frozen when the"
                    " optimizer was made and requires a gradient now; make a new optimizer, or"
                    " leave it out of this one's params"
                )
        if any(map(has_moved, self._nodes)):
            raise GradientError(
                f"{self._who}: the parameters live on {self.params[0].device.name} since the"
                f" optimizer was made, and its state on {self.device.name}; call model.to() before"
                " making the optimizer"
            )
        decays = self._which_decay()
        if decays != self._decays:
            self._decays = decays
            self._updates.clear()
        frozen = [not node.requires_grad for node in self._nodes]
        if frozen != self._frozen:
            trained = {p: grad for p, grad in self.grads.items() if p.requires_grad}
            if not trained:
                raise GradientError(
                    f"{self._who}: every parameter is frozen; unfreeze one, or make the optimizer "
                    "anew of model.parameters() if the model has had adapters put in since"
                )
            self._frozen, self._trained = frozen, trained
            self._updates.clear()
            if self._own is not None:
                self._measure(self._own)
        return dict(self._trained)

    def _which_decay(self) -> list[bool]:
        """Return for each group whether its decay is a part of the recorded update."""
        return [self._couples and group.weight_decay != 0 for group in self.groups]

    def _kept(self, method: str) -> OwnGradients:
        """Return the gradients, which must be kept."""
        if self._own is None:
            raise GradientError(
                f"{self._who}.{method}: needs the gradients, which fused_update=True does not "
                "keep; train with TrainStep, or make the optimizer without it"
            )
        return self._own

    def _kinds(self, own: OwnGradients) -> tuple[Kinds | None, list[int]]:
        """Return the kinds of parameters, None where all are alike; and the steps each skipped."""
        missing = None if self._total is not None else own.missing()
        if missing is None and not any(self._skipped):
            return None, [0]
        missing = missing or [False] * len(self.params)
        pairs = list(zip(self._skipped, missing, strict=True))
        lags = sorted({skipped for skipped, without in pairs if not without})
        kinds = tuple(-1 if without else lags.index(skipped) for skipped, without in pairs)
        return kinds, lags

    def _set_hyper(self, factor: float, lags: Sequence[int] = (0,)) -> None:
        steps = self.steps
        try:
            for kind, lag in enumerate(lags):
                self.steps = steps - lag
                for number, group in enumerate(self.groups):
                    values = self._hyper(group, self.lr * group.lr_scale)
                    values = np.append(values, np.float32(factor)) if self._folds else values
                    target = self._late.get((number, kind)) if kind else group.hyper
                    if target is not None:  # no parameter of the group is of the kind
                        target.copy_(values)
        finally:
            self.steps = steps
        for group in self.groups if self._couples else ():
            group.decay.copy_(np.asarray([group.weight_decay], np.float32))

    def _own_trained(self) -> list[Tensor]:
        """Return the owned parameters that are not frozen."""
        return [
            p
            for p, owned in zip(self.params, self._owned, strict=True)
            if owned and p.requires_grad
        ]

    def _measure(self, own: OwnGradients) -> None:
        """Let the norm be that of the owned gradients that are not frozen."""
        own.measure([self.grads[p] for p in self._own_trained()])

    def _norm(self, own: OwnGradients) -> float:
        """Return the norm of all gradients, also of those that other processes own."""
        norm = own.norm()
        return norm if self._total is None else math.sqrt(self._total(norm * norm))

    def _tensors(self) -> dict[str, Tensor]:
        """Return all state by the names that it is saved under."""
        own = {
            f"{name}.{kind}": value
            for name, kinds in zip(self.names, self.state, strict=True)
            for kind, value in kinds.items()
        }
        return own if self.rounded is None else {**own, **self.rounded.tensors()}

    @property
    def fallbacks(self) -> dict[str, int]:
        """Ops of an update that the CPU computes for the device; see `Graph.fallbacks`."""
        if self._own is None:  # the update is a part of the step's graph
            return {}
        self.trained()
        return most_fallbacks([self._update(False), self._own.norm.graph])

    def __repr__(self) -> str:
        return f"{self._who}(lr={self.lr}, steps={self.steps}, groups={self.groups})"

    def _update(self, multiplies: bool, kinds: Kinds | None = None) -> Graph:
        """Return the update graph of the parameters with a gradient, recorded at its first use."""
        key = multiplies, kinds
        if key not in self._updates:
            effects = self._effects(multiplies, kinds)
            while len(self._updates) >= _MOST_UPDATES:
                del self._updates[next(iter(self._updates))]
            self._updates[key] = Graph([], effects=effects, device=self.device)
        return self._updates[key]

    def _effects(self, multiplies: bool, kinds: Kinds | None = None) -> list[Tensor]:
        """Record the update of every parameter that has a gradient and is not frozen."""
        effects: list[Tensor] = []
        states, owns = iter(self.state), iter(self._owned)
        each = itertools.repeat(0) if kinds is None else iter(kinds)
        # What autocast allows a model's products is not meant for an update's.
        with autocast("f32"):
            for number, group in enumerate(self.groups):
                for param in group.params:
                    state, grad, owned = next(states), self.grads[param], next(owns)
                    kind = next(each)
                    if kind < 0 or not (owned and param.requires_grad):
                        continue
                    if multiplies:
                        grad = ops.mul(grad, self._factor)
                    if self._couples and group.weight_decay:
                        grad = ops.add(grad, ops.mul(param, group.decay))
                    with self._hyper_of(number, group, kind):
                        effects += self._record(param, grad, state, group)
        return effects

    @contextmanager
    def _hyper_of(self, number: int, group: Group, kind: int) -> Iterator[None]:
        """Let a group's numbers be those of the parameters of a kind while they are recorded."""
        if not kind:
            yield
            return
        before = group.hyper
        if (number, kind) not in self._late:
            self._late[number, kind] = tensor(before.numpy(), device=self.device)
        group.hyper = self._late[number, kind]
        try:
            yield
        finally:
            group.hyper = before
