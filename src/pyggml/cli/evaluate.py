# SPDX-License-Identifier: MIT
"""`pyggml eval`: the loss of a model on text, and its answers to questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from ..recipes import LLMConfig
from .errors import friendly_errors
from .generate import Adapters, ChatTemplateFile, load_model, template_of
from .options import TokenizerFile, with_options
from .terminal import say

__all__ = ["evaluate"]

_Work = Callable[[LLMConfig, Any, Any], dict[str, float]]
_OPTIONS = "text field prompt_field completion_field seq_len batch_size metrics threads device"


@with_options(LLMConfig, only=_OPTIONS.split(), defaults={"seq_len": "the context", "text": "none"})
def evaluate(
    given: dict[str, Any],
    model: Annotated[
        str, typer.Option("--model", help="A GGUF file, or the folder that train-llm left.")
    ],
    tokenizer_file: TokenizerFile = None,
    lora: Adapters = None,
    choices: Annotated[
        list[str] | None,
        typer.Option(
            "--choices", help="A file of questions with choices (ARC, HellaSwag, PIQA, ...)."
        ),
    ] = None,
    answers: Annotated[
        list[str] | None,
        typer.Option("--answers", help="A file of chats, whose last answers are compared."),
    ] = None,
    chat_template: ChatTemplateFile = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Most tokens of an answer; 256.", min=1)
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Ask the first so many questions.", min=1)
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows of --answers that hold no chat.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the loss (nats per token), perplexity and bits per byte of a model on text.

    With --choices print how often the likeliest choice is the right one: `acc` by its probability,
    `acc_norm` by the log-probability for each of its characters. With --answers print how often
    the answer to a chat is that of the file, word by word.

    The text is cut into sequences of --seq-len tokens; each token is predicted from those before
    it in its sequence. Of prompts and completions, each pair is read by itself, and the tokens of
    its completion count.
    """
    with friendly_errors():
        from ..errors import ConfigError

        config = LLMConfig(**given)
        named = {"--text": config.data.text, "--choices": choices, "--answers": answers}
        asked = [flag for flag, value in named.items() if value]
        if len(asked) != 1:
            raise ConfigError(
                f"one of {', '.join(named)} must be given; got {' and '.join(asked) or 'none'}"
            )
        if chat_template is not None and not answers:
            raise ConfigError("--chat-template needs --answers")
        if max_tokens is not None and not answers:
            raise ConfigError("--max-tokens needs --answers")
        if limit is not None and config.data.text:
            raise ConfigError("--limit needs --choices or --answers")
        if skip_bad and not answers:
            raise ConfigError("--skip-bad needs --answers")
        unread = [name for name in ("seq_len", "metrics") if name in given]
        if unread and not config.data.text:
            raise ConfigError(f"`{unread[0]}` needs `text`")
        # Files are read before the model: a mistake in them shows at once.
        if choices:
            work = _choices(choices, limit)
        elif answers:
            read = _read_chats(answers, skip_bad)
            work = _answers(read, limit, chat_template, max_tokens or 256, model)
        else:
            work = _text(config)
        found = work(config, *load_model(model, config.machine, tokenizer_file, adapters=lora))
        if as_json:
            print(json.dumps(found))
        else:
            for name, value in found.items():
                if name != "seq_len":
                    print(f"{name:<12} {_shown(name, value)}")


def _shown(name: str, value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if name == "perplexity" else f"{value:.4f}"


def _text(config: LLMConfig) -> _Work:
    """Return the measurement of a text."""
    from ..recipes.corpus import read_corpus

    return partial(_perplexity, read_corpus(config, partial(say, error=True)))


def _perplexity(
    corpus: Any, config: LLMConfig, language_model: Any, tokenizer: Any
) -> dict[str, float]:
    """Return the loss of a text and what follows from it."""
    from ..data import Loader, PackedDataset
    from ..errors import ConfigError, reason
    from ..train import eval_batches, token_bytes
    from ..train import evaluate as measure

    data, seq_len = config.data, config.data.seq_len
    batch_size = config.trainer.value("batch_size")
    pairs = data.pair_fields is not None
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
        token_bytes=token_bytes(tokenizer, language_model.config.vocab_size),
    )
    assert metrics is not None
    assert metrics.perplexity is not None  # a language model's loss
    more = {} if metrics.bits_per_byte is None else {"bits_per_byte": metrics.bits_per_byte}
    return {
        "loss": metrics.loss,
        "perplexity": metrics.perplexity,
        "tokens": metrics.tokens,
        "seq_len": length,
        **more,
        **metrics.metrics,
    }


def _choices(files: list[str], limit: int | None) -> _Work:
    """Return the measurement of questions with choices."""
    from ..data import read_choices
    from ..train import score_choices

    questions = read_choices(files)[:limit]

    def work(config: LLMConfig, language_model: Any, tokenizer: Any) -> dict[str, float]:
        scores = score_choices(
            language_model, questions, tokenizer, config.trainer.value("batch_size")
        )
        return {
            "questions": scores.questions,
            "acc": scores.acc,
            "acc_stderr": scores.error(scores.acc),
            "acc_norm": scores.acc_norm,
            "acc_norm_stderr": scores.error(scores.acc_norm),
        }

    return work


def _read_chats(files: list[str], skip_bad: bool) -> Any:
    """Return the chats of files, and tell of rows that are left out."""
    from ..data import read_chats
    from ..errors import amount

    read = read_chats(files, skip_bad=skip_bad)
    if read.bad:
        say(f"note: {amount(read.bad, 'bad row')} left out", error=True)
    return read


def _answers(
    read: Any, limit: int | None, template: str | None, max_tokens: int, path: str
) -> _Work:
    """Return the measurement of answers to chats."""
    from ..train import score_answers

    chats, formats = read[:limit], read.formats

    def work(config: LLMConfig, language_model: Any, tokenizer: Any) -> dict[str, float]:
        own = language_model.metadata.get("tokenizer.chat_template")
        # Pairs without a template are asked for as they are trained.
        plain = not (template or own) and set(formats.values()) == {"pairs"}
        used = None if plain else template_of(language_model, tokenizer, template, path)
        scores = score_answers(
            language_model, chats, tokenizer, used, max_tokens, config.trainer.value("batch_size")
        )
        return {"questions": scores.questions, "exact_match": scores.exact}

    return work
