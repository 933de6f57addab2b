# SPDX-License-Identifier: MIT
"""The arguments of tool calls, as a template takes them: objects, or the JSON of objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .renderer import View

__all__ = ["render_calls"]

_Answers = list[dict[str, Any]]


def render_calls(
    render: Callable[[Sequence[Mapping[str, Any]], Sequence[View]], _Answers],
    messages: Sequence[Mapping[str, Any]],
    views: Sequence[View],
) -> _Answers:
    """Render views of a conversation whose calls have arguments in the form that is written well.

    Most templates write an object as JSON and a text as it is, or in quotes; some can only join
    texts. An object that comes out as Python writes it, and a text within quotes, are not written
    well.

    Args:
        render: renders views of messages.
        messages: the conversation.
        views: parts of it.

    Returns:
        As `renderer.ask`.
    """
    given = [arguments for message in messages for arguments in _arguments(message)]
    if not given:
        return render(messages, views)
    found: _Answers = []
    least: int | None = None
    for change, wrong in ((_object, str), (_text, _quoted)):
        changed = [
            View(v.upto, v.prompt, {i: _with(m, change) for i, m in v.changed.items()})
            for v in views
        ]
        answers = render([_with(message, change) for message in messages], changed)
        marks = {wrong(change(each)) for each in given} - {_text(each) for each in given}
        faults = sum(
            "error" in each or any(mark in str(each.get("text", "")) for mark in marks)
            for each in answers
        )
        if least is None or faults < least:
            found, least = answers, faults
        if not faults:
            break
    return found


def _arguments(message: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a message's calls, those that there are."""
    functions = [call.get("function", call) for call in message.get("tool_calls") or ()]
    return [f["arguments"] for f in functions if f.get("arguments")]


def _with(message: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a message whose calls have other arguments."""
    if not message.get("tool_calls"):
        return dict(message)
    calls = []
    for call in message["tool_calls"]:
        function = call.get("function", call)
        if function.get("arguments") is not None:
            changed = {**function, "arguments": change(function["arguments"])}
            calls.append({**call, "function": changed} if "function" in call else changed)
        else:
            calls.append(call)
    return {**message, "tool_calls": calls}


def _object(arguments: Any) -> Any:
    """Return arguments as an object, if they are the JSON of one."""
    if isinstance(arguments, str):
        try:
            found = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return arguments
        return found if isinstance(found, dict) else arguments
    return arguments


def _text(arguments: Any) -> str:
    """Return arguments as JSON."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)


def _quoted(text: str) -> str:
    """Return JSON within JSON, without the outer quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
