# SPDX-License-Identifier: MIT
"""Runs a scenario again and again, with the n-th call of a kind failing, for many n.

Started with the library of faults.cpp preloaded: `python -m tests.crashes.machine LIBRARY JOBS
FOLDER`, with jobs such as `[["train", "write", 28, 1, 37]]`: scenario, kind of call, error number,
first n, step between the n. Each n has a forked process of its own.
"""

from __future__ import annotations

import collections
import ctypes
import hashlib
import importlib
import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import pyggml as pg
from pyggml.models import load
from pyggml.train import Callback, CheckpointError, latest_checkpoint, load_checkpoint

from ..train.tiny import make_model, make_trainer

KINDS = {
    "malloc": 1, "mmap": 2, "write": 4, "fsync": 8, "rename": 16, "thread": 32, "open": 64,
    "read": 128, "close": 256, "mkdir": 512, "unlink": 1024, "link": 2048,
}  # fmt: skip
# The package's `device` is the function.
device_module = importlib.import_module("pyggml.backend.device")
LIMIT_S = 120.0
Job = tuple[str, str, int, int, int]
# What a failing call may end in; anything else is a bug.
MEMORY = (MemoryError,)
FILES = (OSError, MemoryError, CheckpointError, pg.FormatError)
STEPS = 3


class Wrong(AssertionError):
    """The outcome is neither right nor an exception that fits."""


def digest(arrays: Mapping[str, Any]) -> str:
    """Return a hash of named arrays."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()[:16]


class Scenario:
    """What is done while a call fails, and what must be true after it."""

    allowed: tuple[type[BaseException], ...] = FILES

    def __init__(self, folder: Path):
        self.folder = folder

    def prepare(self) -> None:
        """Do what comes before, once, in a process of its own."""

    def run(self) -> str:
        """Do it; return a hash of what came out."""
        raise NotImplementedError

    def check(self, reference: str) -> None:
        """Raise if the files are not those of before or after; nothing fails any more."""


class Steps(Callback):
    """The step that is at work."""

    now = 0

    def on_step(self, trainer: Any, metrics: Any) -> None:
        self.now = metrics.step


class Train(Scenario):
    """A training that saves after each step, from nothing."""

    prefetch = 0

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.steps = Steps()

    def _fit(self, resume: bool = False) -> str:
        trainer = make_trainer(
            self.folder, [self.steps], steps=STEPS, eval_every=2, save_every=1, keep=2,
            prefetch=self.prefetch,
        )  # fmt: skip
        if resume:
            trainer.resume()
        trainer.fit()
        return digest(trainer.model.state_dict())

    def run(self) -> str:
        return self._fit()

    def check(self, reference: str) -> None:
        latest = latest_checkpoint(self.folder / "checkpoints")
        if latest is None:
            if self.steps.now > 1:
                raise Wrong(f"step {self.steps.now}, and no checkpoint")
            return
        found = load_checkpoint(latest)
        if found.state.step < self.steps.now - 1:
            raise Wrong(f"step {self.steps.now}, and the last checkpoint is of {found.state.step}")
        if self._fit(resume=True) != reference:
            raise Wrong(f"resumed from step {found.state.step} to other weights")


class Threads(Train):
    """The training with threads of ggml's and one that prepares batches."""

    prefetch = 2
    allowed = ()  # a thread that cannot be started costs time alone


class Save(Scenario):
    """A model written over another one."""

    def prepare(self) -> None:
        make_model(seed=1).save(self.folder / "model.gguf")

    def run(self) -> str:
        model = make_model()
        model.save(self.folder / "model.gguf")
        return digest(model.state_dict())

    def check(self, reference: str) -> None:
        loaded, _ = load(self.folder / "model.gguf")
        known = {reference, digest(make_model(seed=1).state_dict())}
        if digest(loaded.state_dict()) not in known:
            raise Wrong("the file is neither the old one nor the new one")
        left = [path.name for path in self.folder.iterdir() if path.name != "model.gguf"]
        if left:
            raise Wrong(f"left behind: {left}")


class Load(Scenario):
    """A model and a checkpoint that are read, and a product with the weights."""

    allowed = MEMORY

    def prepare(self) -> None:
        make_model(seed=1).save(self.folder / "model.gguf")
        make_trainer(self.folder, steps=1, prefetch=0).fit()

    def run(self) -> str:
        model, _ = load(self.folder / "model.gguf")
        latest = latest_checkpoint(self.folder / "checkpoints")
        assert latest is not None
        found = load_checkpoint(latest)
        loss = model(pg.tensor(np.zeros((1, 8), np.int32))).sum().item()
        return digest(model.state_dict()) + digest(found.model) + str(loss)

    def check(self, reference: str) -> None:
        if self.run() != reference:
            raise Wrong("loaded again, something else came")


