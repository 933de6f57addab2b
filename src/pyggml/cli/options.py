# SPDX-License-Identifier: MIT
"""Commands whose flags are derived from options: signatures, help, and the flags in messages."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..options import Option, Options, options_of
from ..recipes import Configuration
from .terminal import say

__all__ = [
    "Commands",
    "ConfigFile",
    "OptionCommand",
    "Overwrite",
    "Resume",
    "TokenizerFile",
    "blames_option",
    "flag_of",
    "named_by_flags",
    "with_options",
]

# The flags of all commands that train a run.
_OUTPUT = "Output"
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="TOML or JSON file of options; those given here win.",
        rich_help_panel=_OUTPUT,
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the run in --artifact-dir.", rich_help_panel=_OUTPUT),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace the run in --artifact-dir.", rich_help_panel=_OUTPUT),
]
TokenizerFile = Annotated[
    str | None,
    typer.Option(
        "--tokenizer", help="A tokenizer JSON file, or a GGUF file, instead of the model's own."
    ),
]

_TYPES = {"switch": bool, "whole": int, "number": float, "texts": list[str], "table": list[str]}
# The flags of arguments that are not options, and those of the options of all commands.
_WORDS = (
    "config resume overwrite size image model tries start end source target file base dtype type"
    " imatrix allow_requantize max_part_bytes text output choices answers lora"
)
_FLAGS = {name: f"--{name.replace('_', '-')}" for name in _WORDS.split()}
# The options that arguments of the library's functions come from, the running command's first one
# of several; "" is for messages that begin with the name of a file. Names of functions are left
# out of messages that begin with one of these.
_ARGUMENTS: dict[str, dict[str, str]] = {
    "find_lr": {"steps": "tries", "start": "start", "end": "end"},
    "load": {"path": "model source"},
    "inspect_file": {"path": "file"},
    "read_gguf": {},
    "read_importance": {},
    "Tokenizer.from_file": {},
    "convert": {name: name for name in ("source", "target", "dtype", "base", "tokenizer")},
    "to_gguf_metadata": {"dtype": "dtype"},
    "quantize_gguf": {
        **{"mix": "type", "importance": "imatrix", "requantize": "allow_requantize"},
        **{"source": "source", "target": "target"},
    },
    "write_gguf": {"max_part_bytes": "max_part_bytes"},
    "measure_importance": {"length": "chunk", "ids": "text"},
    "Corpus": {"": "text"},
    "Corpus.tokens": {"": "text"},
    "encode_pairs": {"": "text"},
    "read_texts": {"": "text", "read_pairs": "prompt_field"},
    "Loader.shard": {"batch_size": "batch_size"},
    "BucketLoader.shard": {"batch_size": "batch_size"},
    "read_choices": {"": "choices"},
    "read_records": {},
    "read_chats": {"": "answers"},
    "read_config": {"path": "config"},
    "load_lora": {"path": "lora"},
    "read_pairs": {"": "text", "prompt": "prompt_field", "completion": "completion_field"},
}
_FUNCTION = re.compile(rf"(^|: )({'|'.join(map(re.escape, _ARGUMENTS))}): ")
# The flags and arguments of the command that runs; None before one does.
_RUNNING: ContextVar[frozenset[str] | None] = ContextVar("_RUNNING", default=None)
# The value of a flag that stands without one.
_BARE: dict[str, str] = {}
# A name in backticks, perhaps with a value.
_NAMED = re.compile(r"`([a-z][a-z0-9_]*)`(?:=(True|False)\b|(=))?")
# The errors of the parser of command lines: click's, which some versions of typer hold a copy of.
_UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "UsageError")
_INVALID = re.compile(r"Invalid value for '([^' ]+)[^:]*: ")
# The classes that options belong to, which a user of commands does not know.
_CALLER = re.compile(r"(^|: )(?:\w+(?:Options|Config)|Trainer): ")


def flag_of(option: Option) -> str:
    """Return the flag of an option.

    Args:
        option: the option.

    Example:
        >>> flag_of(Option(name="batch_size", default=8))
        '--batch-size'
    """
    return "--" + (option.flag or option.name).replace("_", "-")


def named_by_flags(message: str) -> str:
    """Return a message of the library with flags in place of the names of options.

    Args:
        message: the names stand in backticks; or the message begins with a function and its
            argument, which comes from an option. An option that the running command has no flag
            for, and that a file of options may have, keeps its name.

    Example:
        >>> from pyggml.cli.app import app  # whose commands have the flags
        >>> named_by_flags("TrainerOptions: `lr` must be > 0; got `lr`=-1")
        '--lr must be > 0; got --lr -1'
        >>> named_by_flags("find_lr: steps must be a whole number >= 5; got 1")
        '--tries must be a whole number >= 5; got 1'
    """
    return _translated(message)[0]


def blames_option(message: str) -> bool:
    """Return True if a message of the library begins with an argument that is an option.

    Args:
        message: as of `named_by_flags`.

    Example:
        >>> from pyggml.cli.app import app  # whose commands have the flags
        >>> blames_option("find_lr: steps must be a whole number >= 5; got 1")
        True
        >>> blames_option("read_gguf: model.gguf: the file is truncated")
        False
    """
    return _translated(message)[1]


def _translated(message: str) -> tuple[str, bool]:
    """The message with flags, and True if it begins with a function's argument that is one."""
    message, blamed = _CALLER.sub(r"\1", message), False
    arguments: Mapping[str, str] = {}
    called = _FUNCTION.search(message)
    if called:
        arguments = _ARGUMENTS[called[2]]
        before, rest = message[: called.end(1)], message[called.end() :]
        first, space, after = rest.partition(" ")
        if first in arguments:
            rest = f"`{first}`{space}{after}"
            blamed = _flag(arguments[first]) is not None
        elif not before and "" in arguments:
            rest = f"`{arguments['']}`={rest}"
        message = before + rest

    def flagged(match: re.Match[str]) -> str:
        flag = _flag(arguments.get(match[1], match[1]))
        if flag is None:
            return match[0]
        if match[2]:
            return flag if match[2] == "True" else f"--no-{flag[2:]}"
        return flag + (" " if match[3] else "")

    return _NAMED.sub(flagged, message), blamed


