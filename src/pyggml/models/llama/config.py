# SPDX-License-Identifier: MIT
"""Sizes of the Llama family, and what its members do differently."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ... import checks, nn
from ...nn.attention import check_attention, check_heads
from ...nn.layers import check_eps, check_sizes
from ..config import ModelConfig
from ..pooling import POOLINGS
from .families import FAMILIES, NEUTRAL, Family
from .presets import PRESETS

__all__ = ["LlamaConfig"]

# Two matrices instead of one at the same size: 2/3 of 4 C, rounded up for the kernels.
_FFN_MULTIPLE = 32


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
        family: llama.cpp's name of the architecture, a key of `FAMILIES`: "llama" (Llama, SmolLM,
            Mistral, Mixtral), "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "olmo2",
            "granite", "smollm3", "starcoder2", "stablelm", "gpt-oss", "qwen2moe" or "qwen3moe".
        n_head_dim: width of a head; None is n_embd / n_head.
        rope_scaling: how positions are stretched, a `nn.RopeScaling` or a dict of its fields.
        window: how many tokens a token sees, itself among them; None is all before it, or the
            family's.
        n_expert: experts of a mixture; 0 has one feed-forward part for all.
        n_expert_used: how many of them see a token.
        n_expert_ffn: width inside an expert; None is n_ffn.
        n_shared_ffn: width inside the expert that sees all tokens (qwen2moe); None is n_ffn.
        router_aux: share of `nn.balance_loss` in the training loss.
        attention_bias: learn biases of q, k and v, and of the output too unless it is "qkv".
        mlp_bias: learn biases of the feed-forward part.
        qk_norm: norm queries and keys.
        parallel: both halves of a block read the same norm (StableLM 2 12B).
        rope_dims: how many leading numbers of a head turn; None is all.
        rope_theta_window: base in the layers with a window; None is rope_theta.
        window_pattern: every so many layers one has no window; 1 is a window in all.
        embedding_scale: factor of the embeddings.
        residual_scale: factor of what each half of a block adds.
        attention_scale: factor of the scores; None is 1 / sqrt(head size).
        logit_scale: what the logits are divided by.
        attention_softcap: above 0, scores become softcap * tanh(score / softcap).
        logit_softcap: above 0, logits do.
        pooling: how `embed` makes one vector of a sentence: "last", "mean" or "cls"; None for a
            model that nobody trained for it.

    Of the fields from `attention_bias` to `logit_softcap`, None is the family's value, and others
    are for the families that have the choice: those with the field in `Family.free`.

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
    attention_bias: bool | str | None = None
    mlp_bias: bool | None = None
    qk_norm: bool | None = None
    parallel: bool | None = None
    rope_dims: int | None = None
    rope_theta_window: float | None = None
    window_pattern: int | None = None
    embedding_scale: float | None = None
    residual_scale: float | None = None
    attention_scale: float | None = None
    logit_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    pooling: str | None = None

    def __post_init__(self) -> None:
        who = type(self).__name__
        self.check_kinds()
        checks.choice(who, "family", self.family, FAMILIES)
        self._take_values(who)
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
            self.rope.wavelengths(self.head_dim, self.context)
        if self.window is not None:
            check_sizes(who, window=self.window)
        if self.family in ("gemma", "gemma2") and not self.tie:
            raise ValueError(f"{who}: a gemma's head is its embedding table; tie must be True")
        if self.traits.head_bias and self.tie:
            raise ValueError(
                f"{who}: the head of the family {self.family} has a bias: set tie=False"
            )
        if self.n_head_dim is not None and not self.traits.any_head:
            raise ValueError(
                f"{who}: n_head_dim of the family {self.family} must be n_embd / n_head; "
                f"got {self.n_head_dim}"
            )
        self._check_experts(who)
        if self.pooling is not None:
            checks.choice(who, "pooling", self.pooling, POOLINGS)

    def _take_values(self, who: str) -> None:
        """Fill in the family's values, and raise for those that it does not have."""
        traits = self.traits
        if not isinstance(self.attention_bias, (int, str, type(None))):
            raise TypeError(
                f'{who}: attention_bias must be True, False or "qkv"; got {self.attention_bias!r}'
            )
        for name, neutral in NEUTRAL.items():
            own, given = traits.values.get(name, neutral), getattr(self, name)
            if given is None:
                object.__setattr__(self, name, own)
            elif given != own and name not in traits.free:
                raise ValueError(
                    f"{who}: {name} of the family {self.family} must be {own!r}; got {given!r}"
                )
        if self.window is None:
            object.__setattr__(self, "window", traits.values.get("window"))
        if self.attention_bias not in (True, False, "qkv"):
            raise ValueError(
                f'{who}: attention_bias must be True, False or "qkv"; got {self.attention_bias!r}'
            )
        check_sizes(who, window_pattern=self.pattern)
        for name in ("embedding_scale", "residual_scale", "attention_scale", "logit_scale"):
            if getattr(self, name) is not None:
                checks.f32(who, name, getattr(self, name), above=0.0)
        for name in ("attention_softcap", "logit_softcap"):
            checks.f32(who, name, getattr(self, name), 0.0)
        if self.rope_dims is not None:
            checks.whole(who, "rope_dims", self.rope_dims, 2, self.head_dim)
            if self.rope_dims == self.head_dim:
                object.__setattr__(self, "rope_dims", None)  # one way to say it

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
        """The rotary positions of layers that see all tokens."""
        scaling = nn.RopeScaling.of(self.rope_scaling)
        return nn.Rope(base=self.rope_theta, scaling=scaling, dims=self.rope_dims)

    @property
    def pattern(self) -> int:
        """Every so many layers one has no window."""
        return 1 if self.window_pattern is None else self.window_pattern

    def layer_window(self, i: int) -> int | None:
        """Return how many tokens a token sees in layer i; None is all before it."""
        checks.whole("layer_window", "i", i, 0)
        everything = self.pattern > 1 and (i + 1) % self.pattern == 0
        return None if everything else self.window

    def layer_rope(self, i: int) -> nn.Rope | None:
        """Return the rotary positions of layer i; None has none."""
        checks.whole("layer_rope", "i", i, 0)
        traits, rope = self.traits, self.rope
        if traits.no_rope and (i + 1) % traits.no_rope == 0:
            return None
        if self.layer_window(i) is None or self.pattern == 1:
            return rope
        base = self.rope_theta if self.rope_theta_window is None else self.rope_theta_window
        return nn.Rope(
            base=base, scaling=rope.scaling if traits.window_scaling else None, dims=rope.dims
        )

    @property
    def score_scale(self) -> float:
        """Factor of the attention scores."""
        if self.attention_scale is not None:
            return self.attention_scale
        narrow = self.n_layer == self.traits.narrow
        return math.sqrt(1.0 / (self.n_embd // self.n_head if narrow else self.head_dim))

    @property
    def input_scale(self) -> float:
        """Factor of the embeddings."""
        own = 1.0 if self.embedding_scale is None else self.embedding_scale
        return float(self.n_embd) ** 0.5 if self.traits.scaled else own

    def count_parameters(self) -> int:
        """Count a model's parameters without building it."""
        traits, width, head = self.traits, self.n_embd, self.head_dim
        heads, groups = self.n_head * head, self.kv_head * head
        norm = width * (2 if traits.norm == "layer" else 1)
        block = 2 * width * heads + 2 * width * groups
        block += norm * (4 if traits.norms == "both" else 1 if self.parallel else 2)
        if self.attention_bias:
            block += heads + 2 * groups + (0 if self.attention_bias == "qkv" else width)
        if self.qk_norm:
            block += 2 * head if traits.qk_norm == "head" else heads + groups
        if traits.sinks:
            block += self.n_head
        if self.n_expert:
            block += self.n_expert * (width + 3 * width * self.expert_ffn)
            if traits.clamped:
                block += self.n_expert * (1 + 2 * self.expert_ffn + width)
            if self.shared_ffn:
                block += 3 * width * self.shared_ffn + width
        else:
            into = 1 if traits.mlp == "gelu" else 2
            block += (into + 1) * width * self.ffn
            block += into * self.ffn + width if self.mlp_bias else 0
        tables = self.vocab_size * width * (1 if self.tie else 2)
        head = self.vocab_size if traits.head_bias else 0
        return tables + self.n_layer * block + norm + head
