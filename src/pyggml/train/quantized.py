# SPDX-License-Identifier: MIT
"""Quantisation-aware training: a model that is trained with the numbers that a file rounds to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from .. import checks, nn
from ..backend.device import alone
from ..backend.dtypes import as_dtype
from ..backend.undivided import Undone
from ..errors import DTypeError
from ..models import Model
from ..models.quantization.mixes import MIXES, Mixer, in_order
from ..nn.lora import need_no_adapters
from ..optim import Optimizer
from ..optim.rounded import RoundedWeights
from ..tensors import Tensor
from .arguments import check_model, check_optimizer

__all__ = ["QuantizationAware", "quantization_aware"]


class QuantizationAware:
    """The rounding of a model's weights in training; `quantization_aware` makes it.

    Attributes:
        types: the type of each rounded parameter, by its path.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, rounded: RoundedWeights) -> None:
        checks.instance("QuantizationAware", "rounded", rounded, RoundedWeights)
        self._model, self._optimizer, self._rounded = model, optimizer, rounded
        self.types = {name: value.dtype.name for name, value in rounded.rounded.items()}

    def quantized(self) -> AbstractContextManager[None]:
        """Let the model have quantised tensors inside the block, to be saved.

        They hold what the updated numbers round to; a file gets their bytes. A training in another
        thread waits.
        """
        return _Quantized(self._model, self._current)

    def _current(self) -> list[tuple[Tensor, Tensor]]:
        """Return each parameter with the tensor that it rounds to."""
        own = self._rounded.current(self._optimizer.steps)
        return [(p, own[name]) for name, p in self._rounded.params.items()]

    def settle(self) -> None:
        """Round what was updated since the last rounding; for the end of a training."""
        self._rounded.settle(self._optimizer.steps)

    def finish(self) -> None:
        """End the training: the model has quantised tensors, which are frozen, from now on."""
        with alone():  # between two steps of a training
            self.settle()
            pairs = [(p, self._rounded.rounded[name]) for name, p in self._rounded.params.items()]
            self._model.replace_tensors(pairs)
            self._optimizer.rounded = None

    def remove(self) -> None:
        """Give the model the f32 numbers that were updated, and round no more."""
        with alone():  # between two steps of a training
            for name, param in self._rounded.params.items():
                param.copy_(self._rounded.masters[name].numpy())
            self._optimizer.rounded = None


class _Quantized(Undone):
    """A block in which a model has other tensors.

    Args:
        model: the model.
        pairs: returns its parameters, each with the tensor in its place.
    """

    def __init__(self, model: nn.Module, pairs: Callable[[], list[tuple[Tensor, Tensor]]]):
        super().__init__(alone())
        self._model, self._make = model, pairs
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._trained: dict[int, bool] = {}

    def enter(self) -> None:
        """Put the tensors in."""
        pairs = self._make()
        self._trained = {id(p): p.requires_grad for p, _ in pairs}
        self._pairs = pairs
        self._model.replace_tensors(pairs)

    def undo(self) -> None:
        """Put the parameters back, as trained or frozen as they were."""
        self._model.replace_tensors([(new, old) for old, new in self._pairs])
        for p, _ in self._pairs:
            p.requires_grad = self._trained[id(p)]
        self._pairs = []


