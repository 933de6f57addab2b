# SPDX-License-Identifier: MIT
"""`python -m pyggml`, the same as the script `pyggml`."""

from .cli import main

if __name__ == "__main__":
    main()
