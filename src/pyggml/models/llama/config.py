# SPDX-License-Identifier: MIT
"""Sizes of the Llama family, and what its members do differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ... import checks, nn
from ...nn.attention import check_attention, check_heads
from ...nn.layers import check_eps, check_sizes
from ..config import ModelConfig
from .presets import PRESETS

__all__ = ["FAMILIES", "Family", "LlamaConfig"]

# Two matrices instead of one at the same size: 2/3 of 4 C, rounded up for the kernels.
_FFN_MULTIPLE = 32


@dataclass(frozen=True)
class Family:
    """The differences of a member of the family.

    Args:
        qkv_bias: learn biases of queries, keys and values.
        qk_norm: norm each head of queries and keys.
        gelu: gate the feed-forward part by a GELU instead of a SiLU.
        offset: the norms' scale is 1 + weight.
        scaled: the embeddings are multiplied by sqrt(n_embd).
        experts: whether there are: "may", "must" or "none".
        shared: one expert sees all tokens.
        normalize: the probabilities of the chosen experts are made to sum to one.
        neighbours: llama.cpp rotates pairs of neighbours: the file's rows are in another order.
        copied_head: llama.cpp asks for a head in the file, of tied models too.
    """

    qkv_bias: bool = False
    qk_norm: bool = False
    gelu: bool = False
    offset: bool = False
    scaled: bool = False
    experts: str = "none"
    shared: bool = False
    normalize: bool = True
    neighbours: bool = False
    copied_head: bool = False


# By llama.cpp's name of the architecture.
FAMILIES: dict[str, Family] = {
    "llama": Family(experts="may", neighbours=True),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(qk_norm=True),
    "gemma": Family(gelu=True, offset=True, scaled=True),
    "qwen2moe": Family(
        qkv_bias=True, experts="must", shared=True, normalize=False, copied_head=True
    ),
    "qwen3moe": Family(qk_norm=True, experts="must"),
}


@dataclass(frozen=True)
class LlamaConfig(ModelConfig):
    """Sizes of a Llama, or of another of its family.

    Args:
        vocab_size: V, tokens.
        context: longest sequence.
        n_embd: C, width of the stream.
        n_layer: L, blocks.
        n_head: H, query heads; must divide n_embd into even head sizes.
        n_kv_head: key-value heads; must divide n_head; None is n_head.
        n_ffn: width inside the feed-forward part; None is 8/3 * n_embd, rounded up to 32.
        rope_theta: base of the rotary wavelengths.
        eps: of the RMS norms.
        tie: the head is the embedding table.
        attention: "plain", "flash", which stores no T × T scores, or "auto"; see
            `nn.CausalSelfAttention`.
        family: "llama" (Llama, SmolLM, Mistral, Mixtral), "qwen2" (biases of q, k and v), "qwen3"
            (norms of q and k), "gemma" (GeGLU, scaled embeddings, scales of 1 + weight),
            "qwen2moe" or "qwen3moe".
        n_head_dim: width of a head; None is n_embd / n_head.
        rope_scaling: how positions are stretched, a `nn.RopeScaling` or a dict of its fields.
        window: how many tokens a token sees, itself among them; None is all before it.
        n_expert: experts of a mixture; 0 has one feed-forward part for all.
        n_expert_used: how many of them see a token.
        n_expert_ffn: width inside an expert; None is n_ffn.
        n_shared_ffn: width inside the expert that sees all tokens (qwen2moe); None is n_ffn.
        router_aux: share of `nn.balance_loss` in the training loss.

    Raises:
        ValueError: a size is not a positive integer, heads do not divide what they must, the
            attention or family is unknown, or the family does not do what a field asks for.

    Source: Touvron et al. 2023, arXiv:2302.13971; the presets' sizes are their publishers'.

    Example:
        >>> LlamaConfig.preset("tiny", vocab_size=2048).n_ffn
        352
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    vocab_size: int = 32000
    context: int = 256
    n_embd: int = 288
    n_layer: int = 6
    n_head: int = 6
    n_kv_head: int | None = None
    n_ffn: int | None = None
    rope_theta: float = 10000.0
    eps: float = 1e-5
    tie: bool = True
    attention: str = "auto"
    family: str = "llama"
    n_head_dim: int | None = None
    rope_scaling: nn.RopeScaling | Mapping[str, Any] | None = None
    window: int | None = None
    n_expert: int = 0
    n_expert_used: int = 2
    n_expert_ffn: int | None = None
    n_shared_ffn: int | None = None
    router_aux: float = 0.0

    def __post_init__(self) -> None:
        who = type(self).__name__
        self.check_kinds()
        if self.n_kv_head is None:
            object.__setattr__(self, "n_kv_head", self.n_head)
        check_heads(who, self.n_embd, self.n_head, self.kv_head, True, self.n_head_dim)
        if self.n_ffn is None:
            object.__setattr__(self, "n_ffn", self.ffn)
        check_sizes(
            who,
            vocab_size=self.vocab_size,
            context=self.context,
            n_layer=self.n_layer,
            n_ffn=self.ffn,
        )
        if self.n_head_dim == self.n_embd // self.n_head:
            object.__setattr__(self, "n_head_dim", None)  # one way to say it
        for name in ("n_expert_ffn", "n_shared_ffn"):
            if getattr(self, name) == self.ffn:
                object.__setattr__(self, name, None)
        check_eps(who, self.eps)
        check_attention(who, self.attention)
        object.__setattr__(self, "rope_scaling", nn.RopeScaling.of(self.rope_scaling))
        if self.rope.scaling is not None:  # a table may be another head's
            self.rope.scaling.divisors(self.head_dim, self.rope_theta, self.context)
        if self.window is not None:
            check_sizes(who, window=self.window)
        checks.choice(who, "family", self.family, FAMILIES)
        if self.family == "gemma" and not self.tie:
            raise ValueError(f"{who}: a gemma's head is its embedding table; tie must be True")
        self._check_experts(who)

    def _check_experts(self, who: str) -> None:
        """Raise for a mixture that the family lacks, and for none where it has one."""
        checks.whole(who, "n_expert", self.n_expert, 0)
        wanted = self.traits.experts
        if (wanted == "must" and not self.n_expert) or (wanted == "none" and self.n_expert):
            what = "at least 1" if wanted == "must" else "0"
            raise ValueError(
                f"{who}: n_expert of the family {self.family} must be {what}; got {self.n_expert}"
            )
        check_sizes(who, n_expert_used=self.n_expert_used, n_expert_ffn=self.expert_ffn)
        if self.n_expert and self.n_expert_used > self.n_expert:
            raise ValueError(
                f"{who}: n_expert_used must be at most n_expert; "
                f"got {self.n_expert_used} of {self.n_expert}"
            )
        if self.n_shared_ffn is not None:
            check_sizes(who, n_shared_ffn=self.n_shared_ffn)
        if self.family == "llama" and self.expert_ffn != self.ffn:
            raise ValueError(
                f"{who}: experts of the family llama are as wide as n_ffn, {self.ffn}, as in "
                f"llama.cpp's files; got n_expert_ffn={self.n_expert_ffn}"
            )
        checks.number(who, "router_aux", self.router_aux, 0.0)

    @property
    def traits(self) -> Family:
        """The differences of its family."""
        return FAMILIES[self.family]

    @property
    def kv_head(self) -> int:
        """Key-value heads."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.n_embd // self.n_head if self.n_head_dim is None else self.n_head_dim

    @property
    def ffn(self) -> int:
        """Width inside the feed-forward part."""
        if self.n_ffn is not None:
            return self.n_ffn
        return -(-8 * self.n_embd // (3 * _FFN_MULTIPLE)) * _FFN_MULTIPLE

    @property
    def expert_ffn(self) -> int:
        """Width inside an expert."""
        return self.ffn if self.n_expert_ffn is None else self.n_expert_ffn

    @property
    def shared_ffn(self) -> int:
        """Width inside the expert of all tokens; 0 if there is none."""
        if not self.traits.shared:
            return 0
        return self.ffn if self.n_shared_ffn is None else self.n_shared_ffn

    @property
    def rope(self) -> nn.Rope:
        """The rotary positions."""
        scaling = nn.RopeScaling.of(self.rope_scaling)
        return nn.Rope(base=self.rope_theta, scaling=scaling)

    def count_parameters(self) -> int:
        """Count a model's parameters without building it."""
        width, head = self.n_embd, self.head_dim
        heads, groups = self.n_head * head, self.kv_head * head
        block = 2 * width * heads + 2 * width * groups + 2 * width
        if self.traits.qkv_bias:
            block += heads + 2 * groups
        if self.traits.qk_norm:
            block += 2 * head
        if self.n_expert:
            block += self.n_expert * (width + 3 * width * self.expert_ffn)
            if self.shared_ffn:
                block += 3 * width * self.shared_ffn + width
        else:
            block += 3 * width * self.ffn
        tables = self.vocab_size * width * (1 if self.tie else 2)
        return tables + self.n_layer * block + width
