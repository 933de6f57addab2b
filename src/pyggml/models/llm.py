# SPDX-License-Identifier: MIT
"""LLM: a Llama with default sizes, as a first model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..io import GGUFFile
from .files import read_scalar
from .llama.model import Llama, LlamaConfig

__all__ = ["LLM", "LLMConfig"]

_MARK = "pyggml.model"


@dataclass(frozen=True)
class LLMConfig(LlamaConfig):
    """Sizes of an LLM: those of `LlamaConfig` with other defaults.

    Width 512, 6 blocks of 8 heads, context 512, 2048 inside the feed-forward part, norms with an
    eps of 1e-6. Attention is causal, and `n_kv_head` may be fewer than `n_head`.

    Args:
        vocab_size: V, tokens.
        context: longest sequence.
        n_embd: C, width of the stream.
        n_layer: L, blocks.
        n_head: H, query heads; must divide n_embd into even head sizes.
        n_kv_head: key-value heads; must divide n_head; None is n_head.
        n_ffn: width inside the feed-forward part.

    Raises:
        ValueError: as `LlamaConfig`.

    Example:
        >>> LLMConfig(vocab_size=1000, n_kv_head=2).n_embd
        512
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": {"context": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_ffn": 256},
        "default": {},
    }

    vocab_size: int = 32000
    context: int = 512
    n_embd: int = 512
    n_layer: int = 6
    n_head: int = 8
    n_ffn: int | None = 2048
    eps: float = 1e-6


class LLM(Llama):
    """A Llama with the sizes of `LLMConfig`; llama.cpp runs its file as one.

    Args:
        config: sizes; None has the defaults.

    Shape:
        ids (B, T) i32 -> (B, T, V)

    Source: Touvron et al. 2023, arXiv:2302.13971.

    Example:
        >>> model = LLM(LLMConfig.preset("tiny", vocab_size=65))
        >>> model(tensor([[1, 2, 3]])).shape
        (1, 3, 65)
    """

    arch = "llm"
    gguf_archs = ("llama",)
    config_class = LLMConfig

    def __init__(self, config: LLMConfig | None = None) -> None:
        super().__init__(LLMConfig() if config is None else config)

    @property
    def gguf_arch(self) -> str:
        """llama.cpp's name of the architecture."""
        return "llama"

    @classmethod
    def reads(cls, file: GGUFFile) -> bool:
        """Return True for a file that an LLM wrote."""
        return bool(read_scalar(file, _MARK) == cls.arch)

    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""
        return {**super().gguf_config(), _MARK: self.arch}
