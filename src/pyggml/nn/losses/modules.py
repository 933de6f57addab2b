# SPDX-License-Identifier: MIT
"""Losses as modules, under PyTorch's names; the constructor takes the function's options.

Options are checked where the module is made, before any training.
"""

from __future__ import annotations

from ... import checks
from ...tensors import Tensor
from .base import Loss
from .contrastive import cosine_embedding_loss, info_nce
from .distribution import binary_cross_entropy_with_logits, cross_entropy, kl_div, z_loss
from .reduction import KL_REDUCTIONS, REDUCTIONS, maybe_float
from .regression import huber_loss, l1_loss, mse_loss, smooth_l1_loss

__all__ = [
    "BCEWithLogitsLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "InfoNCE",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "SmoothL1Loss",
    "ZLoss",
]


class CrossEntropyLoss(Loss):
    """`functional.cross_entropy`; the classes are the last axis.

    Args:
        weight: of each class, or None.
        ignore_index: class number of positions that do not count.
        reduction: "mean", "sum" or "none".
        label_smoothing: share of the target that is spread over all classes, in [0, 1].

    Shape:
        logits (..., V), targets (...) i32 or (..., V) f32 -> (), or (...) for "none"

    Example:
        >>> round(CrossEntropyLoss()(zeros((2, 4)), tensor([0, 3])).item(), 4)
        1.3863
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        who = "CrossEntropyLoss"
        self.weight = maybe_float(who, "weight", weight)
        self.ignore_index = checks.whole(who, "ignore_index", ignore_index, -(2**31), 2**31 - 1)
        self.reduction = checks.choice(who, "reduction", reduction, REDUCTIONS)
        self.label_smoothing = checks.f32(who, "label_smoothing", label_smoothing, 0.0, 1.0)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return cross_entropy(
            logits, targets, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


class BCEWithLogitsLoss(Loss):
    """`functional.binary_cross_entropy_with_logits`.

    Args:
        weight: of each element, or None.
        reduction: "mean", "sum" or "none".
        pos_weight: of the positive class, or None.

    Shape:
        x (...), target (...) -> (), or (...) for "none"

    Example:
        >>> round(BCEWithLogitsLoss()(zeros((3,)), ones((3,))).item(), 4)
        0.6931
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ):
        who = "BCEWithLogitsLoss"
        self.weight = maybe_float(who, "weight", weight)
        self.reduction = checks.choice(who, "reduction", reduction, REDUCTIONS)
        self.pos_weight = maybe_float(who, "pos_weight", pos_weight)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return binary_cross_entropy_with_logits(
            x, target, self.weight, self.reduction, self.pos_weight
        )


