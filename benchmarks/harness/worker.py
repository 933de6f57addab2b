# SPDX-License-Identifier: MIT
"""The process of one contender: reads orders as lines of JSON, answers in the same manner."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from . import rss
from .contract import LIBRARIES, NOT_INSTALLED, OK, NotSupportedError, module
from .model import Spec

Answer = dict[str, Any]


class Trainer:
    """Does steps on order and reports each one's seconds and loss."""

    def __init__(self, peer: str, order: dict[str, Any]) -> None:
        spec = Spec(**order["spec"])
        if peer == "jax":
            limit_cores(spec.threads)  # XLA has no other reliable way to be told
        implementation = importlib.import_module(module(peer, "step"))
        self.imported_mib = rss.now_mib()
        self.step: Any = implementation.Step(spec)

    def ready(self) -> Answer:
        planned = self.step.planned() if hasattr(self.step, "planned") else {}
        return {
            "import_mib": self.imported_mib,
            "model_mib": rss.now_mib(),
            "planned": planned,
            "took": getattr(self.step, "took", {}),
        }

    def run(self, order: dict[str, Any]) -> Answer:
        seconds, cpu, losses, outside = [], [], [], []
        inside = getattr(self.step, "inside", None)
        for _ in range(order["steps"]):
            entered = inside() if inside else 0.0
            cpu_began, began = time.process_time(), time.perf_counter()
            losses.append(self.step())
            seconds.append(time.perf_counter() - began)
            cpu.append(time.process_time() - cpu_began)
            if inside:
                outside.append(1 - (inside() - entered) / seconds[-1])
        answer = {"seconds": seconds, "cpu": cpu, "losses": losses, "outside": outside}
        return {**answer, "rss_mib": rss.peak_mib()}

    def profile(self, order: dict[str, Any]) -> Answer:
        if not hasattr(self.step, "profile"):
            raise NotSupportedError("only pyggml is profiled")
        return {"table": self.step.profile()}


class Tuner(Trainer):
    """Does steps of a fine-tuning on order."""

    def __init__(self, peer: str, order: dict[str, Any]) -> None:
        implementation = importlib.import_module(module(peer, "tune"))
        self.imported_mib = rss.now_mib()
        self.step: Any = implementation.Step(order)


class Multiplier:
    """Times products on order."""

    def __init__(self, peer: str, order: dict[str, Any]) -> None:
        from .products import Operands

        self._operands = Operands
        self._product = importlib.import_module(module(peer, "gemm")).product
        importlib.import_module(module(peer, "gemm")).set_threads(order["threads"])
        self._call: Callable[[], Any] = lambda: None

    def ready(self) -> Answer:
        return {}

    def prepare(self, order: dict[str, Any]) -> Answer:
        operands = self._operands(**order["case"])
        self._call, read = self._product(operands)
        self._call()
        return {"error": operands.error(read())}

    def run(self, order: dict[str, Any]) -> Answer:
        seconds: list[float] = []
        began = time.perf_counter()
        while len(seconds) < 3 or time.perf_counter() - began < order["seconds"]:
            start = time.perf_counter()
            self._call()
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds}


class Reader:
    """Loads a file on order, and reads and continues a prompt."""

    def __init__(self, peer: str, order: dict[str, Any]) -> None:
        self._make = importlib.import_module(module(peer, "infer")).Model
        self._order = order
        self._model: Any = None

    def ready(self) -> Answer:
        return {"import_mib": rss.now_mib()}

    def load(self, order: dict[str, Any]) -> Answer:
        """Load the file, and read and add a token, which records and plans."""
        self._model, began = None, time.perf_counter()
        self._model = self._make(self._order["path"], self._order["context"], self._order)
        loaded = time.perf_counter() - began
        self._model.read([1])
        return {"seconds": loaded, "first": time.perf_counter() - began, **self._memory()}

    def prompt(self, order: dict[str, Any]) -> Answer:
        """Read a prompt into the empty cache."""
        ids = [(17 * i) % order["vocab"] for i in range(order["tokens"])]
        self._model.reset()
        return self._timed(lambda: self._model.read(ids), len(ids))

    def decode(self, order: dict[str, Any]) -> Answer:
        """Read tokens one by one, each after the logits of the one before."""
        self._model.reset()
        if order["depth"]:
            self._model.read([(17 * i) % order["vocab"] for i in range(order["depth"])])
        count = order["tokens"]
        return self._timed(
            lambda: [self._model.read([i % order["vocab"]]) for i in range(count)], count
        )

    def logits(self, order: dict[str, Any]) -> Answer:
        """Tell some logits, for a comparison."""
        self._model.reset()
        return {"logits": [float(x) for x in self._model.read(order["ids"])[:64]]}

    def _timed(self, work: Callable[[], Any], tokens: int) -> Answer:
        cpu_began, began = time.process_time(), time.perf_counter()
        work()
        took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        return {"seconds": took / tokens, "cpu": cpu / tokens, **self._memory()}

    def _memory(self) -> Answer:
        return {"rss_mib": rss.peak_mib()}


def limit_cores(count: int) -> None:
    """Let this process use that many of its cores, where the system can do it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def answer_to(order: Callable[[], Answer]) -> Answer:
    """Carry out an order; what goes wrong becomes a status."""
    try:
        return {"status": OK, **order()}
    except NotSupportedError as error:
        return {"status": f"not supported: {error}"}
    except Exception as error:  # noqa: BLE001 - a peer's failure of any kind is its result
        traceback.print_exc()
        text = str(error).strip()
        line = text.splitlines()[0][:200] if text else "no message"
        return {"status": f"failed: {type(error).__name__}: {line}"}


def main() -> None:
    """Serve orders until the owner closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer

    def reply(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    first = json.loads(sys.stdin.readline())
    peer = first["peer"]
    try:
        importlib.import_module(LIBRARIES[peer])
    except ModuleNotFoundError as error:
        if error.name != LIBRARIES[peer]:
            raise
        reply({"status": NOT_INSTALLED})
        return
    contender: Any = None

    def start() -> Answer:
        nonlocal contender
        contender = {"step": Trainer, "tune": Tuner, "gemm": Multiplier, "infer": Reader}[
            first["task"]
        ](peer, first)
        answer: Answer = contender.ready()
        return answer

    reply(answer_to(start))
    if contender is None:
        return
    for line in sys.stdin:
        order = json.loads(line)
        reply(answer_to(lambda order=order: getattr(contender, order["do"])(order)))


if __name__ == "__main__":
    main()
