# SPDX-License-Identifier: MIT
"""A mixture of experts: a router chooses a few feed-forward parts for each token."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from .. import checks, ops
from ..backend.device import Device
from ..errors import ShapeError, shown
from ..graph import recompute
from ..ops.operands import need_tensor
from ..tensors import Tensor, tensor
from . import init
from .layers import Linear, check_sizes, initial
from .mlp import SwiGLUMLP
from .module import Module, Parameter

__all__ = ["MixtureOfExperts", "Routing", "balance_loss"]

# What a router said: the probability of each expert, and those that were chosen.
Routing = tuple[Tensor, Tensor]

_ACTIVATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "swiglu": ops.swiglu,
    "swiglu_oai": ops.swiglu_oai,
}


class StackedLinear(Module):
    """One matrix per expert."""

    def __init__(
        self, experts: int, out: int, inside: int, bias: bool, drawn: init.Initializer
    ) -> None:
        weight = initial("MixtureOfExperts", drawn, (experts * out, inside))
        self.weight = Parameter(weight.reshape(experts, out, inside))
        self.bias = Parameter(init.constant(0.0)((experts, out))) if bias else None

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Return what the chosen experts make of x (N, 1 or K, C), as (N, K, M)."""
        y = ops.mul_mat_id(self.weight, x, chosen)
        return y if self.bias is None else ops.add_id(y, self.bias, chosen)


class _Experts(Module):
    """The matrices of all experts, stacked."""

    def __init__(
        self,
        experts: int,
        dim: int,
        hidden: int,
        bias: bool,
        drawn: init.Initializer,
        out: init.Initializer,
    ) -> None:
        self.gate_proj = StackedLinear(experts, hidden, dim, bias, drawn)
        self.up_proj = StackedLinear(experts, hidden, dim, bias, drawn)
        self.down_proj = StackedLinear(experts, dim, hidden, bias, out)


