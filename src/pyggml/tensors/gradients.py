# SPDX-License-Identifier: MIT
"""Gradients of stored tensors, by node: the tensors they are added to, and whether there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .node import Node, NodeTable

__all__ = [
    "all_have_gradients",
    "gradient_of",
    "has_gradient",
    "has_hooks",
    "hooks_of",
    "note_gradients",
    "set_gradient",
    "without_gradients",
]

_GRADS: NodeTable[Any] = NodeTable()
# The ids of nodes whose gradient nothing was added to since it was set to None. That of a node that
# is gone harms no other: a new one's gradient is set first.
_WITHOUT: set[int] = set()
_HOOKS: NodeTable[list[Callable[[Any], Any]]] = NodeTable()


def gradient_of(node: Node) -> Any:
    """Return the tensor that the gradient of a node's tensor is added to, also where it is None."""
    return _GRADS.get(node)


def set_gradient(node: Node, value: Any) -> None:
    """Let a tensor be the gradient of a node's tensor; None takes it away."""
    _WITHOUT.discard(id(node))
    if value is None:
        _GRADS.discard(node)
    else:
        _GRADS[node] = value


def without_gradients(ids: Iterable[int]) -> None:
    """Let `.grad` be None until something is added; the tensor for it, which is zero, stays.

    Args:
        ids: of nodes.
    """
    _WITHOUT.update(ids)


def note_gradients(ids: Iterable[int]) -> None:
    """Note that gradients of nodes were added to."""
    _WITHOUT.difference_update(ids)


def all_have_gradients(ids: Iterable[int]) -> bool:
    """Return True unless the gradient of one of these nodes is None."""
    return _WITHOUT.isdisjoint(ids)


def has_gradient(node: Node) -> bool:
    """Return False for a parameter whose gradient is None."""
    return id(node) not in _WITHOUT and node in _GRADS


def hooks_of(node: Node) -> list[Callable[[Any], Any]]:
    """Return the hooks of a node's tensor, a list to add to."""
    hooks = _HOOKS.get(node)
    if hooks is None:
        hooks = _HOOKS[node] = []
    return hooks


def has_hooks(node: Node) -> bool:
    """Return True if `register_hook` gave a node's tensor a hook."""
    return bool(_HOOKS.get(node))
