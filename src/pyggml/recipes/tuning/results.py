# SPDX-License-Identifier: MIT
"""The files of a fine-tuning: its folder, the merged model, and the commands that use them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ... import nn
from ...backend.device import alone
from ...backend.undivided import Undone
from ...errors import ConfigError, FormatError
from ...io import atomic_path
from ...models.quantization import MIXES, quantize_gguf, read_importance
from ...models.quantization.mixes import needs_importance
from ...nn.swap import swap_modules
from ..artifact import ArtifactDir
from .base import base_file

__all__ = ["FinetuneArtifact", "llama_cpp_commands", "save_merged"]

# Matrices of these types are written as they are; those of the others are rounded once, of f32.
_FLOATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}


class FinetuneArtifact(ArtifactDir):
    """The folder of a fine-tuning: that of a run, the adapter, and the answers.

    Args:
        path: the folder; it need not exist yet.
    """

    def __init__(self, path: str | Path):
        super().__init__(path)
        self.adapter = self.path / "adapter.gguf"
        self.peft = self.path / "adapter"
        self.folder = self.path / "model"
        self.template = self.path / "chat_template.jinja"
        self.comparison = self.path / "answers.json"
        self.reference = self.path / "reference.json"
        self.rows = self.path / "rows.jsonl"
        self.results = self.path / "results.json"

    def places(self) -> list[Path]:
        """Return all that a run may write into the folder."""
        own = [
            self.adapter, self.peft, self.folder, self.template, self.comparison, self.reference,
            self.rows, self.results,
        ]  # fmt: skip
        return own + super().places()

    def whole(self, model: Any) -> Path:
        """Return the place of the whole model: a file for llama.cpp, or a folder of transformers.

        Args:
            model: the model; llama.cpp has no head of some classifiers.
        """
        return self.model if getattr(model, "runs_in_llama_cpp", True) else self.folder


def widest(model: Any) -> str:
    """Return the types of a merged model that is written where an adapter alone is of no use.

    Args:
        model: that was trained.
    """
    return "Q8_0" if getattr(model, "runs_in_llama_cpp", True) else "BF16"


def check_merge(model: Any, kind: str | None, importance: str | None) -> None:
    """Raise before a training for a merged model that could not be written after it.

    Args:
        model: to be trained.
        kind: the option `merge`.
        importance: the option `imatrix`.

    Raises:
        ConfigError: a folder of transformers has no quantised types; types need an importance
            matrix; the file given has none, or that of another model.
    """
    if kind not in (None, *_FLOATS) and not getattr(model, "runs_in_llama_cpp", True):
        raise ConfigError(
            f"`merge` must be F32, F16 or BF16, as llama.cpp does not run this head and a folder "
            f"of transformers is written; got {kind}"
        )
    if kind in MIXES and importance is None:
        most = MIXES[kind].kind
        if needs_importance("blk.0.ffn_down.weight", most, kind):
            raise ConfigError(
                f"`merge`={kind} needs the base's importance matrix, for its type {most}: give "
                "`imatrix`, a file of `pyggml imatrix`, or Q2_K or larger"
            )
    if importance is not None:
        try:
            found = read_importance(importance).by_path(model)
        except (FormatError, OSError) as error:
            raise ConfigError(f"`imatrix`: {error}") from error
        if not found:
            raise ConfigError(f"`imatrix`: {importance} has no value for a layer of this model")


class _Merged(Undone):
    """A block in which adapters are added to the weights; they are apart again afterwards.

    Args:
        model: with adapters. A training in another thread waits, and trains the adapters.
        dtype: of the sums; None is that of the weights.
        importance: a file with an importance matrix, or None.
    """

    def __init__(self, model: Any, dtype: str | None, importance: str | None = None):
        super().__init__(alone())
        self._model, self._dtype = model, dtype
        self._importance = None
        if importance is not None:
            self._importance = read_importance(importance).by_path(model)
        self._adapters: dict[str, Any] = {}

    def enter(self) -> None:
        """Add the adapters."""
        self._adapters = dict(nn.lora.adapters_of(self._model))
        nn.merge_lora(self._model, self._dtype, self._importance)

    def undo(self) -> None:
        """Put the layers with adapters back."""
        modules = dict(self._model.named_modules())
        back = {id(modules[path]): layer for path, layer in self._adapters.items()}
        swap_modules(self._model, back.get)
        self._adapters = {}


def save_merged(
    model: Any, path: Path, kind: str, tokenizer: Any, importance: str | None = None
) -> None:
    """Write a model with its adapters added to the weights.

    Args:
        model: with adapters; it is as before afterwards.
        path: the file, or a folder for transformers.
        kind: `base` for the types of the base, or a key of `MIXES`.
        tokenizer: of the model.
        importance: a file with an importance matrix of the base, or None.
    """
    if path.suffix != ".gguf":
        with _Merged(model, "f32"):
            model.save_pretrained(path, tokenizer, _FLOATS[kind])
        return
    if kind == "base":
        with _Merged(model, None, importance):
            model.save_gguf(path, tokenizer)
        return
    # Other types are made of numbers that were not rounded.
    with atomic_path(path) as whole:
        with _Merged(model, _FLOATS.get(kind, "f32")):
            model.save_gguf(whole, tokenizer)
        quantize_gguf(whole, whole, kind, importance, requantize=True)


def llama_cpp_commands(
    base: Path, artifact: FinetuneArtifact, template: bool, classify: bool = False
) -> list[str]:
    """Return the command lines with which llama.cpp uses the results.

    Args:
        base: the base as it was given.
        artifact: the folder of the run.
        template: the files of the base have no chat template, or another one.
        classify: the model tells classes.
    """
    more = ["--jinja", "--chat-template-file", str(artifact.template)] if template else []
    found = []
    if artifact.model.exists() and classify:
        more = ["--pooling", "rank", "--embd-normalize", "-1", "-p", "TEXT"]
        found.append(["llama-embedding", "-m", str(artifact.model), *more])
    elif artifact.model.exists():
        found.append(["llama-cli", "-m", str(artifact.model)])
    if artifact.adapter.exists():
        file = base_file(base)
        if file is None:
            file = artifact.path / "base.gguf"
            found.append(["pyggml", "convert", str(base), str(file)])
        found.append(["llama-cli", "-m", str(file), "--lora", str(artifact.adapter), *more])
    return [shlex.join(command) for command in found]
