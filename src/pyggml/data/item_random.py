# SPDX-License-Identifier: MIT
"""Random numbers that follow from the item, so that a resumed run draws the same."""

from __future__ import annotations

import numpy as np

__all__ = ["item_rng", "number_of", "virtual_items"]

# What an item carries besides its number; with fewer than 2^31 items the product fits into int64.
_DRAWS = 2**31


def virtual_items(
    items: np.ndarray, count: int, rng: np.random.Generator | None = None
) -> np.ndarray:
    """Add a random multiple of `count` to each item, which seeds what is drawn for the item.

    Without a generator the items stay as they are. A loader's order is a function of its seed and
    the epoch, and so are these numbers.
    """
    items = items.astype(np.int64)
    return items if rng is None else items + count * rng.integers(1, _DRAWS, items.size)


def number_of(item: int, count: int) -> int:
    """Return the number of an item, without its random number."""
    return int(item) % count


def item_rng(item: int, count: int, stream: int = 0) -> np.random.Generator:
    """Return the generator of an item in its epoch."""
    draw, number = divmod(int(item), count)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([draw, number, stream])))
