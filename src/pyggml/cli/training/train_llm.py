# SPDX-License-Identifier: MIT
"""`pyggml train-llm`: from text to a model that llama.cpp runs."""

from __future__ import annotations

from typing import Any

from ...recipes import LLMConfig
from ..errors import friendly_errors
from ..options import ConfigFile, Overwrite, Resume, with_options

__all__ = ["train_llm"]


@with_options(LLMConfig)
def train_llm(
    given: dict[str, Any],
    config: ConfigFile = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a language model on text.

    Without options: a small Llama on the manual that comes with Python, in a few minutes. The
    folder of results holds model.gguf (which llama.cpp runs), tokenizer.json, config.json,
    config.toml (for --config), metrics.jsonl, loss.png, report.html and checkpoints. Ctrl-C
    writes a checkpoint; --resume goes on from it with the options of the run.
    """
    with friendly_errors(trains=True):
        from ...recipes import read_config
        from ...recipes import train_llm as train
        from .live import make_reporter, trained

        if config is not None:
            given = LLMConfig.merged(read_config(config), given)
        reporter = make_reporter()
        with trained(train, reporter, resume=resume, overwrite=overwrite, **given) as run:
            if run.result is not None:
                reporter.finished(run.result)
            reporter.note(f"model.gguf has {run.exported}")
            reporter.last_sample(run.generate())
