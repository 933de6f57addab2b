# SPDX-License-Identifier: MIT
"""Everything a training run can be told, with its checks."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .plan import parse_bytes

__all__ = ["ConfigError", "TrainConfig", "option_name"]

# A byte-level BPE holds the 256 bytes and the end-of-text mark before any merge.
_BPE_SIZE_MIN = 257
_BPE_SIZE_MAX = 10**6
_COUNT_MAX = 2**63 - 1
# The batches of a step are gathered before it starts.
_ACCUMULATE_MAX = 65536
_FLOAT32_MAX = float(2**128 - 2**104)

# Changing one of these would train another model, or the same one on other data, so a resumed
# run must keep them.
RUN_FIELDS = (
    "text",
    "tokenizer",
    "arch",
    "preset",
    "layers",
    "heads",
    "kv_heads",
    "embd",
    "ffn",
    "context",
    "seq_len",
    "stride",
    "batch_size",
    "accumulate",
    "seed",
    "val_fraction",
)
# Changing one of these is legitimate, but the rest of the run differs from what it would have been.
COURSE_FIELDS = (
    "epochs",
    "steps",
    "lr",
    "min_lr",
    "warmup",
    "weight_decay",
    "beta2",
    "clip",
    "clip_value",
    "precision",
    "checkpointing",
    "memory_limit",
    "patience",
    "min_delta",
    "threads",
    "device",
)
# Fields that hold several texts.
_LISTS = ("text", "scores", "eval_text")
_SCORE = re.compile(r"accuracy|top[1-9][0-9]{0,7}")
_CHECKPOINTING = {"all": True, "none": False}
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


@dataclass(frozen=True)
class TrainConfig:
    """What to train, on what, for how long, and where the results go.

    `None` means "chosen for you": sizes come from `preset` (or the default model), `steps` from
    the default length of a run, and the intervals from the number of steps.

    Args:
        text: files and folders of UTF-8 text; empty trains on the text that comes with Python.
        tokenizer: `chars`, `bpe:SIZE` or the path of a `tokenizers` JSON file.
        artifact_dir: folder for everything the run leaves.
        arch: architecture, `llama` or `gpt2`; by default the one that has the preset, or `llama`.
        preset: named set of sizes; single sizes given beside it win.
        layers: number of blocks.
        heads: query heads.
        kv_heads: key and value heads (llama), a divisor of `heads`.
        embd: width of the model, a multiple of `heads`.
        ffn: width of the hidden layer of the MLP.
        context: longest sequence that the model can read.
        seq_len: tokens per training sequence, at most `context`.
        stride: tokens between the starts of neighbouring sequences. By default `seq_len` when the
            run is measured in epochs; otherwise sequences start at random places.
        batch_size: sequences computed together.
        accumulate: batches per optimizer step.
        epochs: passes over the training sequences; excludes `steps`.
        steps: optimizer steps.
        lr: highest learning rate.
        min_lr: learning rate at the end of the cosine; a tenth of `lr` by default.
        warmup: steps of linear warm-up; a twentieth of the run, at most 100, by default.
        weight_decay: decoupled decay of the weight matrices.
        beta2: decay of AdamW's second moment.
        clip: largest global gradient norm; 0 switches clipping off.
        clip_value: largest magnitude of a gradient's element; 0 switches this clipping off.
        seed: seeds initial weights and shuffling.
        precision: what matrix products multiply, `f32`, `bf16` or `f16`; all else stays f32. With
            `f16` the loss is scaled, and steps whose gradients overflow are skipped.
        checkpointing: of which blocks only the inputs are kept for the backward, which computes
            the rest again: `all` (less memory, a third more time), a number n for every n-th,
            `none`, or `auto` for as few as fit into `memory_limit`. By default `auto` with a
            `memory_limit`, and none without.
        memory_limit: most bytes that the run may plan, such as `2GiB`; by default what the device
            has free.
        fused_update: update each parameter as soon as its gradient is complete, and keep no
            gradients; without `clip` and `accumulate`.
        threads: CPU threads; by default what the device chooses.
        device: `auto`, `cpu`, `cuda:0`, `metal`.
        eval_every: steps between evaluations; 0 evaluates at the end only.
        eval_batches: batches per evaluation; None reads the whole validation split.
        save_every: steps between checkpoints; 0 saves at the end only.
        keep: newest checkpoints kept.
        keep_best: keep the checkpoint with the lowest validation loss besides, in `best`.
        patience: evaluations without a lower validation loss until the run ends; 0 never ends it.
        min_delta: by how much a validation loss must be lower to count as such.
        scores: what evaluations compute besides the loss: `accuracy`, and `top5` and the like.
        eval_text: other texts to evaluate on, each `NAME=PATH`.
        tensorboard: write TensorBoard's event files, too.
        wandb: project of Weights & Biases that is told, too; None tells none.
        mfu: measure the device's peak first, and report what share of it the training uses.
        val_fraction: share of the tokens held back for validation; 0 holds back none.
        sample_tokens: tokens of the sample written at the end; 0 writes none.
        sample_every: steps between samples during the training; 0 writes one at the end only.
        prompt: start of the samples.

    Raises:
        ConfigError: a value or a combination that cannot be used; names the option and the cure.

    Example:
        >>> TrainConfig(steps=200, lr=1e-3).steps
        200
    """

    text: tuple[str, ...] = ()
    tokenizer: str = "bpe:2048"
    artifact_dir: str = "artifacts/llm"
    arch: str | None = None
    preset: str | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    embd: int | None = None
    ffn: int | None = None
    context: int | None = None
    seq_len: int | None = None
    stride: int | None = None
    batch_size: int = 8
    accumulate: int = 1
    epochs: int | None = None
    steps: int | None = None
    lr: float = 2e-3
    min_lr: float | None = None
    warmup: int | None = None
    weight_decay: float = 0.1
    beta2: float = 0.99
    clip: float = 1.0
    clip_value: float = 0.0
    seed: int = 0
    precision: str = "f32"
    checkpointing: bool | int | str | None = None
    memory_limit: int | str | None = None
    fused_update: bool = False
    threads: int | None = None
    device: str = "auto"
    eval_every: int | None = None
    eval_batches: int | None = None
    save_every: int | None = None
    keep: int = 2
    keep_best: bool = True
    patience: int = 0
    min_delta: float = 0.0
    scores: tuple[str, ...] = ()
    eval_text: tuple[str, ...] = ()
    mfu: bool = False
    tensorboard: bool = False
    wandb: str | None = None
    val_fraction: float = 0.1
    sample_tokens: int = 120
    sample_every: int = 0
    prompt: str = "The"

    def __post_init__(self) -> None:
        for name in _LISTS:
            value: Any = getattr(self, name)
            items = (value,) if isinstance(value, (str, Path)) else value
            object.__setattr__(self, name, tuple(str(item) for item in items))
        object.__setattr__(self, "artifact_dir", str(self.artifact_dir))
        object.__setattr__(self, "tokenizer", str(self.tokenizer))
        object.__setattr__(self, "checkpointing", _checkpointing(self.checkpointing))
        self._check_strings()
        self._check_counts()
        self._check_numbers()
        self._check_tokenizer()
        self._check_together()

    def _check_strings(self) -> None:
        """Texts, which must be texts."""
        for name in ("fused_update", "keep_best", "mfu", "tensorboard"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(
                    f"{option_name(name)} must be on or off; got {getattr(self, name)!r}: "
                    "give True or False"
                )
        for score in self.scores:
            if not _SCORE.fullmatch(score):
                raise ConfigError(f"--scores must be accuracy, or top5 and the like; got {score!r}")
        names = [text.partition("=")[0] for text in self.eval_text]
        for text, name in zip(self.eval_text, names, strict=True):
            own = name not in ("train", "validation") and names.count(name) == 1
            if not own or not name.isidentifier() or not text.partition("=")[2]:
                raise ConfigError(
                    f"--eval-text must be NAME=PATH, each name once and neither train nor "
                    f"validation; got {text!r}: try --eval-text books=books.txt"
                )
        if self.memory_limit is not None:
            try:
                parse_bytes(self.memory_limit)
            except ValueError as error:
                raise ConfigError(f"--memory-limit: {error}") from None
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"--precision must be one of {', '.join(PRECISIONS)}; got {self.precision!r}"
            )
        for name in ("device", "prompt", "arch", "preset", "wandb"):
            value = getattr(self, name)
            if value is None and name in ("arch", "preset", "wandb"):
                continue
            if not isinstance(value, str):
                raise ConfigError(f"{option_name(name)} must be text; got {value!r}: give a name")
        for name, paths in (("text", self.text), ("artifact_dir", (self.artifact_dir,))):
            if "" in paths:
                raise ConfigError(f"{option_name(name)} must not be empty: give a path")

    def _check_counts(self) -> None:
        """Whole numbers and their smallest values."""
        required = ("batch_size", "accumulate", "keep")
        sizes = ("layers", "heads", "kv_heads", "embd", "ffn", "context", "seq_len", "stride")
        optional = (*sizes, "epochs", "steps", "threads", "eval_batches")
        for name in (*required, *optional):
            if name in optional and getattr(self, name) is None:
                continue
            self._check_int(name, 1)
        chosen = ("warmup", "eval_every", "save_every")
        for name in (*chosen, "sample_tokens", "sample_every", "patience", "seed"):
            if name in chosen and getattr(self, name) is None:
                continue
            self._check_int(name, 0)
        if self.accumulate > _ACCUMULATE_MAX:
            raise ConfigError(
                f"--accumulate must be at most {_ACCUMULATE_MAX}; got {self.accumulate}: "
                "choose less, or a larger --batch-size"
            )

    def _check_int(self, name: str, least: int) -> None:
        value = getattr(self, name)
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

    def _check_float(self, name: str) -> float:
        value = getattr(self, name)
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

    def _check_numbers(self) -> None:
        """Decimal numbers and their ranges."""
        if self._check_float("lr") <= 0:
            raise ConfigError(f"--lr must be above 0; got {self.lr}: try --lr 0.001")
        if self.min_lr is not None and not 0 <= self._check_float("min_lr") <= self.lr:
            raise ConfigError(
                f"--min-lr must lie between 0 and --lr {self.lr}; got {self.min_lr}: "
                f"try --min-lr {self.lr / 10:g}"
            )
        if self._check_float("weight_decay") < 0:
            raise ConfigError(
                f"--weight-decay must not be negative; got {self.weight_decay}: "
                "use 0 to switch it off"
            )
        if not 0 < self._check_float("beta2") < 1:
            raise ConfigError(
                f"--beta2 must lie between 0 and 1; got {self.beta2}: try --beta2 0.99"
            )
        for name in ("clip", "clip_value", "min_delta"):
            if self._check_float(name) < 0:
                raise ConfigError(
                    f"{option_name(name)} must not be negative; got {getattr(self, name)}: "
                    "use 0 to switch it off"
                )
        if not 0 <= self._check_float("val_fraction") < 1:
            raise ConfigError(
                f"--val-fraction must be at least 0 and below 1; got {self.val_fraction}: "
                "try --val-fraction 0.1"
            )

    def _check_tokenizer(self) -> None:
        spec = self.tokenizer
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

    def _check_together(self) -> None:
        """Options that must agree with one another."""
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(
                f"--epochs and --steps exclude each other; got --epochs {self.epochs} and "
                f"--steps {self.steps}: give one of them"
            )
        if self.heads is not None and self.embd is not None and self.embd % self.heads:
            raise ConfigError(
                f"--heads must divide --embd; got --heads {self.heads} and --embd {self.embd}: "
                f"try --embd {_round_up(self.embd, self.heads)}"
            )
        if self.heads is not None and self.kv_heads is not None and self.heads % self.kv_heads:
            raise ConfigError(
                f"--kv-heads must divide --heads; got --kv-heads {self.kv_heads} and --heads "
                f"{self.heads}: try --kv-heads {math.gcd(self.heads, self.kv_heads)}"
            )
        if self.context is not None and self.seq_len is not None and self.seq_len > self.context:
            raise ConfigError(
                f"--seq-len must not exceed --context; got --seq-len {self.seq_len} and "
                f"--context {self.context}: lower the one or raise the other"
            )
        if self.steps is not None and self.warmup is not None and self.warmup > self.steps:
            raise ConfigError(
                f"--warmup must not exceed --steps; got --warmup {self.warmup} and "
                f"--steps {self.steps}: lower the one or raise the other"
            )

        if self.patience and not self.val_fraction:
            raise ConfigError(
                f"--patience needs a validation loss; got --patience {self.patience} and "
                "--val-fraction 0: hold some tokens back, or leave --patience out"
            )
        self._check_fused_update()

    def _check_fused_update(self) -> None:
        """What needs all gradients at once."""
        if self.fused_update and self.clip:
            raise ConfigError(
                "--fused-update excludes --clip, as the norm needs all gradients before the first "
                f"update; got --clip {self.clip:g}: give --clip 0"
            )
        if self.fused_update and self.clip_value:
            raise ConfigError(
                "--fused-update excludes --clip-value, which needs gradients that are kept; got "
                f"--clip-value {self.clip_value:g}: give one of them"
            )
        if self.fused_update and self.precision == "f16":
            raise ConfigError(
                "--fused-update excludes --precision f16, whose loss scaling must see all "
                "gradients before the first update: give --precision bf16 or f32"
            )
        if self.fused_update and self.accumulate > 1:
            raise ConfigError(
                "--fused-update excludes --accumulate, as it updates after every batch; got "
                f"--accumulate {self.accumulate}: give one of them"
            )

    def replace(self, **changes: Any) -> TrainConfig:
        """A copy with some fields changed, checked again.

        Args:
            changes: new values by field name.

        Raises:
            ConfigError: a new value cannot be used.
        """
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-ready values."""
        values = dataclasses.asdict(self)
        return values | {name: list(getattr(self, name)) for name in _LISTS}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """The configuration that `to_dict` wrote.

        Args:
            values: field values by name; missing fields take their defaults.

        Raises:
            ConfigError: an unknown field, or a value that cannot be used.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(
                f"TrainConfig.from_dict: every field must be known; got {unknown}: "
                "was this written by a newer pyggml?"
            )
        lists = {}
        for name in _LISTS:
            items = values.get(name, ())
            if not isinstance(items, (list, tuple)) or not all(isinstance(t, str) for t in items):
                raise ConfigError(
                    f"{option_name(name)} must be a list of texts; got {items!r}: "
                    f"{'give file names' if name == 'text' else 'give names'}"
                )
            lists[name] = tuple(items)
        return cls(**{**values, **lists})

    def total_steps(self, batches_per_epoch: int, default_steps: int) -> int:
        """Optimizer steps of the whole run.

        Args:
            batches_per_epoch: batches in one pass over the training sequences.
            default_steps: used when neither epochs nor steps are set.
        """
        if self.steps is not None:
            return self.steps
        if self.epochs is None:
            return default_steps
        return max(1, self.epochs * batches_per_epoch // self.accumulate)


def _checkpointing(value: Any) -> bool | int | str | None:
    """What `checkpointing` means: True for all blocks, n for every n-th, False, auto or None."""
    if value is None or isinstance(value, bool) or value == "auto":
        return value  # type: ignore[no-any-return]
    if value in _CHECKPOINTING:
        return _CHECKPOINTING[value]
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or not 1 <= value <= _COUNT_MAX:
        raise ConfigError(
            f"--checkpointing must be all, none, auto or a number n for every n-th block; got "
            f"{value!r}: try --checkpointing all"
        )
    return True if value == 1 else value


def _round_up(value: int, multiple: int) -> int:
    """The next multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple
