# SPDX-License-Identifier: MIT
"""A training that ranks run: `python training.py CASE FOLDER [STOP]`; rank 0 prints its results.

After the name of a case, `+after` exchanges nothing while a graph runs, `+read` lets rank 0 read
the weights after each step, `+bad` makes them infinite, `+wide` gives each of them many pages, and
`+accumulate`, `+masks`, `+recompute` and `+local` are as the cases; `+nccl=LIBRARY` sums gradients
where they lie, by a library in NCCL's place.

A folder that holds a checkpoint is resumed; STOP ends the run after so many steps.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import pyggml as pg
from pyggml import distributed, nn
from pyggml.data import IGNORE_INDEX, Batch, TokenDataset
from pyggml.distributed import nccl
from pyggml.models import GPT2, GPT2Config
from pyggml.nn import apply_lora
from pyggml.optim import optimizers
from pyggml.train import Callback, Trainer
from pyggml.train.exchange import buckets, exchange

STEPS, ROWS, LENGTH, VOCABULARY = 50, 8, 16, 31


class Masked(TokenDataset):
    """Windows of which every third has few targets, so that ranks have unequal counts of them."""

    def batch(self, items: np.ndarray) -> Batch:
        """Ignore most targets of some rows."""
        x, y = super().batch(items)
        y = y.copy()
        y[items % 3 == 0, 1:] = IGNORE_INDEX
        y[items % 7 == 0] = IGNORE_INDEX
        return Batch(x, y)


class Losses(Callback):
    """Keeps the losses and the norms, and hashes of the weights if it is to read them."""

    def __init__(self, reads: bool) -> None:
        self.reads = reads
        self.seen: list[str] = []
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.tokens = 0

    def on_step(self, trainer: Any, metrics: Any) -> None:
        """Keep them."""
        self.losses.append(metrics.loss)
        self.norms.append(metrics.grad_norm)
        self.tokens = metrics.tokens
        if self.reads:
            self.seen.append(digest(trainer.model.state_dict()))


def make(case: str, folder: Path | None, steps: int = STEPS, **more: Any) -> tuple[Trainer, Losses]:
    """Return the trainer of a case, on any number of ranks."""
    rank = distributed.init().rank
    case, *flags = case.split("+")
    libraries = tuple(flag[5:] for flag in flags if flag.startswith("nccl="))
    if libraries:
        nccl.NCCL = nccl.RUNTIME = ("nothing", libraries)
        gpu: Any = SimpleNamespace(name="cuda:0")
        exchange.device_sums = lambda group, device: nccl.device_sums(group, gpu)
    pg.set_threads(1)
    buckets.BUCKET_BYTES, buckets.SMALL_BYTES = 2048, 512  # several, as larger models have
    pg.seed(1 + rank)  # the start is that of rank 0
    # Parameters of many pages, which can be dropped, or few numbers.
    width = 64 if case in ("bf16", "zero3") or "wide" in flags else 16
    config = GPT2Config(vocab_size=VOCABULARY, context=LENGTH, n_layer=1, n_head=2, n_embd=width)
    model: nn.Module = GPT2(config)
    ids = np.random.default_rng(0).integers(1, 4, 3000).cumsum() % VOCABULARY
    dataset = (Masked if {"masks", "accumulate"} & {case, *flags} else TokenDataset)(ids, LENGTH)
    losses = Losses("read" in flags)
    options: dict[str, Any] = {"batch_size": ROWS, "clip": 0.0, "eval_every": 25}
    if folder is not None:
        options["save_every"] = 10
    if case == "clip":
        options["clip"] = 0.1
    if case == "clip_value":
        options["clip_value"] = 0.001
    if "accumulate" in (case, *flags):
        options["accumulate"] = 3
    if "local" in (case, *flags):
        options |= {"sync_every": 10, "eval_every": 20}
    if case in ("bf16", "f16"):
        options["precision"] = case
    if case == "recompute":
        options |= {"checkpointing": "all", "zero": 2}
    if "recompute" in flags:
        options["checkpointing"] = "all"
    if case.startswith("zero"):
        options["zero"] = int(case[4])
        options["clip"] = 0.5
    if case.startswith(("wire", "feedback")):
        options |= {"reduce_dtype": "bf16", "error_feedback": case.startswith("feedback")}
    if case == "uneven":
        options["batch_size"] = 7
    save = True
    if case == "lora":
        pg.seed(1)  # frozen weights are not sent
        model = GPT2(config)
        apply_lora(model, 2, targets=("c_attn", "c_fc"))
        save = False
    kind = optimizers()[case.partition("-")[2] or "adamw"]
    optimizer = kind(model, lr=1e20 if "bad" in flags else 5e-3)
    trainer = Trainer(
        model,
        dataset,
        ids[:500],
        optimizer,
        steps=steps,
        checkpoint_dir=folder,
        callbacks=[losses],
        schedule="constant",
        metrics=("accuracy", "f1"),
        save_frozen=save,
        **{**options, **more},
    )
    if trainer.train_step.exchange is not None:
        trainer.train_step.exchange.overlaps = "after" not in flags
    return trainer, losses


def digest(state: dict[str, Any]) -> str:
    """Return a hash of arrays by name."""
    found = hashlib.sha256()
    for name in sorted(state):
        found.update(np.ascontiguousarray(state[name]).tobytes())
    return found.hexdigest()


def main() -> None:
    """Train a case and print what came of it."""
    case, folder = sys.argv[1], None if sys.argv[2] == "-" else Path(sys.argv[2])
    trainer, losses = make(case, folder)
    if len(sys.argv) > 3:
        trainer.total_steps = int(sys.argv[3])
    if folder is not None:
        trainer.resume()
        (folder.parent / f"process-{distributed.rank()}").write_text(str(os.getpid()))
    result = trainer.fit()
    digests = distributed.all_gather_object(digest(trainer.model.state_dict()))

    def digests_of_state() -> tuple[str, str]:
        state = trainer.shards.state_dict()
        wire = state.pop("wire", {})
        return digest(state), digest(wire)

    state, wire = trainer.shards.lend(digests_of_state)
    own = trainer.train_step.exchange
    assert result.validation is not None
    if distributed.rank() == 0:
        found = {
            "losses": losses.losses,
            "norms": losses.norms,
            "tokens": losses.tokens,
            "validation": result.validation.loss,
            "metrics": result.validation.metrics,
            "digests": digests,
            "early": own and (own.early, len(own.buckets)),
            "sizes": (trainer.optimizer.grad_nbytes, trainer.optimizer.nbytes),
            "state": state,
            "wire": wire,
            "seen": losses.seen,
            "device_sums": 0 if own is None else own.device_sums,
            "late": own and own.delivery.arrivals and own.delivery.arrivals.late,
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
