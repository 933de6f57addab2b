# SPDX-License-Identifier: MIT
"""ggml's C API, its log, and its message before an abort.

The only module that imports the compiled one. `lib` holds ggml's functions and constants, `ffi`
the C types; a call of a `lib` function releases the interpreter lock while it runs.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import traceback
from types import FrameType, TracebackType
from typing import Any

from .cpu_sets import choose_cpu
from .interpreter import check_interpreter
from .library_files import check_module, cpu_library, cure, libraries, not_imported
from .scopes import Scope, Scopes

check_interpreter()

# Before ggml's libraries are loaded: an instruction that the CPU lacks would end the process.
_variant = choose_cpu(os.environ.get("PYGGML_CPU", ""))

_libraries = libraries()
if sys.platform == "win32":
    os.add_dll_directory(str(_libraries))

check_module("_ggml")
try:
    from .._ggml import ffi, lib
except ImportError as error:
    raise not_imported(error) from error

__all__ = [
    "capture_log",
    "ffi",
    "cpu_features",
    "cpu_variant",
    "ggml_version",
    "keep_interrupt",
    "lib",
    "pass_interrupt",
    "patch_count",
]

_logger = logging.getLogger("pyggml.ggml")

# Where an abort is told; tests whose file descriptor 2 is captured set another.
_abort_fd = 2

_LEVELS = {
    lib.GGML_LOG_LEVEL_NONE: logging.INFO,
    lib.GGML_LOG_LEVEL_DEBUG: logging.DEBUG,
    lib.GGML_LOG_LEVEL_INFO: logging.INFO,
    lib.GGML_LOG_LEVEL_WARN: logging.WARNING,
    lib.GGML_LOG_LEVEL_ERROR: logging.ERROR,
}


class _ThreadLog(threading.local):
    """One thread's unfinished line, and the list whose last message it is, if any."""

    def __init__(self) -> None:
        self.level = logging.INFO
        self.text = ""
        self.messages: list[str] | None = None

    def add(self, level: int, text: str) -> None:
        """Take a piece as ggml gives it: for the innermost capture, else for the logger."""
        if level != lib.GGML_LOG_LEVEL_CONT:
            self.flush()
            self.level = _LEVELS.get(level, logging.INFO)
        self.text += text
        capture: list[str] | None = _captures.innermost()
        line = self.text.rstrip()
        if capture is not None and line:
            if self.messages is not capture:
                capture.append("")
            capture[-1] = line
            self.messages = capture
        if self.text.endswith("\n"):
            self.flush()

    def flush(self) -> None:
        """End the line; log it where nothing captures it."""
        line, self.text = self.text.rstrip(), ""
        taken, self.messages = self.messages is not None, None
        if line and not taken:
            _logger.log(self.level, "%s", line)


_captures = Scopes()
_log = _ThreadLog()


# The Ctrl-C that came while C was calling Python. Asking for it again at once would raise it in
# `_keep_interrupt`, where it would be lost.
_kept: list[KeyboardInterrupt] = []


def keep_interrupt(error: KeyboardInterrupt) -> None:
    """Keep a Ctrl-C that C could not pass on, for `pass_interrupt`."""
    _kept.append(error)


def _keep_interrupt(
    kind: type[BaseException], value: BaseException | None, trace: TracebackType | None
) -> None:
    """C cannot pass an exception on: keep Ctrl-C for `pass_interrupt`, show anything else."""
    if isinstance(value, KeyboardInterrupt):
        keep_interrupt(value)
    else:
        traceback.print_exception(kind, value, trace)


def pass_interrupt() -> None:
    """Raise the Ctrl-C that came while C was calling Python; for after such a call.

    Raises:
        KeyboardInterrupt: there was one, and this is the main thread.
    """
    if _kept and threading.current_thread() is threading.main_thread():
        error = _kept.pop()
        _kept.clear()
        raise error.with_traceback(None)


@ffi.def_extern(onerror=_keep_interrupt)  # type: ignore[untyped-decorator]
def pyggml_log(level: int, text: Any, user_data: Any) -> None:
    """ggml's log callback; any thread of ggml's may call it."""
    del user_data
    _log.add(level, ffi.string(text).decode("utf-8", "replace"))


def _stack(frame: FrameType | None) -> str:
    """A frame's stack, outermost call first."""
    return "".join(traceback.format_stack(frame))


