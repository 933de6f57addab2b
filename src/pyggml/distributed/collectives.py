# SPDX-License-Identifier: MIT
"""The functions of `torch.distributed` and `mlx.distributed` for NumPy arrays and tensors."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import numpy as np

from .. import checks
from ..errors import DistributedError
from ..tensors import Tensor
from .group import Group
from .launch import is_launched, launched_rank
from .mpi import MPIGroup

__all__ = [
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "init",
    "is_initialized",
    "local_rank",
    "rank",
    "world",
    "world_size",
]

_T = TypeVar("_T", np.ndarray, Tensor)
_BACKENDS = ("auto", "mpi", "none")
_ALONE = Group()
# So long a rank waits with what rank 0 says as well, and then ends the job by its exit.
_PATIENCE_S = 2
_world: Group | None = None


def init(backend: str = "auto") -> Group:
    """Join the ranks that `mpiexec` started; without it, be a world of one process.

    The cores of a host are divided between its ranks, unless OMP_NUM_THREADS or `set_threads` tells
    their number. From then on an error that ends one rank ends the job, with one message. A second
    call returns the same group.

    Args:
        backend: auto joins where `mpiexec` started several ranks; mpi needs MPI; none never joins.

    Returns:
        The ranks, as `world()`.

    Raises:
        ValueError: there is no such backend.

    Example:
        >>> from pyggml import distributed
        >>> distributed.init().size
        1
    """
    global _world
    checks.choice("distributed.init", "backend", backend, _BACKENDS)
    if _world is None:
        joins = backend == "mpi" or (backend == "auto" and is_launched())
        _world = _join() if joins else Group()
    return _world


def _join() -> Group:
    """Join the ranks; where no rank can, rank 0 tells it and its end is that of the job."""
    try:
        return MPIGroup()
    except DistributedError:
        if launched_rank():
            time.sleep(_PATIENCE_S)
        raise


def is_initialized() -> bool:
    """Return True after `init`."""
    return _world is not None


def world() -> Group:
    """Return all ranks; before `init`, this process by itself."""
    return _ALONE if _world is None else _world


def rank() -> int:
    """Return the number of this process, from 0."""
    return world().rank


def world_size() -> int:
    """Return the number of ranks."""
    return world().size


def local_rank() -> int:
    """Return the number of this process among those of its host."""
    return world().local_rank


def all_reduce(x: _T, op: str = "sum") -> _T:
    """Replace an array or a tensor by its sum, maximum or minimum over all ranks.

    Args:
        x: changed in place; of the same shape and dtype on every rank.
        op: sum, mean, max or min.

    Returns:
        x

    Raises:
        TypeError: x is neither an array nor a tensor of numbers.
        ValueError: there is no such op, or x cannot be written to.

    Source: torch.distributed.all_reduce.

    Example:
        >>> all_reduce(np.array([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    who = "distributed.all_reduce"
    checks.choice(who, "op", op, ("sum", "mean", "max", "min"))
    array, group = _writable(who, x), world()
    if group.size == 1:
        return x
    # MPI knows no half-precision numbers.
    sent = np.ascontiguousarray(array, np.float32 if array.dtype == np.float16 else None)
    sent = sent.copy() if sent is array and isinstance(x, Tensor) else sent
    group.reduce([sent], "sum" if op == "mean" else op)
    _put(x, sent / group.size if op == "mean" else sent)
    return x


def broadcast(x: _T, src: int = 0) -> _T:
    """Replace an array or a tensor by that of one rank.

    Args:
        x: changed in place; of the same shape and dtype on every rank.
        src: the rank.

    Returns:
        x

    Raises:
        TypeError: x is neither an array nor a tensor.
        ValueError: there is no such rank, or x cannot be written to.

    Source: torch.distributed.broadcast.

    Example:
        >>> broadcast(np.array([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    who, group = "distributed.broadcast", world()
    checks.whole(who, "src", src, 0, group.size - 1)
    array = _writable(who, x)
    if group.size > 1:
        sent = np.array(array, order="C")
        group.send_all(sent, src)
        _put(x, sent)
    return x


def all_gather(x: np.ndarray | Tensor) -> list[np.ndarray]:
    """Return the arrays of all ranks, in the order of the ranks.

    Args:
        x: an array or a tensor; the shapes may differ between ranks.

    Raises:
        TypeError: x is neither an array nor a tensor.

    Source: torch.distributed.all_gather, which fills a list.

    Example:
        >>> [each.tolist() for each in all_gather(np.array([1, 2]))]
        [[1, 2]]
    """
    return world().gather(np.array(_array("distributed.all_gather", x)))


def all_gather_object(value: Any) -> list[Any]:
    """Return the values of all ranks, in the order of the ranks.

    Args:
        value: an object that pickle takes.

    Source: torch.distributed.all_gather_object, which fills a list.

    Example:
        >>> all_gather_object({"loss": 1.5})
        [{'loss': 1.5}]
    """
    return world().gather(value)


def barrier() -> None:
    """Wait until every rank has called this.

    Example:
        >>> barrier()
    """
    world().barrier()


def _array(who: str, x: Any) -> np.ndarray:
    """Return the numbers of an array or a tensor."""
    found = x.numpy() if isinstance(x, Tensor) else x
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iufb":
        raise TypeError(
            f"{who}: x must be a NumPy array of numbers or a tensor; got {type(x).__name__}: "
            "give np.asarray(values)"
        )
    return found


def _writable(who: str, x: Any) -> np.ndarray:
    """Return the numbers of an array or a tensor that can be written to."""
    found = _array(who, x)
    stored = x.is_stored if isinstance(x, Tensor) else found.flags.writeable
    if not stored:
        raise ValueError(f"{who}: x must be writable; got one that is not: give a copy of it")
    return found


def _put(x: np.ndarray | Tensor, values: np.ndarray) -> None:
    """Write numbers into an array or a tensor."""
    if isinstance(x, Tensor):
        x.copy_(values)
    elif values is not x:
        x[...] = values
