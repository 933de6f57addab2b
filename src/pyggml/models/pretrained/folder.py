# SPDX-License-Identifier: MIT
"""HasFolder: the part of a model that is about Hugging Face folders."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from ...errors import FormatError
from .fields import HFConfig
from .write import save_folder

__all__ = ["HasFolder"]


class HasFolder:
    """A model that transformers may have, too.

    A subclass with `HF_TYPES` defines `config_from_hf` and `hf_config`.

    Attributes:
        HF_TYPES: `model_type` of the folders that this class reads.
    """

    HF_TYPES: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def state_dict(self, dequantise: bool = False) -> dict[str, np.ndarray]:
        """Copy the parameters; see `nn.Module.state_dict`."""

    @classmethod
    def reads_hf(cls, model_type: str, architectures: list[str]) -> bool:
        """Return True if this class, of those with one `model_type`, reads a Hugging Face folder.

        Args:
            model_type: of its `config.json`.
            architectures: transformers' classes that it names.
        """
        return True

    @classmethod
    def config_from_hf(cls, given: HFConfig) -> Any:
        """Read the configuration from the fields of a `config.json`.

        Raises:
            FormatError: a field is missing, or asks for what this model does not do.
        """
        raise FormatError(f"{given.path}: transformers has no {cls.__name__}")

    def hf_config(self) -> dict[str, Any]:
        """Return the fields of a `config.json`.

        Raises:
            ValueError: transformers has no such model.
        """
        raise ValueError(f"save_pretrained: transformers has no {type(self).__name__}; use save")

    @property
    def vector_pooling(self) -> str | None:
        """The pooling that makes one vector of a text; None if it makes something else."""
        return None

    def hf_state(self) -> dict[str, np.ndarray]:
        """Copy the parameters as transformers' class of `hf_config` has them."""
        return self.state_dict(dequantise=True)

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        tokenizer: Any = None,
        dtype: str = "f32",
        max_shard_bytes: int = 5_000_000_000,
    ) -> None:
        """Write a Hugging Face folder: `AutoModel` and `AutoTokenizer` open it, and `load` does.

        Args:
            folder: where; it is made when missing. `config.json` is written last.
            tokenizer: a `pyggml.data.Tokenizer`; None writes none.
            dtype: type of the matrices: "f32", "f16" or "bf16".
            max_shard_bytes: largest file of weights; larger models have several.

        Raises:
            ValueError: transformers has no such model, or computes another thing; dtype is
                unknown, or there are LoRA adapters: merge them, or `save_lora` writes them alone.
            OSError: a file cannot be written.

        Example:
            >>> model.save_pretrained("folder")
            >>> again, tokenizer = load("folder")
            >>> type(again) is type(model), tokenizer
            (True, None)
        """
        save_folder(self, folder, tokenizer, dtype, max_shard_bytes)
