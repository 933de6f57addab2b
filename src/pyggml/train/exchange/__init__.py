# SPDX-License-Identifier: MIT
"""The exchange of a step between ranks: gradients in buckets, and the parameters that each updates."""

from .exchange import Exchange
from .shards import Shards

__all__ = ["Exchange", "Shards"]
