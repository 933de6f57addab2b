# SPDX-License-Identifier: MIT
"""A table of a model's layers: their outputs, parameters and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..backend.sizes import format_bytes
from ..debug.tables import html_table
from ..tensors import Tensor, tensor, zeros
from .mode import in_mode
from .module import Module

__all__ = ["LayerSummary", "Summary", "summary"]

_HEAD = ("layer", "output", "parameters", "trained", "weights", "outputs")


@dataclass(frozen=True)
class LayerSummary:
    """A module of a model.

    Attributes:
        name: its dotted path; "" is the model.
        kind: its class.
        depth: modules above it.
        output: the shape of its output at its first call, several, or None where it was not called.
        parameters: elements of its parameters and of those below.
        trainable: those of them that are trained.
        weight_bytes: of parameters and buffers, here and below.
        output_bytes: of its outputs at all calls.
    """

    name: str
    kind: str
    depth: int
    output: Any
    parameters: int
    trainable: int
    weight_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Summary:
    """The modules of a model, parents first; printed, it is a table.

    Attributes:
        layers: one for each module; the first is the model.
    """

    layers: tuple[LayerSummary, ...]

    @property
    def parameters(self) -> int:
        """Elements of all parameters; shared ones count once."""
        return self.layers[0].parameters

    @property
    def weight_bytes(self) -> int:
        """Bytes of all parameters and buffers."""
        return self.layers[0].weight_bytes

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for each in self.layers:
            name = each.name.rpartition(".")[2]
            label = f"{'  ' * each.depth}{f'{name}: ' if name else ''}{each.kind}"
            yield (
                label,
                "" if each.output is None else str(each.output),
                f"{each.parameters:,}",
                f"{each.trainable:,}",
                format_bytes(each.weight_bytes),
                format_bytes(each.output_bytes),
            )

    def __str__(self) -> str:
        rows = [_HEAD, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return html_table(self._rows(), _HEAD)


def summary(model: Module, *inputs: Any, **more: Any) -> Summary:
    """Return a table of a model's modules: outputs, parameters, bytes.

    With inputs the forward is recorded, in evaluation mode, and not computed: sizes are all that
    is asked for. "outputs" are the bytes of what a module returns, views included; what a training
    step needs is `trainer.plan()`.

    Args:
        model: the model.
        inputs: of its forward: tensors or arrays, or the shape of one, a tuple of whole numbers,
            for which f32 zeros are given; none leaves the outputs out.
        more: arguments of its forward by name; `input_size` is the shape of the only input, as in
            torchinfo.

    Raises:
        TypeError: the model is no Module.
        ShapeError: an input does not fit.

    Example:
        >>> print(summary(Sequential(Linear(4, 8), ReLU()), ones((2, 4))))
        layer        output  parameters  trained  weights  outputs
        ----------------------------------------------------------
        Sequential   (2, 8)          40       40    160 B     64 B
          0: Linear  (2, 8)          40       40    160 B     64 B
          1: ReLU    (2, 8)           0        0      0 B     64 B
    """
    checks.instance("summary", "model", model, Module, "give a model")
    shapes: dict[int, list[tuple[int, ...]]] = {}
    sizes: dict[int, int] = {}

    def note(module: Module, args: tuple[Any, ...], output: Any) -> None:
        found = list(_tensors_in(output))
        shapes.setdefault(id(module), [t.shape for t in found])
        sizes[id(module)] = sizes.get(id(module), 0) + sum(t.nbytes for t in found)

    if "input_size" in more:
        inputs = (*inputs, tuple(more.pop("input_size")))
    if inputs or more:
        with ExitStack() as stack:
            for module in {id(each): each for each in model.modules()}.values():
                stack.enter_context(module.register_forward_hook(note))
            stack.enter_context(in_mode(model, training=False))
            model(*map(_as_tensor, inputs), **more)
    layers = []
    for name, module in model.named_modules():
        parameters = module.parameters()
        shape = shapes.get(id(module))
        layers.append(
            LayerSummary(
                name,
                type(module).__name__,
                name.count(".") + 1 if name else 0,
                shape[0] if shape is not None and len(shape) == 1 else shape,
                sum(p.numel() for p in parameters),
                sum(p.numel() for p in parameters if p.requires_grad),
                sum(t.nbytes for t in (*parameters, *module.buffers())),
                sizes.get(id(module), 0),
            )
        )
    return Summary(tuple(layers))


def _as_tensor(value: Any) -> Any:
    if isinstance(value, tuple) and value and all(type(n) is int for n in value):
        return zeros(value)
    return tensor(value) if isinstance(value, (np.ndarray, list, float, int)) else value


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of an output, through lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors_in(each)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))
