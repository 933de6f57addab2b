# SPDX-License-Identifier: MIT
"""Module: a tree of parameters with a forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..backend.device import Device
from ..backend.device import device as find_device
from ..backend.dtypes import encode
from ..errors import BackendError, DTypeError, ShapeError
from ..tensors import Tensor, tensor, zeros
from .init import empty_dtype
from .mode import mode_of
from .raw_bytes import blocks_of, blocks_shape, set_blocks

__all__ = ["IncompatibleKeys", "Module", "Parameter"]


class IncompatibleKeys(NamedTuple):
    """The names in which a state and a module differ; as `torch.nn.Module.load_state_dict` has it.

    Args:
        missing_keys: names of the module that the state does not have.
        unexpected_keys: names of the state that the module does not have.
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


def Parameter(
    array: ArrayLike, dtype: str | None = None, device: Device | str | None = None
) -> Tensor:
    """Store `array` as a tensor that is trained.

    Inside of `init.empty_weights(dtype)` a matrix is zeros of that dtype, and frozen.

    Args:
        array: initial values; float64 becomes f32.
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
    return tensor(array, dtype=dtype, device=device, requires_grad=True)


class Module:
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
        mode = mode_of(self)
        return self.__dict__.get("training", True) if mode is None else mode

    @training.setter
    def training(self, mode: bool) -> None:
        self.__dict__["training"] = mode

    def __setattr__(self, name: str, value: Any) -> None:
        names: dict[str, None] = self.__dict__.setdefault("_parameter_names", {})
        if isinstance(value, Tensor) and value.is_stored and _is_weight(value):
            names[name] = None
        else:
            names.pop(name, None)
        object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return `forward` of the arguments."""
        forward = getattr(self, "forward", None)
        if forward is None:
            raise TypeError(
                f"{type(self).__name__}: a module that is called must define forward(); got none"
            )
        return forward(*args, **kwargs)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield (attribute path, child) of the modules directly below, in definition order."""
        for name, value in vars(self).items():
            if not name.startswith("_"):
                yield from _modules_in(name, value)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield (dotted path, module) of this module and all below it, parents first."""
        yield prefix, self
        for name, child in self.named_children():
            yield from child.named_modules(_join(prefix, name))

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Yield (dotted path, tensor) in definition order; a shared tensor only once."""
        seen: set[int] = set()
        for path, module in self.named_modules(prefix):
            for name, value in _tensors_of(module):
                if name in module.__dict__["_parameter_names"] and id(value) not in seen:
                    seen.add(id(value))
                    yield _join(path, name), value

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Yield (dotted path, tensor) of the tensors that are saved but not trained."""
        for path, module in self.named_modules(prefix):
            for name, value in _tensors_of(module):
                if name not in module.__dict__["_parameter_names"]:
                    yield _join(path, name), value

    def parameters(self) -> list[Tensor]:
        """Return the parameters, frozen ones included, in definition order."""
        return [parameter for _, parameter in self.named_parameters()]

    def num_parameters(self, trainable_only: bool = False) -> int:
        """Count the parameters' elements; shared tensors count once."""
        return sum(p.size for p in self.parameters() if p.requires_grad or not trainable_only)

    def state_dict(self, dequantise: bool = False) -> dict[str, np.ndarray]:
        """Copy parameters and buffers into NumPy arrays, keyed by dotted path.

        Args:
            dequantise: quantised ones come as f32; otherwise as their bytes, (..., bytes of a row)
                uint8, which are exact.
        """
        return {
            name: value.numpy() if dequantise or not value.dtype.quantized else blocks_of(value)
            for name, value in self.named_state()
        }

    def load_state_dict(
        self, state: Mapping[str, ArrayLike], strict: bool = True
    ) -> IncompatibleKeys:
        """Overwrite parameters and buffers; on an error nothing changes.

        Args:
            state: arrays by dotted path, as `state_dict` gives them. Where a parameter is
                quantised, numbers of its shape are quantised, too.
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
        own, who = dict(self.named_state()), f"{type(self).__name__}.load_state_dict"
        checks.mapping(who, "state", state)
        keys = compare_names(own, state)
        if checks.flag(who, "strict", strict):
            check_names(who, own, state)
        arrays = {name: np.asarray(state[name]) for name in own if name in state}
        encoded: dict[str, np.ndarray] = {}
        for name, array in arrays.items():
            what, value = f"{who}: {name}", own[name]
            if value.dtype.quantized and array.dtype == np.uint8:
                if array.shape != blocks_shape(value):
                    raise ShapeError(
                        f"{what} must be the bytes of {value.dtype.name}, {blocks_shape(value)}; "
                        f"got {array.shape}: the file is of another configuration"
                    )
                encoded[name] = array
                continue
            if array.shape != value.shape:
                raise ShapeError(
                    f"{what} must have the shape {value.shape}; got {array.shape}: the file is of "
                    "another configuration"
                )
            encoded[name] = encode(array, value.dtype, what)
        for name, array in encoded.items():
            value = own[name]
            if value.dtype.numpy is None:
                set_blocks(value, array)
            else:
                value.copy_(array.reshape(value.shape))  # a scalar comes back as one row
        return keys

    def train(self, mode: bool = True) -> Module:
        """Set `training` here and below."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Leave training mode."""
        return self.train(False)

    def freeze(self) -> Module:
        """Stop training every parameter here and below."""
        for parameter in self.parameters():
            parameter.requires_grad = False
        return self

    def unfreeze(self) -> Module:
        """Train every parameter here and below again.

        Raises:
            DTypeError: a weight is of a type that cannot be trained; nothing has changed then.
        """
        for name, parameter in self.named_parameters():
            if parameter.dtype.name != "f32":
                raise DTypeError(
                    f"{type(self).__name__}.unfreeze: parameters that are trained must be f32; "
                    f"{name} is {parameter.dtype.name}, which stays frozen: train adapters on it, "
                    "nn.apply_lora(model), or load the model without keep_types"
                )
        for parameter in self.parameters():
            parameter.requires_grad = True
        return self

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
        kept = list(pairs)  # whose ids are theirs alone meanwhile
        found = {id(old): new for old, new in kept}
        for _, module in self.named_modules():
            for name in [n for n, value in vars(module).items() if id(value) in found]:
                is_parameter = name in module.__dict__["_parameter_names"]
                setattr(module, name, found[id(vars(module)[name])])
                if is_parameter:  # also where the new one is frozen
                    module.__dict__["_parameter_names"][name] = None

    def zero_grad(self) -> None:
        """Set every gradient that exists to zero."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()

    def __repr__(self) -> str:
        lines = [f"{name}: {child!r}" for name, child in self.named_children()]
        if not lines:
            shapes = ", ".join(f"{name}={value.shape}" for name, value in _tensors_of(self))
            return f"{type(self).__name__}({shapes})"
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {body}\n)"

    def named_state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what state_dict holds: parameters, then buffers."""
        yield from self.named_parameters()
        yield from self.named_buffers()


