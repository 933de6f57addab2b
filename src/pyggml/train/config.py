# SPDX-License-Identifier: MIT
"""Everything a training run can be told, with its checks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..options import options_of
from .checks import (
    LISTS,
    TABLES,
    ConfigError,
    check,
    option_name,
    read_checkpointing,
    read_table,
    unknown_fields,
)
from .checks_data import check_data
from .checks_together import check_together
from .options import TrainerOptions
from .texts import read_list, read_path

__all__ = ["ConfigError", "TrainConfig", "option_name"]

# Changing one of these would train another model, or the same one on other data, so a resumed
# run must keep them.
RUN_FIELDS = (
    "text",
    "field",
    "prompt_field",
    "completion_field",
    "separator",
    "packing",
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
    "optimizer",
    "seed",
    "val_fraction",
)
# Changing one of these is legitimate, but the rest of the run differs from what it would have been.
COURSE_FIELDS = (
    "epochs",
    "steps",
    "optimizer_options",
    "schedule",
    "schedule_options",
    "lr",
    "min_lr",
    "warmup",
    "weight_decay",
    "no_decay",
    "lr_scale",
    "layer_lr_decay",
    "label_smoothing",
    "beta2",
    "ema",
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


@dataclass(frozen=True)
class TrainConfig:
    """What to train, on what, for how long, and where the results go.

    `None` means "chosen for you": sizes come from `preset` (or the default model), `steps` from
    the default length of a run, and the intervals from the number of steps.

    Args:
        text: files and folders of UTF-8 text, JSONL, CSV, TSV or Parquet, as `pyggml.data.Corpus`
            reads them; empty trains on the text that comes with Python.
        field: the field of records that holds the text.
        prompt_field: the field of records that holds prompts, "prompt" where only the other is
            given. With either the text is pairs: the loss counts completions alone, and rows are
            packed.
        completion_field: the field that holds completions, "completion" where only the other is
            given.
        separator: what stands between two documents of a text file; None takes each file as one.
        packing: fill rows with whole documents that do not see each other; without, sequences
            cross from one document into the next.
        cache_dir: where tokens of text above 16 MB are kept for the next run; by default the
            user's folder for caches. Smaller text is kept in memory, unless this is given.
        tokenizer: `chars`, `bpe:SIZE` or the path of a `tokenizers` JSON file.
        artifact_dir: folder for everything the run leaves.
        arch: architecture, `llama`, `llm` or `gpt2`; by default the one that has the preset, or
            `llama`.
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
        optimizer: by its name in `pyggml.optim.optimizers()`.
        optimizer_options: further arguments of it, such as `momentum`.
        schedule: of the learning rate, by its name in `pyggml.optim.schedule_functions()`, or
            `plateau`.
        schedule_options: further arguments of it, such as `decay_steps`.
        lr: highest learning rate.
        min_lr: learning rate at the end of the schedule; a tenth of `lr` by default.
        warmup: steps of linear warm-up; a twentieth of the run, at most 100, by default.
        weight_decay: decay of the weight matrices.
        no_decay: patterns of names of parameters that do not decay, such as `*embed*`; besides
            gains and shifts, which never do.
        lr_scale: factors on the learning rate of the parameters of a pattern, each
            `PATTERN=FACTOR`, such as `lm_head.*=0.5`.
        layer_lr_decay: factor on the learning rate from each block to the one below, in (0, 1].
        label_smoothing: share of the targets that is spread over all tokens while training; what
            evaluations measure is without it.
        beta2: decay of the second moment, in optimizers that have `betas`.
        ema: what the running average of the weights keeps of itself at each step, such as 0.999;
            evaluations, samples and the exported model are then the average's. 0 keeps none.
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
        export: whose weights `model.gguf` gets at the end, those of the `best` evaluation or of the
            `last` step; by default the best's with `patience`, and the last's without.
        patience: evaluations without a lower validation loss until the run ends; 0 never ends it.
        min_delta: by how much a validation loss must be lower to count as such.
        scores: what evaluations compute besides the loss: `accuracy`, `top5` and the like, `f1`.
        eval_text: other texts to evaluate on, each `NAME=PATH`.
        tensorboard: write TensorBoard's event files, too.
        wandb: project of Weights & Biases that is told, too; None tells none.
        mfu: measure the device's peak first, and report what share of it the training uses.
        val_fraction: share of the tokens held back for validation, with `packing` of the
            documents; 0 holds back none.
        prefetch: batches made beforehand, in a thread; 0 makes each when it is needed.
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
    field: str = "text"
    prompt_field: str | None = None
    completion_field: str | None = None
    separator: str | None = None
    packing: bool = False
    cache_dir: str | None = None
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
    optimizer: str = "adamw"
    optimizer_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    schedule: str = "warmup_cosine"
    schedule_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    lr: float = 2e-3
    min_lr: float | None = None
    warmup: int | None = None
    weight_decay: float = 0.1
    no_decay: tuple[str, ...] = ()
    lr_scale: tuple[str, ...] = ()
    layer_lr_decay: float = 1.0
    label_smoothing: float = 0.0
    beta2: float = 0.99
    ema: float = 0.0
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
    export: str | None = None
    patience: int = 0
    min_delta: float = 0.0
    scores: tuple[str, ...] = ()
    eval_text: tuple[str, ...] = ()
    mfu: bool = False
    tensorboard: bool = False
    wandb: str | None = None
    val_fraction: float = 0.1
    prefetch: int = 2
    sample_tokens: int = 120
    sample_every: int = 0
    prompt: str = "The"

    def __post_init__(self) -> None:
        for name in LISTS:
            object.__setattr__(self, name, read_list(name, getattr(self, name)))
        for name in TABLES:
            object.__setattr__(self, name, read_table(name, getattr(self, name)))
        for name in ("artifact_dir", "tokenizer"):
            object.__setattr__(self, name, read_path(name, getattr(self, name)))
        object.__setattr__(self, "checkpointing", read_checkpointing(self.checkpointing))
        cache: Any = self.cache_dir
        if isinstance(cache, Path):
            object.__setattr__(self, "cache_dir", str(cache))
        check(self)
        check_data(self)
        check_together(self)

    def trainer_options(self) -> TrainerOptions:
        """Return the options that the Trainer reads; the optimizer has the rate."""
        names = {"metrics": "scores"}
        own = {n: getattr(self, names.get(n, n)) for n in options_of(TrainerOptions)}
        return TrainerOptions(**{**own, "lr": None})

    @property
    def pair_fields(self) -> tuple[str, str] | None:
        """The fields of prompts and completions, where the text is pairs of them."""
        if self.prompt_field is None and self.completion_field is None:
            return None
        return self.prompt_field or "prompt", self.completion_field or "completion"

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
        return values | {name: list(getattr(self, name)) for name in LISTS}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """The configuration that `to_dict` wrote.

        Args:
            values: field values by name; missing fields take their defaults.

        Raises:
            ConfigError: an unknown field, or a value that cannot be used.
        """
        if not isinstance(values, dict):
            raise ConfigError(
                f"TrainConfig.from_dict: values must be options by name; got {values!r:.60}"
            )
        known = {field.name for field in dataclasses.fields(cls)}
        if not set(values) <= known:
            raise ConfigError(f"TrainConfig.from_dict: {unknown_fields(values, known)}")
        lists = {}
        for name in LISTS:
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
