# SPDX-License-Identifier: MIT
"""The client of the process in which chat templates run."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import FormatError

__all__ = ["TemplateFault", "View", "ask"]

_JINJA = (3, 1, 6)
_TIME_S = 10.0
# Real templates and conversations write far less.
_OUTPUT_CHARS = 1 << 24
_MEMORY_BYTES = 1 << 30
# As JSON writes the characters that frame spans and stand in for answers.
_FRAMES = ("\\ufdd0", "\\ufdd1", "\\ufdd2", "\\ufdd3")
_WORKER = Path(__file__).with_name("worker.py")


class TemplateFault(FormatError):
    """A template is wrong, or runs without an end, whatever the conversation is."""


class View(NamedTuple):
    """A part of a conversation to render.

    Attributes:
        upto: how many messages, from the first on.
        prompt: whether the beginning of an answer follows.
        changed: messages by number that stand in for the conversation's.
    """

    upto: int
    prompt: bool = False
    changed: Mapping[int, Mapping[str, Any]] = {}


class _Renderer:
    """A process that renders templates; one serves all of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._known: set[str] = set()

    def ask(self, key: str, source: str, given: str, views: Sequence[View]) -> list[dict[str, Any]]:
        """Return the answers to views of what JSON gives.

        Raises:
            TimeoutError: the template ran for too long.
            MemoryError: the process ended in another way.
        """
        with self._lock:
            process = self._started()
            request: dict[str, Any] = {"key": key, "views": views, "limit": _OUTPUT_CHARS}
            if key not in self._known:
                request["source"] = source
            line = f"{given[:-1]}, {json.dumps(request)[1:]}\n".encode()
            answer = b""
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                with suppress(BrokenPipeError):
                    process.stdin.write(line)
                    process.stdin.flush()
                answer = process.stdout.readline()
            finally:
                # Ctrl-C leaves an answer in the pipe: the next request must not get it.
                code = None if answer.endswith(b"\n") else self._stop()
            if code == -signal.SIGALRM:
                raise TimeoutError
            if code is not None:
                raise MemoryError(f"exit status {code}")
            self._known.add(key)
            found: list[dict[str, Any]] = json.loads(answer)
            return found

    def _started(self) -> subprocess.Popen[bytes]:
        """Return the process; start one where none runs."""
        # After a fork the pipe is the parent's.
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._known.clear()
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_WORKER), str(_MEMORY_BYTES), str(_TIME_S), *_folders()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._owner = os.getpid()
        return self._process

    def _stop(self) -> int:
        """End the process; return its exit status."""
        process, self._process = self._process, None
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        # One that its alarm ended has no answer, and ends before this signal comes.
        with suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
        process.kill()
        return process.wait()

    def close(self) -> None:
        """End the process, if it is this process's own."""
        if self._process is not None and self._owner == os.getpid():
            self._stop()


_RENDERER = _Renderer()
atexit.register(_RENDERER.close)


def _folders() -> list[str]:
    """The folders from which the process imports jinja2 and what jinja2 needs."""
    folders = []
    for name in ("jinja2", "markupsafe"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(
                f'ChatTemplate: templates need the package {name}; pip install "pyggml[cli]"'
            )
        folders.append(str(Path(spec.origin).parent.parent))
    found = tuple(int(part) for part in version("jinja2").split(".")[:3] if part.isdigit())
    if found < _JINJA:
        needed = ".".join(map(str, _JINJA))
        raise ImportError(
            f"ChatTemplate: jinja2 must be {needed} or newer, as templates can leave the sandbox of"
            f' older ones; got {version("jinja2")}; pip install "pyggml[cli]"'
        )
    return list(dict.fromkeys(folders))


def ask(
    key: str,
    source: str,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    views: Sequence[View],
) -> list[dict[str, Any]]:
    """Render views of a conversation.

    Args:
        key: stands for the source in later requests.
        source: the template.
        messages: the conversation.
        variables: the other variables.
        views: parts of the conversation.

    Returns:
        For each view `text` and `spans`, those of `{% generation %}`; or `error`, `line` and
        `fatal`: no conversation can be rendered.

    Raises:
        TypeError: a message or a variable is nothing that JSON has.
        FormatError: a message holds characters that are no text.
        ImportError: jinja2 is missing.
    """
    given = json.dumps({"messages": messages, "variables": variables})
    if "\\ufdd" in given and any(frame in given for frame in _FRAMES):
        raise FormatError("ChatTemplate: a message must hold text; got U+FDD0 to U+FDD3")
    try:
        answers = _RENDERER.ask(key, source, given, views)
    except TimeoutError:
        message = f"it runs for longer than {_TIME_S:g} seconds: does a loop of it never end?"
    except MemoryError as error:
        message = f"its process ended ({error})"
    else:
        return answers if len(answers) == len(views) else answers[:1] * len(views)
    return [{"error": message, "line": None, "fatal": True}] * len(views)
