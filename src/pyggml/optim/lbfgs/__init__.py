# SPDX-License-Identifier: MIT
"""L-BFGS and its line search."""

from .lbfgs import LBFGS

__all__ = ["LBFGS"]
