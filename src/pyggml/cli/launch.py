# SPDX-License-Identifier: MIT
"""`pyggml launch`: ranks by `mpiexec`, started again from the last checkpoint when a job fails."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ..distributed.pulse import MARK
from .errors import EXIT_FAILED, EXIT_USAGE, friendly_errors
from .terminal import say

__all__ = ["launch"]

_HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
_STOPS = (signal.SIGINT, signal.SIGTERM, *_HANGUP)
# Ranks that were asked to end have so long to write a checkpoint: Open MPI's own second is short.
# And it takes minutes to find that a host is cut off, or was never there.
_ENVIRONMENT = {
    "PRTE_MCA_odls_base_sigkill_timeout": "60",
    "PRTE_MCA_oob_tcp_keepalive_time": "30",
    "PRTE_MCA_oob_tcp_keepalive_intvl": "5",
    "PRTE_MCA_oob_tcp_keepalive_probes": "3",
    "PRTE_MCA_plm_ssh_args": "-oConnectTimeout=20",
}
# A failing job ends in this time, or mpiexec is killed.
_PATIENCE_S, _LOOK_S = 20.0, 0.2


def launch(
    command: Annotated[
        list[str],
        typer.Argument(help="What the ranks run: a command of pyggml, or any other program."),
    ],
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, help="Number of ranks.")] = 2,
    restarts: Annotated[
        int, typer.Option(min=0, help="How often a job that failed is started again.")
    ] = 0,
    min_ranks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Start again with one rank fewer each time, but not fewer than this.",
            show_default="as many ranks as before",
        ),
    ] = None,
    mpiexec: Annotated[
        str,
        typer.Option(
            help="The launcher with its options, such as `mpiexec --hostfile hosts`.",
            show_default="that of PATH, or of this Python",
        ),
    ] = "",
) -> None:
    """Run a training on several ranks, and start it again from its last checkpoint when it fails.

    pyggml launch -n 4 --restarts 3 train-llm --text notes/

    train-llm, finetune and train-image continue by --resume. Another program, such as
    `python train.py`, is run again as it is and should call `Trainer.resume`. A job that a signal
    ended, or that ended with 2 (wrong options), is not started again.
    """
    with friendly_errors(trains=True):
        starter = _starter(mpiexec)
        given, count = list(command), ranks
        for start in range(restarts + 1):
            code, stopped = _run([*starter, "-n", str(count), *_program(given)])
            if stopped:
                say(f"interrupted: {signal.Signals(stopped).name} ended the job", error=True)
            if stopped or code in (0, EXIT_USAGE, *(128 + each for each in _STOPS)):
                raise typer.Exit(128 + stopped if stopped else code)
            if start == restarts:
                raise typer.Exit(code)
            count = count if min_ranks is None else max(min(min_ranks, ranks), count - 1)
            given = _again(list(command))
            note = f"launch: the job ended with {code}; restart {start + 1} of {restarts}"
            say(f"{note} with {count} rank{'s' if count > 1 else ''}", error=True)


def _starter(mpiexec: str) -> list[str]:
    """Return the command that starts ranks."""
    from ..errors import DistributedError

    given = shlex.split(mpiexec) or ["mpiexec"]
    found = shutil.which(given[0]) or shutil.which(given[0], path=Path(sys.executable).parent)
    if found is None:
        raise DistributedError(
            f'launch: {given[0]} must be there; it was not found: pip install "pyggml[mpi]", or '
            "load your cluster's module of MPI"
        )
    return [found, *given[1:]]


def _trainings() -> dict[str, Any]:
    """Return the configurations of the commands that can resume."""
    from ..recipes import FinetuneConfig, ImageConfig, LLMConfig

    return {"train-llm": LLMConfig, "finetune": FinetuneConfig, "train-image": ImageConfig}


def _program(command: list[str]) -> list[str]:
    """Return the program of a command; those of pyggml run in this Python."""
    return [sys.executable, "-m", "pyggml", *command] if command[0] in _trainings() else command


def _again(command: list[str]) -> list[str]:
    """Return the command that continues a run, or begins it where nothing of it was written."""
    from ..recipes.artifact import ArtifactDir

    kind = _trainings().get(command[0])
    if kind is None:
        return command
    kept = [each for each in command if each not in ("--overwrite", "--resume")]
    return [*kept, "--resume"] if ArtifactDir(_folder(command, kind)).holds_run else command


def _folder(command: list[str], kind: Any) -> str:
    """Return the folder of a command's run."""
    from ..recipes import read_config
    from ..recipes.options import OutputOptions

    folder = None
    for flag, value in zip(command, [*command[1:], ""], strict=True):
        name, _, joined = flag.partition("=")
        if name == "--artifact-dir":
            return joined or value
        if name == "--config":
            folder = read_config(joined or value, kind).get("artifact_dir")
    return str(folder or kind.DEFAULTS.get("artifact_dir") or OutputOptions().artifact_dir)


def _run(command: list[str]) -> tuple[int, int]:
    """Run a job, and return its exit code and the signal that was to end it, or 0."""
    stopped, hung_up = 0, False

    def stop(signum: int, frame: Any) -> None:
        nonlocal stopped, hung_up
        stopped = signum
        # mpiexec hands SIGTERM on. A second one would end the ranks at once, and a terminal that
        # closes may send SIGHUP twice.
        if signum not in _HANGUP:
            job.send_signal(signum)
        elif not hung_up:
            hung_up = True
            job.send_signal(signal.SIGTERM)

    folder = tempfile.TemporaryDirectory(prefix="pyggml-")
    mark = Path(folder.name) / "failed"
    variables = {**_ENVIRONMENT, **os.environ, MARK: str(mark)}
    before = {signum: signal.getsignal(signum) for signum in _STOPS}
    for signum in _HANGUP:
        if before[signum] == signal.SIG_IGN:  # by nohup
            del before[signum]
    # In a session of its own the job hears of a Ctrl-C once, by this process.
    job = subprocess.Popen(command, env=variables, start_new_session=True)
    try:
        for signum in before:
            signal.signal(signum, stop)
        code = _wait(job, mark)
    finally:
        folder.cleanup()
        for signum, handler in before.items():
            signal.signal(signum, handler)
    return (code if code >= 0 else EXIT_FAILED), stopped


def _wait(job: subprocess.Popen[bytes], mark: Path) -> int:
    """Return the exit code of a job; one whose ranks said that it fails is no success."""
    until = math.inf
    while True:
        with suppress(subprocess.TimeoutExpired):
            code = job.wait(_LOOK_S)
            return EXIT_FAILED if mark.exists() and code == 0 else code
        if mark.exists():
            until = min(until, time.monotonic() + _PATIENCE_S)
        if time.monotonic() > until:
            os.killpg(job.pid, signal.SIGKILL)
