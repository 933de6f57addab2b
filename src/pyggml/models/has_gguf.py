# SPDX-License-Identifier: MIT
"""HasGGUF: the part of a model that is about GGUF files."""

from __future__ import annotations

import os
import re
from abc import ABC
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from .. import checks, nn
from ..backend.device import alone
from ..backend.dtypes import as_dtype
from ..errors import FormatError, shown
from ..io import Encoded, GGUFFile, u32, write_gguf
from ..nn.raw_bytes import blocks_of, from_blocks, over_blocks
from ..tensors import Tensor
from .config import ModelConfig
from .files import (
    check_finite,
    check_tensor,
    config_metadata,
    keeps_type,
    matrix_type,
    own_metadata,
    read_config,
    read_own,
)
from .llama_cpp import check_saving
from .metadata import FILE_TYPES, common_type, file_type, kept_metadata, kept_vocabulary

__all__ = ["HasGGUF"]

M = TypeVar("M", bound="HasGGUF")


class HasGGUF(nn.Module, ABC):
    """A module whose weights and configuration one GGUF file holds.

    Where llama.cpp has the architecture, a subclass says how parameters and configuration are named
    there; otherwise both keep their own names.

    Attributes:
        config: sizes.
        metadata: of the file that the model was read from: it is written again, under what the
            configuration says. Change it to name an author, a licence or a chat template.
        trained: whether the weights are others than the file's: a `TrainStep` and `load_lora` set
            it; set it in a loop of your own. The next file then has a name with a suffix, and
            `general.base_model` names the model that was trained.
        arch: name of the architecture, the key in `pyggml.models.MODELS`.
        gguf_archs: what files that this class reads call it; None is `arch` alone.
        config_class: type of `config`.
        GGUF_NAMES: own path of a module, or of a parameter that has none of its own, {i} for the
            block's number, to that in the file; empty where the file has the own names.
        OWN_FIELDS: fields of the configuration that no key of llama.cpp holds; the file has those
            that are not at their default as `pyggml.field`.
    """

    arch: ClassVar[str]
    gguf_archs: ClassVar[tuple[str, ...] | None] = None
    config_class: ClassVar[type[ModelConfig]]
    GGUF_NAMES: ClassVar[dict[str, str]] = {}
    OWN_FIELDS: ClassVar[tuple[str, ...]] = ()
    config: Any
    # Private, as modules are looked for in public attributes, and a vocabulary is long.
    _metadata: dict[str, Any]
    trained: bool = False
    # Type of most matrices of the file.
    _read_type: str | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the file that the model was read from."""
        return self._metadata

    @metadata.setter
    def metadata(self, given: dict[str, Any]) -> None:
        self._metadata = given

    @property
    def gguf_arch(self) -> str:
        """The architecture's name in the model's own file."""
        return self.arch

    @classmethod
    def reads(cls, file: GGUFFile) -> bool:
        """Return True if this class, of those that share an architecture's name, reads a file."""
        return True

    def gguf_config(self) -> dict[str, Any]:
        """Return the configuration as metadata of a GGUF file."""
        return config_metadata(self.gguf_arch, self.config)

    @classmethod
    def config_from_gguf(cls, file: GGUFFile) -> ModelConfig:
        """Read the configuration from a GGUF file's metadata.

        Raises:
            FormatError: a field is missing, or asks for what this model does not do.
        """
        return read_config(file, cls.arch, cls.config_class)

    @classmethod
    def check_gguf(cls, file: GGUFFile, config: Any) -> None:
        """Compare the metadata with the tensors before memory is allocated.

        Raises:
            FormatError: they do not agree.
        """

    @property
    def gguf_names(self) -> Mapping[str, str]:
        """The names in the model's own file; see `GGUF_NAMES`."""
        return self.GGUF_NAMES

    def gguf_name(self, name: str) -> str:
        """Return the name in the file of an own parameter or buffer."""
        checks.text("gguf_name", "name", name)
        names = self.gguf_names
        if not names:
            return name
        found = re.search(r"\.(\d+)\.", name)
        number = found.group(1) if found else ""
        template = name.replace(f".{number}.", ".{i}.", 1) if found else name
        if template in names:  # a parameter that is no module's weight
            return names[template].format(i=number)
        path, _, suffix = template.rpartition(".")
        if path not in names:
            raise KeyError(
                f"gguf_name: name must be that of a parameter or buffer; got {shown(name)}"
            )
        return f"{names[path].format(i=number)}.{suffix}"

    def gguf_layout(self, name: str, array: np.ndarray, reading: bool) -> np.ndarray:
        """Turn a parameter's layout into the file's, or back when `reading`.

        A matrix may be given as the bytes of its quantised rows: rows may be moved, and no more.
        """
        return array

    def gguf_extra(self) -> dict[str, np.ndarray]:
        """Return the tensors of a file that are computed from the configuration."""
        return {}

    def gguf_copies(self) -> dict[str, str]:
        """Return the names that a file has for a second copy of a parameter, with its own name."""
        return {}

    def gguf_zeros(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the tensors that llama.cpp needs and this model lacks.

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
            tokenizer_metadata: what `Tokenizer.to_gguf_metadata` gives; None has the vocabulary
                of the file that the model was read from.
            name: the model's name, for people; None keeps that of the file.
            dtype: type of the matrices.

        Raises:
            ValueError: llama.cpp has no file type for dtype, or the model has LoRA adapters.
        """
        checks.choice("to_gguf_metadata", "dtype", dtype, FILE_TYPES)
        nn.lora.need_no_adapters("to_gguf_metadata", self)
        read = checks.mapping(type(self).__name__, "metadata", self.metadata)
        kept = kept_metadata(read, self.trained, name)
        general: dict[str, Any] = {"general.architecture": self.gguf_arch}
        general |= {"general.name": kept.get("general.name", f"pyggml {self.arch}")}
        state = [(own, value) for own, value in self.named_state()]
        kinds = [(self._file_dtype(own, v, v.ndim, dtype) or "f32", v.shape) for own, v in state]
        number = file_type(
            common_type(kinds) or dtype, self._read_type, read.get("general.file_type")
        )
        if number is not None:
            general["general.file_type"] = number
        if any(as_dtype(kind).quantized for kind, _ in kinds):
            general["general.quantization_version"] = u32(2)
        else:
            kept.pop("general.quantization_version", None)
        own = {**self.gguf_config(), **own_metadata(self.config, self.OWN_FIELDS)}
        size = getattr(self.config, "vocab_size", None)
        return {**kept, **general, **own, **kept_vocabulary(read, tokenizer_metadata, size)}

    def _file_dtype(self, own: str, value: Tensor, ndim: int, dtype: str) -> str | None:
        """Return the type in a file whose matrices are `dtype`; None for what is always f32."""
        if value.dtype.quantized or value.dtype.name in ("f16", "bf16"):
            return value.dtype.name
        matrix = ndim in (2, 3) and _KEPT_F32.isdisjoint(self.gguf_name(own).split("."))
        return dtype if matrix else None

    def to_gguf_tensors(self, dtype: str = "f32") -> dict[str, Any]:
        """Return the tensors of a GGUF file, under its names and in its layouts.

        Args:
            dtype: type of the matrices; vectors, positions and their distances, routers and
                kernels stay f32, as llama.cpp leaves them. Those that `from_gguf` kept in a type
                of a file go back as they are.

        Raises:
            ValueError: the model has LoRA adapters, which a model's file has no place for.
        """
        nn.lora.need_no_adapters("to_gguf_tensors", self)
        checks.text("to_gguf_tensors", "dtype", dtype)
        tensors: dict[str, Any] = {}
        with alone():  # between two steps of a training
            for own, value in self.named_state():
                name = self.gguf_name(own)
                if value.dtype.quantized:
                    data = self.gguf_layout(own, blocks_of(value), reading=False)
                    tensors[name] = Encoded(value.dtype.name, data)
                    continue
                array = self.gguf_layout(own, value.numpy(), reading=False)
                kind = self._file_dtype(own, value, array.ndim, dtype)
                tensors[name] = array if kind in (None, "f32") else (kind, array)
        copies = {name: tensors[self.gguf_name(own)] for name, own in self.gguf_copies().items()}
        zeros = {name: np.zeros(shape, np.float32) for name, shape in self.gguf_zeros().items()}
        return {**tensors, **copies, **self.gguf_extra(), **zeros}

    def save_gguf(
        self,
        path: str | os.PathLike[str],
        tokenizer: Any = None,
        name: str | None = None,
        dtype: str = "f32",
        strict: bool | None = False,
        max_part_bytes: int | None = None,
    ) -> list[Path]:
        """Write the model into a GGUF file, which llama.cpp runs where it has the architecture.

        Args:
            path: where; written beside, then renamed.
            tokenizer: a `pyggml.data.Tokenizer`; None writes the vocabulary of the file that the
                model was read from, if it has one; llama.cpp does not load a file without.
            name: the model's name, for people; None keeps that of the file.
            dtype: type of the matrices; those that were kept in a type of a file have it still.
            strict: raise where llama.cpp would load the file and compute another thing, which is a
                warning otherwise; None also writes what llama.cpp would refuse. See
                `check_gguf`.
            max_part_bytes: most bytes of weights in a file; with more there are several, which
                `load` opens by the first. None writes one.

        Returns:
            The files.

        Raises:
            ValueError: the tokenizer has more tokens than the model, dtype is unknown, llama.cpp
                would refuse the file, or the model has LoRA adapters: merge them, or `save_lora`
                writes them alone.
            ShapeError: rows are no whole blocks of dtype.
            OSError: the file cannot be written.
        """
        vocabulary = None
        if tokenizer is not None:
            vocab_size = getattr(self.config, "vocab_size", None)
            if vocab_size is None:
                raise ValueError(
                    f"save_gguf: a {type(self).__name__} reads no tokens; leave the tokenizer out"
                )
            checks.having(
                "save_gguf", "tokenizer", tokenizer, "a Tokenizer", "vocab_size", "to_gguf_metadata"
            )
            if tokenizer.vocab_size > vocab_size:
                raise ValueError(
                    "save_gguf: the tokenizer's tokens must be at most the model's vocab_size; "
                    f"got {tokenizer.vocab_size} and {vocab_size}"
                )
            vocabulary = tokenizer.to_gguf_metadata(vocab_size=vocab_size)
        metadata = self.to_gguf_metadata(vocabulary, name, dtype)
        check_saving("save_gguf", metadata, self._file_shapes(), strict)
        return write_gguf(path, metadata, self.to_gguf_tensors(dtype), max_part_bytes)

    def check_saving(self) -> None:
        """Raise now for what `save_gguf` would raise for after hours of training.

        Raises:
            ValueError: llama.cpp would refuse the file.
        """
        check_saving(type(self).__name__, self.to_gguf_metadata(), self._file_shapes(), False)

    def _file_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the file's tensors."""
        shapes: dict[str, tuple[int, ...]] = {}
        for own, value in self.named_state():
            probe = np.broadcast_to(np.float32(0.0), value.shape)  # takes no memory
            shapes[self.gguf_name(own)] = self.gguf_layout(own, probe, reading=False).shape
        copies = {name: shapes[self.gguf_name(own)] for name, own in self.gguf_copies().items()}
        extra = {name: array.shape for name, array in self.gguf_extra().items()}
        return {**shapes, **copies, **extra, **self.gguf_zeros()}

    def save(
        self,
        path: str | os.PathLike[str],
        tokenizer: Any = None,
        dtype: str = "f32",
        strict: bool | None = False,
        max_part_bytes: int | None = None,
    ) -> None:
        """Write the model with its configuration, for `pyggml.models.load`; see `save_gguf`.

        Example:
            >>> model.save("model.gguf")
            >>> again, tokenizer = load("model.gguf")
            >>> type(again) is type(model), tokenizer
            (True, None)
        """
        self.save_gguf(path, tokenizer, None, dtype, strict, max_part_bytes)

    @classmethod
    def from_gguf(
        cls: type[M],
        file: GGUFFile,
        keep_types: bool = False,
        check: bool = False,
        mapped: bool = False,
    ) -> M:
        """Build the model that a GGUF file holds; quantised weights become f32.

        Args:
            file: the file.
            keep_types: leave f16, bf16 and quantised matrices as they are, which takes their
                memory and no more; they are frozen. Vectors and tables of positions become f32.
            check: look for NaN and infinite weights.
            mapped: use the matrices that are kept where they lie in the file, which must be open
                as `private`; see `load`.

        Raises:
            FormatError: the file is of another architecture, or a field or tensor is missing,
                unexpected or of the wrong shape; with check: a weight is not finite.
        """
        checks.flag("load", "check", check)
        checks.having("from_gguf", "file", file, "a GGUFFile", "metadata", "tensors", "path")
        archs = cls.gguf_archs or (cls.arch,)
        arch = file.metadata.get("general.architecture")
        if not isinstance(arch, str) or arch not in archs:
            wanted = " or ".join(map(repr, archs))
            raise FormatError(
                f"{file.path}: general.architecture must be {wanted}; got {shown(arch)}"
            )
        try:
            config = read_own(file, cls.config_from_gguf(file), cls.OWN_FIELDS)
            cls.check_gguf(file, config)
            if check:
                check_finite(file)
            shapes = [(info.dtype, info.shape) for info in file.tensors.values()]
            with nn.init.empty_weights(matrix_type(shapes) if keep_types else None):
                model = cls(config)  # type: ignore[call-arg]
        except (TypeError, ValueError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{file.path}: {error}") from error
        model._read_tensors(file, keep_types, mapped)
        model.metadata = file.typed_metadata
        model._read_type = common_type((t.dtype, t.shape) for t in file.tensors.values())
        return model

    def _read_tensors(self, file: GGUFFile, keep_types: bool = False, mapped: bool = False) -> None:
        """Take over the file's tensors, all of them or none."""
        wanted = {self.gguf_name(own): (own, value) for own, value in self.named_state()}
        known, zeros = {*wanted, *self.gguf_extra()}, self.gguf_zeros()
        missing = [name for name in known if name not in file.tensors]
        unexpected = [name for name in file.tensors if name not in known and name not in zeros]
        if getattr(self.config, "tie", False) and "output.weight" in unexpected:
            # Older converters write the tied head a second time; read_tie has compared the two.
            unexpected.remove("output.weight")
        if missing or unexpected:
            raise FormatError(
                f"{file.path}: the tensors must be those of {self.gguf_arch}; "
                f"missing {sorted(missing)[:8]}, unexpected {unexpected[:8]}"
            )
        for name, array in self.gguf_extra().items():
            check_tensor(file, name, array.shape)
        for name in zeros:
            if name in file.tensors and np.any(file.array(name, dequantise=True)):
                raise FormatError(
                    f"{file.path}: tensor {name} must be zeros, as by the metadata the model has "
                    "no such; got other numbers"
                )
        pairs: list[tuple[Tensor, Tensor]] = []
        for name, (own, value) in wanted.items():
            probe = np.broadcast_to(np.float32(0.0), value.shape)  # takes no memory
            there = self.gguf_layout(own, probe, reading=False).shape
            check_tensor(file, name, there)
            if (
                keep_types
                and keeps_type(file, name, there)
                and _KEPT_F32.isdisjoint(name.split("."))
            ):
                kept = as_dtype(file.tensors[name].dtype)
                raw = file.array(name).reshape(*there[:-1], -1)
                data = self.gguf_layout(own, raw, reading=True)
                lying = None
                if mapped and data is raw:
                    lying = over_blocks(data, kept, value.shape, value.device)
                if lying is None:
                    lying = from_blocks(data, kept, value.shape, value.device)
                pairs.append((value, lying))
                continue
            array = np.asarray(file.array(name, dequantise=True), np.float32).reshape(there)
            array = self.gguf_layout(own, array, reading=True).reshape(value.shape)
            if value.dtype.name == "f32":
                value.copy_(array)
            else:
                pairs.append((value, nn.Parameter(array, dtype="f32", device=value.device)))
        self.replace_tensors(pairs)


# What llama.cpp reads as f32, or its quantizer leaves alone (src/llama-quant.cpp): tables of
# positions and of their distances, what sends tokens to experts, biases and norms of many.
_KEPT_F32 = frozenset(
    (
        *("position_embd", "token_types", "rope_freqs", "attn_rel_b", "ffn_gate_inp"),
        *("bias", "attn_q_norm", "attn_k_norm"),
    )
)
