# SPDX-License-Identifier: MIT
"""Chat templates: conversations to the text that a model reads."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .... import checks
from ....errors import FormatError, shown
from ....io.gguf import read_gguf
from ....io.regular import read_regular
from ..tokenizer import Tokenizer
from ..vocabulary import END_NAMES
from .arguments import render_calls
from .builtin import BUILTIN, BY_MARK
from .renderer import TemplateFault, View, ask
from .spans import Rendered, Writer, examples, tell_lost_tools

__all__ = ["ChatTemplate"]

_SOURCE_MAX = 1 << 20
_MARKED = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_REASONING = ("reasoning_content", "thinking", "reasoning")
_KEY = "tokenizer.chat_template"


class ChatTemplate:
    """A Jinja template that writes a conversation as the text that a model reads.

    It gets the variables, the functions and the sandbox that transformers gives to templates. It
    runs in a process of its own, which is stopped after 10 seconds, at 1 GiB of memory or at 16
    million characters.

    Args:
        source: the template.
        bos_token: the spelling of the token that begins a text.
        eos_token: the spelling of the token that ends a text.
        name: what messages call it.

    Attributes:
        marked: whether it has `{% generation %}`, which encloses what an assistant writes.

    Raises:
        FormatError: the template is empty or longer than 1 MiB.

    Source: transformers, utils/chat_template_utils.py.

    Example:
        >>> template = ChatTemplate.builtin("chatml", eos_token="<|im_end|>")
        >>> template.render([{"role": "user", "content": "Hi"}])
        '<|im_start|>user\\nHi<|im_end|>\\n'
    """

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", name: str = "template"
    ) -> None:
        who = "ChatTemplate"
        self.source = checks.text(who, "source", source)
        self.bos_token = checks.text(who, "bos_token", bos_token)
        self.eos_token = checks.text(who, "eos_token", eos_token)
        self.name = checks.text(who, "name", name)
        if not source.strip() or len(source) > _SOURCE_MAX:
            raise FormatError(
                f"{who}: {name}: a template must have 1 to {_SOURCE_MAX:,} characters; got"
                f" {len(source):,}"
            )
        self.marked = bool(_MARKED.search(source))
        self._key = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def builtin(cls, name: str, bos_token: str = "", eos_token: str = "") -> ChatTemplate:
        """Return a template of this package.

        Args:
            name: one of `BUILTIN_TEMPLATES`.
            bos_token: see the class.
            eos_token: see the class.

        Raises:
            ValueError: there is none of this name.
        """
        checks.choice("ChatTemplate.builtin", "name", name, BUILTIN)
        return cls(BUILTIN[name], bos_token=bos_token, eos_token=eos_token, name=name)

    @classmethod
    def of(cls, spec: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> ChatTemplate:
        """Return the template that a name or a path stands for.

        Args:
            spec: a name of `BUILTIN_TEMPLATES`; a GGUF file or a Hugging Face folder, whose own
                template it is; or the path of a file that holds a template.
            tokenizer: of the model, which spells the tokens that begin and end a text.

        Raises:
            FormatError: there is no such file, or no template in it.
        """
        who = "ChatTemplate.of"
        tokens = _tokens(tokenizer)
        if isinstance(spec, str) and spec in BUILTIN:
            return cls.builtin(spec, **tokens)
        path = checks.path(who, "spec", spec)
        if not path.exists():
            raise FormatError(
                f"{who}: {path}: no such file; name a file, or one of {', '.join(BUILTIN)}"
            )
        if path.is_file() and path.suffix == ".gguf":
            with read_gguf(path) as model:
                metadata = {key: model.metadata[key] for key in model.metadata if key == _KEY}
            source = metadata.get(_KEY)
        elif path.is_dir() or path.suffix == ".json":
            source = _of_folder(path)
        else:
            source = _read(path)
        if not isinstance(source, str) or not source.strip():
            raise FormatError(
                f"{who}: {path}: has no chat template; name a file of one, or one of"
                f" {', '.join(BUILTIN)}"
            )
        return cls(source, **tokens, name=str(path))

    @classmethod
    def of_model(
        cls,
        metadata: Mapping[str, Any],
        tokenizer: Tokenizer,
        given: str | os.PathLike[str] | None = None,
        name: str = "the model",
    ) -> ChatTemplate | None:
        """Return the template of a model, or another one instead of it.

        Args:
            metadata: of the model; `tokenizer.chat_template` is its template.
            tokenizer: of the model.
            given: a template that goes before the model's own; see `of`.
            name: of the model's file, for messages.

        Returns:
            The template. For a model without one, that of this package whose marks the vocabulary
            has; None where it has none of them.

        Raises:
            FormatError: there is no such file, or no template in it.
        """
        if given is not None:
            return cls.of(given, tokenizer)
        who = "ChatTemplate.of_model"
        checks.having(who, "tokenizer", tokenizer, "a Tokenizer", "bos_id", "eos_id", "token_id")
        own = checks.mapping(who, "metadata", metadata).get(_KEY)
        if isinstance(own, str) and own.strip():
            return cls(own, **_tokens(tokenizer), name=f"{name}: {_KEY}")
        found = (name for mark, name in BY_MARK.items() if tokenizer.token_id(mark) is not None)
        builtin = next(found, None)
        return None if builtin is None else cls.builtin(builtin, **_tokens(tokenizer))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **extra: Any,
    ) -> str:
        """Return the text of a conversation.

        Args:
            messages: mappings with `role` and `content`, and what else the template reads.
            tools: descriptions of functions that the assistant may call.
            add_generation_prompt: end with what begins an answer.
            extra: further variables, such as `enable_thinking`.

        Raises:
            FormatError: the template fails or exceeds a limit; names its line.
            TypeError: a message is no mapping, or holds what JSON has not.
        """
        prompt = checks.flag("ChatTemplate.render", "add_generation_prompt", add_generation_prompt)
        messages = checks.items("ChatTemplate.render", "messages", messages)
        [answer] = self._views(messages, tools, extra, [View(len(messages), prompt)])
        return self._text(answer)

    def examples(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        train_on: str = "answers",
        special: Sequence[str] = (),
        **extra: Any,
    ) -> list[Rendered]:
        """Return the texts to train on for a conversation, with the spans that are trained.

        A span is what the model writes: from the end of the prompt for an answer up to the mark
        that ends the answer. Where the template has `{% generation %}`, a span is what that
        encloses. A template may write an answer otherwise once more messages follow it: Qwen3's
        leaves out the thoughts. Such an answer is trained in a text of its own that ends with it,
        as the model will be asked for it; all others are trained in one text.

        Args:
            messages: mappings with `role` and `content`. An answer with `"train": False` or
                `"weight": 0` is not trained.
            tools: descriptions of functions that the assistant may call.
            train_on: "answers", "last" (the last answer alone), or "all" (the whole text).
            special: spellings of the vocabulary's special tokens, among which the mark that ends
                an answer is looked for besides `eos_token` and the names that llama.cpp knows.
            extra: further variables.

        Raises:
            FormatError: the template fails, or does not write an answer as the data have it.
        """
        who = "ChatTemplate.examples"
        checks.choice(who, "train_on", train_on, ("all", "answers", "last"))
        messages = checks.items(who, "messages", messages)
        special = checks.names(who, "special", special)
        for tool in () if tools is None else checks.items(who, "tools", tools):
            checks.mapping(who, "each of tools", tool)
        ends = [mark for mark in (self.eos_token, *sorted(END_NAMES)) if mark]
        writer = Writer(
            self.name, self.marked, ends, special,
            lambda views: self._views(messages, tools, extra, views), self._text,
        )  # fmt: skip
        found = examples(writer, messages, train_on)
        tell_lost_tools(self.name, found, tools or ())
        return found

    def _views(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Any,
        extra: Mapping[str, Any],
        views: Sequence[View],
    ) -> list[dict[str, Any]]:
        for message in messages:
            checks.mapping(f"ChatTemplate: {self.name}", "a message", message)
        variables = {
            "tools": tools or None, "documents": None, "bos_token": self.bos_token,
            "eos_token": self.eos_token, **extra,
        }  # fmt: skip
        given = [_with_reasoning(message) for message in messages]
        views = [
            View(view.upto, view.prompt, {i: _with_reasoning(m) for i, m in view.changed.items()})
            for view in views
        ]
        return render_calls(
            lambda said, parts: ask(self._key, self.source, said, variables, parts), given, views
        )

    def _text(self, answer: Mapping[str, Any]) -> str:
        """Return the text of a view; raise where the template failed."""
        if "error" in answer:
            line = "" if answer["line"] is None else f":{answer['line']}"
            cause = _short(answer["error"])
            kind = TemplateFault if answer["fatal"] else FormatError
            raise kind(f"ChatTemplate: {self.name}{line}: the template fails: {cause}")
        return str(answer["text"])

    def __repr__(self) -> str:
        return f"ChatTemplate({shown(self.source)}, name={self.name!r})"


def _short(text: str) -> str:
    """Return a template's own message on one line, shortened where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:300]} …"


