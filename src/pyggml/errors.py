# SPDX-License-Identifier: MIT
"""The exceptions of pyggml; each is also a built-in one, such as ValueError."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from .absent.keywords import by_place as placed_instead
from .absent.keywords import given_twice, instead_of, renamed

__all__ = [
    "AnomalyError",
    "BackendError",
    "ConfigError",
    "ConfigTypeError",
    "Copyable",
    "DTypeError",
    "DistributedError",
    "FormatError",
    "GradientError",
    "OutOfMemoryError",
    "RecordingError",
    "ShapeError",
    "amount",
    "composed",
    "fitting",
    "in_message",
    "is_of_function",
    "lead",
    "printable",
    "reason",
    "shown",
    "tell_signature",
]

_LONGEST = 80
# The function or class that begins a message.
_CALLER = re.compile(r"\A[A-Za-z_][\w.]*: (?=\S)")
# What Python says of a call that does not fit a signature.
_CALL = re.compile(r"\A[\w.<>]+\(\) (?=got |takes |missing )")
# A byte of a name that is not UTF-8, in a repr; `printable` shows it like this, too.
_BYTE = re.compile(r"(?<!\\)\\udc([89a-f][0-9a-f])")
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")

_P = ParamSpec("_P")
_R = TypeVar("_R")

_in_message = threading.local()


def in_message() -> bool:
    """Return True while `shown` asks for a repr, which then must compute nothing."""
    return getattr(_in_message, "depth", 0) > 0


def shown(x: Any) -> str:
    """Return a value's repr for a message: one line, shortened where it is long."""
    depth = getattr(_in_message, "depth", 0)
    _in_message.depth = depth + 1
    try:
        text = " ".join(repr(x).split())
    except (ValueError, RecursionError):  # thousands of digits, or of lists in each other
        return (
            f"a whole number of {x.bit_length()} bits" if isinstance(x, int) else type(x).__name__
        )
    finally:
        _in_message.depth = depth
    text = _BYTE.sub(r"\\x\1", text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def printable(text: str, keep: str = "") -> str:
    """Return a text that no terminal takes for commands, and that any output takes.

    Control characters, marks that turn the direction of writing, and bytes of file names that are
    not Unicode become escapes such as `\\x1b`.

    Args:
        text: of unknown origin: a file's name, a sample, a message.
        keep: control characters that stay, such as "\\n\\t" in samples.

    Example:
        >>> printable("a\\x1b[2J\\n"), printable("caf\\udce9"), printable("b\\n", "\\n")
        ('a\\\\x1b[2J\\\\n', 'caf\\\\xe9', 'b\\n')
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    """An escape for a character that is not to reach an output, others as they are."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name, as Python keeps it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or char in _DIRECTIONS:
        return char.encode("unicode_escape").decode()
    return char


def amount(number: int, thing: str) -> str:
    """Return a number of things in words.

    Args:
        number: how many.
        thing: one of them.

    Example:
        >>> amount(1, "chat"), amount(2000, "chat")
        ('1 chat', '2,000 chats')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def reason(error: BaseException | str) -> str:
    """Return the message of an exception without the function that raised it.

    Args:
        error: or its text; of a function whose argument comes from an option, which the caller
            names.

    Example:
        >>> reason(ValueError("AdamW: eps must be a number >= 0; got -1"))
        'eps must be a number >= 0; got -1'
    """
    return _CALLER.sub("", str(error))


def is_of_function(error: BaseException) -> bool:
    """Return True if a message begins with a function, and not with a class.

    Example:
        >>> is_of_function(ValueError("cont: x must be f32")), is_of_function(ValueError("no"))
        (True, False)
    """
    found = _CALLER.match(str(error))
    return found is not None and found[0][:1].islower()


def lead(who: str, error: BaseException) -> None:
    """Let the message of an error begin with the function or class that the user called.

    Args:
        who: the name.
        error: of a function that was called on the way.

    Example:
        >>> error = ValueError("cont: x must be f32")
        >>> lead("contiguous", error)
        >>> str(error)
        'contiguous: x must be f32'
    """
    if not str(error).startswith(f"{who}: "):
        error.args = (f"{who}: {reason(error)}",)


def composed(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let the errors of the functions that a function calls begin with its own name.

    Keywords are taken as `fitting` takes them.
    """

    @functools.wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return fn(*args, **kwargs)
        except (TypeError, ValueError, IndexError, BackendError) as error:
            own = _own_call(fn.__name__, fn, error, args, kwargs)
            if own is None:
                lead(fn.__name__, error)
                raise
        return call(*own[0], **own[1])

    return call


def fitting(fn: Callable[_P, _R], who: str | None = None) -> Callable[_P, _R]:
    """Take keywords that PyTorch and NumPy have for arguments of a function, as `axis` for `dim`.

    The error of a call that does not fit the function's signature tells the signature.

    Args:
        fn: the function.
        who: what the user called, None for the function's own name.
    """
    own = who or fn.__name__

    @functools.wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return fn(*args, **kwargs)
        except TypeError as error:
            heir = type(args[0]) if args else None  # of a class that inherits the method
            inherits = fn.__name__ == "__init__" and getattr(heir, "__init__", None) is call
            name = heir.__name__ if heir and inherits else own
            fitted = _own_call(name, fn, error, args, kwargs)
            if fitted is None:
                raise
        return call(*fitted[0], **fitted[1])

    return call


def tell_signature(who: str, fn: Callable[..., Any], error: BaseException) -> None:
    """Write the signature into Python's error of a call that does not fit a method.

    Args:
        who: what the user called.
        fn: the method.
        error: may be of another function, and is left as it is then.
    """
    text = str(error)
    if text.startswith(f"{fn.__qualname__}() ") and _CALL.match(text):
        error.args = (f"{who}: {_CALL.sub('', text)}; it takes {_signature(fn)}",)


def _own_call(
    who: str,
    fn: Callable[..., Any],
    error: BaseException,
    args: Sequence[Any],
    given: Mapping[str, Any],
) -> tuple[Any, Any] | None:
    """Return the arguments of a call with keywords of the function's own names, or None.

    Python's error of a call that does not fit the function tells the signature then. Such an error
    has the frame of the wrapper alone, and none of the function.
    """
    at = error.__traceback__
    if at is None or at.tb_next is not None or not _CALL.match(str(error)):
        return None
    known = inspect.signature(fn).parameters
    names = list(known)
    by_place = [name for name, each in known.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    rest = next((name for name, each in known.items() if each.kind is each.VAR_POSITIONAL), None)
    room = len(by_place)
    placed = by_place[: len(args)] if rest is None or len(args) <= room else [*by_place, rest]
    twice = given_twice(names, given, placed)
    if twice is not None:
        own, first, second = twice
        error.args = (
            f"{who}: {own} must be given once; got {first} and {second}, which are the same: "
            f"leave out {second}",
        )
        return None
    found = renamed(names, given)
    values = dict(given if found is None else found)
    if rest in values and len(args) == room:  # zeros(shape=(2, 3)) is zeros((2, 3))
        return (*args, values.pop(rest)), values
    if found is None or rest in found:
        text = f"{who}: {_CALL.sub('', str(error))}; it takes {_signature(fn)}"
        unknown = _UNKNOWN.search(text)
        cure = instead_of(who, unknown[1]) if unknown else None
        if " positional argument" in text and "but" in text:
            cure = placed_instead(who)
        error.args = (f"{text}: use {cure}" if cure else text,)
        return None
    return args, found


def _signature(fn: Callable[..., Any]) -> str:
    """Return the arguments of a function with their defaults, without types."""
    found = inspect.signature(fn)
    bare = [
        each.replace(annotation=each.empty)
        for name, each in found.parameters.items()
        if name != "self"
    ]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


class Copyable(BaseException):
    """The base of exceptions that are made of other values than their message.

    `copy` and `pickle` would make one of its message alone; with this base they keep what it has.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Make an exception without its `__init__`."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class ShapeError(ValueError):
    """A shape does not fit the operation.

    Example:
        >>> raise ShapeError("add: shapes must broadcast; got (2, 3) and (4,)")
        Traceback (most recent call last):
            ...
        pyggml.errors.ShapeError: add: shapes must broadcast; got (2, 3) and (4,)
    """


class DTypeError(TypeError):
    """A number type does not fit the operation.

    Example:
        >>> issubclass(DTypeError, TypeError)
        True
    """


class BackendError(RuntimeError):
    """A device is missing, lacks an operation or memory, or failed while computing.

    Example:
        >>> issubclass(BackendError, RuntimeError)
        True
    """


class OutOfMemoryError(BackendError, MemoryError):
    """A device, or the system, has not the memory that a tensor, a graph or a run needs.

    Example:
        >>> issubclass(OutOfMemoryError, MemoryError)
        True
    """


class DistributedError(RuntimeError):
    """Ranks cannot work together: MPI is missing or mixed, or a rank differs from the others.

    Example:
        >>> issubclass(DistributedError, RuntimeError)
        True
    """


class FormatError(ValueError):
    """A file is not what it should be; the message names file, field and cause.

    Example:
        >>> issubclass(FormatError, ValueError)
        True
    """


class ConfigError(ValueError):
    """An option, or several together, cannot be used.

    Example:
        >>> issubclass(ConfigTypeError, ConfigError) and issubclass(ConfigTypeError, TypeError)
        True
    """


class ConfigTypeError(ConfigError, TypeError):
    """An option has a value of a wrong kind."""


class GradientError(RuntimeError):
    """No gradient can be computed: an op has none, or no tensor requires one.

    Example:
        >>> issubclass(GradientError, RuntimeError)
        True
    """


class AnomalyError(ArithmeticError):
    """An op made a NaN or an infinity while `detect_anomaly` was on.

    Example:
        >>> issubclass(AnomalyError, ArithmeticError)
        True
    """


class RecordingError(RuntimeError):
    """A traced function does something that its later runs would not repeat, or a recorded tensor
    is computed after a parameter that it depends on was written.

    Example:
        >>> issubclass(RecordingError, RuntimeError)
        True
    """
