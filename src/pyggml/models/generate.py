# SPDX-License-Identifier: MIT
"""Sampling text from a language model with a key-value cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields as dataclass_fields
from functools import partial
from typing import Any

import numpy as np

from .. import checks
from .generator import Generator, check_tokens, need_language_model
from .language import LanguageModel
from .pretrained.generation import generation_settings
from .sampling import Sampling

__all__ = ["check_settings", "generate", "make_sampling"]


def generate(
    model: LanguageModel,
    prompt_ids: Sequence[int] | np.ndarray | Sequence[Sequence[int] | np.ndarray],
    max_tokens: int,
    *,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_ids: Collection[int] | None = None,
    stop_strings: str | Sequence[str] = (),
    tokenizer: Any = None,
    callback: Callable[..., Any] | None = None,
    **sampling: Any,
) -> Any:
    """Continue a prompt, or several side by side.

    When the context is full, the newest half of it is read again and the rest forgotten:
    generation does not stop there. Several prompts are read in one pass and continued in one pass
    for each token; each is continued as it is alone but for rounding.

    Settings that are None are those of `generation_settings`, which the model's makers chose, or
    else those of `Sampling`.

    Args:
        model: the model.
        prompt_ids: at least one token; of a longer prompt the last `context` tokens count. A list
            of prompts continues each of them.
        max_tokens: most tokens to add, >= 0.
        temperature: 0 takes the likeliest token; below 1 sharpens the choice, above 1 evens it.
        top_k: choose among the k likeliest.
        top_p: choose among the likeliest that together have this probability.
        seed: of the choices; None differs from call to call. Prompt i of several has its own
            stream of choices, of (seed, i).
        stop_ids: tokens after which to stop; they are not returned. None is the makers' choice, or
            none.
        stop_strings: texts after which to stop; the tokens that spell them are returned.
        tokenizer: a `pyggml.data.Tokenizer`, which `stop_strings` needs.
        callback: called with every new token, and of several prompts with (prompt's number,
            token); returning False stops that prompt.
        sampling: further fields of `Sampling`: min_p, typical_p, repetition_penalty,
            presence_penalty, frequency_penalty, logit_bias.

    Returns:
        The new tokens; of several prompts a list for each.

    Raises:
        TypeError: the model continues no text, or an argument is of another kind.
        ValueError: a prompt is empty or outside the vocabulary, or a setting is out of range.
        FormatError: the model's logits are NaN: its weights are damaged.
        RuntimeError: another thread changed the model's weights meanwhile; see `pyggml.alone`.

    Example:
        >>> len(generate(model, [1, 2, 3], 5, temperature=0))
        5
        >>> [len(added) for added in generate(model, [[1, 2, 3], [4]], 5, min_p=0.1)]
        [5, 5]
    """
    need_language_model("generate", model)
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, **sampling}
    settings = {**generation_settings(model), **{k: v for k, v in given.items() if v is not None}}
    own_stops = settings.pop("stop_ids", ())
    stops = check_settings(
        "generate",
        max_tokens=max_tokens,
        seed=seed,
        stop_ids=own_stops if stop_ids is None else stop_ids,
        callback=callback,
    )
    strings = _check_strings(stop_strings, tokenizer)
    chosen = make_sampling("generate", **settings)
    prompts = _prompts(prompt_ids)
    many = prompts is not None
    size = model.config.vocab_size
    each = [prompt_ids] if prompts is None else prompts
    states = [
        _Text(
            [int(token) for token in check_tokens("generate", prompt, size)],
            np.random.default_rng(seed if not many or seed is None else (seed, i)),
            None if callback is None else partial(callback, i) if many else callback,
        )
        for i, prompt in enumerate(each)
    ]
    rope = getattr(model.config, "rope", None)
    together = rope is None or not rope.is_dynamic
    for group in [states] if together else [[state] for state in states]:
        _continue(model, group, int(max_tokens), chosen, stops, (strings, tokenizer))
    return [state.added for state in states] if many else states[0].added


class _Text:
    """A prompt and what is added to it."""

    def __init__(
        self, prompt: list[int], rng: np.random.Generator, callback: Callable[..., Any] | None
    ) -> None:
        self.prompt, self.rng, self.callback = prompt, rng, callback
        self.added: list[int] = []
        self.pending = prompt
        self.ended = False

    def add(
        self, logits: np.ndarray, sampling: Sampling, stops: Collection[int], texts: Any
    ) -> None:
        """Choose the next token; see whether the text ends."""
        token = sampling.choose(logits, self.rng, self.prompt, self.added)
        if token in stops:
            self.ended = True
            return
        self.added.append(token)
        self.pending = [token]
        stopped = self.callback is not None and self.callback(token) is False
        self.ended = stopped or _ends(self.added, *texts)


def _continue(
    model: LanguageModel,
    states: list[_Text],
    max_tokens: int,
    sampling: Sampling,
    stops: Collection[int],
    texts: tuple[tuple[str, ...], Any],
) -> None:
    """Add tokens to prompts side by side."""
    if not states or not max_tokens:
        return
    # No more memory than the tokens need; the context of a large model may be far longer.
    longest = max(len(state.prompt) for state in states)
    generator = Generator(model, min(model.config.context, longest + max_tokens), batch=len(states))
    for state in states:
        state.pending = state.prompt[-generator.capacity :]
    for _ in range(max_tokens):
        logits = generator.feed_batch([state.pending for state in states])
        for i, state in enumerate(states):
            if not state.ended:
                state.add(logits[i], sampling, stops, texts)
            if state.ended:  # it reads one token again and again while others go on
                generator.lengths[i] = max(generator.lengths[i] - 1, 0)
                state.pending = (state.added or state.prompt)[-1:]
            elif generator.lengths[i] == generator.capacity:
                generator.reset(i)
                tokens = state.prompt + state.added
                state.pending = tokens[-max(1, generator.capacity // 2) :]
        if all(state.ended for state in states):
            return


def _prompts(prompt_ids: Any) -> list[Any] | None:
    """Return the prompts of a list of them; None of one prompt."""
    if isinstance(prompt_ids, np.ndarray):
        return list(prompt_ids) if prompt_ids.ndim == 2 else None
    if not isinstance(prompt_ids, (list, tuple)) or not prompt_ids:
        return None
    nested = all(isinstance(prompt, (list, tuple, np.ndarray)) for prompt in prompt_ids)
    return list(prompt_ids) if nested and np.ndim(prompt_ids[0]) == 1 else None


def _check_strings(stop_strings: Any, tokenizer: Any) -> tuple[str, ...]:
    """Return the texts that end a generation."""
    given = [stop_strings] if isinstance(stop_strings, str) else stop_strings
    texts = tuple(
        checks.text("generate", "each of stop_strings", text)
        for text in checks.items("generate", "stop_strings", given)
    )
    if "" in texts:
        raise ValueError("generate: each of stop_strings must not be empty; got ''")
    if texts and tokenizer is None:
        raise ValueError("generate: stop_strings need the tokenizer, which spells tokens; got None")
    return texts


def _ends(added: list[int], strings: tuple[str, ...], tokenizer: Any) -> bool:
    """Return True if the last token completes one of the texts."""
    if not strings:
        return False
    # A token spells at least a byte; no character has more than four.
    tail = added[-4 * max(map(len, strings)) - 4 :]
    text = tokenizer.decode(tail)
    return any(string in text for string in strings)


def make_sampling(who: str, **fields: Any) -> Sampling:
    """Return a checked `Sampling` of keywords.

    Raises:
        TypeError: a keyword is no field of it, or of another kind.
        ValueError: a number is out of range.
    """
    known = [field.name for field in dataclass_fields(Sampling)]
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise TypeError(
            f"{who}: unknown arguments {', '.join(unknown)}; the choice of tokens takes "
            f"{', '.join(known)}"
        )
    return Sampling(**fields).check(who)


def check_settings(
    who: str, *, max_tokens: Any, seed: Any, stop_ids: Any, callback: Any
) -> frozenset[int]:
    """Check the settings of `generate`; return the tokens that end it.

    Raises:
        ValueError: a number is out of range.
        TypeError: an argument is of another kind.
    """
    checks.whole(who, "max_tokens", max_tokens, 0)
    if seed is not None:
        checks.whole(who, "seed", seed, 0)
    if callback is not None:
        checks.function(who, "callback", callback, "token -> None, or False to stop")
    stops = checks.items(who, "stop_ids", stop_ids)
    return frozenset(checks.whole(who, "each of stop_ids", token) for token in stops)