def _with_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with its thoughts under the names that templates read, as transformers."""
    found = next((message[k] for k in _REASONING if message.get(k) is not None), None)
    if found is None:
        return dict(message)
    return {"thinking": found, **message, "reasoning_content": found}


def _tokens(tokenizer: Tokenizer | None) -> dict[str, str]:
    if tokenizer is None:
        return {}
    checks.having("ChatTemplate", "tokenizer", tokenizer, "a Tokenizer", "bos_id", "eos_id")
    ids = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    return {
        role: "" if number is None else tokenizer.token(number) or ""
        for role, number in ids.items()
    }


def _of_folder(path: Path) -> Any:
    """Return the template of a Hugging Face folder, or of one of its JSON files."""
    if path.is_dir():
        beside = path / "chat_template.jinja"
        if beside.is_file():
            return _read(beside)
        names = ("chat_template.json", "tokenizer_config.json")
        path = next((path / name for name in names if (path / name).is_file()), path)
        if path.is_dir():
            return None
    try:
        content = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"ChatTemplate.of: {path}: not JSON: {error}") from error
    found = content.get("chat_template") if isinstance(content, dict) else None
    if isinstance(found, list):  # several templates by name
        named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = named.get("default")
    return found


def _read(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except OSError as error:
        raise FormatError(f"ChatTemplate.of: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"ChatTemplate.of: {path}: not UTF-8 at {error.start}") from error
