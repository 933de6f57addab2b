# SPDX-License-Identifier: MIT
"""The base of a fine-tuning: read in its own types, and made ready to be trained."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ... import nn
from ...data import Tokenizer
from ...errors import ConfigError, DTypeError, FormatError, reason, shown
from ...models import LanguageModel, LlamaForSequenceClassification, load, load_lora
from ...train.quantized import quantization_aware
from ..artifact import ArtifactDir
from .model_options import TunedModelOptions

__all__ = ["aware_of", "base_file", "changes_base", "prepare_model", "read_base"]

_ALL = "all-linear"
# The options that arguments of `apply_lora` come from.
_ARGUMENTS = {
    "rank_pattern": "rank_pattern",
    "use_dora": "dora",
    "init_lora_weights": "lora_init",
    "originals": "originals",
    "targets": "targets",
    "rank": "lora_rank",
}


def read_base(options: TunedModelOptions, classify: bool = False) -> tuple[Any, Tokenizer]:
    """Return the base in the types of its file, mapped where it can be, and its tokenizer.

    Args:
        options: the name of the base, and perhaps another tokenizer.
        classify: the base may also be a classifier of texts.

    Raises:
        ConfigError: it is the folder of a run that holds an adapter alone.
        FormatError: it is no model, or one that continues no text, or has no tokenizer.
        FileNotFoundError: there is no such file.
    """
    path = Path(options.model)
    folder = ArtifactDir(path)
    if path.is_dir() and folder.holds_run and not folder.model.exists():
        base = folder.read_config().get("base")
        own = [path / name for name in ("model", "adapter.gguf") if (path / name).exists()]
        cure = f"give its base, {base}, as `model`" if base else ""
        if own and own[0].is_dir():  # of a classifier
            cure = f"give {own[0]}"
        elif own and base:
            cure += f" and {own[0]} as `adapter`"
        raise ConfigError(
            f"`model`={path}: the folder must hold model.gguf; it has none"
            + (f": {cure}" if cure else ": did its run not finish? Give another model")
        )
    model, tokenizer = load(path, keep_types=True, mapped=True, tokenizer=options.tokenizer)
    kinds = (LanguageModel, LlamaForSequenceClassification) if classify else LanguageModel
    if not isinstance(model, kinds):
        raise FormatError(
            f"{path}: must be a model that continues text; got {model.gguf_arch!r}, a "
            f"{type(model).__name__}: choose another base"
        )
    if tokenizer is None:
        raise FormatError(
            f"{path}: the file has no tokenizer: give one with `tokenizer`, a JSON file or a GGUF"
        )
    return model, tokenizer


def base_file(path: Path) -> Path | None:
    """Return the GGUF file of a base; None for a Hugging Face folder.

    Args:
        path: the base as it was given.
    """
    if not path.is_dir():
        return path
    single = path / "model.gguf"
    if single.exists():
        return single
    sets = sorted(path.glob("*-00001-of-?????.gguf"))
    return sets[0] if len(sets) == 1 else None


def prepare_model(model: Any, options: TunedModelOptions) -> list[str]:
    """Make a base trainable: all of its weights, or adapters beside its linear layers.

    Args:
        model: changed in place.
        options: what to train.

    Returns:
        The paths of the adapted layers; none where the weights themselves are trained.

    Raises:
        ConfigError: a pattern or target matches nothing, nothing is left to train, or the base
            cannot be adapted.
        FormatError: the adapter is damaged, or is another model's.
    """
    if options.full:
        _unfreeze(model, options.freeze)
        return []
    paths = _adapted(model, options)
    adapters = nn.lora.adapters_of(model)
    parameters = dict(model.named_parameters())
    frozen = {n for pattern in options.freeze for n in _matching(list(parameters), pattern)}
    for name in (f"{path}.weight" for path in model.saved_whole):
        parameters[name].requires_grad = name not in frozen
    for path in paths:  # an adapter that was loaded stays as it is with its layer's weight
        stays = f"{path}.weight" in frozen
        for name, value in adapters[path].factors().items():
            value.requires_grad = not stays and f"{path}.{name}" not in frozen
    if not any(value.requires_grad for value in parameters.values()):
        raise ConfigError("`freeze` leaves no parameter to train: give fewer patterns")
    return paths


def _adapted(model: Any, options: TunedModelOptions) -> list[str]:
    """Put adapters beside layers, and return the paths of these."""
    if options.adapter is not None:
        try:
            return load_lora(model, options.adapter, dropout=options.lora_dropout)
        except (FormatError, OSError) as error:
            said = reason(error).removeprefix(f"{options.adapter}: ")
            raise FormatError(f"`adapter`={options.adapter}: {said}") from error
    rank = options.value("lora_rank")
    targets = _targets(model, options)
    originals = None
    if options.originals is not None:
        originals, _ = load(options.originals, keep_types=True, mapped=True)
    try:
        return nn.apply_lora(
            model,
            rank,
            float(rank) if options.lora_alpha is None else options.lora_alpha,
            options.lora_dropout or 0.0,
            targets,
            use_rslora=options.rslora,
            use_dora=options.dora,
            init_lora_weights=options.lora_init or True,
            originals=originals,
            rank_pattern=options.rank_pattern or None,
        )
    except (ValueError, TypeError) as error:
        raise _of_option(error) from error


def changes_base(model: Any, options: TunedModelOptions) -> bool:
    """Return whether a model's adapters change it before the first step.

    Args:
        model: after `prepare_model`.
        options: what to train.
    """
    layers = nn.lora.adapters_of(model).values()
    return options.adapter is not None or any(layer.initial is not None for layer in layers)


def aware_of(model: Any, optimizer: Any, options: TunedModelOptions) -> Any:
    """Let a model train with rounded weights where the options ask for it; return what rounds.

    Args:
        model: whose weights are trained.
        optimizer: of the model.
        options: the mix of types.

    Raises:
        ConfigError: the mix does not suit the model.
    """
    if options.qat is None:
        return None
    frozen = {name: "f32" for name, p in model.named_parameters() if not p.requires_grad}
    try:
        return quantization_aware(model, optimizer, options.qat, options.qat_every, types=frozen)
    except DTypeError as error:  # of a type that needs an importance matrix
        raise ConfigError(
            f"`qat` must be a type that is rounded to without an importance matrix; got "
            f"{options.qat}: choose a larger one, such as Q4_K or TQ2_0"
        ) from error
    except ValueError as error:
        raise ConfigError(f"`qat`={options.qat}: {reason(error)}") from error


def _of_option(error: Exception) -> ConfigError:
    """Return an error of `apply_lora` with the option that it comes from."""
    said, found = reason(error), False
    for argument, option in _ARGUMENTS.items():
        # A word of two kinds names the argument where no other one is named.
        if found and argument in ("targets", "rank"):
            break
        said, count = re.subn(rf"\b{argument}\b", f"`{option}`", said)
        said = said.replace('must be True, False, "gaussian"', 'must be "gaussian"')
        found = found or count > 0
    return ConfigError(said if found else f"`targets`: {said}")


def _targets(model: Any, options: TunedModelOptions) -> list[str]:
    """Return the targets; with patterns of frozen layers, the paths that remain."""
    targets = list(options.targets or (_ALL,))
    if not options.freeze:
        return targets
    try:
        paths = nn.apply_lora(model, 1, 1.0, targets=targets)
    except ValueError as error:
        raise _of_option(error) from error
    nn.remove_lora(model)
    names = [name for name, _ in model.named_parameters()]
    frozen = {name for pattern in options.freeze for name in _matching(names, pattern)}
    kept = [path for path in paths if f"{path}.weight" not in frozen]
    if not kept:
        raise ConfigError("`freeze` leaves no layer to adapt: give fewer patterns")
    return kept


def _unfreeze(model: Any, patterns: tuple[str, ...]) -> None:
    """Make all parameters f32 and trained, but those that patterns name."""
    names = dict(model.named_parameters())
    frozen = {name for pattern in patterns for name in _matching(list(names), pattern)}
    if len(frozen) == len(names):
        raise ConfigError("`freeze` leaves no parameter to train: give fewer patterns")
    pairs = []
    for name, value in names.items():
        if name in frozen:
            value.requires_grad = False
        elif value.dtype.name == "f32":
            value.requires_grad = True
        else:
            pairs.append((value, nn.Parameter(value.numpy(), dtype="f32", device=value.device)))
    model.replace_tensors(pairs)


def _matching(names: list[str], pattern: str) -> list[str]:
    found = [n for n in names if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.weight")]
    if not found:
        raise ConfigError(
            f"`freeze` must match the name of a parameter; {shown(pattern)} matches none of "
            f"{len(names)}, such as {', '.join(names[:2])} and {names[-1]}"
        )
    return found
