# SPDX-License-Identifier: MIT
"""The recorded backwards of custom functions, and those of them that a graph needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..backend.headers import address
from ..backend.library import lib
from ..tensors.node import Node, NodeTable
from ..tensors.tensor import Tensor
from .walk import walk

__all__ = ["PULLBACKS", "CustomBackwards", "Pullback"]


class Pullback:
    """The backward of one call, recorded: from the gradients of its results to those of arguments.

    ggml's backward ends at the results, which name no operand, and begins anew at the gates:
    views of the arguments whose gradients are given to it. The pass `custom_backwards` puts what
    is recorded here in between.

    Attributes:
        outs: the results that are floats.
        seeds: placeholders of their gradients, one each.
        gates: views of the arguments that take a gradient; the results come after them.
        results: the gradients of these, one each.
    """

    __slots__ = ("gates", "outs", "results", "seeds")

    def __init__(self, seeds: Sequence[Node], gates: Sequence[Node], results: Sequence[Node]):
        self.outs: list[Node] = []
        self.seeds = list(seeds)
        self.gates = list(gates)
        self.results = list(results)

    def nodes(self) -> list[Node]:
        """Return what the backward may compute, operands first."""
        return walk(self.results, {id(seed) for seed in self.seeds})


# The recorded backward of the call that a node is a result of.
PULLBACKS: NodeTable[Pullback] = NodeTable(of_ops=True)


class CustomBackwards:
    """The custom functions whose backward a graph needs.

    Args:
        forward: the graph's nodes.
        needed: ids of those that ggml will want a gradient of.

    Attributes:
        pullbacks: their recorded backwards, in the order of the forward.
        computed: the nodes of each.
        nodes: all of these once, operands first; some may be of the forward as well.
        stand_ins: headers in the place of the gradients of gates, by the gates' addresses.
        zeros: gradients of results that the loss does not depend on.
    """

    def __init__(self, forward: Iterable[Node], needed: Collection[int]):
        found: dict[int, Pullback] = {}
        for node in forward:
            pullback = PULLBACKS.get(node)
            if pullback is not None and id(node) in needed:
                found[id(pullback)] = pullback
        self.pullbacks = list(found.values())
        self.computed = [pullback.nodes() for pullback in self.pullbacks]
        self.nodes = list({id(n): n for nodes in self.computed for n in nodes}.values())
        self.stand_ins: dict[int, Any] = {}
        self.zeros: list[Tensor] = []

    @property
    def most_headers(self) -> int:
        """The most headers that they may add to a graph."""
        ends = sum(len(p.outs) + 2 * len(p.gates) for p in self.pullbacks)
        return len(self.nodes) + ends

    def outs(self, headers: Mapping[int, Any]) -> list[Any]:
        """Return the results in the graph: ggml computes their gradients as a parameter's."""
        every = [address(out.ptr) for pullback in self.pullbacks for out in pullback.outs]
        return [headers[at] for at in every if at in headers]

    def make_stand_ins(self, ctx: Any, headers: Mapping[int, Any]) -> dict[int, Any]:
        """Make the headers from which ggml's backward begins again at the arguments."""
        self.stand_ins = {
            address(headers[address(gate.ptr)]): lib.ggml_new_tensor(
                ctx, lib.GGML_TYPE_F32, 4, gate.ptr.ne
            )
            for pullback in self.pullbacks
            for gate in pullback.gates
        }
        return self.stand_ins
