# SPDX-License-Identifier: MIT
"""T5."""

from .config import T5Config
from .generate import generate_from
from .model import T5

__all__ = ["T5", "T5Config", "generate_from"]
