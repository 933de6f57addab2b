# SPDX-License-Identifier: MIT
"""Models by name and from files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import checks
from ..errors import FormatError, shown
from ..io import read_gguf
from .base import Model
from .bert.heads import (
    BERTForMaskedLM,
    BERTForSequenceClassification,
    BERTForTokenClassification,
)
from .bert.model import BERT
from .config import ModelConfig
from .files import check_state, read_scalar
from .gpt2 import GPT2
from .language import LanguageModel
from .llama.heads import LlamaForSequenceClassification
from .llama.model import Llama
from .llm import LLM
from .modernbert.heads import ModernBERTForMaskedLM, ModernBERTForSequenceClassification
from .modernbert.model import ModernBERT
from .pretrained.read import find_config, read_folder
from .t5.model import T5
from .vision.cnn import CNN
from .vision.mlp import MLP
from .vision.resnet import ResNet

if TYPE_CHECKING:
    from ..data import Tokenizer

__all__ = ["LANGUAGE_MODELS", "MODELS", "build", "load"]

MODELS: dict[str, type[Model]] = {
    model.arch: model
    for model in (
        *(GPT2, Llama, LLM, BERT, BERTForMaskedLM),
        *(BERTForSequenceClassification, BERTForTokenClassification),
        *(ModernBERT, ModernBERTForMaskedLM, ModernBERTForSequenceClassification),
        *(LlamaForSequenceClassification, T5, MLP, CNN, ResNet),
    )
}
"""Every model, by name."""
LANGUAGE_MODELS: dict[str, type[LanguageModel]] = {
    arch: model for arch, model in MODELS.items() if issubclass(model, LanguageModel)
}
"""The models that continue text, by name."""


def _readers() -> dict[str, list[type[Model]]]:
    """Who reads a file, by what it calls its architecture; the bare model comes last."""
    found: dict[str, list[type[Model]]] = {}
    for model in MODELS.values():
        for arch in model.gguf_archs or (model.arch,):
            found.setdefault(arch, []).insert(0, model)
    return found


def build(arch: str, config: ModelConfig | Mapping[str, Any] | str, **overrides: Any) -> Any:
    """Build a model with fresh weights.

    Args:
        arch: a key of `MODELS`.
        config: a configuration, a dict of its fields, or the name of a preset.
        overrides: fields that replace the preset's or dict's; None leaves them.

    Raises:
        ValueError: arch or preset is unknown, or a size is out of range.
        TypeError: the configuration is another architecture's.

    Example:
        >>> build("llama", "tiny", vocab_size=65).config.n_layer
        4
    """
    checks.choice("build", "arch", arch, MODELS)
    model = MODELS[arch]
    given = {key: value for key, value in overrides.items() if value is not None}
    if isinstance(config, str):
        config = model.config_class.preset(config, **given)
    elif isinstance(config, Mapping):
        config = model.config_class.from_dict({**config, **given})
    elif given:
        config = model.config_class.from_dict({**config.to_dict(), **given})
    if not isinstance(config, model.config_class):
        raise TypeError(
            f"build: config must be a {model.config_class.__name__}; got {type(config).__name__}"
        )
    return model(config)


def _gguf_in(folder: Path) -> Path:
    """The model's file in a folder, or the first part of the only split set."""
    single = folder / "model.gguf"
    sets = [] if single.exists() else sorted(folder.glob("*-00001-of-?????.gguf"))
    return sets[0] if len(sets) == 1 else single


# Files that hold no model, and what reads them.
_READ = "model.load_state_dict(pg.io.load_safetensors(path))"
_WEIGHTS = {
    ".safetensors": _READ,
    **dict.fromkeys(
        (".pt", ".pth"), f"safetensors.torch.save_file(state, path) in PyTorch, and {_READ} here"
    ),
}


