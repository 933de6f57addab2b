# SPDX-License-Identifier: MIT
"""Llama: rotary positions, RMS norms first, SwiGLU, grouped-query heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import nn, ops
from ..errors import FormatError
from ..io import GGUFFile, f32, u32
from ..nn import init
from ..nn.attention import check_attention, check_heads
from ..nn.layers import check_eps, check_sizes
from ..tensor import Tensor
from .config import ModelConfig
from .files import read_number, read_sizes, read_tie, read_vocab_size
from .language import LanguageModel, check_ids

__all__ = ["Llama", "LlamaConfig"]

# Two matrices instead of one at the same size: 2/3 of 4 C, rounded up for the kernels.
_FFN_MULTIPLE = 32


@dataclass(frozen=True)
class LlamaConfig(ModelConfig):
    """Sizes of a Llama.

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

    Raises:
        ValueError: a size is not a positive integer, heads do not divide what they must, or the
            attention is unknown.

    Source: Touvron et al. 2023, arXiv:2302.13971; the presets' sizes are their publishers'.

    Example:
        >>> LlamaConfig.preset("tiny", vocab_size=2048).n_ffn
        352
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"context": 128, "n_embd": 128, "n_layer": 4, "n_head": 4, "n_kv_head": 2},
        "small": {"context": 256, "n_embd": 256, "n_layer": 6, "n_head": 8, "n_kv_head": 4},
        "stories15m": {
            "vocab_size": 32000, "context": 256, "n_embd": 288, "n_layer": 6, "n_head": 6,
            "n_ffn": 768,
        },
        "stories110m": {
            "vocab_size": 32000, "context": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
            "n_ffn": 2048,
        },
        "smollm-135m": {
            "vocab_size": 49152, "context": 2048, "n_embd": 576, "n_layer": 30, "n_head": 9,
            "n_kv_head": 3, "n_ffn": 1536,
        },
        "tinyllama-1.1b": {
            "vocab_size": 32000, "context": 2048, "n_embd": 2048, "n_layer": 22, "n_head": 32,
            "n_kv_head": 4, "n_ffn": 5632, "tie": False,
        },
    }  # fmt: skip

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

    def __post_init__(self) -> None:
        if self.n_kv_head is None:
            object.__setattr__(self, "n_kv_head", self.n_head)
        check_heads("LlamaConfig", self.n_embd, self.n_head, self.kv_head, rope=True)
        if self.n_ffn is None:
            object.__setattr__(self, "n_ffn", self.ffn)
        check_sizes(
            "LlamaConfig",
            vocab_size=self.vocab_size,
            context=self.context,
            n_layer=self.n_layer,
            n_ffn=self.ffn,
        )
        check_eps("LlamaConfig", self.eps)
        check_attention("LlamaConfig", self.attention)
        nn.Rope(base=self.rope_theta)

    @property
    def kv_head(self) -> int:
        """Key-value heads."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def ffn(self) -> int:
        """Width inside the feed-forward part."""
        if self.n_ffn is not None:
            return self.n_ffn
        return -(-8 * self.n_embd // (3 * _FFN_MULTIPLE)) * _FFN_MULTIPLE


class _Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), under Hugging Face's names."""

    def __init__(self, config: LlamaConfig) -> None:
        drawn = init.gpt2(config.n_layer)
        residual = init.gpt2(config.n_layer, residual=True)
        self.input_layernorm = nn.RMSNorm(config.n_embd, config.eps)
        self.self_attn = nn.CausalSelfAttention(
            config.n_embd,
            config.n_head,
            config.n_kv_head,
            bias=False,
            rope=nn.Rope(base=config.rope_theta),
            attention=config.attention,
            init_weight=drawn,
            init_out=residual,
        )
        self.post_attention_layernorm = nn.RMSNorm(config.n_embd, config.eps)
        self.mlp = nn.SwiGLUMLP(config.n_embd, config.ffn, init_weight=drawn, init_out=residual)

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None,
        mask: Tensor | None,
        cache: nn.LayerCache | None,
    ) -> Tensor:
        """Return the stream after the block."""
        seen = self.input_layernorm(x)
        x = x + self.self_attn(seen, positions=positions, mask=mask, cache=cache)
        added: Tensor = self.mlp(self.post_attention_layernorm(x))
        return x + added


class _Decoder(nn.Module):
    """Embedding, blocks and the last norm, under Hugging Face's names."""

    def __init__(self, config: LlamaConfig) -> None:
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.n_embd, init.gpt2(config.n_layer)
        )
        self.layers = [_Block(config) for _ in range(config.n_layer)]
        self.norm = nn.RMSNorm(config.n_embd, config.eps)