def _flag(names: str) -> str | None:
    """The flag, or the argument in capitals, of the first of these that the command has."""
    own = _RUNNING.get()
    for name in names.split():
        for shown in filter(None, (_FLAGS.get(name), name.upper())):
            if shown in own if own is not None else shown.startswith("--"):
                return shown
    return None


def with_options(
    kind: type[Configuration] | type[Options],
    only: Iterable[str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the flags of options to a command.

    The command takes the options that were given, by name, as its first argument.

    Args:
        kind: a configuration or a class of options.
        only: the names of those that the command takes; None takes all.
        defaults: words for the defaults of a command that has others.

    Example:
        >>> from pyggml.recipes import LLMConfig
        >>> @with_options(LLMConfig, only=["steps"])
        ... def command(given: dict[str, Any]) -> None:
        ...     print(given)
        >>> command(steps=3)
        {'steps': 3}
    """
    parts = kind.parts() if issubclass(kind, Configuration) else {"": kind}
    own = kind.options() if issubclass(kind, Configuration) else options_of(kind)
    names = list(own) if only is None else list(only)
    panels = {name: part.capitalize() for part, each in parts.items() for name in options_of(each)}
    _FLAGS.update({name: flag_of(own[name]) for name in names})
    _BARE.update({flag_of(each): each.bare for each in own.values() if each.bare is not None})
    added = [
        _parameter(own[name], panels[name] or None, (defaults or {}).get(name)) for name in names
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        kept = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in list(signature.parameters.values())[1:]
        ]

        def command(**values: Any) -> None:
            given = {n: values.pop(n) for n in names}
            function({n: value for n, value in given.items() if value is not None}, **values)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = signature.replace(parameters=[*added, *kept])  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in (*added, *kept)}
        return command

    return decorate


def _parameter(option: Option, panel: str | None, default: str | None) -> inspect.Parameter:
    """Return an option as a parameter that is None where it is not given."""
    flag = flag_of(option)
    if option.kind == "switch":
        flag += f"/--no-{flag[2:]}"
    words = default or option.chosen or _words(option.usual)
    several = "; may be repeated" if option.kind in ("texts", "table") else ""
    declared = typer.Option(
        flag,
        help=named_by_flags(option.help.removesuffix(".") + several + "."),
        rich_help_panel=panel,
        show_default=named_by_flags(words) or False,
        metavar=option.metavar or None,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_TYPES.get(option.kind, str) | None, declared],
    )


def _words(default: Any) -> str:
    """Return a default value as the help shows it."""
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, (tuple, list)):
        return ", ".join(map(str, default))
    return str(default) if isinstance(default, (int, float, str)) else ""


class OptionCommand(TyperCommand):
    """A command whose errors name its flags, and whose flags may lack a value.

    `--checkpointing` without one means all.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        shown = (name for param in self.params for name in param.opts)
        before = _RUNNING.set(
            frozenset(name if name.startswith("-") else name.upper() for name in shown)
        )
        try:
            return super().invoke(ctx)
        finally:
            _RUNNING.reset(before)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the values of flags that were given without one."""
        filled = []
        for i, arg in enumerate(args):
            after = args[i + 1] if i + 1 < len(args) else "-"
            filled.append(arg)
            if arg in _BARE and after.startswith("-"):
                filled.append(_BARE[arg])
        return super().parse_args(ctx, filled)


class Commands(TyperGroup):
    """The commands, which report a wrong command line as any other error, in one line."""

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Run a command, and exit with its code."""
        more["standalone_mode"] = False
        if not standalone_mode:
            return super().main(*args, **more)
        try:
            code = super().main(*args, **more)
        except _UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()
            else:
                said = _INVALID.sub(r"\1: ", error.format_message()).removesuffix(".")
                say(f"error: {said[:1].lower()}{said[1:]}", error=True)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else 0)
