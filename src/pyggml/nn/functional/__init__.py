# SPDX-License-Identifier: MIT
"""The layers' arithmetic as functions of tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ... import ops
from ...absent import absent_in
from ...errors import ShapeError
from ...graph import recompute
from ...ops import (
    hardsigmoid,
    hardswish,
    linear,
    log_softmax,
    logsigmoid,
    relu,
    relu6,
    sigmoid,
    silu,
    softmax,
    tanh,
)
from ...ops.operands import need_tensor
from ...tensors import Tensor
from ...tensors.on_demand import on_demand
from ..losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    huber_loss,
    info_nce,
    kl_div,
    l1_loss,
    linear_cross_entropy,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
    square_error,
    z_loss,
)
from ..losses.margins import (
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
)
from .activations import dropout, elu, gelu, glu, leaky_relu, mish, softplus
from .convolution import conv1d, conv2d
from .images import conv_transpose1d, conv_transpose2d, interpolate
from .norms import batch_norm, group_norm, layer_norm, rms_norm
from .operations import (
    adaptive_avg_pool2d,
    cosine_similarity,
    embedding,
    normalize,
    one_hot,
    pad,
    scaled_dot_product_attention,
)
from .piecewise import (
    celu,
    hardshrink,
    hardtanh,
    prelu,
    selu,
    softmin,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from .pooling import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from .sequences import (
    adaptive_avg_pool1d,
    dropout1d,
    dropout2d,
    instance_norm,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "attention",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "dropout1d",
    "dropout2d",
    "elu",
    "embedding",
    "flash_attention",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "info_nce",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_cross_entropy",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "mish",
    "mse_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "square_error",
    "tanh",
    "tanhshrink",
    "threshold",
    "triplet_margin_loss",
    "z_loss",
]


@on_demand
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Compute attention: for each query, a mean of the values with weights softmax(q · k).

    y = softmax(q @ k.T * scale + bias + mask) @ v, for each head

    Args:
        q: queries.
        k: keys; a key-value head serves the H / G query heads beside each other.
        v: values.
        mask: added to the scores, f32: 0 where seen, -inf where hidden.
        scale: None is 1 / sqrt(D).
        bias: added to the scores as well, and trained if it requires a gradient.
        softcap: above 0, scores become softcap * tanh(score / softcap) before bias and mask.
        sinks: one more score for each head, which takes its share and gives nothing.

    Shape:
        q (B, T, H, D), k (B, S, G, D), v (B, S, G, D), mask (T, S) or (B, 1, T, S),
        bias (H, T, S), sinks (H,), H a multiple of G -> (B, T, H * D)

    Raises:
        ShapeError: the shapes do not belong together.

    Source: Vaswani et al. 2017, arXiv:1706.03762; grouped heads: arXiv:2305.13245; softcap:
        arXiv:2408.00118; sinks: arXiv:2309.17453.

    Example:
        >>> attention(ones((1, 3, 4, 8)), ones((1, 3, 2, 8)), ones((1, 3, 2, 8))).shape
        (1, 3, 32)
    """
    _check_heads("attention", q, k, v, mask)
    if bias is not None and need_tensor("attention", "bias", bias).shape != (
        q.shape[2],
        q.shape[1],
        k.shape[1],
    ):
        raise ShapeError(
            "attention: bias must be (H, T, S) = "
            f"({q.shape[2]}, {q.shape[1]}, {k.shape[1]}); got {bias.shape}"
        )
    batch, length, heads, width = q.shape
    # mul_mat reads q and k through their strides; only v, whose time must come last, is copied.
    # What grows with T x S is computed again in the backward: a hundredth of the time, and without
    # it long sequences would need more memory for this than for all the rest.
    scores = recompute(ops.mul_mat(k.permute(0, 2, 1, 3), q.permute(0, 2, 1, 3)))  # (B, H, T, S)
    scale = 1.0 / math.sqrt(width) if scale is None else scale
    if softcap:
        scores = recompute(ops.tanh(recompute(ops.scale(scores, scale / softcap))))
        scale = softcap
    if bias is not None:
        scores = recompute(ops.add(recompute(ops.scale(scores, scale)), bias))
        scale = 1.0
    weights = recompute(ops.soft_max(scores, mask, scale, sinks=sinks))
    gathered = ops.mul_mat(recompute(v.permute(0, 2, 3, 1).contiguous()), weights)  # (B, H, T, D)
    return gathered.permute(0, 2, 1, 3).reshape(batch, length, heads * width)


@on_demand
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    *,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """`attention` by one fused op, which stores no T × S scores.

    Args:
        q: queries.
        k: keys.
        v: values.
        mask: added to the scores; f32 is rounded to f16, see `ops.flash_attn_ext`.
        scale: None is 1 / sqrt(D).
        softcap: see `attention`.
        sinks: see `attention`.

    Shape:
        as `attention`

    Raises:
        ShapeError: the shapes do not belong together.
        ValueError: a stored mask has finite numbers beyond f16's; hide elements with -inf.

    Source: ggml_flash_attn_ext; Dao 2023, arXiv:2307.08691.

    Example:
        >>> flash_attention(ones((1, 3, 4, 8)), ones((1, 3, 2, 8)), ones((1, 3, 2, 8))).shape
        (1, 3, 32)
    """
    _check_heads("flash_attention", q, k, v, mask)
    batch, length, heads, width = q.shape
    q, k, v = (t.permute(0, 2, 1, 3) for t in (q, k, v))
    y = ops.flash_attn_ext(q, k, v, mask, scale, softcap=softcap, sinks=sinks)
    return y.reshape(batch, length, heads * width)


def _check_heads(who: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    """Raise for queries, keys, values and a mask whose shapes do not fit."""
    for name, x in (("q", q), ("k", k), ("v", v), ("mask", mask)):
        if name != "mask" or mask is not None:
            need_tensor(who, name, x)
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape:
        raise ShapeError(
            f"{who}: q must be (B, T, H, D), k and v one shape (B, S, G, D); "
            f"got q {q.shape}, k {k.shape}, v {v.shape}"
        )
    batch, length, heads, width = q.shape
    if k.shape[0] != batch or k.shape[3] != width or heads % k.shape[2]:
        raise ShapeError(
            f"{who}: q and k must share B and D, and q's heads be a multiple of k's; "
            f"got q {q.shape}, k {k.shape}"
        )
    if mask is not None and mask.shape[-2:] != (length, k.shape[1]):
        raise ShapeError(
            f"{who}: mask must end in (T, S) = ({length}, {k.shape[1]}); got {mask.shape}"
        )


if not TYPE_CHECKING:  # type checkers go on reporting absent names
    __getattr__ = absent_in("F", __name__)
