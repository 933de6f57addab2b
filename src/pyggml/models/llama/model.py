# SPDX-License-Identifier: MIT
"""Llama and its family: rotary positions, RMS norms first, gated feed-forward, grouped heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ... import nn, ops
from ...io import GGUFFile
from ...nn import init
from ...nn.experts import Routing
from ...tensors import Tensor
from ..language import LanguageModel
from . import files as llama_files
from .config import FAMILIES, LlamaConfig

__all__ = ["Llama", "LlamaConfig"]


class _Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), under Hugging Face's names."""

    def __init__(self, config: LlamaConfig) -> None:
        traits = config.traits
        drawn = init.gpt2(config.n_layer)
        residual = init.gpt2(config.n_layer, residual=True)
        self.input_layernorm = nn.RMSNorm(config.n_embd, config.eps, traits.offset)
        self.self_attn = nn.CausalSelfAttention(
            config.n_embd,
            config.n_head,
            config.n_kv_head,
            bias="qkv" if traits.qkv_bias else False,
            rope=config.rope,
            head_dim=config.head_dim,
            qk_norm=config.eps if traits.qk_norm else None,
            window=config.window,
            attention=config.attention,
            init_weight=drawn,
            init_out=residual,
        )
        self.post_attention_layernorm = nn.RMSNorm(config.n_embd, config.eps, traits.offset)
        if not config.n_expert:
            kind = nn.GEGLUMLP if traits.gelu else nn.SwiGLUMLP
            self.mlp: nn.Module = kind(
                config.n_embd, config.ffn, init_weight=drawn, init_out=residual
            )
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
        seen = self.input_layernorm(x)
        x = x + self.self_attn(seen, positions=positions, mask=mask, cache=cache)
        seen = self.post_attention_layernorm(x)
        part: Any = vars(self).get("block_sparse_moe") or self.mlp
        routed = isinstance(part, nn.MixtureOfExperts)
        added: Tensor = part(seen, routings) if routed else part(seen)
        return x + added


class _Decoder(nn.Module):
    """Embedding, blocks and the last norm, under Hugging Face's names."""

    def __init__(self, config: LlamaConfig) -> None:
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.n_embd, init.gpt2(config.n_layer)
        )
        self.layers = [_Block(config) for _ in range(config.n_layer)]
        self.norm = nn.RMSNorm(config.n_embd, config.eps, config.traits.offset)


class Llama(LanguageModel):
    """The Llama language model, and the others of its family.

    Args:
        config: sizes, and which family.

    Shape:
        ids (B, T) i32 -> (B, T, V)

    Source: Touvron et al. 2023, arXiv:2302.13971; Qwen2: arXiv:2407.10671; Qwen3:
        arXiv:2505.09388; Mistral: arXiv:2310.06825; Mixtral: arXiv:2401.04088; Gemma:
        arXiv:2403.08295.

    Example:
        >>> model = Llama(LlamaConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 65)
    """

    arch = "llama"
    gguf_archs = tuple(FAMILIES)
    config_class: ClassVar[type[LlamaConfig]] = LlamaConfig
    OWN_FIELDS = ("router_aux", "window")
    EMBEDDING = "model.embed_tokens"
    GGUF_NAMES = llama_files.GGUF_NAMES

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.model = _Decoder(config)
        self._add_head()

    @property
    def gguf_arch(self) -> str:
        """llama.cpp's name of the family."""
        return str(self.config.family)

    def _stream(
        self,
        ids: Tensor,
        positions: Tensor | None,
        mask: Tensor | None,
        cache: nn.KVCache | None,
        routings: list[Routing] | None = None,
    ) -> Tensor:
        """Return the stream after the last norm, (B, T, C)."""
        config, body = self.config, self.model
        x = body.embed_tokens(ids)
        if config.traits.scaled:
            x = ops.scale(x, config.n_embd**0.5)
        for i, block in enumerate(body.layers):
            own = cache.layers[i] if cache else None
            x = self._run_block(block, x, positions, mask, own, routings)
        return body.norm(x)  # type: ignore[no-any-return]

    def loss(self, ids: Tensor, targets: Tensor, reduction: str = "mean", **inputs: Any) -> Tensor:
        """Return the cross-entropy of the tokens that follow; see `LanguageModel.loss`.

        While training, a mixture of experts adds `router_aux` times `nn.balance_loss`, for each
        target that counts where the losses are summed; "none" leaves it out.
        """
        share = self.config.router_aux if self.config.n_expert and self.training else 0.0
        if not share or reduction == "none" or ids.shape != targets.shape:
            return super().loss(ids, targets, reduction, **inputs)
        routings: list[Routing] = []
        x = self.hidden(ids, routings=routings, **inputs)
        loss = nn.functional.linear_cross_entropy(x, self.head_weight, targets, reduction=reduction)
        balance = ops.scale(nn.balance_loss(routings), share)
        return loss + (balance * _counted(targets) if reduction == "sum" else balance)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copy the parameters under Hugging Face's names: experts one by one."""
        return llama_files.split_experts(super().state_dict())

    def _own_names(self, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return a state without old files' rotary tables, and with experts in one tensor."""
        kept = {n: a for n, a in state.items() if not n.endswith(".rotary_emb.inv_freq")}
        return llama_files.merge_experts(kept)

    def gguf_layout(self, name: str, array: np.ndarray, reading: bool) -> np.ndarray:
        """Turn a parameter's layout into llama.cpp's, or back when `reading`."""
        return llama_files.gguf_layout(self.config, name, array, reading)

    def gguf_extra(self) -> dict[str, np.ndarray]:
        """Return the divisors of the angles where llama.cpp reads them from a tensor."""
        return llama_files.gguf_extra(self.config)

    def gguf_copies(self) -> dict[str, str]:
        """Return a tied head that llama.cpp wants in the file as well."""
        copied = self.config.tie and self.config.traits.copied_head
        return {"output.weight": f"{self.EMBEDDING}.weight"} if copied else {}

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        return llama_files.gguf_config(self.config)

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> LlamaConfig:
        """Read the configuration from a GGUF file's metadata."""
        return cls.config_class(**llama_files.read_gguf_config(file))

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        llama_files.check_gguf(file, config)


def _counted(targets: Tensor) -> Tensor:
    """Return the count of targets that are not ignored, a scalar of the graph."""
    away = ops.abs(ops.scale(ops.cast(targets, "f32"), 1.0, 100.0))  # from -100
    return ops.step(ops.scale(away, 1.0, -0.5)).sum()
