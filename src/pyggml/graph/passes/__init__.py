# SPDX-License-Identifier: MIT
"""Passes rewrite a graph before its memory is planned; each is a function of the plan."""

from .accumulate import accumulate_in_place
from .custom_backwards import splice_custom_backwards
from .fallback import count_fallbacks
from .leaves import leaves_first, sums_last
from .recompute import recompute_and_defer
from .round_once import round_once
from .updates import place_updates

__all__ = ["PASSES"]

# In this order: each sees what those before it made.
PASSES = (
    splice_custom_backwards,
    recompute_and_defer,
    accumulate_in_place,
    place_updates,
    round_once,
    leaves_first,
    sums_last,
    count_fallbacks,
)
