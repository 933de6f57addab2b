# SPDX-License-Identifier: MIT
"""NumPy references of attention, losses and dropout, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "DISTANCES",
    "LABELS",
    "attention",
    "causal",
    "cross_entropy_loss",
    "dropout",
    "scores_softmax",
    "slopes",
]

Array = Any  # float64 arrays; NumPy's functions are typed too widely for more

# Exact in f16, the dtype of the fused op's mask.
DISTANCES = -np.abs(np.arange(5)[:, None] - np.arange(7)[None]).astype(np.float64)
# Rows that sum to one, to another number, and to zero.
LABELS = np.random.default_rng(3).uniform(0, 1, (4, 6))
LABELS[0] /= LABELS[0].sum()
LABELS[2] = 0
LABELS = LABELS.astype(np.float32).astype(np.float64)


def causal(length: int, span: int) -> Array:
    """0 up to the diagonal that ends at the last key, -inf beyond."""
    return np.triu(np.full((length, span), -np.inf), span - length + 1)


def slopes(heads: int, max_bias: float) -> Array:
    """ALiBi's slope of each head, ones without it."""
    if max_bias <= 0:
        return np.ones(heads)
    power = 2 ** int(np.floor(np.log2(heads)))
    first, then = 2.0 ** (-max_bias / power), 2.0 ** (-max_bias / 2 / power)
    return np.array(
        [first ** (h + 1) if h < power else then ** (2 * (h - power) + 1) for h in range(heads)]
    )


def _tiled(mask: Array, shape: tuple[int, ...]) -> Array:
    """A mask for each head: those given take turns."""
    lead = (1,) * (len(shape) - mask.ndim) + mask.shape[:-2]
    turns = [n // m for n, m in zip(shape[:-2], lead, strict=True)]
    return np.tile(mask, (*turns, 1, 1))


def scores_softmax(
    x: Array,
    mask: Array | None = None,
    scale: float = 1.0,
    max_bias: float = 0.0,
    sinks: Array | None = None,
) -> Array:
    """Softmax of (..., H, T, S) scores."""
    z = x * scale
    if mask is not None:
        with np.errstate(invalid="ignore"):
            z = z + slopes(x.shape[-3], max_bias)[:, None, None] * _tiled(mask, x.shape)
    peak = z.max(-1, keepdims=True)
    if sinks is not None:
        peak = np.maximum(peak, sinks[:, None, None])
    e = np.exp(z - peak)
    total = e.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - peak)
    return e / total


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    max_bias: float = 0.0,
    softcap: float = 0.0,
    sinks: Array | None = None,
) -> Array:
    """(B, T, H, E) of q (B, H, T, D), k (B, G, S, D) and v (B, G, S, E)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    x = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if softcap:
        x = softcap * np.tanh(x / softcap)
    p = scores_softmax(x, mask, 1.0, max_bias, sinks)
    return (p @ v).swapaxes(1, 2)


def cross_entropy_loss(x: Array) -> Array:
    """Compute the loss of LABELS, averaged over the rows."""
    peak = x.max(-1, keepdims=True)
    log_p = x - peak - np.log(np.exp(x - peak).sum(-1, keepdims=True))
    return np.asarray(-(LABELS * log_p).sum(-1).mean())


def dropout(x: Array, p: float, seed: int, index: int) -> Array:
    """By Philox 4x32-10: element i takes word i % 4 of the counter (i // 4, offset, 0)."""
    mask = 0xFFFFFFFF
    count = -(-x.size // 4)
    c = [np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)]
    c += [np.full(count, seed >> 32, np.uint64), np.zeros(count, np.uint64)]
    k0, k1 = seed & mask, index & mask
    for _ in range(10):
        low, high = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (high >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            high & np.uint64(mask),
            (low >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            low & np.uint64(mask),
        ]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    words = np.stack(c, 1).reshape(-1)[: x.size].reshape(x.shape)
    return np.where(words < np.uint64(int(p * 2**32)), 0.0, x / (1 - p))
