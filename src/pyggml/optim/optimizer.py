# SPDX-License-Identifier: MIT
"""Optimizer: the step of a set of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..backend.buffers import last_write
from ..backend.device import alone
from ..backend.undivided import Undivided, settle
from ..errors import GradientError
from ..graph import grad_of
from ..tensors import Tensor
from ..tensors.storage import read_bytes, write, write_all
from .base import OptimizerBase, Spec, State
from .clip import check_norm, factor_of, sum_of_squares
from .gradients import OwnGradients
from .state import check_entries, load_arrays, read_skipped, read_steps, save_arrays

__all__ = ["Optimizer", "Spec", "State"]


class Optimizer(OptimizerBase):
    """The base of all optimizers; a subclass adds its state, its hyper-parameters and its ops.

    The optimizer owns the gradients: each parameter's `.grad` is a part of one zeroed buffer. Its
    update is one graph, recorded once; learning rate and clipping are inputs.

    `step` copies a `.grad` that was replaced into the buffer, and leaves a parameter alone whose
    `.grad` is None. Parameters that
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

    def grad_norm(self) -> float:
        """Return the Euclidean norm of all gradients together, without those of frozen parameters.

        Raises:
            GradientError: as `step`.
        """
        own = self._kept("grad_norm")
        self.trained()
        own.adopt("grad_norm")
        return self._norm(own)

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
        with alone(), Undivided(), self._counted(new_lr):  # a whole step, or none
            self._set_hyper(1.0)
            yield

    @contextmanager
    def _counted(self, lr: float) -> Iterator[None]:
        """Count a step with a rate, unless an error ends it before a parameter is written."""
        before, written = (self.steps, self.lr), self._written()
        self.steps, self.lr = self.steps + 1, lr
        try:
            yield
        except BaseException:
            if self._written() == written:
                self.steps, self.lr = before
            raise

    def _written(self) -> int:
        """The number of the last write into a parameter."""
        return last_write(param.buffer for param in self.params)

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
        with alone():  # other threads see a whole step, or none
            return self._step(new_lr, clip, grad_scale)

    def _step(self, new_lr: float, clip: float | None, grad_scale: float) -> float:
        """Do a step with numbers that are checked."""
        own = self._kept("step")
        self.trained()
        own.adopt("step")
        kinds, lags = self._kinds(own)
        for i, param in enumerate(self.params):
            is_trained = param.requires_grad and self._owned[i]
            if param.has_hooks and is_trained and (kinds is None or kinds[i] >= 0):
                param.run_hooks()
        norm = self._norm(own)
        check_norm(f"{self._who}.step", norm, clip, grad_scale, self.steps + 1)
        norm /= grad_scale
        factor = (1.0 if clip is None else factor_of(norm, clip)) / grad_scale
        # Not only where it clips, or two graphs would want memory to work in.
        multiplies = (clip is not None or grad_scale != 1.0) and not self._folds
        graph = self._update(multiplies, kinds) if self._own_trained() and lags else None
        rounded = nullcontext() if self.rounded is None else self.rounded.updating(self.steps + 1)
        with Undivided(), rounded, self._counted(new_lr):
            if multiplies:
                self._factor.copy_(np.full((1,), factor, np.float32))
            self._set_hyper(factor, lags)
            if graph is not None:
                graph.run()
            if kinds is not None:
                self._skipped = [
                    skipped + (kind < 0) for skipped, kind in zip(self._skipped, kinds, strict=True)
                ]
        return norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Take every gradient away: `step` leaves parameters alone until they have one again.

        Args:
            set_to_none: `.grad` is None; otherwise it is zeros, for which `step` applies momentum
                and weight decay. The memory stays in both cases.
        """
        to_none = checks.flag(f"{self._who}.zero_grad", "set_to_none", set_to_none)
        self._kept("zero_grad").zero(to_none)

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
        checks.function(f"{self._who}.sum_grads", "reduce", reduce, "list of arrays -> None")
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
        who, count = f"{self._who}.shard", len(self.params)
        owned = [checks.flag(who, "owned", n) for n in checks.items(who, "owned", owned, count)]
        order = [
            checks.whole(who, "order", n, 0, count - 1)
            for n in checks.items(who, "order", order, count)
        ]
        total = checks.function(who, "total", total, "number -> number")
        gradients = checks.flag(who, "gradients", gradients)
        if not any(owned):
            raise ValueError(
                f"{who}: a process must own one parameter at least; got none of "
                f"{len(self.params)}: start fewer processes"
            )
        before, self._owned, self._total = self.state, owned, total
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

    def named_state(self) -> dict[str, Tensor]:
        """Return the tensors of the state by the names that `state_dict` gives their arrays."""
        return self._tensors()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the state: "steps", "lr", and "NAME.m" and the like for every parameter.

        "skipped" is there once a parameter had no gradient in a step: how many times each had none.
        """
        with alone():  # between two steps of a training
            skipped = {"skipped": np.asarray(self._skipped, np.int64)} if any(self._skipped) else {}
            return {
                "steps": np.asarray(self.steps, np.int64),
                "lr": np.asarray(self.lr, np.float64),
                **skipped,
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
        may = {"skipped"} & set(state) if isinstance(state, Mapping) else set()
        check_entries(self._who, state, {"steps", "lr", *may, *own})
        writes = load_arrays(self._who, own, state)
        steps, lr = read_steps(self._who, state)
        skipped = read_skipped(self._who, state, len(self.params), steps)
        if self.rounded is not None:
            writes += self.rounded.shown_with(dict(writes))
        with alone(), Undivided():  # a training takes its next step with all of it
            settle()
            write_all(writes)
            self.steps, self.lr, self._skipped = steps, lr, skipped

    @property
    def nbytes(self) -> int:
        """Bytes of the state, gradients not counted."""
        return sum(value.nbytes for value in self._tensors().values())