class MSELoss(Loss):
    """`functional.mse_loss`.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> MSELoss()(zeros((3,)), ones((3,))).item()
        1.0
    """

    def __init__(self, reduction: str = "mean"):
        self.reduction = checks.choice("MSELoss", "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss; see the function of the same name."""
        return mse_loss(x, target, self.reduction, weight)


class L1Loss(Loss):
    """`functional.l1_loss`.

    Args:
        reduction: "mean", "sum" or "none".

    Example:
        >>> L1Loss()(zeros((3,)), ones((3,))).item()
        1.0
    """

    def __init__(self, reduction: str = "mean"):
        self.reduction = checks.choice("L1Loss", "reduction", reduction, REDUCTIONS)

    def forward(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss; see the function of the same name."""
        return l1_loss(x, target, self.reduction, weight)


class SmoothL1Loss(Loss):
    """`functional.smooth_l1_loss`.

    Args:
        reduction: "mean", "sum" or "none".
        beta: where the parabola ends, >= 0.

    Example:
        >>> SmoothL1Loss()(zeros((3,)), ones((3,))).item()
        0.5
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0):
        self.reduction = checks.choice("SmoothL1Loss", "reduction", reduction, REDUCTIONS)
        self.beta = checks.f32("SmoothL1Loss", "beta", beta, 0.0)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return smooth_l1_loss(x, target, self.reduction, self.beta)


class HuberLoss(Loss):
    """`functional.huber_loss`.

    Args:
        reduction: "mean", "sum" or "none".
        delta: where the parabola ends, > 0.

    Example:
        >>> HuberLoss(delta=2.0)(zeros((3,)), ones((3,))).item()
        0.5
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        self.reduction = checks.choice("HuberLoss", "reduction", reduction, REDUCTIONS)
        self.delta = checks.f32("HuberLoss", "delta", delta, above=0.0)

    def forward(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss; see the function of the same name."""
        return huber_loss(x, target, self.reduction, self.delta, weight)


class KLDivLoss(Loss):
    """`functional.kl_div`.

    Args:
        reduction: "mean", "batchmean", "sum" or "none".
        log_target: targets are logarithms.

    Example:
        >>> KLDivLoss("sum", log_target=True)(zeros((3,)), zeros((3,))).item()
        0.0
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False):
        self.reduction = checks.choice("KLDivLoss", "reduction", reduction, KL_REDUCTIONS)
        self.log_target = checks.flag("KLDivLoss", "log_target", log_target)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return kl_div(x, target, self.reduction, self.log_target)


class CosineEmbeddingLoss(Loss):
    """`functional.cosine_embedding_loss`.

    Args:
        margin: cosine that is allowed to pairs that do not belong together.
        reduction: "mean", "sum" or "none".

    Example:
        >>> CosineEmbeddingLoss()(ones((2, 3)), ones((2, 3)), tensor([-1, -1])).item()
        1.0
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        self.margin = checks.f32("CosineEmbeddingLoss", "margin", margin, -1.0, 1.0)
        self.reduction = checks.choice("CosineEmbeddingLoss", "reduction", reduction, REDUCTIONS)

    def forward(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        """Return the loss; see the function of the same name."""
        return cosine_embedding_loss(x1, x2, target, self.margin, self.reduction)


class InfoNCE(Loss):
    """`functional.info_nce`.

    Args:
        temperature: the cosines are divided by it, > 0.
        symmetric: find each key's query as well.
        reduction: "mean", "sum" or "none".

    Example:
        >>> InfoNCE()(ones((1, 3)), ones((1, 3))).item()
        0.0
    """

    def __init__(self, temperature: float = 0.1, symmetric: bool = False, reduction: str = "mean"):
        self.temperature = checks.f32("InfoNCE", "temperature", temperature, 1.0 / checks.F32_MAX)
        self.symmetric = checks.flag("InfoNCE", "symmetric", symmetric)
        self.reduction = checks.choice("InfoNCE", "reduction", reduction, REDUCTIONS)

    def forward(self, query: Tensor, key: Tensor, negatives: Tensor | None = None) -> Tensor:
        """Return the loss; see the function of the same name."""
        return info_nce(query, key, negatives, self.temperature, self.symmetric, self.reduction)


class ZLoss(Loss):
    """`functional.z_loss`.

    Args:
        coefficient: factor, >= 0.
        ignore_index: the target of positions that do not count.
        reduction: "mean", "sum" or "none".

    Example:
        >>> ZLoss(1.0)(zeros((2, 1))).item()
        0.0
    """

    def __init__(
        self, coefficient: float = 1e-4, ignore_index: int = -100, reduction: str = "mean"
    ):
        self.coefficient = checks.f32("ZLoss", "coefficient", coefficient, 0.0)
        self.ignore_index = checks.whole("ZLoss", "ignore_index", ignore_index, -(2**31), 2**31 - 1)
        self.reduction = checks.choice("ZLoss", "reduction", reduction, REDUCTIONS)

    def forward(self, logits: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the loss; see the function of the same name."""
        return z_loss(logits, targets, self.coefficient, self.ignore_index, self.reduction)
