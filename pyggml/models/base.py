# SPDX-License-Identifier: MIT
"""LanguageModel: what every causal language model shares."""

from __future__ import annotations

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from .. import nn, ops
from ..device import Device
from ..device import device as find_device
from ..errors import BackendError, FormatError, ShapeError
from ..io import GGUFFile, u32, write_gguf
from ..ops._check import need_tensor
from ..recompute import checkpoint
from ..tensor import Tensor
from .config import ModelConfig

__all__ = ["LanguageModel"]

M = TypeVar("M", bound="LanguageModel")

# llama.cpp's enum llama_ftype (include/llama.h), by the type of the matrices.
_FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "bf16": 32,
}  # fmt: skip


class LanguageModel(nn.Module, ABC):
    """A model from token ids to the logits of the token after each.

    A subclass defines `forward`, `GGUF_NAMES` and the metadata both ways; parameters carry
    Hugging Face's names.

    Attributes:
        config: sizes.
        checkpointing: training keeps only the inputs of blocks and computes the rest again: True
            for every block, n for every n-th, beginning with the first; False or 0 for none.
        arch: llama.cpp's name of the architecture.
        config_class: type of `config`.
        GGUF_NAMES: own module path, {i} for the block's number, to llama.cpp's.
    """

    arch: ClassVar[str]
    config_class: ClassVar[type[ModelConfig]]
    GGUF_NAMES: ClassVar[dict[str, str]]

    def __init__(self, config: Any) -> None:
        who = type(self).__name__
        if not isinstance(config, self.config_class):
            wanted = self.config_class.__name__
            raise TypeError(f"{who}: config must be a {wanted}; got {type(config).__name__}")
        # What the matrices of the blocks take at least; a million small ones are refused at once.
        sizes: Any = config
        size = 8 * sizes.n_layer * sizes.n_embd * (sizes.n_embd + sizes.ffn)
        if not find_device("cpu").has_memory(size):
            raise BackendError(
                f"{who}: {sizes.n_layer} blocks take {size:,} bytes, more than is free;"
                " use a smaller n_layer or n_embd"
            )
        self.config = sizes
        self.checkpointing = False
        self._block_numbers: dict[int, int] = {}

    @property
    def checkpointing(self) -> bool | int:
        """Which blocks training computes twice."""
        return self._checkpointing

    @checkpointing.setter
    def checkpointing(self, every: bool | int) -> None:
        if not isinstance(every, int) or every < 0:
            raise ValueError(
                f"{type(self).__name__}: checkpointing must be True, False or n for every n-th "
                f"block; got {every!r}"
            )
        self._checkpointing = every

    @property
    def n_blocks(self) -> int:
        """Number of blocks that checkpointing can choose from."""
        return int(self.config.n_layer)

    def _number(self, block: nn.Module) -> int:
        """A block's place among its like: the number in its path."""
        if id(block) not in self._block_numbers:
            ends = ((path.rpartition(".")[2], module) for path, module in self.named_modules())
            self._block_numbers = {id(m): int(end) for end, m in ends if end.isdigit()}
        return self._block_numbers[id(block)]

    def _run_block(self, block: Any, x: Tensor, *args: Any) -> Tensor:
        """The stream after a block."""
        every = int(self.checkpointing)
        if every and self.training and self._number(block) % every == 0:
            return checkpoint(block, x, *args)  # type: ignore[no-any-return]
        return block(x, *args)  # type: ignore[no-any-return]

    @abstractmethod
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
        """Return the logits of the next token.

        Args:
            ids: tokens.
            positions: of the tokens; None is 0 to T - 1.
            mask: added to the attention scores; None is causal.
            segments: the number of each token's document: attention stays inside of it, and is
                causal. Positions that start anew with each document make a packed row the same as
                its documents apart; see `nn.segment_mask`.
            cache: keys and values of earlier tokens; needs positions and mask.
            rows: which of the B * T tokens to give logits for; None is all.

        Shape:
            ids (B, T) i32, positions (T,) or (B, T) i32, mask (T, S) or (B, 1, T, S) f32,
            segments (B, T) i32, rows (R,) i32 -> (B, T, V), or (R, V) with rows

        Raises:
            ShapeError: ids is not (B, T), T exceeds the context, or segments are not as ids.
            ValueError: segments with a mask.
        """

    @abstractmethod
    def gguf_config(self) -> dict[str, Any]:
        """Return the hyper-parameters under llama.cpp's keys."""

    @classmethod
    @abstractmethod
    def config_from_gguf(cls, file: GGUFFile) -> ModelConfig:
        """Read the configuration from a GGUF file's metadata.

        Raises:
            FormatError: a field is missing, or asks for what this model does not do.
        """

    @property
    def head_dim(self) -> int:
        """Width of an attention head."""
        return int(self.config.n_embd // self.config.n_head)

    def _mask(self, ids: Tensor, mask: Tensor | None, segments: Tensor | None) -> Tensor | None:
        """The mask of segments, recorded once for all blocks, or the given one."""
        if segments is None:
            return mask
        who = type(self).__name__
        if mask is not None:
            raise ValueError(f"{who}: give mask or segments, not both; segments make the mask")
        if need_tensor(who, "segments", segments).shape != ids.shape:
            raise ShapeError(f"{who}: segments must be as ids, {ids.shape}; got {segments.shape}")
        attention = getattr(self.config, "attention", "plain")
        flash = attention == "flash" or (attention == "auto" and ids.device.kind == "cpu")
        return nn.segment_mask(segments, "f16" if flash else "f32")

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
            ShapeError: ids and targets differ in shape.
        """
        if ids.shape != targets.shape:
            raise ShapeError(
                f"{type(self).__name__}.loss: ids and targets must have one shape; "
                f"got {ids.shape} and {targets.shape}"
            )
        logits = self(ids, positions=positions, segments=segments)
        return ops.cross_entropy(logits, targets, reduction=reduction)

    def new_cache(
        self, capacity: int | None = None, device: Device | str | None = None
    ) -> nn.KVCache:
        """Make an empty key-value cache; capacity None is the context."""
        groups = getattr(self.config, "n_kv_head", self.config.n_head)
        device = self.device if device is None else device
        return nn.KVCache(
            self.config.n_layer, capacity or self.config.context, groups, self.head_dim, device
        )

    @property
    def device(self) -> Device:
        """Where the parameters live."""
        return self.parameters()[0].device

    def gguf_name(self, name: str) -> str:
        """Return llama.cpp's name of an own parameter."""
        path, _, suffix = name.rpartition(".")
        found = re.search(r"\.(\d+)\.", path)
        number = found.group(1) if found else ""
        template = path.replace(f".{number}.", ".{i}.") if found else path
        return f"{self.GGUF_NAMES[template].format(i=number)}.{suffix}"

    def gguf_layout(self, name: str, array: np.ndarray, reading: bool) -> np.ndarray:
        """Turn a parameter's layout into llama.cpp's, or back when `reading`."""
        return array

    def gguf_zeros(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of the tensors that llama.cpp asks for and this model does not have.

        The file holds zeros for them.
        """
        return {}

    def to_gguf_metadata(
        self,
        tokenizer_metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "f32",
    ) -> dict[str, Any]:
        """Return a GGUF file's metadata: architecture, hyper-parameters, tokenizer.

        Args:
            tokenizer_metadata: what `Tokenizer.to_gguf_metadata` gives.
            name: the model's name, for people.
            dtype: type of the matrices.

        Raises:
            ValueError: llama.cpp has no file type for dtype.
        """
        if dtype not in _FILE_TYPES:
            raise ValueError(
                f"to_gguf_metadata: dtype must be one of {', '.join(_FILE_TYPES)}; got {dtype!r}"
            )
        general: dict[str, Any] = {
            "general.architecture": self.arch,
            "general.name": name or f"pyggml {self.arch}",
            "general.file_type": u32(_FILE_TYPES[dtype]),
        }
        if dtype.startswith("q"):
            general["general.quantization_version"] = u32(2)
        return {**general, **self.gguf_config(), **(tokenizer_metadata or {})}

    def to_gguf_tensors(self, dtype: str = "f32") -> dict[str, Any]:
        """Return the tensors of a GGUF file: names and layouts are llama.cpp's.

        Args:
            dtype: type of the matrices; vectors and positions stay f32, as llama.cpp's
                converter leaves them.
        """
        tensors: dict[str, Any] = {}
        for own, parameter in self.named_parameters():
            array = self.gguf_layout(own, parameter.numpy(), reading=False)
            name = self.gguf_name(own)
            keep = array.ndim < 2 or name.startswith("position_embd") or dtype == "f32"
            tensors[name] = array if keep else (dtype, array)
        zeros = {name: np.zeros(shape, np.float32) for name, shape in self.gguf_zeros().items()}
        return tensors | zeros

    def save_gguf(
        self,
        path: str | os.PathLike[str],
        tokenizer: Any = None,
        name: str | None = None,
        dtype: str = "f32",
    ) -> None:
        """Write a file that llama.cpp runs.

        Args:
            path: where; written beside, then renamed.
            tokenizer: a `pyggml.data.Tokenizer`; None writes no vocabulary, and llama.cpp
                then refuses the file.
            name: the model's name, for people.
            dtype: type of the matrices.

        Raises:
            ValueError: the tokenizer has more tokens than the model, or dtype is unknown.
            OSError: the file cannot be written.
        """
        vocabulary = None
        if tokenizer is not None:
            if tokenizer.vocab_size > self.config.vocab_size:
                raise ValueError(
                    "save_gguf: the tokenizer's tokens must be at most the model's vocab_size; "
                    f"got {tokenizer.vocab_size} and {self.config.vocab_size}"
                )
            vocabulary = tokenizer.to_gguf_metadata(vocab_size=self.config.vocab_size)
        metadata = self.to_gguf_metadata(vocabulary, name, dtype)
        write_gguf(path, metadata, self.to_gguf_tensors(dtype))

    @classmethod
    def from_gguf(cls: type[M], file: GGUFFile) -> M:
        """Build the model that a GGUF file holds; quantised weights become f32.

        Raises:
            FormatError: the file is of another architecture, or a field or tensor is missing,
                unexpected or of the wrong shape.
        """
        arch = file.metadata.get("general.architecture")
        if arch != cls.arch:
            raise FormatError(
                f"{file.path}: general.architecture must be {cls.arch!r}; got {arch!r}"
            )
        try:
            config = cls.config_from_gguf(file)
            _check_sizes(file, config)
            with nn.init.empty_weights():
                model = cls(config)
        except ValueError as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{file.path}: {error}") from error
        wanted = {model.gguf_name(own): (own, p) for own, p in model.named_parameters()}
        zeros = model.gguf_zeros()
        missing = [name for name in wanted if name not in file.tensors]
        unexpected = [name for name in file.tensors if name not in wanted and name not in zeros]
        if config_is_tied(config) and "output.weight" in unexpected:
            # Older converters write the tied head a second time; read_tie has compared the two.
            unexpected.remove("output.weight")
        if missing or unexpected:
            raise FormatError(
                f"{file.path}: the tensors must be those of {cls.arch}; "
                f"missing {missing[:8]}, unexpected {unexpected[:8]}"
            )
        for name in zeros:
            if name in file.tensors and np.any(file.array(name, dequantise=True)):
                raise FormatError(
                    f"{file.path}: tensor {name} must be zeros, as by the metadata the model has "
                    "no such; got other numbers"
                )
        for name, (own, parameter) in wanted.items():
            check_tensor(file, name, parameter.shape)
            array = np.asarray(file.array(name, dequantise=True), np.float32)
            array = array.reshape(parameter.shape)
            parameter.copy_(model.gguf_layout(own, array, reading=True))
        return model


def check_tensor(file: GGUFFile, name: str, shape: tuple[int, ...]) -> None:
    """Raise a FormatError unless the file holds a tensor of this shape."""
    got = tuple(file.tensors[name].shape) if name in file.tensors else ()
    # GGUF keeps no leading extents of one.
    if (1,) * (len(shape) - len(got)) + got != shape:
        raise FormatError(
            f"{file.path}: tensor {name} must have the shape {shape} by the file's own "
            f"metadata; got {got or 'no such tensor'}"
        )


def _check_sizes(file: GGUFFile, config: Any) -> None:
    """Hold the metadata against the tensors, before memory is taken by the metadata's word."""
    blocks = {name.split(".")[1] for name in file.tensors if name.startswith("blk.")}
    if len(blocks) != config.n_layer:
        raise FormatError(
            f"{file.path}: {file.metadata['general.architecture']}.block_count must be the "
            f"number of blocks that there are, {len(blocks)}; got {config.n_layer}"
        )
    check_tensor(file, "token_embd.weight", (config.vocab_size, config.n_embd))
    check_tensor(file, "blk.0.ffn_up.weight", (config.ffn, config.n_embd))
    if "position_embd.weight" in file.tensors:
        check_tensor(file, "position_embd.weight", (config.context, config.n_embd))


def config_is_tied(config: Any) -> bool:
    """Whether the head is the embedding table."""
    return bool(getattr(config, "tie", False))


def check_ids(where: str, ids: Tensor, context: int) -> tuple[int, int]:
    """Return (B, T) of token ids that fit the context."""
    if ids.ndim != 2:
        raise ShapeError(f"{where}: ids must be (B, T); got {ids.shape}; add the batch axis")
    if ids.shape[1] > context:
        raise ShapeError(
            f"{where}: ids must be at most the context long; got T={ids.shape[1]}, "
            f"context={context}; shorten the sequences or build with a longer context"
        )
    return ids.shape[0], ids.shape[1]


def read_sizes(file: GGUFFile, arch: str, keys: Mapping[str, str]) -> dict[str, int]:
    """Read positive integers from a file's metadata: field of the configuration -> key."""
    sizes = {}
    for field, key in keys.items():
        value = file.metadata.get(f"{arch}.{key}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise FormatError(f"{file.path}: {arch}.{key} must be an integer >= 1; got {value!r}")
        sizes[field] = value
    return sizes


def read_number(file: GGUFFile, key: str, default: float | None = None) -> float:
    """Read a positive finite number from a file's metadata."""
    value = file.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"{file.path}: {key} must be a number; got {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise FormatError(f"{file.path}: {key} must be finite and > 0; got {value!r}")
    # A float of the file is f32: its shortest decimal is the number that was meant.
    return float(str(np.float32(value)))


def read_vocab_size(file: GGUFFile) -> int:
    """Read the vocabulary's size off the embedding table."""
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) > 2:
        raise FormatError(f"{file.path}: the tensor token_embd.weight must be there and 2-d")
    return int(table.shape[0]) if len(table.shape) == 2 else 1


def read_tie(file: GGUFFile) -> bool:
    """Whether the head is the embedding: there is no head of its own, or it is a copy."""
    if "output.weight" not in file.tensors:
        return True
    if "token_embd.weight" not in file.tensors:
        return False
    head, table = file.tensors["output.weight"], file.tensors["token_embd.weight"]
    if tuple(head.shape) != tuple(table.shape):
        return False
    return bool(
        np.array_equal(
            file.array("output.weight", dequantise=True),
            file.array("token_embd.weight", dequantise=True),
        )
    )
