# SPDX-License-Identifier: MIT
"""`pyggml lr-find`: the learning rate to begin with."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from .errors import friendly_errors

__all__ = ["lr_find"]


def lr_find(
    config: Annotated[
        str | None,
        typer.Option("--config", help="TOML or JSON file of options, as of train-llm."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="Text, JSONL, CSV, Parquet, or folder; may be repeated."),
    ] = None,
    field: Annotated[
        str | None, typer.Option("--field", help="Field or column of records with the text.")
    ] = None,
    prompt_field: Annotated[
        str | None,
        typer.Option("--prompt-field", help="Field or column of prompts, which are not learned."),
    ] = None,
    completion_field: Annotated[
        str | None,
        typer.Option("--completion-field", help="Field or column of the completions of prompts."),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="chars, bpe:SIZE, or a JSON file.")
    ] = None,
    arch: Annotated[str | None, typer.Option("--arch", help="llama, llm or gpt2.")] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="Named sizes.")] = None,
    seq_len: Annotated[int | None, typer.Option("--seq-len", help="Tokens per sequence.")] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="Sequences computed together.")
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option("--optimizer", help="sgd, adamw, lion, muon, …")
    ] = None,
    precision: Annotated[str | None, typer.Option("--precision", help="f32, bf16 or f16.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of weights and order.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="CPU threads.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="See pyggml devices.")] = None,
    start: Annotated[float, typer.Option("--start", help="Lowest rate.")] = 1e-6,
    end: Annotated[float, typer.Option("--end", help="Highest rate.")] = 1.0,
    tries: Annotated[int, typer.Option("--tries", help="Steps, each at another rate.")] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with every rate and loss.")
    ] = False,
) -> None:
    """Train for some steps at rates that grow, and name the rate at which the loss falls fastest.

    Nothing is written but the tokens of text above 16 MB, which train-llm finds again. The model is
    the one that train-llm would begin with, with the options of --config and those given here;
    clipping is as there.
    """
    given: dict[str, Any] = {
        name: value
        for name, value in locals().items()
        if value is not None and name not in ("config", "start", "end", "tries", "as_json")
    }
    with friendly_errors():
        from ..recipes import LLMRun, read_config
        from ..train import ConfigError, TrainConfig

        if "text" in given:
            given["text"] = tuple(given["text"])
        if config is not None:
            given = {**read_config(config), **given}
        run = LLMRun.sketch(TrainConfig.from_dict(given))
        try:
            found = run.find_lr(start, end, tries)
        except ValueError as error:
            raise ConfigError(f"lr-find: {error}") from error
        if as_json:
            names = ("suggested", "lowest", "rates", "losses")
            print(json.dumps({name: getattr(found, name) for name in names}))
            return
        print("rate        loss")
        shown = range(0, len(found.rates), max(1, len(found.rates) // 20))
        for i in shown:
            print(f"{found.rates[i]:<10.2e}  {found.smoothed[i]:.4f}")
        print(f"suggested   --lr {found.suggested:.2g}, where the loss falls fastest")
        print(f"lowest      {found.lowest:.2g}: a training at this rate is about to diverge")
