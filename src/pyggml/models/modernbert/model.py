# SPDX-License-Identifier: MIT
"""ModernBERT, a bidirectional encoder with rotary positions and windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from ... import nn, ops
from ...errors import FormatError, ShapeError
from ...graph import recompute
from ...io import GGUFFile, f32, u32
from ...nn import functional, init
from ...nn.masks import position_ids, window_mask
from ...ops.attention import computes_flash_attn
from ...ops.operands import need_tensor
from ...tensors import Tensor
from ..base import Model
from ..files import (
    check_block_count,
    check_tensor,
    read_classes,
    read_number,
    read_scalar,
    read_sizes,
    read_vocab_size,
)
from ..language import check_ids, check_room
from ..pooling import POOLINGS, TextEncoder
from ..pretrained.fields import HFConfig
from .config import ACTIVATIONS, ModernBERTConfig
from .hf_config import read_hf_config, write_hf_config

__all__ = ["ModernBERT", "ModernBERTBody", "ModernBERTModel"]


def _norm(config: ModernBERTConfig) -> nn.LayerNorm:
    """A layer norm without a bias."""
    return nn.LayerNorm(config.n_embd, config.eps, bias=False)


class _Attention(nn.Module):
    """Attention of every token to those that its layer lets it see, under Hugging Face's names."""

    def __init__(self, config: ModernBERTConfig, i: int) -> None:
        drawn = init.normal(0.02)
        self.Wqkv = nn.Linear(config.n_embd, 3 * config.n_embd, False, drawn)
        self.Wo = nn.Linear(config.n_embd, config.n_embd, False, init.gpt2(config.n_layer, True))
        self.n_head = config.n_head
        self.rope = config.layer_rope(i)

    def forward(self, x: Tensor, mask: Tensor | None, flash: bool) -> Tensor:
        """Return what the heads gather."""
        batch, length, width = x.shape
        heads = self.n_head
        qkv = self.Wqkv(x).reshape(batch, length, 3 * heads, width // heads)
        q, k, v = (qkv[:, :, at : at + heads] for at in (0, heads, 2 * heads))
        positions = position_ids(length, x.device)
        q, k = (self.rope.rotate(t, positions, length) for t in (q, k))
        attend = functional.flash_attention if flash else functional.attention
        y: Tensor = self.Wo(attend(q, k, v, mask))
        return y


class _MLP(nn.Module):
    """Wo(act(a) * b), a and b the halves of Wi(x)."""

    def __init__(self, config: ModernBERTConfig) -> None:
        self.Wi = nn.Linear(config.n_embd, 2 * config.ffn, False, init.normal(0.02))
        self.Wo = nn.Linear(config.ffn, config.n_embd, False, init.gpt2(config.n_layer, True))
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        """Return what it makes of the stream."""
        gated = (ops.geglu_erf if self.activation == "gelu" else ops.swiglu)(self.Wi(x))
        y: Tensor = self.Wo(recompute(gated))
        return y


class _Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); the first one's attention has no norm."""

    def __init__(self, config: ModernBERTConfig, i: int) -> None:
        self.attn_norm = _norm(config) if i else None
        self.attn = _Attention(config, i)
        self.mlp_norm = _norm(config)
        self.mlp = _MLP(config)
        self.drop = nn.Dropout(config.dropout)
        self.sees_all = config.sees_all(i)

    def forward(self, x: Tensor, mask: Tensor | None, flash: bool) -> Tensor:
        """Return the stream after the block."""
        seen = x if self.attn_norm is None else self.attn_norm(x)
        x = x + self.drop(self.attn(seen, mask, flash))
        y: Tensor = x + self.drop(self.mlp(self.mlp_norm(x)))
        return y


class _Embeddings(nn.Module):
    def __init__(self, config: ModernBERTConfig) -> None:
        self.tok_embeddings = nn.Embedding(
            config.vocab_size, config.n_embd, init_weight=init.normal(0.02)
        )
        self.norm = _norm(config)
        self.drop = nn.Dropout(config.dropout)


