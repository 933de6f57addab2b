# SPDX-License-Identifier: MIT
"""A conversation with a language model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import checks
from ..data import ChatTemplate, Tokenizer, encode_prompt, end_ids
from .generate import check_settings, make_sampling
from .generator import Generator
from .language import LanguageModel

__all__ = ["ChatSession"]


class ChatSession:
    """A conversation with a model, which reads each message once.

    Args:
        model: a language model.
        tokenizer: of the model.
        template: writes the conversation as the model reads it.
        system: begins the conversation; None begins without a system message.
        tools: descriptions of functions that the model may call.
        extra: further variables of the template, such as `enable_thinking`.

    Attributes:
        messages: the conversation so far, mappings with `role` and `content`.
        dropped: messages that the context had no room for, in all.

    Example:
        >>> tokenizer = Tokenizer.chars(["<|im_start|>user\\nHi?<|im_end|>assistant"])
        >>> session = ChatSession(model, tokenizer, ChatTemplate.builtin("chatml"))
        >>> answer = session.answer("Hi?", 3, temperature=0)
        >>> [message["role"] for message in session.messages]
        ['user', 'assistant']
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> None:
        who = "ChatSession"
        self._tokenizer = checks.instance(who, "tokenizer", tokenizer, Tokenizer)
        self._template = checks.instance(who, "template", template, ChatTemplate)
        self._generator = Generator(model)
        self._tools, self._extra = tools, extra
        self._read: list[int] = []
        self.dropped = 0
        self.messages: list[dict[str, Any]] = []
        self.clear(system)

    def clear(self, system: str | None = None) -> None:
        """Begin anew.

        Args:
            system: the system message of the new conversation.
        """
        given = None if system is None else checks.text("ChatSession.clear", "system", system)
        self.messages = [] if given is None else [{"role": "system", "content": given}]

    def answer(
        self,
        text: str,
        max_tokens: int = 1024,
        *,
        seed: int | None = None,
        stop_ids: Collection[int] = (),
        callback: Callable[[str], Any] | None = None,
        **sampling: Any,
    ) -> str:
        """Return the model's answer to a message; both become part of the conversation.

        Where the context has no room for the conversation and an answer, the oldest messages after
        the system's are left out.

        Args:
            text: the user's message.
            max_tokens: most tokens of the answer.
            seed: of the choices; None differs from call to call.
            stop_ids: tokens that end an answer besides those of `end_ids`.
            callback: called with every new piece of text; returning False ends the answer.
            sampling: fields of `Sampling`, such as temperature.

        Raises:
            ValueError: the message alone is longer than the context, the vocabulary has no tokens
                for it, or a setting is out of range.
            FormatError: the template fails.
        """
        who = "ChatSession.answer"
        stops = end_ids(self._tokenizer) | check_settings(
            who, max_tokens=max_tokens, seed=seed, stop_ids=stop_ids, callback=callback
        )
        chosen = make_sampling(who, **sampling)
        message = {"role": "user", "content": checks.text(who, "text", text)}
        kept, ids = self._fitted([*self.messages, message], max_tokens)
        self.dropped += len(self.messages) + 1 - len(kept)
        self.messages[:] = kept
        pieces: list[str] = []
        try:
            choose = partial(chosen.choose, rng=np.random.default_rng(seed))
            self._write(ids, max_tokens, stops, choose, pieces, callback)
        except BaseException:
            self._read = []
            raise
        finally:
            # What was written stays, whatever ended it.
            self.messages.append({"role": "assistant", "content": "".join(pieces)})
        return "".join(pieces)

    def _fitted(
        self, messages: list[dict[str, Any]], max_tokens: int
    ) -> tuple[list[dict[str, Any]], list[int]]:
        """Return the messages that the context has room for, and their tokens."""
        capacity = self._generator.capacity
        room = capacity - min(max_tokens, capacity // 4)
        while True:
            found = encode_prompt(
                messages, self._tokenizer, self._template, self._tools, **self._extra
            )
            if found.size <= room:
                return messages, [int(token) for token in found]
            first = 1 if messages[0]["role"] == "system" else 0
            if len(messages) - first <= 1:
                raise ValueError(
                    f"ChatSession.answer: text and the system message must leave room in the"
                    f" context of {capacity} tokens; got {found.size}: shorten them"
                )
            # A question goes with its answer.
            count = min(2, len(messages) - first - 1)
            messages = messages[:first] + messages[first + count :]

    def _write(
        self,
        ids: list[int],
        max_tokens: int,
        stops: Collection[int],
        choose: Callable[..., int],
        pieces: list[str],
        callback: Callable[[str], Any] | None,
    ) -> None:
        """Read the tokens that were not read yet, and write an answer after them."""
        generator = self._generator
        known = _common(self._read, ids[:-1])
        generator.lengths = [known]
        pending, self._read = ids[known:], ids[:known]
        decoder = self._tokenizer.stream(after=ids)
        added: list[int] = []
        while len(added) < max_tokens and generator.length < generator.capacity:
            logits = generator.feed(pending)
            self._read += pending
            token = int(choose(logits, prompt=ids, added=added))
            if token in stops:
                break
            added.append(token)
            pending = [token]
            pieces.append(decoder.push(token))
            if callback is not None and callback(pieces[-1]) is False:
                break
        pieces.append(decoder.finish())
        if pieces[-1] and callback is not None:
            callback(pieces[-1])


def _common(before: list[int], after: list[int]) -> int:
    """Return how many tokens at the beginning are the same."""
    pairs = zip(before, after, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))
