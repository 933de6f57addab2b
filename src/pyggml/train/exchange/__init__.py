# SPDX-License-Identifier: MIT
"""The exchange of a step: gradients in buckets, and the parameters that each rank updates."""

from .exchange import Exchange
from .shards import Shards

__all__ = ["Exchange", "Shards"]
