# SPDX-License-Identifier: MIT
"""Muon: momentum made orthogonal, for matrices; AdamW for the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import checks, ops
from ..tensors import Tensor
from .groups import Group, Model, ParamGroups, checked_betas
from .inplace import adamw_factors, blend, blending
from .optimizer import Optimizer, Spec, State
from .patterns import muon_groups

__all__ = ["Muon"]

# Keller Jordan 2024, https://kellerjordan.github.io/posts/muon: steepest at 0.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_RULES = ("muon", "adamw")
_RATES = ("original", "match_rms_adamw")


class Muon(Optimizer):
    """Step along the nearest orthogonal matrix to the momentum of each weight matrix.

    b = momentum * b + g;  o = orthogonal(g + momentum * b), by Newton-Schulz iterations
    w = w * (1 - lr * wd) - lr * ratio * o

    Only matrices have this rule. Parameters with another number of axes, and groups with
    "rule": "adamw", have AdamW's; embeddings and the head should be among them: see `muon_groups`.

    Args:
        params: tensors, groups, which may have "rule", "muon" or "adamw", or a module; see
            `Optimizer` and `muon_groups`.
        lr: learning rate of both rules, >= 0; "lr_scale" of a group sets them apart.
        weight_decay: wd of groups that name none, >= 0.
        momentum: what is kept of the running sum, in [0, 1).
        nesterov: look ahead; False takes b itself.
        ns_coefficients: a, b, c of x <- a x + (b x x^T + c (x x^T)^2) x.
        eps: least length that the momentum is divided by, > 0.
        ns_steps: iterations, 1 to 99.
        adjust_lr_fn: the ratio for a matrix (n, m): "match_rms_adamw", 0.2 * sqrt(max(n, m)), which
            lets one learning rate serve both rules, or "original", sqrt(max(1, n / m)).
        betas: of AdamW.
        adamw_eps: of AdamW, > 0.
        fused_update: update in the backward and keep no gradients; see `Optimizer`.

    Raises:
        ValueError: a hyper-parameter is out of range, or "muon" for what is no matrix; see also
            `Optimizer`.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; the ratio: Liu et al.
        2025, arXiv:2502.16982; torch.optim.Muon.

    Example:
        >>> w = Parameter([[2.0, 0.0], [0.0, 1.0]])
        >>> opt = Muon([w], lr=0.1, weight_decay=0.0, adjust_lr_fn="original")
        >>> (w * w).sum().backward()
        >>> norm = opt.step()
        >>> 1.85 < w[0, 0].item() < 1.95
        True
    """

    group_options = ("rule",)

    def __init__(
        self,
        params: ParamGroups,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = _COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str = "match_rms_adamw",
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        adamw_eps: float = 1e-8,
        fused_update: bool = False,
    ) -> None:
        self.momentum = checks.f32("Muon", "momentum", momentum, 0.0, below=1.0)
        self.nesterov = checks.flag("Muon", "nesterov", nesterov)
        given = checks.items("Muon", "ns_coefficients", ns_coefficients, 3)
        self.ns_coefficients = tuple(checks.f32("Muon", "ns_coefficients", c) for c in given)
        self.ns_steps = checks.whole("Muon", "ns_steps", ns_steps, 1, 99)
        self.eps = checks.f32("Muon", "eps", eps, above=0.0)
        self.adjust_lr_fn = checks.choice("Muon", "adjust_lr_fn", adjust_lr_fn, _RATES)
        self.betas = checked_betas("Muon", betas)
        self.adamw_eps = checks.f32("Muon", "adamw_eps", adamw_eps, above=0.0)
        super().__init__(params, lr, weight_decay, fused_update)
        self._sum = blending(self.momentum, 1.0, self.params[0])

    def _model_groups(self, model: Model, weight_decay: float) -> list[dict[str, Any]]:
        return muon_groups(model, weight_decay)

    def _divide(self, groups: list[Group]) -> list[Group]:
        """Each group in two: one for each rule."""
        divided = []
        for group in groups:
            given = group.options.get("rule")
            if given is not None:
                checks.choice("Muon", "a group's rule", given, _RULES)
            wrong = [p.shape for p in group.params if p.ndim != 2]
            if given == "muon" and wrong:
                raise ValueError(f'Muon: the rule "muon" is for matrices; got shape {wrong[0]}')
            for rule in _RULES:
                mine = [
                    i
                    for i, p in enumerate(group.params)
                    if rule == (given or ("muon" if p.ndim == 2 else "adamw"))
                ]
                if mine:
                    divided.append(
                        Group(
                            [group.params[i] for i in mine],
                            [group.names[i] for i in mine],
                            group.weight_decay,
                            group.lr_scale,
                            {"rule": rule},
                        )
                    )
        return divided

    def _state_specs(self, param: Tensor, group: Group) -> dict[str, Spec]:
        kinds = ("b",) if group.options["rule"] == "muon" else ("m", "v")
        return dict.fromkeys(kinds, (param.shape, "f32"))

    def _hyper(self, group: Group, lr: float) -> np.ndarray:
        if group.options["rule"] == "muon":
            return super()._hyper(group, lr)
        values = adamw_factors(lr, self.betas, self.adamw_eps, group.weight_decay, self.steps)
        return np.asarray(values, np.float32)

    def _record(self, param: Tensor, grad: Tensor, state: State, group: Group) -> list[Tensor]:
        if group.options["rule"] == "adamw":
            return [ops.opt_step_adamw(param, grad, state["m"], state["v"], group.hyper)]
        step = blend(state["b"], grad, self._sum)
        if self.nesterov:
            step = ops.add(grad, ops.scale(step, self.momentum))
        step = _orthogonal(step, self.ns_coefficients, self.ns_steps, self.eps)
        return [ops.opt_step_sgd(param, ops.scale(step, self._ratio(*param.shape)), group.hyper)]

    def _ratio(self, rows: int, columns: int) -> float:
        if self.adjust_lr_fn == "original":
            return math.sqrt(max(1.0, rows / columns))
        return 0.2 * math.sqrt(max(rows, columns))


def _orthogonal(x: Tensor, coefficients: Sequence[float], steps: int, eps: float) -> Tensor:
    """A matrix with the singular vectors of x and singular values near 1."""
    a, b, c = coefficients
    rows, columns = x.shape
    unit = ops.l2_norm(ops.reshape(x, (x.numel(),)), eps)
    # The matmul of the shorter side with itself is the smaller one.
    y = ops.reshape(unit, x.shape)
    y = ops.cont(ops.transpose(y)) if rows > columns else y
    for _ in range(steps):
        gram = ops.mul_mat(y, y)  # y @ yᵀ, which is symmetric
        update = ops.add(ops.scale(gram, b), ops.scale(ops.mul_mat(gram, gram), c))
        y = ops.add(ops.scale(y, a), ops.matmul(update, y))
    return ops.cont(ops.transpose(y)) if rows > columns else y
