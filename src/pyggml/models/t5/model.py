# SPDX-License-Identifier: MIT
"""T5: an encoder reads, a decoder writes; relative positions, no scaling of the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import nn, ops
from ...backend.device import Device
from ...errors import ShapeError
from ...io import GGUFFile
from ...nn import functional, init
from ...ops.operands import need_dtype, need_tensor
from ...tensors import Tensor, tensor
from ...tensors.row_limits import limit_rows
from ..base import Model
from ..files import LEFT_OUT, UNTIED
from ..language import check_ids, check_room
from ..pretrained.fields import HFConfig
from ..targets import check_targets
from . import files as t5_files
from .blocks import Stack, T5Cache, linear
from .config import T5Config
from .generate import generate_from
from .hf_config import read_hf_config, write_hf_config

__all__ = ["T5", "T5Config"]


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
    HF_TYPES = ("t5",)
    OWN_FIELDS = ("dropout", "max_distance", "eos_id")

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        check_room("T5", self.config)
        self.shared = nn.Embedding(config.vocab_size, config.n_embd, init_weight=init.normal(1.0))
        self.encoder = Stack(config, decoder=False)
        self.decoder = Stack(config, decoder=True)
        if not config.tie:
            self.lm_head = linear(config.n_embd, config.vocab_size, config.n_embd**-0.5)

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
        x = self._written(encoded, decoder_ids, attention_mask)
        return functional.linear(x, self.head_weight)

    def _written(
        self, encoded: Tensor, decoder_ids: Tensor, attention_mask: Tensor | None
    ) -> Tensor:
        """Return the stream that the head reads."""
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
        return self._scaled(stack.drop(stack.final_layer_norm(x)))

    def _scaled(self, x: Tensor) -> Tensor:
        return ops.scale(x, self.config.n_embd**-0.5) if self.config.tie else x

    @property
    def target_classes(self) -> int:
        """The vocabulary's tokens."""
        return int(self.config.vocab_size)

    @property
    def head_weight(self) -> Tensor:
        """The head's weight; a tied one is the embedding table."""
        head: Any = self.shared if self.config.tie else self.lm_head
        weight: Tensor = head.weight
        return weight

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
        """Return the cross-entropy of the decoder's targets.

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
            ShapeError: a shape does not fit, or a target is not in the vocabulary.
        """
        check_targets("T5.loss", targets, self.target_classes)
        if decoder_ids is None:
            decoder_ids = self._shifted(targets)
        if decoder_ids.shape != targets.shape:
            raise ShapeError(
                f"T5.loss: decoder_ids must be as targets, {targets.shape}; got {decoder_ids.shape}"
            )
        x = self._written(self.encode(ids, attention_mask), decoder_ids, attention_mask)
        return functional.linear_cross_entropy(x, self.head_weight, targets, reduction=reduction)

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
        limit_rows(shifted.node, self.config.vocab_size)  # as it was clamped
        return shifted

    def new_cache(self, encoded: Tensor, capacity: int) -> T5Cache:
        """Make the cache of `generate` for one encoded sequence.

        Args:
            encoded: the encoder's output, recorded or stored.
            capacity: most tokens to write.

        Shape:
            encoded (1, T, C)
        """
        if need_tensor("T5.new_cache", "encoded", encoded).ndim != 3:
            raise ShapeError(f"T5.new_cache: encoded must be (1, T, C); got {encoded.shape}")
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
        return functional.linear(self._scaled(stack.final_layer_norm(x)), self.head_weight)

    def generate(self, ids: Any, max_tokens: int | None = None, **settings: Any) -> list[int]:
        """Write what follows from the tokens read; see `models.generate_from`."""
        return generate_from(self, ids, max_tokens, **settings)

    def _own_names(self, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return a state without the unused distances of the attention to the encoder."""
        distances = "EncDecAttention.relative_attention_bias.weight"
        return {name: array for name, array in state.items() if not name.endswith(distances)}

    def _copies(self) -> dict[str, tuple[str, str]]:
        """Return the names of the embedding table in Hugging Face's files."""
        table = "shared.weight"
        sides = (f"{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
        head = {"lm_head.weight": (table, UNTIED)} if self.config.tie else {}
        return dict.fromkeys(sides, (table, LEFT_OUT)) | head

    def gguf_name(self, name: str) -> str:
        """Return llama.cpp's name of an own parameter."""
        return t5_files.gguf_name(name)

    def gguf_layout(self, name: str, array: np.ndarray, reading: bool) -> np.ndarray:
        """Put the scale of a tied head into the norm before it, or take it out when `reading`."""
        if not self.config.tie or name != "decoder.final_layer_norm.weight":
            return array
        scale = self.config.n_embd ** (0.5 if reading else -0.5)
        return np.asarray(array * np.float32(scale), np.float32)

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        return t5_files.gguf_config(self.config)

    @classmethod
    def config_from_hf(cls, given: HFConfig) -> T5Config:
        """Read the configuration from the fields of a `config.json`."""
        return read_hf_config(given)

    def hf_config(self) -> dict[str, Any]:
        """Return the fields of a `config.json`."""
        return write_hf_config(self.config)

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> T5Config:
        """Read the configuration from a GGUF file's metadata."""
        return t5_files.read_gguf_config(file)

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        t5_files.check_gguf(file, config)

    def _read_tensors(self, file: GGUFFile, keep_types: bool = False, mapped: bool = False) -> None:
        super()._read_tensors(file, keep_types, mapped)
        if self.config.tie and t5_files.SCALED not in file.metadata:
            # Another's file has the norm as it is, and the head unscaled.
            scale = self.decoder.final_layer_norm.weight
            name = "decoder.final_layer_norm.weight"
            scale.copy_(self.gguf_layout(name, scale.numpy(), False))


def _check_mask(attention_mask: Tensor | None, ids: Tensor) -> None:
    """Raise for a mask that is not of the tokens' shape."""
    if attention_mask is None:
        return
    if need_tensor("T5", "attention_mask", attention_mask).shape != ids.shape:
        raise ShapeError(
            f"T5: attention_mask must be as ids, {ids.shape}; got {attention_mask.shape}"
        )
