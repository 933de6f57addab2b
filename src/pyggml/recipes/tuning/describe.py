# SPDX-License-Identifier: MIT
"""A fine-tuning in words, before it starts."""

from __future__ import annotations

from typing import Any

from ...nn.lora import adapters_of
from ...train.memory import format_bytes
from ..describe import recomputes

__all__ = ["describe"]


def describe(run: Any) -> list[tuple[str, str]]:
    """Return base, data, adapters, training, memory and folder of a run in words.

    Args:
        run: a `FinetuneRun` that was prepared.

    Returns:
        (name, text) pairs in the order of reading.
    """
    return [
        ("base", f"{run.config.model.model}: {run.model.arch}, {run.base_parameters:,} parameters"),
        ("data", _data(run)),
        ("trained", _trained(run)),
        ("training", _training(run)),
        ("device", run.memory.device),
        ("memory", "; ".join(f"{name} {format_bytes(size)}" for name, size in run.memory.rows())),
        ("results", str(run.artifact.path)),
    ]


def _data(run: Any) -> str:
    """Return the examples, their tokens and rows."""
    examples, documents = run.examples, run.examples.documents
    held = 0 if run.val_examples is None else len(run.val_examples)
    counted = documents.counted
    trained = documents.ids.size if counted is None else int(counted.sum())
    names = ", ".join(map(str, run.config.data.data))
    rows = getattr(run.trainer.loader.dataset, "fill", None)
    fill = "" if rows is None else f", {rows:.1%} of the rows filled"
    return (
        f"{names}: {examples.told}; {len(documents) - held:,} examples for training, {held:,} for "
        f"validation; {documents.ids.size:,} tokens, {trained:,} of them trained{fill}"
    )


def _trained(run: Any) -> str:
    """Return the part of the model that is trained."""
    count = run.model.num_parameters(trainable_only=True)
    share = f"{count:,} parameters ({count / run.base_parameters:.2%})"
    layers = adapters_of(run.model)
    if not layers:
        return share
    ranks = sorted({layer.rank for layer in layers.values()})
    kinds = sorted({path.rpartition(".")[2] for path in layers})
    return (
        f"LoRA of rank {', '.join(map(str, ranks))} on {len(layers)} layers "
        f"({', '.join(kinds)}): {share}"
    )


def _training(run: Any) -> str:
    """Return steps, rows, optimizer and rates."""
    options, total = run.trainer.options, run.trainer.total_steps
    rows = options.value("batch_size") * options.accumulate
    size = f"{rows} × {run.seq_len}"
    if not run.config.data.packing:
        size = f"up to {rows * run.seq_len:,}"
    epochs = total * options.accumulate / max(1, len(run.trainer.loader))
    return (
        f"{total:,} steps of {size} tokens ({epochs:.1f} epochs); "
        f"{type(run.trainer.optimizer).__name__}, learning rate {run.config.lr:.2g}, seed "
        f"{options.seed}{recomputes(run.model)}"
    )
