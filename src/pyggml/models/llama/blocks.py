# SPDX-License-Identifier: MIT
"""A block of the family: attention, feed-forward part and norms, as the table has them."""

from __future__ import annotations

from typing import Any

from ... import nn, ops
from ...graph import recompute
from ...nn import functional, init
from ...nn.experts import Routing
from ...nn.module import Parameter
from ...tensors import Tensor
from .config import LlamaConfig

__all__ = ["Block", "norm"]


def norm(config: LlamaConfig, width: int | None = None) -> nn.Module:
    """Return a norm of the family's kind over the stream, or over another width."""
    width = config.n_embd if width is None else width
    if config.traits.norm == "layer":
        return nn.LayerNorm(width, config.eps)
    return nn.RMSNorm(width, config.eps, config.traits.offset)


class _AllHeads(nn.RMSNorm):
    """One norm over all heads of a token."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x (B, T, H, D), normalised over its last two axes."""
        return super().forward(x.reshape(*x.shape[:2], -1)).reshape(x.shape)


class _EachHead(nn.Module):
    """A layer norm without a bias for each head."""

    def __init__(self, heads: int, width: int, eps: float) -> None:
        self.eps = eps
        self.weight = Parameter(init.constant(1.0)((heads, width)))

    def forward(self, x: Tensor) -> Tensor:
        """Return x (B, T, H, D), normalised over its last axis."""
        return functional.layer_norm(x, x.shape[-1], eps=self.eps) * self.weight


def _head_norm(config: LlamaConfig, heads: int) -> nn.Module:
    """Return the norm of queries or keys."""
    kind, width = config.traits.qk_norm, config.head_dim
    if kind == "all":
        return _AllHeads(heads * width, config.eps)
    return _EachHead(heads, width, config.eps) if kind == "each" else norm(config, width)


class _FusedMLP(nn.Module):
    """down_proj(silu(gate) * up), gate and up being one matrix: Phi 3's feed-forward part."""

    def __init__(
        self, dim: int, hidden: int, bias: bool, drawn: init.Initializer, out: init.Initializer
    ) -> None:
        self.gate_up_proj = nn.Linear(dim, 2 * hidden, bias, drawn)
        self.down_proj = nn.Linear(hidden, dim, bias, out)

    def forward(self, x: Tensor) -> Tensor:
        """Return what it makes of the stream."""
        y: Tensor = self.down_proj(recompute(ops.swiglu(self.gate_up_proj(x))))
        return y


_MLPS: dict[str, Any] = {"swiglu": nn.SwiGLUMLP, "geglu": nn.GEGLUMLP, "gelu": nn.GELUMLP}


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), under Hugging Face's names.

    Norms stand before, after or on both sides of a half, as the family has it.

    Args:
        config: sizes, and which family.
        i: number of the block.
    """

    def __init__(self, config: LlamaConfig, i: int) -> None:
        traits = config.traits
        drawn = init.gpt2(config.n_layer)
        residual = init.gpt2(config.n_layer, residual=True)
        self.window = config.layer_window(i)
        self.residual_scale = config.residual_scale or 1.0
        self.parallel = bool(config.parallel)
        self._before, self._after = traits.norms != "after", traits.norms != "before"
        if self._before:
            self.input_layernorm = norm(config)
        heads = (config.n_head, config.kv_head)
        head_norms = (_head_norm(config, heads[0]), _head_norm(config, heads[1]))
        self.self_attn = nn.CausalSelfAttention(
            config.n_embd,
            *heads,
            bias=config.attention_bias or False,
            fused=("qkv_proj", "o_proj") if traits.fused else False,
            rope=config.layer_rope(i),
            head_dim=config.head_dim,
            qk_norm=head_norms if config.qk_norm else None,
            window=self.window,
            scale=config.score_scale,
            softcap=config.attention_softcap or 0.0,
            sinks=traits.sinks,
            attention=config.attention,
            init_weight=drawn,
            init_out=residual,
        )
        # After the attention where the family has norms there, else before the other half.
        if not self.parallel:
            self.post_attention_layernorm = norm(config)
        if self._after:
            if self._before:
                self.pre_feedforward_layernorm = norm(config)
            self.post_feedforward_layernorm = norm(config)
        if not config.n_expert:
            sizes = (config.n_embd, config.ffn, bool(config.mlp_bias), drawn, residual)
            self.mlp: nn.Module = (_FusedMLP if traits.fused else _MLPS[traits.mlp])(*sizes)
            return
        experts = nn.MixtureOfExperts(
            config.n_embd,
            config.expert_ffn,
            config.n_expert,
            config.n_expert_used,
            traits.normalize,
            config.shared_ffn,
            init_weight=drawn,
            init_out=residual,
            bias=traits.clamped,
            activation="swiglu_oai" if traits.clamped else "swiglu",
        )
        # Mixtral's name for it, and Qwen's.
        setattr(self, "block_sparse_moe" if config.family == "llama" else "mlp", experts)

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None,
        mask: Tensor | None,
        cache: nn.LayerCache | None,
        routings: list[Routing] | None = None,
    ) -> Tensor:
        """Return the stream after the block."""
        seen = self.input_layernorm(x) if self._before else x
        y: Tensor = self.self_attn(seen, positions=positions, mask=mask, cache=cache)
        if self.parallel:
            return self._add(x, y + self._feed_forward(seen, routings))
        x = self._add(x, self.post_attention_layernorm(y) if self._after else y)
        if not self._after:
            seen = self.post_attention_layernorm(x)
        else:
            seen = self.pre_feedforward_layernorm(x) if self._before else x
        y = self._feed_forward(seen, routings)
        return self._add(x, self.post_feedforward_layernorm(y) if self._after else y)

    def _feed_forward(self, seen: Tensor, routings: list[Routing] | None) -> Tensor:
        part: Any = vars(self).get("block_sparse_moe") or self.mlp
        routed = isinstance(part, nn.MixtureOfExperts)
        added: Tensor = part(seen, routings) if routed else part(seen)
        return added

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + (y if self.residual_scale == 1.0 else ops.scale(y, self.residual_scale))
