# SPDX-License-Identifier: MIT
"""`python -m pyggml.cli`, the same as the script `pyggml`."""

from . import main

if __name__ == "__main__":
    main()
