# SPDX-License-Identifier: MIT
"""`python -m pyggml.grad0`: print every op and every gradient against float64."""

import sys

from .testing.__main__ import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
