# SPDX-License-Identifier: MIT
"""Contenders: each in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .contract import OK

_FOLDER = Path(__file__).parent.parent
_GRACE_S = 10.0


class Contender:
    """A process that holds one library and does what it is told.

    After a failure `status` says what happened, and `ask` gives nothing more.

    Args:
        peer: who.
        task: "step", "gemm" or "infer".
        threads: of the computation.
        name: to show; None is the peer.
        environment: added to the process's.
        python: the interpreter; None is this one.
        **order: what the process needs to begin.

    Attributes:
        status: "ok", "not installed", "not supported: …" or "failed: …".
        started: the answer to the first order.
    """

    def __init__(
        self,
        peer: str,
        task: str,
        threads: int,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        python: str | None = None,
        **order: Any,
    ) -> None:
        self.peer = peer
        self.name = name or peer
        # Lives as long as the process that writes it; close() closes it.
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        count = str(threads)
        limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        env = {**os.environ, **dict.fromkeys(limits, count), **(environment or {})}
        self._process = subprocess.Popen(
            [python or sys.executable, "-m", "harness.worker"],
            cwd=_FOLDER,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
        )
        self.status = OK
        self.started = self.ask(peer=peer, task=task, threads=threads, **order) or {}

    def ask(self, **order: Any) -> dict[str, Any] | None:
        """Give an order and wait for the answer; None when the contender is out."""
        if self.status != OK:
            return None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.status = f"failed: its process ended with {self._process.wait()}"
            return None
        answer: dict[str, Any] = json.loads(line)
        self.status = answer.pop("status")
        return answer if self.status == OK else None

    def said(self, lines: int = 20) -> str:
        """The end of what the process wrote for people."""
        self._log.seek(0)
        return "\n".join(self._log.read().splitlines()[-lines:])

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                self._process.kill()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


class Field:
    """All contenders of a benchmark; leaving the block ends their processes."""

    def __init__(self) -> None:
        self.contenders: list[Contender] = []

    def __enter__(self) -> Field:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for contender in self.contenders:
            contender.close()

    def add(self, *args: Any, **kwargs: Any) -> Contender:
        """Start a contender; the arguments are `Contender`'s."""
        contender = Contender(*args, **kwargs)
        self.contenders.append(contender)
        if contender.status.startswith("failed"):
            print(f"{contender.name}: {contender.said()}", file=sys.stderr)
        return contender


def interleave(
    contenders: Sequence[Contender], orders: Sequence[Mapping[str, Any]]
) -> list[list[dict[str, Any]]]:
    """Give every contender the first order, one after another, then the second, and so on.

    Args:
        contenders: who; those that are out, or fall out, are passed over.
        orders: one for each round.

    Returns:
        The answers of each contender.
    """
    answers: list[list[dict[str, Any]]] = [[] for _ in contenders]
    for order in orders:
        for own, contender in zip(answers, contenders, strict=True):
            answer = contender.ask(**order)
            if answer is not None:
                own.append(answer)
            elif contender.status.startswith("failed") and own:
                print(f"{contender.name}: {contender.said()}", file=sys.stderr)
    return answers
