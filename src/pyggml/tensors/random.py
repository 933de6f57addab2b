# SPDX-License-Identifier: MIT
"""The random generator of all initialisers, and its seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ..checks import instance, whole
from ..errors import fitting

__all__ = ["generator_of", "looking_ahead", "random_generator", "seed"]

# Made at its first use: `numpy.random` is a tenth of the time that the import would take.
_generator: np.random.Generator | None = None


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
    global _generator
    _generator = np.random.Generator(np.random.PCG64(whole("seed", "n", n, 0, 2**128 - 1)))


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
    return _generator


@contextmanager
def looking_ahead() -> Iterator[None]:
    """Return a block after which the generator is as before, as for a look at the data."""
    state = random_generator().bit_generator.state
    try:
        yield
    finally:
        random_generator().bit_generator.state = state


def generator_of(who: str, generator: np.random.Generator | None) -> np.random.Generator:
    """Return the generator that a function was given, or that of `random_generator`."""
    if generator is None:
        return random_generator()
    cure = "use np.random.default_rng(seed)"
    return instance(who, "generator", generator, np.random.Generator, cure)
