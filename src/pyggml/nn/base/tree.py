# SPDX-License-Identifier: MIT
"""The tree of a model's modules: attributes, traversal and hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from ... import checks
from ...absent import absent
from ...backend.device import alone
from ...errors import fitting, is_of_function, lead, tell_signature
from ...tensors import Tensor
from ...tensors.node import call_from_line
from .assigned import as_buffer, check_parameter
from .hooks import RemovableHandle, add_hook, called_with_hooks, has_hooks

__all__ = ["ModuleTree"]

_NOT_SAVED = "_not_saved"
_BUFFERS = "_buffer_names"
_PACKAGE = __name__.partition(".")[0] + "."
M = TypeVar("M", bound="ModuleTree")


class TensorList(list[Tensor]):
    """Tensors of a module; `next` goes through them, as through PyTorch's iterators."""

    _left: Iterator[Tensor] | None = None

    def __next__(self) -> Tensor:
        if self._left is None:
            self._left = iter(self)
        return next(self._left)


class ModuleTree:
    """The part of `Module` that knows its tensors, its children and its hooks.

    Attributes:
        RECORDS_LITTLE: a forward of one or two calls, which look for the caller's line themselves.
    """

    RECORDS_LITTLE: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Let a call that does not fit the constructor of a layer tell its signature."""
        if cls.__module__.startswith(_PACKAGE) and "__init__" in vars(cls):
            cls.__init__ = fitting(cls.__init__, cls.__name__)  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        names: dict[str, None] | None = own.get("_parameter_names")
        if names is None:
            names = own["_parameter_names"] = {}
        elif _BUFFERS in own and name in own[_BUFFERS] and name in own:
            if not (isinstance(value, Tensor) and value.is_stored and value.requires_grad):
                object.__setattr__(self, name, as_buffer(self, name, value))
                return
            own[_BUFFERS].discard(name)
        if isinstance(value, Tensor) and value.is_stored and _is_weight(value):
            names[name] = None
        elif name in names:
            if name in own:
                check_parameter(self, name, value)
            del names[name]
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # type checkers go on reporting absent names

        def __getattr__(self, name: str) -> Any:
            """Raise for a name that is not there, and say what to use."""
            if hasattr(type(self), name):  # a property raised this: let its own error come out
                return object.__getattribute__(self, name)
            absent("module", name, dir(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return `forward` of the arguments."""
        forward = getattr(self, "forward", None)
        if forward is None:
            raise TypeError(
                f"{type(self).__name__}: a module that is called must define forward(); got none"
            )
        try:
            if has_hooks(self):
                return called_with_hooks(self, forward, args, kwargs)
            if self.RECORDS_LITTLE:
                return forward(*args, **kwargs)
            return call_from_line(forward, *args, **kwargs)
        except (TypeError, ValueError, IndexError) as error:
            _name_layer(self, error)
            raise

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, args, output)` after each forward; its result replaces the output.

        A compiled function and a training step call it when they are traced, not at each run.

        Args:
            hook: returns None to leave the output as it is.

        Returns:
            What takes the hook away: `remove()`, or the end of a `with` block.

        Raises:
            TypeError: the hook cannot be called.

        Example:
            >>> layer, shapes = Linear(2, 3), []
            >>> with layer.register_forward_hook(lambda m, args, y: shapes.append(y.shape)):
            ...     y = layer(ones((4, 2)))
            >>> shapes
            [(4, 3)]
        """
        return add_hook(self, hook, before=False)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, args)` before each forward; its result replaces the arguments.

        Args:
            hook: returns None to leave the positional arguments as they are, a tuple of others, or
                one.

        Returns:
            What takes the hook away.

        Raises:
            TypeError: the hook cannot be called.
        """
        return add_hook(self, hook, before=True)

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """Store a tensor that is saved and moved with the module, and not trained.

        An assigned tensor that needs no gradient is a buffer, too. A registered name stays a
        buffer's: a recorded tensor that is assigned to it is computed, and stored without its
        gradient.

        Args:
            name: of the attribute.
            value: the tensor; one that is recorded is computed now. None holds the place of one.
            persistent: save it in state dicts.

        Raises:
            TypeError: the value is no tensor, or one that cannot be stored.
            ValueError: the tensor needs a gradient.
            KeyError: the name is no attribute's, or already that of something else.

        Example:
            >>> layer = Linear(2, 3)
            >>> layer.register_buffer("scale", ones((3,)), persistent=False)
            >>> sorted(layer.state_dict()), [name for name, _ in layer.named_buffers()]
            (['bias', 'weight'], ['scale'])
        """
        who = f"{type(self).__name__}.register_buffer"
        self.check_name(who, name, of=Tensor)
        if name in self.__dict__.get("_parameter_names", ()):
            raise KeyError(f"{who}: name must be free; got {name!r}, a parameter: choose another")
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"{who}: {name} must be a tensor or None; got {type(value)}")
            if not value.is_stored and not value.requires_grad:
                value = value.detach()
            if not value.is_stored:
                raise TypeError(
                    f"{who}: {name} must be a stored tensor or None; got one that is recorded and"
                    " requires a gradient, or is computed at each run: use value.detach(), outside"
                    " of a compiled function"
                )
            if _is_weight(value):
                raise ValueError(
                    f"{who}: {name} must need no gradient; got a tensor that is a parameter: "
                    "assign it, module.name = tensor"
                )
        skipped: set[str] = self.__dict__.setdefault(_NOT_SAVED, set())
        (skipped.discard if checks.flag(who, "persistent", persistent) else skipped.add)(name)
        object.__setattr__(self, name, value)
        self.__dict__.setdefault("_parameter_names", {})
        self.__dict__.setdefault(_BUFFERS, set()).add(name)

    def check_name(self, who: str, name: str, of: type) -> None:
        """Raise unless an attribute may have this name.

        Args:
            who: leads the error.
            name: the name.
            of: the type of what may have the name already, and is replaced.

        Raises:
            KeyError: it may not.
        """
        if not isinstance(name, str) or not name or "." in name or name.startswith("_"):
            raise KeyError(
                f"{who}: name must be a text without dots that begins with no underscore; "
                f"got {name!r}"
            )
        if hasattr(self, name) and not isinstance(getattr(self, name), (of, type(None))):
            raise KeyError(f"{who}: name must be free; got {name!r}, an attribute: choose another")

    def children(self) -> Iterator[Any]:
        """Yield the modules directly below, in definition order."""
        for _, child in self.named_children():
            yield child

    def modules(self) -> Iterator[Any]:
        """Yield this module and all below it, parents first."""
        for _, module in self.named_modules():
            yield module

    def apply(self: M, function: Callable[[Any], Any]) -> M:
        """Call a function on every module below and at last on this one; return this one.

        Args:
            function: is given each module.

        Example:
            >>> model = Sequential(Linear(2, 2), Linear(2, 1))
            >>> def ones_(module):
            ...     if isinstance(module, Linear):
            ...         module.weight.copy_(np.ones(module.weight.shape))
            >>> model.apply(ones_)[1].weight.tolist()
            [[1.0, 1.0]]
        """
        checks.function(type(self).__name__, "function", function, "module -> None")
        with alone():  # other threads compute with what it writes into all modules, or into none
            for child in self.children():
                child.apply(function)
            function(self)
        return self

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Yield (attribute path, child) of the modules directly below, in definition order."""
        for name, value in vars(self).copy().items():  # another thread may set attributes
            if not name.startswith("_"):
                yield from _modules_in(name, value)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Yield (dotted path, module) of this module and all below it, parents first.

        Args:
            prefix: the path of this module.

        Raises:
            TypeError: the prefix is no text.
        """
        checks.text(f"{type(self).__name__}.named_modules", "prefix", prefix)
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
        """Yield (dotted path, tensor) of the tensors that are not trained."""
        for path, module in self.named_modules(prefix):
            for name, value in _tensors_of(module):
                if name not in module.__dict__["_parameter_names"]:
                    yield _join(path, name), value

    def buffers(self) -> TensorList:
        """Return the buffers, in definition order."""
        return TensorList(value for _, value in self.named_buffers())

    def parameters(self) -> TensorList:
        """Return the parameters, frozen ones included, in definition order.

        Example:
            >>> model = Linear(2, 3)
            >>> len(model.parameters()), next(model.parameters()).device.name
            (2, 'cpu')
        """
        return TensorList(parameter for _, parameter in self.named_parameters())

    def num_parameters(self, trainable_only: bool = False) -> int:
        """Count the parameters' elements; shared tensors count once."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad or not trainable_only)

    def named_state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what state_dict holds: parameters, then buffers."""
        yield from self.named_parameters()
        for path, module in self.named_modules():
            skipped = {
                *module.__dict__.get("_parameter_names", ()),
                *module.__dict__.get(_NOT_SAVED, ()),
            }
            for name, value in _tensors_of(module):
                if name not in skipped:
                    yield _join(path, name), value

    def __repr__(self) -> str:
        lines = [f"{name}: {child!r}" for name, child in self.named_children()]
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        body = "\n".join([extra, *lines] if extra else lines).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {body}\n)"

    def _repr_html_(self) -> str:
        """Return the tree for a notebook, and above it the number of parameters."""
        from html import escape

        count = sum(int(np.prod(each.shape)) for _, each in self.named_parameters())
        head = f"{type(self).__name__}: {count:,} parameters"
        tree = f"<pre>{escape(repr(self))}</pre>"
        return f"<details open><summary>{escape(head)}</summary>{tree}</details>"

    def extra_repr(self) -> str:
        """Return what `repr` says of the module beside its children.

        That is the shapes of its tensors, and the arguments of its class that are numbers or texts:
        of a module with tensors or children those that are not the default.
        """
        shapes = [f"{name}={value.shape}" for name, value in _tensors_of(self)]
        whole = not shapes and not list(self.named_children())
        told = [
            f"{name}={value!r}"
            for name, each in inspect.signature(type(self)).parameters.items()
            if isinstance(value := vars(self).get(name), (int, float, str, tuple))
            if whole or (each.default is not each.empty and not _is_default(value, each.default))
        ]
        return ", ".join(shapes + told)


def _is_default(value: Any, default: Any) -> bool:
    """Return whether an option is the default, or has it for each axis."""
    return bool(value == default or (isinstance(value, tuple) and set(value) == {default}))


def _name_layer(module: ModuleTree, error: BaseException) -> None:
    """Let an error of a function begin with the layer of the package that called it.

    In a forward of the user's own the function is what the user called, and is named.
    """
    if "layer" in vars(error):  # of a module inside of this one
        return
    vars(error)["layer"] = type(module).__name__
    forward = getattr(type(module), "forward", None)
    if forward is not None:
        tell_signature(type(module).__name__, forward, error)
    if getattr(forward, "__module__", "").startswith(_PACKAGE) and is_of_function(error):
        lead(type(module).__name__, error)


def _is_weight(value: Tensor) -> bool:
    """Return True for a stored tensor that is a parameter of its module."""
    dtype = value.dtype
    return value.requires_grad or dtype.quantized or dtype.name in ("f16", "bf16")


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _tensors_of(module: ModuleTree) -> Iterator[tuple[str, Tensor]]:
    """Yield the stored tensors among a module's public attributes."""
    for name, value in vars(module).copy().items():  # another thread may set attributes
        if not name.startswith("_") and isinstance(value, Tensor) and value.is_stored:
            yield name, value


def _modules_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the modules in one attribute, through lists, tuples and dicts."""
    if isinstance(value, ModuleTree):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _modules_in(f"{name}.{i}", item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _modules_in(f"{name}.{key}", item)
