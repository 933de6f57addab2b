# SPDX-License-Identifier: MIT
"""Whole trainings as functions, which the commands call as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .. import checks
from ..errors import ConfigError
from ..train.callbacks import Callback
from .image import ImageRun
from .image_config import ImageConfig
from .llm import LLMRun
from .llm_config import LLMConfig
from .run import Note, Run, silent
from .tuning import FinetuneConfig, FinetuneRun
from .tuning.results import FinetuneArtifact
from .tuning.rows import rows_of

__all__ = ["finetune", "train_image", "train_llm"]


def train_llm(
    config: LLMConfig | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Iterable[Callback] = (),
    note: Note = silent,
    prepared: Callable[[LLMRun], None] = lambda run: None,
    **options: Any,
) -> LLMRun:
    """Train a language model on text, and return the finished run.

    The folder `artifact_dir` gets model.gguf, which llama.cpp runs, tokenizer.json, config.json,
    config.toml, metrics.jsonl, loss.png, report.html and checkpoints.

    Args:
        config: the configuration; None takes the defaults.
        resume: continue the run in `artifact_dir` with its own options, but for those given here.
        overwrite: replace the run in `artifact_dir`.
        callbacks: told of the trainer's events.
        note: called with lines of progress.
        prepared: called with the run before it trains.
        options: options by name, such as `text`, `preset`, `steps`; they override those of
            `config`. See the page of options in the reference.

    Raises:
        ConfigError: an option is unknown or cannot be used, or the folder cannot.
        FormatError: the text or the tokenizer's file cannot be read.
        OutOfMemoryError: the run does not fit into the device's memory.
        TrainingInterrupted: a signal asked for the end; checkpoint and results are written.
        TrainingError: a loss or gradient is not finite.

    Example:
        >>> run = train_llm(text="notes/", preset="tiny", steps=200)  # doctest: +SKIP
        >>> print(run.generate("The "))  # doctest: +SKIP
    """
    given = (config, resume, overwrite, callbacks, note, prepared, options)
    run: LLMRun = _train("train_llm", LLMRun, *given)
    return run


def train_image(
    config: ImageConfig | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Iterable[Callback] = (),
    note: Note = silent,
    prepared: Callable[[ImageRun], None] = lambda run: None,
    **options: Any,
) -> ImageRun:
    """Train a classifier of images, and return the finished run.

    The folder `artifact_dir` gets model.gguf, which `ImageClassifier` needs and nothing else,
    results.json with the accuracy of each class, config.toml, confusion.png, loss.png, report.html
    and a checkpoint.

    Args:
        config: the configuration; None takes the defaults, and `data` must be given.
        resume: continue the run in `artifact_dir` with its own options, but for those given here.
        overwrite: replace the run in `artifact_dir`.
        callbacks: told of the trainer's events.
        note: called with lines of progress.
        prepared: called with the run before it trains.
        options: options by name, such as `data`, `model`, `epochs`; they override those of
            `config`. See the page of options in the reference.

    Raises:
        ConfigError: an option is unknown or cannot be used, or the folder cannot.
        FormatError: the images cannot be read, or are of one class.
        TrainingInterrupted: a signal asked for the end; checkpoint and results are written.
        TrainingError: a loss or gradient is not finite.

    Example:
        >>> run = train_image(data="digits", model="cnn", epochs=10)  # doctest: +SKIP
        >>> run.results().accuracy  # doctest: +SKIP
        0.98
    """
    given = (config, resume, overwrite, callbacks, note, prepared, options)
    run: ImageRun = _train("train_image", ImageRun, *given)
    return run


def _print_sample(run: FinetuneRun) -> None:
    """Print a row of the training data where `show_sample` asks for it."""
    if run.config.output.show_sample:
        for example in run.sample():
            print("".join(f"[{text}]" if trained else text for text, trained in example))


def finetune(
    config: FinetuneConfig | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Iterable[Callback] = (),
    note: Note = silent,
    prepared: Callable[[FinetuneRun], None] = _print_sample,
    **options: Any,
) -> FinetuneRun:
    """Fine-tune a language model on examples, and return the finished run.

    The base keeps the types of its file; adapters (LoRA) are trained beside its linear layers. The
    folder `artifact_dir` gets adapter.gguf, which llama.cpp applies to the base, adapter/ for PEFT,
    answers.json with loss and answers before and after, and with `merge` or `full` model.gguf.

    Args:
        config: the configuration; None takes the defaults, and `model` and `data` must be given.
        resume: continue the run in `artifact_dir` with its own options, but for those given here.
        overwrite: replace the run in `artifact_dir`.
        callbacks: told of the trainer's events.
        note: called with lines of progress.
        prepared: called with the run before it trains; by default, with `show_sample`, it prints a
            row of the training data, the trained parts in brackets.
        options: options by name, such as `model`, `data`, `epochs`; they override those of
            `config`. See the page of options in the reference. `data` may also be a Hugging Face
            `Dataset`, a data frame or a list of mappings: its rows are kept in rows.jsonl, where
            `resume` finds them.

    Raises:
        ConfigError: an option is unknown or cannot be used, or the folder cannot.
        ConfigTypeError: a row of `data` is no mapping, or holds what JSON has not.
        FormatError: base, adapter or examples cannot be read, or are not those of the run that is
            resumed.
        OutOfMemoryError: the run does not fit into the device's memory.
        TrainingInterrupted: a signal asked for the end; checkpoint and results are written.
        TrainingError: a loss or gradient is not finite.

    Example:
        >>> run = finetune(model="base.gguf", data="chats.jsonl")  # doctest: +SKIP
        >>> print(run.comparison.after)  # doctest: +SKIP
        validation loss 0.4031, perplexity 1.50
    """
    if config is not None:
        checks.instance("finetune", "config", config, FinetuneConfig)
    rows = rows_of(options.get("data", ""))
    if rows is not None:
        kept = FinetuneConfig.options()["artifact_dir"].default
        kept = kept if config is None else config.output.artifact_dir
        options["data"] = FinetuneArtifact(options.get("artifact_dir", kept)).rows
    given = (config, resume, overwrite, callbacks, note, prepared, options)
    run: FinetuneRun = _train("finetune", FinetuneRun, *given, rows=rows)
    return run


def _train(
    who: str,
    kind: type[Run],
    config: Any,
    resume: bool,
    overwrite: bool,
    callbacks: Iterable[Callback],
    note: Note,
    prepared: Callable[[Any], None],
    options: dict[str, Any],
    **given: Any,
) -> Any:
    """Prepare or resume a run, and train it."""
    checks.function(who, "note", note, "line -> None")
    checks.function(who, "prepared", prepared, "run -> None")
    resume = checks.flag(who, "resume", resume)
    overwrite = checks.flag(who, "overwrite", overwrite)
    if resume and overwrite:
        raise ConfigError("`resume` and `overwrite` exclude each other: give one of them")
    if resume:
        if config is not None:
            raise ConfigError("`resume` takes the options of the run: leave `config` out")
        folder = options.pop("artifact_dir", kind.CONFIG.options()["artifact_dir"].default)
        run = kind.resume(folder, options, callbacks, note, **given)
    else:
        if config is not None:
            checks.instance(who, "config", config, kind.CONFIG)
        config = kind.CONFIG(**options) if config is None else config.replace(**options)
        run = kind.prepare(config, overwrite, callbacks, note, **given)
    if run.trainer.group.is_first:
        prepared(run)
    run.train()
    return run
