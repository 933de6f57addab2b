# SPDX-License-Identifier: MIT
"""Importance matrices: the mean square of what each column of a matrix is multiplied by."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import checks, nn
from ...backend.device import alone
from ...backend.undivided import Undivided, Undone
from ...errors import FormatError, printable, shown
from ...graph import Graph
from ...io import read_gguf, u32, write_gguf
from ...nn.mode import in_mode
from ...nn.weight_check import WeightCheck
from ...tensors import Tensor, zeros
from ..base import Model
from ..generator import check_tokens
from ..language import LanguageModel
from .dat import is_dat, read_dat

__all__ = ["Importance", "measure_importance", "read_importance", "write_importance"]

_SQUARES, _COUNTS = ".in_sum2", ".counts"


@dataclass(frozen=True)
class Importance:
    """Mean squares by the name of the matrix in a GGUF file.

    Attributes:
        values: (C,), or (E * C,) for the matrices of E experts, one after another.
        counts: tokens that each was measured on, (1,) or (E,).
        datasets: what was read.
        chunks: texts that were read.
        chunk_size: tokens of a text.
    """

    values: Mapping[str, np.ndarray]
    counts: Mapping[str, np.ndarray] = field(default_factory=dict)
    datasets: Sequence[str] = ()
    chunks: int = 0
    chunk_size: int = 0

    def by_path(self, model: Model) -> dict[str, np.ndarray]:
        """Return the values by the path of the layer, as `nn.merge_lora` takes them.

        Args:
            model: whose layers.

        Example:
            >>> found = measure_importance(model, [1, 2, 3, 4, 5, 6], length=3)
            >>> found.by_path(model)["transformer.h.0.mlp.c_fc"].shape
            (16,)
        """
        names = {path: model.gguf_name(f"{path}.weight") for path in nn.lora.layers_of(model)}
        return {path: self.values[n] for path, n in names.items() if n in self.values}


def measure_importance(
    model: LanguageModel,
    ids: Sequence[int] | np.ndarray,
    length: int | None = None,
    datasets: Sequence[str] = (),
    bos: int | None = None,
) -> Importance:
    """Measure the mean square of each column that a model's matrices are multiplied by.

    Args:
        model: a language model.
        ids: tokens of a text; what does not fill the last chunk is left out.
        length: tokens of a chunk, which is read by itself; None is 512, or the context if that is
            shorter, or all of a shorter text.
        datasets: names of what was read, for the file.
        bos: the token that begins a text: it takes the place of each chunk's first token, as in
            `llama-imatrix` for tokenizers that begin a text with it; None changes nothing.

    Raises:
        TypeError: model is no language model.
        ValueError: a token is not in the vocabulary, or length is no number from 1 to the context.
        FormatError: what a matrix is multiplied by is NaN or infinite: the weights are damaged.
        RuntimeError: another thread changed the model's weights meanwhile.

    Source: tools/imatrix of llama.cpp.

    Example:
        >>> found = measure_importance(model, [1, 2, 3, 4, 5, 6], length=3)
        >>> found.chunks
        2
    """
    who = "measure_importance"
    if not isinstance(model, LanguageModel):
        raise TypeError(f"{who}: model must be a language model; got {type(model).__name__}")
    tokens = check_tokens(who, ids, model.config.vocab_size)
    most = int(model.config.context)
    if length is None:
        length = min(512, most, len(tokens))
    length = checks.whole(who, "length", length, 1, min(most, len(tokens)))
    if bos is not None:
        check_tokens(who, [bos], model.config.vocab_size)
    sums: dict[str, np.ndarray] = {}
    counts: dict[str, np.ndarray] = {}
    inputs = zeros((1, length), dtype="i32", device=model.device)
    with in_mode(model, training=False), _Listening(model) as seen:
        logits = model(inputs)
        squares = [
            part
            for _, _, x, chosen in seen
            for part in ([_square_sums(x)] if chosen is None else [x * x, chosen])
        ]
        graph = Graph([*squares, logits], device=model.device)
        chunks, weights = len(tokens) // length, WeightCheck(who, model)
        for i in range(chunks):
            chunk = tokens[None, i * length : (i + 1) * length].copy()
            chunk[0, :1] = chunk[0, :1] if bos is None else bos
            inputs.copy_(chunk)
            with alone(), weights.unchanged():
                graph.run()
                values = iter([graph.read(part) for part in squares])
            for name, experts, _, chosen in seen:
                if chosen is None:
                    found, count = next(values)[None], np.full(1, length)
                else:
                    found, count = _by_expert(next(values), next(values), experts)
                if not np.isfinite(found).all():
                    raise FormatError(f"{who}: {name} is multiplied by NaN or infinity")
                sums[name] = sums.get(name, 0.0) + found.astype(np.float64)
                counts[name] = counts.get(name, 0) + count
    means = {
        name: np.where(counts[name][:, None] > 0, total / np.maximum(counts[name][:, None], 1), 1.0)
        .astype(np.float32)
        .reshape(-1)
        for name, total in sums.items()
    }
    return Importance(means, counts, tuple(datasets), chunks, length)


def _square_sums(x: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    return (rows * rows).sum(dim=0)


def _by_expert(
    squares: np.ndarray, chosen: np.ndarray, experts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sum the rows that each expert saw."""
    width = squares.shape[-1]
    rows = np.broadcast_to(squares, (*chosen.shape, width)).reshape(-1, width)
    sums = np.zeros((experts, width))
    np.add.at(sums, chosen.reshape(-1), rows)
    return sums, np.bincount(chosen.reshape(-1), minlength=experts)


