# SPDX-License-Identifier: MIT
"""Several processes that train one model: ranks of an MPI job, or one process by itself."""

from .collectives import (
    all_gather,
    all_gather_object,
    all_reduce,
    barrier,
    broadcast,
    init,
    is_initialized,
    local_rank,
    rank,
    world,
    world_size,
)
from .group import Group
from .launch import is_launched
from .mpi import check_same

__all__ = [
    "Group",
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "check_same",
    "init",
    "is_initialized",
    "is_launched",
    "local_rank",
    "rank",
    "world",
    "world_size",
]