class Llama(LanguageModel):
    """The Llama language model.

    Args:
        config: sizes.

    Shape:
        ids (B, T) i32 -> (B, T, V)

    Source: Touvron et al. 2023, arXiv:2302.13971.

    Example:
        >>> model = Llama(LlamaConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 65)
    """

    arch = "llama"
    config_class = LlamaConfig
    GGUF_NAMES: ClassVar[dict[str, str]] = {
        "model.embed_tokens": "token_embd",
        "model.layers.{i}.input_layernorm": "blk.{i}.attn_norm",
        "model.layers.{i}.self_attn.q_proj": "blk.{i}.attn_q",
        "model.layers.{i}.self_attn.k_proj": "blk.{i}.attn_k",
        "model.layers.{i}.self_attn.v_proj": "blk.{i}.attn_v",
        "model.layers.{i}.self_attn.o_proj": "blk.{i}.attn_output",
        "model.layers.{i}.post_attention_layernorm": "blk.{i}.ffn_norm",
        "model.layers.{i}.mlp.gate_proj": "blk.{i}.ffn_gate",
        "model.layers.{i}.mlp.up_proj": "blk.{i}.ffn_up",
        "model.layers.{i}.mlp.down_proj": "blk.{i}.ffn_down",
        "model.norm": "output_norm",
        "lm_head": "output",
    }

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.model = _Decoder(config)
        if not config.tie:
            self.lm_head = nn.Linear(
                config.n_embd, config.vocab_size, False, init.gpt2(config.n_layer)
            )

    def forward(
        self,
        ids: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        cache: nn.KVCache | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Return the logits of the next token; see `LanguageModel.forward`."""
        batch, length = check_ids("Llama", ids, self.config.context)
        mask = self._mask(ids, mask, segments)
        body = self.model
        x = body.embed_tokens(ids)
        for i, block in enumerate(body.layers):
            x = self._run_block(block, x, positions, mask, cache.layers[i] if cache else None)
        x = body.norm(x)
        if rows is not None:
            x = ops.get_rows(x.reshape(batch * length, self.config.n_embd), rows)
        head = body.embed_tokens if self.config.tie else self.lm_head
        return nn.functional.linear(x, head.weight)

    def load_state_dict(self, state: Mapping[str, ArrayLike], strict: bool = True) -> None:
        """Overwrite the parameters; see `Module.load_state_dict`.

        The rotary tables that old files hold and a tied head's second copy are accepted.
        """
        clean = {
            name: array
            for name, array in state.items()
            if not name.endswith(".rotary_emb.inv_freq")
            and not (name == "lm_head.weight" and self.config.tie)
        }
        super().load_state_dict(clean, strict)

    def gguf_layout(self, name: str, array: np.ndarray, reading: bool) -> np.ndarray:
        """Reorder q's and k's rows: llama.cpp rotates neighbours, Hugging Face halves."""
        heads = {
            "q_proj.weight": self.config.n_head,
            "k_proj.weight": self.config.kv_head,
        }.get(".".join(name.split(".")[-2:]))
        if heads is None:
            return array
        half = array.shape[0] // heads // 2
        split = (heads, half, 2) if reading else (heads, 2, half)
        turned = array.reshape(*split, array.shape[1]).swapaxes(1, 2)
        return np.ascontiguousarray(turned.reshape(array.shape))

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        config = self.config
        return {
            "llama.block_count": u32(config.n_layer),
            "llama.context_length": u32(config.context),
            "llama.embedding_length": u32(config.n_embd),
            "llama.feed_forward_length": u32(config.ffn),
            "llama.attention.head_count": u32(config.n_head),
            "llama.attention.head_count_kv": u32(config.kv_head),
            "llama.attention.layer_norm_rms_epsilon": f32(config.eps),
            "llama.rope.freq_base": f32(config.rope_theta),
            "llama.rope.dimension_count": u32(self.head_dim),
            "llama.vocab_size": u32(config.vocab_size),
        }

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> LlamaConfig:
        """Read the configuration from a GGUF file's metadata."""
        sizes: dict[str, Any] = read_sizes(
            file,
            "llama",
            {
                "n_layer": "block_count",
                "context": "context_length",
                "n_embd": "embedding_length",
                "n_ffn": "feed_forward_length",
                "n_head": "attention.head_count",
            },
        )
        heads = sizes["n_head"]
        sizes["n_kv_head"] = heads
        if "llama.attention.head_count_kv" in file.metadata:
            sizes |= read_sizes(file, "llama", {"n_kv_head": "attention.head_count_kv"})
        _refuse_variants(file, sizes["n_embd"] // heads)
        return LlamaConfig(
            vocab_size=read_vocab_size(file),
            eps=read_number(file, "llama.attention.layer_norm_rms_epsilon"),
            rope_theta=read_number(file, "llama.rope.freq_base", default=10000.0),
            tie=read_tie(file),
            **sizes,
        )


def _refuse_variants(file: GGUFFile, head_dim: int) -> None:
    """Raise a FormatError for what llama.cpp's "llama" also covers and this model does not."""
    plain: dict[str, Any] = {
        "llama.expert_count": 0,
        "llama.rope.scaling.type": "none",
        "llama.rope.dimension_count": head_dim,
        "llama.attention.key_length": head_dim,
        "llama.attention.value_length": head_dim,
    }
    for key, value in plain.items():
        got = file.metadata.get(key, value)
        if got != value:
            raise FormatError(
                f"{file.path}: {key} must be {value!r} or absent, other Llama variants are not "
                f"supported; got {got!r}"
            )
