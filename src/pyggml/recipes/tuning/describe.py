# SPDX-License-Identifier: MIT
"""A fine-tuning in words, before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import amount, reason
from ...nn.lora import adapters_of
from ...train.memory import format_bytes
from ..describe import recomputes

__all__ = ["amounts", "describe", "left_out"]


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
        *([("method", method)] if (method := run.examples.method(run.objective)) else []),
        ("trained", _trained(run)),
        ("training", _training(run)),
        ("device", run.memory.device),
        ("memory", "; ".join(f"{name} {format_bytes(size)}" for name, size in run.memory.rows())),
        ("results", str(run.artifact.path)),
    ]


def _data(run: Any) -> str:
    """Return the chats, their tokens and rows."""
    examples = run.examples
    held = examples.validation
    fill = getattr(run.trainer.loader.dataset, "fill", None)
    rows = "" if fill is None else f"; {fill:.1%} of the rows filled"
    template = "" if examples.template is None else f"; template {examples.template.name}"
    validation = "" if held is None else f"; for validation {held.counts.summary()}"
    return (
        f"{examples.chats.summary()}{template}; for training "
        f"{examples.train.counts.summary()}{validation}{rows}"
    )


def _trained(run: Any) -> str:
    """Return the part of the model that is trained."""
    count = run.model.num_parameters(trainable_only=True)
    share = f"{count:,} parameters ({count / run.base_parameters:.2%})"
    layers = adapters_of(run.model)
    if not layers:
        mix = run.config.model.qat
        return share if mix is None else f"{share}, rounded to {mix}"
    ranks = sorted({layer.rank for layer in layers.values()})
    kinds = sorted({path.rpartition(".")[2] for path in layers})
    dora = any(layer.lora_magnitude_vector is not None for layer in layers.values())
    kind = "DoRA" if dora else "LoRA"
    return (
        f"{kind} of rank {', '.join(map(str, ranks))} on {len(layers)} layers "
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


def left_out(run: Any) -> list[str]:
    """Return lines about what is not trained of the rows, and a template that the base lacks.

    Args:
        run: a `FinetuneRun`.
    """
    examples, counts = run.examples, run.examples.train.counts
    lines = []
    long = counts.cut + counts.split + counts.dropped
    if long:
        lines.append(
            f"note: {long:,} of {amount(counts.chats, 'row')} are longer than "
            f"`seq_len`={run.seq_len} (the longest has {amount(counts.longest, 'token')}): "
            f"{counts.cut:,} cut, {counts.split:,} split, {counts.dropped:,} left out"
        )
    if counts.cut_off:
        lines.append(
            f"note: {counts.cut_off:,} of these train nothing, as their first answer begins "
            "behind the cut: give a larger `seq_len`, or `too_long`=split"
        )
    if examples.chats.bad:
        lines.append(
            f"note: {amount(examples.chats.bad, 'bad row')} left out; the first is "
            f"{reason(examples.chats.first_bad)}"
        )
    lines += [f"note: no row is of class {name}: it is never right" for name in examples.unseen()]
    if examples.template is not None and examples.is_own:
        lines.append(f"note: the chats are written by the template {examples.template.name}")
    return lines


def amounts(data: Mapping[str, Any]) -> str:
    """Return the numbers of rows and tokens of a run's record in words.

    Args:
        data: the field of this name in `config.json`.
    """
    chats, tokens = (data.get(name) for name in ("chats", "tokens"))
    if not isinstance(chats, int) or not isinstance(tokens, int):
        return "which its record lacks"
    return f"{amount(chats, 'row')} of {amount(tokens, 'token')}"