class MixtureOfExperts(Module):
    """Send each token through `used` experts, weighted by the router's probabilities.

    y = sum over the chosen of p_e * down_e(silu(gate_e(x)) * up_e(x)), p = softmax(gate(x))

    Args:
        dim: width outside.
        hidden: width inside an expert.
        experts: how many there are.
        used: how many of them see a token.
        normalize: the chosen probabilities are made to sum to one.
        shared: width inside an expert that sees all tokens, through a gate of its own; 0 has none.
        bias: learn biases of the router and of the experts' matrices.
        activation: "swiglu", or "swiglu_oai", the clamped one of gpt-oss.
        init_weight: initialiser of what widens and of the router; None is uniform within
            1 / sqrt(dim).
        init_out: initialiser of what narrows; None is init_weight.

    Shape:
        x (..., dim) -> (..., dim)

    Raises:
        ValueError: a size is not a positive integer, or more experts are used than there are.

    Source: ggml_mul_mat_id; Shazeer et al. 2017, arXiv:1701.06538; Jiang et al. 2024,
        arXiv:2401.04088; the shared expert: Dai et al. 2024, arXiv:2401.06066.

    Example:
        >>> MixtureOfExperts(4, 8, experts=6, used=2)(ones((2, 3, 4))).shape
        (2, 3, 4)
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        experts: int,
        used: int,
        normalize: bool = True,
        shared: int = 0,
        init_weight: init.Initializer | None = None,
        init_out: init.Initializer | None = None,
        *,
        bias: bool = False,
        activation: str = "swiglu",
    ) -> None:
        who = "MixtureOfExperts"
        dim, hidden, experts, used = check_sizes(
            who, dim=dim, hidden=hidden, experts=experts, used=used
        )
        normalize = checks.flag(who, "normalize", normalize)
        shared = checks.whole(who, "shared", shared, 0)
        bias = checks.flag(who, "bias", bias)
        self.activation = checks.choice(who, "activation", activation, _ACTIVATIONS)
        if used > experts:
            raise ValueError(f"{who}: used must be at most experts, {experts}; got {used}")
        drawn = init.uniform(-(dim**-0.5), dim**-0.5) if init_weight is None else init_weight
        last = drawn if init_out is None else init_out
        self.n_experts, self.used, self.normalize = experts, used, normalize
        self.gate = Linear(dim, experts, bias, drawn)
        self.experts = _Experts(experts, dim, hidden, bias, drawn, last)
        if shared:
            self.shared_expert = SwiGLUMLP(dim, shared, False, drawn, last)
            self.shared_expert_gate = Linear(dim, 1, False, drawn)
        self._has_shared = bool(shared)

    def forward(self, x: Tensor, routings: list[Routing] | None = None) -> Tensor:
        """Return the weighted sum of the chosen experts.

        Args:
            x: the stream.
            routings: what the router said is appended here, for `balance_loss`.
        """
        dim = self.gate.weight.shape[1]
        if need_tensor("MixtureOfExperts", "x", x).ndim < 1 or x.shape[-1] != dim:
            raise ShapeError(f"MixtureOfExperts: x must be (..., {dim}); got {x.shape}")
        tokens = x.reshape(-1, dim)
        count = tokens.shape[0]
        probabilities = ops.soft_max(self.gate(tokens))
        chosen = ops.top_k(probabilities, self.used).contiguous()
        if routings is not None:
            routings.append((probabilities, chosen))
        weights = ops.get_rows(probabilities.reshape(count, self.n_experts, 1), chosen)
        if self.normalize:
            weights = weights / weights.sum(dim=1, keepdim=True)
        rows = tokens.reshape(count, 1, dim)
        gate, up = self.experts.gate_proj(rows, chosen), self.experts.up_proj(rows, chosen)
        inner = recompute(_ACTIVATIONS[self.activation](gate, up))
        out: Tensor = self.experts.down_proj(inner, chosen)  # (N, K, C)
        y = (out * weights).sum(dim=1)
        if self._has_shared:
            y = y + ops.sigmoid(self.shared_expert_gate(tokens)) * self.shared_expert(tokens)
        return y.reshape(x.shape)


def balance_loss(routings: list[Routing]) -> Tensor:
    """Return a measure of uneven use of experts: K where all are used equally, at most E.

    E * sum over e of (share of tokens that go to e) * (mean probability of e), the shares being
    constants; over the tokens of all layers at once.

    Args:
        routings: what `MixtureOfExperts.forward` appended, of routers with as many experts.

    Shape:
        probabilities (N, E) and chosen (N, K) of each layer -> ()

    Raises:
        ValueError: there is no routing.

    Source: Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6, as Mixtral's code sums them.

    Example:
        >>> layer, found = MixtureOfExperts(4, 8, experts=6, used=2), []
        >>> _ = layer(ones((3, 4)), found)
        >>> balance_loss(found).shape
        ()
    """
    given = checks.items("balance_loss", "routings", routings)
    if not given:
        raise ValueError("balance_loss: needs the routings of at least one layer; got none")
    for routing in given:
        pair = isinstance(routing, (tuple, list)) and len(routing) == 2
        if not pair or not all(isinstance(t, Tensor) for t in routing):
            raise TypeError(
                "balance_loss: a routing must be the pair of tensors that"
                f" MixtureOfExperts.forward appends; got {shown(routing)}"
            )
        if any(t.ndim != 2 for t in routing):
            raise ShapeError(
                "balance_loss: a routing must be (N, E) probabilities and (N, K) chosen; got"
                f" {routing[0].shape} and {routing[1].shape}"
            )
    experts = given[0][0].shape[1]
    rows = sum(probabilities.shape[0] for probabilities, _ in given)
    shares, means = None, None
    for probabilities, chosen in given:
        ones = ops.get_rows(_identity(experts, chosen.device), chosen.reshape(chosen.numel()))
        share, mean = ones.sum(dim=0), probabilities.sum(dim=0)
        shares = share if shares is None else shares + share
        means = mean if means is None else means + mean
    assert shares is not None
    assert means is not None
    return ops.scale((shares * means).sum(), experts / rows**2)


@lru_cache(maxsize=8)
def _identity(size: int, device: Device) -> Tensor:
    return tensor(np.eye(size, dtype=np.float32), device=device)