def compare_names(own: Mapping[str, Any], given: Mapping[str, Any]) -> IncompatibleKeys:
    """Return the names missing from and unexpected in `given`."""
    return IncompatibleKeys(
        [name for name in own if name not in given], [name for name in given if name not in own]
    )


def check_names(where: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise a KeyError that lists the names missing from and unexpected in `given`."""
    missing, unexpected = compare_names(own, given)
    if missing or unexpected:
        raise KeyError(
            f"{where}: the names must be the model's own; missing {_some(missing)}, "
            f"unexpected {_some(unexpected)}; strict=False takes what fits"
        )


def _some(names: list[str]) -> str:
    """Show a list of names, shortened."""
    if not names:
        return "none"
    listed = ", ".join(map(str, names[:8]))
    return listed + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _is_weight(value: Tensor) -> bool:
    """Return True for a stored tensor that is a parameter of its module."""
    dtype = value.dtype
    return value.requires_grad or dtype.quantized or dtype.name in ("f16", "bf16")


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _tensors_of(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the stored tensors among a module's public attributes."""
    for name, value in vars(module).items():
        if not name.startswith("_") and isinstance(value, Tensor) and value.is_stored:
            yield name, value


def _stored_in(module: Module) -> Iterator[Tensor]:
    """Yield the stored tensors among a module's attributes, private ones included."""
    for value in vars(module).values():
        if isinstance(value, Tensor) and value.is_stored:
            yield value


def _modules_in(name: str, value: Any) -> Iterator[tuple[str, Module]]:
    """Yield the modules in one attribute, through lists, tuples and dicts."""
    if isinstance(value, Module):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _modules_in(f"{name}.{i}", item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _modules_in(f"{name}.{key}", item)
