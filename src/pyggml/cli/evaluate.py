# SPDX-License-Identifier: MIT
"""`pyggml eval`: the loss of a model on text."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

import typer

from ..recipes import LLMConfig
from .errors import friendly_errors
from .generate import load_model
from .options import TokenizerFile, with_options
from .terminal import say

__all__ = ["evaluate"]

_OPTIONS = "text field prompt_field completion_field seq_len batch_size metrics threads device"


@with_options(
    LLMConfig, only=_OPTIONS.split(), defaults={"text": "required", "seq_len": "the context"}
)
def evaluate(
    given: dict[str, Any],
    model: Annotated[
        str, typer.Option("--model", help="A GGUF file, or the folder that train-llm left.")
    ],
    tokenizer_file: TokenizerFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the loss (nats per token), perplexity and bits per byte of a model on text.

    The text is cut into sequences of --seq-len tokens; each token is predicted from those before
    it in its sequence. Of prompts and completions, each pair is read by itself, and the tokens of
    its completion count.
    """
    with friendly_errors():
        from ..data import Loader, PackedDataset
        from ..errors import ConfigError, reason
        from ..recipes.corpus import read_corpus
        from ..train import eval_batches, token_bytes
        from ..train import evaluate as measure

        config = LLMConfig(**given)
        data, seq_len = config.data, config.data.seq_len
        batch_size = config.trainer.value("batch_size")
        if not data.text:
            raise ConfigError("`text` must be given: name files or folders")
        corpus = read_corpus(config, partial(say, error=True))
        pairs = data.pair_fields is not None
        language_model, tokenizer = load_model(model, config.machine, tokenizer_file)
        context = language_model.config.context
        if seq_len is not None and seq_len > context:
            raise ConfigError(
                f"`seq_len` must not exceed the model's context {context}; got {seq_len}: "
                f"give {context} or less"
            )
        documents = corpus.tokens(tokenizer, eos=tokenizer.eos_id is not None)
        ids = documents.ids
        length = seq_len or (context if pairs else min(context, max(1, ids.size - 1)))
        if pairs:
            try:
                rows = PackedDataset(documents, length)
            except ValueError as error:
                raise ConfigError(
                    f"`text`, `seq_len`={length}: {reason(error)}: give more pairs, shorter "
                    "prompts, or a larger `seq_len`"
                ) from error
            loader = Loader(rows, min(batch_size, len(rows)), shuffle=False, pad_last=True)
            batches = loader.once()
        else:
            if ids.size < length + 1:
                raise ConfigError(
                    f"`text` must hold more than one sequence of `seq_len`={length} tokens; "
                    f"got {ids.size} tokens: give more text or a smaller `seq_len`"
                )
            batches = eval_batches(ids, length, batch_size)
        metrics = measure(
            language_model,
            batches,
            metrics=config.trainer.metrics,
            token_bytes=token_bytes(tokenizer),
        )
        assert metrics is not None
        assert metrics.perplexity is not None  # a language model's loss
        more = {} if metrics.bits_per_byte is None else {"bits_per_byte": metrics.bits_per_byte}
        more |= metrics.metrics
        if as_json:
            values: dict[str, float] = {
                "loss": metrics.loss,
                "perplexity": metrics.perplexity,
                "tokens": metrics.tokens,
                "seq_len": length,
                **more,
            }
            print(json.dumps(values))
        else:
            print(f"loss        {metrics.loss:.4f}")
            print(f"perplexity  {metrics.perplexity:.2f}")
            print(f"tokens      {metrics.tokens:,}")
            for name, number in more.items():
                print(f"{name:<13} {number:.4f}")
