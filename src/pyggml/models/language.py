# SPDX-License-Identifier: MIT
"""LanguageModel: what every causal language model shares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar

from .. import nn, ops
from ..backend.device import Device
from ..backend.device import device as find_device
from ..errors import BackendError, ShapeError
from ..io import GGUFFile
from ..nn.losses.linear import soft_capped
from ..ops.attention import computes_flash_attn
from ..ops.operands import need_tensor
from ..tensors import Tensor
from .base import Model
from .files import UNTIED, check_block_count, check_tensor
from .targets import check_targets

__all__ = ["Decoder", "LanguageModel", "Mask", "check_ids", "check_room", "mask_of"]

# What is added to the attention scores: one for all layers, or one for each window of theirs.
Mask = Tensor | Mapping[int | None, Tensor] | None


class Decoder(Model):
    """A model from token ids to a stream in which every token sees itself and those before it.

    A subclass defines `_stream`, `GGUF_NAMES` and the metadata both ways; parameters carry Hugging
    Face's names.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        check_room(type(self).__name__, self.config)

    @abstractmethod
    def _stream(
        self,
        ids: Tensor,
        positions: Tensor | None,
        mask: Mask,
        cache: nn.KVCache | None,
    ) -> Tensor:
        """Return what the head reads: the stream after the last norm, (B, T, C)."""

    def hidden(
        self,
        ids: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Mask = None,
        segments: Tensor | None = None,
        cache: nn.KVCache | None = None,
        rows: Tensor | None = None,
        **more: Any,
    ) -> Tensor:
        """Return the stream after the last norm, which the head reads.

        Arguments and exceptions are those of `forward`.

        Args:
            more: `routings` of a mixture of experts: a list that collects what the routers say,
                for `nn.balance_loss`.

        Shape:
            ids (B, T) i32 -> (B, T, C), or (R, C) with rows
        """
        batch, length = check_ids(type(self).__name__, ids, self.config.context)
        mask = self._mask(ids, mask, segments)
        x = self._stream(ids, positions, mask, cache, **more)
        if rows is not None:
            x = ops.get_rows(x.reshape(batch * length, self.config.n_embd), rows)
        return x

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return int(self.config.head_dim)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The most tokens that a token attends to in any layer, itself included; None is all."""
        return (getattr(self.config, "window", None),)

    @property
    def cached_mask_dtype(self) -> str:
        """The type of masks with which the model is fastest where it reads a cache."""
        return "f16" if self.device.kind == "cpu" and self._takes_flash(self.device) else "f32"

    def _takes_flash(self, where: Device) -> bool:
        """Return True if the fused attention op computes this model."""
        attention = getattr(self.config, "attention", "plain")
        if attention != "auto":
            return bool(attention == "flash")
        return computes_flash_attn(where, self.head_dim)

    def _mask(self, ids: Tensor, mask: Mask, segments: Tensor | None) -> Mask:
        """Return the masks of segments, recorded once for all blocks, or the given ones."""
        if segments is None:
            return mask
        who = type(self).__name__
        if mask is not None:
            raise ValueError(f"{who}: give mask or segments, not both; segments make the mask")
        if need_tensor(who, "segments", segments).shape != ids.shape:
            raise ShapeError(f"{who}: segments must be as ids, {ids.shape}; got {segments.shape}")
        dtype = "f16" if self._takes_flash(ids.device) else "f32"
        return {window: nn.segment_mask(segments, dtype, window) for window in self.windows}

    def new_cache(
        self, capacity: int | None = None, device: Device | str | None = None, batch: int = 1
    ) -> nn.KVCache:
        """Make an empty key-value cache of some sequences; capacity None is the context."""
        groups = getattr(self.config, "n_kv_head", self.config.n_head)
        device = self.device if device is None else device
        return nn.KVCache(
            self.config.n_layer,
            self.config.context if capacity is None else capacity,
            groups,
            self.head_dim,
            device,
            getattr(self.config, "rope", None),
            batch,
        )

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        check_block_count(file, config.n_layer)
        check_tensor(file, "token_embd.weight", (config.vocab_size, config.n_embd))
        check_tensor(file, "blk.0.ffn_up.weight", (config.ffn, config.n_embd))
        if "position_embd.weight" in file.tensors:
            check_tensor(file, "position_embd.weight", (config.context, config.n_embd))


class LanguageModel(Decoder):
    """A model from token ids to the logits of the token after each.

    Attributes:
        EMBEDDING: path of the embedding table, which a tied head is.
    """

    EMBEDDING: ClassVar[str]
    # `apply_lora` may name the head, or the table that is the head.
    adapts_head: ClassVar[bool] = True

    def _add_head(self) -> None:
        """Make the head of a model whose head is not tied."""
        config = self.config
        if not config.tie:
            drawn = nn.init.gpt2(config.n_layer)
            self.lm_head = nn.Linear(config.n_embd, config.vocab_size, self.has_head_bias, drawn)

    @property
    def head_weight(self) -> Tensor:
        """The head's weight; a tied one is the embedding table.

        Shape:
            (V, C)
        """
        weight: Tensor = self._head.weight
        return weight

    @property
    def _head(self) -> Any:
        """The layer that has the head's weight."""
        return attrgetter(self.EMBEDDING)(self) if self.config.tie else self.lm_head

    def _logits(self, x: Tensor) -> Tensor:
        """Return the head's output; an adapter of it, or of the table that it is, adds its own."""
        head = self._head
        if isinstance(head, nn.LoRALinear):
            adapted: Tensor = head(x)
            return adapted
        logits = nn.functional.linear(x, self.head_weight, self.head_bias)
        return logits + head.head(x) if isinstance(head, nn.LoRAEmbedding) else logits

    def _head_loss(self, x: Tensor, targets: Tensor, reduction: str) -> Tensor:
        """Return the cross-entropy of what the head makes of the stream."""
        if isinstance(self._head, nn.lora.LoRALayer):
            logits = soft_capped(self._logits(x), self.logit_softcap)
            return nn.functional.cross_entropy(logits, targets, reduction=reduction)
        return nn.functional.linear_cross_entropy(
            x,
            self.head_weight,
            targets,
            reduction=reduction,
            softcap=self.logit_softcap,
            bias=self.head_bias,
        )

    @property
    def has_head_bias(self) -> bool:
        """True if the head has a bias."""
        return False

    @property
    def head_bias(self) -> Tensor | None:
        """The head's bias, (V,); None where it has none."""
        bias: Tensor | None = self.lm_head.bias if self.has_head_bias else None
        return bias

    def _copies(self) -> dict[str, tuple[str, str]]:
        """Return the name of a tied head in Hugging Face's files."""
        return {"lm_head.weight": (f"{self.EMBEDDING}.weight", UNTIED)} if self.config.tie else {}

    def forward(
        self,
        ids: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Mask = None,
        segments: Tensor | None = None,
        cache: nn.KVCache | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Return the logits of the next token.

        Args:
            ids: tokens.
            positions: of the tokens; None is 0 to T - 1.
            mask: added to the attention scores; None is causal. A mapping has one for each of
                `windows`.
            segments: the number of each token's document: attention stays inside of it, and is
                causal. Positions that start anew with each document make a packed row the same as
                its documents apart; see `nn.segment_mask`.
            cache: keys and values of earlier tokens; needs positions and mask, and with a dynamic
                `nn.RopeScaling` a call of its `set_length` before.
            rows: which of the B * T tokens to give logits for; None is all.

        Shape:
            ids (B, T) i32, positions (T,) or (B, T) i32, mask (T, S) or (B, 1, T, S) f32,
            segments (B, T) i32, rows (R,) i32 -> (B, T, V), or (R, V) with rows

        Raises:
            ShapeError: ids is not (B, T), T exceeds the context, or segments are not as ids.
            ValueError: segments with a mask.
        """
        x = self.hidden(
            ids, positions=positions, mask=mask, segments=segments, cache=cache, rows=rows
        )
        return soft_capped(self._logits(x), self.logit_softcap)

    @property
    def target_classes(self) -> int:
        """The vocabulary's tokens."""
        return int(self.config.vocab_size)

    @property
    def logit_softcap(self) -> float:
        """The bound of the logits' magnitude; 0 where nothing caps them."""
        return float(getattr(self.config, "logit_softcap", 0.0))

    def loss(
        self,
        ids: Tensor,
        targets: Tensor,
        reduction: str = "mean",
        *,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Return the cross-entropy of the tokens that follow.

        Args:
            ids: tokens.
            targets: the token after each; -100 is not counted.
            reduction: "mean", "sum" or "none".
            positions: of the tokens; see `forward`.
            segments: documents of a packed row; see `forward`.

        Shape:
            ids (B, T) i32, targets (B, T) i32, positions (T,) or (B, T) i32, segments (B, T) i32
            -> () or, with "none", (B, T)

        Raises:
            ShapeError: ids and targets differ in shape, or a target is not in the vocabulary.
        """
        who = f"{type(self).__name__}.loss"
        check_targets(who, targets, self.target_classes)
        if need_tensor(who, "ids", ids).shape != targets.shape:
            raise ShapeError(
                f"{who}: ids and targets must have one shape; got {ids.shape} and {targets.shape}"
            )
        x = self.hidden(ids, positions=positions, segments=segments)
        return self._head_loss(x, targets, reduction)


def mask_of(mask: Mask, window: int | None) -> Tensor | None:
    """Return the mask of a layer with this window."""
    return mask[window] if isinstance(mask, Mapping) else mask


def check_room(who: str, sizes: Any) -> None:
    """Raise for sizes whose matrices exceed free memory, before the blocks are made.

    Raises:
        BackendError: the matrices of the blocks do not fit.
    """
    kept = nn.init.empty_dtype()
    size = 2 * sizes.n_layer * sizes.n_embd * (sizes.n_embd + sizes.ffn)
    size = 4 * size if kept is None else kept.row_bytes(size)
    if not find_device("cpu").has_memory(size):
        raise BackendError(
            f"{who}: {sizes.n_layer} blocks take {size:,} bytes, more than is free;"
            " use a smaller n_layer or n_embd"
        )


def check_ids(where: str, ids: Tensor, context: int) -> tuple[int, int]:
    """Return (B, T) of token ids that fit the context."""
    need_tensor(where, "ids", ids)
    if ids.ndim != 2:
        raise ShapeError(f"{where}: ids must be (B, T); got {ids.shape}; add the batch axis")
    if ids.shape[1] > context:
        raise ShapeError(
            f"{where}: ids must be at most the context long; got T={ids.shape[1]}, "
            f"context={context}; shorten the sequences or build with a longer context"
        )
    return ids.shape[0], ids.shape[1]
