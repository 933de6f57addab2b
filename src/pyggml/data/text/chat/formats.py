# SPDX-License-Identifier: MIT
"""The formats of rows that hold conversations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ....errors import FormatError, shown

__all__ = ["FORMATS", "ROLES", "Row", "recognised", "unfit"]

ROLES = ("system", "developer", "user", "assistant", "tool")
"""The roles of messages."""
_OTHER_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_response": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
}


class Row(NamedTuple):
    """The content of a row: messages with tools, or a text."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None = None
    text: str | None = None


def _messages(record: Mapping[str, Any]) -> Row:
    """`messages` of `role` and `content`."""
    other = "conversation" in record and "messages" not in record
    name = "conversation" if other else "messages"
    given = _list(record, name)
    messages = [_message(item, name, number) for number, item in enumerate(given)]
    return _checked(Row(messages, _tools(record)))


def _tools(record: Mapping[str, Any]) -> list[Any] | None:
    """Return the descriptions of functions that a row offers, if there are any."""
    return _list(record, "tools") if record.get("tools") else None


def _sharegpt(record: Mapping[str, Any]) -> Row:
    """`conversations` of `from` and `value`."""
    messages = []
    if record.get("system"):
        messages.append({"role": "system", "content": _text(record, "system")})
    for number, item in enumerate(_list(record, "conversations")):
        at = f"conversations[{number}]"
        renamed = _renamed(item, at) if isinstance(item, Mapping) else item
        messages.append(_message(renamed, "conversations", number))
    return _checked(Row(messages, _tools(record)))


