# SPDX-License-Identifier: MIT
"""Optimizer: gradients, state and the recorded update of a set of parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, ops
from ..errors import GradientError
from ..graph import Graph, grad_of, most_fallbacks
from ..tensors import Tensor, tensor, zeros_group
from ..tensors.autocast import autocast
from ..tensors.moves import has_moved
from ..tensors.not_copied import NotCopied
from ..tensors.storage import read_bytes, write
from .clip import check_norm, factor_of, sum_of_squares
from .gradients import OwnGradients
from .groups import Group, Model, ParamGroups, check_params, read_groups
from .patterns import decay_groups
from .rounded import RoundedWeights
from .state import check_entries, load_arrays, read_steps, save_arrays

__all__ = ["Optimizer", "Spec", "State"]

Spec = tuple[Sequence[int], str]
State = Mapping[str, Tensor]


class Optimizer(NotCopied, ABC):
    """The base of all optimizers; a subclass adds its state, its hyper-parameters and its ops.

    The optimizer owns the gradients: each parameter's `.grad` is a part of one zeroed buffer. Its
    update is one graph, recorded once; learning rate and clipping are inputs.

    `step` copies a `.grad` that was replaced into the buffer; None counts as zeros. Parameters that
    are frozen later stay as they are, and so does their state.

    With `fused_update` there is no such buffer: the graph of a step updates each parameter once its
    gradient is complete. That takes one batch a step, and neither clips nor runs hooks.

    Args:
        params: tensors, or groups: dicts with "params" and, if wished, "names",
            "weight_decay" and "lr_scale"; or a module, whose matrices decay and whose biases,
            scales and embeddings do not, see `decay_groups`. Frozen parameters are left out, for
            good.
        lr: learning rate, >= 0.
        weight_decay: of groups that name none, >= 0.
        fused_update: keep no gradients; for `TrainStep`, which then updates in the backward.

    Attributes:
        grads: gradient tensor of each parameter, for `Graph(grads=...)`.
        grad_nbytes: bytes of the gradients.
        groups: the parameter groups.
        lr: learning rate of the next step.
        state: the state of each parameter, by kind.
        rounded: parameters that are to hold rounded numbers, or None; see
            `train.quantization_aware`.
        steps: updates done.

    Raises:
        ValueError: no trainable parameter, one given twice, an unknown group key, a bad number.
        TypeError: params are neither tensors nor groups of them nor a module.
        BackendError: the parameters are on several devices.
    """

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

    def __init__(
        self, params: ParamGroups, lr: float, weight_decay: float, fused_update: bool = False
    ) -> None:
        self._who = type(self).__name__
        self.fused_update = checks.flag(self._who, "fused_update", fused_update)
        self.lr = checks.f32(self._who, "lr", lr, 0.0)
        checks.f32(self._who, "weight_decay", weight_decay, 0.0)
        if callable(getattr(params, "named_parameters", None)):
            params = self._model_groups(cast(Model, params), weight_decay)
        given, self._left_out = read_groups(self._who, params, weight_decay, self.group_options)
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
        self._updates: dict[bool, Graph] = {}
        self._frozen = [False] * len(self.params)
        self._decays = self._which_decay()
        self._recorded: tuple[list[bool], list[bool]] | None = None
        self.rounded: RoundedWeights | None = None

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

    def grad_norm(self) -> float:
        """Return the Euclidean norm of all gradients together, without those of frozen parameters.

        Raises:
            GradientError: as `step`.
        """
        own = self._kept("grad_norm")
        self.trained()
        own.adopt("grad_norm")
        return self._norm(own)

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

    def recorded_update(self) -> tuple[list[Tensor], Tensor]:
        """Record the update for a graph that has `grads` among its own, with `fused_update`.

        Returns:
            The updates, for its effects, and the sum of the squares of all gradients' elements,
            for its outputs.
        """
        squares = sum_of_squares(list(self.trained().values()))
        self._recorded = list(self._frozen), list(self._decays)
        return self._effects(False), squares

    @contextmanager
    def updating(self, lr: float | None = None) -> Iterator[None]:
        """Prepare a step; the block runs a graph with the ops of `recorded_update`.

        Args:
            lr: learning rate from now on; None keeps it.

        Raises:
            GradientError: a parameter has hooks, which would have no gradient to see; parameters
                were frozen or unfrozen since `recorded_update`; or as `trained`.
            ValueError: lr is negative.
        """
        new_lr = self.lr if lr is None else checks.f32(f"{self._who}.updating", "lr", lr, 0.0)
        if any(param.has_hooks for param in self.params):
            raise GradientError(
                f"{self._who}: gradient hooks need gradients, which fused_update=True does not "
                "keep; remove the hooks, or make the optimizer without it"
            )
        self.trained()
        if self._recorded not in (None, (self._frozen, self._decays)):
            raise GradientError(
                f"{self._who}.updating: parameters were frozen or unfrozen since recorded_update(),"
                " or a group's weight decay came or went; record the update and its graph anew"
            )
        before, self.lr = self.lr, new_lr
        self.steps += 1
        self._set_hyper(1.0)
        try:
            yield
        except BaseException:
            self.lr = before
            self.steps -= 1
            raise

    def _set_hyper(self, factor: float) -> None:
        for group in self.groups:
            values = self._hyper(group, self.lr * group.lr_scale)
            group.hyper.copy_(np.append(values, np.float32(factor)) if self._folds else values)
            if self._couples:
                group.decay.copy_(np.asarray([group.weight_decay], np.float32))

    def step(
        self, lr: float | None = None, clip: float | None = None, grad_scale: float = 1.0
    ) -> float:
        """Update every parameter by its gradient; the gradients stay until `zero_grad()`.

        Args:
            lr: learning rate from now on; None keeps it.
            clip: longest gradient: a norm above it is scaled down to it; None does not clip.
            grad_scale: what the gradients were multiplied with, as f16 needs it; the update
                divides by it.

        Returns:
            The norm of the gradients before clipping, divided by grad_scale.

        Raises:
            FloatingPointError: a gradient is NaN or infinite, or their norm's square is more than
                f32 holds and it is not clipped; nothing has changed.
            GradientError: there are no gradients, or another optimizer's; or as `trained`.
            ValueError: lr is negative, or clip or grad_scale is not positive.

        Example:
            >>> w = Parameter([1.0])
            >>> opt = SGD([w], lr=0.5)
            >>> (w * 2.0).sum().backward()
            >>> opt.step(), w.tolist()
            (2.0, [0.0])
        """
        new_lr = self.lr if lr is None else checks.f32(f"{self._who}.step", "lr", lr, 0.0)
        if clip is not None:
            clip = checks.f32(f"{self._who}.step", "clip", clip, above=0.0)
        grad_scale = checks.f32(f"{self._who}.step", "grad_scale", grad_scale, above=0.0)
        own = self._kept("step")
        self.trained()
        own.adopt("step")
        for param in self._own_trained():
            if param.has_hooks:
                param.run_hooks()
        norm = self._norm(own)
        check_norm(f"{self._who}.step", norm, clip, grad_scale, self.steps + 1)
        norm /= grad_scale
        self.lr = new_lr
        self.steps += 1
        factor = (1.0 if clip is None else factor_of(norm, clip)) / grad_scale
        # Not only where it clips, or two graphs would want memory to work in.
        multiplies = (clip is not None or grad_scale != 1.0) and not self._folds
        if multiplies:
            self._factor.copy_(np.full((1,), factor, np.float32))
        self._set_hyper(factor)
        with nullcontext() if self.rounded is None else self.rounded.updating(self.steps):
            if self._own_trained():
                self._update(multiplies).run()
        return norm

    def zero_grad(self) -> None:
        """Set every gradient to zero, and `.grad` to it: one call for the whole buffer."""
        self._kept("zero_grad").zero()

    def take_grads(self) -> None:
        """Set every `.grad` to the optimizer's own, for a graph that overwrites them.

        Those of frozen parameters, which no graph writes, are set to zero.

        Raises:
            GradientError: with `fused_update` there are none.
        """
        self._kept("take_grads").take()

    def sum_grads(self, reduce: Callable[[list[np.ndarray]], None]) -> None:
        """Sum the gradients over the ranks that train together, before the step.

        Args:
            reduce: replaces arrays by their sums over the ranks, as `Group.reduce` of
                `pyggml.distributed.world()` does.

        Raises:
            GradientError: with `fused_update` there are none.
        """
        own = self._kept("sum_grads")
        own.adopt("sum_grads")
        own.sum(reduce)

    def shard(
        self,
        owned: Sequence[bool],
        order: Sequence[int],
        total: Callable[[float], float],
        gradients: bool = False,
    ) -> None:
        """Keep the state of some parameters alone; other processes update the others.

        Args:
            owned: for each of `params`, whether this process updates it; one at least.
            order: in which the gradients lie in memory, as numbers of `params`.
            total: returns the sum of a number over all processes; for the norm.
            gradients: keep the gradients of these parameters alone as well: those of the others are
                then such as `pyggml.graph.grad_of` makes.

        Raises:
            ValueError: none is owned; or the update needs the state of all parameters, as with
                `fused_update`, a closure or rounded weights.
        """
        cause = "fused_update" if self._own is None else "a closure" if self.needs_closure else ""
        cause = cause or ("rounded weights" if self.rounded is not None else "")
        if cause:
            raise ValueError(
                f"{self._who}.shard: the update must be one of each parameter by itself; got "
                f"{cause}: keep the whole state in each process"
            )
        if not any(owned):
            raise ValueError(
                f"{self._who}.shard: a process must own one parameter at least; got none of "
                f"{len(self.params)}: start fewer processes"
            )
        before, self._owned, self._total = self.state, list(owned), total
        self.state = self._make_state()
        for old, new in zip(before, self.state, strict=True):
            for kind, value in new.items():
                write(value.node, read_bytes(old[kind].node))
        params = [p for p, mine in zip(self.params, owned, strict=True) if mine or not gradients]
        kept = {id(p): i for i, p in enumerate(params)}
        places = [kept[id(self.params[i])] for i in order if id(self.params[i]) in kept]
        names = [n for n, p in zip(self.names, self.params, strict=True) if id(p) in kept]
        for param in self.params:
            param.grad = None
        self._own = own = OwnGradients(self._who, params, names, places)
        made = dict(zip(params, own.tensors, strict=True))
        self.grads = {p: made[p] if p in made else grad_of(p) for p in self.params}
        self.grad_nbytes = sum(g.nbytes for g in own.tensors)
        self._trained = {p: g for p, g in self.grads.items() if p.requires_grad}
        self._updates.clear()
        self._measure(own)

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

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the state: "steps", "lr", and "NAME.m" and the like for every parameter."""
        return {
            "steps": np.asarray(self.steps, np.int64),
            "lr": np.asarray(self.lr, np.float64),
            **save_arrays(self._tensors()),
        }

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Restore the state that `state_dict` returned; on an error nothing changes.

        Raises:
            KeyError: entries are missing or unexpected.
            ShapeError: an entry is of another shape than its parameter.
            TypeError: the state is no dict, or an entry holds no numbers.
            ValueError: steps or lr is out of range.
        """
        own = self._tensors()
        check_entries(self._who, state, {"steps", "lr", *own})
        restore = load_arrays(self._who, own, state)
        self.steps, self.lr = read_steps(self._who, state)
        restore()
        if self.rounded is not None:
            self.rounded.show()

    @property
    def nbytes(self) -> int:
        """Bytes of the state, gradients not counted."""
        return sum(value.nbytes for value in self._tensors().values())

    @property
    def fallbacks(self) -> dict[str, int]:
        """Ops of an update that the CPU computes for the device; see `Graph.fallbacks`."""
        if self._own is None:  # the update is a part of the step's graph
            return {}
        self.trained()
        return most_fallbacks([self._update(False), self._own.norm.graph])

    def __repr__(self) -> str:
        return f"{self._who}(lr={self.lr}, steps={self.steps}, groups={self.groups})"

    def _update(self, multiplies: bool) -> Graph:
        """Return the update graph, recorded at its first use."""
        if multiplies not in self._updates:
            effects = self._effects(multiplies)
            self._updates[multiplies] = Graph([], effects=effects, device=self.device)
        return self._updates[multiplies]

    def _effects(self, multiplies: bool) -> list[Tensor]:
        """Record the update of every parameter that is not frozen."""
        effects: list[Tensor] = []
        states, owns = iter(self.state), iter(self._owned)
        # What autocast allows a model's products is not meant for an update's.
        with autocast("f32"):
            for group in self.groups:
                for param in group.params:
                    state, grad, owned = next(states), self.grads[param], next(owns)
                    if not (owned and param.requires_grad):
                        continue
                    if multiplies:
                        grad = ops.mul(grad, self._factor)
                    if self._couples and group.weight_decay:
                        grad = ops.add(grad, ops.mul(param, group.decay))
                    effects += self._record(param, grad, state, group)
        return effects
