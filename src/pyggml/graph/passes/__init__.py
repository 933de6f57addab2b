# SPDX-License-Identifier: MIT
"""What rewrites a graph before its memory is planned."""

__all__ = []
