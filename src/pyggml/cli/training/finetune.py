# SPDX-License-Identifier: MIT
"""`pyggml finetune`: from a model and a file of chats to an adapter that llama.cpp applies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...recipes import FinetuneConfig
from ..errors import friendly_errors
from ..options import ConfigFile, Overwrite, Resume, with_options

if TYPE_CHECKING:
    from ...recipes import FinetuneRun

__all__ = ["finetune"]

_OPTIONS = [name for name in FinetuneConfig.options() if name != "model"]


@with_options(FinetuneConfig, only=_OPTIONS)
def finetune(
    given: dict[str, Any],
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="The base: a GGUF file of any type, a Hugging Face folder, or a run's folder.",
            show_default=False,
        ),
    ] = None,
    config: ConfigFile = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Fine-tune a language model on examples.

    Adapters (LoRA) are trained beside the linear layers; the base keeps the types of its file. The
    folder of results holds adapter.gguf (for llama.cpp), adapter/ (for PEFT), answers.json with
    loss and answers before and after, config.toml (for --config), metrics.jsonl, loss.png,
    report.html and checkpoints; with --merge or --full also model.gguf. With --task classify a
    head is trained, too, and the whole model is written: model.gguf where llama.cpp has the head,
    otherwise model/, a folder of transformers. Ctrl-C writes a checkpoint; --resume goes on from
    it with the options of the run.
    """
    with friendly_errors(trains=True):
        from ...recipes import finetune as train
        from ...recipes import read_config
        from .live import make_reporter, trained

        if config is not None:
            given = FinetuneConfig.merged(read_config(config, FinetuneConfig), given)
        if model is not None:
            given["model"] = model
        reporter = make_reporter()
        settings = {"resume": resume, "overwrite": overwrite, **given}
        with trained(train, reporter, **settings) as run:
            if run.result is not None:
                reporter.finished(run.result)
            show_results(run, reporter)


def show_results(run: FinetuneRun, reporter: Any) -> None:
    """Print loss and answers before and after, and the commands for llama.cpp.

    Args:
        run: a finished run.
        reporter: prints the lines.
    """
    comparison = run.comparison
    paths = (run.artifact.adapter, run.artifact.model, run.artifact.folder)
    files = [path.name for path in paths if path.exists()]
    reporter.note(f"{' and '.join(files)} {'has' if len(files) == 1 else 'have'} {run.exported}")
    for name, text in comparison.rows():
        reporter.note(f"{name:<8} {text}")
    for i, answer in enumerate(comparison.answers):
        reporter.answer("prompt", answer.prompt)
        reporter.answer("expected", answer.expected)
        if i < len(comparison.base_answers):
            reporter.answer(comparison.first, comparison.base_answers[i].given)
        reporter.answer("trained", answer.given)
    commands = run.commands()
    if commands:
        reporter.note("\nllama.cpp:")
    for command in commands:
        reporter.note(f"  {command}")
    if run.artifact.folder.exists():
        reporter.note(f"\ntransformers: AutoModelForSequenceClassification, {run.artifact.folder}")
