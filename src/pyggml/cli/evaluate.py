# SPDX-License-Identifier: MIT
"""`pyggml eval`: how well a model predicts a text."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .errors import friendly_errors
from .generate import load_model

__all__ = ["evaluate"]


def evaluate(
    model: Annotated[
        str, typer.Option("--model", help="A GGUF file, or the folder that train-llm left.")
    ],
    text: Annotated[
        list[str],
        typer.Option("--text", help="Text, JSONL, CSV, Parquet, or folder; may be repeated."),
    ],
    field: Annotated[
        str, typer.Option("--field", help="Field or column of records with the text.")
    ] = "text",
    prompt_field: Annotated[
        str | None,
        typer.Option("--prompt-field", help="Field or column of prompts, which do not count."),
    ] = None,
    completion_field: Annotated[
        str | None,
        typer.Option("--completion-field", help="Field or column of the completions of prompts."),
    ] = None,
    seq_len: Annotated[
        int | None,
        typer.Option("--seq-len", help="Tokens per sequence.", show_default="the context"),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", help="Sequences computed together.")
    ] = 8,
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads.", show_default="all cores")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="See pyggml devices.")] = "auto",
    scores: Annotated[
        list[str] | None,
        typer.Option("--scores", help="accuracy, top5 and the like; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Loss (nats per token), perplexity and bits per byte of a model on text.

    The text is cut into sequences of --seq-len tokens; each token is predicted from those before
    it in its sequence. Of prompts and completions, each pair is read by itself, and the tokens of
    its completion count.
    """
    with friendly_errors():
        from ..data import Corpus, Loader, PackedDataset
        from ..recipes.pairs import PairCorpus
        from ..train import ConfigError, eval_batches, token_bytes
        from ..train import evaluate as measure
        from ..train.evaluation.evaluate import parse_metric

        for name, value in (("seq-len", seq_len), ("batch-size", batch_size)):
            if value is not None and value < 1:
                raise ConfigError(f"--{name} must be at least 1; got {value}: give 1 or more")
        for score in scores or ():
            try:
                parse_metric(score)
            except ValueError as error:
                raise ConfigError(f"--scores: {error}") from error
        if "" in (field, prompt_field, completion_field, *text):
            raise ConfigError("--text and fields must not be empty: give a path and a name")
        pairs = prompt_field is not None or completion_field is not None
        if pairs:
            corpus: Corpus = PairCorpus(
                text, prompt_field or "prompt", completion_field or "completion"
            )
        else:
            corpus = Corpus(text, field)
        language_model, tokenizer = load_model(model, device, threads)
        context = language_model.config.context
        if seq_len is not None and seq_len > context:
            raise ConfigError(
                f"--seq-len must not exceed the model's context {context}; got {seq_len}: "
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
                    f"--text, --seq-len {length}: {error}: give more pairs, shorter prompts, or a "
                    "larger --seq-len"
                ) from error
            loader = Loader(rows, min(batch_size, len(rows)), shuffle=False, pad_last=True)
            batches = loader.once()
        else:
            if ids.size < length + 1:
                raise ConfigError(
                    f"--text must hold more than one sequence of --seq-len {length} tokens; "
                    f"got {ids.size} tokens: give more text or a smaller --seq-len"
                )
            batches = eval_batches(ids, length, batch_size)
        metrics = measure(
            language_model,
            batches,
            metrics=scores or (),
            token_bytes=token_bytes(tokenizer),
        )
        assert metrics is not None
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