def load(
    path: str | os.PathLike[str],
    keep_types: bool = False,
    check: bool = False,
    mapped: bool = False,
    tokenizer: str | os.PathLike[str] | Tokenizer | None = None,
) -> tuple[Any, Tokenizer | None]:
    """Read a model, and its tokenizer if it has one.

    Args:
        path: a GGUF file, a part of a split set, a folder that holds `model.gguf` or one split
            set, or a Hugging Face folder with `config.json` and safetensors.
        keep_types: leave f16, bf16 and quantised matrices as they are instead of making them f32:
            they are frozen, and `nn.apply_lora` trains adapters on them; see `Model.from_gguf`.
        check: look for NaN and infinite weights, which takes a pass over all of them.
        mapped: with keep_types, use the matrices of a GGUF file where they lie, on the CPU: no copy
            is made, and processes that have the same file share its memory. The file must then not
            be cut short or changed in place while the model lives: the system would end the
            process (SIGBUS). A file that is replaced, as `save` does it, stays what it was.
        tokenizer: a tokenizer JSON file, a folder with one, or a GGUF file, instead of the
            tokenizer of the model's file, which is not read then; or a `Tokenizer`.

    Raises:
        TypeError: path is not a path.
        ValueError: path is empty or no path of this system; or the tokenizer has more tokens than
            the model, or the model reads no tokens.
        FileNotFoundError: there is no such file, or the folder holds no model.gguf.
        FormatError: the file is not GGUF, is damaged, or is of an unknown architecture; with
            check: a weight is not finite.

    Returns:
        A model of `MODELS`, in training mode, and the tokenizer or None.
    """
    path = checks.path("load", "path", path)
    checks.flag("load", "keep_types", keep_types)
    checks.flag("load", "check", check)
    checks.flag("load", "mapped", mapped)
    if path.suffix in _WEIGHTS and path.is_file():
        raise FormatError(
            f"{path}: must be a GGUF file or a folder of a model; got weights alone: give their "
            f"folder with config.json, or make the model, then {_WEIGHTS[path.suffix]}"
        )
    file_path = _gguf_in(path) if path.is_dir() else path
    near = path / "adapter.gguf"
    if not file_path.exists() and near.is_file():
        raise FormatError(
            f"{path}: must hold a model; got the adapter {near.name} alone: load its base, then "
            f"give {near} as an adapter (load_lora, or the option lora)"
        )
    if not file_path.exists() and find_config(path / "model") is not None:
        raise FormatError(f"{path}: must hold a model; got the folder of a run: give {path}/model")
    if find_config(path) is not None and not file_path.exists():
        given = None if tokenizer is None else _tokenizer(tokenizer)
        model, own = read_folder(path, MODELS.values(), keep_types, tokenizer is None)
        if check:
            check_state(path, model.state_dict())
        return model, own if given is None else _fitting(model, given)
    if not file_path.exists():
        where = f"{path} holds no model.gguf" if path.is_dir() else f"{path} does not exist"
        if (path / "state.json").is_file():
            where += ", but a checkpoint: `pyggml export` makes a GGUF file of it"
        raise FileNotFoundError(
            f"load: path must be a GGUF file, or a folder with model.gguf or config.json; {where}"
        )
    given = None if tokenizer is None else _tokenizer(tokenizer)
    with read_gguf(file_path, private=mapped) as file:
        arch = file.metadata.get("general.architecture")
        readers = _readers()
        if not isinstance(arch, str) or arch not in readers:
            raise FormatError(
                f"{file_path}: general.architecture must be one of {', '.join(readers)}; "
                f"got {shown(arch)}"
            )
        kind = file.metadata.get("general.type", "model")
        if not isinstance(kind, str):
            raise FormatError(f"{file_path}: general.type must be text; got {shown(kind)}")
        if kind == "adapter":
            raise FormatError(
                f"{file_path}: must hold a model; got an adapter: load its base, then give this "
                "file as an adapter (load_lora, or the option lora)"
            )
        reader = next(kind for kind in readers[arch] if kind.reads(file))
        model = reader.from_gguf(file, keep_types, check, mapped)
        if given is not None:
            return model, _fitting(model, given)
        if read_scalar(file, "tokenizer.ggml.model", "none") in ("none", "no_vocab"):
            return model, None
        from ..data import Tokenizer

        try:
            return model, Tokenizer.from_gguf_metadata(file.metadata)
        except FormatError as error:
            raise FormatError(f"{file_path}: {error}") from error


def _tokenizer(given: str | os.PathLike[str] | Tokenizer) -> Tokenizer:
    """Return a tokenizer that the caller has, or that a file holds."""
    from ..data import Tokenizer

    return given if isinstance(given, Tokenizer) else Tokenizer.from_file(given)


def _fitting(model: Any, tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer; raise if the model cannot read its tokens."""
    size = getattr(model.config, "vocab_size", None)
    if size is None:
        raise ValueError(f"load: tokenizer must be None: a {type(model).__name__} reads no tokens")
    if tokenizer.vocab_size > size:
        raise ValueError(
            f"load: tokenizer must have at most the model's {size} tokens; got"
            f" {tokenizer.vocab_size}: is it of another model?"
        )
    return tokenizer
