# SPDX-License-Identifier: MIT
"""T5: an encoder reads, a decoder writes; relative positions, no scaling of the scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import nn, ops
from ..device import Device
from ..errors import FormatError, ShapeError
from ..io import GGUFFile, f32, u32
from ..nn import functional, init
from ..nn.layers import check_eps, check_sizes
from ..ops._check import need_dtype, need_tensor
from ..recompute import recompute
from ..tensor import Tensor, tensor
from .base import Model
from .config import ModelConfig
from .files import (
    check_block_count,
    check_tensor,
    read_number,
    read_sizes,
    read_tie,
    read_vocab_size,
)
from .language import check_ids, check_room

__all__ = ["T5", "T5Cache", "T5Config"]


@dataclass(frozen=True)
class T5Config(ModelConfig):
    """Sizes of a T5.

    Args:
        vocab_size: V, tokens.
        context: longest input, and longest output; T5 itself has no bound.
        n_embd: C, width of the stream.
        n_layer: blocks of the encoder.
        n_decoder: blocks of the decoder; None is n_layer.
        n_head: H, heads.
        n_head_dim: width of a head; need not be n_embd / n_head.
        n_ffn: width inside the feed-forward part.
        gated: gate it by a GELU, as T5 1.1 and Flan-T5 do; else ReLU.
        buckets: of the relative positions.
        max_distance: from here on all is one bucket.
        eps: of the RMS norms.
        tie: the head is the embedding table, and the stream scaled by 1 / sqrt(n_embd) before.
        start_id: first input of the decoder.
        eos_id: ends what `generate` writes.
        dropout: while training, the share dropped of the embeddings, inside the feed-forward
            part, and of what each part of a block adds.

    Raises:
        ValueError: a size is not a positive integer, or another field is out of range.

    Source: Raffel et al. 2019, arXiv:1910.10683; the presets' sizes are Google's.

    Example:
        >>> T5Config.preset("t5-small").n_ffn
        2048
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {
            "context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_head_dim": 16,
            "n_ffn": 128, "dropout": 0.0,
        },
        "t5-small": {"n_embd": 512, "n_layer": 6, "n_head": 8, "n_ffn": 2048},
        "t5-base": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_ffn": 3072},
        "t5-large": {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_ffn": 4096},
        "t5-3b": {
            "n_embd": 1024, "n_layer": 24, "n_head": 32, "n_head_dim": 128, "n_ffn": 16384,
        },
        "flan-t5-small": {
            "n_embd": 512, "n_layer": 8, "n_head": 6, "n_ffn": 1024, "gated": True, "tie": False,
        },
        "flan-t5-base": {
            "n_embd": 768, "n_layer": 12, "n_head": 12, "n_ffn": 2048, "gated": True, "tie": False,
        },
        "flan-t5-large": {
            "n_embd": 1024, "n_layer": 24, "n_head": 16, "n_ffn": 2816, "gated": True,
            "tie": False,
        },
        "flan-t5-xl": {
            "n_embd": 2048, "n_layer": 24, "n_head": 32, "n_ffn": 5120, "gated": True,
            "tie": False,
        },
    }  # fmt: skip

    vocab_size: int = 32128
    context: int = 512
    n_embd: int = 512
    n_layer: int = 6
    n_decoder: int | None = None
    n_head: int = 8
    n_head_dim: int = 64
    n_ffn: int = 2048
    gated: bool = False
    buckets: int = 32
    max_distance: int = 128
    eps: float = 1e-6
    tie: bool = True
    start_id: int = 0
    eos_id: int = 1
    dropout: float = 0.1

    def __post_init__(self) -> None:
        who = "T5Config"
        if self.n_decoder is None:
            object.__setattr__(self, "n_decoder", self.n_layer)
        check_sizes(
            who,
            vocab_size=self.vocab_size,
            context=self.context,
            n_embd=self.n_embd,
            n_layer=self.n_layer,
            n_decoder=self.decoder_layers,
            n_head=self.n_head,
            n_head_dim=self.n_head_dim,
            n_ffn=self.n_ffn,
        )
        check_eps(who, self.eps)
        nn.Dropout(self.dropout)
        for both in (True, False):
            nn.relative_buckets([0], [0], self.buckets, self.max_distance, both)
        for name in ("start_id", "eos_id"):
            token = getattr(self, name)
            whole = isinstance(token, int) and not isinstance(token, bool)
            if not whole or not 0 <= token < self.vocab_size:
                raise ValueError(
                    f"{who}: {name} must be a token from 0 to {self.vocab_size - 1}; got {token!r}"
                )

    @property
    def decoder_layers(self) -> int:
        """Blocks of the decoder."""
        return self.n_layer if self.n_decoder is None else self.n_decoder

    @property
    def ffn(self) -> int:
        """Width inside the feed-forward part."""
        return self.n_ffn


