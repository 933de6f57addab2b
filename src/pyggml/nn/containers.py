# SPDX-License-Identifier: MIT
"""Modules that hold others: in a row, in a list, by name."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from .. import checks
from ..tensors import Tensor
from .module import Module

__all__ = ["ModuleDict", "ModuleList", "Sequential"]

L = TypeVar("L", bound="ModuleList")
# A member and its name, or "" for its number.
_Named = tuple[str, Module]


def _no_module(value: Any) -> str:
    """Return what a value that is no module is."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _made_module(own: str, value: Any) -> str:
    """Return how a value becomes a member of a container, for a message."""
    if isinstance(value, type) and issubclass(value, Module):
        return f": give an object of it, {value.__name__}()"
    if isinstance(value, (list, tuple)):
        given = "*modules" if own == "Sequential" else "a + b"
        return f": give the modules of a list, {own}({given})"
    if callable(value):
        return ": call a function in forward, or make a Module whose forward calls it"
    return ""


class ModuleList(Module):
    """A list of modules, whose names are their numbers.

    A plain list in an attribute holds modules as well; this one can be a model's outermost part,
    and is what PyTorch's code has.

    Args:
        modules: the first members.

    Raises:
        TypeError: a member is no Module.

    Source: torch.nn.ModuleList.

    Example:
        >>> layers = ModuleList([Linear(4, 8)])
        >>> layers.append(Linear(8, 2))[-1].weight.shape
        (2, 8)
        >>> [name for name, _ in layers.named_parameters()][:2]
        ['0.weight', '0.bias']
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._names: list[str] = []
        self.extend(modules)

    def append(self: L, module: Module) -> L:
        """Add a module at the end; return the list.

        Args:
            module: the new member.
        """
        return self.extend([module])

    def extend(self: L, modules: Iterable[Module]) -> L:
        """Add modules at the end; return the list.

        Args:
            modules: the new members.
        """
        self._set([*self._named(), *self._checked(modules)])
        return self

    def insert(self, index: int, module: Module) -> None:
        """Add a module before another one.

        Args:
            index: the place, as a list counts.
            module: the new member.
        """
        members = self._named()
        place = checks.whole(type(self).__name__, "index", index)
        members.insert(place, *self._checked([module]))
        self._set(members)

    def pop(self, index: int = -1) -> Any:
        """Take a module out and return it.

        Args:
            index: its place.
        """
        members = self._named()
        _, taken = members.pop(self._place(index))
        self._set(members)
        return taken

    def _place(self, index: Any) -> int:
        """Return the place of a member, from 0."""
        own, count = type(self).__name__, len(self)
        try:
            place = operator.index(index)
        except TypeError:
            raise TypeError(
                f"{own}: an index must be an integer or a slice; got {index!r}: named members "
                "belong in a ModuleDict or in attributes"
            ) from None
        if not -count <= place < count:
            raise IndexError(f"{own}: must be below {count}, its length; got index {place}")
        return place % count

    def _checked(self, modules: Iterable[Module]) -> list[_Named]:
        own = type(self).__name__
        single = isinstance(modules, type) or not hasattr(modules, "__iter__")
        if single or getattr(modules, "ndim", 1) == 0:
            raise TypeError(
                f"{own}: modules must be a list; got {_no_module(modules)}: give [module]"
            )
        members = list(modules)
        for i, each in enumerate(members):
            if not isinstance(each, Module):
                raise TypeError(
                    f"{type(self).__name__}: every member must be a Module; got "
                    f"{_no_module(each)} at {i}{_made_module(type(self).__name__, each)}"
                )
        return [("", each) for each in members]

    def _named(self) -> list[_Named]:
        # By their names: an attribute may have been given another module, such as an adapted one.
        return [(name, getattr(self, name)) for name in self._names]

    def _set(self, members: list[_Named]) -> None:
        """Have these members; those without a name of their own are called by their numbers."""
        for name in self._names:
            delattr(self, name)
        self._names = [
            name if name and not name.isdigit() else str(i) for i, (name, _) in enumerate(members)
        ]
        for name, (_, module) in zip(self._names, members, strict=True):
            setattr(self, name, module)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Any]:
        return iter([module for _, module in self._named()])

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self: L, index: slice) -> L: ...
    def __getitem__(self, index: int | slice) -> Any:
        members = self._named()
        if isinstance(index, slice):
            return self._like(members[index])
        return members[self._place(index)][1]

    def __setitem__(self, index: int, module: Module) -> None:
        members, place = self._named(), self._place(index)
        members[place] = (members[place][0], self._checked([module])[0][1])
        self._set(members)

    def __delitem__(self, index: int | slice) -> None:
        members = self._named()
        del members[index if isinstance(index, slice) else self._place(index)]
        self._set(members)

    def _like(self, members: list[_Named]) -> Any:
        """Return a list of this class of some members."""
        found = type(self)()
        found._set(members)
        return found


class Sequential(ModuleList):
    """Apply modules one after another.

    Args:
        layers: the modules, in order, whose names are their numbers; or one mapping from names to
            modules.

    Raises:
        TypeError: a layer is no Module.
        KeyError: a name has a dot, begins with an underscore, or is an attribute of Module.

    Example:
        >>> model = Sequential(Linear(4, 8), GELU(), Linear(8, 2))
        >>> model(ones((3, 4))).shape, model[:2](ones((3, 4))).shape
        ((3, 2), (3, 8))
    """

    def __init__(self, *layers: Module | Mapping[str, Module]) -> None:
        if len(layers) == 1 and isinstance(layers[0], Mapping):
            named = dict(layers[0])
            for name in named:
                self.check_name("Sequential", name, of=type(None))
            super().__init__()
            modules = [module for _, module in self._checked(named.values())]
            self._set(list(zip(named, modules, strict=True)))
        else:
            super().__init__(layers)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Return the last layer's output."""
        for layer in self:
            x = layer(x)
        return x


