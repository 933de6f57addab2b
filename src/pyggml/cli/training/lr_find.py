# SPDX-License-Identifier: MIT
"""`pyggml lr-find`: the learning rate to begin with."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ...recipes import LLMConfig
from ..errors import friendly_errors
from ..options import with_options

__all__ = ["lr_find"]

_OPTIONS = (
    "text field prompt_field completion_field tokenizer arch preset seq_len batch_size optimizer "
    "precision seed threads device"
)


@with_options(LLMConfig, only=_OPTIONS.split())
def lr_find(
    given: dict[str, Any],
    config: Annotated[
        str | None,
        typer.Option("--config", help="TOML or JSON file of options, as of train-llm."),
    ] = None,
    start: Annotated[float, typer.Option("--start", help="Lowest rate.")] = 1e-6,
    end: Annotated[float, typer.Option("--end", help="Highest rate.")] = 1.0,
    tries: Annotated[int, typer.Option("--tries", help="Steps, each at another rate.")] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with every rate and loss.")
    ] = False,
) -> None:
    """Train for some steps at growing rates and print the rate at which the loss falls fastest.

    Nothing is written but the tokens of text above 16 MB, which train-llm finds again. The model is
    the one that train-llm would begin with, with the options of --config and those given here;
    clipping is as there.
    """
    with friendly_errors():
        from ...errors import ConfigError
        from ...recipes import LLMRun, read_config

        if config is not None:
            given = LLMConfig.merged(read_config(config), given)
        run = LLMRun.sketch(LLMConfig(**given))
        try:
            found = run.find_lr(start, end, tries)
        except ValueError as error:
            raise ConfigError(str(error)) from error
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
