# SPDX-License-Identifier: MIT
"""Random programs: whole computations that are run in several ways and compared."""
