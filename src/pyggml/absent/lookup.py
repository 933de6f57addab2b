# SPDX-License-Identifier: MIT
"""Names that people who come from PyTorch look for, and what to use instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from opcode import opname
from types import FrameType
from typing import Any, NoReturn

__all__ = ["absent", "absent_in"]

_OTHERWISE = "the functions of pg.ops, or x.numpy() and NumPy"

# Where else a name is looked for, in this order; only what has been imported already.
_PLACES = {
    "pg": "pyggml",
    "F": "pyggml.nn.functional",
    "ops": "pyggml.ops",
    "nn": "pyggml.nn",
    "optim": "pyggml.optim",
    "schedules": "pyggml.optim.schedules",
    "data": "pyggml.data",
}


def absent(place: str, name: str, names: Collection[str]) -> NoReturn:
    """Raise for a name that is not there, and say what to use.

    Args:
        place: what it was asked of, as users write it: "pg", "nn", "F", "x".
        name: the name.
        names: those that are there.

    Raises:
        AttributeError: always, but for `from pyggml.nn import LSTM`.
        ImportError: there, as Python would replace an AttributeError by a message without a cure.

    Example:
        >>> absent("nn", "Liner", ["Linear", "ReLU"])
        Traceback (most recent call last):
            ...
        AttributeError: nn: there is no nn.Liner; use nn.Linear
    """
    if name.startswith("_"):  # Python's own questions, which nobody reads
        raise AttributeError(f"{place}: there is no {place}.{name}")
    cure = _cure(place, name)
    if cure is None and name.endswith("_"):
        cure = _in_place(place, name[:-1], names)
    nearest = None if cure else _nearest(name, names)
    if nearest:
        cure = f"{place}.{nearest}"
    elif cure is None:
        cure = _OTHERWISE if place == "x" else f"the names of dir({place})"
    kind = ImportError if _imports(sys._getframe(2)) else AttributeError
    raise kind(f"{place}: there is no {place}.{name}; use {cure}")


def _imports(frame: FrameType) -> bool:
    """Return True if what a frame does is `from module import name`."""
    return opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


def _cure(place: str, name: str) -> str | None:
    """Return what serves instead of a name, or None."""
    from .cures import INSTEAD  # tables that `import pyggml` does not need
    from .groups import of_group

    cure = INSTEAD.get(place, {}).get(name) or _elsewhere(place, name) or of_group(place, name)
    others = {"x": ("pg",), "F": ("pg",), "pg": ("F", "nn")}.get(place, ())
    for other in others if cure is None else ():
        cure = cure or INSTEAD[other].get(name) or of_group(other, name)
    return cure


def _in_place(place: str, name: str, names: Collection[str]) -> str | None:
    """Return what serves instead of a function that writes into its tensor, or None."""
    if name in names:
        call = f"x.{name}" if place == "x" else f"{place}.{name}"
        return f"y = {call}(…): ops make new tensors; x.copy_(values) writes"
    return _cure(place, name) or ("x.copy_(values), which writes" if place == "x" else None)


def absent_in(place: str, module: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, which raises as `absent` does.

    Args:
        place: the module as users write it.
        module: its full name.
    """

    def __getattr__(name: str) -> NoReturn:
        absent(place, name, getattr(sys.modules[module], "__all__", ()))

    return __getattr__


def _elsewhere(place: str, name: str) -> str | None:
    """Return the name in another module, or as a tensor's method."""
    for prefix, path in _PLACES.items():
        if prefix != place and name in getattr(sys.modules.get(path), "__all__", ()):
            return f"{prefix}.{name}"
    if place in ("pg", "F"):
        tensor = getattr(sys.modules.get("pyggml"), "Tensor", None)
        if callable(getattr(tensor, name, None)):
            return f"x.{name}(...)"
    return None


# Names of PyTorch's for other functions than those that are written most alike here.
_NO_TYPOS = frozenset(
    "asin acos atan arcsin arccos arctan atan2 logcumsumexp cummax fmax fmin complex conv3d"
    " bilinear rrelu batchnorm3d maxpool3d avgpool3d embeddingbag rprop multi_margin_loss".split()
)


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is written most alike, if any is."""
    from difflib import get_close_matches

    if name.lower() in _NO_TYPOS:
        return None
    small = {each.lower(): each for each in names if not each.startswith("_")}
    found = get_close_matches(name.lower(), small, 1, 0.82)
    return small[found[0]] if found else None
