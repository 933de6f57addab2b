# SPDX-License-Identifier: MIT
"""What ranks exchange in a step: gradients in buckets, and the parameters that each updates."""

from .exchange import Exchange
from .shards import Shards

__all__ = ["Exchange", "Shards"]
