# SPDX-License-Identifier: MIT
"""The spans of a rendered conversation that the assistant writes."""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .... import checks
from ....errors import FormatError
from .renderer import View

__all__ = ["Rendered", "Writer", "examples", "tell_lost_tools"]

_log = logging.getLogger("pyggml.data")
# Stands in for an answer, to see what the template writes around it.
_PROBE = "\ufdd2answer\ufdd3"


class Rendered(NamedTuple):
    """A text and its trained spans.

    Attributes:
        text: the text.
        spans: starts and ends of what is trained, ascending and apart.
        ended: whether a mark ends the last answer. If not, the end-of-text token is to follow it.
    """

    text: str
    spans: list[tuple[int, int]]
    ended: bool = True


class Writer(NamedTuple):
    """A template with a conversation.

    Attributes:
        name: of the template.
        marked: whether it has `{% generation %}`.
        ends: marks that may end an answer.
        special: special tokens, any of which may be the mark where none of `ends` is.
        render: views to answers, as `renderer.ask`.
        text: an answer's text; raises where the template failed.
    """

    name: str
    marked: bool
    ends: Sequence[str]
    special: Sequence[str]
    render: Callable[[Sequence[View]], list[dict[str, Any]]]
    text: Callable[[Mapping[str, Any]], str]


class _Turn(NamedTuple):
    """A text that ends with an answer: where that begins, and where its end mark ends."""

    text: str
    start: int
    end: int
    ended: bool


def examples(writer: Writer, messages: Sequence[Any], train_on: str) -> list[Rendered]:
    """Return the texts to train on; see `ChatTemplate.examples`."""
    wanted = [i for i, message in enumerate(messages) if _trains(message)]
    wanted = wanted[-1:] if train_on == "last" else wanted
    # The trained ones are looked at by themselves.
    _check_other_calls(writer, messages, () if train_on == "all" else wanted)
    whole = View(len(messages))
    if train_on == "all":
        text = writer.text(writer.render([whole])[0])
        ended = text.rstrip().endswith(tuple(writer.ends))
        for i in wanted:
            _check_texts(writer, messages[i], text)
        return [Rendered(text, [(0, len(text))], ended)]
    if writer.marked:
        return _marked(writer, messages, wanted, writer.render([whole])[0])
    views, places = [whole], {}
    for i in wanted:
        places[i] = len(views)
        probe = {**messages[i], "content": _PROBE}
        views += [View(i, prompt=True), View(i + 1), View(i + 1, changed={i: probe})]
        if messages[i].get("tool_calls"):
            bare = {name: value for name, value in probe.items() if name != "tool_calls"}
            views.append(View(i + 1, changed={i: bare}))
    ends = [*(places[i] for i in wanted[1:]), len(views)]
    answers = writer.render(views)
    text = writer.text(answers[0])
    turns = {
        i: _turn(writer, messages[i], *answers[places[i] : end])
        for i, end in zip(wanted, ends, strict=True)
    }
    found = []
    left = wanted
    while left:
        # Of the answers that this text writes as their own texts do, none needs its own.
        here = [i for i in left if text.startswith(turns[i].text[: turns[i].end])]
        if here:
            spans = [(turns[i].start, turns[i].end) for i in here]
            found.append(Rendered(text, spans, turns[here[-1]].ended))
        left = [i for i in left if i not in here]
        text = turns[left[-1]].text if left else ""
    return found[::-1]


def _trains(message: Mapping[str, Any]) -> bool:
    """Return True for an assistant's message that its data do not leave out of training."""
    checks.mapping("ChatTemplate.examples", "each of messages", message)
    return (
        message.get("role") == "assistant"
        and bool(message.get("train", True))
        and message.get("weight", 1) != 0
    )


def _marked(
    writer: Writer, messages: Sequence[Any], wanted: Sequence[int], answer: Mapping[str, Any]
) -> list[Rendered]:
    """Return the text with the spans that `{% generation %}` encloses."""
    text = writer.text(answer)
    spans = [(start, end) for start, end in answer["spans"] if start < end]
    every = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    if list(wanted) != every:
        if len(spans) != len(every):
            raise FormatError(
                f"ChatTemplate: {writer.name}: {{% generation %}} must enclose each answer once to"
                f" train some of them; got {len(spans)} spans for {len(every)} answers; train all,"
                " or use another template"
            )
        spans = [span for i, span in zip(every, spans, strict=True) if i in wanted]
    written = "".join(text[start:end] for start, end in spans)
    for i in wanted:
        _check_texts(writer, messages[i], written)
        _check_calls(writer, messages[i], written)
    ended = bool(spans) and text[: spans[-1][1]].rstrip().endswith(tuple(writer.ends))
    return [Rendered(text, spans, ended)] if spans else []


