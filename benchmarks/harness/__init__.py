# SPDX-License-Identifier: MIT
"""What the benchmarks share: contenders in processes of their own, options, tables."""