def _linear(a: int, b: int, std: float) -> nn.Linear:
    return nn.Linear(a, b, False, init.normal(std))


class _Attention(nn.Module):
    """Queries of one stream, keys and values of the same or another; scores are not scaled."""

    def __init__(self, config: T5Config, bias: bool | None) -> None:
        """`bias`: whether relative positions see both sides; None has none."""
        inner, width = config.n_head * config.n_head_dim, config.n_embd
        # The published initialisation, which makes up for the scores' missing scale.
        self.q = _linear(width, inner, (width * config.n_head_dim) ** -0.5)
        self.k = _linear(width, inner, width**-0.5)
        self.v = _linear(width, inner, width**-0.5)
        self.o = _linear(inner, width, inner**-0.5)
        if bias is not None:
            self.relative_attention_bias = nn.RelativePositionBias(
                config.buckets, config.n_head, config.max_distance, bias, init.normal(width**-0.5)
            )
        self._n_head = config.n_head

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of a stream, (B, S, H, D) each."""
        batch, length, _ = x.shape
        shape = (batch, length, self._n_head, -1)
        return self.k(x).reshape(*shape), self.v(x).reshape(*shape)

    def attend(
        self, x: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """Return what the queries of x gather."""
        batch, length, _ = x.shape
        q = self.q(x).reshape(batch, length, self._n_head, -1)
        y: Tensor = self.o(functional.attention(q, k, v, mask, 1.0, bias))
        return y


class _FeedForward(nn.Module):
    """Widen, activate, narrow, under Hugging Face's names."""

    def __init__(self, config: T5Config) -> None:
        width, inner = config.n_embd, config.n_ffn
        if config.gated:
            self.wi_0 = _linear(width, inner, width**-0.5)
            self.wi_1 = _linear(width, inner, width**-0.5)
        else:
            self.wi = _linear(width, inner, width**-0.5)
        self.wo = _linear(inner, width, inner**-0.5)
        self.drop = nn.Dropout(config.dropout)
        self._gated = config.gated

    def forward(self, x: Tensor) -> Tensor:
        """Return the narrowed stream."""
        if self._gated:
            inner = recompute(ops.geglu(self.wi_0(x), self.wi_1(x)))
        else:
            inner = recompute(ops.relu(self.wi(x)))
        y: Tensor = self.wo(self.drop(inner))
        return y


class _Part(nn.Module):
    """A norm and what follows it; its output joins the stream."""

    def __init__(self, config: T5Config, name: str, part: nn.Module) -> None:
        setattr(self, name, part)
        self.layer_norm = nn.RMSNorm(config.n_embd, config.eps)
        self.drop = nn.Dropout(config.dropout)