class ModuleDict(Module):
    """Modules by names of one's own.

    Args:
        modules: the first members.

    Raises:
        TypeError: a member is no Module.
        KeyError: a name has a dot, begins with an underscore, or is an attribute of Module.

    Source: torch.nn.ModuleDict.

    Example:
        >>> heads = ModuleDict({"digits": Linear(4, 10), "signs": Linear(4, 2)})
        >>> heads["signs"](ones((1, 4))).shape, list(heads)
        ((1, 2), ['digits', 'signs'])
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self._names: list[str] = []
        self.update({} if modules is None else modules)

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add modules, in the places of those that have their names.

        Args:
            modules: the new members.
        """
        own = type(self).__name__
        pairs = modules.items() if isinstance(modules, (Mapping, ModuleDict)) else modules
        for pair in checks.items(own, "modules", pairs):
            name, module = checks.items(own, "a member (name, module)", pair, 2)
            self[name] = module

    def keys(self) -> list[str]:
        """Return the names, in order."""
        return list(self._names)

    def values(self) -> list[Any]:
        """Return the modules, in order."""
        return [self[name] for name in self._names]

    def items(self) -> list[tuple[str, Any]]:
        """Return (name, module), in order."""
        return [(name, self[name]) for name in self._names]

    def pop(self, name: str) -> Any:
        """Take a module out and return it.

        Args:
            name: its name.
        """
        module = self[name]
        del self[name]
        return module

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"ModuleDict: there is no {name!r}; got {self._names}")
        return getattr(self, name)

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"ModuleDict: {name!r} must be a Module; got {type(module).__name__}")
        if name not in self:
            self.check_name("ModuleDict", name, of=type(None))
            self._names.append(name)
        setattr(self, name, module)

    def __delitem__(self, name: str) -> None:
        self[name]  # raises where there is none
        delattr(self, name)
        self._names.remove(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._names))

    def __len__(self) -> int:
        return len(self._names)
