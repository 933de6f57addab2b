# SPDX-License-Identifier: MIT
"""One optimizer step: gradients over several batches, then one update."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from ...backend.device import alone
from ...backend.undivided import Undivided
from ...checks import number
from ...data import IGNORE_INDEX
from ...graph import LossError
from ...optim import ClipValue
from ...optim.clip import NORM_MAX
from ..batches import Batch, check_alone, check_batches, spec_of
from ..finite import NonFiniteError, find_bad_gradient, find_input, find_source
from ..losses import class_loss
from ..result import StepResult
from .gradients import StepGradients, Weights

__all__ = ["Batch", "NonFiniteError", "StepResult", "TrainStep"]

_log = logging.getLogger("pyggml.train")
# So many steps in a row without a target are no accident of a mask or of a damaged image.
_MOST_EMPTY = 100


class TrainStep(StepGradients):
    """Compute gradients of a loss and let the optimizer use them.

    A loss is a scalar mean, as in PyTorch, or `(sum, count)`. The step minimises the mean over all
    its batches. With (sum, count) targets weigh alike, and accumulating four batches of eight
    sequences equals one batch of thirty-two however the targets are spread. A mean is weighed by
    the number of targets in its batch: whole numbers that are not ignored, or decimal rows.

    An optimizer with `fused_update` updates each parameter in the backward, as soon as its gradient
    is complete: the bits of loss and parameters are the same, without a buffer for gradients, and
    without clipping and accumulating.

    Graphs are recorded anew when parameters are frozen or unfrozen between steps.

    A step in which no target counts, as random masks or an unreadable image may make it, is
    skipped: parameters and optimizer stay as they are, and the loss is NaN. Of several batches,
    those without targets add nothing.

    Args:
        model: the model; its parameters are the optimizer's.
        optimizer: owns parameters, gradients and state.
        clip: largest global gradient norm; None or 0 does not clip.
        loss: called with (model, x, y) and, by name, the further inputs of a `pyggml.data.Batch`;
            returns a scalar mean, or (sum, count) with the number of targets in the sum: a whole
            number, a scalar Tensor computed of the inputs, or a function of the batch such as
            `pyggml.train.count_targets`; or (sum, count, metrics), with sums of metrics by name,
            whose means an evaluation tells. None takes the model's own `loss`, or the cross-entropy
            of its logits.
        precision: dtype that matmuls multiply, f32, tf32, bf16 or f16; None is that of
            `pyggml.autocast` at each step.
        clip_value: largest magnitude of an element of the gradients, clipped before the norm is;
            None or 0 does not clip.
        scaler: loss scaling; None makes a `GradScaler` with precision f16, and none otherwise.
        seed: of the dropouts' masks.
        group: ranks that share the batches of every step: counts, losses and gradients are sums
            over them, and every rank does the same update; None is this process by itself.
        exchange: how these ranks sum their gradients; None sums them as f32 numbers.

    Attributes:
        accumulates: whether steps have several batches: gradients are then added up from zero, by
            one graph for each shape; else each step's are written over the last one's. True from
            the first such step on; set it before to have `record` plan for it.
        empty: steps that were skipped because no target counted.
        runs: batches that gradients were computed of; each has its own dropout masks, so a resumed
            run sets it to have the masks that it would have had.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: clip, clip_value, loss scaling or several ranks with an optimizer that has
            `fused_update`; a number is out of range; or the optimizer has parameters of another
            model.

    Example:
        >>> step = TrainStep(model, pg.optim.AdamW(model, lr=1e-3))
        >>> x, y = np.zeros((2, 8), np.int32), np.ones((2, 8), np.int32)
        >>> step([(x, y)]).loss
        4.1...
    """

    instead = "make another TrainStep of the copied model and its optimizer"

    def __call__(self, batches: Sequence[Batch], lr: float | None = None) -> StepResult:
        """Do one optimizer step.

        Args:
            batches: inputs and targets; their gradients are accumulated.
            lr: learning rate; None keeps the optimizer's.

        Raises:
            TypeError: batches is no list of pairs of arrays, or lr is no number.
            ValueError: no batch, or a token that is not in the vocabulary; several batches with
                `fused_update`; a hundredth step in a row without a target that counts.
            NonFiniteError: the loss or a gradient is not finite; no parameter was changed, but for
                `fused_update` with a finite loss. Under loss scaling gradients that are not finite
                end a step as skipped, until a smaller scale cannot help.
        """
        if self.optimizer is None:
            raise ValueError("TrainStep: a step needs an optimizer; it was made with None")
        if lr is not None:
            number("TrainStep", "lr", lr, 0)
        batches = [self.check(batch) for batch in check_batches(batches)]
        if self._fused:
            check_alone(batches)
        # Other threads compute with the weights of whole steps, and no signal divides an update.
        with alone(), Undivided(later=True):
            return self._step(batches, lr)

    def _step(self, batches: Sequence[Batch], lr: float | None) -> StepResult:
        """Do one step with batches that are checked."""
        self.accumulates = self.accumulates or len(batches) > 1
        weights = self._weights(batches, gradients=True)
        tokens = self._total(weights)
        if not tokens:
            return self._empty_step(batches)
        self._empty_in_a_row = 0
        if self._fused:
            return self._fused_step(batches, weights, lr)
        if self._needs_closure:
            return self._closure_step(batches, weights, tokens, lr)
        scale = 1.0 if self.scaler is None else self.scaler.scale
        loss = self._run(batches, weights, tokens) / tokens
        if not math.isfinite(loss):
            self.optimizer.zero_grad()
            raise self._not_finite(f"the loss must be finite; got {loss}", batches)
        try:
            norm = self._update(lr, scale)
        except ArithmeticError as error:
            overflow = self.scaler is not None and not find_input(batches)
            if self.scaler is not None and overflow and self.scaler.update(overflow=True):
                self.optimizer.zero_grad()
                return StepResult(loss, tokens, math.inf, skipped=True)
            at = f", at the smallest loss scale {scale:g}, too" if overflow else ""
            worse = self._bad_gradients(at, batches)
            self.optimizer.zero_grad()
            raise worse from error
        if self.scaler is not None:
            self.scaler.update(overflow=False)
        return StepResult(loss, tokens, norm)

    def _empty_step(self, batches: Sequence[Batch]) -> StepResult:
        """Skip a step without a target; warn once, and raise when it goes on."""
        self.empty += 1
        self._empty_in_a_row += 1
        what = f"{len(batches)} batch(es) with targets {batches[0][1].shape}"
        if self._empty_in_a_row >= _MOST_EMPTY:
            raise ValueError(
                f"TrainStep: {_MOST_EMPTY} steps in a row had no target that counts, the last of"
                f" {what}: targets that are IGNORE_INDEX ({IGNORE_INDEX}), or that the"
                " loss counts as 0, teach nothing; look at what masks or reads the targets"
            )
        if self.empty == 1:
            _log.warning(
                "TrainStep: a step without a target that counts is skipped, as are all that may"
                " follow: it had %s", what,
            )  # fmt: skip
        return StepResult(math.nan, 0, 0.0, skipped=True)

    def _not_finite(
        self, message: str, batches: Sequence[Batch], spoiled: bool = False
    ) -> NonFiniteError:
        """Return the error of a step, with its source: the batch, or the weights before it."""
        classes = None
        if self.exchange is not None:  # all ranks come here
            self.exchange.delivery.gather()
        if self._graphs.loss is class_loss and batches[0][1].dtype.kind != "f":
            classes = self._graphs.logits(batches[0]).result.shape[-1]
        return find_source(message, batches, self.model, classes, spoiled)

    def _bad_gradients(self, at: str, batches: Sequence[Batch]) -> NonFiniteError:
        """Return the error of gradients whose loss is finite."""
        error = self._not_finite(f"the gradients must be finite{at}", batches)
        return find_bad_gradient(error, self.model, self.optimizer, at)

    def _update(self, lr: float | None, scale: float) -> float:
        """Clip the gradients and let the optimizer use them; returns their norm before that."""
        if self.clip_value is None:
            # Only loss scaling needs it: what else steps may not know of it.
            scaled = {} if scale == 1.0 else {"grad_scale": scale}
            norm = float(self.optimizer.step(lr=lr, clip=self.clip, **scaled))
            if self.exchange is not None:
                self.exchange.delivery.begin(self.exchange.overlaps)
            return norm
        norm = float(self.optimizer.grad_norm()) / scale
        if not math.isfinite(norm) or (scale != 1.0 and norm * scale > NORM_MAX):
            raise FloatingPointError("a gradient is not finite, or too large for its scale")
        trained = self._graphs.trained
        if self._clip_values is None or self._clip_values[0] is not trained:
            grads = [g for g in self.optimizer.trained().values() if g.is_stored]
            self._clip_values = trained, ClipValue(grads, self.clip_value)
        self._clip_values[1](1.0 / scale)
        self.optimizer.step(lr=lr, clip=self.clip)
        if self.exchange is not None:
            self.exchange.delivery.begin(self.exchange.overlaps)
        return norm

    def _closure_step(
        self, batches: Sequence[Batch], weights: Weights, tokens: int, lr: float | None
    ) -> StepResult:
        """A step of an optimizer that asks for the loss at several points."""
        runs, norms = self.runs, list[float]()

        def closure() -> float:
            self.runs = runs  # the same function each time: the same masks
            loss = self._run(batches, weights, tokens) / tokens
            if not norms:
                norms.append(float(self.optimizer.grad_norm()))
            return loss

        try:
            loss = float(self.optimizer.step(closure, lr=lr))
        except ArithmeticError as error:
            self.optimizer.zero_grad()
            message = "the loss and its gradients must be finite; they are not"
            raise self._not_finite(message, batches) from error
        return StepResult(loss, tokens, norms[0])

    def _fused_step(
        self, batches: Sequence[Batch], weights: Weights, lr: float | None
    ) -> StepResult:
        """One run that computes the gradients and updates by them."""
        found, tokens = find_input(batches), self._total(weights)
        if found:  # a loss may be finite all the same, and its gradients would spoil the weights
            raise NonFiniteError(f"the numbers of a batch must be finite; {found}", source="inputs")
        recorded = self._graphs.get(spec_of(batches[0]), gradients=True)
        try:
            with self.optimizer.updating(lr):
                loss = self._run(batches, weights, tokens) / tokens
        except LossError as error:
            message = "the loss must be finite; got NaN or infinity"
            raise self._not_finite(message, batches, error.spoiled) from error
        assert recorded.squares is not None
        squares = float(recorded.graph.read(recorded.squares).reshape(()))
        if not math.isfinite(squares):
            raise NonFiniteError(
                f"the gradients must be finite; the sum of their squares is {squares}, where f32 "
                f"holds those of a norm up to {NORM_MAX:.2g}",
                spoiled=True,
                source="gradients",
            )
        return StepResult(loss, tokens, math.sqrt(squares))
