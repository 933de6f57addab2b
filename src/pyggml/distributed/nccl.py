# SPDX-License-Identifier: MIT
"""Sums over ranks of what lies in the memory of NVIDIA GPUs, by NCCL."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any

from cffi import FFI

from ..backend.device import Device
from ..errors import DistributedError
from .group import Group

__all__ = ["DeviceSums", "device_sums"]

_log = logging.getLogger("pyggml.distributed")

# Of nccl.h and cuda_runtime_api.h, as far as they are called; versions 2 and 12 or 13.
_DECLARED = """
typedef struct { char internal[128]; } ncclUniqueId;
typedef void * ncclComm_t;
typedef void * cudaStream_t;
int ncclGetUniqueId(ncclUniqueId * id);
int ncclCommInitRank(ncclComm_t * comm, int ranks, ncclUniqueId id, int rank);
int ncclAllReduce(const void * sent, void * received, size_t count, int type, int op,
    ncclComm_t comm, cudaStream_t stream);
int ncclReduce(const void * sent, void * received, size_t count, int type, int op, int root,
    ncclComm_t comm, cudaStream_t stream);
int ncclCommGetAsyncError(ncclComm_t comm, int * error);
const char * ncclGetErrorString(int error);
int cudaSetDevice(int device);
int cudaDeviceGetPCIBusId(char * id, int size, int device);
int cudaStreamCreateWithFlags(cudaStream_t * stream, unsigned int flags);
int cudaStreamQuery(cudaStream_t stream);
const char * cudaGetErrorString(int error);
"""
_FFI: Any = FFI()
_FFI.cdef(_DECLARED)
_FLOAT32, _SUM, _IN_PROGRESS = 7, 0, 7
_NON_BLOCKING, _NOT_READY = 1, 600
# The packages with the libraries, their folders, and the names of the libraries.
NCCL = ("nvidia.nccl", ("libnccl.so.2",))
RUNTIME = ("nvidia.cuda_runtime", ("libcudart.so.13", "libcudart.so.12"))


class DeviceSums:
    """Sums of f32 vectors in the memory of GPUs, one for each rank.

    The sums go on in a stream of their own while the GPU computes. What is summed must have been
    computed when a sum is begun.

    Args:
        group: the ranks, each with a GPU of its own.
        number: of this rank's GPU.
        nccl: NCCL.
        cuda: CUDA's runtime.

    Raises:
        DistributedError: NCCL or CUDA reports an error.

    Source: NCCL's user guide, chapters Communicators and Collective Operations.
    """

    def __init__(self, group: Group, number: int, nccl: _Library, cuda: _Library) -> None:
        self._group, self._number, self._nccl, self._cuda = group, number, nccl, cuda
        self._call(cuda, "cudaSetDevice", number)
        own = _FFI.new("ncclUniqueId *")
        if group.is_first:
            self._call(nccl, "ncclGetUniqueId", own)
        name = group.share(bytes(_FFI.buffer(own)))
        _FFI.memmove(own, name, len(name))
        comm = _FFI.new("ncclComm_t *")
        self._call(nccl, "ncclCommInitRank", comm, group.size, own[0], group.rank)
        stream = _FFI.new("cudaStream_t *")
        self._call(cuda, "cudaStreamCreateWithFlags", stream, _NON_BLOCKING)
        self._comm, self._stream = comm[0], stream[0]

    def begin_sum(self, address: int, count: int, to: int | None = None) -> None:
        """Begin to replace a vector by its sum over all ranks; `finish` waits for it.

        Every rank begins the same sums in the same order.

        Args:
            address: of the vector, in the GPU's memory.
            count: its f32 numbers.
            to: the rank that gets the sum; None is every rank.
        """
        at = _FFI.cast("void *", address)
        self._call(self._cuda, "cudaSetDevice", self._number)
        if to is None:
            self._sum("ncclAllReduce", at, at, count, _FLOAT32, _SUM)
        else:
            self._sum("ncclReduce", at, at, count, _FLOAT32, _SUM, to)

    def _sum(self, name: str, *arguments: Any) -> None:
        self._call(self._nccl, name, *arguments, self._comm, self._stream)

    def finish(self) -> None:
        """Wait until all sums are there.

        Raises:
            DistributedError: one failed.
        """
        self._group.wait_until(self._is_done)

    def _is_done(self) -> bool:
        error = _FFI.new("int *")
        self._call(self._nccl, "ncclCommGetAsyncError", self._comm, error)
        if error[0] not in (0, _IN_PROGRESS):
            raise self._nccl.failure("ncclCommGetAsyncError", error[0])
        state = int(self._cuda.lib.cudaStreamQuery(self._stream))
        if state not in (0, _NOT_READY):
            raise self._cuda.failure("cudaStreamQuery", state)
        return state == 0

    @staticmethod
    def _call(library: _Library, name: str, *arguments: Any) -> None:
        found = int(getattr(library.lib, name)(*arguments))
        if found:
            raise library.failure(name, found)


class _Library:
    """A shared library.

    Args:
        path: of the library, or its name.
        describe: its function that describes an error.

    Raises:
        OSError: there is no such library.
    """

    def __init__(self, path: str, describe: str) -> None:
        self.lib: Any = _FFI.dlopen(path)
        self._describe = describe

    def failure(self, name: str, error: int) -> DistributedError:
        """Return an error of a function.

        Args:
            name: of the function.
            error: its code.
        """
        said = _FFI.string(getattr(self.lib, self._describe)(error)).decode(errors="replace")
        return DistributedError(f"distributed: {name} failed: {said} ({error})")


def device_sums(group: Group, device: Device) -> DeviceSums | None:
    """Return what sums the memory of the ranks' GPUs; None where the host's memory has to do it.

    That is so where a rank has no NVIDIA GPU of its own, or no NCCL. Every rank calls this.

    Args:
        group: the ranks.
        device: of this rank.
    """
    if group.size == 1:
        return None
    found, place, why = None, "", f"{device.name} is no NVIDIA GPU"
    kind, _, number = device.name.partition(":")
    if kind == "cuda":
        try:
            found, why = _open(), ""
            place = f"{group.host} {_bus(found[1], int(number or 0))}"
        except (OSError, DistributedError) as error:
            why = f"{error}: pip install 'pyggml[nccl]'"
    places = group.gather((kind == "cuda", place, why))
    if not all(own for _, own, _ in places):
        lacking = [(rank, said) for rank, (gpu, own, said) in enumerate(places) if gpu and not own]
        if lacking and group.is_first:
            rank, said = lacking[0]
            _log.warning(
                "gradients go through the host's memory: rank %d has no NCCL: %s", rank, said
            )
        return None
    if len({own for _, own, _ in places}) < group.size:
        if group.is_first:
            _log.warning("gradients go through the host's memory: several ranks share a GPU")
        return None
    assert found is not None
    return DeviceSums(group, int(number or 0), *found)


def _bus(cuda: _Library, number: int) -> str:
    """Return the place of a GPU in its host, as ranks that see other numbers name it."""
    found = _FFI.new("char[32]")
    code = int(cuda.lib.cudaDeviceGetPCIBusId(found, 32, number))
    if code:
        raise cuda.failure("cudaDeviceGetPCIBusId", code)
    return str(_FFI.string(found).decode())


def _open() -> tuple[_Library, _Library]:
    """Return NCCL and CUDA's runtime."""
    return _library(NCCL, "ncclGetErrorString"), _library(RUNTIME, "cudaGetErrorString")


def _library(known: tuple[str, tuple[str, ...]], describe: str) -> _Library:
    """Return a library of NVIDIA's package, or else of the system."""
    package, names = known
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        spec = None
    folders = spec.submodule_search_locations or () if spec else ()
    paths = [Path(folder) / "lib" / name for folder in folders for name in names]
    error: OSError | None = None
    for path in (*(str(each) for each in paths if each.exists()), *names):
        try:
            return _Library(path, describe)
        except OSError as problem:
            error = error or problem
    assert error is not None
    raise error
