# SPDX-License-Identifier: MIT
"""Names that people who come from PyTorch look for, and what to use instead."""

from .cures import INSTEAD
from .lookup import absent, absent_in

__all__ = ["INSTEAD", "absent", "absent_in"]
