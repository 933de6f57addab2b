# SPDX-License-Identifier: MIT
"""What each small preset takes to train: parameters, planned memory, tokens or images per second.

Prints the rows of the table in docs/models.md. Time is that of the CPU, added over all threads, so
that others on the same machine change it little; the speed is that of the quickest step.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

import pyggml as pg
from pyggml.data import Batch
from pyggml.models import MODELS, build
from pyggml.optim import AdamW
from pyggml.train import TrainStep

# Architecture, preset, fields to replace, rows of a batch, tokens of a row or side of an image.
ROWS: list[tuple[str, str, dict[str, Any], int, int]] = [
    ("gpt2", "tiny", {"vocab_size": 2048}, 8, 64),
    ("gpt2", "small", {"vocab_size": 2048}, 8, 128),
    ("llama", "tiny", {"vocab_size": 2048}, 8, 128),
    ("llama", "tiny-moe", {"vocab_size": 2048}, 8, 128),
    ("llama", "small", {"vocab_size": 2048}, 8, 128),
    ("llama", "stories15m", {}, 4, 128),
    ("llm", "tiny", {"vocab_size": 2048}, 8, 64),
    ("llm", "default", {"vocab_size": 2048}, 4, 128),
    ("bert", "tiny", {"vocab_size": 2048}, 8, 64),
    ("bert-mlm", "bert-tiny", {}, 8, 64),
    ("bert-classifier", "bert-mini", {}, 8, 64),
    ("t5", "tiny", {"vocab_size": 2048}, 8, 64),
    ("mlp", "mnist", {}, 64, 28),
    ("cnn", "digits", {}, 64, 8),
    ("cnn", "mnist", {}, 64, 28),
    ("resnet", "tiny", {}, 32, 32),
    ("resnet", "resnet-8", {}, 32, 32),
    ("resnet", "resnet-20", {}, 32, 32),
]


def batch_of(model: Any, rows: int, extent: int) -> tuple[Any, int]:
    """Inputs and targets that fit, and how many tokens or images they are."""
    rng, config = np.random.default_rng(0), model.config
    vocab_size = getattr(config, "vocab_size", None)
    if vocab_size is None:
        channels = getattr(config, "channels", 1)
        x = rng.random((rows, channels, extent, extent), np.float32)
        return (x, rng.integers(0, config.classes, rows).astype(np.int32)), rows
    ids = rng.integers(0, vocab_size, (rows, extent)).astype(np.int32)
    if model.arch == "bert-classifier":
        y = rng.integers(0, config.classes, rows).astype(np.int32)
        return Batch(ids, y, attention_mask=np.ones_like(ids)), ids.size
    if model.arch == "bert":
        y = rng.standard_normal((rows, config.n_embd)).astype(np.float32)
        return Batch(ids, y, attention_mask=np.ones_like(ids)), ids.size
    return (ids, ids.copy()), ids.size


def embedding_loss(model: Any, x: Any, y: Any, attention_mask: Any) -> Any:
    """A loss for the bare BERT: how far its embeddings are from a direction each."""
    return (model.embed(x, attention_mask) * y).sum()


def measure(
    arch: str, preset: str, fields: dict[str, Any], rows: int, extent: int, seconds: float
) -> list[str]:
    """Train for some time; return a row of the table."""
    pg.seed(0)
    model = build(arch, preset, **fields)
    optimizer = AdamW(model.parameters(), lr=1e-4)
    step = TrainStep(model, optimizer, loss=embedding_loss if arch == "bert" else None)
    batch, units = batch_of(model, rows, extent)
    step([batch])
    quickest, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.process_time()
        step([batch])
        quickest = min(quickest, time.process_time() - began)
    weights = sum(p.nbytes for p in model.parameters())
    memory = weights + optimizer.grad_nbytes + optimizer.nbytes + step.activation_bytes
    text = hasattr(model.config, "vocab_size")
    shape = f"{rows} × {extent}" if text else f"{rows} of {extent} × {extent}"
    unit = "tokens" if text else "images"
    return [
        f"`{arch}`",
        f"`{preset}`",
        f"{model.num_parameters():,}",
        shape,
        f"{memory / 2**20:,.1f}",
        f"{units / quickest:,.0f} {unit}",
    ]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each model (3)")
    parser.add_argument("--threads", type=int, default=1, help="for computing (1)")
    parser.add_argument("--only", choices=sorted(MODELS), help="one architecture")
    options = parser.parse_args()
    if not options.seconds > 0:
        parser.error(f"--seconds must be above 0; got {options.seconds}")
    pg.set_threads(options.threads)
    print("| model | preset | parameters | batch | MiB to train | a CPU-second |")
    print("|---|---|---|---|---|---|")
    for arch, *row in ROWS:
        if options.only in (None, arch):
            cells = measure(arch, *row, options.seconds)
            print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
