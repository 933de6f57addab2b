# SPDX-License-Identifier: MIT
"""The losses of preferences as losses of a `TrainStep`."""

from __future__ import annotations

from typing import Any

from ... import checks, ops
from ...tensors import Tensor
from .logps import sequence_logps, token_counts
from .losses import DPO_LOSSES, dpo_loss, kto_loss, orpo_loss, simpo_loss

__all__ = ["METHODS", "REFERENCES", "PreferenceLoss"]

METHODS = ("dpo", "ipo", "hinge", "orpo", "simpo", "kto")
"""The names of the losses."""
REFERENCES = ("dpo", "ipo", "hinge", "kto")
"""Those that need log-probabilities under a reference."""
_BETAS = {"simpo": 2.0}
_OWN = {
    "label_smoothing": ("dpo", "simpo"),
    "simpo_gamma": ("simpo",),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
}


class PreferenceLoss:
    """A loss of preferences for `Trainer` and `TrainStep`, with its metrics.

    IPO, ORPO and SimPO take the mean of the log-probabilities over the tokens of an answer, the
    others their sum. Evaluations tell `accuracy`, the share of pairs whose chosen answer has the
    higher reward, and `margin`, the mean difference of the rewards. The reward is beta times the
    log-ratio to the reference, or without one beta times the log-probability. KTO tells `accuracy`,
    the share of answers whose reward has the sign of their label, `margin`, the mean reward with
    the sign of the label, and `kl`, the divergence that it counts from.

    Args:
        method: one of `METHODS`.
        beta: None is 2 for SimPO, as in its paper, else 0.1.
        label_smoothing: share of the preferences that is taken to be wrong, for DPO and SimPO.
        simpo_gamma: the margin that SimPO asks for; None is 0.5.
        desirable_weight: of KTO's good answers; None is 1.
        undesirable_weight: of KTO's bad answers; None is 1.

    Raises:
        ValueError: an option is out of range, or is another method's.

    Example:
        >>> loss = PreferenceLoss("dpo", beta=0.2)
        >>> loss.needs_reference, loss.average
        (True, False)
    """

    def __init__(
        self,
        method: str = "dpo",
        beta: float | None = None,
        label_smoothing: float = 0.0,
        simpo_gamma: float | None = None,
        desirable_weight: float | None = None,
        undesirable_weight: float | None = None,
    ) -> None:
        who = "PreferenceLoss"
        self.method = checks.choice(who, "method", method, METHODS)
        beta = _BETAS.get(method, 0.1) if beta is None else beta
        self.beta = checks.number(who, "beta", beta, above=0.0)
        given = {
            "label_smoothing": label_smoothing or None,
            "simpo_gamma": simpo_gamma,
            "desirable_weight": desirable_weight,
            "undesirable_weight": undesirable_weight,
        }
        self._options: dict[str, Any] = {}
        for name, value in given.items():
            if value is None:
                continue
            if method not in _OWN[name]:
                raise ValueError(
                    f"{who}: {name} is for {' and '.join(_OWN[name])}; got method={method!r}: "
                    "leave it out"
                )
            below = 0.5 if name == "label_smoothing" else None
            self._options[name] = checks.number(who, name, value, 0.0, below=below)

    @property
    def needs_reference(self) -> bool:
        """True if the batches must have log-probabilities under a reference."""
        return self.method in REFERENCES

    @property
    def units(self) -> str:
        """The unit of its counts: pairs, or KTO's answers."""
        return "answers" if self.method == "kto" else "pairs"

    @property
    def average(self) -> bool:
        """True if log-probabilities are means over the tokens of an answer."""
        return self.method in ("ipo", "orpo", "simpo")

    def __call__(self, model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> Any:
        """Return the summed loss of a batch, its rows of data, and the sums of the metrics."""
        if self.method == "kto":
            return self._judged(model, x, y, **inputs)
        count = x.shape[0] // 2
        logps = sequence_logps(model, x, y, self.average)
        chosen, rejected = logps[:count], logps[count:]
        if not self.needs_reference:
            return self._free(chosen, rejected), count, self._told(ops.sub(chosen, rejected))
        if "reference" not in inputs:
            raise ValueError(
                f"PreferenceLoss: {self.method} needs a reference; got batches without: give "
                "PairDataset(encoded, reference_logps(model, encoded.documents))"
            )
        reference = inputs["reference"]
        if self.average:  # sums, in the batch
            reference = ops.div(reference, token_counts(y))
        before = reference[:count], reference[count:]
        name = "sigmoid" if self.method == "dpo" else self.method
        assert name in DPO_LOSSES
        loss = dpo_loss(
            chosen, rejected, *before, self.beta, loss_type=name, reduction="sum", **self._options
        )
        gained = ops.sub(ops.sub(chosen, rejected), ops.sub(*before))
        return loss, count, self._told(gained)

    def _free(self, chosen: Tensor, rejected: Tensor) -> Tensor:
        """Return the loss of a method without reference."""
        if self.method == "orpo":
            return orpo_loss(chosen, rejected, self.beta, reduction="sum")
        return simpo_loss(chosen, rejected, self.beta, reduction="sum", **self._options)

    def _told(self, difference: Tensor) -> dict[str, Tensor]:
        """Return the metrics of pairs."""
        return {
            "accuracy": ops.sum(ops.step(difference)),
            "margin": ops.scale(ops.sum(difference), self.beta),
        }

    def _judged(self, model: Any, x: Tensor, y: Tensor, **inputs: Tensor) -> Any:
        """Return loss, count and metrics of KTO."""
        logps = sequence_logps(model, x, y)
        other = sequence_logps(model, inputs["kl_x"], inputs["kl_y"]).detach()
        reference, labels, base = (inputs[n] for n in ("reference", "labels", "kl_reference"))
        loss = kto_loss(
            logps, reference, labels, other, base, self.beta, reduction="sum", **self._options
        )
        signed = ops.mul(ops.sub(logps, reference), ops.scale(labels, 2.0, -1.0))
        kl = ops.relu(ops.mean(ops.sub(other, base)))
        count = x.shape[0]
        return loss, count, {**self._told(signed), "kl": ops.scale(kl, float(count))}
