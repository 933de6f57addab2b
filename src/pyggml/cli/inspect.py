# SPDX-License-Identifier: MIT
"""`pyggml inspect`: what is in a file of weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from .errors import friendly_errors
from .terminal import say

__all__ = ["inspect"]

_LONGEST = 100


def inspect(
    file: Annotated[
        str,
        typer.Argument(
            help="A GGUF or safetensors file, a folder of weights, a run or a checkpoint.",
            show_default=False,
        ),
    ],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with every tensor.")
    ] = False,
) -> None:
    """Show what a file or folder of weights holds, without loading the weights.

    Metadata, types, sizes, the tokenizer and the chat template. Long values are cut.
    """
    with friendly_errors():
        from ..io import inspect_file

        found = inspect_file(file)
        if as_json:
            print(json.dumps(found))
            return
        for line in _lines(found, tensors):
            say(line)


def _lines(found: dict[str, Any], tensors: bool) -> Iterator[str]:
    """The lines for a reader."""
    from ..train import format_bytes

    yield f"{found['path']}: {found['format']}, {found['kind']}"
    for name in ("architecture", "name"):
        if name in found:
            yield f"{name:<14}{_cut(found[name])}"
    yield f"{'parameters':<14}{found['parameters']:,}"
    yield f"{'size':<14}{format_bytes(found['size_bytes'])}"
    for name, sums in sorted(found["types"].items(), key=lambda each: -each[1]["size_bytes"]):
        yield (
            f"{'type':<14}{name:<8}{sums['tensors']:>6} tensors {sums['parameters']:>16,} numbers"
            f" {format_bytes(sums['size_bytes']):>10}"
        )
    if "tokenizer" in found:
        words = found["tokenizer"]
        pre = f" ({words['pre']})" if words["pre"] else ""
        yield f"{'tokenizer':<14}{words['model']}{pre}, {words['tokens']:,} tokens"
        for role, token in words["special"].items():
            yield f"{'':<14}{role:<12}{token['id']:>8}  {_cut(repr(token['text']))}"
    if "chat_template" in found:
        yield f"{'chat template':<14}{_cut(repr(found['chat_template']))}"
    yield "metadata"
    for key, value in found["metadata"].items():
        yield f"  {key} = {_cut(_told(value))}"
    if tensors:
        yield "tensors"
        width = max((len(each["name"]) for each in found["tensors"]), default=0)
        for each in found["tensors"]:
            shape = " × ".join(map(str, each["shape"])) or "1"
            yield f"  {each['name']:<{width}}  {each['dtype']:<8}{shape}"


def _told(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"count", "first"}:
        return f"{value['count']:,} values: {json.dumps(value['first'], ensure_ascii=False)}"
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
