# SPDX-License-Identifier: MIT
"""The feed-forward parts of a transformer block."""

from __future__ import annotations

from .. import ops
from ..graph import recompute
from ..tensors import Tensor
from ..tensors.on_demand import on_demand
from . import init
from .layers import Linear
from .module import Module

__all__ = ["GEGLUMLP", "GELUMLP", "SwiGLUMLP"]


@on_demand
def _gelu(x: Tensor) -> Tensor:
    # As large as what it is made from, and quicker made again than kept.
    return recompute(ops.gelu(x))


class GELUMLP(Module):
    """Widen, GELU, narrow: GPT-2's feed-forward part. Submodules carry GPT-2's names.

    y = c_proj(gelu(c_fc(x)))

    Args:
        dim: width outside.
        hidden: width inside.
        bias: learn biases.
        init_weight: initialiser of c_fc; None is Linear's.
        init_out: initialiser of c_proj; None is init_weight.

    Shape:
        x (..., dim) -> (..., dim)

    Raises:
        ValueError: a width is not a positive integer.

    Example:
        >>> GELUMLP(4, 16)(ones((2, 4))).shape
        (2, 4)
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        bias: bool = True,
        init_weight: init.Initializer | None = None,
        init_out: init.Initializer | None = None,
    ) -> None:
        self.c_fc = Linear(dim, hidden, bias, init_weight)
        self.c_proj = Linear(hidden, dim, bias, init_weight if init_out is None else init_out)

    def forward(self, x: Tensor) -> Tensor:
        """Return c_proj(gelu(c_fc(x)))."""
        y: Tensor = self.c_proj(_gelu(self.c_fc(x)))
        return y


class SwiGLUMLP(Module):
    """Widen twice, gate, narrow: Llama's feed-forward part. Submodules carry Llama's names.

    y = down_proj(silu(gate_proj(x)) * up_proj(x))

    Args:
        dim: width outside.
        hidden: width inside.
        bias: learn biases.
        init_weight: initialiser of gate_proj and up_proj; None is Linear's.
        init_out: initialiser of down_proj; None is init_weight.

    Shape:
        x (..., dim) -> (..., dim)

    Raises:
        ValueError: a width is not a positive integer.

    Source: Shazeer 2020, arXiv:2002.05202.

    Example:
        >>> SwiGLUMLP(4, 12)(ones((2, 4))).shape
        (2, 4)
    """

    _gate = staticmethod(ops.swiglu)

    def __init__(
        self,
        dim: int,
        hidden: int,
        bias: bool = False,
        init_weight: init.Initializer | None = None,
        init_out: init.Initializer | None = None,
    ) -> None:
        self.gate_proj = Linear(dim, hidden, bias, init_weight)
        self.up_proj = Linear(dim, hidden, bias, init_weight)
        self.down_proj = Linear(hidden, dim, bias, init_weight if init_out is None else init_out)

    def forward(self, x: Tensor) -> Tensor:
        """Return down_proj(gate(gate_proj(x), up_proj(x)))."""
        gated = recompute(self._gate(self.gate_proj(x), self.up_proj(x)))
        y: Tensor = self.down_proj(gated)
        return y


class GEGLUMLP(SwiGLUMLP):
    """`SwiGLUMLP` with a GELU as its gate: Gemma's feed-forward part, of the same arguments.

    y = down_proj(gelu(gate_proj(x)) * up_proj(x))

    Source: Shazeer 2020, arXiv:2002.05202; the GELU by its tanh formula.

    Example:
        >>> GEGLUMLP(4, 12)(ones((2, 4))).shape
        (2, 4)
    """

    _gate = staticmethod(ops.geglu)
