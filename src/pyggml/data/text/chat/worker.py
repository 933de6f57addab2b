# SPDX-License-Identifier: MIT
"""The process in which chat templates run: jinja2's sandbox, with limits of time and memory.

A program of its own, without the rest of the package. A template comes with a model's file, and may
loop for ever inside of one call in C, which nothing but the end of its process stops. Requests and
answers are lines of JSON; see `Renderer`.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import traceback
from contextlib import suppress
from datetime import datetime
from typing import Any

__all__: list[str] = []

_ENVIRONMENT: list[Any] = []
_COMPILED: dict[str, Any] = {}
# Frames around what `{% generation %}` encloses; a text that holds them is not taken.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_LONGEST_MESSAGE = 1000


class _TooMuch(Exception):
    """The output is longer than its limit."""


def _environment() -> Any:
    """Return the environment that transformers gives to chat templates.

    Source: transformers, utils/chat_template_utils.py.
    """
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """The tag that encloses what the assistant writes."""

        tags = {"generation"}  # noqa: RUF012 - as the base class has it

        def parse(self, parser: Any) -> Any:
            """Turn the tag into a call that frames its body."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            call = self.call_method("_frame")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _frame(self, caller: Any) -> str:
            return _OPEN + str(caller()) + _CLOSE

    class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
        """jinja2's sandbox; what it forbids raises, where jinja2 would write nothing."""

        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
            """Raise for an attribute that leads out of the sandbox."""
            raise jinja2.exceptions.SecurityError(f"{attribute!r} of a {type(obj).__name__}")

    class Dict:
        """`dict` without its attributes."""

        def __call__(self, *items: Any, **named: Any) -> dict[Any, Any]:
            return dict(*items, **named)

        def fromkeys(self, *items: Any) -> dict[Any, Any]:
            """Return a dict of keys, as `dict.fromkeys`."""
            return dict.fromkeys(*items)

    class Namespace(jinja2.utils.Namespace):
        """jinja2's namespace without names that begin with an underscore."""

        def __init__(*items: Any, **named: Any) -> None:  # a key may be named self
            attributes = dict(*items[1:], **named)
            for name in attributes:
                _check_name(name)
            jinja2.utils.Namespace.__init__(items[0], attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_name(name)
            super().__setitem__(name, value)

    def _check_name(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace must not hold {name!r}")

    def raise_exception(message: Any) -> None:
        raise jinja2.exceptions.TemplateError(str(message))

    environment = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(
        raise_exception=raise_exception,
        strftime_now=lambda form: datetime.now().strftime(form),
        dict=Dict(),
        namespace=Namespace,
    )
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON; jinja2's own filter escapes it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _template(key: str, source: str | None) -> Any:
    """Return a compiled template; a source that comes a second time is known by its key."""
    if not _ENVIRONMENT:
        _ENVIRONMENT.append(_environment())
    if source is not None:
        _COMPILED[key] = _ENVIRONMENT[0].from_string(source)
    return _COMPILED[key]


def _text(template: Any, variables: dict[str, Any], limit: int) -> dict[str, Any]:
    """Render, and take the frames out: the text and the spans that they enclosed."""
    blocks, length = [], 0
    for block in template.generate(variables):
        length += len(block)
        if length > limit:
            raise _TooMuch
        blocks.append(block)
    framed = "".join(blocks)
    if _OPEN not in framed:
        return {"text": framed, "spans": []}
    parts: list[str] = []
    spans: list[list[int]] = []
    place = start = 0
    for piece in re.split(f"([{_OPEN}{_CLOSE}])", framed):
        if piece == _OPEN:
            start = place
        elif piece == _CLOSE:
            spans.append([start, place])
        else:
            parts.append(piece)
            place += len(piece)
    return {"text": "".join(parts), "spans": spans}


def _failure(error: BaseException, limit: int) -> dict[str, Any]:
    """Describe an exception: its message, and the line of the template."""
    line = getattr(error, "lineno", None)
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == "<template>":
            line = frame.lineno
    kind = type(error).__name__
    if isinstance(error, _TooMuch):
        message = f"it writes more than {limit:,} characters"
    elif isinstance(error, MemoryError):
        message = "it needs more memory than a template is given"
    elif isinstance(error, RecursionError):
        message = "it calls itself without an end"
    elif kind == "SecurityError":
        message = f"it reads what the sandbox forbids: {error}"
    elif kind in ("TemplateError", "TemplateSyntaxError", "UndefinedError"):
        message = str(error)
    else:
        message = f"{kind}: {error}"
    # Of these the template is the cause, whatever the conversation is.
    fatal = isinstance(error, (_TooMuch, MemoryError, RecursionError))
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]} …"
    return {"error": message, "line": line, "fatal": fatal or kind == "TemplateSyntaxError"}


def _answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Render the views of a conversation, each of which may fail by itself."""
    limit: int = request["limit"]
    try:
        template = _template(request["key"], request.get("source"))
    except Exception as error:  # noqa: BLE001 - whatever a template raises is told
        return [_failure(error, limit)] * len(request["views"])
    found: list[dict[str, Any]] = []
    for count, prompt, changed in request["views"]:
        messages = [
            dict(changed.get(str(number), message))
            for number, message in enumerate(request["messages"][:count])
        ]
        variables = {
            **request["variables"], "messages": messages, "add_generation_prompt": prompt
        }  # fmt: skip
        try:
            found.append(_text(template, variables, limit))
        except Exception as error:  # noqa: BLE001
            found.append(_failure(error, limit))
    return found


def _limit_memory(size_bytes: int) -> None:
    """Let allocations beyond a size fail, where the system can."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (size_bytes, hard))


def _main() -> None:
    """Answer requests until there are no more."""
    memory_bytes, time_s, *folders = sys.argv[1:]
    sys.path[:0] = folders
    # Ctrl-C is for the program that asks; it closes the pipe when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory(int(memory_bytes))
    for line in sys.stdin.buffer:
        # Nobody handles this alarm: the system ends the process, whatever it does then.
        signal.setitimer(signal.ITIMER_REAL, float(time_s))
        try:
            answer = json.dumps(_answer(json.loads(line)))
        except MemoryError as error:
            answer = json.dumps([_failure(error, 0)])
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
