# SPDX-License-Identifier: MIT
"""BERT, a bidirectional encoder: token vectors, sentence embeddings, and the base of its heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ... import nn, ops
from ...errors import ShapeError
from ...io import GGUFFile, f32, u32
from ...nn import functional, init
from ...nn.masks import position_ids
from ...ops.attention import computes_flash_attn
from ...ops.operands import need_tensor
from ...tensors import Tensor, zeros
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
from .config import BERTConfig
from .hf_config import read_hf_config, write_hf_config

__all__ = ["BERT", "BERTBody", "BERTConfig", "BERTModel"]

_DRAWN = init.normal(0.02)


def linear(a: int, b: int) -> nn.Linear:
    """A layer with BERT's initialisation."""
    return nn.Linear(a, b, init_weight=_DRAWN)


class _SelfAttention(nn.Module):
    """Queries, keys and values, under Hugging Face's names."""

    def __init__(self, config: BERTConfig) -> None:
        self.query = linear(config.n_embd, config.n_embd)
        self.key = linear(config.n_embd, config.n_embd)
        self.value = linear(config.n_embd, config.n_embd)
        self.n_head = config.n_head
        self.attention = config.attention

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads gather, side by side."""
        batch, length, _ = x.shape
        q, k, v = (
            part(x).reshape(batch, length, self.n_head, -1)
            for part in (self.query, self.key, self.value)
        )
        flash = takes_flash(self.attention, x, q.shape[-1])
        attend = functional.flash_attention if flash else functional.attention
        return attend(q, k, v, mask)


class _Output(nn.Module):
    """LayerNorm(residual + dropout(dense(x)))."""

    def __init__(self, config: BERTConfig, width: int) -> None:
        self.dense = linear(width, config.n_embd)
        self.LayerNorm = nn.LayerNorm(config.n_embd, config.eps)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return the normalised sum."""
        y: Tensor = self.LayerNorm(residual + self.drop(self.dense(x)))
        return y


class _Attention(nn.Module):
    def __init__(self, config: BERTConfig) -> None:
        self.self = _SelfAttention(config)
        self.output = _Output(config, config.n_embd)


class _Intermediate(nn.Module):
    def __init__(self, config: BERTConfig) -> None:
        self.dense = linear(config.n_embd, config.ffn)