def quantization_aware(
    model: Any,
    optimizer: Optimizer,
    mix: str = "Q4_0",
    every: int = 1,
    *,
    types: Mapping[str, str] | None = None,
    pure: bool = False,
    importance: Mapping[str, np.ndarray] | None = None,
) -> QuantizationAware:
    """Train a model with its matrices rounded to ggml's types, so that it is good when rounded.

    From now on the parameters hold rounded numbers, with which losses, evaluations and samples are
    computed; the optimizer updates f32 masters of them by the gradients of the rounded ones, and
    each `every`-th step ends with ggml's quantiser. Checkpoints hold both. Call it before the
    trainer is made.

    Args:
        model: changed in place; without adapters.
        optimizer: of the model; it must keep gradients (`fused_update=False`).
        mix: a key of `models.quantization.MIXES`, or a type such as "q4_0", "q8_0" or "tq2_0", the
            mix of that name: which type each matrix gets in llama.cpp's files. A model that
            llama.cpp does not have gets the mix's own type wherever the rows fit.
        every: steps between roundings; with more the same rounded numbers are trained on for
            several steps, which is faster.
        types: types of some parameters, by the end of their path or a glob of it, such as
            `{"embed_tokens.weight": "q8_0"}`; "f32" is not rounded.
        pure: give every matrix the mix's own type, table and head too.
        importance: weight of the squared error of each column, by the path of the layer; see
            `nn.merge_lora`.

    Raises:
        TypeError: model is no module, or optimizer is none.
        ValueError: mix or types are unknown; the model has adapters; the optimizer updates in the
            backward, takes closures, is another model's or rounds already; nothing is rounded.
        DTypeError: a type cannot be written, or not without importance.
        ShapeError: rows are no whole blocks of a type.

    Source: Bengio et al. 2013, arXiv:1308.3432 (straight-through); Jacob et al. 2017,
        arXiv:1712.05877.

    Example:
        >>> net = nn.Sequential(nn.Linear(32, 4))
        >>> optimizer = pg.optim.AdamW(net, lr=1e-3)
        >>> aware = quantization_aware(net, optimizer, "q4_0")
        >>> aware.types
        {'0.weight': 'q4_0'}
        >>> with aware.quantized():
        ...     net[0].weight.dtype
        pyggml.q4_0
    """
    who = "quantization_aware"
    model = check_model(who, model)
    check_optimizer(who, optimizer, model)
    checks.flag(who, "pure", pure)
    if optimizer.fused_update or optimizer.needs_closure:
        kind = "updates in the backward" if optimizer.fused_update else "takes closures"
        raise ValueError(
            f"{who}: optimizer must update by kept gradients; this {type(optimizer).__name__} "
            f"{kind}: use AdamW without fused_update"
        )
    if optimizer.rounded is not None:
        raise ValueError(f"{who}: optimizer must not round already; call it once")
    need_no_adapters(who, model)
    chosen = _types(who, model, _mix_of(who, mix), types, pure, importance is not None)
    params = dict(model.named_parameters())
    weights = {
        f"{path}.weight": value
        for path, value in checks.mapping(who, "importance", importance or {}).items()
        if f"{path}.weight" in chosen
    }
    rounded = RoundedWeights(params, chosen, every, weights)
    optimizer.rounded = rounded
    if isinstance(model, Model):
        model.trained = True
    return QuantizationAware(model, optimizer, rounded)


def _mix_of(who: str, mix: str) -> str:
    """Return the key of a mix, or of the mix of a type's name."""
    name = checks.text(who, "mix", mix)
    return checks.choice(who, "mix", name if name in MIXES else name.upper(), MIXES)


def _types(
    who: str,
    model: nn.Module,
    mix: str,
    types: Mapping[str, str] | None,
    pure: bool,
    important: bool,
) -> dict[str, str]:
    """Return the type of each parameter that is rounded."""
    params = dict(model.named_parameters())
    chosen = _of_mix(model, params, mix, pure, important)
    for pattern, kind in checks.mapping(who, "types", types or {}).items():
        matching = [n for n in params if n.endswith(f".{pattern}") or fnmatchcase(n, pattern)]
        if not matching:
            raise ValueError(f"{who}: types must name parameters; {pattern!r} matches none")
        dtype = as_dtype(kind)
        if not (dtype.quantized or dtype.is_float):
            raise DTypeError(f"{who}: types must be floats or quantised; got {dtype.name}")
        chosen |= dict.fromkeys(matching, dtype.name)
    found = {name: kind for name, kind in chosen.items() if kind != "f32"}
    if not found:
        raise ValueError(
            f"{who}: mix {mix} must round a parameter; got none: all are vectors, or their rows "
            "are no whole blocks"
        )
    return found


def _of_mix(
    model: nn.Module, params: Mapping[str, Tensor], mix: str, pure: bool, important: bool
) -> dict[str, str]:
    """Return the types that llama.cpp's mix gives, or the mix's own where rows fit."""
    if isinstance(model, Model) and model.gguf_names:
        names = {model.gguf_name(own): own for own in params}
        mixer = Mixer(mix, model.to_gguf_metadata(), names, important, pure)
        return {names[n]: mixer.choose(n, params[names[n]].shape, "f32") for n in in_order(names)}
    kind = as_dtype(MIXES[mix].kind)
    layers = (nn.Linear, nn.Embedding)
    weights = {id(m.weight) for _, m in model.named_modules() if isinstance(m, layers)}
    fitting = (
        n for n, p in params.items() if id(p) in weights and not p.shape[-1] % kind.block_size
    )
    return dict.fromkeys(fitting, kind.name)
