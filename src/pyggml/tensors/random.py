# SPDX-License-Identifier: MIT
"""The random generator of all initialisers, and its seed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from ..backend.scopes import Scope, Scopes
from ..checks import instance, whole
from ..errors import fitting

__all__ = ["generator_of", "looking_ahead", "random_generator", "seed", "seeds"]

# Made at its first use: `numpy.random` is a tenth of the time that the import would take.
_generator: np.random.Generator | None = None
_copies = Scopes()  # in place of it
_seeds = 0


@fitting
def seed(n: int) -> None:
    """Restart the generator that initialisers draw from.

    Args:
        n: whole number from 0.

    Raises:
        TypeError: `n` is not a whole number.
        ValueError: `n` is negative or has more than 128 bits.

    Example:
        >>> seed(1); a = random_generator().random()
        >>> seed(1); a == random_generator().random()
        True
    """
    global _generator, _seeds
    _generator = np.random.Generator(np.random.PCG64(whole("seed", "n", n, 0, 2**128 - 1)))
    _seeds += 1


def seeds() -> int:
    """Return how often the generator was restarted."""
    return _seeds


@fitting
def random_generator() -> np.random.Generator:
    """Return the generator that initialisers draw from.

    Example:
        >>> random_generator().random(2).shape
        (2,)
    """
    if _generator is None:
        seed(0)
    assert _generator is not None
    found: np.random.Generator = _copies.innermost(_generator)
    return found


def looking_ahead() -> Scope:
    """Return a block in which this thread draws from a copy, as for a look at the data."""
    return Scope(_copies, copy.deepcopy(random_generator()))


def generator_of(
    who: str, generator: np.random.Generator | None
) -> Callable[[], np.random.Generator]:
    """Return what gives the generator of a function, its own or that of `random_generator`."""
    if generator is None:
        return random_generator  # as it is then: `seed` makes another one
    cure = "use np.random.default_rng(seed)"
    given = instance(who, "generator", generator, np.random.Generator, cure)
    return lambda: given
