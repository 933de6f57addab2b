# SPDX-License-Identifier: MIT
"""quantize_gguf: a file in another mix of types."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...backend.dtypes import as_dtype
from ...backend.quantize import quantize_rows
from ...backend.threads import map_in_threads
from ...errors import FormatError
from ...io import Encoded, GGUFFile, read_gguf, u32, write_gguf
from .importance import Importance, read_importance
from .mixes import MIXES, Mixer, in_order, needs_importance

__all__ = ["quantize_gguf"]

_VERSION = 2  # GGML_QNT_VERSION
_CHUNK = 1 << 18  # numbers that one thread quantises at a time


def quantize_gguf(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    mix: str = "Q4_K_M",
    importance: str | os.PathLike[str] | None = None,
    *,
    pure: bool = False,
    requantize: bool = False,
    max_part_bytes: int | None = None,
    threads: int | None = None,
) -> list[Path]:
    """Write a model's file with its matrices in other types, as llama.cpp's quantiser does.

    The bytes are those of llama.cpp's `llama-quantize` for the same file, mix and importance
    matrix.

    Args:
        source: a GGUF file of f32, f16 or bf16 matrices.
        target: where; it may be the source.
        mix: a key of `MIXES`: which type the matrices get, some of them more bits than others.
        importance: a file of `write_importance` or of llama.cpp's `llama-imatrix`: the mean square
            of what each column is multiplied by. The IQ mixes of up to three bits need it.
        pure: give every matrix the mix's own type.
        requantize: take matrices that are quantised already, which loses more.
        max_part_bytes: see `write_gguf`.
        threads: to compute with; None is one for each core.

    Returns:
        The files.

    Raises:
        ValueError: mix is none of `MIXES`, or needs an importance matrix.
        FormatError: a file is damaged or no model, holds NaN or infinity, is quantised already, or
            the importance matrix is another model's.
        OSError: the file cannot be written.

    Source: llama_model_quantize of llama.cpp.

    Example:
        >>> model.save("model.gguf")
        >>> [path.name for path in quantize_gguf("model.gguf", "small.gguf", "Q8_0")]
        ['small.gguf']
    """
    who = "quantize_gguf"
    mix = checks.choice(who, "mix", mix, MIXES)
    checks.flag(who, "pure", pure)
    checks.flag(who, "requantize", requantize)
    count = checks.whole(who, "threads", threads or os.cpu_count() or 1, 1)
    weights = None if importance is None else read_importance(importance)
    with read_gguf(source) as file:
        arch = file.metadata.get("general.architecture")
        if not isinstance(arch, str) or file.metadata.get("general.type", "model") != "model":
            raise FormatError(f"{who}: {file.path}: must be a model; got {arch!r}")
        mixer = Mixer(mix, file.metadata, file.tensors, weights is not None, pure)
        kinds = {
            name: mixer.choose(name, file.tensors[name].shape, file.tensors[name].dtype)
            for name in in_order(file.tensors)
        }
        _check(file, kinds, mix, weights, requantize)
        metadata = _metadata(file, MIXES[mix].number, weights, importance)
        tensors = _Tensors(file, kinds, weights, count)
        return write_gguf(target, metadata, tensors, max_part_bytes)


def _check(
    file: GGUFFile,
    kinds: Mapping[str, str],
    mix: str,
    weights: Importance | None,
    requantize: bool,
) -> None:
    """Raise before anything is written."""
    who = "quantize_gguf"
    for name, kind in kinds.items():
        info = file.tensors[name]
        if kind == info.dtype:
            continue
        if as_dtype(info.dtype).quantized and not requantize:
            raise FormatError(
                f"{who}: {file.path}: tensor {name} must be f32, f16 or bf16; got {info.dtype}: "
                "start from the file before it was quantised, or give `requantize`=True"
            )
        if not as_dtype(info.dtype).is_readable:
            raise FormatError(f"{who}: {file.path}: tensor {name}: {info.dtype} cannot be read")
        given = None if weights is None else weights.values.get(name)
        if given is None and needs_importance(name, kind, mix):
            raise ValueError(
                f"{who}: mix {mix} needs an importance matrix for {name}, which becomes {kind}: "
                "give `importance`, or choose Q2_K or larger"
            )
        wanted = info.shape[-1] * (info.shape[0] if len(info.shape) == 3 else 1)
        if given is not None and given.size != wanted and name != "token_embd.weight":
            raise FormatError(
                f"{who}: the importance matrix must have {wanted} values for {name}; got "
                f"{given.size}: it is another model's"
            )


def _metadata(file: GGUFFile, number: int, weights: Importance | None, path: Any) -> dict[str, Any]:
    """The file's keys; those of its types come last, as llama.cpp has them."""
    own = ("general.quantization_version", "general.file_type")
    kept = {key: value for key, value in file.typed_metadata.items() if key not in own}
    types = {own[0]: u32(_VERSION), own[1]: u32(number)}
    if weights is None:
        return {**kept, **types}
    told = {"quantize.imatrix.file": _short(os.fspath(path))}
    if weights.datasets:
        told["quantize.imatrix.dataset"] = _short(weights.datasets[0])
    counts = {"quantize.imatrix.entries_count": u32(len(weights.values))}
    if weights.chunks:
        counts["quantize.imatrix.chunks_count"] = u32(weights.chunks)
    kept = {key: value for key, value in kept.items() if not key.startswith("quantize.imatrix.")}
    return {**kept, **types, **told, **counts}


