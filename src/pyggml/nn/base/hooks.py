# SPDX-License-Identifier: MIT
"""Hooks that run before and after a module's forward."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ...tensors.node import call_from_line

__all__ = ["RemovableHandle", "add_hook", "called_with_hooks", "has_hooks"]

_numbers = itertools.count()
_BEFORE, _AFTER = "_forward_pre_hooks", "_forward_hooks"


class RemovableHandle:
    """A hook that can be taken away again; as a context manager, at the end of the block.

    Args:
        hooks: those of a module.
        number: this one's.
    """

    def __init__(self, hooks: dict[int, Callable[..., Any]], number: int) -> None:
        self._hooks, self._number = hooks, number

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def add_hook(module: Any, hook: Any, before: bool) -> RemovableHandle:
    """Add a hook to a module.

    Args:
        module: whose forward it is.
        hook: what is called.
        before: call it before the forward, otherwise after it.

    Raises:
        TypeError: the hook cannot be called.
    """
    if not callable(hook):
        name = "register_forward_pre_hook" if before else "register_forward_hook"
        raise TypeError(
            f"{type(module).__name__}.{name}: hook must be a function; got {type(hook).__name__}"
        )
    hooks = module.__dict__.setdefault(_BEFORE if before else _AFTER, {})
    number = next(_numbers)
    hooks[number] = hook
    return RemovableHandle(hooks, number)


def has_hooks(module: Any) -> bool:
    """Return True if a module has hooks."""
    own = module.__dict__
    return bool(own.get(_BEFORE) or own.get(_AFTER))


def called_with_hooks(
    module: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return what a forward and the module's hooks make of the arguments."""
    for hook in tuple(module.__dict__.get(_BEFORE, {}).values()):
        changed = hook(module, args)
        if changed is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    output = call_from_line(forward, *args, **kwargs)
    for hook in tuple(module.__dict__.get(_AFTER, {}).values()):
        changed = hook(module, args, output)
        if changed is not None:
            output = changed
    return output
