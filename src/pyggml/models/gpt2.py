# SPDX-License-Identifier: MIT
"""GPT-2: learned positions, layer norms first, GELU, tied head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import nn
from ..errors import FormatError
from ..io import GGUFFile, f32, u32
from ..nn import init
from ..nn.attention import check_attention, check_heads
from ..nn.layers import check_eps, check_sizes
from ..nn.masks import position_ids
from ..tensors import Tensor
from .config import ModelConfig
from .files import read_number, read_sizes, read_tie, read_vocab_size
from .language import LanguageModel, Mask, mask_of
from .pretrained.fields import HFConfig

__all__ = ["GPT2", "GPT2Config"]

_BIAS_KEY = "pyggml.gpt2.bias"
# Fields in transformers' config.json, and those of what is computed in one way only.
_HF_SIZES = {
    "vocab_size": "vocab_size", "context": "n_positions", "n_embd": "n_embd", "n_layer": "n_layer",
    "n_head": "n_head",
}  # fmt: skip
_HF_ONLY = {
    "activation_function": "gelu_new", "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False,
}  # fmt: skip


@dataclass(frozen=True)
class GPT2Config(ModelConfig):
    """Sizes of a GPT-2.

    Args:
        vocab_size: V, tokens.
        context: longest sequence.
        n_embd: C, width of the stream.
        n_layer: L, blocks.
        n_head: H, heads; must divide n_embd.
        n_ffn: width inside the feed-forward part; None is 4 * n_embd.
        eps: of the layer norms.
        tie: the head is the embedding table.
        bias: learn biases in the projections and the norms, as OpenAI's models do; nanoGPT's do
            not by default. A GGUF file holds zeros in their place, which llama.cpp asks for.
        attention: "plain", "flash", which stores no T × T scores, or "auto"; see
            `nn.CausalSelfAttention`.
        dropout: while training, the share dropped of the embeddings and of what each half of a
            block adds.

    Raises:
        ValueError: a size is not a positive integer, the heads do not divide the width, the
            attention is unknown, tie or bias is no bool, or dropout is not from 0 to below 1.

    Source: Radford et al. 2019; the presets' sizes are OpenAI's.

    Example:
        >>> GPT2Config.preset("tiny", vocab_size=65).n_embd
        128
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"context": 64, "n_embd": 128, "n_layer": 4, "n_head": 4},
        "small": {"context": 256, "n_embd": 384, "n_layer": 6, "n_head": 6},
        "gpt2-124m": {"context": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12},
        "gpt2-355m": {"context": 1024, "n_embd": 1024, "n_layer": 24, "n_head": 16},
        "gpt2-774m": {"context": 1024, "n_embd": 1280, "n_layer": 36, "n_head": 20},
        "gpt2-1558m": {"context": 1024, "n_embd": 1600, "n_layer": 48, "n_head": 25},
    }

    vocab_size: int = 50257
    context: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_ffn: int | None = None
    eps: float = 1e-5
    tie: bool = True
    bias: bool = True
    attention: str = "auto"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        self.check_kinds()
        check_heads("GPT2Config", self.n_embd, self.n_head, self.n_head, rope=False)
        if self.n_ffn is None:
            object.__setattr__(self, "n_ffn", 4 * self.n_embd)
        check_sizes(
            "GPT2Config",
            vocab_size=self.vocab_size,
            context=self.context,
            n_layer=self.n_layer,
            n_ffn=self.ffn,
        )
        check_eps("GPT2Config", self.eps)
        check_attention("GPT2Config", self.attention)
        nn.Dropout(self.dropout)

    @property
    def ffn(self) -> int:
        """Width inside the feed-forward part."""
        return 4 * self.n_embd if self.n_ffn is None else self.n_ffn

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.n_embd // self.n_head

    def count_parameters(self) -> int:
        """Count a model's parameters without building it."""
        width = self.n_embd
        block = 4 * width * width + 2 * width * self.ffn + 9 * width + self.ffn
        tables = self.vocab_size * (1 if self.tie else 2) + self.context
        return tables * width + self.n_layer * block + 2 * width


