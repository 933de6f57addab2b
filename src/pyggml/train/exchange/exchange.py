# SPDX-License-Identifier: MIT
"""The exchange of a step: gradients leave in buckets while the backward computes the next ones."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...backend.headers import address
from ...backend.library import ffi, lib
from ...distributed import Group
from ...distributed.nccl import device_sums
from ...graph import Graph
from ...graph.observers import observe
from ...tensors import Tensor
from ...tensors.storage import begin_write, host_vector, place_in_buffer, whole
from . import buckets
from .buckets import Bucket, divide, make_buckets
from .delivery import Delivery, check_windows

__all__ = ["Exchange"]

# So many buckets may be on their way before another one that is not stored is filled.
_MOST = 4
# Buffers that MPI makes for the sums under way.
_BUFFERS = 3


class Exchange:
    """Sums the gradients of a step over the ranks, and sends the parameters that ranks update.

    The buckets are the same whether they leave early or after the backward, and in the same order
    on every rank: so are the bits of the sums.

    Args:
        group: the ranks.
        optimizer: owns gradients and state; with `zero`, it keeps those of this rank's parameters.
        rounds: gradients are sent as bf16 numbers.
        feedback: what rounding loses is added to the next gradients.
        zero: 1 divides the optimizer's state between the ranks, 2 the gradients as well, 3 the
            parameters as well.

    Attributes:
        overlaps: whether buckets leave while the backward runs; else after it.
        owners: the rank that updates each of the optimizer's parameters; None is every rank.
        residuals: what rounding has lost on this rank, for each bucket; empty without feedback.
        early: buckets that left during the last backward.
        device_sums: buckets that were summed in the memory of GPUs.
        delivery: brings each rank the parameters that others update.
        before: on rank 0, the whole state of an optimizer that had done steps.

    Raises:
        ValueError: there are fewer parameters than ranks, or the optimizer cannot be divided, or
            parameters cannot be dropped here.
    """

    def __init__(
        self,
        group: Group,
        optimizer: Any,
        rounds: bool = False,
        feedback: bool = False,
        zero: int = 0,
    ):
        self.group, self.overlaps, self.early, self.device_sums = group, True, 0, 0
        self.zero = zero if group.size > 1 else 0
        self._optimizer, self._rounds = optimizer, rounds
        if self.zero > 2:
            check_windows(group, optimizer)
        params = optimizer.params
        self.owners: list[int | None] = [None] * len(params)
        order = list(range(len(params)))
        self.before: dict[str, np.ndarray] = {}
        if self.zero:
            if group.is_first and optimizer.steps:
                self.before = optimizer.state_dict()
            bytes_of = [sum(t.nbytes for t in kinds.values()) for kinds in optimizer.state]
            costs = [n + p.nbytes for n, p in zip(bytes_of, params, strict=True)]
            owners = divide(costs, group.size)
            self.owners, order = list(owners), sorted(order, key=owners.__getitem__)
            mine = [owner == group.rank for owner in owners]
            optimizer.shard(mine, order, lambda x: group.sums(x)[0], gradients=self.zero > 1)
        self.buckets = make_buckets(params, order, self.owners, optimizer.device)
        self.delivery = Delivery(group, optimizer, self.buckets, self.zero)
        self._bucket_of = {i: b for b, bucket in enumerate(self.buckets) for i in bucket.members}
        # Of gradients that stay in the GPU's memory; those that are rounded or dropped leave it.
        self._sums = None if rounds or self.zero > 1 else device_sums(group, optimizer.device)
        self.residuals = [np.zeros(b.size, np.float32) for b in self.buckets if rounds and feedback]
        self._numbers = {param: i for i, param in enumerate(params)}
        self._scale = 1.0
        self._order: list[int] = []
        self._begun = 0
        self._stored: dict[int, Any] = {}
        self._made: dict[int, np.ndarray] = {}
        self._used: list[AbstractContextManager[np.ndarray]] = []
        self._known: WeakKeyDictionary[Graph, dict[int, int]] = WeakKeyDictionary()

    @property
    def nbytes(self) -> int:
        """Bytes that the exchange keeps, of gradients that it holds for a moment, and of MPI."""
        kept = sum(int(r.nbytes) for r in self.residuals)
        sent: list[tuple[int, bool]] = [
            (4 * (part.stop - part.start), self._has(bucket))
            for number, bucket in enumerate(self.buckets)
            for part in self._parts(number)
        ]
        made = [nbytes for nbytes, has in sent if not has]
        largest = max(nbytes for nbytes, _ in sent)
        return kept + sum(sorted(made)[-1 - _MOST :]) + _BUFFERS * largest

    def set_scale(self, scale: float) -> None:
        """Tell by what gradients are multiplied from now on.

        Args:
            scale: of the loss.
        """
        if scale != self._scale:
            for residual in self.residuals:
                np.multiply(residual, scale / self._scale, out=residual)
            self._scale = scale

    def settle(self, graph: Graph, sent: Mapping[Tensor, Tensor]) -> None:
        """Choose, once, the order in which the buckets leave: that of rank 0's backward.

        Args:
            graph: of a step.
            sent: as `overlapping` takes it.
        """
        if self._order:
            return
        ends = self._ends(graph, sent)
        order = sorted(range(len(self.buckets)), key=lambda b: (ends[b], b))
        self._order = self.group.share(order)
        self.delivery.settle_order(graph)

    def overlapping(
        self, graph: Graph, sent: Mapping[Tensor, Tensor], early: bool
    ) -> AbstractContextManager[Any]:
        """Let the buckets leave while a graph runs in the block.

        Args:
            graph: of a step.
            sent: for each parameter whose gradient is not stored, an op that reads it.
            early: whether buckets leave; else gradients that are not stored are kept alone.
        """
        early = early and self.overlaps and len(self.buckets) > 1
        if not early and not sent:
            return nullcontext()
        watched = self._watched(graph, sent)
        places, headers = graph.last_ops(list(sent.values())), graph.headers
        reads = {
            address(headers[place]): self._numbers[param]
            for param, place in zip(sent, places, strict=True)
        }
        return observe(lambda _: _Watch(self, reads, watched if early else {}))

    def _ends(self, graph: Graph, sent: Mapping[Tensor, Tensor]) -> list[int]:
        """Return for each bucket the place of the op after which its gradients are complete."""
        optimizer = self._optimizer
        tensors = [sent.get(p, optimizer.grads[p]) for p in optimizer.params]
        known = [t for t in tensors if t.is_stored or t.ptr.op != lib.GGML_OP_NONE]
        places = dict(zip(known, graph.last_ops(known), strict=True))
        return [max(places.get(tensors[i], -1) for i in b.members) for b in self.buckets]

    def _watched(self, graph: Graph, sent: Mapping[Tensor, Tensor]) -> dict[int, int]:
        """Return how many buckets have left after each op, by its header's address."""
        known = self._known.get(graph)
        if known is None:
            ends, headers = self._ends(graph, sent), graph.headers
            known, last = {}, -1
            for count, bucket in enumerate(self._order, 1):
                last = max(last, ends[bucket])
                if last >= 0:
                    known[address(headers[last])] = count
            self._known[graph] = known
        return known

    def leave(self, count: int) -> None:
        """Let buckets leave, up to the first so many of the order.

        Args:
            count: their number.
        """
        for number in self._order[self._begun : count]:
            if self._sums is not None:
                at, bucket = self._stored_at(number), self.buckets[number]
                begin_write(at)
                self._sums.begin_sum(address(at.ptr.data), bucket.size, bucket.owner)
                self.device_sums += 1
                continue
            array = self._vector(number)
            for part in self._parts(number):
                self._begin(number, part, array[part])
        self._begun = max(self._begun, count)

    def take(self, number: int, ptr: Any) -> None:
        """Copy a gradient that is not stored into its bucket.

        Args:
            number: of the parameter.
            ptr: header of the gradient.
        """
        own = self._bucket_of[number]
        bucket = self.buckets[own]
        if len(bucket.members) == 1 and own not in self._made and self._is_next(own):
            # Part by part, so that a large one is not in memory twice.
            for part in self._parts(own):
                size = min(part.stop, int(lib.ggml_nelements(ptr))) - part.start
                array = np.zeros(part.stop - part.start, np.float32)
                lib.ggml_backend_tensor_get(
                    ptr, ffi.from_buffer(array), 4 * part.start, 4 * max(0, size)
                )
                self._begin(own, part, array)
            self._begun += 1
            return
        place = bucket.places[bucket.members.index(number)]
        part = slice(place, place + int(lib.ggml_nelements(ptr)))
        array = self._array(own)[part]
        lib.ggml_backend_tensor_get(ptr, ffi.from_buffer(array), 0, array.nbytes)

    def _is_next(self, number: int) -> bool:
        """Return whether a bucket is the next one to leave, and may leave now."""
        return self.overlaps and self._order[self._begun : self._begun + 1] == [number]

    def _parts(self, number: int) -> list[slice]:
        """Return the parts of a bucket that are summed one by one."""
        size, most = self.buckets[number].size, buckets.BUCKET_BYTES // 4
        return [slice(at, min(at + most, size)) for at in range(0, size, most)]

    def _begin(self, number: int, part: slice, array: np.ndarray) -> None:
        """Begin the sum of a part of a bucket."""
        bucket = self.buckets[number]
        residual = self.residuals[number][part] if self.residuals else None
        self.group.begin_sum(array, bucket.owner, self._rounds, residual)
        if not self._has(bucket):  # memory stays bounded where the backward is faster
            self.group.finish(_MOST)

    def finish(self) -> None:
        """Let the buckets leave that have not yet, and wait until all sums are there."""
        self.early = self._begun
        self.leave(len(self.buckets))
        if self._sums is not None:
            self._sums.finish()
        self.group.finish()
        for vector in self._used:
            vector.__exit__(None, None, None)
        self._used.clear()
        self._begun = 0

    def _has(self, bucket: Bucket) -> bool:
        """Return whether a bucket's gradients are stored on this rank."""
        return self.zero < 2 or bucket.owner == self.group.rank

    def _array(self, number: int) -> np.ndarray:
        """Return the vector of a bucket that is not stored, made when it is asked for."""
        if number not in self._made:
            self._made[number] = np.zeros(self.buckets[number].size, np.float32)
        return self._made[number]

    def _stored_at(self, number: int) -> Any:
        """Return the header of a bucket's vector, of gradients that are stored."""
        if number not in self._stored:
            first = self._optimizer.grads[self._optimizer.params[self.buckets[number].members[0]]]
            at = place_in_buffer(first.node)
            self._stored[number] = whole(first.node, at, self.buckets[number].size)
        return self._stored[number]

    def _vector(self, number: int) -> np.ndarray:
        """Return the vector of a bucket."""
        bucket = self.buckets[number]
        if not self._has(bucket):
            array = self._array(number)
            del self._made[number]  # it lives as long as it is on its way
            return array
        vector = host_vector(self._stored_at(number))
        self._used.append(vector)
        return vector.__enter__()


class _Watch:
    """The observer of a backward.

    Args:
        exchange: is told when buckets can leave.
        reads: numbers of the parameters whose gradients an op reads, by its header's address.
        leaves: how many buckets can leave after an op.
    """

    def __init__(self, exchange: Exchange, reads: Mapping[int, int], leaves: Mapping[int, int]):
        self.error: Exception | None = None
        self._exchange, self._reads, self._leaves = exchange, reads, leaves

    def before(self, ptr: Any) -> bool:
        """Ask for the ops after which something is complete."""
        at = address(ptr)
        return at in self._leaves or at in self._reads

    def after(self, ptr: Any) -> bool:
        """Take a gradient, and let buckets leave."""
        at = address(ptr)
        try:
            if at in self._reads:
                self._exchange.take(self._reads[at], ptr.src[0])
            if at in self._leaves:
                self._exchange.leave(self._leaves[at])
        except Exception as error:  # noqa: BLE001 - the graph's run raises it
            self.error = error
        return self.error is None