def _turn(
    writer: Writer,
    message: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    probed: Mapping[str, Any],
    bare: Mapping[str, Any] | None = None,
) -> _Turn:
    """Find the answer at the end of a text.

    Args:
        writer: the template.
        message: the answer.
        before: the prompt for it.
        after: the text that ends with it.
        probed: the same with another content.
        bare: of an answer with tool calls, `probed` without them.
    """
    text = writer.text(after)
    prompt = before.get("text")
    head, probe, tail = str(probed.get("text", "")).rpartition(_PROBE)
    if probe and head.count(_PROBE):
        raise FormatError(
            f"ChatTemplate: {writer.name}: the template must write an answer once; it writes"
            f" {head.count(_PROBE) + 1} copies; use another template"
        )
    begins = prompt is not None and text.startswith(prompt)
    found = len(str(prompt)) if begins else _start(text, head if probe else None, bare)
    if found is None:
        raise FormatError(
            f"ChatTemplate: {writer.name}: the prompt for an answer and the answer after it must"
            " begin alike, or the answer must stand by itself; they do not: use another template"
        )
    start = found
    if not probe or not text.endswith(tail) or len(text) - len(tail) < start:
        tail, at = "", 0
        end, ended = _peeled(text, start, writer.ends)
    else:
        at, ended = _first_end(writer, tail, tools=bool(message.get("tool_calls")))
        end = len(text) - len(tail) + at
    thoughts = _thoughts(message)
    open_prompt = prompt is not None and prompt.rstrip().endswith("<think>")
    if prompt is not None and start != len(prompt) and not thoughts and not open_prompt:
        # It asks for an answer otherwise than it writes one: train what it will ask for.
        text, end, start = prompt + text[start:], end + len(prompt) - start, len(prompt)
    elif open_prompt and not thoughts:
        _warn(writer.name)
    if thoughts and thoughts not in text[start:end] and prompt is not None and probe:
        # The template leaves them out of every answer; the model begins with them.
        own = _with_thoughts(message, prompt)
        text, start, end = prompt + own + tail, len(prompt), len(prompt) + len(own) + at
    _check_calls(writer, message, text[start:end])
    _check_texts(writer, message, text[start:end])
    return _Turn(text, start, end, ended)


def _start(text: str, head: str | None, bare: Mapping[str, Any] | None) -> int | None:
    """Return where an answer begins that does not begin with its prompt; None where unknown."""
    # Calls may stand before the content: without them, it is the content that comes first.
    first = str((bare or {}).get("text", "")).rpartition(_PROBE)
    heads = [first[0]] if first[1] else []
    heads += [] if head is None else [head]
    return min((len(each) for each in heads if text.startswith(each)), default=None)


def _check_texts(writer: Writer, message: Mapping[str, Any], written: str) -> None:
    """Raise if an answer's text is not in what the template writes of it."""
    for part in _texts(message):
        if part.strip() not in written:
            raise FormatError(
                f"ChatTemplate: {writer.name}: the template must write an answer as it is; it"
                f" writes {written!r:.200}: use another template"
            )


def _check_calls(writer: Writer, message: Mapping[str, Any], written: str) -> None:
    """Raise if an answer's tool calls are not in what the template writes of it."""
    # A text such as "I add." is no call of `add`.
    rest = written
    for own in (*_texts(message), _thoughts(message)):
        rest = rest.replace(own.strip(), "", 1)
    names = Counter[str]()
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        name = function.get("name")
        names[name] += 1
        if rest.count(name) < names[name] or not _holds(rest, function.get("arguments")):
            raise FormatError(
                f"ChatTemplate: {writer.name}: the template must write the tool calls of an answer;"
                f" it writes {written!r:.200} for a call of {name!r}: use another template, or"
                " leave these chats out"
            )


