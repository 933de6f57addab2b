# SPDX-License-Identifier: MIT
"""`pyggml generate`: text from a model."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from .errors import friendly_errors

__all__ = ["generate"]


def generate(
    model: Annotated[
        str, typer.Option("--model", help="A GGUF file, or the folder that train-llm left.")
    ],
    prompt: Annotated[
        str, typer.Option("--prompt", help="Text to continue; empty starts a new document.")
    ] = "",
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Most tokens to add.")] = 200,
    temperature: Annotated[
        float, typer.Option("--temperature", help="0 takes the likeliest token each time.")
    ] = 0.8,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", help="Choose among the k likeliest tokens.", show_default="all"),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p", help="Choose among the likeliest of this probability.", show_default="1.0"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Repeats the choices.", show_default="another each time"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPU threads.", show_default="all cores")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="See pyggml devices.")] = "auto",
) -> None:
    """Continue a prompt; a T5 reads it, and writes what follows from it.

    Prompt and text go to stdout as they are written, and nothing else; messages go to stderr.
    """
    with friendly_errors():
        _check(max_tokens, temperature, top_k, top_p, seed)
        from ..models import T5
        from ..models import generate as continue_ids

        language_model, tokenizer = load_model(model, device, threads, (T5,))
        reads = isinstance(language_model, T5)
        ids, shown = (_read_ids if reads else _prompt_ids)(prompt, tokenizer)
        decoder = tokenizer.stream()

        def write(token: int) -> None:
            sys.stdout.write(decoder.push(token))
            sys.stdout.flush()

        sys.stdout.write(shown)
        sys.stdout.flush()
        began = time.perf_counter()
        settings: dict[str, Any] = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "callback": write,
        }
        stop = () if tokenizer.eos_id is None else (tokenizer.eos_id,)
        if reads:  # it writes no more than its context
            most = min(max_tokens, language_model.config.context)
            ends = (*stop, language_model.config.eos_id)
            added = language_model.generate(ids, most, stop_ids=ends, **settings)
        else:
            added = continue_ids(language_model, ids, max_tokens, stop_ids=stop, **settings)
        sys.stdout.write(decoder.finish() + "\n")
        took = max(time.perf_counter() - began, 1e-9)
        if sys.stderr.isatty():
            print(f"{len(added)} tokens, {len(added) / took:,.0f} tokens/s", file=sys.stderr)


def _check(
    max_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> None:
    """Refuse what cannot be, by the option's name."""
    from ..train import ConfigError

    if max_tokens < 0:
        raise ConfigError(f"--max-tokens must not be negative; got {max_tokens}: give 0 or more")
    if not 0 <= temperature < float("inf"):
        raise ConfigError(
            f"--temperature must be 0 or more and finite; got {temperature}: "
            "0 takes the likeliest token, 1 the model's own chances"
        )
    if top_k is not None and top_k < 1:
        raise ConfigError(f"--top-k must be at least 1; got {top_k}: leave it out for all tokens")
    if top_p is not None and not 0 < top_p <= 1:
        raise ConfigError(f"--top-p must be above 0 and at most 1; got {top_p}: try --top-p 0.9")
    if seed is not None and seed < 0:
        raise ConfigError(f"--seed must not be negative; got {seed}: give 0 or more")


def load_model(
    path: str, device: str, threads: int | None, also: tuple[type, ...] = ()
) -> tuple[Any, Any]:
    """The model and the tokenizer of a GGUF file or of a run's folder.

    Args:
        path: the file or folder.
        device: where it shall run.
        threads: CPU threads; None takes all cores.
        also: what is taken besides language models.

    Raises:
        ConfigError: a number of threads that cannot be.
        BackendError: there is no such device.
        FormatError: the file is no model, one that continues no text, or has no tokenizer.
        FileNotFoundError: there is no such file.
    """
    from ..backend.device import set_default_device, set_threads
    from ..errors import FormatError
    from ..models import ImageModel, LanguageModel, load
    from ..train import ConfigError

    set_default_device(device)
    if threads is not None:
        try:
            set_threads(threads)
        except ValueError as error:
            raise ConfigError(f"--threads: {error}") from error
    language_model, tokenizer = load(path)
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
            f"{path}: the file has no tokenizer (tokenizer.ggml.model): "
            "convert the model again together with its vocabulary"
        )
    return language_model, tokenizer


def _read_ids(prompt: str, tokenizer: Any) -> tuple[Any, str]:
    """The tokens that an encoder reads; nothing of them is shown, as nothing continues them."""
    from ..train import ConfigError

    try:
        ids = tokenizer.encode(prompt, add_special=True)
    except ValueError as error:
        raise ConfigError(f"--prompt: {error}") from error
    if not prompt:
        raise ConfigError("--prompt must not be empty: this model writes of what it reads")
    return ids, ""


def _prompt_ids(prompt: str, tokenizer: Any) -> tuple[Any, str]:
    """The tokens to continue, and how they are shown."""
    import numpy as np

    from ..train import ConfigError

    try:
        ids = tokenizer.encode(prompt, add_special=bool(tokenizer.add_bos))
    except ValueError as error:
        raise ConfigError(f"--prompt: {error}") from error
    if tokenizer.eos_id is not None and ids.size and ids[-1] == tokenizer.eos_id:
        ids = ids[:-1]
    if ids.size:
        return ids, prompt
    start = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    if start is None:
        raise ConfigError("--prompt must not be empty: this model has no token that starts a text")
    return np.array([start], np.int32), ""