class _Block(nn.Module):
    """x + attn(ln_1(x)), then x + mlp(ln_2(x))."""

    def __init__(self, config: GPT2Config) -> None:
        drawn = init.gpt2(config.n_layer)
        residual = init.gpt2(config.n_layer, residual=True)
        self.ln_1 = nn.LayerNorm(config.n_embd, config.eps, bias=config.bias)
        self.attn = nn.CausalSelfAttention(
            config.n_embd,
            config.n_head,
            bias=config.bias,
            fused=True,
            attention=config.attention,
            init_weight=drawn,
            init_out=residual,
        )
        self.ln_2 = nn.LayerNorm(config.n_embd, config.eps, bias=config.bias)
        self.mlp = nn.GELUMLP(config.n_embd, config.ffn, config.bias, drawn, residual)
        self.drop = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, cache: nn.LayerCache | None
    ) -> Tensor:
        """Return the stream after the block."""
        seen = self.attn(self.ln_1(x), positions=positions, mask=mask, cache=cache)
        x = x + self.drop(seen)
        added: Tensor = self.drop(self.mlp(self.ln_2(x)))
        return x + added


class _Transformer(nn.Module):
    """Embeddings, blocks and the last norm, under Hugging Face's names."""

    def __init__(self, config: GPT2Config) -> None:
        drawn = init.gpt2(config.n_layer)
        self.wte = nn.Embedding(config.vocab_size, config.n_embd, init_weight=drawn)
        self.wpe = nn.Embedding(config.context, config.n_embd, init_weight=drawn)
        self.drop = nn.Dropout(config.dropout)
        self.h = [_Block(config) for _ in range(config.n_layer)]
        self.ln_f = nn.LayerNorm(config.n_embd, config.eps, bias=config.bias)


