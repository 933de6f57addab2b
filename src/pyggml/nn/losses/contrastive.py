# SPDX-License-Identifier: MIT
"""Losses of pairs of vectors."""

from __future__ import annotations

import numpy as np

from ... import checks, ops
from ...errors import DTypeError, ShapeError, fitting
from ...ops.operands import need_float, need_tensor
from ...tensors import Tensor, tensor
from .reduction import REDUCTIONS, reduce

__all__ = ["cosine_embedding_loss", "info_nce"]

# Added to squared lengths, as PyTorch does.
_EPS = 1e-12


@fitting
def cosine_embedding_loss(
    x1: Tensor, x2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """1 - cos(x1, x2) for pairs that belong together, max(0, cos - margin) for the others.

    Args:
        x1, x2: f32 vectors.
        target: 1 for pairs that belong together, -1 for others; i32 or f32. The loss of a pair
            with 0 is 0.
        margin: cosine that is allowed to the others, from -1 to 1.
        reduction: "mean", "sum" or "none".

    Shape:
        x1, x2 (N, D), target (N,) -> (), or (N,) for "none"; x1, x2 (D,), target () -> ()

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: a dtype is another.
        ValueError: margin is out of range, or an unknown reduction.

    Source: torch.nn.functional.cosine_embedding_loss.

    Example:
        >>> x = tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> y = tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> cosine_embedding_loss(x, y, tensor([1, 1]), reduction="none").tolist()
        [0.0, 1.0]
    """
    who = "cosine_embedding_loss"
    need_float(who, "x1", x1)
    need_float(who, "x2", x2)
    need_tensor(who, "target", target)
    checks.choice(who, "reduction", reduction, REDUCTIONS)
    margin = checks.f32(who, "margin", margin, -1.0, 1.0)
    if x1.ndim not in (1, 2) or x1.shape != x2.shape or target.shape != x1.shape[:-1]:
        raise ShapeError(
            f"{who}: x1 and x2 must be (N, D) and target (N,), or (D,) and ();"
            f" got {x1.shape}, {x2.shape} and {target.shape}"
        )
    if target.dtype.name not in ("f32", "i32"):
        raise DTypeError(f"{who}: target must be i32 or f32; got {target.dtype.name}")
    dots = ops.sum(ops.mul(x1, x2), dim=-1)
    squares = [ops.scale(ops.sum(ops.sqr(x), dim=-1), 1.0, _EPS) for x in (x1, x2)]
    cosine = ops.div(dots, ops.sqrt(ops.mul(*squares)))
    sign = ops.cast(target, "f32") if target.dtype.name == "i32" else target
    near = ops.mul(ops.step(sign), ops.scale(cosine, -1.0, 1.0))
    apart = ops.mul(ops.step(ops.neg(sign)), ops.relu(ops.scale(cosine, 1.0, -margin)))
    return reduce(ops.add(near, apart), reduction)


@fitting
def info_nce(
    query: Tensor,
    key: Tensor,
    negatives: Tensor | None = None,
    temperature: float = 0.1,
    symmetric: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Cross-entropy of finding each query's key among all keys of the batch, by their cosines.

    Args:
        query: f32 vectors.
        key: f32 vectors, each belonging to the query in the same row.
        negatives: f32 vectors that belong to no query.
        temperature: the cosines are divided by it, > 0.
        symmetric: find each key's query as well, and take the mean of both, as CLIP does.
        reduction: "mean", "sum" or "none".

    Shape:
        query, key (N, D), negatives (M, D) -> (), or (N,) for "none"

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: an operand is not f32.
        ValueError: temperature is not positive, symmetric with negatives, or an unknown reduction.

    Source: van den Oord et al. 2018, arXiv:1807.03748; Radford et al. 2021, arXiv:2103.00020.

    Example:
        >>> x = tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> round(info_nce(x, x, temperature=1.0).item(), 4)
        0.3133
    """
    for name, x in (("query", query), ("key", key), ("negatives", negatives)):
        if x is not None or name != "negatives":
            need_float("info_nce", name, x)
    checks.choice("info_nce", "reduction", reduction, REDUCTIONS)
    factor = 1.0 / checks.f32("info_nce", "temperature", temperature, 1.0 / checks.F32_MAX)
    if checks.flag("info_nce", "symmetric", symmetric) and negatives is not None:
        raise ValueError("info_nce: symmetric takes no negatives, which have no query")
    if query.ndim != 2 or key.shape != query.shape:
        raise ShapeError(
            f"info_nce: query and key must be (N, D); got {query.shape} and {key.shape}"
        )
    if negatives is not None and (negatives.ndim != 2 or negatives.shape[1] != query.shape[1]):
        raise ShapeError(
            f"info_nce: negatives must be (M, {query.shape[1]}); got {negatives.shape}"
        )
    others = key if negatives is None else ops.concat([key, negatives])
    queries, keys = ops.l2_norm(query), ops.l2_norm(others)
    at = tensor(np.arange(query.shape[0], dtype=np.int32), device=query.device)
    logits = ops.scale(ops.mul_mat(keys, queries), factor)
    loss = ops.cross_entropy(logits, at, -1, "none")
    if symmetric:
        back = ops.cross_entropy(ops.cont(ops.transpose(logits)), at, -1, "none")
        loss = ops.scale(ops.add(loss, back), 0.5)
    return reduce(loss, reduction)