class _Layer(nn.Module):
    """Attention, then the feed-forward part, each followed by its norm."""

    def __init__(self, config: BERTConfig) -> None:
        self.attention = _Attention(config)
        self.intermediate = _Intermediate(config)
        self.output = _Output(config, config.ffn)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the stream after the block."""
        gathered = self.attention.self(x, mask)
        x = self.attention.output(gathered, x)
        y: Tensor = self.output(ops.gelu_erf(self.intermediate.dense(x)), x)
        return y


class _Embeddings(nn.Module):
    def __init__(self, config: BERTConfig) -> None:
        self.word_embeddings = nn.Embedding(config.vocab_size, config.n_embd, init_weight=_DRAWN)
        self.position_embeddings = nn.Embedding(config.context, config.n_embd, init_weight=_DRAWN)
        self.token_type_embeddings = nn.Embedding(config.types, config.n_embd, init_weight=_DRAWN)
        self.LayerNorm = nn.LayerNorm(config.n_embd, config.eps)
        self.drop = nn.Dropout(config.dropout)


class _Encoder(nn.Module):
    def __init__(self, config: BERTConfig) -> None:
        self.layer = [_Layer(config) for _ in range(config.n_layer)]


class _Pooler(nn.Module):
    """tanh(dense(first token))."""

    def __init__(self, config: BERTConfig) -> None:
        self.dense = linear(config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        """Return one vector for each sequence."""
        first = x[:, 0]
        return ops.tanh(self.dense(first))


class BERTBody(nn.Module):
    """Embeddings and blocks, under the names of Hugging Face's `BertModel`.

    Args:
        config: sizes.
        pooler: have the layer that the classifier reads.
    """

    def __init__(self, config: BERTConfig, pooler: bool = False) -> None:
        self.embeddings = _Embeddings(config)
        self.encoder = _Encoder(config)
        if pooler:
            self.pooler = _Pooler(config)


class BERTModel(Model):
    """The base of BERT and its heads: reading tokens, and llama.cpp's names."""

    config_class = BERTConfig
    HF_TYPES = ("bert",)
    OWN_FIELDS = ("dropout", "classes", "pooling")
    # transformers' classes that this one reads; the first is written.
    HF_CLASSES: ClassVar[tuple[str, ...]] = ()
    # Where the body's parameters are: "" of the bare model, "bert." of one with a head.
    _prefix: ClassVar[str] = ""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        check_room(type(self).__name__, self.config)

    def _hidden(
        self, body: Any, ids: Tensor, attention_mask: Tensor | None, types: Tensor | None
    ) -> Tensor:
        """The stream after the last block, (B, T, C)."""
        who = type(self).__name__
        _, length = check_ids(who, ids, self.config.context)
        for name, given in (("attention_mask", attention_mask), ("types", types)):
            if given is not None and need_tensor(who, name, given).shape != ids.shape:
                raise ShapeError(f"{who}: {name} must be as ids, {ids.shape}; got {given.shape}")
        tables = body.embeddings
        x = tables.word_embeddings(ids) + tables.position_embeddings(
            position_ids(length, ids.device)
        )
        first = types if types is not None else zeros((1,), dtype="i32", device=ids.device)
        x = x + tables.token_type_embeddings(first)
        x = tables.drop(tables.LayerNorm(x))
        mask = None
        if attention_mask is not None:
            flash = takes_flash(
                self.config.attention, ids, self.config.n_embd // self.config.n_head
            )
            mask = nn.padding_mask(attention_mask, length, "f16" if flash else "f32")
        for block in body.encoder.layer:
            x = self._run_block(block, x, mask)
        hidden: Tensor = x
        return hidden

    def _own_names(self, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return a state under the own names: with or without "bert.", gamma and beta of old files.

        RoBERTa's names are known too; its first position is its table's third row or a later one.
        The parts of heads that this model does not have are left out.
        """
        own, copies = dict(self.named_state()), self._copies()
        clean: dict[str, ArrayLike] = {}
        for name, given in state.items():
            array = given
            new = name.replace(".gamma", ".weight").replace(".beta", ".bias")
            bare = new.removeprefix("bert.")
            if new.startswith("roberta."):
                bare = new.removeprefix("roberta.")
                if bare == "embeddings.position_embeddings.weight":
                    array = np.asarray(array)[-self.config.context :]
            for theirs, ours in _ROBERTA.items():
                if bare.startswith(theirs):
                    new = bare = bare.replace(theirs, ours)
            if bare.split(".")[0] in ("embeddings", "encoder", "pooler"):
                new = self._prefix + bare
            if (
                bare in copies
                or new in own
                or (not bare.startswith(_FOREIGN) and bare != "embeddings.position_ids")
            ):
                clean[new] = array
        return clean

    def gguf_name(self, name: str) -> str:
        """Return llama.cpp's name of an own parameter."""
        return super().gguf_name(name.removeprefix("bert."))

    GGUF_NAMES: ClassVar[dict[str, str]] = {
        "embeddings.word_embeddings": "token_embd",
        "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types",
        "embeddings.LayerNorm": "token_embd_norm",
        "encoder.layer.{i}.attention.self.query": "blk.{i}.attn_q",
        "encoder.layer.{i}.attention.self.key": "blk.{i}.attn_k",
        "encoder.layer.{i}.attention.self.value": "blk.{i}.attn_v",
        "encoder.layer.{i}.attention.output.dense": "blk.{i}.attn_output",
        "encoder.layer.{i}.attention.output.LayerNorm": "blk.{i}.attn_output_norm",
        "encoder.layer.{i}.intermediate.dense": "blk.{i}.ffn_up",
        "encoder.layer.{i}.output.dense": "blk.{i}.ffn_down",
        "encoder.layer.{i}.output.LayerNorm": "blk.{i}.layer_output_norm",
        "pooler.dense": "cls",
        "classifier": "cls.output",
        "cls.predictions.transform.dense": "mlm.dense",
        "cls.predictions.transform.LayerNorm": "mlm.norm",
        "cls.predictions": "mlm",
    }

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        config, arch = self.config, self.gguf_arch
        keys: dict[str, Any] = {
            f"{arch}.block_count": u32(config.n_layer),
            f"{arch}.context_length": u32(config.context),
            f"{arch}.embedding_length": u32(config.n_embd),
            f"{arch}.feed_forward_length": u32(config.ffn),
            f"{arch}.attention.head_count": u32(config.n_head),
            f"{arch}.attention.layer_norm_epsilon": f32(config.eps),
            f"{arch}.attention.causal": False,
            f"{arch}.pooling_type": u32(1 + POOLINGS.index(config.pooling)),
            "tokenizer.ggml.token_type_count": u32(config.types),
        }
        if config.labels is not None:
            keys[f"{arch}.classifier.output_labels"] = list(config.labels)
        return keys

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> BERTConfig:
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
            },
        )
        pooling = read_scalar(file, f"{arch}.pooling_type", 1)
        types = file.tensors.get("token_types.weight")
        return BERTConfig(
            vocab_size=read_vocab_size(file),
            eps=read_number(file, f"{arch}.attention.layer_norm_epsilon"),
            types=1 if types is None or len(types.shape) < 2 else types.shape[0],
            pooling=POOLINGS[pooling - 1] if pooling in (1, 2, 3) else "mean",
            pooler="cls.weight" in file.tensors or "cls.output.weight" not in file.tensors,
            **read_classes(file, arch),
            **sizes,
        )

    @classmethod
    def reads_hf(cls, model_type: str, architectures: list[str]) -> bool:
        """Return True where a folder names one of `HF_CLASSES`; see `Model.reads_hf`."""
        return bool(set(cls.HF_CLASSES) & set(architectures))

    @classmethod
    def config_from_hf(cls, given: HFConfig) -> BERTConfig:
        """Read the configuration from the fields of a `config.json`."""
        return read_hf_config(given)

    def hf_config(self) -> dict[str, Any]:
        """Return the fields of a `config.json`."""
        return write_hf_config(self.config, self.HF_CLASSES[0])

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors; see `Model.check_gguf`."""
        check_block_count(file, config.n_layer)
        check_tensor(file, "token_embd.weight", (config.vocab_size, config.n_embd))
        check_tensor(file, "position_embd.weight", (config.context, config.n_embd))
        check_tensor(file, "blk.0.ffn_up.weight", (config.ffn, config.n_embd))


_FOREIGN = ("pooler.", "cls.", "classifier.")
# The head of RoBERTa's classifier.
_ROBERTA = {"classifier.dense.": "pooler.dense.", "classifier.out_proj.": "classifier."}


def takes_flash(attention: str, x: Tensor, width: int) -> bool:
    """Return True if the fused attention op takes inputs like `x` with heads `width` wide."""
    return attention == "flash" or (attention == "auto" and computes_flash_attn(x.device, width))


class BERT(BERTModel, TextEncoder):
    """The bare encoder: a vector for each token, or for each sentence.

    Args:
        config: sizes.

    Shape:
        ids (B, T) i32 -> (B, T, C)

    Source: Devlin et al. 2018, arXiv:1810.04805.

    Example:
        >>> model = BERT(BERTConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 64)
    """

    arch = "bert"
    HF_CLASSES = ("BertModel",)

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        body = BERTBody(self.config)
        self.embeddings, self.encoder = body.embeddings, body.encoder

    def forward(
        self, ids: Tensor, *, attention_mask: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """Return a vector for each token.

        Args:
            ids: tokens.
            attention_mask: 1 where a token counts, 0 where it fills up; None counts all.
            types: the segment of each token; None is 0 for all.

        Shape:
            ids, attention_mask, types (B, T) i32 -> (B, T, C)

        Raises:
            ShapeError: a shape does not fit, or T exceeds the context.
        """
        return self._hidden(self, ids, attention_mask, types)

    def token_vectors(self, ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return a vector for each token; see `TextEncoder`."""
        vectors: Tensor = self(ids, attention_mask=attention_mask)
        return vectors
