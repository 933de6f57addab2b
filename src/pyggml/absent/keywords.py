# SPDX-License-Identifier: MIT
"""Keywords of PyTorch's and NumPy's functions: their names here, or what to use instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

__all__ = ["given_twice", "instead_of", "renamed"]

# What stands for a keyword: the first of these names that a function has.
_NAMES = {
    "axis": ("dim", "dims"),
    "axes": ("dims", "dim"),
    "dims": ("axes", "repeats"),
    "size": ("shape",),
    "arrays": ("tensors",),
    "ord": ("p",),
    "ddof": ("correction",),
    "a_min": ("min",),
    "a_max": ("max",),
    "keepdims": ("keepdim",),
    "condition": ("mask",),
    "fill_value": ("value",),
    "target": ("targets",),
    **dict.fromkeys(("mat1", "batch1", "tensor1"), ("a",)),
    **dict.fromkeys(("mat2", "batch2", "tensor2", "input2", "x2", "vec", "vec2"), ("b",)),
    **dict.fromkeys(("other", "end"), ("b",)),
    "split_size_or_sections": ("sizes",),
    "split_size": ("sizes",),
}
# The first argument of a function, and no method; of `where` the one after the mask.
_FIRST = ("input", "input1", "tensor", "x1")

_INSTEAD = {
    "inplace": "y = {}(…): ops make new tensors",
    "out": "y = {}(…): ops make new tensors",
    "dtype": "x.astype(dtype) before it, or y.astype(dtype) of the result",
    "device": "x.to(device)",
    "memory_format": "nothing: it is not needed here",
    "layout": "nothing: it is not needed here",
    "pin_memory": "nothing: it is not needed here",
    "generator": "pg.seed(0) before it",
    "alpha": "alpha * b for b",
    "force": "nothing: the numbers are always copied out",
    "non_blocking": "nothing: it is complete when the call returns",
    "decimals": "x.mul(10**decimals).round() / 10**decimals",
    **dict.fromkeys(("fused", "foreach"), "nothing: all parameters are updated together"),
    "size_average": "reduction",
    "reduce": "reduction",
}
# Of layers, which are classes.
_OF_LAYERS = {
    "device": "module.to(device)",
    "dtype": "nothing: parameters are f32; pg.autocast lets matmuls multiply bf16",
}


def renamed(parameters: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return keyword arguments under the names that a function has; None if none has another.

    Args:
        parameters: the names of the function's.
        given: the keyword arguments of a call.

    Example:
        >>> renamed(["x", "dim", "keepdim"], {"axis": 1, "keepdims": True})
        {'dim': 1, 'keepdim': True}
        >>> renamed(["x", "dim"], {"dim": 1}) is None
        True
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        own = name if name in parameters else _own(parameters, name)
        if name == "inplace" and own is None and value is False:
            continue
        found[own or name] = value  # an unknown one is left for the error of the call
    return None if found.keys() == given.keys() else found


def given_twice(
    parameters: Sequence[str], given: Mapping[str, Any], placed: Collection[str] = ()
) -> tuple[str, str, str] | None:
    """Return an argument that a call gives under two names: its own name, and the two; or None.

    Args:
        parameters: the names of the function's.
        given: the keyword arguments of a call.
        placed: the names of the arguments that the call gives by their place.

    Example:
        >>> given_twice(["x", "dim"], {"axis": 1, "dim": 1})
        ('dim', 'dim', 'axis')
        >>> given_twice(["x", "dim"], {"axis": 1}, ["x", "dim"])
        ('dim', 'dim by place', 'axis')
    """
    seen = {name: f"{name} by place" for name in placed}
    for name in sorted(given, key=lambda name: name not in parameters):  # own names first
        own = name if name in parameters else _own(parameters, name)
        if own is not None and own in seen and own != name:
            return own, seen[own], name
        if own is not None:
            seen[own] = name
    return None


def _own(parameters: Sequence[str], name: str) -> str | None:
    """Return a function's own name of an argument, if it has one."""
    if name in _FIRST and parameters and parameters[0] != "self":
        return "a" if parameters[0] == "mask" and "a" in parameters else parameters[0]
    return next((each for each in _NAMES.get(name, ()) if each in parameters), None)


def instead_of(who: str, name: str) -> str | None:
    """Return what to use instead of a keyword that a function does not have, if it is known.

    Args:
        who: the function.
        name: the keyword.

    Example:
        >>> instead_of("relu", "inplace")
        'y = relu(…): ops make new tensors'
        >>> instead_of("Linear", "device")
        'module.to(device)'
    """
    known = (_OF_LAYERS if who[:1].isupper() else {}).get(name, _INSTEAD.get(name))
    return None if known is None else known.format(who)