@ffi.def_extern(onerror=_keep_interrupt)  # type: ignore[untyped-decorator]
def pyggml_abort(message: Any) -> None:
    """ggml's abort callback: the process ends when it returns."""
    text = ffi.string(message).decode("utf-8", "replace").rstrip()
    here = sys._getframe()
    stacks = ""
    if here.f_back is not None:
        stacks = f"Python stack, most recent call last:\n{_stack(here.f_back)}"
    if threading.get_ident() not in {thread.ident for thread in threading.enumerate()}:
        # A worker thread of ggml's: one of the Python threads waits for it.
        stacks += "".join(
            f"Python stack of thread {ident:#x}, most recent call last:\n{_stack(frame)}"
            for ident, frame in sys._current_frames().items()
            if frame is not here
        )
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    # Not sys.stderr: what it buffers or captures would die with the process.
    os.write(
        _abort_fd, f"pyggml: ggml aborted the process: {text}\n{stacks}".encode("utf-8", "replace")
    )


@ffi.def_extern(error=False, onerror=_keep_interrupt)  # type: ignore[untyped-decorator]
def pyggml_watch(tensor: Any, ask: bool, user_data: Any) -> bool:
    """The scheduler's callback at each node: passes it to the Python callable in `user_data`.

    After Ctrl-C it asks to see the next node, and there ends the graph.
    """
    if _kept and threading.current_thread() is threading.main_thread():
        return ask
    return bool(ffi.from_handle(user_data)(tensor, ask))


def capture_log() -> Scope:
    """Collect what ggml logs on this thread; the logger does not get these messages.

    Call `pass_interrupt` after the block.

    Returns:
        What `with` enters: `as` names a list that grows by a string for each message.

    Example:
        >>> params = ffi.new("struct gguf_init_params *")[0]
        >>> with capture_log() as messages:
        ...     _ = lib.gguf_init_from_file(b"no-such-file.gguf", params)
        >>> "no-such-file.gguf" in messages[0]
        True
    """
    _log.flush()
    return Scope(_captures, [])


def cpu_features() -> list[str]:
    """Return the instructions that the CPU's kernels were compiled with, such as avx2.

    Example:
        >>> all(isinstance(name, str) for name in cpu_features())
        True
    """
    prefix = "ggml_cpu_has_"
    found = [name for name in dir(lib) if name.startswith(prefix) and getattr(lib, name)()]
    return [name.removeprefix(prefix) for name in found]


def cpu_variant() -> str:
    """Return the name of the CPU library that was loaded; "" in a build for one CPU.

    Example:
        >>> "/" in cpu_variant()
        False
    """
    return _variant


def ggml_version() -> str:
    """Return ggml's version.

    Example:
        >>> ggml_version().count(".")
        2
    """
    return str(ffi.string(lib.ggml_version()).decode())


def patch_count() -> int:
    """Return the number of patches in this build's ggml.

    Example:
        >>> patch_count() >= 0
        True
    """
    return int(lib.PYGGML_PATCH_COUNT)


def _check_build() -> None:
    """Raise where the module, or a library whose functions it calls, is of another build."""
    try:
        other, stranger = lib.pyggml_other_build(), lib.pyggml_other_ggml()
    except AttributeError as error:  # the module is older than this file
        raise not_imported(ImportError(str(error))) from error
    if other != ffi.NULL:
        raise ImportError(
            "pyggml: ggml's libraries must be of the compiled module's build; got another build's"
            f" {ffi.string(other).decode()} in {_libraries}; {cure()}"
        )
    if stranger != ffi.NULL:
        raise ImportError(
            f"pyggml: ggml's functions must be those of {_libraries}; got those of"
            f" {os.fsdecode(ffi.string(stranger))}, which is in the global scope of symbols; import"
            " pyggml first, or load the other library without RTLD_GLOBAL and LD_PRELOAD"
        )


def _load_cpu() -> None:
    """Load the CPU's library from the package's own folder, and from nowhere else."""
    path = cpu_library(_libraries, _variant)  # without variants ggml's libraries are linked with it
    with capture_log():
        failure = lib.pyggml_load_cpu(os.fsencode(path))
    if failure != ffi.NULL:
        reason = ffi.string(failure).decode("utf-8", "replace")
        raise ImportError(
            "pyggml: the CPU's library must be the one that the package was built with; got"
            f" {path}: {reason}; {cure()}"
        )


def _forget_callbacks() -> None:
    """Unset the callbacks: after Python's end ggml must not call into it."""
    lib.ggml_log_set(ffi.NULL, ffi.NULL)
    lib.ggml_set_abort_callback(ffi.NULL)


_check_build()
lib.ggml_log_set(lib.pyggml_log, ffi.NULL)
lib.ggml_set_abort_callback(lib.pyggml_abort)
_load_cpu()
atexit.register(_forget_callbacks)
