# SPDX-License-Identifier: MIT
"""`pyggml generate`: text from a model."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..options import Options, option
from ..recipes import Configuration
from ..recipes.options import MachineOptions
from .errors import friendly_errors
from .options import TokenizerFile, with_options
from .terminal import written

__all__ = [
    "SAMPLING",
    "Adapters",
    "ChatTemplateFile",
    "GenerateConfig",
    "SystemMessage",
    "generate",
    "load_model",
    "sampling_of",
    "template_of",
]

# Options that are arguments of `models.generate` under their own names.
SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "seed",
)  # fmt: skip
Adapters = Annotated[
    list[str] | None,
    typer.Option(
        "--lora", help="A LoRA adapter, GGUF file or folder, on the model; may be repeated."
    ),
]
ChatTemplateFile = Annotated[
    str | None,
    typer.Option(
        "--chat-template",
        help="The chat template: a name (chatml, llama3, gemma, ...), a Jinja file, or a model.",
        show_default="the model's own",
    ),
]
SystemMessage = Annotated[
    str | None, typer.Option("--system", help="The system message of the conversation.")
]


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Options):
    """The prompt, and the choices of the tokens that continue it."""

    prompt: str = option("", "Text to continue; empty starts a new document.", may_be_empty=True)
    max_tokens: int = option(200, "Most tokens to add.", least=0)
    temperature: float | None = option(
        None,
        "0 takes the likeliest token each time, 1 the model's own chances.",
        least=0,
        chosen="that of the model's makers, or 0.8",
    )
    top_k: int | None = option(
        None,
        "Choose among the k likeliest tokens.",
        least=1,
        chosen="that of the model's makers, or all",
        needs=("temperature",),
    )
    top_p: float | None = option(
        None,
        "Choose among the likeliest of this probability.",
        above=0,
        most=1,
        chosen="that of the model's makers, or 1.0",
        needs=("temperature",),
    )
    min_p: float | None = option(
        None,
        "Choose among tokens at least this share as likely as the likeliest.",
        above=0,
        most=1,
        chosen="that of the model's makers, or 0",
        needs=("temperature",),
    )
    typical_p: float | None = option(
        None,
        "Choose among the tokens of nearly the expected surprise, of this probability.",
        above=0,
        most=1,
        chosen="that of the model's makers, or 1.0",
        needs=("temperature",),
    )
    repetition_penalty: float | None = option(
        None,
        "Divides the logits of tokens that were there; 1 changes nothing.",
        above=0,
        chosen="that of the model's makers, or 1",
    )
    presence_penalty: float = option(0.0, "Subtracted from the logits of added tokens.")
    frequency_penalty: float = option(
        0.0, "Subtracted from the logits of added tokens for each time."
    )
    stop: tuple[str, ...] = option((), "Text after which to stop.")
    special: bool = option(
        False, "Read special tokens that the prompt spells, such as <|im_end|>, as such."
    )
    seed: int | None = option(
        None,
        "Seed of the choices, which repeats them.",
        least=0,
        chosen="another each time",
        needs=("temperature",),
    )


class GenerateConfig(Configuration):
    """The options of `pyggml generate`."""

    text: SamplingOptions
    machine: MachineOptions


@with_options(GenerateConfig)
def generate(
    given: dict[str, Any],
    model: Annotated[
        str, typer.Option("--model", help="A GGUF file, or the folder that train-llm left.")
    ],
    tokenizer_file: TokenizerFile = None,
    lora: Adapters = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Answer the prompt, by the model's chat template.")
    ] = False,
    chat_template: ChatTemplateFile = None,
    system: SystemMessage = None,
) -> None:
    """Continue a prompt; a T5 reads the prompt and writes its output.

    With --chat the prompt is a user's message, and the answer alone is printed. Prompt and text go
    to stdout as they are written, and nothing else; messages go to stderr. On a terminal, control
    characters are shown as escapes.
    """
    with friendly_errors():
        from ..data import end_ids
        from ..errors import ConfigError
        from ..models import T5
        from ..models import generate as continue_ids

        config = GenerateConfig(**given)
        options = config.text
        language_model, tokenizer = load_model(model, config.machine, tokenizer_file, (T5,), lora)
        reads = isinstance(language_model, T5)
        if not chat and (system is not None or chat_template is not None):
            raise ConfigError("--system and --chat-template need --chat")
        if chat and reads:
            raise ConfigError("--chat is for models that continue text; this one is a T5")
        stop = set() if tokenizer.eos_id is None else {tokenizer.eos_id}
        if chat:
            template = template_of(language_model, tokenizer, chat_template, model)
            ids, shown = _chat_ids(options.prompt, system, tokenizer, template), ""
            stop |= end_ids(tokenizer)
        else:
            read = _read_ids if reads else _prompt_ids
            ids, shown = read(options.prompt, tokenizer, options.special)
        decoder = tokenizer.stream(after=() if reads else ids)

        def write(token: int) -> None:
            sys.stdout.write(written(decoder.push(token)))
            sys.stdout.flush()

        sys.stdout.write(written(shown))
        sys.stdout.flush()
        began = time.perf_counter()
        settings = {**sampling_of(language_model, options), "callback": write}
        stop |= settings.pop("stop_ids")
        if reads and options.stop:
            raise ConfigError("--stop is for models that continue text; a T5 ends by itself")
        if reads:  # it writes no more than its context
            most = min(options.max_tokens, language_model.config.context)
            ends = (*stop, language_model.config.eos_id)
            added = language_model.generate(ids, most, stop_ids=ends, **settings)
        else:
            settings |= {"stop_strings": options.stop, "tokenizer": tokenizer}
            added = continue_ids(language_model, ids, options.max_tokens, stop_ids=stop, **settings)
        sys.stdout.write(written(decoder.finish()) + "\n")
        took = max(time.perf_counter() - began, 1e-9)
        if sys.stderr.isatty():
            print(f"{len(added)} tokens, {len(added) / took:,.0f} tokens/s", file=sys.stderr)


def load_model(
    path: str,
    machine: MachineOptions,
    tokenizer_file: str | None = None,
    also: tuple[type, ...] = (),
    adapters: Sequence[str] | None = None,
) -> tuple[Any, Any]:
    """Return the model and the tokenizer of a GGUF file or of a run's folder.

    Args:
        path: the file or folder.
        machine: device and threads.
        tokenizer_file: a tokenizer instead of the file's own; see `models.load`.
        also: classes of models that are taken besides language models.
        adapters: LoRA adapters to put on the model.

    Raises:
        ConfigError: a number of threads that cannot be.
        BackendError: there is no such device.
        FormatError: the file is no model, one that continues no text, or has no tokenizer.
        FileNotFoundError: there is no such file.
    """
    from ..errors import FormatError, reason
    from ..models import ImageModel, LanguageModel, Model, load, load_lora

    machine.choose()
    # Frozen weights stay in the types of the file, as llama.cpp computes with them.
    language_model, tokenizer = load(path, keep_types=True, tokenizer=tokenizer_file)
    if not isinstance(language_model, (LanguageModel, *also)):
        images = isinstance(language_model, ImageModel)
        what = "names images: use pyggml infer, or" if images else "does not:"
        raise FormatError(
            f"{path}: general.architecture must be that of a model that continues text; got "
            f"{language_model.gguf_arch!r}, a {type(language_model).__name__}, which {what} choose"
            " another file"
        )
    if tokenizer is None:
        raise FormatError(
            f"{path}: the file has no tokenizer (tokenizer.ggml.model): give one with --tokenizer"
        )
    if adapters:
        assert isinstance(language_model, Model)
        try:
            load_lora(language_model, list(adapters), dropout=0.0)
        except (FormatError, OSError) as error:
            raise FormatError(f"--lora: {reason(error)}") from error
    return language_model, tokenizer


def sampling_of(model: Any, options: SamplingOptions) -> dict[str, Any]:
    """Return the settings of a generation: those of the command, else those of the model's file.

    Args:
        model: the model.
        options: of the command.
    """
    from ..models import generation_settings

    given = {name: getattr(options, name) for name in SAMPLING}
    given = {name: value for name, value in given.items() if value is not None}
    settings = {"temperature": 0.8, "stop_ids": (), **generation_settings(model), **given}
    return {**settings, "stop_ids": {*settings["stop_ids"]}}


def template_of(model: Any, tokenizer: Any, given: str | None, path: str) -> Any:
    """Return the chat template of a model, or another one instead.

    Args:
        model: the model.
        tokenizer: of the model.
        given: the value of --chat-template.
        path: of the model's file, for messages.

    Raises:
        ConfigError: there is none.
        FormatError: the file of the template cannot be read.
    """
    from ..data import BUILTIN_TEMPLATES, ChatTemplate
    from ..errors import ConfigError, FormatError, reason

    try:
        found = ChatTemplate.of_model(model.metadata, tokenizer, given, path)
    except FormatError as error:
        raise ConfigError(f"--chat-template: {reason(error)}") from error
    if found is None:
        raise ConfigError(
            f"{path}: the model has no chat template: give one with --chat-template, a file or one"
            f" of {', '.join(BUILTIN_TEMPLATES)}"
        )
    return found


def _chat_ids(prompt: str, system: str | None, tokenizer: Any, template: Any) -> Any:
    """Return the tokens of a conversation of one message."""
    from ..data import encode_prompt
    from ..errors import ConfigError, reason

    messages = [] if system is None else [{"role": "system", "content": system}]
    try:
        return encode_prompt([*messages, {"role": "user", "content": prompt}], tokenizer, template)
    except ValueError as error:
        raise ConfigError(f"--prompt: {reason(error)}") from error


def _read_ids(prompt: str, tokenizer: Any, special: bool) -> tuple[Any, str]:
    """Return the tokens that an encoder reads; none is shown, as nothing continues them."""
    from ..errors import ConfigError, reason

    try:
        ids = tokenizer.encode(prompt, parse_special=special, add_special=True)
    except ValueError as error:
        raise ConfigError(f"--prompt: {reason(error)}") from error
    if not prompt:
        raise ConfigError("--prompt must not be empty: this model writes of what it reads")
    return ids, ""


def _prompt_ids(prompt: str, tokenizer: Any, special: bool) -> tuple[Any, str]:
    """Return the tokens to continue, and their text."""
    import numpy as np

    from ..errors import ConfigError, reason

    try:
        ids = tokenizer.encode(prompt, parse_special=special, add_special=bool(tokenizer.add_bos))
    except ValueError as error:
        raise ConfigError(f"--prompt: {reason(error)}") from error
    if tokenizer.eos_id is not None and ids.size and ids[-1] == tokenizer.eos_id:
        ids = ids[:-1]
    if ids.size:
        return ids, prompt
    start = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    if start is None:
        raise ConfigError("--prompt must not be empty: this model has no token that starts a text")
    return np.array([start], np.int32), ""