class _Block(nn.Module):
    """Self-attention, in the decoder attention to the encoder, and the feed-forward part."""

    def __init__(self, config: T5Config, decoder: bool, first: bool) -> None:
        own = _Attention(config, (not decoder) if first else None)
        self.layer = [_Part(config, "SelfAttention", own)]
        if decoder:
            self.layer.append(_Part(config, "EncDecAttention", _Attention(config, None)))
        self.layer.append(_Part(config, "DenseReluDense", _FeedForward(config)))

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        mask: Tensor | None,
        encoded: Any = None,
        encoded_mask: Tensor | None = None,
        cache: nn.LayerCache | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Return the stream after the block.

        `encoded` is the encoder's output, or keys and values of it.
        """
        own: Any = self.layer[0]
        seen = own.layer_norm(x)
        k, v = own.SelfAttention.keys(seen)
        if cache is not None and positions is not None:
            k, v = cache.update(k, v, positions, bias.shape[-1])
        x = x + own.drop(own.SelfAttention.attend(seen, k, v, mask, bias))
        if len(self.layer) == 3:
            cross: Any = self.layer[1]
            attention = cross.EncDecAttention
            k, v = encoded if isinstance(encoded, tuple) else attention.keys(encoded)
            x = x + cross.drop(attention.attend(cross.layer_norm(x), k, v, encoded_mask, None))
        last: Any = self.layer[-1]
        y: Tensor = x + last.drop(last.DenseReluDense(last.layer_norm(x)))
        return y


class _Stack(nn.Module):
    """Blocks and their last norm: the encoder, or the decoder."""

    def __init__(self, config: T5Config, decoder: bool) -> None:
        count = config.decoder_layers if decoder else config.n_layer
        self.block = [_Block(config, decoder, i == 0) for i in range(count)]
        self.final_layer_norm = nn.RMSNorm(config.n_embd, config.eps)
        self.drop = nn.Dropout(config.dropout)

    def bias(self, positions: Tensor | int) -> Tensor:
        """Return what relative positions add to the scores of every block."""
        first: Any = self.block[0].layer[0]
        y: Tensor = first.SelfAttention.relative_attention_bias(positions)
        return y


class T5Cache:
    """What a decoder remembers: its own keys and values, and those of the encoder's output.

    Made by `T5.new_cache`.
    """

    def __init__(self, own: nn.KVCache, cross: list[tuple[Tensor, Tensor]]) -> None:
        self.own = own
        self.cross = cross


class T5(Model):
    """The T5 encoder–decoder.

    `loss` takes the batches of `data.AugmentedDataset` with `data.CorruptSpans`.

    Args:
        config: sizes.

    Shape:
        ids (B, T) i32, decoder_ids (B, U) i32 -> (B, U, V)

    Source: Raffel et al. 2019, arXiv:1910.10683.

    Example:
        >>> model = T5(T5Config.preset("tiny", vocab_size=65))
        >>> model(tensor([[5, 6, 7]]), decoder_ids=tensor([[0, 8]])).shape
        (1, 2, 65)
    """

    arch = "t5"
    config_class = T5Config
    OWN_FIELDS = ("dropout", "max_distance", "eos_id")

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        check_room("T5", self.config)
        self.shared = nn.Embedding(config.vocab_size, config.n_embd, init.normal(1.0))
        self.encoder = _Stack(config, decoder=False)
        self.decoder = _Stack(config, decoder=True)
        if not config.tie:
            self.lm_head = _linear(config.n_embd, config.vocab_size, config.n_embd**-0.5)

    def encode(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the encoder's output.

        Args:
            ids: tokens.
            attention_mask: 1 where a token counts, 0 where it fills up; None counts all.

        Shape:
            ids, attention_mask (B, T) i32 -> (B, T, C)

        Raises:
            ShapeError: a shape does not fit, or T exceeds the context.
        """
        _, length = check_ids("T5", ids, self.config.context)
        _check_mask(attention_mask, ids)
        mask = None if attention_mask is None else nn.padding_mask(attention_mask, length)
        stack = self.encoder
        x = stack.drop(self.shared(ids))
        bias = stack.bias(length)
        for block in stack.block:
            x = self._run_block(block, x, bias, mask)
        y: Tensor = stack.drop(stack.final_layer_norm(x))
        return y

    def decode(
        self,
        encoded: Tensor,
        decoder_ids: Tensor,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the logits of the tokens that follow.

        Args:
            encoded: the encoder's output.
            decoder_ids: what was written so far, the start token first.
            attention_mask: of the encoder's tokens.

        Shape:
            encoded (B, T, C), decoder_ids (B, U) i32, attention_mask (B, T) i32 -> (B, U, V)

        Raises:
            ShapeError: a shape does not fit, or U exceeds the context.
        """
        batch, length = check_ids("T5", decoder_ids, self.config.context)
        if encoded.ndim != 3 or encoded.shape[0] != batch:
            raise ShapeError(
                f"T5: decoder_ids must be as many rows as ids; got {decoder_ids.shape} and an "
                f"encoder's output of {encoded.shape}"
            )
        seen = None if attention_mask is None else nn.padding_mask(attention_mask, length)
        mask = nn.causal_mask(length, decoder_ids.device)
        stack = self.decoder
        x = stack.drop(self.shared(decoder_ids))
        bias = stack.bias(length)
        for block in stack.block:
            x = self._run_block(block, x, bias, mask, encoded, seen)
        return self._logits(stack.drop(stack.final_layer_norm(x)))

    def _logits(self, x: Tensor) -> Tensor:
        if not self.config.tie:
            return functional.linear(x, self.lm_head.weight)
        return functional.linear(ops.scale(x, self.config.n_embd**-0.5), self.shared.weight)

    def forward(
        self, ids: Tensor, *, decoder_ids: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Return the logits of the tokens that follow; see `encode` and `decode`."""
        return self.decode(self.encode(ids, attention_mask), decoder_ids, attention_mask)

    def loss(
        self,
        ids: Tensor,
        targets: Tensor,
        reduction: str = "mean",
        *,
        decoder_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the cross-entropy of what the decoder is to write.

        Args:
            ids: tokens to read.
            targets: tokens to write; -100 is not counted.
            reduction: "mean", "sum" or "none".
            decoder_ids: what the decoder is given; None is the start token and then the targets.
            attention_mask: of the tokens to read.

        Shape:
            ids, attention_mask (B, T) i32, targets, decoder_ids (B, U) i32
            -> () or, with "none", (B, U)

        Raises:
            ShapeError: a shape does not fit.
        """
        if decoder_ids is None:
            decoder_ids = self._shifted(targets)
        if decoder_ids.shape != targets.shape:
            raise ShapeError(
                f"T5.loss: decoder_ids must be as targets, {targets.shape}; got {decoder_ids.shape}"
            )
        logits = self(ids, decoder_ids=decoder_ids, attention_mask=attention_mask)
        return ops.cross_entropy(logits, targets, reduction=reduction)

    def _shifted(self, targets: Tensor) -> Tensor:
        """The start token, then all targets but the last; what is not counted becomes 0."""
        need_dtype("T5.loss", "targets", need_tensor("T5.loss", "targets", targets), "i32")
        if targets.ndim != 2:
            raise ShapeError(f"T5.loss: targets must be (B, U); got {targets.shape}")
        batch, length = targets.shape
        start = tensor(np.full((batch, 1), self.config.start_id, np.float32), device=targets.device)
        # Whole numbers below 2^24 are exact in f32, which alone can be clamped and joined.
        known = ops.clamp(ops.cast(targets, "f32"), 0.0, float(self.config.vocab_size - 1))
        rows = start if length == 1 else ops.concat([start, known[:, :-1]], axis=1)
        shifted = ops.cast(rows, "i32")
        shifted.node.limit = self.config.vocab_size  # as it was clamped
        return shifted

    def new_cache(self, encoded: Tensor, capacity: int) -> T5Cache:
        """Make what `generate` remembers of one encoded sequence.

        Args:
            encoded: the encoder's output, recorded or stored.
            capacity: most tokens to write.

        Shape:
            encoded (1, T, C)
        """
        config = self.config
        device: Device = self.device
        own = nn.KVCache(config.decoder_layers, capacity, config.n_head, config.n_head_dim, device)
        cross = []
        for block in self.decoder.block:
            part: Any = block.layer[1]
            k, v = part.EncDecAttention.keys(encoded)
            cross.append((k.detach(), v.detach()))
        return T5Cache(own, cross)

    def decode_next(
        self, cache: T5Cache, ids: Tensor, positions: Tensor, mask: Tensor, buckets: Tensor
    ) -> Tensor:
        """Return the logits after tokens that follow those in the cache.

        Args:
            cache: of `new_cache`.
            ids: tokens.
            positions: where they are written in the cache.
            mask: which cached tokens each sees.
            buckets: their distances; see `nn.RelativePositionBias.between`.

        Shape:
            ids (1, U) i32, positions (U,) i32, mask (U, S) f32, buckets (U, S) i32 -> (1, U, V)
        """
        stack = self.decoder
        x, bias = self.shared(ids), stack.bias(buckets)
        for i, block in enumerate(stack.block):
            x = block(x, bias, mask, cache.cross[i], None, cache.own.layers[i], positions)
        return self._logits(stack.final_layer_norm(x))

    def generate(self, ids: Any, max_tokens: int | None = None, **settings: Any) -> list[int]:
        """Write what follows from the tokens read; see `models.generate_from`."""
        from .generate_t5 import generate_from

        return generate_from(self, ids, max_tokens, **settings)

    def load_state_dict(self, state: Mapping[str, ArrayLike], strict: bool = True) -> None:
        """Overwrite the parameters; see `Module.load_state_dict`.

        The copies of the embedding table that Hugging Face's files hold are accepted, and the
        table of distances that the first of them gave the attention to the encoder.
        """
        clean = dict(state)
        copies = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
        if self.config.tie:
            copies.append("lm_head.weight")
        for name in copies:
            if name in clean:
                clean.setdefault("shared.weight", clean[name])
                del clean[name]
        for name in list(clean):
            if name.endswith("EncDecAttention.relative_attention_bias.weight"):
                del clean[name]
        super().load_state_dict(clean, strict)

    def gguf_name(self, name: str) -> str:
        """Return llama.cpp's name of an own parameter."""
        if name in _TOP_NAMES:
            return _TOP_NAMES[name]
        side, _, number, _, part, *rest = name.split(".")
        where = "enc" if side == "encoder" else "dec"
        last = len(rest) == 2 and rest[0] == "layer_norm"
        parts = ("attn", "cross_attn", "ffn") if side == "decoder" else ("attn", "ffn")
        prefix = f"{where}.blk.{number}."
        if rest[0] == "layer_norm" and last:
            return f"{prefix}{parts[int(part)]}_norm.weight"
        return f"{prefix}{_PART_NAMES[rest[0]][rest[1]]}.weight"

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        config = self.config
        return {
            "t5.context_length": u32(config.context),
            "t5.embedding_length": u32(config.n_embd),
            "t5.feed_forward_length": u32(config.n_ffn),
            "t5.block_count": u32(config.n_layer),
            "t5.decoder_block_count": u32(config.decoder_layers),
            "t5.attention.head_count": u32(config.n_head),
            "t5.attention.key_length": u32(config.n_head_dim),
            "t5.attention.value_length": u32(config.n_head_dim),
            "t5.attention.layer_norm_epsilon": f32(config.eps),
            "t5.attention.layer_norm_rms_epsilon": f32(config.eps),
            "t5.attention.relative_buckets_count": u32(config.buckets),
            "t5.decoder_start_token_id": u32(config.start_id),
        }

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> T5Config:
        """Read the configuration from a GGUF file's metadata."""
        sizes: dict[str, Any] = read_sizes(
            file,
            "t5",
            {
                "n_layer": "block_count",
                "context": "context_length",
                "n_embd": "embedding_length",
                "n_ffn": "feed_forward_length",
                "n_head": "attention.head_count",
                "n_head_dim": "attention.key_length",
                "buckets": "attention.relative_buckets_count",
            },
        )
        if "t5.decoder_block_count" in file.metadata:
            sizes |= read_sizes(file, "t5", {"n_decoder": "decoder_block_count"})
        start = file.metadata.get("t5.decoder_start_token_id", 0)
        if (
            file.metadata.get("t5.attention.value_length", sizes["n_head_dim"])
            != (sizes["n_head_dim"])
        ):
            raise FormatError(
                f"{file.path}: t5.attention.value_length must be as key_length, "
                f"{sizes['n_head_dim']}; got {file.metadata['t5.attention.value_length']!r}"
            )
        return T5Config(
            vocab_size=read_vocab_size(file),
            eps=read_number(file, "t5.attention.layer_norm_rms_epsilon"),
            gated="enc.blk.0.ffn_gate.weight" in file.tensors,
            tie=read_tie(file),
            start_id=start,
            **sizes,
        )

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Hold the metadata against the tensors; see `Model.check_gguf`."""
        check_block_count(file, config.n_layer, "enc.blk.")
        check_block_count(file, config.decoder_layers, "dec.blk.")
        check_tensor(file, "token_embd.weight", (config.vocab_size, config.n_embd))
        check_tensor(file, "enc.blk.0.ffn_up.weight", (config.n_ffn, config.n_embd))
        inner = config.n_head * config.n_head_dim
        check_tensor(file, "enc.blk.0.attn_q.weight", (inner, config.n_embd))


_TOP_NAMES = {
    "shared.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    "encoder.final_layer_norm.weight": "enc.output_norm.weight",
    "decoder.final_layer_norm.weight": "dec.output_norm.weight",
}
_HEAD_NAMES = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_o"}
_PART_NAMES = {
    "SelfAttention": {**_HEAD_NAMES, "relative_attention_bias": "attn_rel_b"},
    "EncDecAttention": {key: f"cross_{name}" for key, name in _HEAD_NAMES.items()},
    "DenseReluDense": {"wi": "ffn_up", "wi_0": "ffn_gate", "wi_1": "ffn_up", "wo": "ffn_down"},
}


def _check_mask(attention_mask: Tensor | None, ids: Tensor) -> None:
    """Refuse a mask that is not as the tokens are."""
    if attention_mask is None:
        return
    if need_tensor("T5", "attention_mask", attention_mask).shape != ids.shape:
        raise ShapeError(
            f"T5: attention_mask must be as ids, {ids.shape}; got {attention_mask.shape}"
        )