def _renamed(item: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return a message of ShareGPT under the names of the others; its calls are JSON."""
    message = {key: value for key, value in item.items() if key not in ("from", "value")}
    if "from" in item:
        message |= {"role": item["from"], "content": item.get("value")}
    if message.get("role") == "function_call":
        call = _json(str(message.get("content")), f"{at}.value")
        calls = [
            {"type": "function", "function": each}
            for each in (call if isinstance(call, list) else [call])
        ]
        message = {"role": "assistant", "content": "", "tool_calls": calls}
    return message


def _alpaca(record: Mapping[str, Any]) -> Row:
    """`instruction`, `input` and `output`."""
    messages: list[dict[str, Any]] = []
    if record.get("system"):
        messages.append({"role": "system", "content": _text(record, "system")})
    history = _list(record, "history") if record.get("history") else []
    for number, turn in enumerate(history):
        if not isinstance(turn, (list, tuple)) or len(turn) != 2:
            raise FormatError(f"history[{number}] must be a question and its answer; got {turn!r}")
        messages.append({"role": "user", "content": str(turn[0])})
        messages.append({"role": "assistant", "content": str(turn[1])})
    question = _text(record, "instruction")
    if record.get("input"):
        question = f"{question}\n\n{_text(record, 'input')}"
    messages.append({"role": "user", "content": question})
    messages.append({"role": "assistant", "content": _text(record, "output")})
    return _checked(Row(messages))


def _pairs(record: Mapping[str, Any]) -> Row:
    """`prompt` and `completion`: texts, or lists of messages."""
    messages: list[dict[str, Any]] = []
    for name, role in (("prompt", "user"), ("completion", "assistant")):
        if isinstance(record.get(name), (list, tuple)):
            given = _list(record, name)
            messages += [_message(item, name, number) for number, item in enumerate(given)]
            if role == "user":
                # What a prompt holds was said before; only the completion is learned.
                messages = [{**m, "train": False} if _answers(m) else m for m in messages]
        else:
            messages.append({"role": role, "content": _text(record, name)})
    return _checked(Row(messages, _tools(record)))


def _plain(record: Mapping[str, Any]) -> Row:
    """`text` without a conversation."""
    text = _text(record, "text")
    if not text.strip():
        raise FormatError("text must not be empty")
    return Row([], text=text)


FORMATS: dict[str, Callable[[Mapping[str, Any]], Row]] = {
    "messages": _messages,
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
    "pairs": _pairs,
    "text": _plain,
}
"""The formats of rows by name: functions that read a row."""


def recognised(record: Mapping[str, Any]) -> str:
    """Return the format of a row, by its fields.

    Raises:
        FormatError: no format has these fields.
    """
    fields = set(record)
    if fields & {"messages", "conversation"}:
        return "messages"
    # Trained as pairs, answers that were judged bad would be learnt.
    judged = "completion" in fields and isinstance(record.get("label"), bool)
    if judged or {"chosen", "rejected"} <= fields:
        raise FormatError(
            f"a row must be a conversation; got a preference, {', '.join(map(shown, record))}, "
            "which `read_preferences` reads and `method`=dpo or kto trains"
        )
    if "conversations" in fields:
        return "sharegpt"
    if {"instruction", "output"} <= fields:
        return "alpaca"
    if {"prompt", "completion"} <= fields:
        return "pairs"
    if "text" in fields:
        return "text"
    raise FormatError(
        "a row must have messages, conversations, instruction and output, prompt and completion, or"
        f" text; got {', '.join(map(shown, record)) or 'no field'}"
    )


def _message(item: Any, name: str, number: int) -> dict[str, Any]:
    """Return a message with a known role; raise on another."""
    at = f"{name}[{number}]"
    if not isinstance(item, Mapping):
        raise FormatError(f"{at} must be a mapping with role and content; got {shown(item)}")
    # Columns of Parquet give every message every field.
    message = {key: value for key, value in item.items() if value is not None}
    role = message.get("role")
    role = _OTHER_ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise FormatError(f"{at}: role must be one of {', '.join(ROLES)}; got {shown(role)}")
    message["role"] = role
    if not isinstance(message.get("train", True), (bool, np.bool_)):
        raise FormatError(f"{at}: train must be true or false; got {shown(message['train'])}")
    if message.get("weight", 1) not in (0, 1):
        raise FormatError(f"{at}: weight must be 0 or 1; got {shown(message['weight'])}")
    for flag, kind in (("train", bool), ("weight", int)):  # NumPy's are not JSON's
        if flag in message:
            message[flag] = kind(message[flag])
    content = message.setdefault("content", "")
    parts = content if isinstance(content, (list, tuple)) else [content]
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise FormatError(f"{at}: content must be text; got {shown(part)}")
    if isinstance(message.get("tool_calls"), str):
        message["tool_calls"] = _json(message["tool_calls"], f"{at}.tool_calls")
    calls = message.get("tool_calls")
    if calls is not None and (
        not isinstance(calls, (list, tuple)) or not all(isinstance(c, Mapping) for c in calls)
    ):
        raise FormatError(f"{at}: tool_calls must be a list of mappings; got {shown(calls)}")
    for call in calls or ():
        _check_call(call, at)
    if isinstance(content, (list, tuple)) and all(isinstance(part, str) for part in content):
        message["content"] = "".join(content)
    return message


def _check_call(call: Mapping[str, Any], at: str) -> None:
    """Raise unless a tool call has a name, and its arguments, if there are any, are JSON's."""
    function = call.get("function", call)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name.strip():
        raise FormatError(f"{at}: a tool call must have function.name, a text; got {shown(call)}")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _json(arguments or "{}", f"{at}: function.arguments of {name}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise FormatError(
            f"{at}: function.arguments of {name} must be an object; got {shown(arguments)}"
        )


def _checked(row: Row) -> Row:
    """Return a row whose conversation has an answer, and none that is empty."""
    if not any(_answers(message) for message in row.messages):
        raise FormatError("a conversation must have an answer of the assistant; got none")
    for number, message in enumerate(row.messages):
        if _answers(message) and not message.get("tool_calls") and not _written(message):
            raise FormatError(f"message {number}: an answer must not be empty")
    _check_results(row.messages)
    return row


def _check_results(messages: list[dict[str, Any]]) -> None:
    """Raise if the result of a tool is of no call before it; calls may have no `id`."""
    known: list[Any] = []
    for number, message in enumerate(messages):
        known += [call["id"] for call in message.get("tool_calls") or () if call.get("id")]
        given = message.get("tool_call_id")
        if message["role"] == "tool" and known and given and given not in known:
            raise FormatError(
                f"message {number}: tool_call_id must be the id of a call before it,"
                f" {', '.join(map(shown, known))}; got {shown(given)}"
            )


def _answers(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant"


def _written(message: Mapping[str, Any]) -> bool:
    """Return True for a message with a text that is not blank."""
    content = message["content"]
    parts = content if isinstance(content, (list, tuple)) else [content]
    return any((part["text"] if isinstance(part, Mapping) else part).strip() for part in parts)


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise unfit(record, name, "text")
    return value


def _list(record: Mapping[str, Any], name: str) -> list[Any]:
    value: Any = record.get(name)
    if isinstance(value, str):
        value = _json(value, name)
    if hasattr(value, "tolist"):  # an array, as pandas gives
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise unfit(record, name, "a list")
    return list(value)


def unfit(record: Mapping[str, Any], name: str, kind: str) -> FormatError:
    """Return the error of a field that is missing, or not of a kind.

    Args:
        record: the row.
        name: of the field.
        kind: in words.
    """
    if name in record:
        return FormatError(f"{name} must be {kind}; got {shown(record[name])}")
    return FormatError(
        f"{name} must be a field of the row; got {', '.join(map(shown, record)) or 'none'}"
    )


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name} must be JSON: {error}") from error
