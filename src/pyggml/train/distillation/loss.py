# SPDX-License-Identifier: MIT
"""The divergence of a model from a teacher's most probable tokens, and the loss made of it."""

from __future__ import annotations

from typing import Any

from ... import checks, ops
from ...data import IGNORE_INDEX
from ...errors import ShapeError
from ...nn import functional
from ...ops.operands import need_dtype, need_float
from ...tensors import Tensor
from ..losses import Count, LossFunction, count_targets

__all__ = ["distillation_loss", "top_k_kl"]


def top_k_kl(
    logits: Tensor,
    teacher_ids: Tensor,
    teacher_logprobs: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """Return the summed KL divergence of a model from a teacher's most probable tokens.

    T² * sum of p * (log p - log q), p = softmax(teacher_logprobs / T) over the K tokens, and
    q = softmax(logits / T) over all V. With all tokens, K = V, it is PyTorch's
    `kl_div(log_softmax(logits / T), softmax(teacher / T)) * T**2`; with fewer, the teacher's
    distribution is that of its K tokens alone.

    Args:
        logits: of the model.
        teacher_ids: numbers of the tokens, i32; the first of each row is the most probable.
        teacher_logprobs: their log-probabilities, or logits.
        targets: the rows that count are those that are not -100.
        temperature: T > 0; a higher one weighs the less probable tokens more.

    Shape:
        logits (..., V), teacher_ids and teacher_logprobs (..., K), targets (...) -> ()

    Raises:
        ShapeError: the shapes differ, or a number is no token.
        DTypeError: a dtype is another.
        ValueError: temperature is not positive.

    Source: Hinton et al. 2015, arXiv:1503.02531.

    Example:
        >>> logits = pg.zeros((2, 4))
        >>> ids, same = pg.tensor([[1, 2], [0, 3]]), pg.zeros((2, 2))
        >>> round(top_k_kl(logits, ids, same, pg.tensor([1, -100])).item(), 4)
        0.6931
    """
    who = "top_k_kl"
    heat = checks.f32(who, "temperature", temperature, above=0.0)
    need_float(who, "logits", logits)
    need_float(who, "teacher_logprobs", teacher_logprobs)
    need_dtype(who, "teacher_ids", teacher_ids, "i32")
    need_dtype(who, "targets", targets, "i32")
    lead, kept = logits.shape[:-1], teacher_ids.shape[-1:]
    for name, value, wanted in (
        ("teacher_ids", teacher_ids, (*lead, *kept)),
        ("teacher_logprobs", teacher_logprobs, (*lead, *kept)),
        ("targets", targets, lead),
    ):
        if value.shape != wanted:
            raise ShapeError(f"{who}: {name} must have the shape {wanted}; got {value.shape}")
    count, classes, most = targets.numel(), logits.shape[-1], kept[0]
    ids = teacher_ids.reshape(count, most)
    own = ops.scale(logits.reshape(count, classes), 1.0 / heat)
    said = ops.scale(teacher_logprobs.reshape(count, most), 1.0 / heat)
    p = ops.soft_max(said)
    first = ids[:, :1].contiguous().reshape(count)
    chosen = ops.get_rows(own.reshape(count, classes, 1), ids).reshape(count, most)
    # log of the sum of the exponentials of all logits, by the loss of one of the tokens
    away = functional.cross_entropy(own, first, reduction="none").reshape(count, 1)
    whole = away + chosen[:, :1]
    # and of the teacher's, by the probability of the first, which is at least 1 / K
    whole_said = said[:, :1] - ops.log(p[:, :1])
    rows = (p * (said - chosen)).sum(dim=1, keepdim=True) - whole_said + whole
    return ops.scale((rows * _counted(targets)).sum(), heat * heat)


def distillation_loss(temperature: float = 1.0, alpha: float = 0.5) -> LossFunction:
    """Return a loss that mixes the cross-entropy of the targets and the KL from a teacher.

    (1 - alpha) * cross-entropy + alpha * T² * KL; see `top_k_kl`. It takes the batches of a
    `DistillationDataset`; batches without a teacher, such as those of a validation set, have the
    cross-entropy alone.

    Args:
        temperature: T > 0.
        alpha: weight of the teacher, from 0 to 1.

    Raises:
        ValueError: a number is out of range.

    Source: Hinton et al. 2015, arXiv:1503.02531.

    Example:
        >>> loss = distillation_loss(temperature=2.0, alpha=0.9)
        >>> x = pg.tensor([[1, 2, 3]])
        >>> summed, count = loss(model, x, x)
        >>> summed.shape
        ()
    """
    who = "distillation_loss"
    heat = checks.f32(who, "temperature", temperature, above=0.0)
    share = checks.f32(who, "alpha", alpha, 0.0, 1.0)

    def loss(
        model: Any,
        x: Tensor,
        y: Tensor,
        teacher_ids: Tensor | None = None,
        teacher_logprobs: Tensor | None = None,
        **inputs: Tensor,
    ) -> tuple[Tensor, Count]:
        logits = model(x, **inputs)
        plain = functional.cross_entropy(logits, y, reduction="sum", ignore_index=IGNORE_INDEX)
        if teacher_ids is None or teacher_logprobs is None:
            return plain, count_targets
        apart = top_k_kl(logits, teacher_ids, teacher_logprobs, y, heat)
        return ops.scale(plain, 1.0 - share) + ops.scale(apart, share), count_targets

    return loss


def _counted(targets: Tensor) -> Tensor:
    """Return 1 for each target that counts and 0 for the others, (N, 1)."""
    away = ops.abs(ops.scale(ops.cast(targets, "f32"), 1.0, -float(IGNORE_INDEX)))
    return ops.step(ops.scale(away, 1.0, -0.5)).reshape(targets.numel(), 1)