def _holds(text: str, value: Any) -> bool:
    """Return whether a text has the words and whole numbers of a call's arguments."""
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = value
        if isinstance(inner, (Mapping, list)):
            return _holds(text, inner)
        ways = (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
        return any(way in text for way in ways)
    if isinstance(value, Mapping):
        return all(_holds(text, each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return all(_holds(text, each) for each in value)
    # Others, such as 0.1, have several spellings.
    return not isinstance(value, int) or isinstance(value, bool) or str(value) in text


def _check_other_calls(writer: Writer, messages: Sequence[Any], trained: Sequence[int]) -> None:
    """Raise if the template does not write a call of an answer that is read, not trained."""
    places = [
        i
        for i, message in enumerate(messages)
        if i not in trained and message.get("role") == "assistant" and message.get("tool_calls")
    ]
    views = [view for i in places for view in (View(i), View(i + 1))]
    answers = writer.render(views) if views else []
    for n, i in enumerate(places):
        before, after = (str(each.get("text", "")) for each in answers[2 * n : 2 * n + 2])
        if "text" in answers[2 * n + 1]:
            same = (a == b for a, b in zip(before, after, strict=False))
            common = next((at for at, equal in enumerate(same) if not equal), len(before))
            _check_calls(writer, messages[i], after[common:])


def tell_lost_tools(name: str, found: Sequence[Rendered], tools: Sequence[Any]) -> None:
    """Warn once of descriptions of tools that a template leaves out of its texts.

    Args:
        name: of the template.
        found: the texts of a conversation.
        tools: the descriptions.
    """
    for tool in tools:
        function = tool.get("function", tool)
        known = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(known, str) and any(known not in _untrained(each) for each in found):
            _warn_tools(name, known)
            return


def _untrained(rendered: Rendered) -> str:
    """Return what a text has outside its trained spans."""
    starts = [0, *(end for _, end in rendered.spans)]
    ends = [*(start for start, _ in rendered.spans), len(rendered.text)]
    return "".join(rendered.text[a:b] for a, b in zip(starts, ends, strict=True))


@functools.cache
def _warn_tools(name: str, tool: str) -> None:
    """Tell once of descriptions of tools that a template leaves out."""
    _log.warning(
        "ChatTemplate: %s: the template leaves out the descriptions of `tools`, such as %r: the"
        " model is trained without them; another template may write them",
        name,
        tool,
    )


@functools.cache
def _warn(name: str) -> None:
    """Tell once of answers without the thoughts that a template asks for."""
    _log.warning(
        "ChatTemplate: %s: the template begins an answer with <think>, and the answers have no"
        " thoughts: the model will be asked otherwise than it is trained; is there a variable such"
        " as enable_thinking?",
        name,
    )


def _first_end(writer: Writer, tail: str, tools: bool) -> tuple[int, bool]:
    """Return where the first end mark of what follows an answer ends, and whether there is one."""
    for marks in (writer.ends, () if tools else writer.special):
        found = [(tail.find(mark), -len(mark)) for mark in marks if mark in tail]
        if found:
            at, length = min(found)
            return at - length, True
    return (len(tail.rstrip()) if tools else 0), False


def _peeled(text: str, start: int, ends: Sequence[str]) -> tuple[int, bool]:
    """Return where the answer at the end of a text ends; several end marks may follow it."""
    end, ended = len(text.rstrip()), False
    while True:
        body = text[start:end].rstrip()
        mark = max((mark for mark in ends if body.endswith(mark)), key=len, default=None)
        if mark is None:
            return end, ended
        # The first of several counts.
        inner = body[: -len(mark)].rstrip()
        end, ended = start + len(body), True
        if not inner.endswith(tuple(ends)):
            return end, True
        end = start + len(inner)


def _texts(message: Mapping[str, Any]) -> list[str]:
    """Return the texts of a message's content without thoughts."""
    content = message.get("content")
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return [text.rpartition("</think>")[2] for text in texts if isinstance(text, str)]


def _thoughts(message: Mapping[str, Any]) -> str:
    """Return the thoughts of an answer, which are fields of their own or stand before it."""
    content = message.get("content")
    if isinstance(content, str) and "</think>" in content:
        return content.rpartition("</think>")[0].rpartition("<think>")[2].strip()
    found = (message.get(name) for name in ("reasoning_content", "thinking", "reasoning"))
    return str(next((text for text in found if text), "")).strip()


def _with_thoughts(message: Mapping[str, Any], prompt: str) -> str:
    """Return an answer with its thoughts, as it continues the prompt."""
    content = str(message.get("content") or "")
    if "</think>" not in content:
        content = f"<think>\n{_thoughts(message)}\n</think>\n\n{content}"
    if prompt.rstrip().endswith("<think>"):
        content = content.lstrip().removeprefix("<think>")
        content = content.lstrip() if prompt[-1:].isspace() else content
    return content
