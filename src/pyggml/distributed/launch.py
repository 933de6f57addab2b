# SPDX-License-Identifier: MIT
"""The variables that launchers of MPI jobs set, and the import of mpi4py."""

from __future__ import annotations

import atexit
import os
from typing import Any

from ..errors import DistributedError

__all__ = ["check_launcher", "import_mpi", "is_launched", "launched_rank", "launched_size"]

_INSTALL = 'pip install "pyggml[mpi]"'
# Of Open MPI, of MPICH and Intel MPI (hydra), of MVAPICH. Slurm's own are set in jobs without MPI.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
# Open MPI sums arrays in place by a binomial tree, and to one of up to four ranks by a chain of
# 8 KiB, each with a handshake. Rabenseifner's algorithm sends less: Thakur et al. 2005,
# doi:10.1177/1094342005051521. To one of two ranks it has none.
_SUMS = {
    "OMPI_MCA_coll_libnbc_iallreduce_algorithm": ("rabenseifner", "rabenseifner"),
    "OMPI_MCA_coll_libnbc_ireduce_algorithm": ("binomial", "rabenseifner"),
}


def _number(names: tuple[str, ...], otherwise: int) -> int:
    for name in names:
        value = os.environ.get(name, "")
        if value.isascii() and value.isdigit():
            return int(value)
    return otherwise


def launched_size() -> int:
    """Return the number of ranks that the launcher tells; 1 without a launcher."""
    return _number(_SIZES, 1)


def launched_rank() -> int:
    """Return the rank that the launcher tells; 0 without a launcher."""
    return _number(_RANKS, 0)


def is_launched() -> bool:
    """Return True in a process that `mpiexec` started as one of several.

    Example:
        >>> is_launched()
        False
    """
    return launched_size() > 1


def import_mpi() -> Any:
    """Return the module `mpi4py.MPI`, with MPI initialised.

    Raises:
        DistributedError: mpi4py or an MPI library is missing, or `mpiexec` is of another MPI than
            the library.
    """
    try:
        import mpi4py
    except ModuleNotFoundError as error:
        raise DistributedError(
            f"distributed.init: MPI needs the package mpi4py, which is not installed: {_INSTALL}"
        ) from error
    mpi4py.rc.initialize = False  # what does not fit is told before it hangs
    mpi4py.rc.thread_level = "multiple"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(
            f"distributed.init: mpi4py needs an MPI library; got none that loads ({error}): "
            f"{_INSTALL}, or load your cluster's module of MPI"
        ) from error
    check_launcher(MPI.Get_library_version())
    if not MPI.Is_initialized():
        for name, (of_two, of_more) in _SUMS.items():
            os.environ.setdefault(name, of_two if launched_size() == 2 else of_more)
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
        atexit.register(MPI.Finalize)
    found, told = MPI.COMM_WORLD.Get_size(), launched_size()
    if found != told and told > 1:
        raise DistributedError(
            f"distributed.init: mpiexec started {told} ranks, and the MPI library sees {found}; "
            "they are of two MPIs: call the mpiexec of the library that mpi4py loads, "
            + _version(MPI.Get_library_version())
        )
    return MPI


def _version(text: str) -> str:
    """Return the first line of a library's description, without what follows the version."""
    return text.split("\n", maxsplit=1)[0].split(",", maxsplit=1)[0].strip().rstrip("\0")


def check_launcher(library: str) -> None:
    """Raise where the launcher's variables are not those of the library's launcher.

    Args:
        library: the library's description of itself.

    Raises:
        DistributedError: names both.
    """
    own = _version(library)
    is_open = own.startswith("Open MPI")
    started = os.environ.get("OMPI_VERSION")
    by_open = "OMPI_COMM_WORLD_SIZE" in os.environ
    if is_launched() and is_open != by_open:
        other = "Open MPI" if by_open else "MPICH or one like it"
        raise DistributedError(
            f"distributed.init: mpiexec is of {other}, and mpi4py loads {own}; two MPIs cannot talk"
            " to each other: call the mpiexec of that library, or give it first in PATH"
        )
    if is_open and started and started.split(".")[0] != own.split("v")[-1].split(".")[0]:
        raise DistributedError(
            f"distributed.init: mpiexec is of Open MPI {started}, and mpi4py loads {own}: "
            "call the mpiexec of that version"
        )
