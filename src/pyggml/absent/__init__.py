# SPDX-License-Identifier: MIT
"""Names that people who come from PyTorch look for, and what to use instead."""

from .lookup import absent, absent_in

__all__ = ["absent", "absent_in"]