# The name in the file, the number of experts, the input, and the experts that were chosen.
_Seen = list[tuple[str, int, Tensor, Tensor | None]]


class _Listening(Undone):
    """A block that notes what this thread multiplies the matrices of a model's blocks by.

    Args:
        model: the model; it has hooks meanwhile.
    """

    def __init__(self, model: LanguageModel):
        super().__init__()
        self._model = model
        self._handles: list[nn.RemovableHandle] = []

    def enter(self) -> _Seen:
        """Register the hooks, and return what they note."""
        seen: _Seen = []
        for path, module in self._model.named_modules():
            weight = vars(module).get("weight")
            stacked = isinstance(weight, Tensor) and weight.ndim == 3
            if isinstance(module, nn.Linear) or stacked:
                name = self._model.gguf_name(f"{path}.weight")
                if name.startswith("blk."):
                    self._listen(module, name, seen)
        return seen

    def _listen(self, module: Any, name: str, seen: _Seen) -> None:
        experts = module.weight.shape[0] if module.weight.ndim == 3 else 1
        own = threading.get_ident()

        def note(_: Any, args: tuple[Any, ...]) -> None:
            if threading.get_ident() == own:
                x, chosen = (*args, None)[:2]
                seen.append((name, experts, x, chosen))

        with Undivided():  # or a handler might raise between the two
            self._handles.append(module.register_forward_pre_hook(note))

    def undo(self) -> None:
        """Remove them."""
        for handle in self._handles:
            handle.remove()


def write_importance(path: str | os.PathLike[str], importance: Importance) -> None:
    """Write an importance matrix as a GGUF file, which llama.cpp's quantiser reads too.

    Args:
        path: the file.
        importance: what `measure_importance` gave.

    Raises:
        OSError: the file cannot be written.
    """
    checks.instance("write_importance", "importance", importance, Importance)
    tensors: dict[str, np.ndarray] = {}
    for name in sorted(importance.values):
        count = np.asarray(importance.counts.get(name, [1]), np.float32)
        means = importance.values[name].reshape(len(count), -1)
        tensors[f"{name}{_SQUARES}"] = (means * count[:, None]).astype(np.float32)
        tensors[f"{name}{_COUNTS}"] = count[:, None]
    metadata = {
        "general.type": "imatrix",
        "imatrix.datasets": [printable(name) for name in importance.datasets],
        "imatrix.chunk_count": u32(importance.chunks),
        "imatrix.chunk_size": u32(importance.chunk_size),
    }
    write_gguf(path, metadata, tensors)


def read_importance(path: str | os.PathLike[str]) -> Importance:
    """Read an importance matrix of `write_importance` or of llama.cpp's `llama-imatrix`.

    Args:
        path: a GGUF file, or one of the format before it (`imatrix.dat`).

    Raises:
        FormatError: the file is damaged or no importance matrix; names tensor and cause.
    """
    if is_dat(path):
        return Importance(*read_dat(path))
    with read_gguf(path) as file:
        who = f"read_importance: {file.path}"
        values: dict[str, np.ndarray] = {}
        counts: dict[str, np.ndarray] = {}
        for name, info in file.tensors.items():
            base = name.removesuffix(_SQUARES)
            if base == name:
                continue
            beside = file.tensors.get(f"{base}{_COUNTS}")
            if beside is None or {info.dtype, beside.dtype} != {"f32"}:
                raise FormatError(f"{who}: tensor {name}: it and {base}{_COUNTS} must be f32")
            sums = np.asarray(file.array(name), np.float32).reshape(-1)
            count = np.rint(np.asarray(file.array(beside.name), np.float32).reshape(-1))
            if (
                not count.size
                or sums.size % count.size
                or not np.isfinite(sums).all()
                or not np.isfinite(count).all()
            ):
                raise FormatError(
                    f"{who}: tensor {name}: must hold finite sums for each of {count.size} counts;"
                    f" got {sums.size} numbers"
                )
            rows = sums.reshape(count.size, -1)
            known = count[:, None] > 0
            means = np.where(known, rows / np.where(known, count[:, None], 1), np.float32(1))
            values[base], counts[base] = means.astype(np.float32).reshape(-1), count
        if not values:
            raise FormatError(f"{who}: holds no importance matrix (tensors *{_SQUARES})")
        datasets = file.metadata.get("imatrix.datasets", [])
        sizes = [file.metadata.get(f"imatrix.{key}", 0) for key in ("chunk_count", "chunk_size")]
        for size in sizes:
            if not isinstance(size, int):
                raise FormatError(f"{who}: imatrix.chunk_count, chunk_size: got {shown(size)}")
        texts = [text for text in datasets if isinstance(text, str)]
        return Importance(values, counts, texts, *sizes)
