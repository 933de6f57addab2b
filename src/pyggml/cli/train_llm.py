# SPDX-License-Identifier: MIT
"""`pyggml train-llm`: from text to a model that llama.cpp runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .errors import friendly_errors

__all__ = ["BareCheckpointing", "train_llm"]

_DATA, _MODEL, _RUN, _FILES = "Data", "Model", "Training", "Results"


class BareCheckpointing(TyperCommand):
    """A command whose `--checkpointing` may stand without a value, for `all`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give the bare option its value."""
        filled = []
        for i, arg in enumerate(args):
            after = args[i + 1] if i + 1 < len(args) else "-"
            filled.append(arg)
            if arg == "--checkpointing" and after.startswith("-"):
                filled.append("all")
        return super().parse_args(ctx, filled)


def _option(name: str, text: str, panel: str, default: str | None = None) -> Any:
    """An option that is None when it is not given; `default` is what the help shows."""
    return typer.Option(
        f"--{name}", help=text, rich_help_panel=panel, show_default=default or False
    )


def _switch(name: str, text: str, default: str) -> Any:
    """An option that is on, off, or not given."""
    return typer.Option(
        f"--{name}/--no-{name}", help=text, rich_help_panel=_FILES, show_default=default
    )


def train_llm(
    text: Annotated[
        list[str] | None,
        _option(
            "text",
            "Text file, JSONL, CSV, TSV, Parquet, or folder; may be repeated.",
            _DATA,
            "Python's manual",
        ),
    ] = None,
    field: Annotated[
        str | None, _option("field", "Field or column of records with the text.", _DATA, "text")
    ] = None,
    prompt_field: Annotated[
        str | None,
        _option("prompt-field", "Field or column of prompts, which are not learned.", _DATA),
    ] = None,
    completion_field: Annotated[
        str | None,
        _option("completion-field", "Field or column of the completions of prompts.", _DATA),
    ] = None,
    separator: Annotated[
        str | None,
        _option("separator", "What stands between documents of a text file.", _DATA, "none"),
    ] = None,
    packing: Annotated[
        bool | None,
        typer.Option(
            "--packing/--no-packing",
            help="Fill rows with whole documents that do not see each other.",
            rich_help_panel=_DATA,
            show_default="off",
        ),
    ] = None,
    prefetch: Annotated[
        int | None, _option("prefetch", "Batches made ahead, in a thread; 0: none.", _DATA, "2")
    ] = None,
    cache_dir: Annotated[
        str | None,
        _option(
            "cache-dir",
            "Where tokens of text above 16 MB are kept; if given, of any text.",
            _DATA,
            "the user's cache",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        _option("tokenizer", "chars, bpe:SIZE, or a tokenizers JSON file.", _DATA, "bpe:2048"),
    ] = None,
    val_fraction: Annotated[
        float | None,
        _option("val-fraction", "Share of the tokens held back for validation.", _DATA, "0.1"),
    ] = None,
    seq_len: Annotated[
        int | None,
        _option(
            "seq-len", "Tokens per training sequence; the context of a --preset.", _DATA, "128"
        ),
    ] = None,
    stride: Annotated[
        int | None,
        _option(
            "stride",
            "Tokens between the starts of sequences.",
            _DATA,
            "random starts; with --epochs: --seq-len",
        ),
    ] = None,
    arch: Annotated[
        str | None, _option("arch", "Architecture: llama, llm or gpt2.", _MODEL, "llama")
    ] = None,
    preset: Annotated[
        str | None,
        _option(
            "preset", "Named sizes: tiny, small, gpt2-124m, qwen3-0.6b … Sizes given win.", _MODEL
        ),
    ] = None,
    layers: Annotated[int | None, _option("layers", "Blocks.", _MODEL, "4")] = None,
    heads: Annotated[int | None, _option("heads", "Query heads.", _MODEL, "4")] = None,
    kv_heads: Annotated[
        int | None, _option("kv-heads", "Key and value heads (llama).", _MODEL, "--heads")
    ] = None,
    embd: Annotated[int | None, _option("embd", "Width of the model.", _MODEL, "128")] = None,
    ffn: Annotated[
        int | None, _option("ffn", "Width inside the MLP.", _MODEL, "chosen by --arch")
    ] = None,
    context: Annotated[
        int | None, _option("context", "Longest sequence the model reads.", _MODEL, "--seq-len")
    ] = None,
    batch_size: Annotated[
        int | None, _option("batch-size", "Sequences computed together.", _RUN, "8")
    ] = None,
    accumulate: Annotated[
        int | None, _option("accumulate", "Batches per optimizer step.", _RUN, "1")
    ] = None,
    epochs: Annotated[
        int | None, _option("epochs", "Passes over the text; instead of --steps.", _RUN)
    ] = None,
    steps: Annotated[int | None, _option("steps", "Optimizer steps.", _RUN, "1000")] = None,
    optimizer: Annotated[
        str | None, _option("optimizer", "sgd, adamw, lion, muon, …", _RUN, "adamw")
    ] = None,
    optimizer_options: Annotated[
        list[str] | None,
        _option("optimizer-options", "NAME=VALUE, such as momentum=0.9; may be repeated.", _RUN),
    ] = None,
    schedule: Annotated[
        str | None,
        _option("schedule", "Of the learning rate: constant, cosine, …", _RUN, "warmup_cosine"),
    ] = None,
    schedule_options: Annotated[
        list[str] | None,
        _option("schedule-options", "NAME=VALUE, such as power=2; may be repeated.", _RUN),
    ] = None,
    lr: Annotated[float | None, _option("lr", "Highest learning rate.", _RUN, "0.002")] = None,
    min_lr: Annotated[
        float | None, _option("min-lr", "Learning rate at the end.", _RUN, "--lr / 10")
    ] = None,
    warmup: Annotated[
        int | None, _option("warmup", "Steps of linear warm-up.", _RUN, "--steps / 20, at most 100")
    ] = None,
    weight_decay: Annotated[
        float | None, _option("weight-decay", "Decoupled decay of the matrices.", _RUN, "0.1")
    ] = None,
    no_decay: Annotated[
        list[str] | None,
        _option("no-decay", "Names without decay, such as '*embed*'; may be repeated.", _RUN),
    ] = None,
    lr_scale: Annotated[
        list[str] | None,
        _option("lr-scale", "NAMES=FACTOR of the rate, 'lm_head.*=0.5'; may be repeated.", _RUN),
    ] = None,
    layer_lr_decay: Annotated[
        float | None,
        _option("layer-lr-decay", "Factor on the rate from each block to that below.", _RUN, "1.0"),
    ] = None,
    label_smoothing: Annotated[
        float | None,
        _option("label-smoothing", "Share of targets spread over all tokens.", _RUN, "0.0"),
    ] = None,
    beta2: Annotated[
        float | None, _option("beta2", "Decay of AdamW's second moment.", _RUN, "0.99")
    ] = None,
    ema: Annotated[
        float | None,
        _option(
            "ema", "Average the weights, such as 0.999, and evaluate that; 0: off.", _RUN, "0.0"
        ),
    ] = None,
    clip: Annotated[
        float | None, _option("clip", "Largest gradient norm; 0: off.", _RUN, "1.0")
    ] = None,
    patience: Annotated[
        int | None,
        _option("patience", "Evaluations without progress until the end; 0: off.", _RUN, "0"),
    ] = None,
    min_delta: Annotated[
        float | None, _option("min-delta", "What counts as progress of the loss.", _RUN, "0.0")
    ] = None,
    clip_value: Annotated[
        float | None,
        _option("clip-value", "Largest element of a gradient; 0: off.", _RUN, "0.0"),
    ] = None,
    seed: Annotated[int | None, _option("seed", "Seed of weights and order.", _RUN, "0")] = None,
    precision: Annotated[
        str | None, _option("precision", "What products multiply: f32, bf16 or f16.", _RUN, "f32")
    ] = None,
    checkpointing: Annotated[
        str | None,
        _option(
            "checkpointing",
            "Less memory, more time: all blocks compute twice, every N-th, or auto.",
            _RUN,
            "none; with --memory-limit: auto",
        ),
    ] = None,
    memory_limit: Annotated[
        str | None, _option("memory-limit", "Most memory to plan, such as 2GiB.", _RUN)
    ] = None,
    fused_update: Annotated[
        bool | None,
        _option(
            "fused-update", "Update in the backward: no gradients kept; --clip 0.", _RUN, "off"
        ),
    ] = None,
    threads: Annotated[int | None, _option("threads", "CPU threads.", _RUN, "all cores")] = None,
    device: Annotated[
        str | None, _option("device", "auto, cpu, cuda:0, metal; see pyggml devices.", _RUN, "auto")
    ] = None,
    artifact_dir: Annotated[
        str | None, _option("artifact-dir", "Folder for all results.", _FILES, "artifacts/llm")
    ] = None,
    eval_every: Annotated[
        int | None,
        _option("eval-every", "Steps between evaluations; 0: at the end.", _FILES, "--steps / 10"),
    ] = None,
    eval_batches: Annotated[
        int | None, _option("eval-batches", "Batches per evaluation.", _FILES, "all")
    ] = None,
    save_every: Annotated[
        int | None,
        _option("save-every", "Steps between checkpoints; 0: at the end.", _FILES, "--steps / 5"),
    ] = None,
    keep: Annotated[int | None, _option("keep", "Newest checkpoints kept.", _FILES, "2")] = None,
    keep_best: Annotated[
        bool | None,
        _switch("keep-best", "Keep the checkpoint of the lowest validation loss, too.", "on"),
    ] = None,
    export: Annotated[
        str | None,
        _option(
            "export",
            "Whose weights model.gguf gets: of the best evaluation or the last step.",
            _FILES,
            "last; with --patience: best",
        ),
    ] = None,
    eval_text: Annotated[
        list[str] | None,
        _option("eval-text", "NAME=PATH of another text to evaluate on; may be repeated.", _FILES),
    ] = None,
    scores: Annotated[
        list[str] | None,
        _option("scores", "accuracy, top5 and the like in evaluations; repeatable.", _FILES),
    ] = None,
    tensorboard: Annotated[
        bool | None, _switch("tensorboard", "Write TensorBoard's event files, too.", "off")
    ] = None,
    wandb: Annotated[
        str | None, _option("wandb", "Project of Weights & Biases to tell, too.", _FILES)
    ] = None,
    mfu: Annotated[
        bool | None, _switch("mfu", "Measure the peak first, and the share of it used.", "off")
    ] = None,
    prompt: Annotated[str | None, _option("prompt", "Start of the samples.", _FILES, "The")] = None,
    sample_every: Annotated[
        int | None, _option("sample-every", "Steps between samples; 0: at the end.", _FILES, "0")
    ] = None,
    sample_tokens: Annotated[
        int | None, _option("sample-tokens", "Tokens of a sample; 0: none.", _FILES, "120")
    ] = None,
    config: Annotated[
        str | None,
        _option("config", "TOML or JSON file of options; those given here win.", _FILES),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the run in --artifact-dir.", rich_help_panel=_FILES
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace the run in --artifact-dir.", rich_help_panel=_FILES
        ),
    ] = False,
) -> None:
    """Train a language model on text.

    Without options: a small Llama on the manual that comes with Python, in a few minutes. The
    folder of results holds model.gguf (which llama.cpp runs), tokenizer.json, config.json,
    config.toml (for --config), metrics.jsonl, loss.png, report.html and checkpoints. Ctrl-C
    writes a checkpoint; --resume goes on from it with the options of the run.
    """
    given = {
        name: value
        for name, value in locals().items()
        if value is not None and name not in ("config", "resume", "overwrite")
    }
    with friendly_errors():
        _run(given, config, resume, overwrite)


def _run(given: dict[str, Any], config: str | None, resume: bool, overwrite: bool) -> None:
    """Prepare, describe, train, export, and say what was written."""
    from ..recipes import LLMRun, read_config
    from ..train import ConfigError, TrainConfig, TrainingInterrupted
    from .live import make_reporter

    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other: give one of them")
    for name in ("text", "eval_text", "scores", "no_decay", "lr_scale"):
        if name in given:
            given[name] = tuple(given[name])
    if given.get("packing") is False and {"prompt_field", "completion_field"} & given.keys():
        raise ConfigError(
            "--no-packing excludes --prompt-field and --completion-field: no pair sees another; "
            "leave --no-packing out"
        )
    if config is not None:
        file = read_config(config)
        for name, other in (("steps", "epochs"), ("epochs", "steps")):
            if name in given:
                file.pop(other, None)
        given = {**file, **given}
    reporter = make_reporter()
    if resume:
        folder = given.pop("artifact_dir", TrainConfig.artifact_dir)
        run = LLMRun.resume(folder, given, callbacks=[reporter], note=reporter.note)
    else:
        run = LLMRun.prepare(
            TrainConfig(**given), overwrite=overwrite, callbacks=[reporter], note=reporter.note
        )
    reporter.describe(run.describe())
    try:
        result = run.train()
    except TrainingInterrupted:
        reporter.note(f"model.gguf has {run.exported}")
        reporter.written(run.artifact.files())
        raise
    reporter.finished(result)
    reporter.note(f"model.gguf has {run.exported}")
    sample = run.sample(exported=True)
    if sample:
        reporter.last_sample(sample)
    reporter.written(run.artifact.files())
