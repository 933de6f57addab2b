# SPDX-License-Identifier: MIT
"""What a configuration must be, and what to do when it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..optim import optimizers, schedule_functions
from .memory.plan import parse_bytes

if TYPE_CHECKING:
    from .config import TrainConfig

__all__ = [
    "EXPORTS",
    "LISTS",
    "PLATEAU",
    "TABLES",
    "ConfigError",
    "check",
    "option_name",
    "read_checkpointing",
    "read_table",
    "unknown_fields",
]

# A byte-level BPE holds the 256 bytes and the end-of-text mark before any merge.
_BPE_SIZE_MIN = 257
_BPE_SIZE_MAX = 10**6
_COUNT_MAX = 2**63 - 1
# The batches of a step are gathered before it starts.
_ACCUMULATE_MAX = 65536
_FLOAT32_MAX = float(2**128 - 2**104)

# Fields that hold several texts.
LISTS = ("text", "scores", "eval_text", "no_decay", "lr_scale")
_SCORE = re.compile(r"accuracy|top[1-9][0-9]{0,7}|f1(_(weighted|micro|binary))?")
_CHECKPOINTING = {"all": True, "none": False}
# A schedule besides those that are functions of the step alone.
PLATEAU = "plateau"
# Fields that hold names and values.
TABLES = ("optimizer_options", "schedule_options")
EXPORTS = ("best", "last")
PRECISIONS = ("f32", "bf16", "f16")


class ConfigError(ValueError):
    """An option, or two options together, that cannot be used."""


def option_name(field: str) -> str:
    """The command-line spelling of a field of `TrainConfig`.

    Args:
        field: name of the field.

    Example:
        >>> option_name("kv_heads")
        '--kv-heads'
    """
    return "--" + field.replace("_", "-")


def unknown_fields(values: Mapping[str, Any], known: Iterable[str]) -> str:
    """What to say of fields that there are not.

    Args:
        values: by name, some unknown.
        known: names of the fields.

    Example:
        >>> unknown_fields({"stepps": 3}, ["steps", "lr"])
        "every option must be known; got 'stepps' (did you mean steps?)"
    """
    known, said, has_table = list(known), [], False
    for name in sorted(set(values) - set(known), key=str):
        near = get_close_matches(str(name).replace("-", "_"), known, 1)
        table = isinstance(values[name], Mapping)
        has_table |= table
        what = f"the table [{name}]" if table else repr(name)
        said.append(f"{what} (did you mean {near[0]}?)" if near else what)
    tables = [f"[{name}]" for name in TABLES if name in known]
    more = ""
    if has_table and tables:
        more = f"; the tables are {' and '.join(tables)}, and all other options stand before them"
    elif has_table:
        more = "; there are no tables"
    return f"every option must be known; got {', '.join(said)}{more}"


def check(config: TrainConfig) -> None:
    """Refuse a configuration that cannot be used.

    Args:
        config: all of it.

    Raises:
        ConfigError: names the option and the cure.
    """
    _check_strings(config)
    _check_counts(config)
    _check_numbers(config)
    _check_tokenizer(config)
    _check_names(config)


def _check_strings(config: TrainConfig) -> None:
    """Texts, which must be texts."""
    for name in ("fused_update", "keep_best", "mfu", "tensorboard"):
        if not isinstance(getattr(config, name), bool):
            raise ConfigError(
                f"{option_name(name)} must be on or off; got {getattr(config, name)!r}: "
                "give True or False"
            )
    for score in config.scores:
        if not _SCORE.fullmatch(score):
            raise ConfigError(f"--scores must be accuracy, top5 and the like, or f1; got {score!r}")
    names = [text.partition("=")[0] for text in config.eval_text]
    for text, name in zip(config.eval_text, names, strict=True):
        own = name not in ("train", "validation") and names.count(name) == 1
        if not own or not name.isidentifier() or not text.partition("=")[2]:
            raise ConfigError(
                f"--eval-text must be NAME=PATH, each name once and neither train nor "
                f"validation; got {text!r}: try --eval-text books=books.txt"
            )
    if config.memory_limit is not None:
        try:
            parse_bytes(config.memory_limit)
        except ValueError as error:
            raise ConfigError(f"--memory-limit: {error}") from None
    if config.precision not in PRECISIONS:
        raise ConfigError(
            f"--precision must be one of {', '.join(PRECISIONS)}; got {config.precision!r}"
        )
    for name in ("device", "prompt", "arch", "preset", "wandb"):
        value = getattr(config, name)
        if value is None and name in ("arch", "preset", "wandb"):
            continue
        if not isinstance(value, str):
            raise ConfigError(f"{option_name(name)} must be text; got {value!r}: give a name")
    for name, paths in (("text", config.text), ("artifact_dir", (config.artifact_dir,))):
        if "" in paths:
            raise ConfigError(f"{option_name(name)} must not be empty: give a path")


def _check_counts(config: TrainConfig) -> None:
    """Whole numbers and their smallest values."""
    required = ("batch_size", "accumulate", "keep")
    sizes = ("layers", "heads", "kv_heads", "embd", "ffn", "context", "seq_len", "stride")
    optional = (*sizes, "epochs", "steps", "threads", "eval_batches")
    for name in (*required, *optional):
        if name in optional and getattr(config, name) is None:
            continue
        _check_int(config, name, 1)
    chosen = ("warmup", "eval_every", "save_every")
    for name in (*chosen, "sample_tokens", "sample_every", "patience", "seed"):
        if name in chosen and getattr(config, name) is None:
            continue
        _check_int(config, name, 0)
    if config.accumulate > _ACCUMULATE_MAX:
        raise ConfigError(
            f"--accumulate must be at most {_ACCUMULATE_MAX}; got {config.accumulate}: "
            "choose less, or a larger --batch-size"
        )


def _check_int(config: TrainConfig, name: str, least: int) -> None:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(
            f"{option_name(name)} must be a whole number; got {value!r}: give {least} or more"
        )
    if value < least:
        raise ConfigError(
            f"{option_name(name)} must be at least {least}; got {value}: give {least} or more"
        )
    if value > _COUNT_MAX:
        raise ConfigError(
            f"{option_name(name)} must be at most {_COUNT_MAX}; got more: choose less"
        )


def _check_float(config: TrainConfig, name: str) -> float:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(
            f"{option_name(name)} must be a number; got {value!r}: give a decimal number"
        )
    if not abs(value) <= _FLOAT32_MAX:
        raise ConfigError(
            f"{option_name(name)} must be finite in single precision, below "
            f"{_FLOAT32_MAX:.2g}; got {value!s:.40}: give a smaller number"
        )
    return float(value)


def _check_numbers(config: TrainConfig) -> None:
    """Decimal numbers and their ranges."""
    if _check_float(config, "lr") <= 0:
        raise ConfigError(f"--lr must be above 0; got {config.lr}: try --lr 0.001")
    if config.min_lr is not None and not 0 <= _check_float(config, "min_lr") <= config.lr:
        raise ConfigError(
            f"--min-lr must lie between 0 and --lr {config.lr}; got {config.min_lr}: "
            f"try --min-lr {config.lr / 10:g}"
        )
    if _check_float(config, "weight_decay") < 0:
        raise ConfigError(
            f"--weight-decay must not be negative; got {config.weight_decay}: "
            "use 0 to switch it off"
        )
    if not 0 < _check_float(config, "beta2") < 1:
        raise ConfigError(f"--beta2 must lie between 0 and 1; got {config.beta2}: try --beta2 0.99")
    if not 0 <= _check_float(config, "ema") < 1:
        raise ConfigError(
            f"--ema must be at least 0 and below 1; got {config.ema}: try --ema 0.999, or 0 to "
            "keep no average"
        )
    for name in ("clip", "clip_value", "min_delta"):
        if _check_float(config, name) < 0:
            raise ConfigError(
                f"{option_name(name)} must not be negative; got {getattr(config, name)}: "
                "use 0 to switch it off"
            )
    if not 0 <= _check_float(config, "val_fraction") < 1:
        raise ConfigError(
            f"--val-fraction must be at least 0 and below 1; got {config.val_fraction}: "
            "try --val-fraction 0.1"
        )


def _check_tokenizer(config: TrainConfig) -> None:
    spec = config.tokenizer
    if not spec:
        raise ConfigError(
            "--tokenizer must not be empty: give chars, bpe:SIZE or the path of a JSON file"
        )
    if not spec.startswith("bpe:"):
        return
    size = spec[len("bpe:") :]
    digits = size.isascii() and size.isdigit() and len(size) < len(str(_BPE_SIZE_MAX)) + 1
    if not digits or not _BPE_SIZE_MIN <= int(size) <= _BPE_SIZE_MAX:
        raise ConfigError(
            f"--tokenizer bpe:SIZE needs a whole number from {_BPE_SIZE_MIN} (the 256 bytes "
            f"and the end-of-text mark) to {_BPE_SIZE_MAX}; got {spec!r}: try bpe:2048"
        )


def _check_names(config: TrainConfig) -> None:
    """What is chosen by name."""
    known = {"optimizer": sorted(optimizers()), "schedule": [*schedule_functions(), PLATEAU]}
    for name, names in known.items():
        value = getattr(config, name)
        if value not in names:
            raise ConfigError(
                f"{option_name(name)} must be one of {', '.join(names)}; got {value!r}: choose one"
            )
    own = ("lr", "weight_decay", "fused_update")
    for name in own:
        if name in config.optimizer_options:
            raise ConfigError(
                f"--optimizer-options must not hold {name}, which has an option of its own: give "
                f"{option_name(name)}"
            )


def read_table(name: str, given: Any) -> dict[str, Any]:
    """Names and values: a table, or texts NAME=VALUE.

    Args:
        name: of the field.
        given: a mapping; or a list of texts, whose values are JSON or else text.

    Raises:
        ConfigError: it is neither.

    Example:
        >>> read_table("optimizer_options", ["momentum=0.9"])
        {'momentum': 0.9}
    """
    table: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {}
    if not isinstance(given, (Mapping, list, tuple)):
        table = {None: None}
    elif not isinstance(given, Mapping):
        for item in given:
            key, equals, text = str(item).partition("=")
            table[key if equals else None] = _read_value(text)
    if not all(isinstance(key, str) and key.isidentifier() for key in table):
        raise ConfigError(
            f"{option_name(name)} must be NAME=VALUE; got {given!r}: try {option_name(name)} "
            + ("momentum=0.9" if name == "optimizer_options" else "power=2")
        )
    return {key: _plain(name, value) for key, value in table.items()}


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _plain(name: str, value: Any) -> Any:
    """A value that TOML and JSON have."""
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if not isinstance(value, (bool, int, float, str)):
        raise ConfigError(
            f"{option_name(name)} must have numbers, texts and lists of these; got {value!r}"
        )
    return value


def read_checkpointing(value: Any) -> bool | int | str | None:
    """What `checkpointing` means: True for all blocks, n for every n-th, False, auto or None."""
    if value is None or isinstance(value, bool) or value == "auto":
        return value  # type: ignore[no-any-return]
    if isinstance(value, str) and value in _CHECKPOINTING:
        return _CHECKPOINTING[value]
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or not 1 <= value <= _COUNT_MAX:
        raise ConfigError(
            f"--checkpointing must be all, none, auto or a number n for every n-th block; got "
            f"{value!r}: try --checkpointing all"
        )
    return True if value == 1 else value
