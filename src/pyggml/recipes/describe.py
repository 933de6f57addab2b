# SPDX-License-Identifier: MIT
"""A run in words, before it starts."""

from __future__ import annotations

from typing import Any

from ..backend.device import get_threads
from ..errors import amount
from ..tensors.autocast import bf16_matmuls
from ..train.fallbacks import tell_fallbacks
from ..train.memory import format_bytes

__all__ = ["describe"]


def describe(run: Any) -> list[tuple[str, str]]:
    """Return the text, tokens, model, training, device, memory and folder of a run in words.

    Args:
        run: an `LLMRun` that was prepared.

    Returns:
        (name, text) pairs in the order of reading.
    """
    return [
        ("text", _text(run)),
        (
            "tokens",
            f"{run.train_tokens:,} for training, {run.val_tokens:,} for validation; "
            f"vocabulary {run.tokenizer.vocab_size:,} ({run.config.data.tokenizer}){_packing(run)}",
        ),
        ("model", _model(run)),
        ("training", _training(run)),
        ("device", _device(run)),
        (
            "memory",
            "; ".join(f"{name} {format_bytes(size)}" for name, size in run.memory.rows()),
        ),
        ("results", str(run.artifact.path)),
    ]


def _text(run: Any) -> str:
    source = ", ".join(run.config.data.text) or "the manual that comes with Python"
    where = f", tokens in {run.tokens_folder}" if run.tokens_folder is not None else ""
    size = format_bytes(run.text_bytes)
    what = "document" if run.config.data.pair_fields is None else "pair"
    return f"{source}: {amount(run.documents, what)}, {size}{where}"


def _packing(run: Any) -> str:
    """Return how full the rows of packed documents are, and the pieces left out of them."""
    if not run.config.data.in_rows:
        return ""
    rows = run.trainer.loader.dataset
    left = (
        f", {amount(rows.skipped, 'piece')} without a completion left out" if rows.skipped else ""
    )
    return f"; packed in {len(rows):,} rows, {100 * rows.fill:.1f}% text{left}"


def _model(run: Any) -> str:
    sizes = run.model.config
    kv_heads = getattr(sizes, "n_kv_head", sizes.n_head)
    groups = f" ({kv_heads} for keys and values)" if kv_heads != sizes.n_head else ""
    return (
        f"{run.arch}: {amount(sizes.n_layer, 'layer')}, {amount(sizes.n_head, 'head')}{groups}, "
        f"width {sizes.n_embd}, MLP {sizes.n_ffn}, context {sizes.context}; "
        f"{run.model.num_parameters():,} parameters"
    )


def _training(run: Any) -> str:
    options, total = run.config.trainer, run.trainer.total_steps
    batch_size = options.value("batch_size")
    times = f" × {options.accumulate}" if options.accumulate > 1 else ""
    per_step = batch_size * options.accumulate * run.seq_len
    by_value = f" (elements {options.clip_value:g})" if options.clip_value else ""
    fused = ", updates in the backward" if run.config.optimizer.fused_update else ""
    average = f", evaluated with weights averaged by {options.ema:g}" if options.ema else ""
    again = recomputes(run.model)
    optimizer = type(run.trainer.optimizer).__name__
    last_lr = run.trainer.schedule(total - 1)
    precision = _precision(options.precision, run.memory.device)
    return (
        f"{amount(total, 'step')} of {batch_size}{times} × {run.seq_len} = "
        f"{per_step:,} tokens ({total * per_step / run.train_tokens:.1f} times the text); "
        f"{optimizer}, "
        f"learning rate {options.lr:.2g} to {last_lr:.2g}, clip {options.clip:g}{by_value}, "
        f"seed {options.seed}{precision}{again}{average}{fused}"
    )


def recomputes(model: Any) -> str:
    """Return the share of blocks that are computed twice, in words."""
    every = int(model.checkpointing)
    if not every:
        return ""
    return ", every block computed twice" if every == 1 else f", 1 block in {every} computed twice"


def _precision(name: str, device: str) -> str:
    """Return a note on matrix multiplications in less than f32."""
    if name == "f32":
        return ""
    if name == "f16":
        return ", operands of matmuls rounded to f16, loss scaled"
    kind = device.partition(":")[0]
    if name == "tf32":
        return ", tf32 matmuls" + ("" if kind == "cuda" else " (in f32: tf32 is CUDA's)")
    has_bf16 = bf16_matmuls() if kind == "cpu" else kind in ("cuda", "metal")
    return f", {name} matmuls" + ("" if has_bf16 else " (in f32: this device has no others)")


def _device(run: Any) -> str:
    name = run.memory.device
    if name == "cpu":
        return f"{name}, {amount(get_threads(), 'thread')}"
    left = run.memory.fallbacks
    if not left:
        return f"{name}, every op of a step"
    return f"{name}; the CPU computes {tell_fallbacks(left)} of each step, which costs copies"