class ModernBERTBody(nn.Module):
    """Embeddings, blocks and the last norm, under the names of Hugging Face's `ModernBertModel`.

    Args:
        config: sizes.
    """

    def __init__(self, config: ModernBERTConfig) -> None:
        self.embeddings = _Embeddings(config)
        self.layers = [_Layer(config, i) for i in range(config.n_layer)]
        self.final_norm = _norm(config)


class ModernBERTModel(Model):
    """The base of ModernBERT and its heads: reading tokens, and llama.cpp's names."""

    config_class = ModernBERTConfig
    HF_TYPES = ("modernbert",)
    # transformers' class.
    HF_CLASS: ClassVar[str] = ""
    OWN_FIELDS = ("dropout", "classes", "pooling")
    # Where the body's parameters are: "" of the bare model, "model." of one with a head.
    _prefix: ClassVar[str] = ""

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__(config)
        check_room(type(self).__name__, self.config)

    def _hidden(self, body: Any, ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The stream after the last norm, (B, T, C)."""
        who, config = type(self).__name__, self.config
        _, length = check_ids(who, ids, config.context)
        name = "attention_mask"
        if attention_mask is not None and need_tensor(who, name, attention_mask).shape != ids.shape:
            raise ShapeError(
                f"{who}: {name} must be as ids, {ids.shape}; got {attention_mask.shape}"
            )
        flash = config.attention == "flash" or (
            config.attention == "auto"
            and computes_flash_attn(ids.device, config.n_embd // config.n_head)
        )
        dtype = "f16" if flash else "f32"
        full = local = None
        if attention_mask is not None:
            full = local = nn.padding_mask(attention_mask, length, dtype)
        if length > config.window // 2 + 1:
            near = window_mask(
                length, config.window // 2, ids.device, "f32" if full is not None else dtype
            )
            if attention_mask is not None:
                both = nn.padding_mask(attention_mask, length) + near
                local = both if dtype == "f32" else ops.cast(both, dtype)
            else:
                local = near
        x = body.embeddings.norm(body.embeddings.tok_embeddings(ids))
        x = body.embeddings.drop(x)
        for block in body.layers:
            x = self._run_block(block, x, full if block.sees_all else local, flash)
        hidden: Tensor = body.final_norm(x)
        return hidden

    def _own_names(self, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return a state under the own names: with or without "model.".

        The parts of heads that this model does not have are left out.
        """
        own, copies = {name for name, _ in self.named_state()}, self._copies()
        clean: dict[str, ArrayLike] = {}
        for name, array in state.items():
            bare = name.removeprefix("model.")
            body = bare.split(".")[0] in ("embeddings", "layers", "final_norm")
            new = self._prefix + bare if body else bare
            if body or new in own or new in copies or not bare.startswith(_HEADS):
                clean[new] = array
        return clean

    def gguf_name(self, name: str) -> str:
        """Return llama.cpp's name of an own parameter."""
        return super().gguf_name(name.removeprefix("model."))

    GGUF_NAMES: ClassVar[dict[str, str]] = {
        "embeddings.tok_embeddings": "token_embd",
        "embeddings.norm": "token_embd_norm",
        "layers.{i}.attn_norm": "blk.{i}.attn_norm",
        "layers.{i}.attn.Wqkv": "blk.{i}.attn_qkv",
        "layers.{i}.attn.Wo": "blk.{i}.attn_output",
        "layers.{i}.mlp_norm": "blk.{i}.ffn_norm",
        "layers.{i}.mlp.Wi": "blk.{i}.ffn_up",
        "layers.{i}.mlp.Wo": "blk.{i}.ffn_down",
        "final_norm": "output_norm",
        "head.dense": "cls",
        "head.norm": "cls.norm",
        "classifier": "cls.output",
        "decoder": "mlm",
    }

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        config = self.config
        keys: dict[str, Any] = {
            "block_count": u32(config.n_layer),
            "context_length": u32(config.context),
            "embedding_length": u32(config.n_embd),
            "feed_forward_length": u32(config.ffn),
            "attention.head_count": u32(config.n_head),
            "attention.layer_norm_epsilon": f32(config.eps),
            "attention.causal": False,
            "attention.sliding_window": u32(config.window),
            "attention.sliding_window_pattern": u32(config.window_pattern),
            "rope.freq_base": f32(config.rope_theta),
            "rope.freq_base_swa": f32(config.rope_theta_window),
            "rope.scaling.type": "none",
            "hidden_activation": config.activation,
            "vocab_size": u32(config.vocab_size),
            "pooling_type": u32(1 + POOLINGS.index(config.pooling)),
        }
        if config.labels is not None:
            keys["classifier.output_labels"] = list(config.labels)
        return {f"{self.gguf_arch}.{key}": value for key, value in keys.items()}

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> ModernBERTConfig:
        """Read the configuration from a GGUF file's metadata."""
        arch = file.metadata["general.architecture"]
        sizes: dict[str, Any] = read_sizes(
            file,
            arch,
            {
                "n_layer": "block_count",
                "context": "context_length",
                "n_embd": "embedding_length",
                "n_ffn": "feed_forward_length",
                "n_head": "attention.head_count",
                "window": "attention.sliding_window",
            },
        )
        if f"{arch}.attention.sliding_window_pattern" in file.metadata:
            key = {"window_pattern": "attention.sliding_window_pattern"}
            sizes |= read_sizes(file, arch, key)
        activation = read_scalar(file, f"{arch}.hidden_activation", "gelu")
        if activation not in ACTIVATIONS or f"{arch}.decision.block_count" in file.metadata:
            raise FormatError(
                f"{file.path}: {arch}.hidden_activation must be one of {', '.join(ACTIVATIONS)}, "
                f"in a model without decision blocks; got {activation!r}"
            )
        pooling = read_scalar(file, f"{arch}.pooling_type", 1)
        if pooling not in (1, 2, 3):
            pooling = read_scalar(file, f"{arch}.classifier.pooling_type", 1)
        return ModernBERTConfig(
            vocab_size=read_vocab_size(file),
            eps=read_number(file, f"{arch}.attention.layer_norm_epsilon"),
            rope_theta=read_number(file, f"{arch}.rope.freq_base", 10000.0),
            rope_theta_window=read_number(file, f"{arch}.rope.freq_base_swa", 10000.0),
            activation=activation,
            pooling=POOLINGS[pooling - 1] if pooling in (1, 2, 3) else "mean",
            **read_classes(file, arch),
            **sizes,
        )

    @classmethod
    def reads_hf(cls, model_type: str, architectures: list[str]) -> bool:
        """Return True where a folder names `HF_CLASS`; see `Model.reads_hf`."""
        return cls.HF_CLASS in architectures

    @classmethod
    def config_from_hf(cls, given: HFConfig) -> ModernBERTConfig:
        """Read the configuration from the fields of a `config.json`."""
        return read_hf_config(given, cls.HF_CLASS)

    def hf_config(self) -> dict[str, Any]:
        """Return the fields of a `config.json`."""
        return write_hf_config(self.config, self.HF_CLASS)

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        check_block_count(file, config.n_layer)
        check_tensor(file, "token_embd.weight", (config.vocab_size, config.n_embd))
        check_tensor(file, "blk.0.ffn_up.weight", (2 * config.ffn, config.n_embd))


_HEADS = ("head.", "decoder.", "classifier.")


class ModernBERT(ModernBERTModel, TextEncoder):
    """The bare encoder: a vector for each token, or for each sentence.

    Args:
        config: sizes.

    Shape:
        ids (B, T) i32 -> (B, T, C)

    Source: Warner et al. 2024, arXiv:2412.13663.

    Example:
        >>> model = ModernBERT(ModernBERTConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 64)
    """

    arch = "modern-bert"
    HF_CLASS = "ModernBertModel"

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__(config)
        body = ModernBERTBody(self.config)
        self.embeddings, self.layers = body.embeddings, body.layers
        self.final_norm = body.final_norm

    def forward(self, ids: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        """Return a vector for each token.

        Args:
            ids: tokens.
            attention_mask: 1 where a token counts, 0 where it fills up; None counts all.

        Shape:
            ids, attention_mask (B, T) i32 -> (B, T, C)

        Raises:
            ShapeError: a shape does not fit, or T exceeds the context.
        """
        return self._hidden(self, ids, attention_mask)

    def token_vectors(self, ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return a vector for each token; see `TextEncoder`."""
        vectors: Tensor = self(ids, attention_mask=attention_mask)
        return vectors
