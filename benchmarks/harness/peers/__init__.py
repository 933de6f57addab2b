# SPDX-License-Identifier: MIT
"""One module per contender and task; each imports its library and nobody else's."""