class Large(Scenario):
    """Tensors large enough to be mapped, and a gradient."""

    allowed = MEMORY

    def run(self) -> str:
        x = pg.zeros((1025, 1024))
        x.requires_grad = True
        (x + pg.ones((1024,))).sum().backward()
        assert x.grad is not None
        return digest({"grad": x.grad.numpy()})


class Ops(Scenario):
    """An op that allocates while it computes, on two threads, and tables of quantised types."""

    allowed = MEMORY

    def run(self) -> str:
        device_module._forked = False
        pg.set_threads(2)
        x = pg.tensor(np.ones((1, 4, 6, 5), np.float32), requires_grad=True)
        pg.ops.upscale(x, 2, "bilinear").sum().backward()
        assert x.grad is not None
        quantised = pg.tensor(np.linspace(-1, 1, 512, dtype=np.float32), dtype="iq3_xxs")
        return digest({"grad": x.grad.numpy(), "quantised": quantised.numpy()})


SCENARIOS = {
    "train": Train, "threads": Threads, "save": Save, "load": Load, "large": Large, "ops": Ops,
}  # fmt: skip


def _attempt(scenario: Scenario, faults: Any, arm: tuple[int, int, int], reference: str) -> str:
    """Run the scenario with a failing call; return what came of it."""
    warnings.simplefilter("ignore")
    if isinstance(scenario, Threads):
        device_module._forked = False
        pg.set_threads(3)
    faults.faults_arm(*arm, os.fsencode(scenario.folder))
    try:
        came: str | BaseException = scenario.run()
    except Exception as error:  # noqa: BLE001
        came = error
    finally:
        calls = faults.faults_disarm()
    if arm[1] == 0:
        return f"{calls} {came}"
    if isinstance(came, BaseException):
        if not isinstance(came, scenario.allowed):
            raise Wrong("".join(traceback.format_exception(came)))
        outcome = type(came).__name__
    elif came != reference:
        raise Wrong("ended well, with another result")
    else:
        outcome = "right" if calls >= arm[1] else "right, not reached"
    came = ""
    scenario.check(reference)
    return outcome


def forked(work: Callable[[], str]) -> str:
    """Return what a function says in a process of its own; how that ended, where it did not."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException:  # noqa: BLE001
            said = "WRONG " + traceback.format_exc()[-1500:]
        os.write(writer, said.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    answer, end = b"", time.monotonic() + LIMIT_S
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            answer = b"WRONG hang"
            break
        part = os.read(reader, 65536)
        if not part:
            break
        answer += part
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and answer != b"WRONG hang":
        return f"WRONG signal {os.WTERMSIG(status)}"
    return answer.decode() or f"WRONG exit {os.WEXITSTATUS(status)}"


def attempts(faults: Any, job: Job, folder: Path) -> dict[str, Any]:
    """Try the n of a job; return how many calls there are, the outcomes, and what was wrong."""
    name, kind, error, first, step = job
    make = SCENARIOS[name]
    origin = folder / "origin"
    origin.mkdir(parents=True)
    said = forked(lambda: str(make(origin).prepare()))
    if said != "None":
        raise RuntimeError(said)

    def attempt(n: int, reference: str) -> str:
        place = folder / f"n-{n}"
        shutil.copytree(origin, place)
        scenario = make(place)
        if kind in ("malloc", "mmap"):
            scenario.allowed = MEMORY
        elif kind != "thread":
            scenario.allowed = FILES
        try:
            arm = (KINDS[kind], n, error)
            return forked(lambda: _attempt(scenario, faults, arm, reference))
        finally:
            shutil.rmtree(place)

    counted = attempt(0, "").split()
    if len(counted) != 2:
        raise RuntimeError(" ".join(counted))
    calls, reference = int(counted[0]), counted[1]
    outcomes: collections.Counter[str] = collections.Counter()
    wrong: dict[int, str] = {}
    for n in range(first, calls + 1, step):
        said = attempt(n, reference)
        if said.startswith("WRONG"):
            wrong[n] = said
            outcomes["wrong"] += 1
        else:
            outcomes[said] += 1
    return {"job": job, "calls": calls, "outcomes": outcomes, "wrong": wrong}


def main(library: str, jobs: str, folder: str) -> None:
    """Print what came of each job, one a line, in JSON."""
    faults = ctypes.CDLL(library)
    faults.faults_arm.argtypes = [
        ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_char_p,
    ]  # fmt: skip
    faults.faults_disarm.restype = ctypes.c_long
    for number, job in enumerate(json.loads(jobs)):
        print(json.dumps(attempts(faults, job, Path(folder, str(number)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