def _short(text: str) -> str:
    """At most 127 bytes, which is what llama.cpp keeps."""
    return text.encode(errors="replace")[:127].decode(errors="ignore")


class _Tensors(Mapping[str, Any]):
    """The tensors for `write_gguf`, which asks for each twice: the shape, then the data."""

    def __init__(
        self,
        file: GGUFFile,
        kinds: Mapping[str, str],
        weights: Importance | None,
        threads: int,
    ) -> None:
        self.file, self.kinds, self.threads = file, kinds, threads
        self.weights = {} if weights is None else weights.values
        self._told: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, name: str) -> Encoded:
        info, kind = self.file.tensors[name], self.kinds[name]
        dtype = as_dtype(kind)
        shape = (*info.shape[:-1], dtype.row_bytes(info.shape[-1]))
        if name not in self._told:
            self._told.add(name)
            return Encoded(kind, np.broadcast_to(np.uint8(0), shape))  # takes no memory
        self._told.discard(name)
        if kind == info.dtype:
            raw = np.ascontiguousarray(self.file.array(name))
            return Encoded(kind, raw.view(np.uint8).reshape(shape))
        array = np.asarray(self.file.array(name, dequantise=True), np.float32)
        if not np.isfinite(array).all():
            raise FormatError(
                f"quantize_gguf: {self.file.path}: tensor {name} must hold finite numbers; got NaN"
                " or infinity"
            )
        return Encoded(kind, self._quantise(array, kind, self.weights.get(name)).reshape(shape))

    def _quantise(self, array: np.ndarray, kind: str, weights: np.ndarray | None) -> np.ndarray:
        """Quantise the rows of each expert by themselves, several at a time."""
        columns = array.shape[-1]
        stacks = array.reshape(array.shape[0] if array.ndim == 3 else 1, -1, columns)
        if weights is not None and weights.size != stacks.shape[0] * columns:
            weights = None
        scales = None if weights is None else weights.reshape(len(stacks), columns)
        step = max(1, _CHUNK // columns)
        jobs = [
            (stack[row : row + step], None if scales is None else scales[i])
            for i, stack in enumerate(stacks)
            for row in range(0, len(stack), step)
        ]
        dtype = as_dtype(kind)
        return np.concatenate(
            map_in_threads(lambda job: quantize_rows(job[0], dtype, job[1]), jobs, self.threads)
        )
