# SPDX-License-Identifier: MIT
"""Module: a tree of parameters with a forward."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MemberDescriptorType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..backend.device import Device, alone
from ..backend.device import device as find_device
from ..errors import BackendError, DTypeError, fitting
from ..tensors import Tensor, tensor, zeros
from ..tensors.gradients import gradient_of, note_gradients, without_gradients
from ..tensors.tracing import is_tracing, note_mode
from ..tensors.truth import is_mask
from .base import IncompatibleKeys, ModuleTree, load_state
from .init import empty_dtype
from .mode import mode_of
from .raw_bytes import blocks_of
from .weight_check import SameWeights

__all__ = ["Module", "Parameter"]

M = TypeVar("M", bound="Module")
_SAME = "same weights"


@fitting
def Parameter(
    array: ArrayLike,
    requires_grad: bool = True,
    *,
    dtype: str | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """Store `array` as a tensor that is trained.

    Inside of `init.empty_weights(dtype)` a matrix is zeros of that dtype, and frozen.

    Args:
        array: initial values; float64 becomes f32.
        requires_grad: train it; a frozen one is a buffer of its module until it is.
        dtype: element type; None keeps the array's.
        device: where it lives; None is the default device.

    Shape:
        any, up to 4-d

    Raises:
        DTypeError: the values are not floats.

    Example:
        >>> Parameter([[1.0, 2.0]]).requires_grad
        True
    """
    kept = empty_dtype()
    if kept is not None and dtype is None:
        shape = np.shape(array)
        if len(shape) in (2, 3) and shape[-1] % kept.block_size == 0:
            return zeros(shape, dtype=kept, device=device)
    return tensor(array, dtype=dtype, device=device, requires_grad=requires_grad)


class Module(ModuleTree):
    """A part of a model: its attributes are its parameters, buffers and children.

    An attribute holding a stored tensor that requires a gradient is a parameter (and stays
    one when frozen), and so is one of a type that only frozen weights have: f16, bf16 or
    quantised. Any other stored tensor is a buffer, a Module or a list, tuple or dict
    of Modules is a child. A name that begins with an underscore is private: neither saved
    nor trained. Calling a module calls its `forward`.

    Example:
        >>> class Scale(Module):
        ...     def __init__(self):
        ...         self.scale = Parameter([2.0])
        ...     def forward(self, x):
        ...         return x * self.scale
        >>> [name for name, _ in Scale().named_parameters()]
        ['scale']
    """

    @property
    def training(self) -> bool:
        """True in training mode: dropout drops, and batch norms use the batch.

        It is what `train` and `eval` set. Inside of a computation that has a mode of its own (a
        training step, `evaluate`, `generate`) it is that mode, on the thread that computes.
        """
        if is_tracing():
            note_mode(self)
        mode = mode_of(self)
        return self.__dict__.get("training", True) if mode is None else mode

    @training.setter
    def training(self, mode: bool) -> None:
        self.__dict__["training"] = mode

    def state_dict(self, dequantise: bool = False) -> dict[str, np.ndarray]:
        """Copy parameters and buffers into NumPy arrays, keyed by dotted path.

        Args:
            dequantise: quantised ones come as f32; otherwise as their bytes, (..., bytes of a row)
                uint8, which are exact.

        Masks come as booleans.
        """
        found = {}
        with alone():  # between two steps of a training
            for name, value in self.named_state():
                blocks = value.dtype.quantized and not dequantise
                array = blocks_of(value) if blocks else value.numpy()
                found[name] = array.astype(bool) if is_mask(value.node) else array
        return found

    def __deepcopy__(self: M, memo: dict[int, Any]) -> M:
        """Copy the module as it is between two steps of a training in another thread."""
        with alone():
            reduced: Any = self.__reduce_ex__(4)
            make, arguments, *rest = reduced
            made: M = make(*arguments)
            memo[id(self)] = made
            state = copy.deepcopy(rest[0], memo) if rest else None
        if state is not None:
            made.__setstate__(state)
        return made

    def __getstate__(self) -> dict[str, Any]:
        slots = {
            name: getattr(self, name)
            for kind in type(self).__mro__
            for name, each in vars(kind).items()
            if isinstance(each, MemberDescriptorType) and hasattr(self, name)
        }
        # Last, as pickle goes through the tensors one by one.
        return {**self.__dict__, **slots, _SAME: SameWeights("pickle", self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, each in state.items():
            if isinstance(getattr(type(self), name, None), MemberDescriptorType):
                object.__setattr__(self, name, each)
            elif name != _SAME:
                self.__dict__[name] = each

    def load_state_dict(
        self, state: Mapping[str, ArrayLike], strict: bool = True
    ) -> IncompatibleKeys:
        """Overwrite parameters and buffers; on an error nothing changes.

        Args:
            state: arrays by dotted path, as `state_dict` gives them. Where a parameter is
                quantised, numbers of its shape are quantised, too. A buffer that gets booleans is
                a mask.
            strict: raise on missing and unexpected names; False takes what fits by name.

        Returns:
            The missing and the unexpected names.

        Raises:
            TypeError: state is no mapping, or strict not True or False.
            KeyError: names are missing or unexpected.
            ShapeError: an array has another shape than its tensor.
            DTypeError: an array does not hold numbers that its tensor takes.

        Example:
            >>> a, b = Linear(2, 3), Linear(2, 3)
            >>> b.load_state_dict({"weight": a.weight.numpy()}, strict=False)
            IncompatibleKeys(missing_keys=['bias'], unexpected_keys=[])
        """
        who = f"{type(self).__name__}.load_state_dict"
        with alone():  # other threads compute with all of it, or with none
            return load_state(who, dict(self.named_state()), state, strict)

    def train(self, mode: bool = True) -> Module:
        """Set `training` here and below."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Leave training mode."""
        return self.train(False)

    def freeze(self: M, *patterns: str) -> M:
        """Stop training the parameters here and below.

        Args:
            patterns: of their names, such as "*embed*"; none is all parameters.

        Raises:
            ValueError: a pattern matches no parameter.

        Example:
            >>> model = Sequential(Linear(2, 2), Linear(2, 1)).freeze("0.*")
            >>> model.num_parameters(trainable_only=True)
            3
        """
        with alone():  # a training freezes all of them at once, or none
            for _, parameter in self._matching("freeze", patterns):
                parameter.requires_grad = False
        return self

    def unfreeze(self: M, *patterns: str) -> M:
        """Train the parameters here and below again.

        Args:
            patterns: of their names, such as "*norm*"; none is all parameters.

        Raises:
            DTypeError: a weight is of a type that cannot be trained; nothing has changed then.
            ValueError: a pattern matches no parameter.
        """
        found = self._matching("unfreeze", patterns)
        for name, parameter in found:
            if parameter.dtype.name != "f32":
                raise DTypeError(
                    f"{type(self).__name__}.unfreeze: parameters that are trained must be f32; "
                    f"{name} is {parameter.dtype.name}, which stays frozen: train adapters on it, "
                    "nn.apply_lora(model), or load the model without keep_types"
                )
        with alone():
            for _, parameter in found:
                parameter.requires_grad = True
        return self

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Train every parameter here and below, or none.

        Args:
            requires_grad: True is `unfreeze`, False `freeze`.
        """
        wanted = checks.flag(
            f"{type(self).__name__}.requires_grad_", "requires_grad", requires_grad
        )
        return self.unfreeze() if wanted else self.freeze()

    def _matching(self, method: str, patterns: tuple[str, ...]) -> list[tuple[str, Tensor]]:
        """Return the parameters whose names match one of the patterns."""
        named = list(self.named_parameters())
        for pattern in patterns:
            if not isinstance(pattern, str) or not any(fnmatchcase(n, pattern) for n, _ in named):
                raise ValueError(
                    f"{type(self).__name__}.{method}: patterns must match a parameter's name; got "
                    f"{pattern!r}: look at named_parameters()"
                )
        return [
            (n, value) for n, value in named
            if not patterns or any(fnmatchcase(n, pattern) for pattern in patterns)
        ]  # fmt: skip

    def to(self, device: Device | str) -> Module:
        """Move every parameter and buffer here and below, in place.

        Make optimizers and trainers afterwards: one made before raises at its next step.

        Args:
            device: "cpu", "cuda:0", "metal", …, or "auto" for the best.

        Returns:
            The module itself.

        Raises:
            BackendError: there is no such device, or it lacks the memory; nothing has moved.

        Example:
            >>> Linear(2, 3).to("cpu").weight.device.name
            'cpu'
        """
        where = find_device(device)
        found = {id(t): t for _, module in self.named_modules() for t in _stored_in(module)}
        moving = [t for t in found.values() if t.device is not where]
        needed = sum(t.nbytes * (1 if t.grad is None else 2) for t in moving)
        if not where.has_memory(needed) or (where.kind == "gpu" and needed > where.memory_free):
            raise BackendError(
                f"{type(self).__name__}.to: {where.name} cannot take {needed:,} bytes"
                f" ({where.memory_free:,} free)"
            )
        for each in moving:
            each.move_(where)
        return self

    def replace_tensor(self, old: Tensor, new: Tensor) -> Tensor:
        """Put a tensor in the place of another one, wherever it is an attribute here and below.

        Make optimizers and trainers afterwards.

        Returns:
            The new one.
        """
        self.replace_tensors([(old, new)])
        return new

    def replace_tensors(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Put tensors in the places of others; see `replace_tensor`.

        Args:
            pairs: the old and the new one of each.
        """
        own = type(self).__name__
        # Whose ids are theirs alone meanwhile.
        kept = [checks.items(own, "a pair (old, new)", pair, 2)
                for pair in checks.items(own, "pairs", pairs)]  # fmt: skip
        found = {id(old): new for old, new in kept}
        with alone():  # other threads compute with all of them, or with none
            for _, module in self.named_modules():
                for name in [n for n, value in vars(module).copy().items() if id(value) in found]:
                    is_parameter = name in module.__dict__["_parameter_names"]
                    setattr(module, name, found[id(vars(module)[name])])
                    if is_parameter:  # also where the new one is frozen
                        module.__dict__["_parameter_names"][name] = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Take every gradient away.

        Args:
            set_to_none: `.grad` is None until the next backward; otherwise it is zeros.
        """
        for node in (parameter.node for parameter in self.parameters()):
            grad = gradient_of(node)
            if grad is not None:
                grad.zero_()
                (without_gradients if set_to_none else note_gradients)([id(node)])


def _stored_in(module: Module) -> Iterator[Tensor]:
    """Yield the stored tensors among a module's attributes, private ones included."""
    for value in vars(module).copy().values():
        if isinstance(value, Tensor) and value.is_stored:
            yield value