class GPT2(LanguageModel):
    """The GPT-2 language model.

    Args:
        config: sizes.

    Shape:
        ids (B, T) i32 -> (B, T, V)

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".

    Example:
        >>> model = GPT2(GPT2Config.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 65)
    """

    arch = "gpt2"
    config_class = GPT2Config
    HF_TYPES = ("gpt2",)
    OWN_FIELDS = ("dropout",)
    EMBEDDING = "transformer.wte"
    GGUF_NAMES: ClassVar[dict[str, str]] = {
        "transformer.wte": "token_embd",
        "transformer.wpe": "position_embd",
        "transformer.h.{i}.ln_1": "blk.{i}.attn_norm",
        "transformer.h.{i}.attn.c_attn": "blk.{i}.attn_qkv",
        "transformer.h.{i}.attn.c_proj": "blk.{i}.attn_output",
        "transformer.h.{i}.ln_2": "blk.{i}.ffn_norm",
        "transformer.h.{i}.mlp.c_fc": "blk.{i}.ffn_up",
        "transformer.h.{i}.mlp.c_proj": "blk.{i}.ffn_down",
        "transformer.ln_f": "output_norm",
        "lm_head": "output",
    }

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.transformer = _Transformer(config)
        self._add_head()

    def _stream(
        self,
        ids: Tensor,
        positions: Tensor | None,
        mask: Mask,
        cache: nn.KVCache | None,
    ) -> Tensor:
        """Return the stream after the last norm, (B, T, C)."""
        body = self.transformer
        positions = position_ids(ids.shape[1], ids.device) if positions is None else positions
        x = body.drop(body.wte(ids) + body.wpe(positions))
        for i, block in enumerate(body.h):
            own = cache.layers[i] if cache else None
            x = self._run_block(block, x, positions, mask_of(mask, None), own)
        return body.ln_f(x)  # type: ignore[no-any-return]

    def state_dict(self, dequantise: bool = False) -> dict[str, np.ndarray]:
        """Copy the parameters in Hugging Face's layout: its Conv1D weights are (in, out)."""
        return {
            name: _conv1d(name, array) for name, array in super().state_dict(dequantise).items()
        }

    def _own_names(self, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return a state of Hugging Face's layout as the model has it.

        OpenAI's own file lacks "transformer."; old files hold causal masks.
        """
        clean: dict[str, ArrayLike] = {}
        for name, array in state.items():
            if name.endswith((".attn.bias", ".attn.masked_bias")):
                continue
            known = name == "lm_head.weight" or name.startswith("transformer.")
            clean[name if known else f"transformer.{name}"] = _conv1d(name, np.asarray(array))
        return clean

    def _no_biases(self) -> dict[str, tuple[int, ...]]:
        """The biases that a model without any lacks, with their shapes."""
        if self.config.bias:
            return {}
        return {
            f"{path}.bias": module.weight.shape[:1]
            for path, module in self.named_modules()
            if isinstance(module, (nn.Linear, nn.LayerNorm)) and module.weight is not None
            if path != "lm_head"
        }

    def gguf_zeros(self) -> dict[str, tuple[int, ...]]:
        """Return the biases of a model without any: llama.cpp's GPT-2 asks for them."""
        return {self.gguf_name(name): shape for name, shape in self._no_biases().items()}

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        config = self.config
        own = {} if config.bias else {_BIAS_KEY: False}
        return {
            **own,
            "gpt2.block_count": u32(config.n_layer),
            "gpt2.context_length": u32(config.context),
            "gpt2.embedding_length": u32(config.n_embd),
            "gpt2.feed_forward_length": u32(config.ffn),
            "gpt2.attention.head_count": u32(config.n_head),
            "gpt2.attention.layer_norm_epsilon": f32(config.eps),
        }

    @classmethod
    def config_from_hf(cls, given: HFConfig) -> GPT2Config:
        """Read the configuration from the fields of a `config.json`."""
        for key, value in _HF_ONLY.items():
            given.only(key, value)
        sizes: dict[str, Any] = {own: given.size(key) for own, key in _HF_SIZES.items()}
        return GPT2Config(
            **sizes,
            n_ffn=given.size("n_inner", 4 * sizes["n_embd"]),
            eps=given.number("layer_norm_epsilon", 1e-5),
            tie=given.flag("tie_word_embeddings", True),
            dropout=given.number("resid_pdrop", 0.1),
        )

    def hf_config(self) -> dict[str, Any]:
        """Return the fields of a `config.json`."""
        config = self.config
        return {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            **{key: getattr(config, own) for own, key in _HF_SIZES.items()},
            **_HF_ONLY,
            "n_inner": config.ffn,
            "layer_norm_epsilon": config.eps,
            "tie_word_embeddings": config.tie,
            "resid_pdrop": config.dropout,
            "embd_pdrop": config.dropout,
            "attn_pdrop": 0.0,
        }

    def hf_state(self) -> dict[str, np.ndarray]:
        """Copy the parameters, with zeros for the biases that transformers' GPT-2 always has."""
        zeros = {name: np.zeros(shape, np.float32) for name, shape in self._no_biases().items()}
        return {**self.state_dict(dequantise=True), **zeros}

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> GPT2Config:
        """Read the configuration from a GGUF file's metadata."""
        sizes: dict[str, Any] = read_sizes(
            file,
            "gpt2",
            {
                "n_layer": "block_count",
                "context": "context_length",
                "n_embd": "embedding_length",
                "n_ffn": "feed_forward_length",
                "n_head": "attention.head_count",
            },
        )
        return GPT2Config(
            vocab_size=read_vocab_size(file),
            eps=read_number(file, "gpt2.attention.layer_norm_epsilon"),
            tie=read_tie(file),
            bias=_read_bias(file),
            **sizes,
        )


def _read_bias(file: GGUFFile) -> bool:
    """Return True for a model with biases, by this project's own key, which llama.cpp ignores."""
    bias = file.metadata.get(_BIAS_KEY, True)
    if not isinstance(bias, bool):
        raise FormatError(f"{file.path}: {_BIAS_KEY} must be true or false; got {bias!r}")
    return bias


def _conv1d(name: str, array: np.ndarray) -> np.ndarray:
    """Transpose what Hugging Face's GPT-2 keeps as Conv1D; its own inverse."""
    if array.ndim == 2 and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return np.ascontiguousarray(array.T)
    return array
