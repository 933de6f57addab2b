# SPDX-License-Identifier: MIT
"""`pyggml chat`: a conversation with a model in the terminal."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import EXIT_FAILED, friendly_errors, naming
from .generate import (
    SAMPLING,
    Adapters,
    ChatTemplateFile,
    GenerateConfig,
    SystemMessage,
    load_model,
    sampling_of,
    template_of,
)
from .options import TokenizerFile, with_options
from .terminal import say, written

if TYPE_CHECKING:
    from ..models import ChatSession

__all__ = ["chat"]

_OPTIONS = ("max_tokens", *SAMPLING, "threads", "device")
_HELP = """\
/help          show this
/system TEXT   begin anew with a system message; without TEXT, without one
/clear         begin anew with the same system message
/retry         ask the last message again
/save FILE     append the conversation to a JSONL file, which `pyggml finetune` reads
/exit          end; Ctrl-D too
A line that ends with \\ goes on in the next one. Ctrl-C ends an answer."""


@with_options(GenerateConfig, only=_OPTIONS, defaults={"max_tokens": "1024"})
def chat(
    given: dict[str, Any],
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A GGUF file, or the folder of a run.")
    ],
    lora: Adapters = None,
    chat_template: ChatTemplateFile = None,
    system: SystemMessage = None,
    tokenizer_file: TokenizerFile = None,
) -> None:
    """Talk with a model.

    Messages are lines of stdin; answers go to stdout, everything else to stderr. /help lists the
    commands of the conversation. Where no message of a pipe was answered, the exit code is 1.
    """
    with friendly_errors():
        if sys.stdin is None:
            raise OSError("chat reads messages from stdin, which is closed: open it, or pipe lines")
        from ..models import ChatSession

        options = GenerateConfig(**{"max_tokens": 1024, **given})
        language_model, tokenizer = load_model(
            model, options.machine, tokenizer_file, adapters=lora
        )
        template = template_of(language_model, tokenizer, chat_template, model)
        session = ChatSession(language_model, tokenizer, template, system=system)
        sampling = sampling_of(language_model, options.text)
        talk = _Terminal(session, system, options.text.max_tokens, sampling)
        talk.run()
        if talk.failed and not (talk.answered or sys.stdin.isatty()):
            raise typer.Exit(EXIT_FAILED)


class _Terminal:
    """The lines of a user, and the answers to them."""

    def __init__(
        self, session: ChatSession, system: str | None, max_tokens: int, sampling: dict[str, Any]
    ) -> None:
        self._session, self._system = session, system
        self._max_tokens, self._sampling = max_tokens, sampling
        self._dropped = 0
        self.answered = self.failed = 0
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: say(_HELP, error=True),
            "/clear": lambda _: self._begin(self._system),
            "/system": lambda text: self._begin(text or None),
            "/retry": lambda _: self._retry(),
            "/save": self._save,
        }

    def run(self) -> None:
        """Answer each line until there are no more."""
        if sys.stdin.isatty():
            # Arrow keys and a history, where Python has them.
            with suppress(ImportError):
                import readline  # noqa: F401
            say("/help lists the commands; /exit or Ctrl-D ends.", error=True)
        while (line := self._line()) is not None:
            name, _, rest = line.strip().partition(" ")
            if name in ("/exit", "/quit"):
                return
            if name in self._commands:
                self._commands[name](rest.strip())
            elif name.startswith("/"):
                say(f"{name}: no such command; /help lists them", error=True)
            elif line.strip():
                self._answer(line)

    def _line(self) -> str | None:
        """Return the next message; None at the end."""
        lines: list[str] = []
        terminal = sys.stdin.isatty()
        while True:
            try:
                if terminal:
                    line = input("> " if not lines else "… ")
                elif not (line := sys.stdin.readline()):
                    return "\n".join(lines) or None
            except EOFError:
                return "\n".join(lines) or None
            except KeyboardInterrupt:
                if not terminal:
                    raise
                say("\n/exit or Ctrl-D ends.", error=True)
                lines = []
                continue
            line = line.rstrip("\r\n")
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    def _answer(self, text: str) -> None:
        """Print the answer to a message as it is written; Ctrl-C ends it."""
        from ..errors import FormatError, reason

        with _interrupts() as interrupted:

            def show(piece: str) -> bool:
                sys.stdout.write(written(piece))
                sys.stdout.flush()
                return not interrupted()

            try:
                self._session.answer(text, self._max_tokens, callback=show, **self._sampling)
            except (ValueError, FormatError) as error:
                # A message that cannot be read ends no conversation.
                say(f"error: {reason(error)}", error=True)
                self.failed += 1
                return
        self.answered += 1
        sys.stdout.write("\n")
        sys.stdout.flush()
        if self._session.dropped > self._dropped:
            self._dropped = self._session.dropped
            say(f"(the context is full: {self._dropped} messages are forgotten)", error=True)

    def _begin(self, system: str | None) -> None:
        self._system = system
        self._session.clear(system)

    def _retry(self) -> None:
        messages = self._session.messages
        if len(messages) < 2 or messages[-2]["role"] != "user":
            say("/retry: no message was answered yet", error=True)
            return
        question = messages[-2]["content"]
        del messages[-2:]
        self._answer(question)

    def _save(self, path: str) -> None:
        """Append the conversation to a file."""
        from ..errors import ConfigError

        if not path:
            say("/save: name a file", error=True)
            return
        if not any(each["role"] == "assistant" for each in self._session.messages):
            say("/save: nothing was answered yet", error=True)
            return
        try:
            with naming("/save", path), open(path, "a", encoding="utf-8") as file:
                row = {"messages": self._session.messages}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        except (ConfigError, UnicodeEncodeError) as error:
            say(f"error: {error}", error=True)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C be asked for; the second one raises KeyboardInterrupt."""
    seen: list[int] = []

    def note(number: int, frame: object) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)
