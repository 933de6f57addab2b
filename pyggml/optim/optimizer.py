# SPDX-License-Identifier: MIT
"""Optimizer: gradients, state and the recorded update of a set of parameters."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import ops
from ..dtypes import encode
from ..errors import BackendError, GradientError, ShapeError
from ..graph import Graph, grad_of
from ..tensor import Tensor, tensor, zeros_group
from .clip import GradNorm, clip_factor, sum_of_squares

__all__ = ["Group", "Optimizer", "ParamGroups"]

# The updates' hyper-parameters are f32: 0 times what is infinite there would be NaN.
_F32_MAX = float(np.finfo(np.float32).max)

# The gradients that optimizers own: one's are not taken for another's.
_OWNED: weakref.WeakSet[Tensor] = weakref.WeakSet()

ParamGroups = Iterable[Tensor] | Iterable[Mapping[str, Any]]


class Group:
    """Parameters that share hyper-parameters.

    Attributes:
        params: the tensors.
        names: what their state is saved under.
        weight_decay: decoupled decay of these parameters.
        lr_scale: factor on the optimizer's learning rate.
        hyper: the input tensor that the update graph reads.
    """

    def __init__(
        self, params: list[Tensor], names: list[str], weight_decay: float, lr_scale: float
    ) -> None:
        self.params = params
        self.names = names
        self.weight_decay = weight_decay
        self.lr_scale = lr_scale
        self.hyper: Tensor

    def __repr__(self) -> str:
        return (
            f"Group({len(self.params)} parameters, weight_decay={self.weight_decay}, "
            f"lr_scale={self.lr_scale})"
        )


class Optimizer(ABC):
    """What all optimizers share; a subclass says its state, its hyper-parameters and its op.

    The optimizer owns the gradients: one zeroed buffer for all, set as each parameter's
    `.grad`. Its update is one graph, recorded once; learning rate and clipping are inputs.

    A `.grad` that was replaced is copied into the buffer by `step`; None counts as zeros.
    Parameters that are frozen later stay as they are for as long, and so does their state.

    With `fused_update` there is no such buffer: a training step's graph updates each parameter as
    soon as its gradient is complete, and its memory is used again. That takes one batch for each
    step, cannot clip (the norm is known when all is done), and gives hooks nothing to see.

    Args:
        params: tensors, or groups: dicts with "params" and, if wished, "names",
            "weight_decay" and "lr_scale". Frozen parameters are left out, for good.
        lr: learning rate, >= 0.
        weight_decay: of groups that name none, >= 0.
        fused_update: keep no gradients; for `TrainStep`, which then updates in the backward.

    Attributes:
        grads: gradient tensor of each parameter, for `Graph(grads=...)`.
        grad_nbytes: bytes of the gradients.
        groups: the parameter groups.
        lr: learning rate of the next step.
        steps: updates done.

    Raises:
        ValueError: no trainable parameter, one given twice, an unknown group key, a bad number.
        BackendError: the parameters are on several devices.
    """

    state_names: tuple[str, ...] = ()

    def __init__(
        self, params: ParamGroups, lr: float, weight_decay: float, fused_update: bool = False
    ) -> None:
        self._who = type(self).__name__
        self.fused_update = fused_update
        self.lr = check_number(self._who, "lr", lr)
        self.groups, self._left_out = _read_groups(self._who, params, weight_decay)
        self.params = [p for group in self.groups for p in group.params]
        self.names = [name for group in self.groups for name in group.names]
        _check_params(self._who, self.params, self.names)
        self.steps = 0
        self.device = self.params[0].device
        shapes: list[tuple[Sequence[int], Any]] = [(p.shape, "f32") for p in self.params]
        if fused_update:
            grads = [grad_of(p) for p in self.params]
        else:
            grads = zeros_group(shapes, self.device)
            for parameter, grad in zip(self.params, grads, strict=True):
                parameter.grad = grad
            _OWNED.update(grads)
        self.grads: dict[Tensor, Tensor] = dict(zip(self.params, grads, strict=True))
        self.grad_nbytes = sum(g.nbytes for g in grads if g.is_stored)
        state = zeros_group(shapes * len(self.state_names), self.device)
        self.state: dict[str, list[Tensor]] = {
            name: state[i * len(shapes) : (i + 1) * len(shapes)]
            for i, name in enumerate(self.state_names)
        }
        self._norm = None if fused_update else GradNorm(grads)
        for group in self.groups:
            group.hyper = tensor(self._with_factor(group, 0.0, 1.0), device=self.device)
        # Clipping is a factor that the op multiplies the gradients by. A device whose op does
        # not take it multiplies a copy of the gradients first.
        first = [values[0] for values in self.state.values()]
        probe = self._record(self.params[0], grads[0], first, self.groups[0].hyper)
        self._folds_factor = self.device.supports(probe.ptr)
        if not self._folds_factor:
            self._factor = tensor(np.ones((1,), np.float32), device=self.device)
            for group in self.groups:
                group.hyper = tensor(self._hyper(group, 0.0), device=self.device)
        self._updates: dict[bool, Graph] = {}
        self._frozen = [False] * len(self.params)
        self._recorded: list[bool] | None = None

    @abstractmethod
    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        """Return the op's hyper-parameters for update number `self.steps`."""

    @abstractmethod
    def _record(self, param: Tensor, grad: Tensor, state: list[Tensor], hyper: Tensor) -> Tensor:
        """Record the op that updates `param` and `state` in place."""

    def _with_factor(self, group: Group, lr: float, factor: float) -> np.ndarray:
        """The op's hyper-parameters and, last, the factor on the gradient."""
        return np.append(self._hyper(group, lr), np.float32(factor))

    def grad_norm(self) -> float:
        """Return the Euclidean norm of all gradients together, those of frozen parameters aside.

        Raises:
            GradientError: as `step`.
        """
        self._kept("grad_norm")
        self.trained()
        self._adopt("grad_norm")
        return self._kept("grad_norm")()

    def trained(self) -> dict[Tensor, Tensor]:
        """The gradients of the parameters that are not frozen now, for `Graph(grads=...)`.

        Raises:
            GradientError: all are frozen, or one that was frozen when the optimizer was made, and
                has no state, is not any more.
        """
        for name, param in self._left_out.items():
            if param.requires_grad:
                raise GradientError(
                    f"{self._who}: parameter {name} of shape {param.shape} was frozen when the"
                    " optimizer was made and requires a gradient now; make a new optimizer, or"
                    " leave it out of this one's params"
                )
        frozen = [not param.requires_grad for param in self.params]
        trained = {p: grad for p, grad in self.grads.items() if p.requires_grad}
        if not trained:
            raise GradientError(f"{self._who}: every parameter is frozen; unfreeze one")
        if frozen != self._frozen:
            self._frozen = frozen
            self._updates.clear()
            self._norm = None if self.fused_update else GradNorm(list(trained.values()))
        return trained

    def _adopt(self, method: str) -> None:
        """Take over the gradients that replaced this optimizer's own."""
        for name, (param, own) in zip(self.names, self.grads.items(), strict=True):
            given = param.grad
            if given is own:
                continue
            if given is None:
                own.zero_()
            elif given in _OWNED:
                raise GradientError(
                    f"{self._who}.{method}: the gradient of {name} is added into another"
                    " optimizer's, made later; call this one's zero_grad() before the backward"
                )
            else:
                own.copy_(given)
            param.grad = own

    def _kept(self, method: str) -> GradNorm:
        """What computes the norm of the gradients, which must be kept."""
        if self._norm is None:
            raise GradientError(
                f"{self._who}.{method}: needs the gradients, which fused_update=True does not "
                "keep; train with TrainStep, or make the optimizer without it"
            )
        return self._norm

    def recorded_update(self) -> tuple[list[Tensor], Tensor]:
        """What a graph that has `grads` among its own does besides, with `fused_update`.

        Returns:
            The updates, for its effects, and the sum of the squares of all gradients' elements,
            for its outputs.
        """
        squares = sum_of_squares(list(self.trained().values()))
        self._recorded = list(self._frozen)
        return self._effects(False), squares

    @contextmanager
    def updating(self, lr: float | None = None) -> Iterator[None]:
        """Prepare a step; the block runs a graph with what `recorded_update` gave.

        Args:
            lr: learning rate from now on; None keeps it.

        Raises:
            GradientError: a parameter has hooks, which would have no gradient to see; parameters
                were frozen or unfrozen since `recorded_update`; or as `trained`.
            ValueError: lr is negative.
        """
        new_lr = self.lr if lr is None else check_number(self._who, "lr", lr)
        if any(param.node.hooks for param in self.params):
            raise GradientError(
                f"{self._who}: gradient hooks need gradients, which fused_update=True does not "
                "keep; remove the hooks, or make the optimizer without it"
            )
        self.trained()
        if self._recorded is not None and self._recorded != self._frozen:
            raise GradientError(
                f"{self._who}.updating: parameters were frozen or unfrozen since recorded_update();"
                " record the update and its graph anew"
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
            lr = self.lr * group.lr_scale
            if self._folds_factor:
                group.hyper.copy_(self._with_factor(group, lr, factor))
            else:
                group.hyper.copy_(self._hyper(group, lr))

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
            FloatingPointError: a gradient is NaN or infinite; nothing has changed.
            GradientError: with `fused_update` there are no gradients; a gradient is added into
                another optimizer's; or as `trained`.
            ValueError: lr is negative, or clip or grad_scale is not positive.

        Example:
            >>> w = Parameter([1.0])
            >>> opt = SGD([w], lr=0.5)
            >>> (w * 2.0).sum().backward()
            >>> opt.step(), w.tolist()
            (2.0, [0.0])
        """
        new_lr = self.lr if lr is None else check_number(self._who, "lr", lr)
        if clip is not None and not clip > 0:
            raise ValueError(f"{self._who}.step: clip must be > 0 or None; got {clip}")
        if not 0 < grad_scale < math.inf:
            raise ValueError(
                f"{self._who}.step: grad_scale must be finite and > 0; got {grad_scale}"
            )
        self._kept("step")
        trained = self.trained()
        self._adopt("step")
        for param in trained:
            param.run_hooks()
        norm = self._kept("step")()
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"{self._who}.step: the gradients must be finite; got norm {norm} at step "
                f"{self.steps + 1}, no parameter was changed; lower the learning rate or clip"
            )
        norm /= grad_scale
        self.lr = new_lr
        self.steps += 1
        factor = (1.0 if clip is None else clip_factor(norm, clip)) / grad_scale
        multiplies = factor != 1.0 and not self._folds_factor
        if multiplies:
            self._factor.copy_(np.full((1,), factor, np.float32))
        self._set_hyper(factor)
        self._update(multiplies).run()
        return norm

    def zero_grad(self) -> None:
        """Set every gradient to zero, and `.grad` to it: one call for the whole buffer."""
        self._kept("zero_grad")
        self.grads[self.params[0]].buffer.clear()
        for param, grad in self.grads.items():
            param.grad = grad

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the state: "steps", "lr", and "NAME.m" and the like for every parameter."""
        saved: dict[str, np.ndarray] = {
            "steps": np.asarray(self.steps, np.int64),
            "lr": np.asarray(self.lr, np.float64),
        }
        for kind, tensors in self.state.items():
            for name, value in zip(self.names, tensors, strict=True):
                saved[f"{name}.{kind}"] = value.numpy()
        return saved

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Restore what `state_dict` gave; nothing changes when anything does not fit.

        Raises:
            KeyError: entries are missing or unexpected.
            ShapeError: an entry is of another shape than its parameter.
            ValueError: steps or lr is out of range.
        """
        own = {
            f"{name}.{kind}": value
            for kind, tensors in self.state.items()
            for name, value in zip(self.names, tensors, strict=True)
        }
        expected = {"steps", "lr", *own}
        missing, unexpected = expected - set(state), set(state) - expected
        if missing or unexpected:
            raise KeyError(
                f"{self._who}.load_state_dict: the entries must be this optimizer's own; missing "
                f"{sorted(missing)[:8]}, unexpected {sorted(unexpected)[:8]}"
            )
        arrays = {key: np.asarray(state[key]) for key in expected}
        for key, value in own.items():
            if arrays[key].shape != value.shape:
                raise ShapeError(
                    f"{self._who}.load_state_dict: {key} must have the shape {value.shape}; "
                    f"got {arrays[key].shape}"
                )
            arrays[key] = encode(arrays[key], value.dtype, f"{self._who}.load_state_dict: {key}")
        steps = int(arrays["steps"].reshape(()))
        if steps < 0:
            raise ValueError(f"{self._who}.load_state_dict: steps must be >= 0; got {steps}")
        lr = check_number(self._who, "lr", float(arrays["lr"].reshape(())))
        self.lr, self.steps = lr, steps
        for key, value in own.items():
            value.copy_(arrays[key])

    @property
    def nbytes(self) -> int:
        """Bytes of the state, gradients not counted."""
        return sum(value.nbytes for tensors in self.state.values() for value in tensors)

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
        effects, start = [], 0
        for group in self.groups:
            for i, param in enumerate(group.params, start):
                grad = self.grads[param]
                if not param.requires_grad:
                    continue
                if multiplies:
                    grad = ops.mul(grad, self._factor)
                state = [self.state[name][i] for name in self.state_names]
                effects.append(self._record(param, grad, state, group.hyper))
            start += len(group.params)
        return effects


def check_number(where: str, name: str, value: float, below: float = math.inf) -> float:
    """Return `value`, a number of at least zero and below `below`, finite in f32, too."""
    if isinstance(value, bool) or not (0 <= value < below and value <= _F32_MAX):
        bound = "" if below == math.inf else f" and < {below}"
        raise ValueError(f"{where}: {name} must be finite and >= 0{bound}; got {value}")
    return float(value)


def _read_groups(
    where: str, params: ParamGroups, weight_decay: float
) -> tuple[list[Group], dict[str, Tensor]]:
    """Turn tensors or dicts into groups of trainable parameters, and the others by name."""
    given: list[Any] = list(params)
    dicts: list[Mapping[str, Any]] = [{"params": given}]
    if given and all(isinstance(item, Mapping) for item in given):
        dicts = given
    groups, count = [], 0
    left_out: dict[str, Tensor] = {}
    for item in dicts:
        unknown = set(item) - {"params", "names", "weight_decay", "lr_scale"}
        if unknown or "params" not in item:
            raise ValueError(
                f"{where}: a group must have params and may have names, weight_decay and "
                f"lr_scale; got the keys {sorted(item)}"
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
            )
        )
    return [group for group in groups if group.params], left_out


def _check_params(where: str, params: list[Tensor], names: list[str]) -> None:
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
