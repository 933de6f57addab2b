# SPDX-License-Identifier: MIT
"""Llama and its family: rotary positions, gated feed-forward parts, grouped heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ... import nn, ops
from ...backend.device import Device
from ...io import GGUFFile
from ...nn import init
from ...nn.experts import Routing
from ...ops.attention import computes_flash_attn
from ...tensors import Tensor
from ..language import Decoder, LanguageModel, Mask, mask_of
from ..pooling import TextEncoder
from ..pretrained.fields import HFConfig
from . import files as llama_files
from . import hugging
from .blocks import Block, norm
from .config import LlamaConfig
from .families import FAMILIES
from .hf_config import read_hf_config, write_hf_config
from .hf_types import TYPES
from .stretched import gguf_extra

__all__ = ["Llama", "LlamaConfig", "LlamaModel"]


class _Decoder(nn.Module):
    """Embedding, blocks and the last norm, under Hugging Face's names."""

    def __init__(self, config: LlamaConfig) -> None:
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.n_embd, init_weight=init.gpt2(config.n_layer)
        )
        self.layers = [Block(config, i) for i in range(config.n_layer)]
        self.norm = norm(config)


# Names of a model without a head, such as Qwen3's embedding models.
_BARE = ("embed_tokens.", "layers.", "norm.")


class LlamaModel(Decoder, TextEncoder):
    """The base of Llama and its heads: reading tokens, and the names in files."""

    gguf_archs: ClassVar[tuple[str, ...] | None] = tuple(FAMILIES)
    config_class: ClassVar[type[LlamaConfig]] = LlamaConfig
    OWN_FIELDS: ClassVar[tuple[str, ...]] = ("router_aux", "window")
    EMBEDDING = "model.embed_tokens"
    GGUF_NAMES = llama_files.GGUF_NAMES

    def __init__(self, config: LlamaConfig, body: nn.Module | None = None) -> None:
        super().__init__(config)
        self.model: Any = _Decoder(config) if body is None else body

    @property
    def gguf_arch(self) -> str:
        """llama.cpp's name of the family."""
        return str(self.config.family)

    def _stream(
        self,
        ids: Tensor,
        positions: Tensor | None,
        mask: Mask,
        cache: nn.KVCache | None,
        routings: list[Routing] | None = None,
    ) -> Tensor:
        """Return what the head reads: the stream after the last norm, (B, T, C)."""
        config, body = self.config, self.model
        x = body.embed_tokens(ids)
        if config.input_scale != 1.0:
            x = ops.scale(x, config.input_scale)
        for i, block in enumerate(body.layers):
            own = cache.layers[i] if cache else None
            x = self._run_block(block, x, positions, mask_of(mask, block.window), own, routings)
        x = body.norm(x)
        return x if config.logit_scale == 1.0 else ops.scale(x, 1.0 / config.logit_scale)

    def token_vectors(self, ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return a vector for each token; see `TextEncoder`."""
        return self.hidden(ids)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The most tokens that a token attends to in any layer, itself included; None is all."""
        config = self.config
        return tuple({config.layer_window(i): None for i in range(config.n_layer)})

    def _takes_flash(self, where: Device) -> bool:
        """Return True if the fused attention op computes this model."""
        config = self.config
        if config.attention != "auto":
            return bool(config.attention == "flash")
        options = (config.attention_softcap > 0, config.traits.sinks)
        return computes_flash_attn(where, config.head_dim, *options)

    def state_dict(self, dequantise: bool = False) -> dict[str, np.ndarray]:
        """Copy the parameters under Hugging Face's names and in its layouts."""
        return self.hf_arrays(super().state_dict(dequantise))

    def hf_arrays(self, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return arrays of parameters under Hugging Face's names and in its layouts."""
        return hugging.to_theirs(self.config, super().hf_arrays(state))

    def _own_names(self, state: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """Return a state without old files' rotary tables, and in this model's layouts."""
        kept = {
            f"model.{n}" if n.startswith(_BARE) else n: a
            for n, a in state.items()
            if not n.endswith(".rotary_emb.inv_freq")
        }
        return hugging.to_ours(self.config, kept)

    @property
    def gguf_names(self) -> Mapping[str, str]:
        """The names in the model's own file; see `GGUF_NAMES`."""
        return {**self.GGUF_NAMES, **self.config.traits.names}

    def gguf_layout(self, name: str, array: np.ndarray, reading: bool) -> np.ndarray:
        """Turn a parameter's layout into llama.cpp's, or back when `reading`."""
        return llama_files.gguf_layout(self.config, name, array, reading)

    def gguf_extra(self) -> dict[str, np.ndarray]:
        """Return the tensors of RoPE divisors that llama.cpp expects in the file."""
        return gguf_extra(self.config)

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


class Llama(LlamaModel, LanguageModel):
    """The Llama language model, and the others of its family.

    Args:
        config: sizes, and which family.

    Shape:
        ids (B, T) i32 -> (B, T, V)

    Source: Touvron et al. 2023, arXiv:2302.13971; Qwen2: arXiv:2407.10671; Qwen3:
        arXiv:2505.09388; Mistral: arXiv:2310.06825; Mixtral: arXiv:2401.04088; Gemma:
        arXiv:2403.08295, arXiv:2408.00118, arXiv:2503.19786; Phi 3: arXiv:2404.14219; OLMo 2:
        arXiv:2501.00656; StarCoder 2: arXiv:2402.19173; StableLM 2: arXiv:2402.17834; gpt-oss:
        arXiv:2508.10925.

    Example:
        >>> model = Llama(LlamaConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 65)
    """

    arch = "llama"
    HF_TYPES = tuple(TYPES)

    @property
    def has_head_bias(self) -> bool:
        """True if the head has a bias."""
        return bool(self.config.traits.head_bias)

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self._add_head()

    @classmethod
    def reads_hf(cls, model_type: str, architectures: list[str]) -> bool:
        """Return True for a folder of a decoder; see `Model.reads_hf`."""
        return cls is Llama and not any("Classification" in name for name in architectures)

    @classmethod
    def config_from_hf(cls, given: HFConfig) -> LlamaConfig:
        """Read the configuration from the fields of a `config.json`."""
        return cls.config_class(**read_hf_config(given))

    def hf_config(self) -> dict[str, Any]:
        """Return the fields of a `config.json`."""
        return write_hf_config(self.config)

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
        loss = self._head_loss(x, targets, reduction)
        balance = ops.scale(nn.balance_loss(routings), share)
        return loss + (balance * _counted(targets) if reduction == "sum" else balance)


def _counted(targets: Tensor) -> Tensor:
    """Return the count of targets that are not ignored, a scalar of the graph."""
    away = ops.abs(ops.scale(ops.cast(targets, "f32"), 1.0, 100.0))  # from -100
    return ops.step(ops.scale(away, 1.0, -0.5)).sum()
