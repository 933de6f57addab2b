# SPDX-License-Identifier: MIT
"""The commands that train, and the output of trainings."""

__all__: list[str] = []
